"""A connection to a NATS that does what a test says: what goes over it, how it is lost, and how it comes back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.bus.contract import BusLost
from dragoman.engines.nats import connection
from dragoman.engines.nats.connection import MessageTooLong, NatsConnection, NoResponders
from dragoman.jsonrpc.errors import LocalError
from dragoman.net.urls import parse
from tests.engines.wires import PATIENCE

from .scripted import Scripted, Sent, scripted


class Ends:
    """A connection to a scripted server, what it told, and what came."""

    def __init__(self, server: Scripted) -> None:
        self.server, self.connection = server, NatsConnection(parse(server.url))
        self.states: list[tuple[bool, str]] = []
        self.came: list[Any] = []
        self.connection.states.append(self.state)

    def state(self, alive: bool, why: str) -> None:
        self.states.append((alive, why))
        self.server.changed.set()

    def take(self, message: Any) -> None:
        self.came.append(message)
        self.server.changed.set()

    async def away(self) -> None:
        """Lose it, and let it not come back."""
        self.server.refusing = True
        self.server.last.cut()
        await self.server.until(lambda: self.states)


@asynccontextmanager
async def ends() -> AsyncIterator[Ends]:
    async with scripted() as server:
        one = Ends(server)
        await one.connection.open()
        try:
            yield one
        finally:
            await one.connection.close()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try to connect again without a pause."""
    monkeypatch.setattr(connection, "PAUSES", (0.001, 0.001))


# -- what goes over it -----------------------------------------------------------------------------


async def test_what_is_published_and_heard(caplog: pytest.LogCaptureFixture) -> None:
    async with ends() as one:

        def take(message: Any) -> None:
            one.take(message)
            if message.data == b"1":
                raise ArithmeticError

        heard = await one.connection.subscribe("a.*", take, queue="g")
        await one.connection.sync()
        assert ("a.*", "g") in one.server.last.subscriptions.values()
        await one.connection.publish("a.b", b"1", reply="r", headers={"h": "v"})
        await one.connection.publish("a.c", b"2")
        await one.server.until(lambda: len(one.came) == 2)
        assert "a message of a.* could not be taken" in caplog.text
        first, second = one.came
        assert (first.subject, first.data, first.reply, first.headers) == ("a.b", b"1", "r", {"h": "v"})
        assert (second.subject, second.data, second.reply, second.headers) == ("a.c", b"2", "", None)
        await heard.close()
        await heard.close()
        await one.connection.sync()
        assert ("a.*", "g") not in one.server.last.subscriptions.values()
        await heard.close(rest=True)


async def test_what_the_library_is_told() -> None:
    """Answers of its own without a subscriber, and no echo of limits of its own."""
    async with ends() as one:
        assert (one.connection.limit, one.connection.server, one.connection.alive) == (1_000, "A", True)
        about = one.server.last.about
        assert (about["name"], about["headers"], about["no_responders"]) == ("dragoman", True, True)
        assert one.connection._client._max_pending_size == 8_388_608
        with pytest.raises(MessageTooLong, match=r"the message has 1001 bytes; .* takes 1000"):
            await one.connection.publish("a", b"x" * 1_001)
        with pytest.raises(LocalError, match="BadSubjectError"):
            await one.connection.publish("a b")
        with pytest.raises(LocalError, match="is not a subject"):
            await one.connection.subscribe("a b", one.take)
        assert len(one.connection._subscriptions) == 1


async def test_asking() -> None:
    async with ends() as one:
        await one.connection.subscribe("q", one.take)
        asking = asyncio.ensure_future(one.connection.ask("q", b"1", headers={"h": "v"}))
        other = asyncio.ensure_future(one.connection.ask("q", b"2"))
        await one.server.until(lambda: len(one.came) == 2)
        assert one.came[0].headers == {"h": "v"}
        one.server.publish(Sent(one.came[1].reply, b"second"))
        one.server.publish(Sent(one.came[0].reply, b"first", headers={"a": "b"}))
        one.server.publish(Sent(one.came[0].reply, b"once more"))
        assert [(answer.data, answer.headers) for answer in await asyncio.gather(asking, other)] == [
            (b"first", {"a": "b"}),
            (b"second", None),
        ]
        with pytest.raises(NoResponders, match="no subscriber answers at nowhere"):
            await one.connection.ask("nowhere")
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(BusLost, match="no answer from q in time"):
                await one.connection.ask("q", patience=0.01)
        assert one.connection._pending == {}


async def test_delivering() -> None:
    """Whether there was a subscriber."""
    async with ends() as one:
        await one.connection.subscribe("q", one.take)
        assert await one.connection.deliver("q", b"1", headers={"h": "v"}) is True
        assert (one.came[0].data, one.came[0].headers) == (b"1", {"h": "v"})
        assert await one.connection.deliver("nowhere", b"1") is False


