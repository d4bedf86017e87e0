"""A RabbitMQ that does what a test says: frames in, frames out, and connections that are cut when a test wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from msgspec import Struct
from pamqp import frame
from pamqp.body import ContentBody
from pamqp.commands import Basic, Channel, Confirm, Connection, Queue
from pamqp.exceptions import UnmarshalingException
from pamqp.header import ContentHeader

from tests.engines.scripted_server import ScriptedServer, listening


class Sent(Struct, frozen=True):
    """A message that was published."""

    to: Basic.Publish
    about: Basic.Properties
    body: bytes


class Link:
    """One connection: what came over it, and ways to answer."""

    def __init__(self, broker: Scripted, writer: asyncio.StreamWriter) -> None:
        self._broker, self._writer = broker, writer
        self.seen: list[Any] = []
        self.published: list[Sent] = []
        self.ended = asyncio.Event()
        self._coming: list[Any] = []
        self._tags: dict[int, int] = {}
        self.channel = 0
        """The channel that was opened last."""

    def names(self) -> list[str]:
        """The names of all methods that came."""
        return [one.name for one in self.seen]

    def got(self, name: str) -> list[Any]:
        """The methods of a name that came."""
        return [one for one in self.seen if one.name == name]

    def send(self, channel: int, *frames: Any) -> None:
        for one in frames:
            self._writer.write(frame.marshal(one, channel))

    def deliver(self, tag: str, number: int, body: bytes, **about: Any) -> None:
        """A message for a consumer."""
        head = ContentHeader(body_size=len(body), properties=Basic.Properties(**about))
        self.send(self.channel, Basic.Deliver(tag, number, False, "", "q"), head, ContentBody(body))

    def confirm(self, channel: int) -> None:
        """Say that the next message of a channel is there."""
        self._tags[channel] = self._tags.get(channel, 0) + 1
        self.send(channel, Basic.Ack(self._tags[channel]))

    def cut(self) -> None:
        self._writer.transport.abort()

    def take(self, channel: int, one: Any) -> None:
        """A frame has come."""
        if isinstance(one, Basic.Publish | ContentHeader | ContentBody):
            self._coming.append(one)
            to, *rest = self._coming
            body = b"".join(part.value for part in rest[1:])
            if rest and len(body) == rest[0].body_size:
                self._coming = []
                self.published.append(Sent(to, rest[0].properties, body))
                self.answer(channel, to)
        elif hasattr(one, "frame_id") and one.name != "Heartbeat":
            self.answer(channel, one)

    def answer(self, channel: int, one: Any) -> None:
        self.seen.append(one)
        if one.name == "Channel.Open":
            self.channel = channel
        if (answer := self._broker.answers.get(one.name)) is not None:
            answer(self, channel, one)


Answer = Callable[[Link, int, Any], None]


def _with(make: Callable[[Any], Any]) -> Answer:
    return lambda link, channel, one: link.send(channel, make(one))


class Scripted(ScriptedServer[Link]):
    """The server. `answers`: what it does when a method comes, by its name. `links`: every connection there was."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[str, Answer] = {
            "Connection.StartOk": _with(lambda one: Connection.Tune(2047, 131_072, 60)),
            "Connection.Open": _with(lambda one: Connection.OpenOk()),
            "Connection.Close": _with(lambda one: Connection.CloseOk()),
            "Channel.Open": _with(lambda one: Channel.OpenOk()),
            "Channel.Close": _with(lambda one: Channel.CloseOk()),
            "Confirm.Select": _with(lambda one: Confirm.SelectOk()),
            "Queue.Declare": _with(lambda one: Queue.DeclareOk(one.queue or "own", 0, 0)),
            "Queue.Bind": _with(lambda one: Queue.BindOk()),
            "Basic.Qos": _with(lambda one: Basic.QosOk()),
            "Basic.Consume": _with(lambda one: Basic.ConsumeOk(one.consumer_tag or "tag")),
            "Basic.Publish": lambda link, channel, one: link.confirm(channel),
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link, rest = Link(self, writer), b""
        self.links.append(link)
        try:
            assert (await reader.readexactly(8)).startswith(b"AMQP")
            about = {"product": "scripted", "capabilities": {"publisher_confirms": True, "basic.nack": True}}
            link.send(0, Connection.Start(0, 9, about, "PLAIN", "en_US"))  # type: ignore[arg-type]
            while data := await reader.read(65_536):
                rest += data
                while rest:
                    try:
                        used, channel, one = frame.unmarshal(rest)
                    except UnmarshalingException:  # a part of one
                        break
                    rest = rest[used:]
                    link.take(channel, one)
                self.changed.set()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            link.ended.set()
            writer.transport.abort()
            self.changed.set()


def scripted() -> AbstractAsyncContextManager[Scripted]:
    """One that listens, for the length of the block."""
    return listening(Scripted(), "amqp")
