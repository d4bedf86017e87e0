"""dragoman with authorization: `PORT JWK`, an MCP server that takes tokens signed with the key."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from bench.limits.loops import run
from bench.servers.mcp import serving
from bench.servers.tokens import ISSUER, RESOURCE, Issuer
from dragoman.auth import Bearer
from dragoman.mcp import HttpOptions, Server


def server(key: Mapping[str, Any]) -> Server:
    """One tool, for those with a token."""
    bearer = Bearer(ISSUER, resource=RESOURCE, fetcher=Issuer(key))
    app = Server("bench", version="1.0.0", http=HttpOptions(json=True), auth=bearer)

    @app.tool
    async def subtract(minuend: int, subtrahend: int) -> int:
        return minuend - subtrahend

    return app


if __name__ == "__main__":
    run(serving(server(json.loads(sys.argv[2])), f"http://127.0.0.1:{sys.argv[1]}/mcp"), uvloop=False)
