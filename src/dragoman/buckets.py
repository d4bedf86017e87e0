"""Token buckets for rates: kept in this process, or in the engine of `ctx.store` for all processes of an app."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import OrderedDict
from typing import Any

import msgspec

from .allowance import owner_of
from .rpc.context import Context, engine_of
from .store.contract import Edit, StoreFull, StoreLost

log: logging.Logger = logging.getLogger("dragoman.calls")

_read = msgspec.json.Decoder(tuple[float, float]).decode


class Buckets:
    """The buckets of callers in this process: `size` tokens each, and `rate` more a second. At most `callers`
    buckets are kept; beyond, the one that was used least recently is dropped."""

    def __init__(self, rate: float, size: int, callers: int) -> None:
        self.rate: float = rate
        self.size: int = size
        self.callers: int = callers
        self._kept: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str, now: float) -> float:
        """Take a token and return 0; without one return the seconds until there is one."""
        left, since = self._kept.pop(caller, (float(self.size), now))
        left, after = self.taken(left, since, now)
        self._kept[caller] = left, now
        if len(self._kept) > self.callers:
            self._kept.popitem(last=False)
        return after

    def taken(self, left: float, since: float, now: float) -> tuple[float, float]:
        """Take a token of a bucket that had `left` at the time `since`. Return what it has now, and what `take`
        returns."""
        left = min(self.size, left + max(0.0, now - since) * self.rate)
        return (left - 1, 0.0) if left >= 1 else (left, (1 - left) / self.rate)


class SharedBuckets:
    """The buckets of callers in the engine of `ctx.store`. A caller without a token is not looked up again until it may
    have one, so a flood of calls does not reach the store."""

    def __init__(self, here: Buckets, name: str) -> None:
        self._here = here
        self._name = name
        self._empty: OrderedDict[str, float] = OrderedDict()
        self._away = False

    async def take(self, context: Context[Any], caller: str, now: float) -> float:
        """Take a token, as `Buckets.take`. Where the store is away or full, this process counts alone."""
        if (until := self._empty.get(caller, 0.0)) > now:
            return until - now
        here = self._here
        service, owner = context._site.service, owner_of(context.caller)

        def edit(document: bytes | None) -> Edit:
            left, since = (float(here.size), now) if document is None else _read(document)
            left, after = here.taken(left, since, now)
            kept = msgspec.json.encode((left, max(now, since)))
            return Edit(kept, now + here.size / here.rate + 1, after, stranger=None if owner.known else owner)

        try:
            key = json.dumps(["rate", service.name, self._name, here.rate, here.size, caller]).encode()
            after: float = await engine_of(service).change(hashlib.sha256(key).hexdigest(), edit)
        except (StoreLost, StoreFull) as error:
            if not self._away:
                log.warning("rates are counted by each process alone: %s", error)
            self._away = True
            return here.take(caller, now)
        self._away = False
        if after > 0:
            self._empty[caller] = now + after
            if len(self._empty) > here.callers:
                self._empty.popitem(last=False)
        else:
            self._empty.pop(caller, None)
        return after
