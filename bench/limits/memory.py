"""The limit of an awaited call in memory: two ends on one loop, each message handed over by `call_soon`, msgspec by
hand."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import msgspec
from msgspec import Raw, Struct

from bench.limits.rpc import ENCODE, answer
from bench.worker import offer_async


class Call(Struct):
    """A request as it is written."""

    method: str
    params: Any
    id: int
    jsonrpc: str = "2.0"


class Reply(Struct):
    """A response as it is read."""

    jsonrpc: str
    result: Raw
    id: int


REPLY = msgspec.json.Decoder(Reply).decode
RESULT = msgspec.json.Decoder(int).decode


async def main() -> None:
    """Until end of file."""
    loop = asyncio.get_running_loop()
    ids, waiting = count(1), dict[int, asyncio.Future[int]]()

    def asked(raw: bytes) -> None:
        loop.call_soon(answered, answer(raw))

    def answered(raw: bytes) -> None:
        reply = REPLY(raw)
        waiting.pop(reply.id).set_result(RESULT(reply.result))

    async def call() -> object:
        id = next(ids)
        future = waiting[id] = loop.create_future()
        loop.call_soon(asked, ENCODE(Call("subtract", [42, 23], id)))
        return await future

    await offer_async({"single": call})


if __name__ == "__main__":
    asyncio.run(main())
