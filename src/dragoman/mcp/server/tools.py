"""Makes a function the `Method` of a tool, which decodes the arguments straight from the text of `params.arguments`."""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import Any, Final, Union, cast, get_args, get_origin

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...jsonrpc.errors import InvalidParams, LocalError, ParseError
from ...jsonrpc.leniency import STRICT
from ...rpc.binding.binding import Binding
from ...rpc.binding.decoder import Later
from ...rpc.binding.json_schema import Validate, validator
from ...rpc.binding.loose_arguments import names_of, read_loosely
from ...rpc.method import NO_CONTEXT, LongResult, Method, Passed, by_name
from ...rpc.middleware import Call, Next
from ..protocol.admission import Admitted
from ..protocol.headers import HeaderParam
from .errors import FailureHandler, MalformedCall, tool_failures
from .handlers import ArgumentReader, bind_function, context_maker, handler_of, method_of, restrict_result, rpc_context
from .options import ToolOptions
from .outcomes import ResultWriter, without_outcomes
from .output import ToolOutput, result_encoder, tool_output
from .schema import Schema, input_schema, marks
from .surroundings import Surroundings

_encode = msgspec.json.Encoder().encode


class ToolParts(Struct, frozen=True, eq=False):
    """A tool's method, its schemas and marked arguments for lists, and its function's docstring."""

    method: Method
    input: Schema
    output: ToolOutput
    marked: tuple[HeaderParam, ...]
    documentation: str


def tool_method(
    name: str,
    function: Callable[..., Any],
    server: Surroundings,
    options: ToolOptions,
) -> ToolParts:
    """Return the method of a tool. `options`: all options of the tool. Raises LocalError, which names the tool, for a
    function that cannot be one."""
    binding = bind_function(function, server.dependencies, options)
    given = options["input_schema"]
    if given is None:
        shape, marked = input_schema(binding, name)
        read = _reader(binding)
    else:
        shape = dict(given)
        if shape.get("type") != "object":
            raise LocalError(f'{name}: an input schema has "type": "object" at its root')
        if len(binding.parameters) != 1 or binding.parameters[0].kind not in ("either", "named"):
            raise LocalError(f"{name}: with an input schema the function takes one dict, and a Context if it wants one")
        marked = marks(shape, name)
        read = _checked_reader(binding, validator(shape, where=f"{name}, input schema"), _names(shape))
    result = tool_output(name, without_outcomes(binding.result_type, server.outcomes), options["output_schema"])
    write_result = restrict_result(binding, result_encoder(result))
    handler = handler_of(binding.function, binding.kind, read, write_result, tool_failures(), context_maker(binding))
    return ToolParts(method_of(name, binding, handler, options, read), shape, result, marked, binding.documentation)


def included_method(name: str, method: Method) -> ToolParts:
    """Return the method of a tool for a JSON-RPC method of a service, with its function, kind, limits and middleware.

    The model may read the errors that the method declares (`isError`). Raises LocalError for arguments without names.
    """
    binding = method.signature
    shape, marked = input_schema(binding, name)
    result = tool_output(name, binding.result_type, None)
    write_result, handle_failure = restrict_result(binding, result_encoder(result)), tool_failures(method.errors)
    make_context = rpc_context if binding.wants_context else None
    read = _require_object(_reader(binding))
    handler = handler_of(binding.function, binding.kind, read, write_result, handle_failure, make_context)

    def by_names(admitted: Admitted) -> dict[str, Any]:
        return by_name(binding, read(admitted, NO_CONTEXT))

    tool = Method(
        name,
        Passed(handler, binding.kind, wants_context=binding.wants_context),
        method.kind,
        timeout=method.timeout,
        concurrency=method.concurrency,
        queue=method.queue,
        middleware=() if method.handler is None else (_bridge(method, method.handler, write_result, handle_failure),),
        quick=method.quick,
        life=method.life,
        access=None if method.access is None else method.access.reading(by_names),
    )
    return ToolParts(tool, shape, result, marked, method.description)


