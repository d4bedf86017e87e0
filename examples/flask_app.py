"""A service behind a Flask view: bytes in, bytes out, no event loop.

python examples/flask_app.py               calls itself once and ends
flask --app examples/flask_app.py run      serves it
"""

from flask import Flask, Response, request

from calculator import api

app = Flask(__name__)


@app.post("/")
def rpc() -> Response:
    answer = api.answer(request.get_data())
    return Response(answer, 204 if answer is None else 200, mimetype="application/json")


if __name__ == "__main__":
    with app.test_client() as client:
        called = client.post("/", data=b'{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}')
        print(called.status_code, called.get_data(as_text=True))  # 200 {"jsonrpc":"2.0","result":19,"id":1}
        told = client.post("/", data=b'{"jsonrpc":"2.0","method":"subtract","params":[42,23]}')
        print(told.status_code, repr(told.get_data(as_text=True)))  # 204 ''
