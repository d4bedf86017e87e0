"""A user's function as the `Method` behind a tool, a resource, a prompt or a completion.

Each such method's function takes `(admitted, context)` and returns the whole result as JSON text for the
caller's revision. What can be worked out beforehand is, at registration: arguments are decoded by the
function's own `Binding`, those of tools straight from the text of `params.arguments`.
How functions fail is told in `failures`, what a tool's result becomes in `returns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ..jsonrpc.errors import InvalidParams, LocalError, ParseError
from ..rpc.binding import Binding, bind
from ..rpc.context import Context as RpcContext
from ..rpc.method import Method, may_wait
from ..rpc.middleware import Call, Next
from ..rpc.parameters import Parameter
from .content import contents, messages
from .context import Context
from .failures import Failed, Malformed, of_others, of_tool
from .headers import Marked
from .lifecycle import Admitted
from .params import CacheScope, CompleteResult, Completion, GetPromptResult, ReadResourceResult
from .results import finish
from .returns import Returned, finisher, returned
from .rows import Bound
from .schema import Schema, input_schema, marks
from .types import PromptArgument
from .uri_template import Template
from .validation import Validate, validator

if TYPE_CHECKING:
    from .server import Server

Handler: TypeAlias = Callable[[Admitted, RpcContext], Any]
Reader: TypeAlias = Callable[[Admitted, Any], tuple[Any, ...]]
"""(admitted, context) -> the function's arguments."""

MOST_COMPLETIONS: Final = 100
"""server/utilities/completion: "Maximum 100 items per response"."""

_encode = msgspec.json.Encoder().encode


def hints(ttl: float | None, cache_scope: str | None, where: str) -> None:
    """LocalError for caching hints that are none: "Servers MUST provide a `ttlMs` value that is `>= 0`"
    (server/utilities/caching)."""
    if ttl is not None and not 0 <= ttl < float("inf"):
        raise LocalError(f"{where}: ttl is a number of seconds, 0 or more, not {ttl!r}")
    if cache_scope not in (None, "private", "public"):
        raise LocalError(f"{where}: cache_scope is 'private' or 'public', not {cache_scope!r}")


class Options(Struct, frozen=True, kw_only=True):
    """How a function runs; as for `Service.method`."""

    inline: bool = False
    timeout: float | Any | None = UNSET
    concurrency: int | None = None
    queue: int | None = None


PLAIN: Final = Options()


class MadeTool(Struct, frozen=True, eq=False):
    """A tool that was made: its method and what its listing says."""

    method: Method
    input: Schema
    output: Returned
    marked: tuple[Marked, ...]
    documentation: str


class MadePrompt(Struct, frozen=True, eq=False):
    """A prompt that was made: its method and what its listing says."""

    method: Method
    arguments: list[PromptArgument]
    documentation: str


# -- tools ----------------------------------------------------------------------------------------


def tool_method(
    name: str,
    function: Callable[..., Any],
    server: Server,
    options: Options = PLAIN,
    *,
    input: Mapping[str, Any] | None = None,
    output: Mapping[str, Any] | None = None,
) -> MadeTool:
    """The method behind a tool. `input`: the function takes one dict, which this schema checks. `output`: this schema
    checks what it returns. Raises LocalError, naming the tool, for what cannot be one."""
    binding = _bound(function)
    if input is None:
        shape, marked = input_schema(binding, name)
        read = _reader(binding)
    else:
        shape = dict(input)
        if shape.get("type") != "object":
            raise LocalError(f'{name}: an input schema has "type": "object" at its root')
        if len(binding.parameters) != 1 or binding.parameters[0].kind not in ("either", "named"):
            raise LocalError(f"{name}: with an input schema the function takes one dict, and a Context if it wants one")
        marked = marks(shape, name)
        read = _checked_reader(binding, validator(shape, where=f"{name}, input schema"))
    result = returned(name, binding.result_type, output)
    handler = _handler(binding, server, read, finisher(name, server.stamp, result), of_tool(name, server))
    return MadeTool(_method(name, binding, handler, options), shape, result, marked, binding.documentation)