async def test_those_that_wait_in_one_turn_share_one_message_to_themselves() -> None:
    async with ends() as one:
        before = len(one.server.last.published)
        await asyncio.gather(*(one.connection.sync() for _ in range(5)))
        assert len(one.server.last.published) == before + 1
        await one.connection.sync()
        assert len(one.server.last.published) == before + 2


# -- how it is lost --------------------------------------------------------------------------------


async def test_an_outage_is_told_and_what_was_subscribed_is_again() -> None:
    """It connects once: the library does not do it as well."""
    async with ends() as one:
        await one.connection.subscribe("a", one.take, queue="g")
        inbox = one.connection.inbox
        one.server.server = "B"
        one.server.last.cut()
        await one.server.until(lambda: one.states and one.states[-1][0])
        assert one.states[0][0] is False
        assert one.states[0][1]
        assert one.states[-1] == (True, "")
        assert (one.connection.server, one.connection.inbox, len(one.server.links)) == ("B", inbox, 2)
        assert sorted(one.server.last.subscriptions.values()) == sorted([("a", "g"), (f"{inbox}*", "")])
        assert await one.connection.deliver("a", b"") is True


async def test_while_it_is_away_nothing_goes_out() -> None:
    async with ends() as one:
        await one.connection.subscribe("q", one.take)
        asking = asyncio.ensure_future(one.connection.ask("q"))
        await one.server.until(lambda: one.came)
        await one.away()
        assert not one.connection.alive
        with pytest.raises(BusLost, match="is away"):
            await asking
        why = str(one.connection.lost())
        async with asyncio.timeout(PATIENCE):
            for work in (
                one.connection.publish("a"),
                one.connection.ask("a"),
                one.connection.deliver("a", b""),
                one.connection.subscribe("a", one.take),
                one.connection.sync(),
            ):
                with pytest.raises(BusLost) as lost:
                    await work
                assert str(lost.value).partition(": ")[0] == why.partition(": ")[0]
        assert len(one.connection._subscriptions) == 2
        one.server.refusing = False
        await one.server.until(lambda: one.states[-1][0])


async def test_a_server_that_is_silent_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 0.05)
    monkeypatch.setattr(connection, "LOOK", 0.01)
    async with ends() as one:
        one.server.silent = True
        await one.server.until(lambda: one.states)
        assert one.states[0][0] is False
        one.server.silent = False
        await one.server.until(lambda: one.states[-1][0])


async def test_it_is_lost_as_soon_as_the_library_knows() -> None:
    """Before that is told."""
    async with ends() as one:
        one.server.last.cut()
        async with asyncio.timeout(PATIENCE):
            while one.connection._client.is_connected:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert not one.connection.alive
        await one.server.until(lambda: one.states and one.states[-1][0])


async def test_whether_a_server_that_is_quiet_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked after each silence, and answers: a message to ourselves comes back."""
    async with ends() as one:
        async with asyncio.timeout(PATIENCE):
            assert await one.connection._answers() is True
        monkeypatch.setattr(connection, "PATIENCE", 0.02)
        one.server.silent = True
        assert await one.connection._answers() is False
        one.server.silent = False


@pytest.mark.parametrize(
    ("who", "shown"),
    [
        ("word@", {"auth_token": "word"}),
        ("me:word@", {"user": "me", "pass": "word"}),
        ("me:@", {"user": "me", "pass": ""}),
        ("", {}),
    ],
)
async def test_what_it_shows_of_itself(who: str, shown: dict[str, str]) -> None:
    async with scripted() as server:
        connection = NatsConnection(parse(server.url.replace("//", f"//{who}")))
        await connection.open()
        about = server.last.about
        await connection.close()
        assert {name: about[name] for name in ("auth_token", "user", "pass") if name in about} == shown


async def test_what_the_server_objects_to_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Its end is not: that is told."""
    caplog.set_level(logging.WARNING)
    async with ends() as one:
        one.server.last.say("-ERR 'Permissions Violation for Publish to \"x\"'")
        await one.connection.sync()
        assert "permissions violation for publish" in caplog.text.lower()
        caplog.clear()
        one.server.last.cut()
        await one.server.until(lambda: one.states and one.states[-1][0])
        assert [record for record in caplog.records if record.name == "dragoman.bus"] == []


async def test_a_server_that_is_not_there_is_said() -> None:
    async with scripted() as server:
        server.refusing = True
        one = Ends(server)
        with pytest.raises(BusLost, match="is away"):
            await one.connection.open()
        await one.connection.close()
        assert one.states == []


async def test_the_end_sends_what_is_queued_and_tells_nothing() -> None:
    async with ends() as one:
        await one.connection.publish("last", b"x")
        await one.connection.close()
        await one.connection.close()
        assert [sent.body for sent in one.server.last.said("last")] == [b"x"]
        await one.server.last.ended.wait()
        assert one.states == []
        with pytest.raises(BusLost, match="this end is closed"):
            await one.connection.publish("late")
