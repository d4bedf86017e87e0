"""What the functions of an app keep for their callers: `ctx.store`. In memory, in a file of SQLite, or on the bus.

Each caller has one document, which maps keys to JSON values with their deadlines. An engine reads a document and
changes it in one step; `documents` alone decides what a document may hold, for all engines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import door

if TYPE_CHECKING:
    from .calls import CallStore
    from .contract import Engine, StoreFull, StoreLost
    from .opening import open_store
else:
    __getattr__, __dir__ = door(
        __name__, {"calls": "CallStore", "contract": "Engine StoreFull StoreLost", "opening": "open_store"}
    )
    del TYPE_CHECKING, annotations, door

__all__ = ["CallStore", "Engine", "StoreFull", "StoreLost", "open_store"]
