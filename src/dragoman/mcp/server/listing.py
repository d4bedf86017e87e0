"""The entries of one kind that a server offers: by key, in order, and in pages.

Rules:

- A list is in the order of registration: "Servers SHOULD return tools in a deterministic order" (server/tools).
- A cursor names the last entry of the page before, so that it stays valid while entries are added and removed
  (server/utilities/pagination, "Provide stable cursors"); an unknown cursor is -32602.
- A list is one page up to `PAGE_BYTES`, unless `page_size` says otherwise, since many hosts read only the first page.
- Pages are encoded once for each revision and kept as bytes until the list changes. If an entry is visible only to some
  callers, pages are made for each caller, and their `cacheScope` is private.
- Of an entry with several versions the highest that is available to the caller is listed, at the position of the first
  one that was registered; its `_meta` names the others.
"""

from __future__ import annotations

import re
import threading
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Raw, Struct, UnsetType, structs

from ...channel import Caller
from ...jsonrpc.errors import InvalidParams, LocalError
from ...jsonrpc.limits import Limits
from ...jsonrpc.scanner import too_deep
from ...rpc.method import Method
from ..protocol.admission import Admitted
from ..protocol.encoding import encode
from ..protocol.entry_versions import Order, order, with_versions
from ..protocol.headers import HeaderParam
from ..protocol.revisions import Revision
from ..protocol.types import Prompt, Resource, ResourceTemplate, Tool
from ..protocol.uri_template import Template
from .surroundings import Surroundings

Kind: TypeAlias = Literal["tool", "resource", "template", "prompt"]
Listing: TypeAlias = Literal["tools", "resources", "templates", "prompts"]
Listed: TypeAlias = Tool | Resource | ResourceTemplate | Prompt

LISTINGS: Final[Mapping[str, Listing]] = {
    "tool": "tools",
    "resource": "resources",
    "template": "templates",
    "prompt": "prompts",
}
"""The name of the list of each kind of entry."""
DEPTH: Final = Limits().depth - 8
"""Levels of nesting in an entry's description: the default limit of clients, without the levels of the answer around
it."""
PAGE_BYTES: Final = 2 * 1024 * 1024
"""Bytes of the entries on one page of a list: a fifth of the longest message that our clients accept, and thousands of
tools. A larger entry has a page of its own."""
_MEMBER: Final = {"tools": "tools", "resources": "resources", "templates": "resourceTemplates", "prompts": "prompts"}
"""The member of a result that has the list."""
_CURSOR: Final = r"([a-z]+)\.([1-9][0-9]{0,15})"


class Entry(Struct, eq=False):
    """One entry that a server offers. `key`: its name, URI or template; `listed`: its description in a list.

    `older`: the description for peers without `structured_values`, where that differs. `marked`: a tool's arguments
    that are sent as HTTP headers. `template`: the parsed template, if it is one. `completions`: the methods that
    complete its arguments."""

    kind: Kind
    key: str
    listed: Listed
    method: Method
    surroundings: Surroundings
    """The settings of its server that its functions need."""
    number: int = 0
    """Its position in the order of registration."""
    enabled: bool = True
    older: Listed | None = None
    marked: tuple[HeaderParam, ...] = ()
    template: Template | None = None
    completions: dict[str, Method] = {}
    visible: Callable[[Caller], bool] | None = None
    """Decides whether it exists for a caller; None: it does for every caller."""
    tags: frozenset[str] = frozenset()
    """The tags by which it may be enabled and disabled, together with others."""
    version: str = ""
    """Its version; "": it is the only entry of its key."""
    versions: tuple[Entry, ...] = ()
    """All versions of its key, the highest first; empty if it has no version."""
    texts: dict[tuple[int, tuple[str, ...]], bytes] = {}
    """`listed` as JSON, by the `order` of the revision for which it was encoded, and the versions that it names."""

    @property
    def id(self) -> tuple[Kind, str, str]:
        """Its identity among the entries of a server."""
        return self.kind, self.key, self.version

    @property
    def switched_as(self) -> str:
        """The kind by which it is switched."""
        return "resource" if self.kind == "template" else self.kind

    def available(self, caller: Caller) -> bool:
        """Return whether it is enabled, and visible to this caller."""
        return self.enabled and (self.visible is None or self.visible(caller))

    def matches_version(self, wanted: Order | None) -> bool:
        """Return whether it is of the requested version; an entry without a version always is."""
        return wanted is None or not self.version or order(self.version) == wanted

    def listed_for(self, caller: Caller) -> bool:
        """Return whether lists show it to this caller."""
        access = self.method.access
        return self.available(caller) and (access is None or access.shown(caller))

    def permits(self, caller: Caller) -> bool:
        """Return whether this caller may call or read it."""
        access = self.method.access
        return self.available(caller) and (access is None or access.passed(caller))

    @property
    def personal(self) -> bool:
        """Whether lists show it only to some callers."""
        return self.shown_to is not None

    @property
    def shown_to(self) -> Callable[[Caller], bool] | None:
        """The function that decides whether lists show it to a caller; None: they show it to every caller."""
        visible, access = self.visible, self.method.access
        if access is None or not access.hides:
            return visible
        shown = access.shown
        return shown if visible is None else lambda caller: visible(caller) and shown(caller)

    def text(self, revision: Revision, versions: tuple[str, ...] = ()) -> bytes:
        """Return its description in a list, as JSON. `versions`: those that it names, if it has one. Raises LocalError
        for a description that is nested too deep."""
        found = self.texts.get((revision.order, versions))
        if found is None:
            older = self.older is not None and not revision.structured_values
            listed = self.older if older and self.older is not None else self.listed
            if self.version:
                listed = structs.replace(listed, meta=with_versions(listed.meta, self.version, versions))
            found = encode(listed, revision)
            if len(found) > 2 * DEPTH and too_deep(found, DEPTH):
                raise LocalError(f"the description of {self.kind} {self.key!r} is nested more than {DEPTH} levels deep")
            self.texts[revision.order, versions] = found
        return found


