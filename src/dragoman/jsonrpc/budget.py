"""The bytes that one server keeps for its callers or has not sent to them, on all wires together. Pure.

Rules:

- What is *kept* (the messages of streams to which a client may return, what a session knows of its client) and what is
  *unsent* (answers that a caller does not read) are one sum, at most `limits.kept_bytes`, or one answer of
  `limits.response_size` where that is more. What is written at once is never counted.
- Above it the oldest that is kept is dropped, and once nothing can be dropped the slowest readers are closed.
- Each owner, a principal or else an address, has a tenth as its share. While the sum is within the bound an owner may
  use more; above it, those that do are the first to lose.
- What can be neither dropped nor closed is admitted up to the owner's share, and for all owners together up to half of
  the budget: the other half is for messages on their way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .limits import Limits

SHARES = 10
"""An owner's share is the budget divided by this: nine others find room beside one that takes all it can get."""
_ADMITTED_DIVISOR = 2
"""Bytes that can be neither dropped nor closed may take the budget divided by this."""
_SLACK_DIVISOR = 8
"""Readers are closed until an eighth of the budget is free, so that choosing them is rarely necessary."""


class Reader(Protocol):
    """A sender with bytes for a far end that reads too slowly."""

    def slowness(self) -> float:
        """How slow it is: the greater, the slower. Brings its account up to date first."""

    def cut_off(self, why: str) -> None:
        """Close it and drop what is unsent; `why` follows its name."""


class _Owner:
    __slots__ = ("admitted", "kept", "readers", "unused", "used")

    def __init__(self) -> None:
        self.used: int = 0
        self.admitted: int = 0
        self.kept: dict[Account, None] = {}
        self.readers: dict[Account, None] = {}
        self.unused: dict[BudgetAdmission, None] = {}


class Account:
    """The account of one thing that is kept or unsent, `size` in bytes. `drop` drops it and sets the size to what is
    left."""

    __slots__ = ("_budget", "_name", "_owner", "drop", "reader", "size")

    def __init__(self, budget: Budget, name: str, drop: Callable[[], object] | None, reader: Reader | None) -> None:
        self._budget = budget
        self._name = name
        self._owner: _Owner | None = None
        self.drop = drop
        self.reader: Reader | None = reader
        self.size: int = 0

    def set(self, size: int) -> None:
        """Set the size in bytes; 0: the thing is gone. Above the bound, others are dropped or closed now."""
        change, budget = size - self.size, self._budget
        if not change:
            return
        owner = self._owner
        if owner is None:
            owner = self._owner = budget._owner_of(self._name)
        self.size = size
        budget.used += change
        owner.used += change
        if owner.used > budget.share:
            budget._above[owner] = None
        elif budget._above:
            budget._above.pop(owner, None)
        if not size:
            self._leave(owner)
            self._owner = None
            if not owner.used:
                budget._forget_owner(self._name)
        elif self.drop is not None:
            if self not in budget._kept:
                budget._kept[self] = owner.kept[self] = None
        elif self.reader is not None and self not in budget._readers:
            budget._readers[self] = owner.readers[self] = None
        if change > 0 and budget.used > budget.most:
            budget._make_room()

    def keep(self, drop: Callable[[], object] | None) -> None:
        """Make it the newest of the things that can be dropped, by `drop`; None: it cannot be dropped."""
        self.drop = drop
        if self._owner is not None:
            self._leave(self._owner)
            if drop is not None:
                self._budget._kept[self] = self._owner.kept[self] = None

    def leave(self) -> None:
        """Remove it from what can be dropped or closed: neither is possible now."""
        if self._owner is not None:
            self._leave(self._owner)

    def _leave(self, owner: _Owner) -> None:
        budget = self._budget
        if self in budget._kept:
            del budget._kept[self], owner.kept[self]
        elif self in budget._readers:
            del budget._readers[self], owner.readers[self]


class BudgetAdmission:
    """Bytes that `Budget.admit` has admitted, and that are not dropped for want of room while they are in use. They
    count until `release`, or until nothing refers to this object any more."""

    __slots__ = ("_account", "_budget", "_owner", "_size")

    def __init__(self, budget: Budget, account: Account, owner: _Owner) -> None:
        self._budget = budget
        self._account = account
        self._owner = owner
        self._size = account.size
        owner.admitted += self._size
        budget._admitted += self._size

    def keep(self, drop: Callable[[], object] | None) -> None:
        """Say whether the bytes may be dropped for others: with `drop` they may (not in use), with None not (in
        use)."""
        self._account.keep(drop)
        for unused in (self._budget._unused, self._owner.unused):
            unused.pop(self, None)
            if drop is not None:
                unused[self] = None

    def give_way(self) -> bool:
        """Drop the bytes; False if they are in use or released."""
        drop = self._account.drop
        if drop is None or not self._size:
            return False
        self.keep(None)
        drop()
        return True

    def resize(self, size: int) -> bool:
        """Change the size, in bytes, at least 1; False, with nothing changed, where there is no room for so many."""
        owner, budget, before = self._owner, self._budget, self._size
        room = size <= before or budget._has_room(owner, size - before)
        if room:
            self._account.set(size)
            room = size <= before or budget.used <= budget.most
        if not room:
            self._account.set(before)
            budget._refused += 1
            return False
        self._size = size
        owner.admitted += size - before
        budget._admitted += size - before
        return True

    def release(self) -> None:
        """Count the bytes no longer. A second call has no effect."""
        if self._account.drop is not None:
            self.keep(None)
        self._owner.admitted -= self._size
        self._budget._admitted -= self._size
        self._size = 0
        self._account.set(0)

    __del__ = release


