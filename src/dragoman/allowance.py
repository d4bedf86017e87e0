"""Fair shares of what strangers can fill: slots of a table, uses within a time. Pure.

Rules:

- An `Owner` takes slots: the issuer and subject that a guard named, not the client that acts for them, since
  clients may be registered at will; otherwise an address. Of IPv6 a /64 is one address, since a caller has all of it
  (RFC 4291 section 2.5.1).
- A share is a tenth: an owner with less loses nothing to one that has more.
- What can be ended gives way (`Slots`). While there is room, an owner may have more than its share. When all is taken,
  the oldest slot of one owner is freed: of the owner that has most, if that is above its share; otherwise of the
  anonymous owner that has most; if there is none, and only for a known owner, of the known owner that has most.
- What must not be forgotten before its time, because it could be used a second time, does not give way (`Allowance`):
  an owner may have more than its share while less than half of all is taken. All anonymous owners together may have
  nine tenths.

The clock is the caller's: `now` is in seconds of any clock that does not go back far.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from math import ceil, inf
from typing import Generic, TypeVar

from msgspec import Struct

from .addresses import address_of
from .channel import Caller

K = TypeVar("K", bound=Hashable)

SHARES = 10
"""Shares in a whole: an owner that fills its share, even by mistake, leaves most to the others."""


class Owner(Struct, frozen=True):
    """Who has a slot. `known`: a guard, or a secret that the caller has, says who it is."""

    name: str
    known: bool = False


class NoRoom(Exception):
    """There is no slot for this owner now."""


def owner_of(caller: Caller) -> Owner:
    """Return the owner of the slots that this caller takes: its account; without one its address, or the wire's scheme
    where there is no address (a mailbox of a broker, which callers choose themselves; a client in this process)."""
    if caller.identity is not None:
        return Owner(caller.identity.account, known=True)
    return owner_at(caller.remote, caller.scheme)


def owner_at(remote: str, scheme: str = "") -> Owner:
    """Return the owner of the slots that an anonymous caller at this address takes, on the wire with this scheme."""
    return Owner(address_of(remote) or scheme)


def share_of(most: int) -> int:
    """Return one owner's share of so many slots; at least one."""
    return max(1, most // SHARES)


class Allowance:
    """Counts uses, none of which is forgotten before its time. `most`: uses of all owners; `life`: a use counts for at
    least so many seconds, and at most for twice as many; `each`: uses of one owner; None: its share, and more while
    less than half of all is taken."""

    __slots__ = ("_counts_before", "_counts_now", "_half", "_life", "_most", "_share", "_turn_ends")

    def __init__(self, most: int, life: float, *, each: int | None = None) -> None:
        self._most, self._life = most, life
        self._share = share_of(most) if each is None else each
        self._half = most // 2 if each is None else 0
        """While fewer uses than this are taken in all, an owner may have more than its share."""
        self._turn_ends = -inf
        # two generations of counts, so that no use is kept by itself: when a turn ends, the older one is dropped
        self._counts_now, self._counts_before = _Counts(), _Counts()

    def take(self, owner: Owner, now: float) -> bool:
        """Count one more use; False where there is no room for it."""
        self._turn_over(now)
        current, before = self._counts_now, self._counts_before
        taken = current.all + before.all
        if taken >= self._half and current.of.get(owner, 0) + before.of.get(owner, 0) >= self._share:
            return False
        if taken >= self._most:
            return False
        if not owner.known:
            if current.strangers + before.strangers >= ceil(self._most * (SHARES - 1) / SHARES):
                return False
            current.strangers += 1
        current.all += 1
        current.of[owner] = current.of.get(owner, 0) + 1
        return True

    def give_back(self, owner: Owner) -> None:
        """Count a use of this owner no longer: one that was taken in the current generation."""
        current = self._counts_now
        if left := current.of.pop(owner, 0):
            current.all -= 1
            current.strangers -= not owner.known
            if left > 1:
                current.of[owner] = left - 1

    def after(self, now: float) -> int:
        """Return the seconds after which there is room again, at the latest."""
        return max(1, ceil((self._turn_ends if self._counts_before.all else self._turn_ends + self._life) - now))

    def _turn_over(self, now: float) -> None:
        if now >= self._turn_ends:
            self._counts_before = self._counts_now if now < self._turn_ends + self._life else _Counts()
            self._counts_now, self._turn_ends = _Counts(), now + self._life


class _Counts:
    """Uses of one generation: of each owner, of anonymous ones, of all."""

    __slots__ = ("all", "of", "strangers")

    def __init__(self) -> None:
        self.of: dict[Owner, int] = {}
        self.all = self.strangers = 0


class Slots(Generic[K]):
    """Slots that give way for others. `most`: of all owners; `life`: seconds after which a slot is free by itself;
    without it each is freed by `free`."""

    __slots__ = ("_ends", "_held", "_known", "_life", "_most", "_strangers")

    def __init__(self, most: int, life: float = inf) -> None:
        self._most, self._life = most, life
        self._held: dict[Owner, OrderedDict[K, None]] = {}
        """The keys of each owner, the oldest first."""
        self._ends: OrderedDict[K, tuple[Owner, float]] = OrderedDict()
        """Each key's owner, and when its time is over, the oldest first."""
        self._known, self._strangers = _Levels(), _Levels()

    def __len__(self) -> int:
        return len(self._ends)

    def __contains__(self, key: object) -> bool:
        return key in self._ends

    def take(self, owner: Owner, key: K, now: float = 0.0) -> K | None:
        """Give a new key a slot. Return the key that has lost its slot for it, or None. Raises NoRoom where all slots
        are taken and none may give way."""
        while self._ends and next(iter(self._ends.values()))[1] <= now:
            self.free(next(iter(self._ends)))
        gone = None
        if len(self._ends) >= self._most:
            gone = self.yielding(owner)
            self.free(gone)
        self._ends[key] = owner, now + self._life
        held = self._held.setdefault(owner, OrderedDict())
        held[key] = None
        self._levels(owner).move(owner, len(held) - 1, len(held))
        return gone

    def touch(self, key: K) -> None:
        """Make a key in use the newest of its owner. The time at which its slot ends stays the same."""
        if (found := self._ends.get(key)) is not None:
            self._held[found[0]].move_to_end(key)

    def owner(self, key: K) -> Owner | None:
        """Return whose slot it is; None if the key has none."""
        found = self._ends.get(key)
        return None if found is None else found[0]

    def yielding(self, owner: Owner) -> K:
        """Return the key that would give way for one more of this owner, if all is taken. Raises NoRoom."""
        return next(iter(self._held[self._yielding_owner(owner)]))

    def free(self, key: K) -> None:
        """Free the key's slot. No effect if it has none."""
        found = self._ends.pop(key, None)
        if found is None:
            return
        owner, held = found[0], self._held[found[0]]
        del held[key]
        self._levels(owner).move(owner, len(held) + 1, len(held))
        if not held:
            del self._held[owner]

    def _levels(self, owner: Owner) -> _Levels:
        return self._known if owner.known else self._strangers

    def _yielding_owner(self, owner: Owner) -> Owner:
        """Return the owner that gives way for one more of this owner. Raises NoRoom."""
        known, strangers, share = self._known, self._strangers, share_of(self._most)
        if max(known.top, strangers.top) > share:
            return (known if known.top > strangers.top else strangers).first()
        if strangers.top:
            return strangers.first()
        if not (owner.known and known.top):
            raise NoRoom
        return known.first()


class _Levels:
    """Owners by how many slots each has, so that the one with most is found at once."""

    __slots__ = ("_at", "top")

    def __init__(self) -> None:
        self._at: dict[int, dict[Owner, None]] = {}
        self.top = 0
        """The most that one has."""

    def move(self, owner: Owner, before: int, after: int) -> None:
        """Move an owner from so many slots to one more, or one less."""
        if before:
            level = self._at[before]
            del level[owner]
            if not level:
                del self._at[before]
        if after:
            self._at.setdefault(after, {})[owner] = None
        if after > self.top or (before == self.top and before not in self._at):
            self.top = after

    def first(self) -> Owner:
        """Return the one that has most, and of several the one that has had so many for longest."""
        return next(iter(self._at[self.top]))
