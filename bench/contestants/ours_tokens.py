"""dragoman verifying access tokens: one that was verified before, new ones, one that is refused, a DPoP proof."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

from bench.messages import CLAIMS, ISSUER, RESOURCE
from bench.worker import measure
from dragoman.auth import Bearer, Key, TokenRefused
from dragoman.auth.dpop import ProofChecker
from dragoman.auth.dpop import proof as dpop_proof
from dragoman.auth.jose import new_key, sign_jws, thumbprint
from dragoman.channel import Handshake

PLAIN = Handshake(scheme="http", method="POST", url="/mcp")


class Answer(Struct, frozen=True):
    body: bytes
    status: int = 200
    headers: dict[str, str] = {}


class Issuer:
    """Answers as an issuer would, without a wire."""

    def __init__(self, key: Key) -> None:
        self.key = key

    async def get(self, url: str, *, by: Any = "", origin: str | None = None, headers: Any = None) -> Answer:
        published: dict[str, object] = {"issuer": ISSUER, "jwks_uri": ISSUER + "/keys"}
        return Answer(json.dumps({"keys": [self.key.public_jwk()]} if url.endswith("/keys") else published).encode())

    async def post_form(
        self, url: str, form: Any, *, by: Any = "", origin: str | None = None, headers: Any = None
    ) -> Answer:
        raise NotImplementedError

    post_json = post_form


def _token(key: Key, **more: Any) -> str:
    now = int(time.time())
    return sign_jws(CLAIMS | {"iat": now, "exp": now + 3600, "jti": "1"} | more, key, typ="at+jwt")


def _driven(call: Coroutine[Any, Any, str]) -> str:
    """The result of a coroutine that waits for nothing."""
    try:
        call.send(None)
    except StopIteration as done:
        return str(done.value)
    raise AssertionError("it waited")


def _verifying(key: Key, claims: dict[str, Any] | None = None, **options: Any) -> None:
    """Verify a token of this key each time; one that is refused has a 19 in its answer all the same."""
    bearer = Bearer(ISSUER, resource=RESOURCE, fetcher=Issuer(key), **options)
    text = _token(key, **claims or {})

    async def verify() -> str:
        return str((await bearer.verify(text, PLAIN)).subject)

    async def refuse() -> str:
        try:
            return await verify() + " was taken"
        except TokenRefused as error:
            return f"19 {error}"

    once: Callable[[], Coroutine[Any, Any, str]] = refuse if claims else verify
    asyncio.run(once())  # the keys are there
    measure(lambda: _driven(once()))


def known() -> None:
    _verifying(new_key("ES256", kid="ES256"))


def new(algorithm: Any) -> None:
    _verifying(new_key(algorithm, kid=algorithm), cache_seconds=0)


def refused() -> None:
    _verifying(new_key("ES256", kid="ES256"), {"aud": "https://other.example"})


def proof() -> None:
    """Check a DPoP proof; it is forgotten each time, so that the same one can be checked again."""
    holder, text = new_key("ES256"), _token(new_key("ES256", kid="ES256"))
    name = thumbprint(holder.public_jwk())
    checker, made = ProofChecker(), dpop_proof(holder, "POST", RESOURCE, token=text)

    def check() -> str:
        checker.check(made, "POST", RESOURCE, token=text, thumbprint=name)
        checker._replays._seen.clear()
        return "19"

    measure(check)
