"""What `Server.include` takes: another server, a JSON-RPC service, or an instance, by the marks of its class.

What is included stays in step: an entry that a server or service gets, loses, enables or disables later changes here
too. Its entries are made again for the server around it, so they have that server's stamp, seal and extensions, and
keep their own middleware, lifespan, dependencies and caching. A call finds them in one step, as any other entry.

In a namespace `x` a tool or prompt is called `x_name`, and `notes://today` becomes `notes://x/today` (`a:b` becomes
`a:x/b`). Its function sees its own URIs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Protocol

import msgspec
from msgspec import UNSET

from ...jsonrpc.errors import LocalError
from ...jsonrpc.leniency import Leniency
from ...jsonrpc.limits import Limits
from ...rpc.binding.dependencies import Dependencies
from ...rpc.including import Commit, Mark, guarded, joined, marked
from ...rpc.lifespan import Lifespan
from ...rpc.method import Method
from ...rpc.middleware import Middleware
from ...rpc.service import Service
from ..protocol.options import ArgumentErrors
from ..protocol.params import CacheScope
from ..protocol.uri import normal
from ..protocol.uri_template import normal_reference
from .entries import method_entry, prompt_entry, resource_entry, tool_entry
from .handlers import Making
from .listing import Entry, Listed, Listing, Make, made

LISTINGS: Final[Mapping[str, Listing]] = {
    "tool": "tools",
    "resource": "resources",
    "template": "templates",
    "prompt": "prompts",
}
"""The list of each kind of entry."""


class Including(Protocol):
    """The part of a registry that what it includes uses."""

    @property
    def making(self) -> Making: ...
    def planned(self, entries: Iterable[Entry]) -> list[Commit]:
        """What registers these. LocalError for one that cannot be."""

    def replaced(self, entries: Iterable[Entry]) -> None:
        """Run these in place of those of their keys."""

    def dropped(self, kind: str, key: str, version: str) -> None:
        """Remove an entry, if it is still there."""

    def switched(self, kind: str, key: str, version: str, on: bool) -> None:
        """What an entry is included from has enabled or disabled it, if it is still there."""

    def completes(self, key: str, version: str, argument: str, make: Callable[[Making], Method]) -> None:
        """Have an argument of this entry completed, if it is still there."""


class Includer(Protocol):
    """Where the entries of an included server are, too."""

    def planned(self, entries: Iterable[Entry]) -> list[Commit]: ...
    def chained(self) -> None:
        """The middleware of the included server has changed."""

    def dropped(self, entry: Entry) -> None: ...
    def switched(self, entry: Entry, on: bool) -> None: ...
    def completed(self, entry: Entry, argument: str, make: Callable[[Making], Method]) -> None: ...
    def updated(self, uri: str) -> None:
        """A resource has changed."""


class Inner(Protocol):
    """The part of an included server that is used here."""

    @property
    def name(self) -> str: ...
    @property
    def ttl(self) -> float: ...
    @property
    def cache_scope(self) -> CacheScope: ...
    @property
    def dependencies(self) -> Dependencies: ...
    @property
    def life(self) -> Lifespan | None: ...
    @property
    def around(self) -> tuple[Middleware, ...]:
        """Its middleware."""

    def everything(self) -> Iterable[Entry]:
        """Its entries, of all kinds, those of a kind in order."""

    def notify_resource_updated(self, uri: str) -> None: ...


class Within:
    """A server within another, for its functions: a `Making`."""

    def __init__(self, outer: Making, inner: Inner, own_uri: Callable[[str], str]) -> None:
        self._outer, self._inner, self._own_uri = outer, inner, own_uri
        self.stamp, self.seal, self.once, self.outcomes = outer.stamp, outer.seal, outer.once, outer.outcomes
        self.ttl, self.cache_scope, self.dependencies = inner.ttl, inner.cache_scope, inner.dependencies

    @property
    def debug(self) -> bool:
        """It may be changed."""
        return self._outer.debug

    @property
    def lenient(self) -> Leniency:
        """It may be changed."""
        return self._outer.lenient

    @property
    def limits(self) -> Limits:
        """They may be changed."""
        return self._outer.limits

    @property
    def argument_errors(self) -> ArgumentErrors:
        """Those of the server that answers."""
        return self._outer.argument_errors

    def notify_resource_updated(self, uri: str) -> None:
        self._inner.notify_resource_updated(uri)

    def own_uri(self, uri: str) -> str:
        return self._own_uri(self._outer.own_uri(uri))


class IncludedServer:
    """A server within another: an `Includer`."""

    def __init__(self, outer: Including, inner: Inner, namespace: str, prefix: str, tags: frozenset[str]) -> None:
        self._outer, self._inner, self._space, self._tags = outer, inner, namespace, tags
        self._joined = joined("Server", namespace, prefix, "_")

    def key(self, entry: Entry) -> str:
        """Its name or URI there."""
        return self._joined(entry.key) if entry.kind in ("tool", "prompt") else joined_uri(entry.key, self._space)

    def _within(self, outer: Making) -> Making:
        return Within(outer, self._inner, lambda uri: own_uri(uri, self._space))

    def _there(self, entry: Entry) -> Entry:
        def make(outer: Making, key: str) -> Entry:
            assert entry.make is not None
            one = entry.make(self._within(outer), key)
            _rename_page(one, self._space)
            self._surround(one.method)
            one.method.access = guarded(self._outer.making, self._inner, one.method)
            one.enabled, one.visible, one.tags = entry.enabled, entry.visible, entry.tags | self._tags
            one.completing = {argument: self._completing(inner) for argument, inner in entry.completing.items()}
            one.completions = {argument: complete(outer) for argument, complete in one.completing.items()}
            return one

        return made(make, self._outer.making, self.key(entry))

    def _completing(self, make: Callable[[Making], Method]) -> Callable[[Making], Method]:
        """What makes the completion of an argument there."""
        return lambda outer: self._surround(make(self._within(outer)))

    def _surround(self, method: Method) -> Method:
        """Give a method what is around those of the included server: its middleware and its lifespan."""
        method.middleware = self._inner.around + method.middleware
        method.life = method.life or self._inner.life
        return method

    def planned(self, entries: Iterable[Entry]) -> list[Commit]:
        return self._outer.planned([self._there(one) for one in entries])

    def chained(self) -> None:
        self._outer.replaced([self._there(one) for one in self._inner.everything()])

    def dropped(self, entry: Entry) -> None:
        self._outer.dropped(entry.kind, self.key(entry), entry.version)

    def switched(self, entry: Entry, on: bool) -> None:
        self._outer.switched(entry.kind, self.key(entry), entry.version, on)

    def completed(self, entry: Entry, argument: str, make: Callable[[Making], Method]) -> None:
        self._outer.completes(self.key(entry), entry.version, argument, self._completing(make))

    def updated(self, uri: str) -> None:
        self._outer.making.notify_resource_updated(joined_uri(uri, self._space))


class IncludedMethods:
    """The methods of a service as tools: a `rpc.including.Includer`."""

    def __init__(self, outer: Including, inner: Service, namespace: str, prefix: str, tags: frozenset[str]) -> None:
        self._outer, self._inner, self._tags = outer, inner, tags
        self._joined = joined("Server", namespace, prefix, "_")

    def _there(self, method: Method) -> Entry:
        access = guarded(self._outer.making, self._inner._guarded, method)
        tool = method if access is method.access else msgspec.structs.replace(method, access=access)
        make = partial(method_entry, method=tool, tags=self._tags)
        return made(make, self._outer.making, self._joined(method.name))

    def planned(self, methods: Iterable[Method]) -> list[Commit]:
        return self._outer.planned([self._there(one) for one in methods])

    def chained(self) -> None:
        self._outer.replaced([self._there(one) for one in self._inner._registered.values()])

    def dropped(self, name: str) -> None:
        self._outer.dropped("tool", self._joined(name), "")

    def switched(self, name: str, on: bool) -> None:
        self._outer.switched("tool", self._joined(name), "", on)


_ENTRIES: Final[Mapping[str, Callable[..., Entry]]] = {
    "tool": tool_entry,
    "resource": resource_entry,
    "prompt": prompt_entry,
}


def marked_entries(instance: object, outer: Making, namespace: str, prefix: str, tags: frozenset[str]) -> list[Entry]:
    """The entries that the class of an instance marks, with these tags besides their own."""
    name_there, found = joined("Server", namespace, prefix, "_"), []
    for mark, name, function in marked(instance, "Server", "tool", "resource", "prompt"):
        key = joined_uri(str(mark.name), namespace) if mark.kind == "resource" else name_there(mark.name or name)
        entry = made(_in_namespace(mark, function, namespace), outer, key)
        entry.tags |= tags
        found.append(entry)
    return found


def _in_namespace(mark: Mark, function: Callable[..., Any], namespace: str) -> Make:
    def make(outer: Making, key: str) -> Entry:
        entry = _ENTRIES[mark.kind](outer, key, function=function, **mark.options)
        _rename_page(entry, namespace)
        return entry

    return make


_PAGES: Final = ("ui/resourceUri", "openai/outputTemplate")
"""Members of a tool's `_meta` that name the resource of its page, beside `resourceUri` of "ui" (MCP Apps)."""


def _rename_page(entry: Entry, namespace: str) -> None:
    """Have the `_meta` of a tool name its page, which is a resource beside it, as it is called in a namespace."""
    if not namespace or entry.kind != "tool":
        return
    entry.listed = _renamed(entry.listed, namespace)
    entry.older = None if entry.older is None else _renamed(entry.older, namespace)


def _renamed(listed: Listed, namespace: str) -> Listed:
    meta = listed.meta
    if meta is UNSET:
        return listed
    there: dict[str, object] = {
        name: joined_uri(meta[name], namespace) for name in _PAGES if isinstance(meta.get(name), str)
    }
    page = meta.get("ui")
    if isinstance(page, Mapping) and isinstance(page.get("resourceUri"), str):
        there["ui"] = {**page, "resourceUri": joined_uri(page["resourceUri"], namespace)}
    return msgspec.structs.replace(listed, meta={**meta, **there}) if there else listed


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
