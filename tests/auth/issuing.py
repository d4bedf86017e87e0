"""An issuer in this process: keys, metadata, tokens with any fault, and a fetcher that asks it and counts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from dragoman.auth.jose import Key, new_key, sign_jws
from dragoman.channel import Handshake

NOW = 1_800_000_000.0
ISSUER = "https://as.example"
RESOURCE = "https://mcp.example/mcp"
JWKS = ISSUER + "/keys"
METADATA = ISSUER + "/.well-known/oauth-authorization-server"

KEYS: dict[str, Key] = {}


def key_of(algorithm: str, name: str = "a") -> Key:
    """A key of the test run; the same for the same names, since RSA keys take long to make."""
    kid = f"{algorithm}-{name}"
    if kid not in KEYS:
        KEYS[kid] = new_key(algorithm, kid=kid)
    return KEYS[kid]


class Clock:
    """A clock that a test moves."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Reply(Struct, frozen=True):
    """An answer of an issuer."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}


def reply(content: Any, status: int = 200, **headers: str) -> Reply:
    return Reply(status, json.dumps(content).encode(), headers)


class Asked(Struct, frozen=True):
    """A question that the fetcher put."""

    url: str
    by: str
    form: Mapping[str, str] | None = None
    headers: Mapping[str, str] = {}


class Away(OSError):
    """No connection."""


class FakeIssuer:
    """An issuer and the fetcher that asks it: `pages` maps URLs to answers, or to functions of the question."""

    def __init__(self, *keys: Key) -> None:
        self.keys = list(keys or [key_of("ES256")])
        self.asked: list[Asked] = []
        self.away = False
        self.was_asked = asyncio.Event()
        self.gate: asyncio.Event | None = None
        self.pages: dict[str, Reply | Callable[[Asked], Reply]] = {
            METADATA: reply({"issuer": ISSUER, "jwks_uri": JWKS, "token_endpoint": ISSUER + "/token"}),
            JWKS: lambda _: reply({"keys": [key.public_jwk() for key in self.keys]}),
        }

    def count(self, url: str = JWKS) -> int:
        return sum(one.url == url for one in self.asked)

    async def get(self, url: str, *, by: Any = "document", origin: str | None = None, headers: Any = None) -> Reply:
        return await self._answer(Asked(url, by, None, headers or {}))

    async def post_form(
        self, url: str, form: Any, *, by: Any = "document", origin: str | None = None, headers: Any = None
    ) -> Reply:
        return await self._answer(Asked(url, by, dict(form), headers or {}))

    async def post_json(
        self, url: str, content: Any, *, by: Any = "document", origin: str | None = None, headers: Any = None
    ) -> Reply:
        return await self._answer(Asked(url, by, dict(content), headers or {}))

    async def _answer(self, question: Asked) -> Reply:
        self.asked.append(question)
        self.was_asked.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.away:
            raise Away("no connection")
        page = self.pages.get(question.url, Reply(404))
        return page if isinstance(page, Reply) else page(question)


CLAIMS: dict[str, Any] = {
    "iss": ISSUER,
    "aud": RESOURCE,
    "sub": "ada",
    "client_id": "app",
    "scope": "notes:read notes:write",
    "iat": int(NOW) - 10,
    "exp": int(NOW) + 600,
    "jti": "1",
}


def token(key: Key | None = None, *, typ: str | None = "at+jwt", headers: Mapping[str, Any] | None = None, drop: str = "", **claims: Any) -> str:  # fmt: skip
    """A token with these claims instead of the right ones, without those that `drop` names."""
    found = {name: value for name, value in (CLAIMS | claims).items() if name not in drop.split()}
    return sign_jws(found, key or key_of("ES256"), typ=typ, headers=headers)


def shown(text: str, *, scheme: str = "Bearer", method: str = "POST", path: str = "/mcp", proofs: tuple[str, ...] = ()) -> Handshake:  # fmt: skip
    """The handshake of an HTTP request with a token."""
    fields = [(b"authorization", f"{scheme} {text}".encode()), *((b"dpop", one.encode()) for one in proofs)]
    return Handshake(scheme="http", method=method, url=path, headers=fields)


PLAIN = Handshake(scheme="http", method="POST", url="/mcp")
