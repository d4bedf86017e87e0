"""A NATS server that does what a test says: lines of its protocol, subjects that reach their subscribers, and answers
of JetStream as a test gives them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from msgspec import Struct

from tests.engines.scripted_server import ScriptedServer, listening


class Sent(Struct, frozen=True):
    """A message that was published."""

    subject: str
    body: bytes
    reply: str = ""
    headers: dict[str, str] = {}


def _matches(pattern: str, subject: str) -> bool:
    want, have = pattern.split("."), subject.split(".")
    if want[-1] == ">":
        return len(have) >= len(want) and _matches(".".join(want[:-1]), ".".join(have[: len(want) - 1]))
    return len(want) == len(have) and all(one in ("*", other) for one, other in zip(want, have, strict=True))


class Link:
    """One connection of a client."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.subscriptions: dict[str, tuple[str, str]] = {}
        self.published: list[Sent] = []
        self.about: dict[str, Any] = {}
        self.ended = asyncio.Event()

    def say(self, connection: str, body: bytes | None = None) -> None:
        self._writer.write(connection.encode() + b"\r\n" + (b"" if body is None else body + b"\r\n"))

    def give(self, sid: str, message: Sent, status: str = "") -> None:
        """Deliver to a subscription."""
        reply = f" {message.reply}" if message.reply else ""
        if not message.headers and not status:
            self.say(f"MSG {message.subject} {sid}{reply} {len(message.body)}", message.body)
            return
        lines = [f"NATS/1.0{status and ' ' + status}", *(f"{name}: {text}" for name, text in message.headers.items())]
        head = "\r\n".join([*lines, "", ""]).encode()
        size = len(head) + len(message.body)
        self.say(f"HMSG {message.subject} {sid}{reply} {len(head)} {size}", head + message.body)

    def said(self, subject: str) -> list[Sent]:
        """What was published at a subject."""
        return [one for one in self.published if one.subject == subject]

    def cut(self) -> None:
        self._writer.transport.abort()


class Scripted(ScriptedServer[Link]):
    """The server. `apis`: JetStream's answers, by the beginning of the subject behind `$JS.API.`; `silent`: it answers
    nothing any more."""

    def __init__(self) -> None:
        super().__init__()
        self.silent = False
        self.refusing = False
        self.server = "A"
        self.apis: dict[str, Any] = {}
        self.taken: Callable[[Sent], Any] | None = None
        """What a stream answers to a message for which there is no subscriber."""

    def publish(self, message: Sent, status: str = "") -> bool:
        """Deliver to whatever is subscribed; returns whether there was something."""
        found = False
        for link in self.links:
            for sid, (pattern, _) in list(link.subscriptions.items()):
                if _matches(pattern, message.subject) and not link.ended.is_set():
                    link.give(sid, message, status)
                    found = True
        return found

    def _came(self, link: Link, message: Sent) -> None:
        link.published.append(message)
        if self.silent:
            return
        if message.subject.startswith("$JS.API."):
            what = message.subject.removeprefix("$JS.API.")
            answer = next((one for name, one in self.apis.items() if what.startswith(name)), None)
            if answer is not None:
                made = answer(message) if callable(answer) else answer
                self.publish(Sent(message.reply, json.dumps(made).encode()))
                return
            if what.startswith("CONSUMER.MSG.NEXT"):
                return
        if self.publish(message) or not message.reply:
            return
        if self.taken is not None and (answer := self.taken(message)) is not None:
            self.publish(Sent(message.reply, json.dumps(answer).encode()))
        else:
            self.publish(Sent(message.reply, b""), "503")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        link = Link(writer)
        self.links.append(link)
        info = {"server_id": self.server, "version": "2.10.0", "headers": True, "max_payload": 1_000, "proto": 1}
        link.say(f"INFO {json.dumps(info)}")
        try:
            while connection := (await reader.readline()).decode().strip():
                word, _, rest = connection.partition(" ")
                words = rest.split()
                if word == "CONNECT":
                    link.about = json.loads(rest)
                elif word == "PING" and not self.silent:
                    link.say("PONG")
                elif word == "SUB":
                    link.subscriptions[words[-1]] = words[0], words[1] if len(words) > 2 else ""
                elif word == "UNSUB":
                    link.subscriptions.pop(words[0], None)
                elif word in ("PUB", "HPUB"):
                    self._came(link, await self._read(reader, word == "HPUB", words))
                self.changed.set()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            link.ended.set()
            writer.transport.abort()
            self.changed.set()

    async def _read(self, reader: asyncio.StreamReader, with_headers: bool, words: list[str]) -> Sent:
        data = (await reader.readexactly(int(words[-1]) + 2))[:-2]
        subject, *rest = words[: -2 if with_headers else -1]
        headers: dict[str, str] = {}
        if with_headers:
            head, data = data[: int(words[-2])], data[int(words[-2]) :]
            for connection in head.decode().split("\r\n")[1:-2]:
                name, _, text = connection.partition(":")
                headers[name] = text.strip()
        return Sent(subject, data, rest[0] if rest else "", headers)


def scripted() -> AbstractAsyncContextManager[Scripted]:
    """One that listens, for the length of the block."""
    return listening(Scripted(), "nats")
