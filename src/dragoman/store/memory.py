"""Documents in the memory of this process: lost when it ends, and shared with no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ..allowance import NoRoom, Owner, Slots
from .contract import Change, full

_KNOWN = Owner("", known=True)


class InMemoryStore:
    """An `Engine`, from any loop and thread. `owners`: documents at once; `total`: their bytes. `clock`: Unix time.
    Documents of strangers give way, first those of the one that has most."""

    def __init__(self, owners: int, total: int, clock: Callable[[], float] = time.time) -> None:
        self._owners, self._total = owners, total
        self._size = 0
        self._clock = clock
        self._documents: dict[str, tuple[bytes, float | None]] = {}
        self._strangers: Slots[str] = Slots(owners)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._documents)

    async def read(self, owner: str) -> bytes | None:
        found = self._documents.get(owner)
        return None if found is None else found[0]

    async def change(self, owner: str, edit: Change) -> Any:
        with self._lock:
            found = self._documents.get(owner)
            made = edit(None if found is None else found[0])
            if not made.changed:
                return made.result
            if made.document is not None:
                more = len(made.document) - (0 if found is None else len(found[0]))
                self._make_room(owner, more, found is None, made.stranger)
            self._drop(owner)
            if made.document is not None:
                self._documents[owner] = (made.document, made.until)
                self._size += len(made.document)
                if made.stranger is not None:
                    self._strangers.take(made.stranger, owner)
            return made.result

    def _drop(self, owner: str) -> None:
        found = self._documents.pop(owner, None)
        self._size -= 0 if found is None else len(found[0])
        self._strangers.free(owner)

    def _make_room(self, owner: str, more: int, new: bool, stranger: Owner | None) -> None:
        """Make room for `more` bytes of an owner: drop what has expired, except its own document, which is replaced,
        and then documents of strangers. Raises StoreFull."""

        def fits() -> bool:
            return self._size + more <= self._total and len(self._documents) + new <= self._owners

        if fits():
            return
        now = self._clock()
        expired = [one for one, (_, until) in self._documents.items() if until is not None and until <= now]
        for one in expired:
            if one != owner:
                self._drop(one)
        if more > self._total:
            raise full(True, self._owners, self._total)
        mine = self._strangers.owner(owner)
        self._strangers.free(owner)  # it is replaced, and does not give way for itself
        while not fits():
            try:
                self._drop(self._strangers.yielding(stranger or _KNOWN))
            except NoRoom:
                if mine is not None:
                    self._strangers.take(mine, owner)
                raise full(self._size + more > self._total, self._owners, self._total) from None

    async def close(self) -> None:
        """Do nothing: no resource is held."""