def _bridge(method: Method, handler: Next, write_result: ResultWriter, handle_failure: FailureHandler) -> Any:
    """Return middleware that runs the included service's own middleware, with calls as that expects them."""

    async def bridge(call: Call, next: Next) -> Any:
        admitted: Admitted = cast(Any, call.params)
        try:
            given = _checked_object(admitted)
            found = write_result(await handler(Call(method.name, given, call.id, call.context)), admitted)
            return found.as_text() if isinstance(found, LongResult) else found
        except BaseException as error:
            return handle_failure(error, admitted, False)

    return bridge


def _checked_object(admitted: Admitted) -> Raw | UnsetType:
    """Return the arguments of a call. Raises MalformedCall unless they are an object."""
    given: Raw | UnsetType = admitted.params.arguments
    if given is not UNSET and memoryview(given)[0] != 123:  # "{"
        # "Malformed requests (requests that fail to satisfy CallToolRequest schema)" are protocol errors
        raise MalformedCall("Invalid params: `arguments` must be an object")
    return given


_PLAIN: Final = (str, int, float, bool, type(None), Any)


def _leaves_strings(binding: Binding) -> bool:
    """Return whether each argument that is a string is passed as it came, without a rule that checks it."""
    if binding.injection is not None:
        return False
    for p in binding.parameters:
        kind = p.annotation.type
        kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
        if p.kind not in ("either", "named") or p.read is not None or not all(one in _PLAIN for one in kinds):
            return False
    return True


def _reader(binding: Binding) -> ArgumentReader:
    decode, later, plain, known = binding.arguments, True, _leaves_strings(binding), names_of(binding)

    def arguments(admitted: Admitted, context: Any) -> tuple[Any, ...]:
        nonlocal decode, later
        if later:
            decode, later = decode.compiled() if isinstance(decode, Later) else decode, False
        given, short = admitted.params.arguments, admitted.condensed
        if plain and short is not None and short.raw is given:
            values = short.values(lambda text: decode(text, context))
            if values is not None:
                return values
        try:
            return decode(given, context)
        except Exception as error:
            _checked_object(admitted)  # arguments that are no object are another error
            server: Surroundings = admitted.surroundings
            lenient = server.lenient
            if given is UNSET or lenient is STRICT:
                raise
            return read_loosely(given, error, lambda raw: decode(raw, context), lenient, known, _levels_left(server))

    return arguments


def _levels_left(server: Surroundings) -> int:
    """Return how many levels of nesting the limit leaves to arguments, which are in the params, in the message."""
    return server.limits.depth - 2


def _require_object(read: ArgumentReader) -> ArgumentReader:
    """Return a reader that accepts only an object, for a function whose arguments a service also takes by position."""

    def arguments(admitted: Admitted, context: Any) -> tuple[Any, ...]:
        _checked_object(admitted)
        return read(admitted, context)

    return arguments


def _names(schema: Schema) -> frozenset[str] | None:
    """Return the names of all arguments in an input schema; None if it allows others."""
    return frozenset(schema.get("properties", ())) if schema.get("additionalProperties") is False else None


def _checked_reader(binding: Binding, validate: Validate, known: frozenset[str] | None) -> ArgumentReader:
    """Return the reader for a function that takes the arguments as one dict. `known`: their names; None: any."""
    decode, name = binding.arguments, binding.parameters[0].name

    def checked(given: Raw) -> Raw:
        try:
            wrong = validate(msgspec.json.decode(given))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise ParseError from error
        if wrong:
            raise InvalidParams(data={"errors": msgspec.to_builtins(wrong)})
        return given

    def arguments(admitted: Admitted, context: Any) -> tuple[Any, ...]:
        given = _checked_object(admitted)
        if given is UNSET:
            given = Raw(b"{}")
        try:
            given = checked(given)
        except InvalidParams as error:
            server: Surroundings = admitted.surroundings
            lenient = server.lenient
            if lenient is STRICT:
                raise
            given = read_loosely(given, error, checked, lenient, known, _levels_left(server))
        return decode(Raw(_encode({name: given})), context)

    return arguments
