"""How a user's function may fail, and what its caller gets.

Rules:

- A tool that fails reports it in its result (`isError`), for the model to read: `ToolError`, `ResourceNotFound` and a
  question that the client answered with an error with their text, any other exception masked, with a reference that is
  in the log beside the traceback.
- A resource, a prompt or a completion fails by a JSON-RPC error: exceptions for the caller (`ToolError`,
  `ResourceNotFound`) with their text, any other exception masked.
- What a function needs of its caller and this one lacks (`UnfitCaller`) is told in plain words, and logged in full.
- An `RpcError` is a JSON-RPC error from all of them, but not with a code that the protocol reserves.
- Wrong arguments of a tool are a result too, in every revision unless `argument_errors` is "revision": a model must
  read them.
- Wrong arguments are reported all at once, each with its field, what is wrong, and what came.
- A question that must go through the client is not a failure: it ends the call in `input_required`.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError
from typing import Any, Protocol, TypeAlias

from msgspec import Raw

from ...jsonrpc.errors import (
    INTERNAL_ERROR,
    PARSE_ERROR,
    CallRefused,
    InvalidParams,
    ParseError,
    RpcError,
    UnfitCaller,
)
from ...repeats import Repeats
from ...rpc.binding.results import write
from ...rpc.declared import sendable_data
from ..asking.ask import QuestionFailed, input_required
from ..protocol.admission import Admitted
from ..protocol.errors import ResourceNotFound, ToolError
from ..protocol.methods import MISSING_CAPABILITY, RESERVED_CODES, RESOURCE_NOT_FOUND, URL_ELICITATION_REQUIRED
from ..protocol.options import ArgumentErrors
from ..protocol.params import CallToolResult
from ..protocol.results import Stamp, finish
from ..protocol.revisions import Revision
from ..protocol.types import TextContent

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)


class Masking(Protocol):
    """The part of a server that failures use."""

    @property
    def stamp(self) -> Stamp: ...
    @property
    def debug(self) -> bool:
        """Whether exceptions' texts cross the wire."""

    @property
    def argument_errors(self) -> ArgumentErrors:
        """Whether wrong arguments are a result in each revision."""


Failed: TypeAlias = Callable[[BaseException, Admitted, bool], Raw]
"""(error, admitted, whether the function ran at all) -> the result; raises if the failure is not a result."""


class Malformed(InvalidParams):
    """The request itself is invalid, whatever the function takes."""


def of_tool(name: str, server: Masking, declared: tuple[type[RpcError], ...] = ()) -> Failed:
    """How a tool fails. `declared`: further errors that the model may read."""

    def failed(error: BaseException, admitted: Admitted, ran: bool) -> Raw:
        asked = _asked(error, admitted, server.stamp)
        if asked is not None:
            return asked
        error = _alone(error)
        if isinstance(error, Malformed):
            raise error
        faults = None if ran else _faults(error)
        if faults is not None:
            unfit = unfitting(name, faults)
            # 2025-11-25, server/tools, Error Handling: "Input validation errors" are tool execution errors, which a
            # model can read and correct; before, "Invalid arguments" were protocol errors
            if server.argument_errors == "revision" and not admitted.revision.argument_results:
                raise unfit from None
            text = unfit.message
        elif isinstance(error, ToolError | ResourceNotFound):
            text = str(error) or f"{name} failed"
        elif isinstance(error, UnfitCaller):
            repeats.error("tool %r failed: %s", name, error, exc_info=error)
            text = error.answer.message
        elif isinstance(error, QuestionFailed):  # "User rejected sampling request": no failure of the server's
            text = error.message
        elif isinstance(error, RpcError):
            if not isinstance(error, declared):
                raise _crossing(error, admitted)
            text = error.message if error.data is None else f"{error.message}\n{write(sendable_data(error)).decode()}"
        else:
            text = _masked(name, error, server.debug)
        return finish(CallToolResult(content=[TextContent(text)], is_error=True), admitted.revision, server.stamp)

    return failed


