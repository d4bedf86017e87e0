"""Writes the result of a tool: as content, or as structured content with its text.

Rules (server/tools, Tool Result):

- A function whose return type is data (a Struct, a dict, a list, a number, ...) has an output schema, and its
  results are checked against it: "Servers MUST provide structured results that conform to this schema".
- Text, bytes, content, unannotated results and None are content only.
- Structured content is repeated as text up to `LARGEST_TEXT`, for clients that read only text.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...jsonrpc.errors import LocalError
from ...rpc.binding.annotations import result_tree, translate_result
from ...rpc.binding.faults import ValueFault
from ...rpc.binding.json_schema import validator
from ...rpc.binding.results import result_check, write
from ...rpc.method import LongResult
from ..protocol.admission import Admitted
from ..protocol.params import COMPLETE, CallToolResult
from ..protocol.results import finish
from .content import CONTENT, blocks, check_readable
from .errors import describe_faults
from .schema import RESULT, Schema, is_object, is_structured, output_schema, wrapped

LARGEST_TEXT: Final = 65_536
"""Bytes of JSON up to which structured content is repeated as text ("a tool that returns structured content SHOULD
also return the serialized JSON in a TextContent block"). Beyond that, the text only says that there is structured
content, in revisions that have it."""

_quoted = msgspec.json.Encoder().encode


class _Text(Struct, tag_field="type", tag="text", gc=False):
    text: str


class _LongText(LongResult):
    """The result with a long text, which is encoded straight into the answer, without a copy."""

    content: list[_Text]
    meta: Raw | UnsetType = msgspec.field(default=UNSET, name="_meta")
    result_type: str | UnsetType = msgspec.field(default=UNSET, name="resultType")


class ToolOutput(Struct, frozen=True, eq=False):
    """How the results of a tool are written. `schema`: its output schema; None: results are content. `older`: the
    schema for peers without `structured_values`, one of an object; `wrap`: whether they get `{"result": ...}`.
    `faults`: returns what is wrong with a result's JSON text; `exact`: the class whose instances are always right, and
    whose JSON text has nothing to escape."""

    schema: Schema | None = None
    older: Schema | None = None
    wrap: bool = False
    faults: Callable[[bytes], list[ValueFault]] | None = None
    exact: type | None = None


_CONTENT = ToolOutput()


def tool_output(name: str, hint: Any, written: Mapping[str, Any] | None) -> ToolOutput:
    """Return how the results of a function with this return type are written. `written`: the user's output schema,
    which takes precedence. Raises LocalError."""
    if written is not None:
        schema = dict(written)
        validate = validator(schema, where=f"{name}, output schema")
        older = schema if is_object(schema) else None if _refers_to_root(schema) else wrapped(schema)
        return ToolOutput(schema, older, older is not schema, lambda text: validate(msgspec.json.decode(text)))
    if not is_structured(result_tree(hint, name, CONTENT), CONTENT):
        return _CONTENT
    try:
        return _of_type(hint)
    except TypeError:  # a type with unhashable metadata
        return _of_type.__wrapped__(hint)
    except LocalError as error:
        raise LocalError(f"{name}: {error}") from error


@functools.lru_cache(1024)
def _of_type(hint: Any) -> ToolOutput:
    tree = translate_result(hint, "result").tree
    schema = output_schema(tree.shown)
    if not schema:
        return _CONTENT
    whole = is_object(schema)
    exact = hint if hint is int or hint is bool else None
    return ToolOutput(schema, schema if whole else wrapped(schema), not whole, result_check(tree), exact)


def _refers_to_root(schema: Schema) -> bool:
    """Return whether a user's schema refers to its root, so that it cannot be put into another."""
    refs = str(schema).split("'$ref': '#")[1:]
    return any(not ref.startswith(("/$defs/", "/definitions/")) for ref in refs)


def _misfit_error(name: str, wrong: list[ValueFault], value: Any) -> LocalError:
    """Return the error for a result that does not fit. It names a number that is not finite, which is null in JSON."""
    text = f"{name} returned what its output schema does not allow:\n{describe_faults(msgspec.to_builtins(wrong))}"
    if any(one.received is None for one in wrong) and (odd := _not_finite(value)) is not None:
        text += f"\nJSON has no {odd!r}, which is written as null: return None for it, or text"
    return LocalError(text)


def _not_finite(value: Any) -> float | None:
    """Return a number in a value that is not finite, which JSON does not have; None if there is none."""
    try:
        left = [msgspec.to_builtins(value, enc_hook=str)]
    except (TypeError, ValueError, RecursionError):
        return None
    while left:
        one = left.pop()
        if isinstance(one, float) and not isfinite(one):
            return one
        left += one.values() if isinstance(one, dict) else one if isinstance(one, list | tuple) else ()
    return None


def _checked_result(value: CallToolResult, result: ToolOutput, admitted: Admitted) -> CallToolResult:
    """Return a whole result that a tool returned, as this revision has it. Raises LocalError for one that no client
    could decode, and for structured content that the output schema does not allow."""
    check_readable(value)
    name, revision = admitted.surroundings.name, admitted.revision
    if result.schema is None or value.is_error is True:
        return value
    # "Servers MUST provide structured results that conform to this schema" (server/tools, Output Schema)
    if value.structured_content is UNSET:
        raise LocalError(f"{name} has an output schema, and returned a CallToolResult without structured_content")
    if result.faults is not None and (wrong := result.faults(write(value.structured_content))):
        raise _misfit_error(name, wrong, value.structured_content)
    if result.wrap and not revision.structured_values:
        return msgspec.structs.replace(value, structured_content={RESULT: value.structured_content})
    return value


_STATEFUL: Final = b'{"content":[{"type":"text","text":'
_BETWEEN: Final = b'}],"structuredContent":'


def result_encoder(result: ToolOutput) -> Callable[[Any, Admitted], Raw | LongResult]:
    """Return the function that makes a tool's result from the value of its function.

    That raises LocalError for a value that the output schema does not allow.
    """
    faults, wraps, exact = result.faults, result.wrap, result.exact

    def unstructured(value: Any, admitted: Admitted) -> Raw | LongResult:
        if type(value) is str:
            stateful = admitted.revision.stateful
            if len(value) <= LARGEST_TEXT or not value.isascii():  # it may hold halves of surrogate pairs
                begins = _STATEFUL if stateful else admitted.surroundings.stamp.text_prefix
                return Raw(b"".join((begins, _quoted(value), b"}]}")))
            if stateful:
                return _LongText([_Text(value)])
            return _LongText([_Text(value)], admitted.surroundings.stamp.meta, COMPLETE)
        if not isinstance(value, CallToolResult):
            value = CallToolResult(content=blocks(value))
        else:
            value = _checked_result(value, result, admitted)
        return finish(value, admitted.revision, admitted.surroundings.stamp)

    def structured(value: Any, admitted: Admitted) -> Raw:
        revision = admitted.revision
        plain = type(value) is exact
        if not plain and isinstance(value, CallToolResult):
            return finish(_checked_result(value, result, admitted), revision, admitted.surroundings.stamp)
        text = write(value)
        if plain:
            shown = b'"' + text + b'"'
        elif faults is not None and (wrong := faults(text)):
            raise _misfit_error(admitted.surroundings.name, wrong, value)
        elif len(text) > LARGEST_TEXT and revision.structured:
            shown = _quoted(
                f"The result is in structuredContent ({len(text):,} bytes of JSON); it is not repeated here."
            )
        else:  # as a JSON string
            shown = text if isinstance(value, str) else _quoted(text.decode())
        if not revision.stateful:
            return Raw(b"".join((admitted.surroundings.stamp.text_prefix, shown, _BETWEEN, text, b"}")))
        if not revision.structured:
            return Raw(_STATEFUL + shown + b"}]}")
        if wraps and not revision.structured_values:
            text = b'{"result":' + text + b"}"
        return Raw(b"".join((_STATEFUL, shown, _BETWEEN, text, b"}")))

    return unstructured if result.schema is None else structured