class Budget:
    """The sum of one server, in bytes: `used` of at most `most`; `share` is that of each owner."""

    __slots__ = (
        "_above",
        "_admitted",
        "_closed",
        "_dropped",
        "_kept",
        "_making_room",
        "_owners",
        "_readers",
        "_refused",
        "_unused",
        "most",
        "share",
        "used",
    )

    def __init__(self, limits: Limits) -> None:
        self.used: int = 0
        self._kept: dict[Account, None] = {}
        """The accounts that can be dropped, the oldest first."""
        self._readers: dict[Account, None] = {}
        self._above: dict[_Owner, None] = {}
        """Owners with more than their share: at most ten while the sum is within the bound."""
        self._admitted: int = 0
        """Bytes that can be neither dropped nor closed, when they are in use."""
        self._unused: dict[BudgetAdmission, None] = {}
        """Admissions that give way for others, the oldest first."""
        self._owners: dict[str, _Owner] = {}
        self._making_room = False
        self._dropped = self._closed = self._refused = 0
        self.restrict(limits)

    def restrict(self, limits: Limits) -> None:
        """Count against other limits from now on."""
        self.most: int = max(limits.kept_bytes, limits.response_size)
        self.share: int = self.most // SHARES

    def account(self, owner: str, *, drop: Callable[[], object] | None = None, reader: Reader | None = None) -> Account:
        """Return a new account of 0 bytes: of something kept, which `drop` drops, or of what a `reader` has not
        read."""
        return Account(self, owner, drop, reader)

    def admit(self, owner: str, size: int) -> BudgetAdmission | None:
        """Count bytes that are kept for as long as their caller likes; None if they are more than its share, or if
        there is no room for them."""
        account = Account(self, owner, None, None)
        if self._has_room(self._owners.get(owner), size):
            account.set(size)
            if self.used <= self.most and account._owner is not None:
                return BudgetAdmission(self, account, account._owner)
            account.set(0)
        self._refused += 1
        return None

    def measures(self) -> dict[str, float]:
        """Return the numbers for metrics: bytes now, and counts since the start."""
        unsent = sum(one.size for one in tuple(self._readers))
        return {
            "kept_bytes": self.used - unsent,
            "unsent_bytes": unsent,
            "kept_dropped_total": self._dropped,
            "kept_refused_total": self._refused,
            "slow_readers_closed_total": self._closed,
        }

    # -- for its accounts

    def _has_room(self, owner: _Owner | None, more: int) -> bool:
        """Return whether `more` bytes may be admitted for an owner; unused admissions give way for them."""
        share, total = self.share - more, self.most // _ADMITTED_DIVISOR - more
        while owner is not None and owner.admitted > share and _drop_oldest(owner.unused):
            pass
        while self._admitted > total and _drop_oldest(self._unused):
            pass
        return self._admitted <= total and (0 if owner is None else owner.admitted) <= share

    def _owner_of(self, name: str) -> _Owner:
        """Return the owner of that name."""
        found = self._owners.get(name)
        if found is None:
            found = self._owners[name] = _Owner()
        return found

    def _forget_owner(self, name: str) -> None:
        """Forget the owner of that name, which has nothing any more."""
        self._owners.pop(name, None)

    def _make_room(self) -> None:
        """Drop and close until the sum is within the bound, as far as that goes."""
        if self._making_room:
            return
        self._making_room = True
        try:
            while self.used > self.most and (oldest := self._oldest()) is not None:
                size = oldest.size
                assert oldest.drop is not None  # it is in `kept`
                oldest.drop()
                self._dropped += 1
                if oldest.size >= size:  # what is left of it cannot go now
                    oldest.leave()
            if self.used > self.most:
                self._close_slowest()
        finally:
            self._making_room = False

    def _oldest(self) -> Account | None:
        """Return what is dropped first: of the owner that is above its share by most, else of all."""
        above = [owner for owner in self._above if owner.kept]
        kept = max(above, key=lambda owner: owner.used).kept if above else self._kept
        return next(iter(kept), None)

    def _close_slowest(self) -> None:
        """Close readers, the slowest first, those of owners above their share before all others. The fastest stays if
        there is room for it."""
        slowness = [(one, one.reader.slowness()) for one in tuple(self._readers) if one.reader is not None]
        slowness.sort(key=lambda pair: (pair[0]._owner in self._above, pair[1]), reverse=True)
        enough = self.most - self.most // _SLACK_DIVISOR
        for position, (account, _) in enumerate(slowness, 1):
            if self.used <= (self.most if position == len(slowness) else enough):
                return
            if account.reader is not None and account.size:
                self._closed += 1
                account.reader.cut_off(f"reads too slowly: {self.most} bytes are kept or unsent (limit kept_bytes)")
                account.set(0)


def _drop_oldest(unused: dict[BudgetAdmission, None]) -> bool:
    """Drop the oldest of these admissions; False if none could be dropped."""
    return next((one.give_way() for one in unused), False)
