# mypy: ignore-errors
"""Servers of others that take an issuer's tokens: `protected.py sdk|fastmcp PORT ISSUER`."""

from __future__ import annotations

import sys
import warnings

warnings.simplefilter("ignore")
KIND, PORT, ISSUER = sys.argv[1], int(sys.argv[2]), sys.argv[3]
URL = f"http://127.0.0.1:{PORT}/mcp"
SCOPES = ["notes:read"]


def sdk():
    """The official Python SDK, whose users write the verifier."""
    import jwt
    from mcp.server.auth.provider import AccessToken
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.mcpserver import MCPServer

    keys = jwt.PyJWKClient(f"{ISSUER}/jwks.json")

    class Verifier:
        async def verify_token(self, token):
            key = keys.get_signing_key_from_jwt(token).key
            claims = jwt.decode(token, key, algorithms=["ES256"], audience=URL, issuer=ISSUER)
            return AccessToken(
                token=token,
                client_id=claims["client_id"],
                scopes=claims["scope"].split(),
                expires_at=claims["exp"],
                subject=claims["sub"],
            )

    settings = AuthSettings(issuer_url=ISSUER, resource_server_url=URL, required_scopes=SCOPES)
    app = MCPServer("theirs", token_verifier=Verifier(), auth=settings, log_level="ERROR")

    @app.tool()
    async def read() -> str:
        return "read"

    app.run("streamable-http", host="127.0.0.1", port=PORT)


def fastmcp():
    """FastMCP."""
    from fastmcp import FastMCP
    from fastmcp.server.auth import RemoteAuthProvider
    from fastmcp.server.auth.providers.jwt import JWTVerifier

    verifier = JWTVerifier(
        jwks_uri=f"{ISSUER}/jwks.json", issuer=ISSUER, audience=URL, algorithm="ES256", required_scopes=SCOPES
    )
    auth = RemoteAuthProvider(
        token_verifier=verifier, authorization_servers=[ISSUER], base_url=f"http://127.0.0.1:{PORT}"
    )
    app = FastMCP("theirs", auth=auth)

    @app.tool
    async def read() -> str:
        return "read"

    app.run("http", host="127.0.0.1", port=PORT, show_banner=False, log_level="error")


{"sdk": sdk, "fastmcp": fastmcp}[KIND]()
