"""What clients without tasks get of a long call: a handle in place of its result, and tools for the rest.

A handle is an ordinary result that tells the model what to do next. The tools take the id in it: also in another
session, after a restart, or at another replica. A model that waits with `task_result` also gets the questions of the
task: they are asked in that call, as its revision asks.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, structs

from ....jsonrpc.errors import InvalidParams, RpcError
from ....tasks.record import TaskRecord
from ....tasks.runner import SELDOM
from ...protocol.encoding import decode
from ...protocol.errors import ToolError
from ...protocol.foreign_decoding import decode_content
from ...protocol.params import CallToolResult, InputRequest, InputRequiredResult
from ...protocol.types import TextContent, Tool, ToolAnnotations
from ...server.context import Context
from ...server.extending.extension import Companion
from ...server.listing import Entry
from .access import Relay, TaskAccess, TooManyWait

HELPER_WAIT: Final = 50.0
"""Seconds that `task_result` waits for the end of a task whose tool is handed over at once, and says nothing of what
hosts wait: most of them wait 60."""
TaskId = Annotated[str, Meta(description="The task_id that a tool has returned.")]

_HANDLE: Final = {
    "type": "object",
    "description": "In place of a result: the tool goes on as a task.",
    "properties": {"task_id": {"type": "string"}, "task_status": {"type": "string"}},
    "required": ["task_id", "task_status"],
}
"""The schema of a handle's structured content."""
_ROOT: Final = ("$defs", "definitions", "$schema", "$id", "$anchor")
"""The members of a schema to which others refer from its root."""


def with_handle(entry: Entry) -> Entry:
    """Return the entry of a tool whose output schema also allows a handle; a tool without a schema is unchanged."""
    listed, older = entry.listed, entry.older
    if isinstance(listed, Tool):
        entry.listed = _allowing(listed)
    if isinstance(older, Tool):
        entry.older = _allowing(older)
    return entry


def _allowing(listed: Tool) -> Tool:
    schema = listed.output_schema
    if not isinstance(schema, dict):
        return listed
    root = {name: value for name, value in schema.items() if name in _ROOT}
    own = {name: value for name, value in schema.items() if name not in _ROOT}
    kind = {"type": "object"} if own.get("type") == "object" else {}
    return structs.replace(listed, output_schema=root | kind | {"anyOf": [own, _HANDLE]})


def handle(record: TaskRecord, prefix: str) -> CallToolResult:
    """Return the handle of a task that has not ended."""
    text = (
        f"Not done yet: {record.name} goes on as a task{_how_far(record)}, and its result is kept. To wait for it, call "
        f'{prefix}result with {{"task_id": "{record.id}"}}, and again if it is not done then; {prefix}status says how '
        f"far it is, {prefix}cancel stops it."
    )
    return CallToolResult(content=[TextContent(text)], structured_content=_shown(record))


def _shown(record: TaskRecord) -> dict[str, Any]:
    found: dict[str, Any] = {"task_id": record.id, "task_status": record.status}
    if record.message:
        found["message"] = record.message
    if record.progress is not None:
        found["progress"] = record.progress
    if record.total is not None:
        found["total"] = record.total
    return found


def _how_far(record: TaskRecord) -> str:
    """Return how far a task is, in words; "" if it is not known."""
    far = "" if record.progress is None else f"{record.progress:g}"
    if far and record.total is not None:
        far += f" of {record.total:g}"
    words = ": ".join(part for part in (far, record.message) if part)
    return f" ({words})" if words else ""


