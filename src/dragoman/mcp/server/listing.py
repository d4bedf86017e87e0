"""The entries of one kind that a server offers: by key, in order, and in pages.

Rules:

- A list is in the order of registration: "Servers SHOULD return tools in a deterministic order" (server/tools).
- A cursor names the last entry of the page before, so that it stays valid while entries are added and removed
  (server/utilities/pagination, "Provide stable cursors"); an unknown cursor is -32602.
- A list is one page up to `PAGE_BYTES`, unless `page_size` says otherwise, since many hosts read only the first page.
- Pages are encoded once for each revision and kept as bytes until the list changes. If entries are visible only to some
  callers, each function that decides about them is called once for a request. Callers for whom all of them decide alike
  share pages, whose `cacheScope` is private.
- Of an entry with several versions the highest that is available to the caller is listed, at the position of the first
  one that was registered; its `_meta` names the others.
- The description of a foreign entry is JSON text: members that this library does not know are listed as they came.
- Extensions add members to the descriptions of entries; two never add the same one.
"""

from __future__ import annotations

import re
import threading
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct, UnsetType, structs

from ...channel import Caller
from ...jsonrpc.errors import InvalidParams, LocalError
from ...jsonrpc.limits import Limits
from ...jsonrpc.scanner import too_deep
from ...rpc.binding.results import to_json
from ...rpc.method import Method
from ..protocol.admission import Admitted
from ..protocol.encoding import decode, encode, encode_text, with_members
from ..protocol.entry_versions import Order, order, with_versions
from ..protocol.headers import HeaderParam
from ..protocol.revisions import Revision
from ..protocol.types import ClientCapabilities, Prompt, Resource, ResourceTemplate, Tool
from ..protocol.uri_template import Template
from .surroundings import Surroundings

if TYPE_CHECKING:
    from ...access import Access

Kind: TypeAlias = Literal["tool", "resource", "template", "prompt"]
Listing: TypeAlias = Literal["tools", "resources", "templates", "prompts"]
Listed: TypeAlias = Tool | Resource | ResourceTemplate | Prompt

