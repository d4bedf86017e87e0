"""Takeovers of dead workers, against a broker that does what a test says; the time between two steps is the test's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dragoman.engines.mqtt import takeover, wire
from tests.engines.waits import Waits
from tests.engines.wires import PATIENCE

from .scripted import CONNECT, DISCONNECT, MESSAGE, PUBLISH, SHARED, UNSUBSCRIBE, Ends, Link, Packet, ends

DEAD = "dragoman-0123456789abcdef"
"""The client id of a worker that died."""
WILL = f"q/fallen/dragoman/{DEAD}"


class Clock(Waits):
    """In the place of asyncio: waits for a time, which passes when the test says so."""

    def __init__(self) -> None:
        self.claimed = asyncio.Event()
        self.ticks: asyncio.Queue[None] = asyncio.Queue()
        self.waits: asyncio.Queue[float | None] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        assert seconds == takeover.SECONDS_TO_CLAIM
        await self.claimed.wait()

    async def wait_for(self, work: Awaitable[Any], seconds: float | None) -> None:
        assert seconds == takeover.SECONDS_TO_END
        self.waits.put_nowait(seconds)
        done, tick = asyncio.ensure_future(work), asyncio.ensure_future(self.ticks.get())
        await asyncio.wait([done, tick], return_when=asyncio.FIRST_COMPLETED)
        tick.cancel()
        if not done.done():
            done.cancel()
            raise TimeoutError

    async def waiting(self) -> None:
        """Until it waits."""
        async with asyncio.timeout(PATIENCE):
            await self.waits.get()

    def tick(self) -> None:
        """So long it has waited."""
        self.ticks.put_nowait(None)


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    one = Clock()
    monkeypatch.setattr(takeover, "asyncio", one)
    monkeypatch.setattr(wire, "PAUSES", (0.0, 0.0))
    return one


def in_its_place(one: Ends, *, present: bool = True, and_then: Callable[[Link], None] = lambda link: None) -> None:
    """Let a worker connect in the place of the dead one, and give it what that had."""

    def connected(link: Link, packet: Packet) -> None:
        link.connack(present=present and link.client == DEAD)
        if link.client == DEAD:
            and_then(link)

    one.broker.answers[CONNECT] = connected


def said_of_the_will(one: Ends) -> list[str]:
    return [said.body.decode() for said in one.link.said(WILL)]


async def claimed(one: Ends) -> None:
    """The adapter hears the will, and claims."""
    await one.work()
    one.link.publish(WILL, DEAD.encode(), qos=0)
    await one.broker.until(lambda: one.link.said(WILL))


async def endpoint(one: Ends) -> Link:
    """The connection in the dead one's place."""
    await one.broker.until(lambda: one.broker.last.client == DEAD)
    return one.broker.last


# -- whether ---------------------------------------------------------------------------------------


