"""What is served, and where."""

from __future__ import annotations

import asyncio
import ssl

from dragoman import Limits, Service, serve
from dragoman.channel import Admitted, Denied, Handshake
from dragoman.mcp import Server
from dragoman.telemetry import Metrics

api = Service("api")
app = Server("app")


async def guard(handshake: Handshake) -> Admitted | Denied:
    return Admitted() if handshake.scheme == "https" else Denied(reason="not here", status=403)


async def main() -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    async with serve(api, app, urls=["https://0.0.0.0:8443", "unix:/tmp/a"], tls=context, guard=guard) as serving:
        urls: list[str] = serving.urls
        print(urls)
        await serving.close(drain=3)
    await serve({"/rpc": api}, urls="tcp://127.0.0.1:0", observers=[Metrics()], limits=Limits(), store="sqlite:a.db")
    asyncio.run(serve(api, urls="tcp://127.0.0.1:0"))


async def mistaken() -> None:
    serve(api)  # wrong: where
    serve(api, urls=8000)  # wrong: a URL
    serve("api:app", urls="tcp://127.0.0.1:0")  # wrong: what is served
    serve(api, urls="https://127.0.0.1:0", tls="cert.pem")  # wrong: an SSLContext
    serve(api, urls="tcp://127.0.0.1:0", framing="lines")  # wrong: no such framing
    serve(api, urls="tcp://127.0.0.1:0", mode="600")  # wrong: a number
    serve(api, urls="tcp://127.0.0.1:0", guard=lambda handshake: True)  # wrong: a verdict, awaited
    serve(api, urls="tcp://127.0.0.1:0", observers=[print])  # wrong: an observer
    serve(api, url="tcp://127.0.0.1:0", urls=[])  # wrong: misspelt
    with serve(api, urls="tcp://127.0.0.1:0"):  # wrong: async with
        pass
    await serve(api, urls="tcp://127.0.0.1:0").urls  # wrong: nothing to await