def included_method(name: str, method: Method, server: Server) -> MadeTool:
    """The method behind a tool that is a JSON-RPC method of a service: its function, kind, limits and middleware.

    The errors it declares are for the model to read (`isError`). Raises LocalError for arguments without names.
    """
    binding = method.binding
    shape, marked = input_schema(binding, name)
    result = returned(name, binding.result_type, None)
    finished, failed = finisher(name, server.stamp, result), of_tool(name, server, method.errors)
    handler = _handler(binding, server, _reader(binding), finished, failed)
    made = Method(
        name,
        cast(Binding, Bound(handler, binding.kind, wants_context=binding.context is not None)),
        method.kind,
        timeout=method.timeout,
        concurrency=method.concurrency,
        queue=method.queue,
        middleware=() if method.handler is None else (_bridge(method, method.handler, finished, failed),),
        quick=method.quick,
    )
    return MadeTool(made, shape, result, marked, method.description)


def _bridge(method: Method, handler: Next, finished: Callable[[Any, Admitted], Raw], failed: Failed) -> Any:
    """Middleware that goes no further than the included service's own chain, whose calls look as they do there."""

    async def bridge(call: Call, next: Next) -> Any:
        admitted: Admitted = cast(Any, call.params)
        try:
            given = _object(admitted)
            return finished(await handler(Call(method.name, given, call.id, call.context)), admitted)
        except BaseException as error:
            return failed(error, admitted, False)

    return bridge


def _object(admitted: Admitted) -> Raw | UnsetType:
    given: Raw | UnsetType = admitted.params.arguments
    if given is not UNSET and memoryview(given)[0] != 123:  # "{"
        # "Malformed requests (requests that fail to satisfy CallToolRequest schema)" are protocol errors
        raise Malformed("Invalid params: `arguments` must be an object")
    return given


def _reader(binding: Binding) -> Reader:
    decode = binding.arguments

    def arguments(admitted: Admitted, context: Any) -> tuple[Any, ...]:
        return decode(_object(admitted), context)

    return arguments


def _checked_reader(binding: Binding, validate: Validate) -> Reader:
    """For a function that takes the arguments as one dict."""
    decode, name = binding.arguments, binding.parameters[0].name

    def arguments(admitted: Admitted, context: Any) -> tuple[Any, ...]:
        given = _object(admitted)
        if given is UNSET:
            given = Raw(b"{}")
        try:
            wrong = validate(msgspec.json.decode(given))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise ParseError from error
        if wrong:
            raise InvalidParams(data={"errors": msgspec.to_builtins(wrong)})
        return decode(Raw(_encode({name: given})), context)

    return arguments


# -- resources ------------------------------------------------------------------------------------


def resource_method(
    uri: str,
    function: Callable[..., Any],
    server: Server,
    options: Options = PLAIN,
    *,
    template: Template | None = None,
    mime_type: str | None = None,
    ttl: float | None = None,
    cache_scope: CacheScope | None = None,
) -> tuple[Method, str]:
    """The method behind a resource or, with `template`, behind all of a template; and the function's docstring.

    The function takes the template's variables, and the URI if it has another parameter `uri`. Raises
    LocalError for variables it does not take, and for others that it needs.
    """
    hints(ttl, cache_scope, uri)
    binding = _bound(function)
    names = () if template is None else template.names
    optional = frozenset() if template is None else template.optional
    _fits(uri, binding, names, optional)
    gives_uri = "uri" not in names and any(p.name == "uri" for p in binding.parameters)
    texts = _texts(binding)

    def read(admitted: Admitted, context: Any) -> tuple[Any, ...]:
        asked: str = admitted.params.uri
        values = {} if template is None else template.match(asked) or {}
        return texts(values | {"uri": asked} if gives_uri else values, context)

    def finished(value: Any, admitted: Admitted) -> Raw:
        if not isinstance(value, ReadResourceResult):
            kept = server.ttl if ttl is None else ttl
            value = ReadResourceResult(
                contents=contents(value, admitted.params.uri, mime_type),
                ttl_ms=int(kept * 1000),
                cache_scope=cache_scope or server.cache_scope,
            )
        return finish(value, admitted.revision, server.stamp)

    handler = _handler(binding, server, read, finished, of_others(uri, server))
    return _method(uri, binding, handler, options), binding.documentation