def of_others(name: str, server: Masking) -> Failed:
    """How a resource, a prompt or a completion fails: by a JSON-RPC error, masked (-32603) for other exceptions."""

    def failed(error: BaseException, admitted: Admitted, ran: bool) -> Raw:
        asked = _asked(error, admitted, server.stamp)
        if asked is not None:
            return asked
        error = _alone(error)
        faults = None if ran else _faults(error)
        if faults is not None:
            raise unfitting(name, faults) from None
        if isinstance(error, RpcError):
            raise _crossing(error, admitted)
        if isinstance(error, ResourceNotFound):
            uri = getattr(admitted.params, "uri", None)
            if uri is None:  # a prompt or a completion, of an argument that names no resource
                raise InvalidParams(str(error) or f"{name}: there is no such resource") from error
            raise missing(uri, admitted.revision, str(error)) from error
        if isinstance(error, ToolError):
            raise RpcError.of(INTERNAL_ERROR, str(error) or f"{name} failed") from error
        raise error  # `rpc.responses` masks it

    return failed


def missing(uri: str, revision: Revision, why: str = "", near: str = "") -> RpcError:
    """The error for an unknown resource (server/resources, Error Handling). `near`: a proposal."""
    text = "; ".join(part for part in (f"Resource not found: {why}" if why else "Resource not found", near) if part)
    return RpcError.of(revision.missing_resource, text, {"uri": uri})


def unfitting(what: str, faults: list[dict[str, Any]]) -> InvalidParams:
    """The error for wrong arguments."""
    return InvalidParams(f"Invalid arguments for {what}:\n{told(faults)}", {"errors": faults})


def told(faults: Iterable[Mapping[str, Any]]) -> str:
    """Faults as text, one per line: field, what is wrong, what came."""
    lines = []
    for one in faults:
        place = f"{one['field']}: " if one["field"] else ""
        came = f" (received {write(one['received']).decode()})" if "received" in one else ""
        lines.append(f"- {place}{one['message']}{came}")
    return "\n".join(lines)


def _asked(error: BaseException, admitted: Admitted, stamp: Stamp) -> Raw | None:
    """The result that asks the client, if the function ended so. Raises exceptions that are not failures of the
    function."""
    asked = input_required(error)
    if asked is not None:
        return finish(asked.result(), admitted.revision, stamp)
    # cancelled (where a thread waited for an answer, too), or the end of the program
    if isinstance(error, CancelledError) or not isinstance(error, Exception | SystemExit):
        raise error
    return None


def _alone(error: BaseException) -> BaseException:
    """The only error of a group: a handler's TaskGroup wraps every exception."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _faults(error: BaseException) -> list[dict[str, Any]] | None:
    """The faults of the arguments, if the error is one of reading them."""
    if isinstance(error, ParseError):
        return [{"field": "", "message": "There is a number that no computer's can hold"}]
    if isinstance(error, InvalidParams) and isinstance(error.data, dict):
        faults: list[dict[str, Any]] | None = error.data.get("errors")
        return faults
    return None


def _crossing(error: RpcError, admitted: Admitted) -> RpcError:
    """The error as it goes out. basic/index, Error Codes: "Implementations MUST NOT emit any code from this
    sub-range that is not defined by this specification and MUST use defined codes only with their specified
    meanings"."""
    if isinstance(error, CallRefused):
        return error  # its code is the one that MCP has for it
    code = error.code
    if code == PARSE_ERROR or (code in RESERVED_CODES and not _defined(code, admitted.revision)):
        repeats.warning("%s: a handler's error has no code like %d; the caller gets -32603", admitted.method, code)
        return RpcError.of(INTERNAL_ERROR, error.message, sendable_data(error))
    return error


def _defined(code: int, revision: Revision) -> bool:
    return (
        (code == MISSING_CAPABILITY and not revision.stateful)
        or (code == URL_ELICITATION_REQUIRED and revision.url_elicitation_error)
        or (code == RESOURCE_NOT_FOUND and revision.missing_resource == code)
    )


def _masked(name: str, error: BaseException, debug: bool) -> str:
    reference = os.urandom(6).hex()
    logger.error("tool %r failed, reference %s", name, reference, exc_info=error)
    text = f"{name} failed (reference {reference})"
    return f"{text}\n{''.join(traceback.format_exception(error))}" if debug else text