def check_distinct(entries: list[Entry]) -> None:
    """Raise LocalError if two of these entries have the same key, and not each a version of its own."""
    found: dict[tuple[Kind, str], set[Order]] = {}
    for entry in entries:
        versions = found.setdefault((entry.kind, entry.key), set())
        if versions and (not entry.version or order(entry.version) in versions or order("") in versions):
            raise LocalError(f"{', '.join(entry.key for entry in entries)}: two of these have one name")
        versions.add(order(entry.version))


class Entries:
    """The entries of one kind. Safe for threads."""

    def __init__(self, name: Listing, page_size: int | None) -> None:
        self.name: Final = name
        self.page_size: Final = page_size
        self.by_key: dict[str, Entry] = {}
        self._last = 0  # the number of the last entry that was ever added
        self._lock = threading.Lock()
        self._visible: list[Entry] | None = None
        self.personal: bool = False
        """Whether some entries are listed only for some callers; then pages are made for each caller, and not kept."""
        self.guarded: bool = False
        """Whether only some callers may call some entry, now or earlier."""
        self._pages: dict[tuple[int, int], Raw] = {}
        self._ends: set[int] = {0}
        """Where kept pages may begin: at the first entry, and where a kept page ends."""

    def free(self, key: str, version: str = "") -> None:
        """Raise LocalError if the key is taken: by an entry of the same version, or where one of the two has none."""
        taken = self.by_key.get(key)
        if taken is None:
            return
        kind = self.name[:-1]
        if version and taken.versions:
            same = next((one.version for one in taken.versions if order(one.version) == order(version)), None)
            if same is not None:
                raise LocalError(f"there is a {kind} {key!r} of version {same!r} already: give another version")
            return
        if taken.versions:
            raise LocalError(f'there is a {kind} {key!r} with versions already: give this a version, version="..."')
        other = ", or a version to both" if version else ""
        raise LocalError(
            f"there is a {kind} {key!r} already: give another name, or what is included a namespace{other}"
        )

    def all(self) -> Iterator[Entry]:
        """Yield every entry, those of one key together, the highest version first."""
        for entry in list(self.by_key.values()):
            yield from entry.versions or (entry,)

    def of(self, key: str, version: str | None = None) -> tuple[Entry, ...]:
        """Return the entries of a key; `version`: only that one."""
        entry = self.by_key.get(key)
        those = () if entry is None else entry.versions or (entry,)
        return those if version is None else tuple(one for one in those if one.version == version)

    def find(self, key: str, caller: Caller, admitted: Admitted | None = None) -> Entry | None:
        """Return the highest version of this key that is available to a caller, or the one that a call requests; None
        if there is none. An entry without versions answers every call."""
        entry = self.by_key.get(key)
        if entry is None or not entry.versions:
            return entry if entry is not None and entry.available(caller) else None
        wanted = None if admitted is None else admitted.requested_version
        available = [one for one in entry.versions if one.matches_version(wanted) and one.available(caller)]
        # if no version is listed for the caller, the call is refused with the scopes that the first one demands
        return next((one for one in available if one.listed_for(caller)), available[0] if available else None)

    def other_versions(self, key: str, caller: Caller) -> str:
        """Return the end of an error text that names the other versions of a key; "" if there are none."""
        others = [one.version for one in self.of(key) if one.version and one.listed_for(caller)]
        return f", in that version; there are {', '.join(others)}" if others else ""

    def add(self, entry: Entry) -> None:
        """Add an entry at the end, or to the other versions of its key. Raises LocalError if its key is taken."""
        with self._lock:
            self.free(entry.key, entry.version)
            others = self.of(entry.key)
            if not others:
                self._last += 1
            entry.number = others[0].number if others else self._last
            self._set_entries(entry.key, (*others, entry) if entry.version else (entry,))
            self.personal = self.personal or entry.personal
            self.guarded = self.guarded or entry.personal or entry.method.access is not None

    def remove(self, entry: Entry) -> None:
        """Remove an entry."""
        with self._lock:
            self._set_entries(entry.key, tuple(one for one in self.of(entry.key) if one is not entry))
            self.personal = any(one.personal for one in self.all())

    def _set_entries(self, key: str, those: tuple[Entry, ...]) -> None:
        """Replace the entries of a key by these."""
        those = tuple(sorted(those, key=lambda one: order(one.version), reverse=True))
        for one in those:
            one.versions = those if one.version else ()
            one.texts = {}
        if those:
            self.by_key[key] = those[0]
        else:
            del self.by_key[key]
        self._clear_pages()

    def switch(self, entry: Entry, on: bool) -> bool:
        """Enable or disable an entry; return whether that changed anything."""
        with self._lock:
            changed = entry.enabled != on
            entry.enabled = on
            if changed:
                self._clear_pages()
        return changed

    def visible(self) -> list[Entry]:
        """Return the enabled entries, in order, of each key the highest version."""
        with self._lock:
            return list(self._enabled())

    def page(self, revision: Revision, cursor: str | UnsetType, prefix: bytes, caller: Caller) -> Raw:
        """Return the result of a list method, as JSON. `prefix`: its beginning in the stateless era, with the stamp and
        the caching hints. Raises InvalidParams for an unknown cursor."""
        if self.personal:
            listed = (next((one for one in self.of(key) if one.listed_for(caller)), None) for key in list(self.by_key))
            shown = [entry for entry in listed if entry is not None]
            return self._page(shown, self._start_of(shown, cursor), revision, prefix, caller)[0]
        with self._lock:
            shown = self._enabled()
            start = self._start_of(shown, cursor)
            found = self._pages.get((revision.order, start))
            if found is None:
                found, end = self._page(shown, start, revision, prefix, caller)
                if start in self._ends:  # pages that begin elsewhere, after removed entries, may be too many to keep
                    self._pages[revision.order, start] = found
                    self._ends.add(end)
        return found

    def _start_of(self, shown: list[Entry], cursor: str | UnsetType) -> int:
        if isinstance(cursor, UnsetType):
            return 0
        return bisect_right(shown, self._number_in(cursor), key=lambda entry: entry.number)

    def _enabled(self) -> list[Entry]:
        shown = self._visible
        if shown is None:
            enabled = (next((one for one in self.of(key) if one.enabled), None) for key in self.by_key)
            shown = self._visible = [entry for entry in enabled if entry is not None]
        return shown

    def _clear_pages(self) -> None:
        self._visible = None
        self._pages, self._ends = {}, {0}

    def _page(
        self, shown: list[Entry], start: int, revision: Revision, prefix: bytes, caller: Caller
    ) -> tuple[Raw, int]:
        """Return a page, and the index of the entry after it."""
        texts: list[bytes] = []
        size, end = 0, start
        for one in shown[start:] if self.page_size is None else shown[start : start + self.page_size]:
            text = one.text(revision, tuple(v.version for v in one.versions if v.listed_for(caller)))
            size += len(text)
            if size > PAGE_BYTES and texts:
                break
            texts.append(text)
            end += 1
        text = b'"%s":[%s]' % (_MEMBER[self.name].encode(), b",".join(texts))
        if end < len(shown):
            text += b',"nextCursor":"%s"' % self._cursor_for(shown[end - 1].number).encode()
        return Raw((b"{" if revision.stateful else prefix) + text + b"}"), end

    def _cursor_for(self, number: int) -> str:
        return urlsafe_b64encode(f"{self.name}.{number}".encode()).rstrip(b"=").decode()

    def _number_in(self, cursor: str) -> int:
        """Return the number in a cursor. Raises InvalidParams for one that was not issued for this list."""
        try:
            text = urlsafe_b64decode(cursor[:64].encode("ascii") + b"==").decode("ascii")
        except (Base64Error, ValueError):
            text = ""
        match = re.fullmatch(_CURSOR, text)
        if match is None or int(match[2]) > self._last or self._cursor_for(int(match[2])) != cursor:
            # "Invalid cursors SHOULD result in an error with code -32602" (server/utilities/pagination)
            raise InvalidParams(f"Invalid cursor: {cursor[:64]!r} is none that this server gave for {self.name}")
        return int(match[2])


def demands_more(entry: Entry, other: Entry) -> bool:
    """Return whether an entry demands something of its callers that the other does not."""
    access, its = entry.method.access, other.method.access
    if access is None or its is None:
        return access is not None
    return not (access.scopes <= its.scopes and access.roles == its.roles and access.allow is its.allow)


LISTEN: Final = "subscriptions/listen"


def subscription_method(method: Method, entries: Iterable[Entry | None], caller: Caller) -> Method | None:
    """Return the method that subscribes to these resources, with the demands of all of them; None if they have none."""
    from ...access import together  # noqa: PLC0415  (start-up: for resources that are not for every caller)

    demanded = [one.method.access for one in entries if one is not None and one.method.access is not None]
    if method.name == LISTEN:  # resources that roles or `allow` forbid are left out of the acknowledged filter
        demanded = [one for one in demanded if one.shown(caller)]
    return structs.replace(method, access=together(demanded)) if demanded else None