Adding: TypeAlias = Callable[["Entry", Revision], Mapping[str, Any]]
"""Returns the members that an extension adds to the description of an entry: `ServerExtension.listed`."""
NO_ADDING: Final[Mapping[str, Adding]] = {}
"""No extension adds members."""
LISTED: Final[Mapping[str, type[Listed]]] = {
    "tool": Tool,
    "resource": Resource,
    "template": ResourceTemplate,
    "prompt": Prompt,
}
"""The type of the description of each kind of entry."""
LISTINGS: Final[Mapping[str, Listing]] = {
    "tool": "tools",
    "resource": "resources",
    "template": "templates",
    "prompt": "prompts",
}
"""The name of the list of each kind of entry."""
DEPTH: Final = Limits().depth - 8
"""Levels of nesting in an entry's description at most: the default limit of clients, without the levels of the answer
around it."""
PAGE_BYTES: Final = 2 * 1024 * 1024
"""Bytes of the entries on one page of a list at most: a fifth of the longest message that our clients accept, and
thousands of tools. A larger entry has a page of its own."""
SEQUENCES: Final = 64
"""Sequences of entries that are kept for one list at most, each as some callers see it: more than a server has roles.
Callers decide how many there are, so the least recently used one is dropped."""
SEQUENCE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the pages that are kept for one list at most, beside those of the sequence in use: a few lists of thousands
of tools, in several revisions."""
TEXTS: Final = 64
"""Descriptions of one entry that are kept at most: one for each revision and each set of versions that it names."""
_MEMBER: Final = {"tools": "tools", "resources": "resources", "templates": "resourceTemplates", "prompts": "prompts"}
"""The member of a result that has the list."""
_CURSOR: Final = r"([a-z]+)\.([1-9][0-9]{0,15})"
"""The decoded text of a cursor: the name of the list, and the number of an entry."""


class Entry(Struct, eq=False):
    """One entry that a server offers. `key`: its name, URI or template; `listed`: its description in a list, for a
    foreign entry the JSON text that came.

    `older`: the description for peers without `structured_values`, where that differs. `marked`: a tool's arguments
    that are sent as HTTP headers. `template`: the parsed template, if it is one. `completions`: the methods that
    complete its arguments."""

    kind: Kind
    key: str
    listed: Listed | Raw
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
    replaces: str = ""
    """The extension that clients can declare instead of using this entry: lists do not show it to those."""
    tags: frozenset[str] = frozenset()
    """The tags by which it may be enabled and disabled, together with others."""
    version: str = ""
    """Its version; "": it is the only entry of its key."""
    versions: tuple[Entry, ...] = ()
    """All versions of its key, the highest first; empty if it has no version."""
    texts: dict[tuple[int, tuple[str, ...]], bytes] = {}
    """`listed` as JSON, by the `order` of the revision for which it was encoded, and the versions that it names."""
    added: dict[int, dict[str, Raw]] = {}
    """The members that extensions add to it, by the `order` of the revision."""
    decoded: Listed | None = None
    """The description of a foreign entry with the members that are known; None: it was not needed yet."""

    @property
    def id(self) -> tuple[Kind, str, str]:
        """Its identity among the entries of a server."""
        return self.kind, self.key, self.version

    @property
    def known(self) -> Listed:
        """Its description; for a foreign entry with the members that are known. Raises msgspec.ValidationError for a
        foreign one that does not fit."""
        if not isinstance(self.listed, Raw):
            return self.listed
        if self.decoded is None:
            self.decoded = decode(self.listed, LISTED[self.kind])
        return self.decoded

    @property
    def switched_as(self) -> str:
        """The kind under which it is enabled and disabled: templates count as resources."""
        return "resource" if self.kind == "template" else self.kind

    def available(self, caller: Caller) -> bool:
        """Return whether it is enabled, and visible to this caller."""
        return self.enabled and (self.visible is None or self.visible(caller))

    def matches_version(self, wanted: Order | None) -> bool:
        """Return whether it is of the `wanted` version (None: any); an entry without a version always is."""
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
        return self.replaces != "" or self.shown_to is not None

    @property
    def shown_to(self) -> Callable[[Caller], bool] | None:
        """The function that decides whether lists show it to a caller; None: they show it to every caller."""
        visible, access = self.visible, self.method.access
        if access is None or not access.hides:
            return visible
        shown = access.shown
        return shown if visible is None else lambda caller: visible(caller) and shown(caller)

    @property
    def decider(self) -> Decider | None:
        """What `shown_to` asks, in a form that can be compared; None: lists show it to every caller."""
        access = self.method.access
        hiding = access if access is not None and access.hides else None
        for_all = self.visible is None and hiding is None and not self.replaces
        return None if for_all else Decider(self.visible, hiding, self.replaces)

    def text(
        self, revision: Revision, versions: tuple[str, ...] = (), extensions: Mapping[str, Adding] = NO_ADDING
    ) -> bytes:
        """Return its description in a list, as JSON. `versions`: those that it names, if it has one. `extensions`: the
        functions that add members to it, by the names of their extensions. Raises LocalError for a description that is
        nested too deep, and for a member that an extension adds and that exists already."""
        found = self.texts.get((revision.order, versions))
        if found is None:
            found = self._write(revision, versions)
            if extensions:
                found = self._extend(found, revision, extensions)
            if len(found) > 2 * DEPTH and too_deep(found, DEPTH):
                raise LocalError(f"the description of {self.kind} {self.key!r} is nested more than {DEPTH} levels deep")
            if len(self.texts) >= TEXTS:
                self.texts = {}
            self.texts[revision.order, versions] = found
        return found

    def _write(self, revision: Revision, versions: tuple[str, ...]) -> bytes:
        """Return its description without the members that extensions add."""
        listed = self.listed
        if isinstance(listed, Raw):
            if self.version:
                named = with_versions(self.known.meta, self.version, versions)["fastmcp"]
                meta = decode(listed, _Meta).meta | {"fastmcp": Raw(to_json(named))}
                listed = with_members(listed, {"_meta": Raw(msgspec.json.encode(meta))})
            return encode_text(listed, LISTED[self.kind], revision)
        if self.older is not None and not revision.structured_values:
            listed = self.older
        if self.version:
            listed = structs.replace(listed, meta=with_versions(listed.meta, self.version, versions))
        return encode(listed, revision)

    def _extend(self, text: bytes, revision: Revision, extensions: Mapping[str, Adding]) -> bytes:
        """Return a description with the members that extensions add."""
        added = self.added.get(revision.order)
        if added is None:
            added = self.added[revision.order] = self._members_of(text, revision, extensions)
        if not added:
            return text
        members = decode(text, dict[str, Raw])
        if "_meta" in added and "_meta" in members:
            added = added | {"_meta": with_members(members["_meta"], decode(added["_meta"], dict[str, Raw]))}
        return msgspec.json.encode(members | added)

    def _members_of(self, text: bytes, revision: Revision, extensions: Mapping[str, Adding]) -> dict[str, Raw]:
        """Return the members that extensions add to a description. Raises LocalError for one that exists already."""
        members = decode(text, dict[str, Raw])
        owner = dict.fromkeys((name for name in members if name != "_meta"), "the entry")
        meta_owner = dict.fromkeys(decode(members.get("_meta", Raw(b"{}")), dict[str, Raw]), "the entry")
        added: dict[str, Raw] = {}
        meta: dict[str, Raw] = {}
        for name, members_to_add in extensions.items():
            given = members_to_add(self, revision)
            if not isinstance(given, Mapping) or not isinstance(given.get("_meta", {}), Mapping):
                raise LocalError(
                    f"{name}: `listed` returns the members to add, and `_meta` as a dict, not {given!r:.100}"
                )
            own = dict(given)
            for key, value in dict(own.pop("_meta", {})).items():
                _claim(meta_owner, key, name, f"{self.kind} {self.key!r}: `_meta` has {key!r}")
                meta[key] = Raw(to_json(value))
            for key, value in own.items():
                _claim(owner, key, name, f"{self.kind} {self.key!r} has {key!r}")
                added[key] = Raw(to_json(value))
        return added | {"_meta": Raw(msgspec.json.encode(meta))} if meta else added


class _Meta(Struct):
    """The `_meta` of a description."""

    meta: dict[str, Raw] = msgspec.field(default_factory=dict, name="_meta")


def _claim(owner: dict[str, str], key: str, extension: str, what: str) -> None:
    """Give a member to an extension. Raises LocalError if it has an owner already. `what`: begins the error's text."""
    if key in owner:
        raise LocalError(f"{what} of {owner[key]} already: the extension {extension} cannot add it")
    owner[key] = extension


