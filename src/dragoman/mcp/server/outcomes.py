"""Results of a call that are not the method's usual result: questions that a function returned, an extension's result.

Rules (2026-07-28's basic/index, "ResultType"; basic/versioning, "Extension Negotiation"):

- A client gets a result of an extension only if it declared the extension; otherwise the call is refused with -32021.
- The stateful era has no `resultType`: there a result has the form that its extension declares, or cannot be had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct

from ...jsonrpc.errors import LocalError, RpcError
from ...rpc.method import LongResult
from ...rpc.middleware import Call, Middleware, Next
from ..asking.ask import asker_of
from ..protocol.admission import Admitted
from ..protocol.extension import Extension, Extensions, StatefulForm
from ..protocol.methods import DEFINED_CODES, MISSING_CAPABILITY, Row
from ..protocol.params import COMPLETE, EmptyResult, InputRequiredResult
from ..protocol.results import Stamp, finish
from ..protocol.types import ClientCapabilities

ResultWriter: TypeAlias = Callable[[Any, Admitted], Raw | LongResult]
"""(what a function returned, its call) -> the result for the caller's revision: its JSON text, or a `LongResult`."""


def check_declared(admitted: Admitted, extension: Extension) -> None:
    """Raise RpcError (-32021) if a client of the stateless era has not declared the extension. Nothing is demanded in
    the stateful era."""
    if admitted.revision.stateful or admitted.has_declared(extension.name):
        return
    # "the supporting party MUST either revert to core protocol behavior or reject the request"
    data = {"requiredCapabilities": ClientCapabilities(extensions={extension.name: {}})}
    text = f"{DEFINED_CODES[MISSING_CAPABILITY]}: extensions ({extension.name})"
    raise RpcError.of(MISSING_CAPABILITY, text, data)


def result_writer(row: Row) -> ResultWriter:
    """Return the writer of the results of an extension's method. It raises LocalError for a value that is not of the
    row's result type, nor the whole result as JSON text (`Raw`); for a notification it ignores the value.

    If the row is cacheable, a result without caching hints gets those of the server.
    """
    kind = row.result

    def write_result(value: Any, admitted: Admitted) -> Raw:
        if kind is None:
            return Raw(b"null")
        if type(value) is Raw:
            return value
        if value is None and kind is EmptyResult:
            value = EmptyResult()
        if type(value) is not kind:
            raise LocalError(f"{row.name}: its result is a {kind.__name__}, and {value!r:.100} is none")
        server = admitted.surroundings
        caching = server.options
        if row.cacheable and caching.ttl and getattr(value, "ttl_ms", None) == 0:
            value = msgspec.structs.replace(value, ttl_ms=int(caching.ttl * 1000), cache_scope=caching.cache_scope)
        return finish(value, admitted.revision, server.stamp, COMPLETE)

    return write_result


def outcome_writers(extensions: Extensions) -> dict[type, ResultWriter]:
    """Return the writers of the other results that a function may return, by type: its own questions, and the results
    of extensions."""

    def input_required(value: Any, admitted: Admitted) -> Raw:
        sealed = asker_of(admitted).seal_result(value, admitted)
        return finish(sealed, admitted.revision, admitted.surroundings.stamp)

    def writer_of(extension: Extension, kind: str, form: StatefulForm | None) -> ResultWriter:
        def write_result(value: Any, admitted: Admitted) -> Raw:
            revision, stamp = admitted.revision, admitted.surroundings.stamp
            if not revision.stateful:
                check_declared(admitted, extension)
                return finish(value, revision, stamp, kind)
            if form is None or not form.within(revision):
                raise LocalError(f"{admitted.method}: revision {revision.date} has no result {kind!r}")
            if not (form.for_call(admitted) if form.for_call is not None else admitted.has_declared(extension.name)):
                raise LocalError(f"{admitted.method}: this client takes no result {kind!r}: it has not declared so")
            return finish(form.convert(value), revision, stamp)

        return write_result

    found: dict[type, ResultWriter] = {InputRequiredResult: input_required}
    for extension in extensions.all:
        for kind, result in extension.result_types.items():
            found[result.type] = writer_of(extension, kind, result.stateful)
    return found


def write_values(stamp: Stamp) -> Middleware:
    """Return the outermost middleware. If one inside it returns a Struct in place of JSON text, it writes that for the
    caller's revision: a result of the method's own type, or one of `outcome_writers`. It raises LocalError for the
    result of a request that is no object, such as the None of middleware that returns nothing."""

    async def write_result(call: Call, next: Next) -> Any:
        value = await next(call)
        if type(value) is Raw or isinstance(value, LongResult):
            return value
        if not isinstance(value, Struct):
            if call.id is UNSET or isinstance(value, Mapping):
                return value
            raise LocalError(
                f"{call.method}: {value!r:.100} is no result: middleware returns what `await next(call)` returned, or "
                "another result"
            )
        admitted: Admitted = call.params
        other = admitted.surroundings.outcomes.get(type(value))
        return finish(value, admitted.revision, stamp, COMPLETE) if other is None else other(value, admitted)

    return write_result


def without_outcomes(hint: Any, outcomes: Iterable[type]) -> Any:
    """Return a function's result type without the types of `outcome_writers`: the type for its output schema."""
    members = getattr(hint, "__args__", ())
    excluded = tuple(outcomes)
    kept = tuple(one for one in members if one not in excluded)
    if not kept or len(kept) == len(members):
        return hint
    found: Any = kept[0]
    for one in kept[1:]:
        found = found | one
    return found
