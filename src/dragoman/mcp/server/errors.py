"""How a user's function may fail, and what its caller receives.

Rules:

- A tool that fails reports it in its result (`isError`), for the model to read: a `ToolError`, a `ResourceNotFound` and
  a question that the client answered with an error by their text, any other exception masked, with a reference that the
  log has beside the traceback.
- A resource, a prompt or a completion fails with a JSON-RPC error: exceptions for the caller (`ToolError`,
  `ResourceNotFound`) with their text, any other exception masked.
- If the caller lacks something that the function needs of it (`UnfitCaller`), the caller gets that in plain words, and
  the log has it in full.
- An `RpcError` is a JSON-RPC error from all of them, but not with a code that the protocol reserves.
- Wrong arguments of a tool are a result too, in every revision unless `argument_errors` is "revision": a model must
  read them.
- Wrong arguments are reported all at once, each with its field, what is wrong, and what was received.
- A question that is answered in another call is not a failure: it ends this call in `input_required`.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError
from typing import Any, TypeAlias

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
from ..protocol.params import CallToolResult
from ..protocol.results import finish
from ..protocol.revisions import Revision
from ..protocol.types import TextContent

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)


FailureHandler: TypeAlias = Callable[[BaseException, Admitted, bool], Raw]
"""(error, admitted, whether the function ran at all) -> the result; raises if the failure is not a result."""


class MalformedCall(InvalidParams):
    """The request itself is invalid, whatever the function."""


def tool_failures(declared: tuple[type[RpcError], ...] = ()) -> FailureHandler:
    """Return the function that makes a tool's failure a result. `declared`: further errors that the model may read."""

    def handle_failure(error: BaseException, admitted: Admitted, ran: bool) -> Raw:
        questions = _questions(error, admitted)
        if questions is not None:
            return questions
        name, server = admitted.surroundings.name, admitted.surroundings
        error = _only_error(error)
        if isinstance(error, MalformedCall):
            raise error
        faults = None if ran else _faults(error)
        if faults is not None:
            unfit = invalid_arguments(name, faults)
            # 2025-11-25, server/tools, Error Handling: "Input validation errors" are tool execution errors, which a
            # model can read and correct; before, "Invalid arguments" were protocol errors
            if server.options.argument_errors == "revision" and not admitted.revision.argument_results:
                raise unfit from None
            text = unfit.message
        elif isinstance(error, ToolError | ResourceNotFound):
            text = str(error) or f"{name} failed"
        elif isinstance(error, UnfitCaller):
            repeats.error("tool %r failed: %s", name, error, exc_info=error)
            text = error.answer.message
        elif isinstance(error, QuestionFailed):  # "User rejected sampling request": the server has not failed
            text = error.message
        elif isinstance(error, RpcError):
            if not isinstance(error, declared):
                raise _error_for_callers(error, admitted)
            text = error.message if error.data is None else f"{error.message}\n{write(sendable_data(error)).decode()}"
        else:
            text = _masked_text(name, error, server.debug)
        return finish(CallToolResult(content=[TextContent(text)], is_error=True), admitted.revision, server.stamp)

    return handle_failure


def failures(what: str = "", codes: frozenset[int] = frozenset()) -> FailureHandler:
    """Return the function that raises a failure of a resource, a prompt or a completion as a JSON-RPC error; one that
    is not for the caller is masked (-32603). `what`: the name in error texts; by default the entry's name or URI.
    `codes`: reserved ones that its errors may have, too."""

    def handle_failure(error: BaseException, admitted: Admitted, ran: bool) -> Raw:
        questions = _questions(error, admitted)
        if questions is not None:
            return questions
        name = what or admitted.surroundings.name
        error = _only_error(error)
        faults = None if ran else _faults(error)
        if faults is not None:
            raise invalid_arguments(name, faults) from None
        if isinstance(error, RpcError):
            raise _error_for_callers(error, admitted, codes)
        if isinstance(error, ResourceNotFound):
            uri = getattr(admitted.params, "uri", None)
            if uri is None:  # a prompt or a completion, of an argument that names no resource
                raise InvalidParams(str(error) or f"{name}: there is no such resource") from error
            raise missing_resource(uri, admitted.revision, str(error)) from error
        if isinstance(error, ToolError):
            raise RpcError.of(INTERNAL_ERROR, str(error) or f"{name} failed") from error
        raise error  # `rpc.responses` masks it

    return handle_failure