async def test_a_worker_that_hears_a_will_takes_over(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """It says so, connects in its place, publishes what it had with a count more, ends its session, and removes the
    will. What comes for itself meanwhile waits."""
    given: list[int] = []

    def give(link: Link) -> None:
        given.append(link.publish("q", b"had", again=True, CorrelationData=b"c"))
        given.append(link.publish("q/request/me/d", b"queued"))
        given.append(link.publish("q/control", b"old"))

    async with ends() as one:
        in_its_place(one, and_then=give)
        one.broker.answers[PUBLISH] = lambda link, packet: None
        await claimed(one)
        assert said_of_the_will(one) == [f"{DEAD} {one.adapter.endpoint.client}"]
        clock.claimed.set()
        link = await endpoint(one)
        assert link.connect.will is not None
        assert link.connect.will[:2] == (WILL, DEAD.encode())
        await one.broker.until(lambda: len(one.link.said("q")) == 1 and link.said(f"q/reply/{DEAD}"))
        one.link.publish("q", b"mine")
        await one.adapter.receive_control(one.heard.append)
        assert one.came == []
        copies = [*one.link.said("q"), *one.link.said("q/request/me/d")]
        assert [(copy.body, copy.about.get("UserProperty")) for copy in copies] == [
            (b"had", [("count", "1")]),
            (b"queued", None),
        ]
        for copy in copies:
            one.link.puback(copy)
        one.broker.answers[PUBLISH] = one.broker.published
        one.broker.published(link, link.said(f"q/reply/{DEAD}")[0])
        await link.ended.wait()
        assert {*given} <= {*link.acknowledged()}
        assert {name for packet in link.got(UNSUBSCRIBE) for name, _ in packet.filters} == set(SHARED)
        assert [(said.code, said.about) for said in link.got(DISCONNECT)] == [(0, {"SessionExpiryInterval": 0})]
        await one.broker.until(lambda: len(one.link.said(WILL)) == 2 and one.came)
        removed = one.link.said(WILL)[1]
        assert (removed.body, removed.flags & 1) == (b"", 1)
        assert [came.body for came in one.came] == [b"mine"]
    assert "a worker of q died; what it had goes to the others" in caplog.text


@pytest.mark.parametrize(
    ("topic", "body", "qos"),
    [
        (WILL, b"dragoman-other", 0),
        (WILL, b"", 0),
        (WILL, f"{DEAD} dragoman-other".encode(), 0),
        ("q/fallen/dragoman/somebody", b"somebody", 0),  # a name that was given comes back
        ("q/fallen/dragoman/{me}", b"{me}", 0),
    ],
)
async def test_what_is_no_will_of_another_is_not_claimed(topic: str, body: bytes, qos: int, clock: Clock) -> None:
    async with ends() as one:
        clock.claimed.set()
        await one.work()
        mine = one.adapter.endpoint.client
        one.link.publish(topic.replace("{me}", mine), body.replace(b"{me}", mine.encode()), qos=qos)
        await one.fence()
        await one.adapter.receive_control(one.heard.append)
        assert one.link.got(PUBLISH) == []
        assert len(one.broker.links) == 1


async def test_a_will_that_was_retained_may_be_old(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its worker has the usual time to come back, and removes it."""
    monkeypatch.setattr(takeover, "RECONNECT_GRACE", 3600.0)
    async with ends() as one:
        clock.claimed.set()
        await one.work()
        one.link.publish(WILL, DEAD.encode(), qos=0, retained=True)
        await one.fence()
        await one.adapter.receive_control(one.heard.append)
        assert one.link.got(PUBLISH) == []
        # it comes again from the worker's next death, and not retained
        one.link.publish(WILL, b"", qos=0)
        one.link.publish(WILL, DEAD.encode(), qos=0)
        await endpoint(one)


@pytest.mark.parametrize("back", [True, False])
async def test_a_worker_that_is_back_keeps_what_it_has(back: bool, clock: Clock) -> None:
    """So does all else when the broker was lost, and not the worker."""
    async with ends() as one:
        await claimed(one)
        if back:
            one.link.publish(WILL, b"", qos=0)
            await one.fence()
        else:
            await one.back()
        clock.claimed.set()
        await one.adapter.background.wait(PATIENCE)
        assert not [link for link in one.broker.links if link.client == DEAD]


@pytest.mark.parametrize(("other", "heir"), [("dragoman-zzzz", True), ("dragoman-!!!!", False)])
async def test_of_those_that_claim_the_first_by_name_takes_over(
    other: str, heir: bool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others claim again when it does not report that it is done."""
    monkeypatch.setattr(takeover, "SECONDS_TO_INHERIT", 0.0)
    async with ends() as one:
        await claimed(one)
        one.link.publish(WILL, f"{DEAD} {other}".encode(), qos=0)
        await one.fence()
        clock.claimed.set()
        await endpoint(one)
        await one.adapter.background.wait(PATIENCE)
        claims = [body for body in said_of_the_will(one) if body]
        assert len(claims) == (1 if heir else 2)


async def test_a_will_that_comes_twice_is_one_death(clock: Clock) -> None:
    async with ends() as one:
        await claimed(one)
        one.link.publish(WILL, DEAD.encode(), qos=0)
        await one.broker.until(lambda: len(said_of_the_will(one)) == 2)
        clock.claimed.set()
        await endpoint(one)
        await one.adapter.background.wait(PATIENCE)
        assert [link.client for link in one.broker.links].count(DEAD) == 1


# -- how it ends -----------------------------------------------------------------------------------


async def test_a_session_that_is_gone_has_left_nothing(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async with ends() as one:
        in_its_place(one, present=False)
        clock.claimed.set()
        await claimed(one)
        link = await endpoint(one)
        await link.ended.wait()
        assert link.got(UNSUBSCRIBE) == []
        assert [said.about for said in link.got(DISCONNECT)] == [{"SessionExpiryInterval": 0}]
        await one.broker.until(lambda: said_of_the_will(one)[-1] == "")
    assert "a worker of q died" not in caplog.text


async def test_a_place_that_is_refused_is_left_as_it_is(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """The will stays, for another worker, and this one goes on with its own."""
    caplog.set_level(logging.INFO)
    async with ends() as one:
        one.broker.answers[CONNECT] = lambda link, packet: link.connack(code=0x87)
        clock.claimed.set()
        await claimed(one)
        await endpoint(one)
        await one.adapter.background.wait(PATIENCE)
        assert said_of_the_will(one) == [f"{DEAD} {one.adapter.endpoint.client}"]
        one.link.publish("q", b"mine")
        await one.broker.until(lambda: one.came)
    assert "what a dead worker had is not ours: the broker says: not authorized" in caplog.text
    assert "could not be dealt with" not in caplog.text


async def test_a_worker_that_loses_the_broker_itself_removes_no_will(clock: Clock) -> None:
    async with ends() as one:
        in_its_place(one, and_then=lambda link: one.broker.answers.update({PUBLISH: lambda link, packet: None}))
        clock.claimed.set()
        await claimed(one)
        link = await endpoint(one)
        await one.broker.until(lambda: link.said(f"q/reply/{DEAD}"))
        one.broker.answers[CONNECT] = lambda link, packet: link.cut()
        one.link.cut()
        await one.broker.until(lambda: one.adapter.link is None)
        link.puback(link.said(f"q/reply/{DEAD}")[0])
        link.publish(f"q/reply/{DEAD}")
        await link.ended.wait()
        assert [said.about for said in link.got(DISCONNECT)] == [{"SessionExpiryInterval": 0}]
        one.broker.answers[PUBLISH] = one.broker.published
        one.broker.answers[CONNECT] = lambda link, packet: link.connack()
        await one.broker.until(lambda: one.states and one.states[-1])
        assert DEAD not in "".join(said_of_the_will(one))


async def test_a_takeover_goes_on_while_there_is_headway(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """A message more of the dead one's, one more that is published again, or one of ours that the broker confirms. When
    there is none it ends: the session stays, and the broker publishes the will again."""
    caplog.set_level(logging.INFO)
    held: list[Packet] = []

    def published(link: Link, packet: Packet) -> None:
        if packet.flags & 6:
            held.append(packet)

    async with ends() as one:
        in_its_place(one, and_then=lambda link: one.broker.answers.update({PUBLISH: published}))
        clock.claimed.set()
        await claimed(one)
        link = await endpoint(one)
        await one.broker.until(lambda: held)
        link.puback(held.pop())
        await clock.waiting()
        link.publish("q", b"1", again=True)
        await one.broker.until(lambda: held)
        clock.tick()
        await clock.waiting()
        answer = asyncio.ensure_future(one.adapter.answer("q/reply/me", MESSAGE))
        await one.broker.until(lambda: len(held) == 2)
        one.link.puback(held.pop())
        await answer
        clock.tick()
        await clock.waiting()
        one.link.puback(held.pop())
        await one.broker.until(link.acknowledged)
        clock.tick()
        await clock.waiting()
        assert link.got(DISCONNECT) == []
        clock.tick()
        await link.ended.wait()
        assert [(said.code, said.about) for said in link.got(DISCONNECT)] == [(4, {})]
        one.broker.answers[PUBLISH] = one.broker.published
        await one.adapter.background.wait(PATIENCE)
        assert said_of_the_will(one) == [f"{DEAD} {one.adapter.endpoint.client}"]
    assert "what a dead worker had is not ours" in caplog.text
