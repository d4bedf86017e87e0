"""Fair shares of what strangers can fill: slots of a table, uses within a time. Pure.

Rules:

- Who wants a slot is an `Owner`: the issuer and subject that a guard named, not the client that acts for them, since
  clients may be registered at will; otherwise an address. Of IPv6 a /64 is one address, since a caller has all of it
  (RFC 4291 section 2.5.1).
- A share is a tenth: an owner with less loses nothing to one that has more.
- What can be ended gives way (`Places`): while there is room, an owner may have more than its share; when all is
  taken, first goes the oldest of the one that is most above its share, then of the anonymous one that has most, and for
  a known owner then of the known one that has most.
- What must not be forgotten before its time, for it would be good a second time, gives no way (`Allowance`): an owner
  may have more than its share while less than half of all is taken, and all anonymous ones together nine tenths.

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
"""Shares in a whole: one owner, and one that fills its share by mistake, leave most to the others."""


class Owner(Struct, frozen=True):
    """Who has a slot. `known`: a guard, or a secret of its own, says who it is."""

    name: str
    known: bool = False


class NoRoom(Exception):
    """There is no slot for this owner now."""


def owner_of(caller: Caller) -> Owner:
    """Return the owner of what this caller fills: its account; without one its address, and where the wire has none (a
    mailbox of a broker, which callers choose themselves; a client in this process) the wire."""
    if caller.identity is not None:
        return Owner(caller.identity.account, known=True)
    return owner_at(caller.remote, caller.scheme)


def owner_at(remote: str, scheme: str = "") -> Owner:
    """Return the owner of what an anonymous caller at this address fills, on the wire with this scheme."""
    return Owner(address_of(remote) or scheme)


def share_of(most: int) -> int:
    """Return one owner's share of so many slots; at least one."""
    return max(1, most // SHARES)


class Allowance:
    """Uses within a time, of which none may be forgotten before. `most`: of all owners; `life`: seconds for which a use
    counts, at least, and twice as long at most; `each`: of one owner, None: its share, and more while there is
    much room."""

    __slots__ = ("_counts_before", "_counts_now", "_free", "_life", "_most", "_share", "_turn")

    def __init__(self, most: int, life: float, *, each: int | None = None) -> None:
        self._most, self._life = most, life
        self._share = share_of(most) if each is None else each
        self._free = most // 2 if each is None else 0
        """What may be taken of all for one to have more than a share."""
        self._turn = -inf
        # two generations, so that nothing is kept for one use: a turn ends the older one
        self._counts_now, self._counts_before = _Counts(), _Counts()

    def take(self, owner: Owner, now: float) -> bool:
        """Count one more use; False where there is no room for it."""
        self._turn_over(now)
        these, those = self._counts_now, self._counts_before
        taken = these.all + those.all
        if taken >= self._free and these.of.get(owner, 0) + those.of.get(owner, 0) >= self._share:
            return False
        if taken >= self._most:
            return False
        if not owner.known:
            if these.strangers + those.strangers >= ceil(self._most * (SHARES - 1) / SHARES):
                return False
            these.strangers += 1
        these.all += 1
        these.of[owner] = these.of.get(owner, 0) + 1
        return True

    def give_back(self, owner: Owner) -> None:
        """Do not count the use that was taken last."""
        these = self._counts_now
        if left := these.of.pop(owner, 0):
            these.all -= 1
            these.strangers -= not owner.known
            if left > 1:
                these.of[owner] = left - 1

    def after(self, now: float) -> int:
        """Return the seconds after which there is room again, at the latest."""
        return max(1, ceil((self._turn if self._counts_before.all else self._turn + self._life) - now))

    def _turn_over(self, now: float) -> None:
        if now >= self._turn:
            self._counts_before = self._counts_now if now < self._turn + self._life else _Counts()
            self._counts_now, self._turn = _Counts(), now + self._life


class _Counts:
    """Uses of one generation: of each owner, of anonymous ones, of all."""

    __slots__ = ("all", "of", "strangers")

    def __init__(self) -> None:
        self.of: dict[Owner, int] = {}
        self.all = self.strangers = 0


class Places(Generic[K]):
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
        """Give a new key a slot. Return the key that has to give way for it and has lost its slot; None where none has
        to. Raises NoRoom where none may."""
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
        """The key is in use: it is the newest of its owner again. Its time is what it was."""
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
        """An owner has one more, or one less."""
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