def missing_resource(uri: str, revision: Revision, why: str = "", near: str = "") -> RpcError:
    """Return the error for an unknown resource (server/resources, Error Handling). `near`: a proposal, for its text."""
    text = "; ".join(part for part in (f"Resource not found: {why}" if why else "Resource not found", near) if part)
    return RpcError.of(revision.missing_resource, text, {"uri": uri})


def invalid_arguments(what: str, faults: list[dict[str, Any]]) -> InvalidParams:
    """Return the error for wrong arguments. `what`: the name of the tool or prompt."""
    return InvalidParams(f"Invalid arguments for {what}:\n{describe_faults(faults)}", {"errors": faults})


def describe_faults(faults: Iterable[Mapping[str, Any]]) -> str:
    """Return faults as text, one per line: the field, what is wrong, what was received."""
    lines = []
    for one in faults:
        field = f"{one['field']}: " if one["field"] else ""
        came = f" (received {write(one['received']).decode()})" if "received" in one else ""
        lines.append(f"- {field}{one['message']}{came}")
    return "\n".join(lines)


def _questions(error: BaseException, admitted: Admitted) -> Raw | None:
    """Return the result with questions to the client, if the function ended with these; otherwise None. Raises
    exceptions that are not failures of the function."""
    required = input_required(error)
    if required is not None:
        return finish(required.result(), admitted.revision, admitted.surroundings.stamp)
    # cancelled (where a thread waited for an answer, too), or the end of the program
    if isinstance(error, CancelledError) or not isinstance(error, Exception | SystemExit):
        raise error
    return None


def _only_error(error: BaseException) -> BaseException:
    """Return the only error in a group, or the error itself: a handler's TaskGroup wraps every exception."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _faults(error: BaseException) -> list[dict[str, Any]] | None:
    """Return the faults of the arguments, if the error is one of decoding them; otherwise None."""
    if isinstance(error, ParseError):
        return [{"field": "", "message": "There is a number that no double can hold"}]
    if isinstance(error, InvalidParams) and isinstance(error.data, dict):
        faults: list[dict[str, Any]] | None = error.data.get("errors")
        return faults
    return None


def _error_for_callers(error: RpcError, admitted: Admitted, codes: frozenset[int] = frozenset()) -> RpcError:
    """Return the error as it is sent. `codes`: those that an extension defines. basic/index, Error Codes:
    "Implementations MUST NOT emit any code from this sub-range that is not defined by this specification and MUST use
    defined codes only with their specified meanings"."""
    if isinstance(error, CallRefused) or error.code in codes:
        return error  # its code is MCP's own, or the extension's
    code = error.code
    if code == PARSE_ERROR or (code in RESERVED_CODES and not _is_defined(code, admitted.revision)):
        repeats.warning("%s: a handler's error has no code like %d; the caller gets -32603", admitted.method, code)
        return RpcError.of(INTERNAL_ERROR, error.message, sendable_data(error))
    return error


def _is_defined(code: int, revision: Revision) -> bool:
    return (
        (code == MISSING_CAPABILITY and not revision.stateful)
        or (code == URL_ELICITATION_REQUIRED and revision.url_elicitation_error)
        or (code == RESOURCE_NOT_FOUND and revision.missing_resource == code)
    )


def _masked_text(name: str, error: BaseException, debug: bool) -> str:
    reference = os.urandom(6).hex()
    logger.error("tool %r failed, reference %s", name, reference, exc_info=error)
    text = f"{name} failed (reference {reference})"
    return f"{text}\n{''.join(traceback.format_exception(error))}" if debug else text
