"""A server of handlers that ask, and a client's end of the wire as bytes: for tests of asking and telling."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from msgspec import UNSET, Raw, structs

from dragoman.allowance import owner_of
from dragoman.channel import Caller, ChannelError
from dragoman.jsonrpc.errors import InvalidParams
from dragoman.jsonrpc.limits import CLIENT
from dragoman.jsonrpc.messages import Malformed, Notification, Request
from dragoman.mcp.asking.ask import ask, input_required, verify
from dragoman.mcp.asking.request_state import StateSeal
from dragoman.mcp.protocol.admission import EVERYTHING, Admitted, SessionState, admit
from dragoman.mcp.protocol.dialect import MCP
from dragoman.mcp.protocol.params import CallToolResult
from dragoman.mcp.protocol.results import finish, stamp
from dragoman.mcp.protocol.revisions import R2025_11, R2026_07, Revision
from dragoman.mcp.protocol.types import (
    ClientCapabilities,
    Implementation,
    ResourcesCapability,
    ServerCapabilities,
    TextContent,
    ToolsCapability,
)
from dragoman.mcp.server import builtin
from dragoman.mcp.server.subscriptions import Subscriptions
from dragoman.rpc.channel_peer import ChannelPeer
from dragoman.rpc.context import Context
from dragoman.rpc.method import Method
from dragoman.rpc.runner import Runner
from dragoman.rpc.service import Service
from dragoman.transports.memory import pair
from tests.behind import behind

EVERY: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}, "context": {}}, "roots": {}}
KEY = "a-key-that-is-long-enough"


class Asker:
    """What a handler gets."""

    def __init__(self, rpc: Context, admitted: Admitted) -> None:
        self.rpc, self._admitted = rpc, admitted

    async def ask(self, *questions: Any, **options: Any) -> Any:
        return await ask(self, *questions, **options)

    def ask_blocking(self, *questions: Any) -> Any:
        return ask(self, *questions)


class Stand:
    """A server: tools that take their context alone, and subscriptions."""

    own_state = False

    def __init__(self, **options: Any) -> None:
        self.options = SimpleNamespace(
            once=options.pop("once", False), instructions=None, ttl=0, cache_scope="private", offered=EVERYTHING
        )
        self.who: str | None = None
        self.seal = StateSeal(options.pop("keys", KEY), **options)
        self.info = Implementation("stand", "1")
        self.stamp = stamp(self.info)
        self.service = Service("stand", discover=False)
        behind(self.service)._answers = structs.replace(behind(self.service)._answers, dialect=MCP)
        behind(self.service)._router = self._route
        self.host = Runner(behind(self.service))
        self.tools: dict[str, Method] = {}
        self.resources = {"test://one", "test://two", "file:///dir"}
        self.surroundings = self
        self.peers: list[ChannelPeer] = []
        self.subscribe()

    def subscribe(self, **limits: Any) -> None:
        """Have subscriptions with these limits."""
        this: Any = self  # its surroundings, registry and capabilities
        self.subscriptions = Subscriptions(this, this, **limits)
        self._builtin_methods = builtin.methods(this, this, self.subscriptions, this)

    def written_for(self, revision: Revision) -> ServerCapabilities:
        return self.stateful()

    def stateful(self) -> ServerCapabilities:
        return ServerCapabilities(tools=ToolsCapability(True), resources=ResourcesCapability(True, True))

    def resource(self, uri: str, revision: Revision, caller: Caller) -> None:
        if uri not in self.resources:
            raise InvalidParams("Resource not found", {"uri": uri})

    def hides(self, uri: str, caller: Caller) -> bool:
        return False

    def tool(self, function: Callable[[Asker], Any]) -> None:
        """Register a tool under its function's name."""
        asynchronous = inspect.iscoroutinefunction(function)

        def result(value: Any, admitted: Admitted) -> Raw:
            text = value if isinstance(value, str) else json.dumps(value)
            return finish(CallToolResult(content=[TextContent(text)]), admitted.revision, self.stamp)

        def asked(error: BaseException, admitted: Admitted) -> Raw:
            if (found := input_required(error)) is None:
                raise error
            return finish(found.result(), admitted.revision, self.stamp)

        async def run(admitted: Admitted, context: Context) -> Raw:
            try:
                return result(await function(Asker(context, admitted)), admitted)
            except BaseException as error:
                return asked(error, admitted)

        def run_in_thread(admitted: Admitted, context: Context) -> Raw:
            try:
                return result(function(Asker(context, admitted)), admitted)
            except BaseException as error:
                return asked(error, admitted)

        self.tools[function.__name__] = (
            builtin.method(function.__name__, run, kind="async")
            if asynchronous
            else builtin.method(function.__name__, run_in_thread, kind="thread")
        )

    def _route(self, message: Any, caller: Caller, peer: Any) -> tuple[Method | None, Any]:
        admitted = admit(message, None if peer is None else peer.state, EVERYTHING, principal=self.who)
        if admitted is None:
            return None, message
        admitted.surroundings = self
        if isinstance(message, Notification):
            return self._builtin_methods.get(message.method), Notification(message.method, admitted)
        method = self._builtin_methods.get(message.method)
        if message.method in ("tools/call", "prompts/get"):
            if (state := verify(admitted)) is not None:
                self.seal.use(state, owner_of(caller))
            method = self.tools[admitted.params.name]
        return method, Request(message.method, admitted, message.id)

    # -- its faces

    async def call(self, message: dict[str, Any]) -> Any:
        """One exchange."""
        answer = await self.host.answer(json.dumps(message).encode())
        return None if answer is None else json.loads(answer)

    def wire(self, revision: Revision | None = None, capabilities: Any = None) -> Wire:
        """A channel to this server; with a revision, in a session that is begun."""
        near, far = pair(CLIENT)
        peer = ChannelPeer(self.host, dialect=MCP)
        self.peers.append(peer)
        peer.attach(near)
        if revision is not None:
            client = Implementation("client", "1")
            declared = _declared(EVERY if capabilities is None else capabilities)
            peer.state = SessionState(revision, client, declared, initialized=True)
            self.subscriptions.join(peer)
        return Wire(far)


