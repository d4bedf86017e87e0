"""A function as the `Method` of a resource, or of all resources of a template."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET, Raw

from ...jsonrpc.errors import LocalError
from ...rpc.binding.binding import Binding
from ...rpc.binding.dependencies import Dependencies
from ...rpc.method import Method
from ..protocol.admission import Admitted
from ..protocol.params import CacheScope, ReadResourceResult
from ..protocol.results import finish
from ..protocol.uri_template import Template
from .content import contents, sound
from .errors import of_others
from .handlers import PLAIN, Options, bound, giver, handler_of, leaving, method_of, texts_reader


def resource_method(
    uri: str,
    function: Callable[..., Any],
    dependencies: Dependencies,
    options: Options = PLAIN,
    *,
    template: Template | None = None,
    mime_type: str | None = None,
    ttl: float | None = None,
    cache_scope: CacheScope | None = None,
    meta: Mapping[str, Any] | None = None,
) -> tuple[Method, str]:
    """The method of a resource or, with `template`, of all resources of a template; and the function's docstring.
    `meta`: the `_meta` of what is read.

    The function takes the template's variables, and the URI if it has another parameter `uri`. Raises
    LocalError for variables it does not take, and for others that it needs.
    """
    binding = bound(function, dependencies, options)
    names = () if template is None else template.names
    optional = frozenset() if template is None else template.optional
    _fits(uri, binding, names, optional)
    gives_uri = "uri" not in names and any(p.name == "uri" for p in binding.parameters)
    texts = texts_reader(binding)
    told: Any = UNSET if meta is None else dict(meta)

    def read(admitted: Admitted, context: Any) -> tuple[Any, ...]:
        requested, server = admitted.params.uri, admitted.surroundings
        values = {} if server.template is None else server.template.match(requested) or {}
        return texts(values | {"uri": server.own_uri(requested)} if gives_uri else values, context)

    def finished(value: Any, admitted: Admitted) -> Raw:
        server = admitted.surroundings
        if isinstance(value, ReadResourceResult):
            sound(value)
            if value.ttl_ms < 0:  # "Servers MUST provide a `ttlMs` value that is `>= 0`" (server/utilities/caching)
                raise LocalError(f"{server.name}: ttl_ms is 0 or more, not {value.ttl_ms}")
        else:
            kept = server.ttl if ttl is None else ttl
            value = ReadResourceResult(
                contents=contents(value, admitted.params.uri, mime_type, told),
                ttl_ms=int(kept * 1000),
                cache_scope=cache_scope or server.cache_scope,
            )
        return finish(value, admitted.revision, server.stamp)

    handler = handler_of(binding.function, binding.kind, read, leaving(binding, finished), of_others(), giver(binding))
    return method_of(uri, binding, handler, options, read), binding.documentation


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
