"""Entries within a namespace: those of a server that another one includes, and of an instance, by its class's marks.

An included entry is the same entry under another key: its function, its schemas and its arguments are not made again.
It has the surroundings of the server that answers (its stamp, seal and extensions), and keeps its own middleware,
lifespan, dependencies and caching. A call finds it in one step, as any other entry.

In a namespace `x` a tool or prompt is called `x_name`, and `notes://today` becomes `notes://x/today` (`a:b` becomes
`a:x/b`). Its function sees its own URIs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from ...jsonrpc.errors import LocalError
from ...rpc.including import guarded, joined, marked
from ...rpc.method import Method
from ...rpc.service import Service
from ..protocol.types import Resource, ResourceTemplate
from ..protocol.uri import normal
from ..protocol.uri_template import normal_reference, parse
from .entries import prompt_entry, resource_entry, tool_entry, warn_of_name
from .listing import Entry, Listed
from .surroundings import Surroundings


def included_entry(
    entry: Entry, outer: Surroundings, inner: Service, key: str, namespace: str, tags: frozenset[str]
) -> Entry:
    """Return an entry of the server `inner` under its key in the server `outer`, with these tags besides its own.

    Raises LocalError where it is guarded, and `outer` is not.
    """
    template = None if entry.template is None else parse(key, any_path=entry.template.any_path)
    if entry.kind == "tool":
        warn_of_name(key)
    own = entry.surroundings
    return replace(
        entry,
        key=key,
        listed=_listed_within(entry, entry.listed, key, namespace),
        older=None if entry.older is None else _listed_within(entry, entry.older, key, namespace),
        method=replace(
            _method_within(entry.method, inner),
            name=key,
            access=guarded(outer.service._guarded, inner._guarded, entry.method),
        ),
        surroundings=replace(
            outer,
            options=replace(outer.options, ttl=own.options.ttl, cache_scope=own.options.cache_scope),
            notify_resource_updated=own.notify_resource_updated,
            own_uri=lambda uri: own.own_uri(own_uri(uri, namespace)),
            name=key,
            template=template,
        ),
        template=template,
        completions={argument: _method_within(one, inner) for argument, one in entry.completions.items()},
        tags=entry.tags | tags,
        number=0,
        versions=(),
        texts={},
    )


def _method_within(method: Method, inner: Service) -> Method:
    """A method with what is around those of an included server: its middleware and its lifespan."""
    return replace(method, middleware=inner.middleware + method.middleware, life=method.life or inner._lifespan)


def _listed_within(entry: Entry, listed: Listed, key: str, namespace: str) -> Listed:
    """The description of an entry under another key."""
    name = key if listed.name == entry.key else listed.name
    if isinstance(listed, Resource):
        return replace(listed, uri=key, name=name)
    if isinstance(listed, ResourceTemplate):
        return replace(listed, uri_template=key, name=name)
    return _with_page(replace(listed, name=key), namespace) if entry.kind == "tool" else replace(listed, name=key)


_ENTRIES: Final[Mapping[str, Callable[..., Entry]]] = {
    "tool": tool_entry,
    "resource": resource_entry,
    "prompt": prompt_entry,
}


def marked_entries(
    instance: object, outer: Surroundings, namespace: str, prefix: str, tags: frozenset[str]
) -> list[Entry]:
    """The entries that the class of an instance marks, with these tags besides their own."""
    name_there, found = joined("Server", namespace, prefix, "_"), []
    for mark, name, function in marked(instance, "Server", "tool", "resource", "prompt"):
        key = joined_uri(str(mark.name), namespace) if mark.kind == "resource" else name_there(mark.name or name)
        entry = _ENTRIES[mark.kind](outer, key, function=function, **mark.options)
        entry.tags |= tags
        if entry.kind == "tool":
            entry.listed = _with_page(entry.listed, namespace)
            entry.older = None if entry.older is None else _with_page(entry.older, namespace)
        found.append(entry)
    return found


_PAGES: Final = ("ui/resourceUri", "openai/outputTemplate")
"""Members of a tool's `_meta` that name the resource of its page, beside `resourceUri` of "ui" (MCP Apps)."""


def _with_page(listed: Listed, namespace: str) -> Listed:
    """The description of a tool whose `_meta` names its page, a resource beside it, as it is called in a namespace."""
    meta = listed.meta
    if meta is UNSET or not namespace:
        return listed
    there: dict[str, object] = {
        name: joined_uri(meta[name], namespace) for name in _PAGES if isinstance(meta.get(name), str)
    }
    page = meta.get("ui")
    if isinstance(page, Mapping) and isinstance(page.get("resourceUri"), str):
        there["ui"] = {**page, "resourceUri": joined_uri(page["resourceUri"], namespace)}
    return replace(listed, meta={**meta, **there}) if there else listed


def joined_uri(uri: str, namespace: str) -> str:
    """Return a URI, or a template of URIs, within a namespace, in its normal form. LocalError for a template without a
    scheme of its own."""
    if not namespace:
        return uri
    scheme, colon, rest = uri.partition(":")
    if not colon or "{" in scheme:
        raise LocalError(f"{uri}: in the namespace {namespace!r} a template begins with a scheme, as in notes://...")
    return _before(uri, namespace) + rest.removeprefix("//")


def own_uri(uri: str, namespace: str) -> str:
    """Return the URI that `joined_uri` made this of."""
    if not namespace:
        return uri
    scheme, _, rest = uri.partition(":")
    slashes = "//" if rest.startswith("//") else ""
    return normal_reference(f"{scheme}:{slashes}{uri.removeprefix(_before(uri, namespace))}")


def _before(uri: str, namespace: str) -> str:
    """Return what a URI of this scheme begins with in a namespace."""
    scheme, _, rest = uri.partition(":")
    return normal(f"{scheme}:{'//' if rest.startswith('//') else ''}{namespace}/")
