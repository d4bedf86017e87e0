"""A service mounted in a FastAPI application, over HTTP and WebSocket.

python examples/fastapi_app.py             serves itself on a free port, calls it and ends
uvicorn fastapi_app:app                    serves it (in this folder)
"""

import asyncio
import socket

import uvicorn
from fastapi import FastAPI

from calculator import api
from dragoman import connect, http_app

app = FastAPI()
app.mount("/rpc", http_app(api))


@app.get("/")
def index() -> dict[str, str]:
    return {"rpc": "/rpc/"}


async def main() -> None:
    listening = socket.create_server(
        ("127.0.0.1", 0)
    )  # it listens from now on, so there is no need to wait for uvicorn
    place = f"127.0.0.1:{listening.getsockname()[1]}/rpc/"
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="websockets-sansio"))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    async with connect(f"http://{place}") as peer:
        print("http", await peer.call("subtract", [42, 23]))  # http 19
    async with connect(f"ws://{place}") as peer:
        print("ws", await peer.call("subtract", [42, 23]))  # ws 19
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main())
