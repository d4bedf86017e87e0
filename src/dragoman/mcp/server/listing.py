"""The entries of one kind that a server offers: by key, in order, and in pages.

Rules:

- A list is in the order of registration: "Servers SHOULD return tools in a deterministic order" (server/tools).
- A cursor names the last entry of the page before, so that it stays valid while entries are added and removed
  (server/utilities/pagination, "Provide stable cursors"); an unknown cursor is -32602.
- Pages are encoded once for each revision and kept as bytes until the list changes. If an entry is visible to some
  callers only, a page is made for each caller, and its `cacheScope` is private.
"""

from __future__ import annotations

import re
import threading
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from bisect import bisect_right
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from msgspec import Raw, Struct, UnsetType

from ...channel import Caller
from ...jsonrpc.errors import InvalidParams, LocalError
from ...rpc.method import Method
from ..protocol.encoding import encode
from ..protocol.headers import HeaderParam
from ..protocol.revisions import Revision
from ..protocol.types import Prompt, Resource, ResourceTemplate, Tool
from ..protocol.uri_template import Template

Kind: TypeAlias = Literal["tool", "resource", "template", "prompt"]
Listing: TypeAlias = Literal["tools", "resources", "templates", "prompts"]
Listed: TypeAlias = Tool | Resource | ResourceTemplate | Prompt

_MEMBER: Final = {"tools": "tools", "resources": "resources", "templates": "resourceTemplates", "prompts": "prompts"}
"""Of a list's result."""
_CURSOR: Final = re.compile(r"([a-z]+)\.([1-9][0-9]{0,15})")


class Entry(Struct, eq=False):
    """One entry that a server offers. `key`: its name, URI or template; `listed`: its description in a list.

    `older`: what it says to peers without `structured_values`, where that differs. `marked`: a tool's arguments that go
    into HTTP headers. `template`: where it is one. `completions`: by argument.
    """

    kind: Kind
    key: str
    listed: Listed
    method: Method
    number: int = 0
    """Its number of registration."""
    enabled: bool = True
    older: Listed | None = None
    marked: tuple[HeaderParam, ...] = ()
    template: Template | None = None
    completions: dict[str, Method] = {}
    visible: Callable[[Caller], bool] | None = None
    """Whether a caller has it; None: every caller has it."""
    texts: dict[int, bytes] = {}
    """`listed` as JSON, by the order of each revision for which it was encoded."""

    def there(self, caller: Caller) -> bool:
        """Whether it is enabled, and visible to this caller."""
        return self.enabled and (self.visible is None or self.visible(caller))

    def text(self, revision: Revision) -> bytes:
        """Its description in a list, as JSON."""
        found = self.texts.get(revision.order)
        if found is None:
            older = self.older is not None and not revision.structured_values
            found = self.texts[revision.order] = encode(self.older if older else self.listed, revision)
        return found


class Entries:
    """The entries of one kind. Safe for threads."""

    def __init__(self, name: Listing, page_size: int) -> None:
        self.name: Final = name
        self.page_size: Final = page_size
        self.by_key: dict[str, Entry] = {}
        self._last = 0  # the number of the newest entry there ever was
        self._lock = threading.Lock()
        self._visible: list[Entry] | None = None
        self.personal = False
        """Whether some are there for some callers alone; then a page is made for each who asks, and no other keeps
        it."""
        self._pages: dict[tuple[int, int], Raw] = {}

    def free(self, key: str) -> None:
        """Raise LocalError if there is such an entry."""
        if key in self.by_key:
            raise LocalError(f"there is a {self.name[:-1]} {key!r} already")

    def add(self, entry: Entry) -> None:
        """Add it at the end. Raises LocalError when its key is taken."""
        with self._lock:
            self.free(entry.key)
            self._last += 1
            entry.number = self._last
            self.by_key[entry.key] = entry
            self.personal = self.personal or entry.visible is not None
            self._forget()

    def remove(self, key: str) -> None:
        """Remove it."""
        with self._lock:
            del self.by_key[key]
            self.personal = any(entry.visible is not None for entry in self.by_key.values())
            self._forget()

    def switch(self, entry: Entry, on: bool) -> bool:
        """Enable or disable it; False when that changes nothing."""
        with self._lock:
            changed = entry.enabled != on
            entry.enabled = on
            if changed:
                self._forget()
        return changed

    def visible(self) -> list[Entry]:
        """The enabled entries, in order."""
        with self._lock:
            return list(self._shown())

    def page(self, revision: Revision, cursor: str | UnsetType, prefix: bytes, caller: Caller) -> Raw:
        """The result of a list method. `prefix`: its beginning in the stateless era, with its stamp and hints. Raises
        InvalidParams for an unknown cursor."""
        if self.personal:
            shown = [entry for entry in self.visible() if entry.there(caller)]
            return self._page(shown, self._from(shown, cursor), revision, prefix)
        with self._lock:
            shown = self._shown()
            start = self._from(shown, cursor)
            found = self._pages.get((revision.order, start))
            if found is None:
                found = self._page(shown, start, revision, prefix)
                if start % self.page_size == 0:  # other pages begin at removed entries: too many to keep
                    self._pages[revision.order, start] = found
        return found

    def _from(self, shown: list[Entry], cursor: str | UnsetType) -> int:
        if isinstance(cursor, UnsetType):
            return 0
        return bisect_right(shown, self._opened(cursor), key=lambda entry: entry.number)

    def _shown(self) -> list[Entry]:
        shown = self._visible
        if shown is None:
            shown = self._visible = [entry for entry in self.by_key.values() if entry.enabled]
        return shown

    def _forget(self) -> None:
        self._visible = None
        self._pages = {}

    def _page(self, shown: list[Entry], start: int, revision: Revision, prefix: bytes) -> Raw:
        entries = shown[start : start + self.page_size]
        text = b'"%s":[%s]' % (_MEMBER[self.name].encode(), b",".join(one.text(revision) for one in entries))
        if start + self.page_size < len(shown):
            text += b',"nextCursor":"%s"' % self._closed(entries[-1].number).encode()
        return Raw((b"{" if revision.stateful else prefix) + text + b"}")

    def _closed(self, number: int) -> str:
        return urlsafe_b64encode(f"{self.name}.{number}".encode()).rstrip(b"=").decode()

    def _opened(self, cursor: str) -> int:
        """The number in a cursor."""
        try:
            text = urlsafe_b64decode(cursor[:64].encode("ascii") + b"==").decode("ascii")
        except (Base64Error, ValueError):
            text = ""
        match = _CURSOR.fullmatch(text)
        if match is None or int(match[2]) > self._last or self._closed(int(match[2])) != cursor:
            # "Invalid cursors SHOULD result in an error with code -32602" (server/utilities/pagination)
            raise InvalidParams(f"Invalid cursor: {cursor[:64]!r} is none that this server gave for {self.name}")
        return int(match[2])