def _declared(capabilities: Any) -> ClientCapabilities:
    import msgspec

    return msgspec.convert(capabilities, ClientCapabilities)


class Wire:
    """The client's end, as messages."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.got: asyncio.Queue[Any] = asyncio.Queue()
        channel.open(self)

    def received(self, message: bytes, call: Any = None) -> None:
        self.got.put_nowait(json.loads(message))

    def refused(self, malformed: Malformed) -> None: ...
    def resumed(self) -> None: ...
    def finished(self) -> None: ...
    def ended(self, why: ChannelError) -> None: ...

    def send(self, message: dict[str, Any]) -> None:
        self.channel.send(json.dumps({"jsonrpc": "2.0"} | message).encode())

    async def next(self) -> Any:
        return await asyncio.wait_for(self.got.get(), 10)

    async def quiet(self) -> bool:
        """Whether nothing is on its way: a call that is answered in place overtakes nothing."""
        self.send({"id": "quiet", "method": "tools/list-that-is-not-there"})
        return bool((await self.next())["id"] == "quiet")


def meta(capabilities: Any = None, revision: Revision = R2026_07) -> dict[str, Any]:
    """The envelope of a stateless request."""
    return {
        "io.modelcontextprotocol/protocolVersion": revision.date,
        "io.modelcontextprotocol/clientCapabilities": EVERY if capabilities is None else capabilities,
    }


def request(name: str, *, id: int = 1, capabilities: Any = None, **more: Any) -> dict[str, Any]:
    """A stateless `tools/call`."""
    params = {"name": name, "arguments": {}, "_meta": meta(capabilities), **more}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def text(answer: Any) -> str:
    """The text of a tool's result."""
    found: str = answer["result"]["content"][0]["text"]
    return found


__all__ = ["EVERY", "KEY", "R2025_11", "UNSET", "Asker", "Stand", "Wire", "meta", "request", "text"]
