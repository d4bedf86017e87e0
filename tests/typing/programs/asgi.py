"""The ASGI application, mounted and run."""

from __future__ import annotations

import asyncio

import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import Mount

from dragoman import Service, http_app
from dragoman.mcp import Server

api = Service("api")
app = http_app(
    {"/rpc": api, "/mcp": Server("app")}, hosts=["api.example"], cors=["https://a.example"], empty_status=200
)
site = Starlette(routes=[Mount("/rpc", app=app)])
FastAPI().mount("/rpc", app)
uvicorn.run(app, port=8000)
TrustedHostMiddleware(app, allowed_hosts=["api.example"])


async def main() -> None:
    received: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    await app({"type": "http"}, received.get, print)  # wrong: sending is awaited


http_app(3)  # wrong: nothing to serve
http_app(api, hosts=8)  # wrong: names
http_app(api, empty_status=201)  # wrong: none of the two
http_app(api, limits={"depth": 3})  # wrong: Limits
http_app(api, urls="http://127.0.0.1")  # wrong: the server in front has them
http_app(api, store=1)  # wrong: a URL or an engine
app.serve()  # wrong: it is run by a server
