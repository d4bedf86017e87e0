# mypy: ignore-errors
"""A server of FastMCP's that asks for tokens, over HTTP at a port; `here_guarded` is ours."""

from __future__ import annotations

import sys
import warnings

from fastmcp import FastMCP
from fastmcp.server.auth import require_scopes
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.server.dependencies import get_access_token

warnings.simplefilter("ignore")
TOKENS = {
    "token-of-ada": {"client_id": "ada", "sub": "ada", "scopes": ["read", "write"]},
    "token-of-bob": {"client_id": "bob", "sub": "bob", "scopes": ["read"]},
}
mcp = FastMCP("guarded", auth=StaticTokenVerifier(tokens=TOKENS))


@mcp.tool
def who() -> str:
    return get_access_token().client_id


@mcp.tool(auth=require_scopes("write"))
def write() -> str:
    return "written"


if __name__ == "__main__":
    mcp.run("http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False)
