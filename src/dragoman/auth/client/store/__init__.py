"""Where a client keeps what it got from authorization servers: in memory, or in files that outlive it.

An entry belongs to an issuer, a resource, a client and an account. It is replaced by compare and swap, so that of two
processes that renew one token the later never deletes what the earlier got. The process that renews it holds the
entry's lock only for the token request. Clients import this room; it imports nothing of theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....doors import door

if TYPE_CHECKING:
    from .contract import EntryKey, LockHeld, Stored, TokenStore, TokenStoreError
    from .files import FileStore
    from .memory import MemoryStore
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "contract": "EntryKey LockHeld Stored TokenStore TokenStoreError",
            "files": "FileStore",
            "memory": "MemoryStore",
        },
    )
    del TYPE_CHECKING, annotations, door

__all__ = ["EntryKey", "FileStore", "LockHeld", "MemoryStore", "Stored", "TokenStore", "TokenStoreError"]
