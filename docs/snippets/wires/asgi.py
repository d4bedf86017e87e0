# [asgi]
from calculator import api
from dragoman import http_app

app = http_app(api)  # uvicorn asgi:app
# [/asgi]
