"""A server that takes the tokens of an issuer; `there_remote` is FastMCP's own."""

from __future__ import annotations

from dragoman.auth import Bearer
from dragoman.mcp import Server

app = Server("remote", auth=Bearer("https://issuer.example", resource="http://127.0.0.1:8000/mcp"))


@app.tool
def who() -> str:
    return "somebody"
