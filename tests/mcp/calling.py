"""A client's end of a memory channel as bytes, in any revision; every result is checked by the official schema."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import jsonschema

from dragoman import serve
from dragoman.channel import Caller, ChannelError
from dragoman.jsonrpc.messages import Malformed
from dragoman.mcp import Client, Server
from dragoman.mcp.protocol.revisions import Revision
from dragoman.transports.memory import pair
from tests.behind import behind

from .schemas import definitions

RESULTS = {
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/read": "ReadResourceResult",
    "prompts/list": "ListPromptsResult",
    "prompts/get": "GetPromptResult",
    "completion/complete": "CompleteResult",
}


class Calls:
    """What is asked and what comes back."""

    def __init__(self, revision: Revision) -> None:
        self.revision = revision
        self.channel: Any = None
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.told: list[dict[str, Any]] = []
        """Notifications."""
        self.capabilities: dict[str, Any] = {}
        self._last = 0

    def received(self, message: bytes, call: Any = None) -> None:
        whole = json.loads(message)
        waiting = self._answers.pop(whole.get("id"), None)
        if waiting is None:
            self.told.append(whole)
        else:
            waiting.set_result(whole)

    def refused(self, malformed: Malformed) -> None: ...
    def resumed(self) -> None: ...
    def finished(self) -> None: ...
    def ended(self, why: ChannelError) -> None: ...

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The whole answer."""
        answer = await self.unchecked(method, **params)
        name = RESULTS.get(method)
        if name and "result" in answer and answer["result"].get("resultType") in (None, "complete"):
            conforms(self.revision, name, answer["result"])
        return answer

    async def unchecked(self, method: str, **params: Any) -> dict[str, Any]:
        """The whole answer, whose result may be one that the official schemas do not know."""
        if not self.revision.stateful:
            params["_meta"] = params.get("_meta", {}) | {
                "io.modelcontextprotocol/protocolVersion": self.revision.date,
                "io.modelcontextprotocol/clientCapabilities": self.capabilities,
            }
        self._last += 1
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        waiting = self._answers[self._last] = asyncio.get_running_loop().create_future()
        self.channel.send(json.dumps(message).encode())
        answer: dict[str, Any] = await asyncio.wait_for(waiting, 20)
        return answer

    async def result(self, method: str, **params: Any) -> dict[str, Any]:
        answer = await self.ask(method, **params)
        assert "result" in answer, answer
        found: dict[str, Any] = answer["result"]
        return found

    async def error(self, method: str, **params: Any) -> dict[str, Any]:
        answer = await self.ask(method, **params)
        assert "error" in answer, answer
        found: dict[str, Any] = answer["error"]
        return found

    async def call(self, name: str, arguments: Any = None) -> dict[str, Any]:
        """A tool's result."""
        more = {} if arguments is None else {"arguments": arguments}
        return await self.result("tools/call", name=name, **more)

    async def refusal(self, name: str, arguments: Any = None) -> str:
        """The text of a tool's result that says it failed."""
        result = await self.call(name, arguments)
        assert result["isError"] is True
        ((text,),) = ([block["text"] for block in result["content"]],)
        assert isinstance(text, str)
        return text

    async def tools(self) -> dict[str, dict[str, Any]]:
        return {one["name"]: one for one in (await self.result("tools/list"))["tools"]}


@asynccontextmanager
async def calling(
    server: Server, revision: Revision, caller: Caller | None = None, **capabilities: Any
) -> AsyncIterator[Calls]:
    """A client of this revision, its handshake done. `caller`: who calls; None: nobody who is known."""
    near, far = pair()
    if caller is not None:
        far.caller = caller
    calls = Calls(revision)
    calls.channel, calls.capabilities = near, capabilities
    near.open(calls)
    behind(server).attach(far)
    if revision.stateful:
        info = {"name": "test", "version": "1"}
        asked = {"protocolVersion": revision.date, "capabilities": capabilities, "clientInfo": info}
        assert (await calls.result("initialize", **asked))["protocolVersion"] == revision.date
        near.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    try:
        yield calls
    finally:
        await near.close()


def conforms(revision: Revision, name: str, value: Any) -> None:
    """Fail unless a value is what the official schema of the revision calls by this name."""
    if definitions(revision):
        _validator(revision.date, name).validate(value)


@cache
def _validator(date: str, name: str) -> Any:
    from dragoman.mcp.protocol.revisions import REVISIONS

    known = definitions(REVISIONS[date])
    draft = (
        jsonschema.Draft202012Validator
        if "_meta" in str(known.get("RequestMetaObject"))
        else jsonschema.Draft7Validator
    )
    return draft({"$ref": f"#/$defs/{name}", "$defs": known, "definitions": known})


@asynccontextmanager
async def client_of(app: Server, wire: str, **options: Any) -> AsyncIterator[Client]:
    """A client of a server in memory, or over the wire that this URL names."""
    if wire == "memory":
        async with Client(app, **options) as client:
            yield client
        return
    async with serve(app, urls=[wire]) as serving, Client(serving.urls[0], **options) as client:
        yield client
