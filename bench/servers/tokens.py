"""dragoman verifying access tokens: one that was verified before, new ones, a DPoP proof, one that is refused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from bench.worker import offer
from dragoman.auth import Bearer, Key, TokenRefused
from dragoman.auth.dpop import ProofChecker, proof
from dragoman.auth.jose import new_key, sign_jws, thumbprint
from dragoman.channel import Handshake, Identity

ISSUER, RESOURCE = "https://as.example", "https://mcp.example/mcp"
KEYS = {name: new_key(name, kid=name) for name in ("ES256", "RS256")}
HOLDER = new_key("ES256")
PLAIN = Handshake(scheme="http", method="POST", url="/mcp")


class Answer(Struct, frozen=True):
    body: bytes
    status: int = 200
    headers: dict[str, str] = {}


class Issuer:
    """Answers as an issuer would, without a wire. `keys`: public JWKs; by default those of this module."""

    def __init__(self, *keys: Mapping[str, Any]) -> None:
        self._keys = keys or tuple(key.public_jwk() for key in KEYS.values())

    async def get(self, url: str, *, by: Any = "", origin: str | None = None, headers: Any = None) -> Answer:
        if url.endswith("/keys"):
            return Answer(json.dumps({"keys": self._keys}).encode())
        return Answer(json.dumps({"issuer": ISSUER, "jwks_uri": ISSUER + "/keys"}).encode())

    async def post_form(
        self, url: str, form: Any, *, by: Any = "", origin: str | None = None, headers: Any = None
    ) -> Answer:
        raise NotImplementedError

    post_json = post_form


def token(key: Key, **more: Any) -> str:
    claims = {"iss": ISSUER, "aud": RESOURCE, "sub": "user-19", "client_id": "app", "scope": "notes:read notes:write"}
    return sign_jws(
        claims | {"iat": int(time.time()), "exp": int(time.time()) + 3600, "jti": "1"} | more, key, typ="at+jwt"
    )


def verifier(text: str, **options: Any) -> Callable[[], str]:
    """Verifies this token each time."""
    bearer = Bearer(ISSUER, resource=RESOURCE, fetcher=Issuer(), **options)
    asyncio.run(_first(bearer.verify(text, PLAIN)))  # the keys are there

    def verify() -> str:
        return str(driven(bearer.verify(text, PLAIN)).subject)

    return verify


async def _first(verified: Awaitable[Identity]) -> None:
    await verified


def driven(call: Any) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        call.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waited")


def refused() -> Callable[[], str]:
    """Refuses this token each time."""
    bearer = Bearer(ISSUER, resource=RESOURCE, fetcher=Issuer())
    wrong = token(KEYS["ES256"], aud="https://other.example")

    async def ask() -> str:
        try:
            await bearer.verify(wrong, PLAIN)
        except TokenRefused as error:
            return f"19 {error}"
        return "taken"

    asyncio.run(ask())
    return lambda: str(driven(ask()))


def proved() -> Callable[[], str]:
    """Checks a DPoP proof; it is forgotten each time, so that the same one can be checked again."""
    text = token(KEYS["ES256"])
    name = thumbprint(HOLDER.public_jwk())
    checker, made = ProofChecker(), proof(HOLDER, "POST", RESOURCE, token=text)

    def check() -> str:
        checker.check(made, "POST", RESOURCE, token=text, thumbprint=name)
        checker._replays._seen.clear()
        return "19"

    return check


if __name__ == "__main__":
    offer(
        {
            "cached": verifier(token(KEYS["ES256"])),
            "ES256": verifier(token(KEYS["ES256"]), cache_seconds=0),
            "RS256": verifier(token(KEYS["RS256"]), cache_seconds=0),
            "proof": proved(),
            "refused": refused(),
        }
    )
