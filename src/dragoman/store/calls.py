"""`ctx.store`: the part of the store that a call sees, which belongs to its caller."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import msgspec

from ..allowance import Owner
from ..channel import Identity
from ..jsonrpc.errors import LocalError
from ..jsonrpc.limits import Limits
from . import documents
from .contract import Edit, Engine, StoreFull


def owner_of(app: str, identity: Identity | None, session: str) -> str:
    """Return the name of a caller's document: a hash of the app and of the issuer and subject of its identity, or else
    of its session. No two callers share a name, with any characters, and it reveals nothing of them."""
    who = ["session", session] if identity is None else ["subject", identity.issuer, identity.subject]
    return hashlib.sha256(json.dumps([app, *who]).encode()).hexdigest()


class Keys(list[str]):
    """The type of `CallStore.keys`, for type checkers and editors alone: a plain function gets the list, an `async def`
    awaits it. No instance is made at run time."""

    def __await__(self) -> Generator[Any, None, list[str]]:
        return self
        yield


class CallStore:
    """What is stored for the caller of one call, by keys; values are JSON. Awaited in `async def`; in a plain function
    the methods block.

    What an anonymous caller stores belongs to its session and lives at most `limits.store_session_life` seconds after
    it was set. It is dropped earlier if there is no room for others, first that of the address with most documents.
    Every method raises StoreLost while the engine of the store is away.
    """

    __slots__ = ("_done", "_encode", "_engine", "_limits", "_longest", "_owner", "_stranger")

    def __init__(
        self,
        engine: Engine,
        owner: str,
        limits: Limits,
        *,
        encode: Callable[[Any], bytes],
        done: Callable[[Coroutine[Any, Any, Any]], Any],
        longest: float | None,
        stranger: Owner | None = None,
    ) -> None:
        """`done`: returns the coroutine to an `async def`, and its result to a plain function. `longest`: the most
        seconds that an entry lives; None: any. `stranger`: the caller's address, if it is anonymous."""
        self._engine, self._owner, self._limits = engine, owner, limits
        self._encode, self._done, self._longest, self._stranger = encode, done, longest, stranger

    def __repr__(self) -> str:
        return f"<CallStore of {type(self._engine).__name__}>"

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key; `default` if there is none, or it has expired."""
        return self._done(self._get(self._checked(key), default))

    def set(self, key: str, value: Any, *, ttl: float | None = None) -> Awaitable[None]:
        """Store a value for JSON under a key, for `ttl` seconds (None: until it is deleted). Raises LocalError for what
        is not JSON, StoreFull above a limit."""
        if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, int | float) or not ttl > 0):
            raise LocalError(f"ttl is a number of seconds above 0, or None, not {ttl!r}")
        stored: Awaitable[None] = self._done(self._set(self._checked(key), self._encode(value), ttl))
        return stored

    def delete(self, key: str) -> Any:
        """Remove a key; True if there was one."""
        return self._done(self._delete(self._checked(key)))

    def keys(self, prefix: str = "") -> Keys:
        """The keys that begin with a prefix, sorted."""
        found: Keys = self._done(self._keys(prefix))
        return found

    def _checked(self, key: object) -> str:
        if not isinstance(key, str) or not key:
            raise LocalError(f"a key of the store is text that is not empty, not {key!r:.80}")
        try:
            key.encode()
        except UnicodeEncodeError as error:
            raise LocalError(f"a key of the store is text that UTF-8 has, not {key!r:.80}") from error
        if len(key) > self._limits.store_key_length:
            raise StoreFull(
                f"the key {key[:20]!r}... has {len(key)} characters; limit store_key_length allows "
                f"{self._limits.store_key_length}"
            )
        return key

    async def _get(self, key: str, default: Any) -> Any:
        found = documents.alive(await self._engine.read(self._owner), time.time()).get(key)
        return default if found is None else msgspec.json.decode(found[0])

    async def _set(self, key: str, value: bytes, ttl: float | None) -> None:
        now = time.time()
        lives = [one for one in (ttl, self._longest) if one is not None]
        until = now + min(lives) if lives else None

        def edit(document: bytes | None) -> Edit:
            made = documents.put(document, key, value, until, now, self._limits)
            return made if self._stranger is None else msgspec.structs.replace(made, stranger=self._stranger)

        await self._engine.change(self._owner, edit)

    async def _delete(self, key: str) -> bool:
        now = time.time()
        return bool(await self._engine.change(self._owner, lambda document: documents.drop(document, key, now)))

    async def _keys(self, prefix: str) -> list[str]:
        found = documents.alive(await self._engine.read(self._owner), time.time())
        return sorted(key for key in found if key.startswith(prefix))
