# mypy: ignore-errors
"""fastapi-jsonrpc on uvicorn. It takes no positional params."""

import fastapi_jsonrpc

from bench.contestants.bare_http import uvicorn_run

entry = fastapi_jsonrpc.Entrypoint("/")


@entry.method()
async def subtract(minuend: int, subtrahend: int) -> int:
    return minuend - subtrahend


def http(port: str) -> None:
    app = fastapi_jsonrpc.API()
    app.bind_entrypoint(entry)
    uvicorn_run(app, port)
