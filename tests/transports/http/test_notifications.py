"""A notification over HTTP is answered when it was accepted; its handler goes on, within the limits, to its end."""

from __future__ import annotations

import asyncio
import json

import pytest

from dragoman import Service
from dragoman.channel import Options
from dragoman.jsonrpc.limits import Limits
from dragoman.rpc.servable import ServableService
from tests.behind import behind
from tests.transports.ends import until

from .cases import PATIENCE, answer, post
from .ends import face, wire

FACES = ["native", "asgi"]
TOLD = {"jsonrpc": "2.0", "method": "work"}
ASKED = {"jsonrpc": "2.0", "method": "ask", "id": 1}


class Works:
    """A service whose `work` waits for `go`."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.go = asyncio.Event()
        self.begun = self.done = self.cancelled = self.most = 0
        api = Service("works", limits=limits or Limits())

        @api.method
        async def work() -> None:
            self.begun += 1
            self.most = max(self.most, self.begun - self.done)
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            self.done += 1

        @api.method
        async def ask() -> str:
            await asyncio.sleep(0)
            return "asked"

        self.served = ServableService(behind(api))


def body(*messages: object) -> bytes:
    return post(json.dumps(messages[0] if len(messages) == 1 else messages).encode())


@pytest.mark.parametrize("kind", FACES)
@pytest.mark.parametrize("many", [1, 3], ids=["one", "a batch"])
async def test_it_is_answered_at_once_and_goes_on_when_its_caller_leaves(kind: str, many: int) -> None:
    works = Works()
    async with face(kind, {"": works.served}, Options()) as port:
        async with wire(port) as (reader, writer):
            writer.write(body(*[TOLD] * many))
            assert (await answer(reader)).status == 204
            writer.write(body(ASKED))
            assert json.loads((await answer(reader)).body)["result"] == "asked"
            assert (works.begun, works.done) == (many, 0)
        async with wire(port) as (reader, writer):  # another caller: by its answer the server has seen the first leave
            writer.write(body(ASKED))
            await answer(reader)
        works.go.set()
        await until(lambda: works.done == many)
    assert not works.cancelled


@pytest.mark.parametrize("kind", FACES)
async def test_in_a_batch_the_answers_do_not_wait_for_it(kind: str) -> None:
    works = Works()
    async with face(kind, {"": works.served}, Options()) as port, wire(port) as (reader, writer):
        writer.write(body(TOLD, ASKED, TOLD))
        assert json.loads((await answer(reader)).body) == [{"jsonrpc": "2.0", "result": "asked", "id": 1}]
        assert (works.begun, works.done) == (2, 0)
        works.go.set()
        await until(lambda: works.done == 2)


@pytest.mark.parametrize("kind", FACES)
async def test_a_batch_of_them_takes_no_more_slots_than_any_batch(kind: str) -> None:
    works = Works(Limits(batch_concurrency=4))
    async with face(kind, {"": works.served}, Options()) as port, wire(port) as (reader, writer):
        writer.write(body(*[TOLD] * 20))
        assert (await answer(reader)).status == 204
        assert works.begun == 4
        works.go.set()
        await until(lambda: works.done == 20)
        assert works.most <= 4
        assert works.served.call_limit.in_flight == 0


@pytest.mark.parametrize("kind", FACES)
async def test_beyond_the_limit_of_calls_it_is_refused(kind: str) -> None:
    works = Works(Limits(calls=1))
    async with face(kind, {"": works.served}, Options()) as port, wire(port) as (reader, writer):
        for status in (204, 503):
            writer.write(body(TOLD))
            assert (await answer(reader)).status == status
        works.go.set()
        await until(lambda: works.done == 1)


@pytest.mark.parametrize("kind", FACES)
async def test_the_end_of_the_server_waits_for_it(kind: str) -> None:
    works = Works()
    async with face(kind, {"": works.served}, Options()) as port, wire(port) as (reader, writer):
        writer.write(body(TOLD))
        assert (await answer(reader)).status == 204
        asyncio.get_running_loop().call_later(0.05, works.go.set)
        if kind == "native":
            await works.served.drain(PATIENCE)
    assert (works.done, works.cancelled) == (1, 0)


@pytest.mark.parametrize("kind", FACES)
@pytest.mark.parametrize("many", [1, 3], ids=["one", "a batch"])
async def test_by_option_the_caller_waits_for_it(kind: str, many: int) -> None:
    works = Works()
    async with face(kind, {"": works.served}, Options(await_notifications=True)) as port:
        async with wire(port) as (reader, writer):
            writer.write(body(*[TOLD] * many))
            await until(lambda: works.begun == many)
            works.go.set()
            assert (await answer(reader)).status == 204
            assert works.done == many
        works.go.clear()
        async with wire(port) as (_, writer):
            writer.write(body(*[TOLD] * many))
            await until(lambda: works.begun == 2 * many)
        await until(lambda: works.cancelled == many)
