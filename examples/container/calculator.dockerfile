FROM python:3.13-slim
COPY . /source
RUN pip install --no-cache-dir '/source[http,mcp,cli,speed]' && rm -r /source
WORKDIR /app
COPY examples/calculator.py examples/container/dragoman.toml ./
USER 65534
EXPOSE 8000 9090
HEALTHCHECK CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/ready', timeout=3)"]
ENTRYPOINT ["dragoman", "serve", "--config", "dragoman.toml"]
