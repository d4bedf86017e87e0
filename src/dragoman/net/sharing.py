"""Connections that several parts of one program share: a wire and a bus to the same server use one.

Rules:

- A connection has at most one user of each role ("wire", "bus"), so two callers of one broker stay two connections,
  each with its own flow. It belongs to an event loop.
- The first user opens it, the last one closes it. What a user has subscribed to ends with the user.
- Every user is notified of an outage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet

OnState = Callable[[bool, str], None]
"""Called with False and why when a connection is lost and after each try to come back that failed, with True when it is
back."""


def ignore_state(alive: bool, why: str) -> None:
    """An `OnState` that does nothing, until another is set."""


class SharedConnection(Protocol):
    """A connection that can be shared: once open, it reconnects by itself."""

    states: list[OnState]

    @property
    def alive(self) -> bool:
        """Whether it is connected now."""

    async def open(self) -> None:
        """Connect. Raises ConnectionError."""

    async def close(self) -> None:
        """Close the connection for good."""

    def lost(self) -> ConnectionError:
        """The exception to raise while it is not connected."""


class Closable(Protocol):
    """A subscription."""

    async def close(self) -> None:
        """Unsubscribe."""


C = TypeVar("C", bound=SharedConnection)
S = TypeVar("S", bound=Closable)


class _Shared(Generic[C]):
    """One connection and the roles of its users."""

    __slots__ = ("connection", "fault", "key", "lock", "open", "roles")

    def __init__(self, key: Hashable, connection: C) -> None:
        self.key: Hashable = key
        self.connection: C = connection
        self.roles: set[str] = set()
        self.lock: asyncio.Lock = asyncio.Lock()
        self.open: bool = False
        self.fault: BaseException | None = None


class Sharing(Generic[C]):
    """The connections of one kind, by event loop and key."""

    def __init__(self) -> None:
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, list[_Shared[C]]] = WeakKeyDictionary()

    def share(self, key: Hashable, role: str, make: Callable[[], C]) -> ConnectionShare[C]:
        """Share a connection that has no user of this role yet; `make` makes one if there is none."""
        known = self._loops.setdefault(asyncio.get_running_loop(), [])
        shared = next((one for one in known if one.key == key and role not in one.roles), None)
        if shared is None:
            shared = _Shared(key, make())
            known.append(shared)
        shared.roles.add(role)
        return ConnectionShare(known, shared, role)


class ConnectionShare(Generic[C]):
    """One user's share of a connection."""

    def __init__(self, known: list[_Shared[C]], shared: _Shared[C], role: str) -> None:
        self.connection = shared.connection
        self._known = known
        self._shared = shared
        self._role = role
        self._on_state: OnState | None = None
        self._subscriptions: WeakSet[Closable] = WeakSet()  # the connection holds those that are not closed
        self._closed = False

    def watch(self, on_state: OnState | None) -> None:
        """Use this callback from now on instead of the former one."""
        if self._on_state is not None:
            self.connection.states.remove(self._on_state)
        self._on_state = on_state
        if on_state is not None:
            self.connection.states.append(on_state)

    def keep(self, subscription: S) -> S:
        """Keep a subscription that ends with this share."""
        self._subscriptions.add(subscription)
        return subscription

    async def open(self) -> None:
        """Connect, unless another user has. Raises ConnectionError; then other users are not given this connection."""
        shared = self._shared
        async with shared.lock:
            if shared.fault is not None:
                raise shared.fault
            if not shared.open:
                try:
                    await shared.connection.open()
                except BaseException as fault:
                    shared.fault = fault
                    self._forget()
                    raise
                shared.open = True
            elif not shared.connection.alive:
                raise shared.connection.lost()

    async def close(self) -> None:
        """Give up this share; the last user closes the connection."""
        if self._closed:
            return
        self._closed = True
        self.watch(None)
        self._shared.roles.discard(self._role)
        if self._shared.roles:
            for one in tuple(self._subscriptions):
                await one.close()
        else:
            self._forget()
            await self.connection.close()

    def _forget(self) -> None:
        if self._shared in self._known:
            self._known.remove(self._shared)
