"""Makes entries for a namespace: of a server that another one includes, and of an instance, by the marks of its class.

An included entry is a copy under another key, with the same function, schemas and arguments. It has the surroundings of
the server that answers (its stamp, seal and extensions), and keeps its own middleware, lifespan, dependencies and
caching. A call finds it in one step, like any other entry.

In a namespace `x` a tool or prompt is called `x_name`, and `notes://today` becomes `notes://x/today` (`a:b` becomes
`a:x/b`). Its function gets the URIs without the namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import UNSET, Raw
from msgspec.structs import fields, replace

from ...jsonrpc.errors import LocalError
from ...rpc.binding.results import to_json
from ...rpc.including import guarded, joined, marked
from ...rpc.method import Method
from ...rpc.service import Service
from ..protocol.encoding import decode, with_members
from ..protocol.types import Resource, ResourceTemplate
from ..protocol.uri import normal
from ..protocol.uri_template import normal_reference, parse
from .entries import prompt_entry, resource_entry, tool_entry, warn_of_name
from .listing import Entry, Listed
from .surroundings import Surroundings


def included_entry(
    entry: Entry, outer: Surroundings, inner: Service, key: str, namespace: str, tags: frozenset[str]
) -> Entry:
    """Return an entry of the server `inner` under its key in the server `outer`, with these tags added to its own.

    Raises LocalError if `inner` is guarded and `outer` is not.
    """
    template = None if entry.template is None else parse(key, any_path=entry.template.any_path)
    if entry.kind == "tool":
        warn_of_name(key)
    own = entry.surroundings
    return replace(
        entry,
        key=key,
        listed=_described_within(entry, key, namespace),
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
            extended=own.extended,
            own_state=own.own_state,
        ),
        template=template,
        completions={argument: _method_within(one, inner) for argument, one in entry.completions.items()},
        tags=entry.tags | tags,
        number=0,
        versions=(),
        texts={},
        added={},
        decoded=None,
    )


def _method_within(method: Method, inner: Service) -> Method:
    """Return a method of an included server, with the middleware and the lifespan of that server."""
    return replace(method, middleware=inner.middleware + method.middleware, life=method.life or inner._lifespan)


def _described_within(entry: Entry, key: str, namespace: str) -> Listed | Raw:
    """Return the description of an entry under another key; of a foreign entry its JSON text, in which only the members
    differ that the other key changes."""
    known = entry.known
    within = _listed_within(entry, known, key, namespace)
    if not isinstance(entry.listed, Raw):
        return within
    changed: dict[str, Raw] = {}
    for field in fields(known):
        before, after = getattr(known, field.name), getattr(within, field.name)
        if after is before:
            continue
        if field.name == "meta":
            new = {name: Raw(to_json(value)) for name, value in after.items() if value is not before.get(name)}
            changed[field.encode_name] = with_members(decode(entry.listed, dict[str, Raw])["_meta"], new)
        else:
            changed[field.encode_name] = Raw(to_json(after))
    return with_members(entry.listed, changed)


def _listed_within(entry: Entry, listed: Listed, key: str, namespace: str) -> Listed:
    """Return the description of an entry under another key."""
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
    """Return the entries that the class of an instance marks, with these tags added to their own."""
    joined_name, found = joined("Server", namespace, prefix, "_"), []
    for mark, name, function in marked(instance, "Server", "tool", "resource", "prompt"):
        key = joined_uri(str(mark.name), namespace) if mark.kind == "resource" else joined_name(mark.name or name)
        entry = _ENTRIES[mark.kind](outer, key, function=function, **mark.options)
        entry.tags |= tags
        if entry.kind == "tool":
            entry.listed = _with_page(entry.known, namespace)
            entry.older = None if entry.older is None else _with_page(entry.older, namespace)
        found.append(entry)
    return found


_PAGES: Final = ("ui/resourceUri", "openai/outputTemplate")
"""Members of a tool's `_meta` with the URI of its page, a resource; another is `resourceUri` of "ui" (MCP Apps)."""


def _with_page(listed: Listed, namespace: str) -> Listed:
    """Return the description of a tool for a namespace: the URI of its page in `_meta` gets the namespace, too."""
    meta = listed.meta
    if meta is UNSET or not namespace:
        return listed
    renamed: dict[str, object] = {
        name: joined_uri(meta[name], namespace) for name in _PAGES if isinstance(meta.get(name), str)
    }
    page = meta.get("ui")
    if isinstance(page, Mapping) and isinstance(page.get("resourceUri"), str):
        renamed["ui"] = {**page, "resourceUri": joined_uri(page["resourceUri"], namespace)}
    return replace(listed, meta={**meta, **renamed}) if renamed else listed


def joined_uri(uri: str, namespace: str) -> str:
    """Return a URI, or a template of URIs, within a namespace, in its normal form. Raises LocalError for a template
    that does not begin with a scheme."""
    if not namespace:
        return uri
    scheme, colon, rest = uri.partition(":")
    if not colon or "{" in scheme:
        raise LocalError(f"{uri}: in the namespace {namespace!r} a template begins with a scheme, as in notes://...")
    return _before(uri, namespace) + rest.removeprefix("//")


def own_uri(uri: str, namespace: str) -> str:
    """Return the URI from which `joined_uri` made this one."""
    if not namespace:
        return uri
    scheme, _, rest = uri.partition(":")
    slashes = "//" if rest.startswith("//") else ""
    return normal_reference(f"{scheme}:{slashes}{uri.removeprefix(_before(uri, namespace))}")


def _before(uri: str, namespace: str) -> str:
    """Return the beginning of URIs of this scheme in a namespace."""
    scheme, _, rest = uri.partition(":")
    return normal(f"{scheme}:{'//' if rest.startswith('//') else ''}{namespace}/")
