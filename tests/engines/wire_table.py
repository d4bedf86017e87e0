"""The table of wire cases over a broker, bytes in and bytes out.

The bytes go through `BrokerAdapter`, the broker's own face, and not through a peer: whatever is in the table is sent as
it is, with a mailbox to answer to, and what comes into the mailbox is what the worker said. Whether nothing is owed
shows when the worker has settled the message and a later one is answered.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from dragoman import serve
from dragoman.transports.broker.contract import BrokerAdapter, BrokerMessage
from tests.calculator import calculator
from tests.wire_cases import Case, all_cases, check

PATIENCE = 30.0
AT_ONCE = 64


class Asker:
    """Asks the worker at an adapter's address, many cases at a time."""

    def __init__(self, adapter: BrokerAdapter) -> None:
        self.adapter = adapter
        self.mailbox = ""
        self.answers: dict[str, list[bytes]] = {}
        self.waiting: dict[str, asyncio.Future[None]] = {}

    async def begin(self) -> None:
        self.mailbox = await self.adapter.mailbox(self.take)

    def take(self, message: BrokerMessage) -> None:
        self.answers.setdefault(message.correlation, []).append(message.body)
        message.settle("answered")
        waiting = self.waiting.get(message.correlation)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def send(self, message: bytes, correlation: str) -> None:
        sent = BrokerMessage(body=message, reply_to=self.mailbox, correlation=correlation, headers={"key": correlation})
        await self.adapter.request(sent, PATIENCE)

    async def ask(self, message: bytes, answered: bool) -> bytes | None:
        correlation = uuid.uuid4().hex
        self.waiting[correlation] = waiting = asyncio.get_running_loop().create_future()
        await self.send(message, correlation)
        async with asyncio.timeout(PATIENCE):
            if answered:
                await waiting
            else:
                marker = f"marker-{correlation}"
                self.waiting[marker] = marked = asyncio.get_running_loop().create_future()
                await self.send(b'{"jsonrpc":"2.0","method":"get_data","id":1}', marker)
                await marked
        answers = self.answers.get(correlation, [])
        assert len(answers) <= 1, f"more than one answer: {answers}"
        return answers[0] if answers else None


async def every_case(url: str, adapter: BrokerAdapter) -> None:
    """Serve the calculator at `url` and send it every case through `adapter`, which is opened and closed here."""
    async with serve(calculator(), urls=[url]):
        try:
            await adapter.open()
            asker = Asker(adapter)
            await asker.begin()
            cases = all_cases()
            assert len(cases) > 600
            faults: list[str] = []
            turns = asyncio.Semaphore(AT_ONCE)

            async def one(case: Case) -> None:
                async with turns:
                    answer: Any = await asker.ask(case.message, case.answered)
                try:
                    check(case, answer)
                except AssertionError as fault:
                    faults.append(str(fault))

            await asyncio.gather(*(one(case) for case in cases))
            assert not faults, f"{len(faults)} of {len(cases)}:\n" + "\n".join(faults[:20])
        finally:
            await adapter.close()
