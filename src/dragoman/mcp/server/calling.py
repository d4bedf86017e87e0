"""Calls a server without a wire, by a request of the newest revision like those that come over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw

from ...channel import Caller
from ...jsonrpc.codec import AnyAnswer, read, text_of
from ...jsonrpc.errors import RpcError
from ...jsonrpc.leniency import STRICT
from ...jsonrpc.messages import Failure, Result
from ...rpc.binding.results import to_json
from ..protocol.entry_versions import asking
from ..protocol.foreign_decoding import decode_content
from ..protocol.params import ListToolsResult
from ..protocol.revisions import NEWEST
from ..protocol.types import Tool
from .served import ServedServer

T = TypeVar("T")

ANYONE: Final = Caller()
_META: Final = {
    "io.modelcontextprotocol/protocolVersion": NEWEST.date,
    "io.modelcontextprotocol/clientInfo": {"name": "in this process", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class _Exchange:
    """One request and its answer."""

    def __init__(self, request: bytes, caller: Caller) -> None:
        self.request = request
        self.caller = caller
        self.gone: Callable[[], None] | None = None
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def respond(self, answer: AnyAnswer) -> None:
        if not self.answer.done():
            self.answer.set_result(text_of(answer) or b"")

    def stream(self, message: bytes) -> bool:
        return False


async def request(
    server: ServedServer,
    method: str,
    params: Mapping[str, Any],
    caller: Caller,
    result: type[T],
    version: str | None = None,
) -> T:
    """Make a request, and return its result as a `result`. `version`: the requested one of the tool or prompt. Raises
    RpcError if the server answers with an error."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _META | asking(version)}}
    exchange = _Exchange(to_json(message), caller)
    server.exchange(exchange)
    try:
        answer = read(await exchange.answer, server.limits, STRICT)
    except asyncio.CancelledError:
        if exchange.gone is not None:
            exchange.gone()
        raise
    if isinstance(answer, Failure):
        data = msgspec.json.decode(answer.error.data) if isinstance(answer.error.data, Raw) else answer.error.data
        raise RpcError.of(answer.error.code, answer.error.message, data)
    assert isinstance(answer, Result)
    return decode_content(answer.result, result)


async def list_all(server: ServedServer, caller: Caller) -> list[Tool]:
    """Return the tools of all pages. Raises RpcError."""
    found: list[Tool] = []
    params: dict[str, Any] = {}
    while True:
        page = await request(server, "tools/list", params, caller, ListToolsResult)
        found += page.tools
        if not isinstance(page.next_cursor, str):
            return found
        params = {"cursor": page.next_cursor}
