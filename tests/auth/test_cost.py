"""What verified tokens cost: memory, and how often an issuer is asked. Times are measured in bench/."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

from dragoman.auth import Bearer
from tests.auth.issuing import ISSUER, PLAIN, RESOURCE, Clock, FakeIssuer, key_of, token

KEPT = 10_000
ALLOWED = 8 * 1024 * 1024
"""Bytes that 10,000 cached tokens may take beside the tokens themselves."""


def test_ten_thousand_tokens_in_eight_mebibytes() -> None:
    key = key_of("EdDSA")  # quick to sign with
    texts = [token(key, jti=str(each), sub=f"user-{each:08}", client_id=f"client-{each % 50}") for each in range(KEPT)]
    fake = FakeIssuer(key)
    verifier = Bearer(ISSUER, resource=RESOURCE, fetcher=fake, now=Clock())

    async def fill(some: list[str]) -> None:
        for text in some:
            await verifier.verify(text, PLAIN)

    asyncio.run(fill(texts[:1]))
    gc.collect()
    tracemalloc.start()
    try:
        asyncio.run(fill(texts))
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert all(verifier.known(text.encode()) for text in texts)
    assert taken < ALLOWED
    assert fake.count() == 1