class HelperTools:
    """The tools for clients without tasks. `prefix`: begins their names."""

    def __init__(self, access: TaskAccess, prefix: str) -> None:
        self._access, self._prefix = access, prefix
        looks = ToolAnnotations(read_only_hint=True, open_world_hint=False)
        stops = ToolAnnotations(destructive_hint=True, idempotent_hint=True, open_world_hint=False)
        self.all: tuple[Companion, ...] = (
            Companion(f"{prefix}status", self.status, looks),
            Companion(f"{prefix}result", self.result, looks),
            Companion(f"{prefix}cancel", self.cancel, stops),
        )
        """The tools, as the server registers them."""

    async def _find(self, id: str, ctx: Context) -> TaskRecord:
        """Return a task of the caller. Raises ToolError for any other id, which a model may have mistyped."""
        try:
            return await self._access.find(id, ctx.caller)
        except InvalidParams as error:
            raise ToolError(error.message) from error

    async def status(self, task_id: TaskId, ctx: Context) -> CallToolResult:
        """Say how far a task is, without waiting: a tool that took long has returned its task_id."""
        record = await self._find(task_id, ctx)
        text = f"The task {record.id} of {record.name} is {record.status}{_how_far(record)}."
        if record.ended and record.status != "cancelled":
            text += f" {self._prefix}result returns its result."
        return CallToolResult(content=[TextContent(text)], structured_content=_shown(record))

    async def result(self, task_id: TaskId, ctx: Context) -> CallToolResult | InputRequiredResult:
        """Wait for the result of a task and return it. If the task is not done in time, call this again."""
        access = self._access
        record = await self._find(task_id, ctx)
        given = getattr(ctx._admitted.params, "input_responses", UNSET)
        if given is not UNSET and given:
            await access.answer(task_id, given)
        try:
            with access.waiting(task_id, ctx), access.relaying(task_id, ctx, related=False) as relay:
                return await self._wait(record, ctx, relay)
        except TooManyWait:
            record = await self._find(task_id, ctx)
            return _outcome(record) if record.ended else handle(record, self._prefix)

    async def _wait(self, record: TaskRecord, ctx: Context, relay: Relay) -> CallToolResult | InputRequiredResult:
        """Return the result of a task, its questions, or after its `answer_within` a handle again: progress does not
        make this longer, since many hosts end a call at their time-out whatever progress they get."""
        access, seen, loop = self._access, record.updated, asyncio.get_running_loop()
        end = loop.time() + (record.answer_within or HELPER_WAIT)

        def calls(one: TaskRecord) -> bool:
            return one.ended or one.updated != seen or relay.has_new(one)

        _tell_progress(record, ctx)
        while True:
            left = end - loop.time()
            record = await access.wait(record.id, ctx, max(0.0, min(left, SELDOM)), calls)
            ctx.rpc.renew()
            if record.ended:
                relay.end(record.id)
                return _outcome(record)
            if record.questions and not ctx.revision.server_calls:
                return InputRequiredResult(input_requests=decode(_encode(record.questions), dict[str, InputRequest]))
            relay.ask(record)
            if record.updated != seen:
                seen = record.updated
                _tell_progress(record, ctx)
            if loop.time() >= end or access.is_left(record, ctx):
                return handle(record, self._prefix)

    async def cancel(self, task_id: TaskId, ctx: Context) -> CallToolResult:
        """Stop a task, whose result is then not needed any more."""
        record = await self._find(task_id, ctx)
        if not record.ended:
            found = await self._access.cancel(record.id)
            record = record if found is None else found
        text = f"The task {record.id} of {record.name} is {record.status}."
        return CallToolResult(content=[TextContent(text)], structured_content=_shown(record))


_encode = msgspec.json.Encoder().encode


def _tell_progress(record: TaskRecord, ctx: Context) -> None:
    """Send how far a task is to who waits for it, if that is known."""
    if record.progress is not None and not record.ended:
        ctx.progress(record.progress, record.total, record.message or None)


def _outcome(record: TaskRecord) -> CallToolResult:
    """Return the result of a task that has ended. Raises the error with which it ended."""
    if record.result is not None:
        return structs.replace(decode_content(record.result, CallToolResult), meta=UNSET)
    if record.error is not None:
        error = decode(record.error, dict[str, Any])
        raise RpcError.of(error["code"], error["message"], error.get("data"))
    text = f"The task {record.id} of {record.name} was cancelled, and has no result."
    return CallToolResult(content=[TextContent(text)], is_error=True)
