"""A server that asks for tokens; `there_guarded` is FastMCP's own."""

from __future__ import annotations

from dragoman.auth import Static
from dragoman.channel import Identity
from dragoman.mcp import Context, Server

TOKENS: dict[str, Identity | str] = {
    "token-of-ada": Identity(subject="ada", scopes=frozenset({"read", "write"})),
    "token-of-bob": Identity(subject="bob", scopes=frozenset({"read"})),
}
app = Server("guarded", auth=Static(TOKENS))


@app.tool
def who(ctx: Context) -> str:
    assert ctx.identity is not None
    return ctx.identity.subject


@app.tool(scopes=["write"])
def write() -> str:
    return "written"