class Decider(Struct, frozen=True, eq=False):
    """Decides whether lists show an entry to a caller: by a function of the user, the method's demands, and what its
    client has declared."""

    visible: Callable[[Caller], bool] | None
    access: Access | None
    replaces: str
    """An extension: it is not shown to clients that have declared it; "": to all."""

    @property
    def identities(self) -> tuple[Hashable, Hashable, Hashable]:
        """A value for each of the members, equal for those that decide alike."""
        access = self.access
        return (
            _identity(self.visible),
            None if access is None else (access.roles, _identity(access.allow)),
            self.replaces,
        )


def _identity(function: Callable[..., Any] | None) -> Hashable:
    """Return a hashable value that distinguishes a function from others, also from a function that cannot be hashed. It
    is equal for one method of one object, though Python makes the method anew at each access."""
    try:
        hash(function)
    except TypeError:
        return id(function)
    return function


def check_distinct(entries: list[Entry]) -> None:
    """Raise LocalError if two of these entries have the same key, and not each a version of its own."""
    found: dict[tuple[Kind, str], set[Order]] = {}
    for entry in entries:
        versions = found.setdefault((entry.kind, entry.key), set())
        if versions and (not entry.version or order(entry.version) in versions or order("") in versions):
            raise LocalError(f"{', '.join(entry.key for entry in entries)}: two of these have one name")
        versions.add(order(entry.version))


class _ListRow(Struct, frozen=True, eq=False):
    """The enabled entries of one key, the highest version first, each with the index of its decider in the snapshot;
    None: it is shown to every caller."""

    entries: tuple[tuple[Entry, int | None], ...]


