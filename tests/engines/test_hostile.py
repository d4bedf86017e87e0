"""The table of hostile deliveries over every broker. After each row the delivery is settled (the worker takes one at a
time, so that one which is not settled stops it), an honest call is answered, and nothing was published outside the
mailboxes."""

from __future__ import annotations

import asyncio
import logging
import re
import struct

import pytest

from dragoman import connect, serve
from dragoman.engines.nats import stream
from dragoman.jsonrpc.errors import LocalError
from dragoman.net.urls import parse
from dragoman.transports.broker.contract import BrokerMessage

from .brokers import Engine
from .hostile import ROWS, Hostile
from .wires import EVERY, Wire, adapter, adapter_at, calculator, plus

PATIENCE = 20.0
NOT_SENT = (ConnectionError, LocalError, TypeError, ValueError, struct.error, TimeoutError)
"""The engine's own client refuses to send the row."""
SUBJECT = r"[^.\s\x00-\x1f*>\ud800-\udfff]+"
"""The correlations that can be the last part of a NATS subject, at which the answer goes out; others cannot be
answered."""


async def send(wire: Wire, url: str, row: Hostile, victim: str) -> list[bytes] | None:
    """What came into the mailbox of the sender; None where this engine cannot carry it."""
    attacker = adapter_at(url)
    got: asyncio.Queue[BrokerMessage] = asyncio.Queue()
    await attacker.open()
    try:
        names = {"mailbox": await attacker.mailbox(got.put_nowait), "victim": victim, "own": parse(url).path.strip("/")}
        reply_to = row.reply_to
        for name, address in names.items():
            reply_to = reply_to.replace(f"{{{name}}}", address)
        correlation = row.correlation.replace("{n}", f"{ROWS.index(row)}")
        message = BrokerMessage(body=row.body, reply_to=reply_to, correlation=correlation, headers=row.headers)
        try:
            async with asyncio.timeout(1):
                for _ in range(row.copies):
                    await attacker.request(message, row.ttl)
        except NOT_SENT:
            return None
        if row.end != "answered" or (wire.engine == "nats" and not re.fullmatch(SUBJECT, correlation)):
            return []
        try:
            async with asyncio.timeout(PATIENCE):
                return [(await got.get()).body]
        except TimeoutError:
            pytest.fail(f"{row.name}: it was not answered")
    finally:
        await attacker.close()


@EVERY
async def test_hostile_deliveries(
    wire: Wire,
    engine: Engine,
    url: str,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "MAILBOX", stream.MAILBOX[:2])  # no one comes back to the mailboxes of these rows
    caplog.set_level(logging.ERROR)
    assert len(ROWS) >= 60
    assert len({row.name for row in ROWS}) == len(ROWS)
    victim_url = wire.url(engine).partition("?")[0]
    published: list[BrokerMessage] = []
    sent = dead = 0
    one_at_a_time = plus(url, "prefetch=1")
    async with (
        serve(calculator(), urls=[one_at_a_time]),
        adapter(victim_url, serving=True) as victim,
        connect(url, timeout=PATIENCE) as honest,
    ):
        await victim.work(published.append, 10)
        for row in ROWS:
            answers = await send(wire, url, row, parse(victim_url).path.strip("/"))
            assert await honest.call("add", [1, 2]) == 3, row.name
            assert not published, f"{row.name}: {published[0].body!r} was published outside the mailboxes"
            if answers is None:
                continue
            sent += 1
            dead += row.end == "dead"
            assert not answers or row.says in answers[0], f"{row.name}: {answers}"
        if wire.dead is not None:
            await wire.dead(engine, url, dead)
    assert not [record.message for record in caplog.records if record.exc_info], caplog.text
    with capsys.disabled():
        print(f"\n{wire.name}: {sent} of {len(ROWS)} hostile deliveries could be sent")
    assert sent >= (len(ROWS) if wire.engine == "memory" else 60)
