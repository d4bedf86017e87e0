"""A store of recent answers that the tests look into."""

from __future__ import annotations

import asyncio


class Recording:
    """What `AnswerCache` asks of a `bus.Store`. It remembers what it was asked to delete, and deletes while `go` is
    set."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.deleted: list[str] = []
        self.go = asyncio.Event()
        self.go.set()

    async def get(self, key: str) -> bytes | None:
        return self.values.get(key)

    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        self.values[key] = value

    async def delete(self, key: str) -> None:
        self.deleted.append(key)
        await self.go.wait()
        self.values.pop(key, None)