class _Sequence:
    """The entries of a list as some callers see it, with the versions that each names, and the pages made of them."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.versions: list[tuple[str, ...]] = []
        self.pages: dict[tuple[int, int], Raw] = {}
        """By the `order` of the revision, and the index of the first entry."""
        self.size = 0
        """Bytes of the pages."""
        self.starts: set[int] = {0}
        """Indexes at which kept pages may begin: 0, and where a kept page ends."""


class _Snapshot:
    """A list between two changes of it: its rows, what decides about them, and the sequences that callers see."""

    def __init__(self, rows: Iterable[Iterable[Entry]]) -> None:
        self.rows: list[_ListRow] = []
        self.deciders: list[Decider] = []
        self.sequences: OrderedDict[bytes, _Sequence] = OrderedDict()
        """By the decisions, the least recently used first."""
        self.size = 0
        """Bytes of the pages of all sequences."""
        known: dict[Hashable, int] = {}
        for row in rows:
            found: list[tuple[Entry, int | None]] = []
            for entry in row:
                if not entry.enabled:
                    continue
                decider = entry.decider
                index = None if decider is None else known.setdefault(decider.identities, len(self.deciders))
                if decider is not None and index == len(self.deciders):
                    self.deciders.append(decider)
                found.append((entry, index))
            self.rows.append(_ListRow(tuple(found)))

    def decide(self, caller: Caller, client: ClientCapabilities) -> bytes:
        """Return a byte for each of `deciders`: 1 if lists show its entries to this caller with this client, else 0.
        Each function of a user is called at most once. Raises what such a function raises."""
        known: dict[Hashable, bool] = {}
        decisions = bytearray()
        for one in self.deciders:
            visible, access, _ = one.identities
            shown = not (one.replaces and client.declares(one.replaces))
            if shown and one.visible is not None:
                if ("visible", visible) not in known:
                    known["visible", visible] = bool(one.visible(caller))
                shown = known["visible", visible]
            if shown and one.access is not None:
                if ("access", access) not in known:
                    known["access", access] = one.access.shown(caller)
                shown = known["access", access]
            decisions.append(shown)
        return bytes(decisions)

    def sequence(self, decisions: bytes) -> _Sequence:
        """Return the sequence for callers with these decisions, made if there is none. Beyond `SEQUENCES` the least
        recently used one is dropped."""
        found = self.sequences.get(decisions)
        if found is not None:
            self.sequences.move_to_end(decisions)
            return found
        found = self.sequences[decisions] = _Sequence()
        for row in self.rows:
            shown = [entry for entry, index in row.entries if index is None or decisions[index]]
            if shown:
                found.entries.append(shown[0])
                found.versions.append(tuple(one.version for one in shown) if shown[0].version else ())
        if len(self.sequences) > SEQUENCES:
            self._drop()
        return found

    def _drop(self) -> None:
        """Drop the least recently used sequence."""
        _, dropped = self.sequences.popitem(last=False)
        self.size -= dropped.size
        dropped.size = 0

    def keep(self, decisions: bytes, sequence: _Sequence, order: int, start: int, end: int, page: Raw) -> None:
        """Keep a page of a sequence, from the entry `start` to the one before `end`. Beyond `SEQUENCE_BYTES` the least
        recently used sequences are dropped."""
        if self.sequences.get(decisions) is not sequence or (order, start) in sequence.pages:
            return
        # pages may begin at any entry, where cursors name removed ones: too many to keep
        if start not in sequence.starts:
            return
        sequence.pages[order, start] = page
        sequence.starts.add(end)
        sequence.size += len(page)
        self.size += len(page)
        self.sequences.move_to_end(decisions)
        while self.size - sequence.size > SEQUENCE_BYTES:
            self._drop()


class Entries:
    """The entries of one kind. Any thread may use it; functions of users are never called under its lock."""

    def __init__(self, name: Listing, page_size: int | None, extensions: Mapping[str, Adding] = NO_ADDING) -> None:
        self.name: Final = name
        self.page_size: Final = page_size
        self._extensions: Final = extensions
        self.by_key: dict[str, Entry] = {}
        self._last = 0  # the number of the last entry that was ever added
        self._lock = threading.Lock()
        self._snapshot: _Snapshot | None = None
        self.personal: bool = False
        """Whether some entries are listed only for some callers."""
        self.guarded: bool = False
        """Whether an entry that only some callers may call is here, or was."""

    def check_free(self, key: str, version: str = "") -> None:
        """Raise LocalError if the key is taken: by an entry of the same version, or by any if one of the two has no
        version."""
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
        """Return the entries of a key; with `version` only that of this version."""
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
        # if lists show the caller none of them, the first one refuses the call, with the scopes that it demands
        return next((one for one in available if one.listed_for(caller)), available[0] if available else None)

    def other_versions(self, key: str, caller: Caller) -> str:
        """Return the end of an error text that names the other versions of a key; "" if there are none."""
        others = [one.version for one in self.of(key) if one.version and one.listed_for(caller)]
        return f", in that version; there are {', '.join(others)}" if others else ""

    def add(self, entry: Entry) -> None:
        """Add an entry at the end, or to the other versions of its key. Raises LocalError if its key is taken."""
        with self._lock:
            self.check_free(entry.key, entry.version)
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
        self._snapshot = None

    def switch(self, entry: Entry, on: bool) -> bool:
        """Enable or disable an entry; return whether that changed anything."""
        with self._lock:
            changed = entry.enabled != on
            entry.enabled = on
            if changed:
                self._snapshot = None
        return changed

    def relink(self, entry: Entry, method: Method, completions: dict[str, Method]) -> None:
        """Replace the methods of an entry."""
        with self._lock:
            entry.method, entry.completions = method, entry.completions | completions
            self._snapshot = None

    def visible(self) -> list[Entry]:
        """Return the enabled entries, in order, of each key the highest version."""
        return [row.entries[0][0] for row in self._current()[0].rows if row.entries]

    def _current(self) -> tuple[_Snapshot, bool]:
        """Return the list as it is now, and whether it depends on the caller."""
        with self._lock:
            found = self._snapshot
            if found is None:
                found = self._snapshot = _Snapshot(self.of(key) for key in self.by_key)
            return found, self.personal

    def page(
        self,
        revision: Revision,
        cursor: str | UnsetType,
        prefixes: tuple[bytes, bytes],
        caller: Caller,
        client: ClientCapabilities,
    ) -> Raw:
        """Return the result of a list method, as JSON. `prefixes`: the beginning of the result in the stateless era,
        with the stamp and the caching hints, of a list for every caller and of one for this caller alone. `client`:
        what the caller's client has declared. Raises InvalidParams for an unknown cursor."""
        snapshot, personal = self._current()
        decisions = snapshot.decide(caller, client) if snapshot.deciders else b""
        with self._lock:
            sequence = snapshot.sequence(decisions)
            start = self._start_of(sequence.entries, cursor)
            found = sequence.pages.get((revision.order, start))
        if found is None:
            found, end = self._page(sequence, start, revision, prefixes[personal])
            with self._lock:
                snapshot.keep(decisions, sequence, revision.order, start, end, found)
        return found

    def _start_of(self, shown: list[Entry], cursor: str | UnsetType) -> int:
        """Return the index of the first entry after a cursor. Raises InvalidParams for an unknown cursor."""
        if isinstance(cursor, UnsetType):
            return 0
        return bisect_right(shown, self._number_in(cursor), key=lambda entry: entry.number)

    def _page(self, sequence: _Sequence, start: int, revision: Revision, prefix: bytes) -> tuple[Raw, int]:
        """Return a page, and the index of the entry after it."""
        shown = sequence.entries
        texts: list[bytes] = []
        size, end = 0, start
        last = len(shown) if self.page_size is None else min(start + self.page_size, len(shown))
        while end < last:
            text = shown[end].text(revision, sequence.versions[end], self._extensions)
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
        """Return the cursor that names the entry with a number."""
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
"""The method that subscribes in the stateless era."""


def subscription_method(method: Method, entries: Iterable[Entry | None], caller: Caller) -> Method | None:
    """Return the method that subscribes to resources with the demands of all of these; None if they demand nothing."""
    from ...access import together  # noqa: PLC0415  (start-up: for resources that are not for every caller)

    demanded = [one.method.access for one in entries if one is not None and one.method.access is not None]
    if method.name == LISTEN:  # resources that roles or `allow` forbid are left out of the acknowledged filter
        demanded = [one for one in demanded if one.shown(caller)]
    return structs.replace(method, access=together(demanded)) if demanded else None