def _fits(uri: str, binding: Binding, names: tuple[str, ...], optional: frozenset[str]) -> None:
    known = {p.name: p for p in binding.parameters if p.kind in ("either", "named")}
    free = any(p.kind == "members" for p in binding.parameters)
    for name in names:
        if name not in known and not free:
            raise LocalError(f"{uri}: the function has no parameter {name!r} for the variable of that name")
        if name in optional and name in known and known[name].required:
            raise LocalError(f"{uri}: a URI may lack {{?{name}}}; give the function's parameter a default")
    for p in binding.parameters:
        if p.kind in ("positional", "rest"):
            raise LocalError(f"{uri}, parameter {p.name!r}: values have names here; take away the `/` or the `*`")
        if p.required and p.name not in names and p.name != "uri":
            raise LocalError(f"{uri}: nothing in the URI is {p.name!r}, which the function needs")


# -- prompts --------------------------------------------------------------------------------------


def prompt_method(name: str, function: Callable[..., Any], server: Server, options: Options = PLAIN) -> MadePrompt:
    """The method behind a prompt. Raises LocalError for arguments without names."""
    binding = _bound(function)
    arguments: list[PromptArgument] = []
    for p in binding.parameters:
        if p.kind in ("positional", "rest"):
            raise LocalError(f"{name}, parameter {p.name!r}: arguments have names here; take away the `/` or the `*`")
        if p.kind != "members":
            arguments.append(PromptArgument(name=p.name, description=p.description or UNSET, required=p.required))
    texts = _texts(binding)

    def read(admitted: Admitted, context: Any) -> tuple[Any, ...]:
        given = admitted.params.arguments
        return texts({} if given is UNSET else given, context)

    def finished(value: Any, admitted: Admitted) -> Raw:
        if not isinstance(value, GetPromptResult):
            value = GetPromptResult(messages=messages(value))
        return finish(value, admitted.revision, server.stamp)

    handler = _handler(binding, server, read, finished, of_others(name, server))
    return MadePrompt(_method(name, binding, handler, options), arguments, binding.documentation)


# -- completions ----------------------------------------------------------------------------------


def completion_method(name: str, function: Callable[..., Any], server: Server, options: Options = PLAIN) -> Method:
    """The method behind the completion of an argument: the function takes what is typed so far, and, by the name
    `arguments`, those that are known already."""
    binding = _bound(function)
    first = next((p for p in binding.parameters if p.name != "arguments"), None)
    others = [p for p in binding.parameters if p is not first and p.name != "arguments" and p.required]
    if first is None or others or any(p.kind in ("positional", "rest") for p in binding.parameters):
        raise LocalError(f"{name}: a completion takes the text typed so far, and `arguments` and a Context if it wants")
    knows = any(p.name == "arguments" for p in binding.parameters)
    typed, decode = first.name, binding.arguments

    def read(admitted: Admitted, context: Any) -> tuple[Any, ...]:
        params = admitted.params
        values: dict[str, Any] = {typed: params.argument.value}
        if knows:
            known = UNSET if params.context is UNSET else params.context.arguments
            values["arguments"] = {} if known is UNSET else known
        return decode(Raw(_encode(values)), context)

    def finished(value: Any, admitted: Admitted) -> Raw:
        return finish(CompleteResult(completion=_completion(value)), admitted.revision, server.stamp)

    return _method(name, binding, _handler(binding, server, read, finished, of_others(name, server)), options)


