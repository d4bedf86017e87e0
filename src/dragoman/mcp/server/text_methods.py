"""Makes a function the `Method` of a resource, of all resources of a template, of a prompt or of a completion. The
arguments that callers send for these are texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct

from ...jsonrpc.errors import LocalError
from ...rpc.binding.binding import Binding
from ...rpc.binding.dependencies import Dependencies
from ...rpc.binding.schema import Parameter
from ...rpc.method import CallOptions, Method
from ..protocol.admission import Admitted
from ..protocol.params import CompleteResult, Completion, GetPromptResult, ReadResourceResult
from ..protocol.results import finish, read_back
from ..protocol.types import PromptArgument
from ..protocol.uri_template import Template
from .content import check_readable, contents, messages
from .errors import failures
from .handlers import bind_function, context_maker, handler_of, method_of, restrict_result
from .options import ResourceOptions

MOST_COMPLETIONS: Final = 100
"""server/utilities/completion: "Maximum 100 items per response"."""

_encode = msgspec.json.Encoder().encode


def resource_method(
    uri: str,
    function: Callable[..., Any],
    dependencies: Dependencies,
    options: ResourceOptions,
    template: Template | None,
) -> tuple[Method, str]:
    """Return the method of a resource or, with `template`, of all resources of a template; and the function's
    docstring. `options`: all options of the resource; their `meta` is also the `_meta` of the contents.

    The function takes the template's variables, and the URI if it has another parameter `uri`. Raises LocalError for
    variables that it does not take, and for other parameters without a default.
    """
    binding = bind_function(function, dependencies, options)
    names = () if template is None else template.names
    optional = frozenset() if template is None else template.optional
    _check_variables(uri, binding, names, optional)
    takes_uri = "uri" not in names and any(p.name == "uri" for p in binding.parameters)
    texts = text_reader(binding)
    meta, mime_type, ttl, scope = options["meta"], options["mime_type"], options["ttl"], options["cache_scope"]
    meta_sent: Any = dict(meta) if meta is not None and meta is not UNSET else UNSET

    def read(admitted: Admitted, context: Any) -> tuple[Any, ...]:
        requested, server = admitted.params.uri, admitted.surroundings
        values = {} if server.template is None else server.template.match(requested) or {}
        return texts(values | {"uri": server.own_uri(requested)} if takes_uri else values, context)

    def write_result(value: Any, admitted: Admitted) -> Raw:
        server = admitted.surroundings
        if isinstance(value, ReadResourceResult):
            check_readable(value)
            if value.ttl_ms < 0:  # "Servers MUST provide a `ttlMs` value that is `>= 0`" (server/utilities/caching)
                raise LocalError(f"{server.name}: ttl_ms is 0 or more, not {value.ttl_ms}")
        else:
            kept = server.options.ttl if ttl is None else ttl
            value = ReadResourceResult(
                contents=contents(value, admitted.params.uri, mime_type, meta_sent),
                ttl_ms=int(kept * 1000),
                cache_scope=scope or server.options.cache_scope,
            )
        return finish(value, admitted.revision, server.stamp)

    handler = handler_of(
        binding.function, binding.kind, read, restrict_result(binding, write_result), failures(), context_maker(binding)
    )
    return method_of(uri, binding, handler, options, read), binding.documentation


def _check_variables(uri: str, binding: Binding, names: tuple[str, ...], optional: frozenset[str]) -> None:
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


class PromptParts(Struct, frozen=True, eq=False):
    """A prompt's method, its arguments for lists, and its function's docstring."""

    method: Method
    arguments: list[PromptArgument]
    documentation: str


def prompt_method(
    name: str, function: Callable[..., Any], dependencies: Dependencies, options: CallOptions
) -> PromptParts:
    """Return the method of a prompt. Raises LocalError for arguments without names."""
    binding = bind_function(function, dependencies, options)
    arguments: list[PromptArgument] = []
    for p in binding.parameters:
        if p.kind in ("positional", "rest"):
            raise LocalError(f"{name}, parameter {p.name!r}: arguments have names here; take away the `/` or the `*`")
        if p.kind != "members":
            arguments.append(PromptArgument(name=p.name, description=p.description or UNSET, required=p.required))
    texts = text_reader(binding)

    def read(admitted: Admitted, context: Any) -> tuple[Any, ...]:
        given = admitted.params.arguments
        return texts({} if given is UNSET else given, context)

    def write_result(value: Any, admitted: Admitted) -> Raw:
        if isinstance(value, GetPromptResult):
            check_readable(value)
        else:
            value = GetPromptResult(messages=messages(value))
        return finish(value, admitted.revision, admitted.surroundings.stamp)

    handler = handler_of(
        binding.function, binding.kind, read, restrict_result(binding, write_result), failures(), context_maker(binding)
    )
    return PromptParts(method_of(name, binding, handler, options, read), arguments, binding.documentation)


def completion_method(
    name: str, function: Callable[..., Any], dependencies: Dependencies, options: CallOptions
) -> Method:
    """Return the method for the completion of an argument. The function takes the text typed so far and, by the name
    `arguments`, the arguments that are already known. Raises LocalError for a function with other parameters."""
    binding = bind_function(function, dependencies, options)
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

    def write_result(value: Any, admitted: Admitted) -> Raw:
        return finish(CompleteResult(completion=_completion(value)), admitted.revision, admitted.surroundings.stamp)

    handler = handler_of(binding.function, binding.kind, read, write_result, failures(name), context_maker(binding))
    return method_of(name, binding, handler, options, read)


def _completion(value: Any) -> Completion:
    if isinstance(value, Completion):
        read_back(value)
        if len(value.values) <= MOST_COMPLETIONS:
            return value
        total = len(value.values) if value.total is UNSET else value.total
        return Completion(value.values[:MOST_COMPLETIONS], total, True)
    if isinstance(value, str) or not isinstance(value, Iterable | None):
        raise LocalError(f"a completion returns a list of texts, or a Completion, not {value!r:.100}")
    values = [] if value is None else [str(one) for one in value]
    return Completion(values[:MOST_COMPLETIONS], len(values), len(values) > MOST_COMPLETIONS)


def text_reader(binding: Binding) -> Callable[[dict[str, str], Any], tuple[Any, ...]]:
    """Return a function that makes a function's arguments from texts (of a URI, of a prompt): a parameter that takes
    text gets the text, for any other it is decoded as JSON."""
    decode = binding.arguments
    others = {p.name: p for p in binding.parameters if p.annotation.type is not str}
    if not others:
        return lambda values, context: decode(Raw(_encode(values)), context)

    def arguments(values: dict[str, str], context: Any) -> tuple[Any, ...]:
        given: dict[str, Any] = {name: _decoded_text(others.get(name), text) for name, text in values.items()}
        return decode(Raw(_encode(given)), context)

    return arguments


def _decoded_text(parameter: Parameter | None, text: str) -> Any:
    if parameter is None or parameter.kind == "members":
        return text
    for raw in (_encode(text), text.encode()):
        try:
            parameter.decode(raw)
        except Exception:  # a type may raise anything: the binding reports it as a fault
            continue
        return Raw(raw)
    return text
