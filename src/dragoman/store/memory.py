"""Documents in this process: lost with it, and of it alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from .contract import Change, full


class MemoryStore:
    """An `Engine`, from any loop and thread. `owners`: documents at once; `total`: their bytes. `clock`: Unix time."""

    def __init__(self, owners: int, total: int, clock: Callable[[], float] = time.time) -> None:
        self._owners, self._total = owners, total
        self._size = 0
        self._clock = clock
        self._documents: dict[str, tuple[bytes, float | None]] = {}
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
                self._make_room(owner, len(made.document) - (0 if found is None else len(found[0])), found is None)
            self._drop(owner)
            if made.document is not None:
                self._documents[owner] = (made.document, made.until)
                self._size += len(made.document)
            return made.result

    def _drop(self, owner: str) -> None:
        found = self._documents.pop(owner, None)
        self._size -= 0 if found is None else len(found[0])

    def _make_room(self, owner: str, more: int, new: bool) -> None:
        """For so many bytes more of an owner: what has expired goes, but for its own, which is replaced."""

        def fits() -> bool:
            return self._size + more <= self._total and len(self._documents) + new <= self._owners

        if fits():
            return
        now = self._clock()
        over = [one for one, (_, until) in self._documents.items() if until is not None and until <= now]
        for one in over:
            if one != owner:
                self._drop(one)
        if not fits():
            raise full(self._size + more > self._total, self._owners, self._total)

    async def close(self) -> None:
        """Nothing is held."""
