# mypy: ignore-errors
"""The official Python SDK as a client that logs in: calls tools at a URL, and prints what they said and how often its
user was asked, as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

from mcp import Client

warnings.simplefilter("ignore")
CALLBACK = "http://127.0.0.1:1/callback"


class Kept:
    """A store of the SDK's contract."""

    tokens = client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


async def main(url: str, *tools: str) -> None:
    led: list[dict[str, list[str]]] = []

    async def redirected(to: str) -> None:
        async with httpx2.AsyncClient(trust_env=False) as browser:
            answer = await browser.get(to)
        led.append(parse_qs(urlsplit(answer.headers["location"]).query))

    async def answered() -> AuthorizationCodeResult:
        found = {name: values[0] for name, values in led[-1].items()}
        known = AuthorizationCodeResult.model_fields
        return AuthorizationCodeResult(**{name: value for name, value in found.items() if name in known})

    kept = Kept()
    metadata = OAuthClientMetadata(client_name="sdk", redirect_uris=[CALLBACK], token_endpoint_auth_method="none")
    provider = OAuthClientProvider(url, metadata, kept, redirected, answered)
    async with (
        httpx2.AsyncClient(auth=provider, trust_env=False, follow_redirects=True) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        said = [(await client.call_tool(tool, {})).content[0].text for tool in tools]
    refresh = kept.tokens is not None and bool(kept.tokens.refresh_token)
    print(json.dumps({"said": said, "asked": len(led), "refresh": refresh, "issuers": [one.get("iss") for one in led]}))


asyncio.run(main(*sys.argv[1:]))