def _completion(value: Any) -> Completion:
    if isinstance(value, Completion):
        if len(value.values) <= MOST_COMPLETIONS:
            return value
        total = len(value.values) if value.total is UNSET else value.total
        return Completion(value.values[:MOST_COMPLETIONS], total, True)
    if isinstance(value, str) or not isinstance(value, Iterable | None):
        raise LocalError(f"a completion returns a list of texts, or a Completion, not {value!r:.100}")
    values = [] if value is None else [str(one) for one in value]
    return Completion(values[:MOST_COMPLETIONS], len(values), len(values) > MOST_COMPLETIONS)


# -- what they have in common ---------------------------------------------------------------------


def _bound(function: Callable[..., Any]) -> Binding:
    """A function's binding: it may take either kind of Context, and takes arguments by name."""
    return bind(function, context_type=(Context, RpcContext), by_position=False, result=False)


def _method(name: str, binding: Binding, handler: Handler, options: Options) -> Method:
    if options.inline and binding.kind == "async":
        raise LocalError(f"{name}: an async def already runs on the loop; inline=True is for plain functions")
    if options.queue is not None and options.concurrency is None:
        raise LocalError(f"{name}: queue bounds the calls that wait for one of `concurrency` places: give both")
    if not (options.timeout is UNSET or options.timeout is None or options.timeout > 0):
        raise LocalError(f"{name}: timeout is a number of seconds above 0, or None for ever, not {options.timeout!r}")
    if options.concurrency is not None and options.concurrency < 1:
        raise LocalError(f"{name}: concurrency must be at least 1, not {options.concurrency}")
    kind: Literal["inline", "thread", "async"] = (
        "async" if binding.kind == "async" else "inline" if options.inline else "thread"
    )
    return Method(
        name,
        cast(Binding, Bound(handler, binding.kind, wants_context=binding.context is not None)),
        kind,
        timeout=options.timeout,
        concurrency=options.concurrency,
        queue=options.queue,
        quick=kind == "inline" and options.concurrency is None,
        waits=may_wait(binding.function),
    )


def _handler(
    binding: Binding, server: Server, read: Reader, finished: Callable[[Any, Admitted], Raw], failed: Failed
) -> Handler:
    """Read the arguments, run the function, make the result."""
    function, give = binding.function, _giver(binding, server)

    async def awaited(admitted: Admitted, rpc: RpcContext) -> Raw:
        values = None
        try:
            values = read(admitted, None if give is None else give(rpc, admitted))
            return finished(await function(*values), admitted)
        except BaseException as error:
            return failed(error, admitted, values is not None)

    def called(admitted: Admitted, rpc: RpcContext) -> Raw:
        values = None
        try:
            values = read(admitted, None if give is None else give(rpc, admitted))
            return finished(function(*values), admitted)
        except BaseException as error:
            return failed(error, admitted, values is not None)

    return awaited if binding.kind == "async" else called


def _giver(binding: Binding, server: Server) -> Callable[[RpcContext, Admitted], Any] | None:
    """What makes the context that a function wants; None where it wants none."""
    kind = binding.context
    if kind is None:
        return None
    if issubclass(kind, Context):
        return lambda rpc, admitted: Context(rpc, admitted, server)
    return lambda rpc, admitted: rpc


def _texts(binding: Binding) -> Callable[[dict[str, str], Any], tuple[Any, ...]]:
    """What makes arguments of values that are all text (of a URI, of a prompt): text where the parameter takes text,
    else the JSON that it is."""
    decode = binding.arguments
    others = {p.name: p for p in binding.parameters if p.annotation.type is not str}
    if not others:
        return lambda values, context: decode(Raw(_encode(values)), context)

    def arguments(values: dict[str, str], context: Any) -> tuple[Any, ...]:
        given: dict[str, Any] = {name: _given(others.get(name), text) for name, text in values.items()}
        return decode(Raw(_encode(given)), context)

    return arguments


def _given(parameter: Parameter | None, text: str) -> Any:
    if parameter is None or parameter.kind == "members":
        return text
    for raw in (_encode(text), text.encode()):
        try:
            parameter.decode(raw)
        except Exception:  # whatever a type raises: the binding says it in words
            continue
        return Raw(raw)
    return text
