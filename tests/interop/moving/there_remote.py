# mypy: ignore-errors
"""A server of FastMCP's that takes the tokens of an issuer, over HTTP at a port; `here_remote` is ours."""

from __future__ import annotations

import sys
import warnings

from fastmcp import FastMCP
from fastmcp.server.auth import RemoteAuthProvider
from fastmcp.server.auth.providers.jwt import JWTVerifier
from pydantic import AnyHttpUrl

warnings.simplefilter("ignore")
ISSUER = "https://issuer.example"
port = int(sys.argv[1])
auth = RemoteAuthProvider(
    token_verifier=JWTVerifier(jwks_uri=f"{ISSUER}/jwks", issuer=ISSUER, audience="http://127.0.0.1:8000/mcp"),
    authorization_servers=[AnyHttpUrl(ISSUER)],
    base_url="http://127.0.0.1:8000",
)
mcp = FastMCP("remote", auth=auth)


@mcp.tool
def who() -> str:
    return "somebody"


if __name__ == "__main__":
    mcp.run("http", host="127.0.0.1", port=port, show_banner=False)
