"""Servers made of a function, bytes in and bytes out: of each era, broken ones and dead ones.

`Scripted(script)` is a target for a `Client`: `script(message)` gets each message as JSON values and yields what goes
back: a dict is a message, bytes go out as they are, a `Result` or an `Error` answers the message.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from dragoman.channel import Broken, Channel, ChannelError, Outgoing
from dragoman.jsonrpc.messages import Malformed

Message = dict[str, Any]
META = "io.modelcontextprotocol/"


class Result(NamedTuple):
    """The answer to a request."""

    value: Any


class Error(NamedTuple):
    """The refusal of a request."""

    code: int
    message: str = "no"
    data: Any = None


class Dies(NamedTuple):
    """The channel breaks."""


Script = Callable[[Message], Iterable[Any]]


class Scripted:
    """A server made of a function."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.heard: list[Message] = []
        self.raw: list[bytes] = []
        self.channel: Channel | None = None
        self.attached = 0
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []

    def attach(self, channel: Channel) -> None:
        self.channel = channel
        self.attached += 1
        channel.open(self)

    def received(self, message: bytes, call: Outgoing | None = None) -> None:
        self.raw.append(message)
        found = json.loads(message)
        self.heard.append(found)
        for method, future in self._waiting:
            if found.get("method") == method and not future.done():
                future.set_result(None)
        for said in self.script(found):
            self.say(said, found)

    def say(self, said: Any, about: Message | None = None) -> None:
        """Send something."""
        assert self.channel is not None
        if isinstance(said, Dies):
            self.channel.abort(Broken("the script dies"))
            return
        if isinstance(said, Result) and about is not None:
            said = {"jsonrpc": "2.0", "id": about["id"], "result": said.value}
        elif isinstance(said, Error) and about is not None:
            error = {"code": said.code, "message": said.message} | ({} if said.data is None else {"data": said.data})
            said = {"jsonrpc": "2.0", "id": about["id"], "error": error}
        try:
            self.channel.send(said if isinstance(said, bytes) else json.dumps(said).encode())
        except ChannelError:
            pass

    async def until(self, method: str) -> None:
        """Wait until it was called by this method."""
        if method not in self.methods():
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((method, future))
            async with asyncio.timeout(20):
                await future

    def methods(self) -> list[str]:
        """The methods it was called by, in order."""
        return [one["method"] for one in self.heard if "method" in one]

    def of(self, method: str) -> list[Message]:
        """The messages of one method."""
        return [one for one in self.heard if one.get("method") == method]

    def refused(self, malformed: Malformed) -> None: ...

    def resumed(self) -> None: ...

    def finished(self) -> None: ...

    def ended(self, why: ChannelError) -> None: ...


def notification(method: str, **params: Any) -> Message:
    """A notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def discovered(versions: tuple[str, ...] = ("2026-07-28",), **capabilities: Any) -> Result:
    """The answer to `server/discover`."""
    return Result(
        {
            "resultType": "complete",
            "supportedVersions": list(versions),
            "capabilities": capabilities,
            "ttlMs": 0,
            "cacheScope": "private",
            "instructions": "be brief",
            "_meta": {f"{META}serverInfo": {"name": "scripted", "version": "1"}},
        }
    )


def initialized(version: str = "2025-11-25", **capabilities: Any) -> Result:
    """The answer to `initialize`."""
    return Result(
        {
            "protocolVersion": version,
            "capabilities": capabilities,
            "serverInfo": {"name": "scripted", "version": "1"},
            "instructions": "be brief",
        }
    )


def modern(answers: Callable[[Message], Iterable[Any]] = lambda message: (), **capabilities: Any) -> Scripted:
    """A server of the stateless era; `answers` to everything but discovery."""

    def script(message: Message) -> Iterable[Any]:
        if message.get("method") == "server/discover":
            return [discovered(**capabilities)]
        if message.get("method") == "initialize":
            return [Error(-32601)]
        return answers(message)

    return Scripted(script)


def legacy(
    answers: Callable[[Message], Iterable[Any]] = lambda message: (), version: str = "2025-11-25", **capabilities: Any
) -> Scripted:
    """A server of the stateful era; `answers` to everything but the handshake."""

    def script(message: Message) -> Iterable[Any]:
        method = message.get("method")
        if method == "server/discover":
            return [Error(-32601)]
        if method == "initialize":
            return [initialized(version, **capabilities)]
        if method == "notifications/initialized":
            return []
        return answers(message)

    return Scripted(script)


def said(text: str, **members: Any) -> Result:
    """A tool's result."""
    return Result({"resultType": "complete", "content": [{"type": "text", "text": text}], **members})
