"""Delivers the events of an outbox to the receivers of webhooks.

Rules:

- One process delivers: the one with the lease of the outbox. It finds new events and subscriptions by what has changed
  in the file, whoever wrote it.
- A subscription gets its events one after the other, each again and again until its receiver has accepted it, has
  refused it for good (410, 413), or the retries are used up. What was accepted is noted before the next is sent.
- An event that is given up is skipped. If the one after it fails at once, too, the subscription rests until its client
  refreshes it; its events are kept meanwhile, within the bounds of the outbox.
- Each receiver (scheme, host and port) has a queue and connections of its own. Those that fail have one connection
  each, and half of all at most together, so that they cost the others nothing.
- Whether the caller may still follow the type is asked before each event; if not, the subscription ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from ....channel import Identity
from ....events.catalog import EventArguments, EventDefinition
from ....events.clock import Clock
from ....events.limits import EventLimits
from ....events.outbox import LEASE, KeptEvent, Outbox, SubscriptionRecord
from ....jsonrpc.errors import LocalError
from ....kept_identity import restore_identity
from ....repeats import Repeats
from ....store.contract import StoreLost
from ....store.database import DatabaseFull
from ...protocol.times import to_iso
from .model import (
    SUBSCRIPTION_HEADER,
    DeliveryStatus,
    ErrorObject,
    EventCodes,
    Gap,
    Terminated,
)
from .occurrences import occurrence_of
from .sealing import Unreadable, unseal
from .sender import Outcome, ReceiverConnection, WebhookSender
from .signing import sign_headers

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)

RETRIES: Final[tuple[float, ...]] = (30.0, 120.0, 600.0, 1800.0, 3600.0, 7200.0)
"""Seconds between the attempts to deliver an event: half an hour bridges a restart, four hours an outage."""
JITTER: Final = 0.1
"""The part by which they vary, so that many that failed together do not come back together."""
SWEEP: Final = 60.0
"""Seconds between two sweeps."""
SET_BACK: Final = 1.0
"""Seconds by which a clock that is adjusted may go back without anything being looked at anew."""
FAULT: Final = 5.0
"""Seconds after which deliveries go on after a fault of ours."""
PATIENCE: Final = 5.0
"""Seconds for which attempts that are under way are waited for at the end; after that they are cut off."""
GONE, TOO_LARGE = 410, 413
WORK: Final = "webhooks"
"""The name of the lease."""


class DeliveryMeasures(Struct):
    """Numbers for metrics."""

    delivered: int = 0
    failed: int = 0
    abandoned: int = 0


class _Watch:
    """A subscription, as the process that delivers knows it. `position`: of events up to it none is to be sent."""

    __slots__ = ("arguments", "due", "id", "name", "origin", "position", "queued", "resting")

    def __init__(self, record: SubscriptionRecord, arguments: EventArguments | None) -> None:
        self.id = record.id
        self.name = record.name
        self.origin = record.origin
        self.arguments = arguments
        """None: its event type is unknown here, or has other arguments now."""
        self.position = record.position
        self.due: float | None = None
        """When the event after `position` is tried; None: none is to be sent, or it is being sent."""
        self.queued = False
        """Whether it waits for a connection, or is being sent."""
        self.resting = not record.active
        """Whether it is not tried until its client refreshes it."""


class _Receiver:
    """The subscriptions of one receiver that wait for a connection."""

    __slots__ = ("failing", "listed", "running", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[_Watch] = deque()
        self.running = 0
        self.failing = False
        self.listed = False


class Deliverer:
    """Delivers what is due. `find`: returns the definition of an event type by its name; `keys`: open the secrets;
    `retries`: seconds between attempts."""

    def __init__(
        self,
        outbox: Outbox,
        find: Callable[[str], EventDefinition | None],
        sender: WebhookSender,
        clock: Clock,
        *,
        limits: EventLimits,
        keys: Sequence[bytes],
        codes: EventCodes,
        retries: Sequence[float],
        measures: DeliveryMeasures,
    ) -> None:
        self._outbox = outbox
        self._find = find
        self._sender = sender
        self._clock = clock
        self._limits = limits
        self._keys = keys
        self._codes = codes
        self._retries = tuple(retries)
        self._measures = measures
        self._owner = os.urandom(16).hex()
        self.leads: bool = False
        """Whether this process has the lease, and so delivers."""
        self.woken: asyncio.Event = asyncio.Event()
        """Set it when something was emitted or subscribed."""
        self._watches: dict[str, _Watch] = {}
        self._by_name: dict[str, dict[str, _Watch]] = {}
        self._due: list[tuple[float, str]] = []
        self._receivers: dict[str, _Receiver] = {}
        self._ready: tuple[deque[_Receiver], deque[_Receiver]] = deque(), deque()
        """Receivers with subscriptions that wait: those that work, and those that failed."""
        self._running: dict[asyncio.Task[None], _Receiver] = {}
        self._changed = 0
        self._seen: dict[str, int] = {}
        """The newest event of each type at which all its subscriptions were looked at."""
        self._again: dict[str, set[_Watch]] = {}
        """Subscriptions to look at again, by event type."""
        self._moved: dict[str, int] = {}
        """Positions that were moved over events which a subscription does not get, to be written at the next sweep."""

    # -- the loop

    async def run(self) -> None:
        """Deliver until this is cancelled; then what is under way gets a little time."""
        swept = renewed = None
        try:
            while True:
                now = self._clock.now()
                try:
                    if renewed is not None and now < renewed - SET_BACK:
                        await self._begin_anew()
                    if renewed is None or not 0 <= now - renewed < LEASE / 3:
                        self.leads = await self._outbox.lead(WORK, self._owner, now)
                        if not self.leads:
                            await self._yield()
                            renewed = None
                            await self._clock.wait(
                                asyncio.Event(), LEASE / 3
                            )  # what is emitted is another's to deliver
                            continue
                        renewed = now
                    if swept is None or not 0 <= now - swept < SWEEP:
                        await self._sweep(now)
                        swept = now
                    self.woken.clear()
                    self._look(now)
                except (StoreLost, DatabaseFull):
                    repeats.error("events are not delivered now: their store fails", exc_info=True)
                    self._seen.clear()  # what was not looked at is looked at again
                except Exception:
                    logger.exception("events are not delivered for a moment: a fault of ours")
                    self._seen.clear()
                    await self._clock.wait(asyncio.Event(), FAULT)
                await self._clock.wait(self.woken, self._pause())
        finally:
            await asyncio.shield(self._stop())

    async def _begin_anew(self) -> None:
        """Read everything anew, since the clock was set back: what is due is so by the time that it shows now."""
        logger.warning("events: the clock was set back")
        await self._forget_all()

    async def _yield(self) -> None:
        """Stop: another process delivers."""
        if self._watches:
            logger.warning("events: another process delivers from now on")
        await self._forget_all()

    async def _forget_all(self) -> None:
        """Wait for the attempts under way, and know no subscription any more."""
        await self._finish()
        await self._write_moved()
        self._watches.clear()
        self._by_name.clear()
        self._due.clear()
        self._moved.clear()
        self._seen.clear()
        self._again.clear()
        self._changed = 0

    def position_of(self, id: str) -> int:
        """Return the number of an event up to which a subscription is to be sent none; 0: not known here."""
        watch = self._watches.get(id)
        return 0 if watch is None else watch.position

    async def _stop(self) -> None:
        self.leads = False
        await self._finish()
        with contextlib.suppress(StoreLost, DatabaseFull):
            await self._write_moved()
            await self._outbox.give_up(WORK, self._owner)

    async def _finish(self) -> None:
        """Wait for the attempts under way, but not for long."""
        for queue in self._ready:
            queue.clear()
        for receiver in self._receivers.values():
            receiver.waiting.clear()
            receiver.listed = False
        if self._running:
            _, late = await asyncio.wait(set(self._running), timeout=PATIENCE)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        self._receivers.clear()

    def _pause(self) -> float:
        """Return the seconds until there is something to do."""
        pause = LEASE / 3
        return min(pause, max(0.0, self._due[0][0] - self._clock.now())) if self._due else pause

    async def _write_moved(self) -> None:
        """Write positions that are not in the store yet."""
        moved = dict(self._moved)
        if moved:
            await self._outbox.advance(moved)
        for id, position in moved.items():
            if self._moved.get(id) == position:
                del self._moved[id]

    async def _sweep(self, now: float) -> None:
        await self._write_moved()
        await self._outbox.sweep(now)
        living = self._outbox.ids()  # others have expired, or were unsubscribed
        for watch in [one for id, one in self._watches.items() if id not in living and not one.queued]:
            self._forget(watch)
        known = {one.origin for one in self._watches.values()}
        for origin, receiver in list(self._receivers.items()):
            if origin not in known and not receiver.running and not receiver.waiting:
                del self._receivers[origin]

    # -- finding what is due

    def _look(self, now: float) -> None:
        """Find new subscriptions and new events, and start what is due."""
        for record in self._outbox.changed_since(self._changed):
            self._changed = record.changed
            self._take(record)
        again, self._again = self._again, {}
        for name, head in self._outbox.heads().items():
            if head > self._seen.get(name, 0):
                self._seen[name] = head
                self._look_at(name, self._by_name.get(name, {}).values(), head, now)
            elif name in again:
                self._look_at(name, again[name], head, now)
        while self._due and self._due[0][0] <= now:
            due, id = heapq.heappop(self._due)
            watch = self._watches.get(id)
            if watch is not None and watch.due == due and not watch.queued:
                self._queue(watch)
        self._start()

    def _take(self, record: SubscriptionRecord) -> None:
        """Watch a subscription that a client has made or refreshed."""
        before = self._watches.get(record.id)
        if before is not None and before.queued:  # its record is read anew before each event
            before.resting = False
            self._look_again(before)
            return
        definition = self._find(record.name)
        arguments: EventArguments | None = None
        if definition is not None:
            try:
                arguments = definition.arguments_from(record.arguments)
            except LocalError as error:
                repeats.error("events are not delivered to %s: %s", record.id, error)
        watch = _Watch(record, arguments)
        if before is not None:
            watch.position = max(watch.position, before.position)
        self._watches[record.id] = watch
        self._by_name.setdefault(record.name, {})[record.id] = watch
        if arguments is not None and record.active and record.attempts:
            # later than any retry: the clock was set back
            due = min(record.due, self._clock.now() + max(self._retries, default=0.0) * (1 + JITTER))
            if before is not None and before.due == due:
                watch.due = due  # as it was: a storm of refreshes adds nothing
            else:
                self._set_due(watch, due)
        else:
            self._look_again(watch)

    def _look_again(self, watch: _Watch) -> None:
        self._again.setdefault(watch.name, set()).add(watch)

    def _forget(self, watch: _Watch) -> None:
        if self._watches.get(watch.id) is watch:
            del self._watches[watch.id], self._by_name[watch.name][watch.id]
        self._moved.pop(watch.id, None)

    def _look_at(self, name: str, watches: Iterable[_Watch], head: int, now: float) -> None:
        """Find those of these subscriptions of a type that get a new event; move the others over it."""
        idle = [
            one
            for one in watches
            if one.position < head and one.due is None and not (one.queued or one.resting or one.arguments is None)
        ]
        definition = self._find(name)
        if not idle or definition is None:
            return
        oldest = min(one.position for one in idle)
        events = self._outbox.read(name, oldest)
        first, last = (events[0].number, events[-1].number) if events else (head + 1, oldest)
        matchers = [(one.number, definition.matcher(one.data)) for one in events]
        for watch in idle:
            arguments, position = watch.arguments, watch.position
            assert arguments is not None
            missing = position + 1 < first or position >= last  # events are gone, or not read yet
            if missing or any(number > position and is_for(arguments) for number, is_for in matchers):
                self._set_due(watch, now)
            else:
                self._move(watch, last)
                if last < head:
                    self._set_due(watch, now)

    def _move(self, watch: _Watch, position: int) -> None:
        watch.position = position
        self._moved[watch.id] = position

    def _set_due(self, watch: _Watch, due: float) -> None:
        watch.due = due
        heapq.heappush(self._due, (due, watch.id))

    # -- connections

    def _queue(self, watch: _Watch) -> None:
        """Let a subscription wait for a connection to its receiver."""
        watch.queued, watch.due = True, None
        receiver = self._receivers.get(watch.origin)
        if receiver is None:
            receiver = self._receivers[watch.origin] = _Receiver()
        receiver.waiting.append(watch)
        self._list(receiver)

    def _list(self, receiver: _Receiver) -> None:
        if receiver.waiting and not receiver.listed:
            receiver.listed = True
            self._ready[receiver.failing].append(receiver)

    def _start(self) -> None:
        """Start deliveries, as far as there are connections: each receiver in its turn."""
        limits = self._limits
        working, failing = self._ready
        while working and len(self._running) < limits.connections:
            self._start_one(working.popleft(), limits.connections_each)
        half = max(1, limits.connections // 2)
        while (
            failing
            and len(self._running) < limits.connections
            and sum(one.failing for one in self._running.values()) < half
        ):
            self._start_one(failing.popleft(), 1)

    def _start_one(self, receiver: _Receiver, most: int) -> None:
        receiver.listed = False
        if not receiver.waiting or receiver.running >= most:
            return  # it is listed again when one of its deliveries ends
        watch = receiver.waiting.popleft()
        receiver.running += 1
        task = asyncio.get_running_loop().create_task(self._deliver_to(watch, receiver))
        self._running[task] = receiver
        task.add_done_callback(lambda _: self._ended(task, watch, receiver))
        self._list(receiver)

    def _ended(self, task: asyncio.Task[None], watch: _Watch, receiver: _Receiver) -> None:
        del self._running[task]
        receiver.running -= 1
        watch.queued = False
        if not task.cancelled() and (error := task.exception()) is not None:
            repeats.error("events are not delivered to %s now", watch.id, exc_info=error)
            watch.due = self._clock.now() + LEASE
        if watch.due is not None:  # only now, since what is queued is not queued again
            self._set_due(watch, watch.due)
        self._list(receiver)
        if not receiver.waiting and not receiver.running and not receiver.failing:
            self._receivers.pop(watch.origin, None)
        self._look_again(watch)
        self.woken.set()

    # -- one subscription

    async def _deliver_to(self, watch: _Watch, receiver: _Receiver) -> None:
        """Deliver the events of a subscription until there are no more, or one fails."""
        connection: ReceiverConnection | None = None
        try:
            while True:
                record = self._outbox.subscription(watch.id)
                definition = self._find(watch.name)
                now = self._clock.now()
                if record is None or record.expires <= now or definition is None or watch.arguments is None:
                    self._forget(watch)
                    return
                if not record.active:
                    watch.resting = True
                    return
                event, position, gap = self._next(definition, watch.arguments, watch, record)
                if event is None and not gap:
                    if position > watch.position:
                        self._move(watch, position)
                    return
                try:
                    delivery = SubscriptionSigner(record, self._keys, now)
                except (Unreadable, ValueError) as error:
                    repeats.error("events are not delivered: %s", error)
                    watch.resting = True
                    await self._outbox.change(watch.id, lambda one: None if one is None else replace(one, active=False))
                    return
                if connection is None:
                    connection = self._sender.connect(self._sender.read_url(record.url))
                if definition.refuses(delivery.identity, watch.arguments) is not None:
                    await self._terminate(watch, delivery, connection)
                    return
                if gap:
                    await self._tell_gap(watch, delivery, connection, position)
                    continue
                assert event is not None
                if not await self._deliver(watch, receiver, delivery, connection, event):
                    return
        finally:
            if connection is not None:
                await connection.close()

    def _next(
        self, definition: EventDefinition, arguments: EventArguments, watch: _Watch, record: SubscriptionRecord
    ) -> tuple[KeptEvent | None, int, bool]:
        """Return the next event for a subscription, and the position before it; True if events before that are lost.
        Without an event: the position up to which there is none."""
        position = max(watch.position, record.position)
        state = self._outbox.state(watch.name)
        if position < state.gone:
            return None, state.gone, True
        while events := self._outbox.read(watch.name, position):
            for event in events:
                if definition.matches(arguments, event.data):
                    return event, position, False
                position = event.number
        return None, position, False

    async def _tell_gap(
        self, watch: _Watch, delivery: SubscriptionSigner, connection: ReceiverConnection, position: int
    ) -> None:
        """Skip events that are not kept any more. A client of the SEP is told so, once."""
        self._measures.abandoned += 1
        logger.warning("events %s: %s has lost some, which are not kept any more", watch.name, watch.id)
        watch.position = position
        await self._outbox.change(
            watch.id,
            lambda one: None if one is None else replace(one, position=max(position, one.position), attempts=0),
        )
        if delivery.record.declared:
            body = msgspec.json.encode(Gap(self._outbox.cursor(watch.name, position)))
            await connection.post(body, delivery.headers(f"msg_gap_{os.urandom(12).hex()}", body))

    async def _terminate(self, watch: _Watch, delivery: SubscriptionSigner, connection: ReceiverConnection) -> None:
        """End the subscription of a caller that may not follow its events any more."""
        logger.info("events %s: the caller of %s may not follow them any more", watch.name, watch.id)
        await self._outbox.remove(watch.id)
        self._forget(watch)
        await post_end(connection, delivery, self._codes, "access revoked")

    async def _deliver(
        self,
        watch: _Watch,
        receiver: _Receiver,
        delivery: SubscriptionSigner,
        connection: ReceiverConnection,
        event: KeptEvent,
    ) -> bool:
        """Post an event; return whether the one after it may be sent."""
        cursor = self._outbox.cursor(watch.name, event.number)
        body = msgspec.json.encode(occurrence_of(watch.name, event, cursor))
        outcome = await connection.post(body, delivery.headers(delivery.message_id(event), body))
        record = self._judge(delivery.record, event, outcome)
        receiver.failing = outcome.reason is not None and outcome.status not in (GONE, TOO_LARGE)
        if record is None:
            logger.info("events %s: the receiver of %s has ended the subscription (410)", watch.name, watch.id)
            await self._outbox.remove(watch.id)
            self._forget(watch)
            return False
        if record.position > watch.position:
            self._move(watch, record.position)  # whatever becomes of the write: this event is not sent again
        kept = await self._outbox.change(watch.id, lambda now: _merged(now, record))
        self._moved.pop(watch.id, None)
        if kept is None:  # it was unsubscribed meanwhile
            self._forget(watch)
            return False
        watch.resting = not kept.active
        watch.due = kept.due if kept.attempts else None
        return kept.active and not kept.attempts

    def _judge(self, record: SubscriptionRecord, event: KeptEvent, outcome: Outcome) -> SubscriptionRecord | None:
        """Return what becomes of a subscription after an attempt; None: it ends."""
        now, measures = self._clock.now(), self._measures
        if outcome.reason is None:
            measures.delivered += 1
            return replace(
                record, position=event.number, attempts=0, abandoned=0, delivered=now, failed=None, error=None
            )
        if outcome.status == GONE and not record.declared:
            return None
        failed = record.failed or now
        if outcome.status in (GONE, TOO_LARGE):  # "a non-retryable failure for that event"
            measures.abandoned += 1
            return replace(record, position=event.number, attempts=0, failed=failed, error=outcome.reason)
        measures.failed += 1
        attempts = record.attempts + 1
        if record.abandoned:  # it has failed all the time since an event was given up
            return replace(record, active=False, attempts=0, failed=failed, error=outcome.reason)
        if attempts > len(self._retries):
            measures.abandoned += 1
            abandoned = record.abandoned + 1
            return replace(
                record, position=event.number, attempts=0, abandoned=abandoned, failed=failed, error=outcome.reason
            )
        pause = self._retries[attempts - 1] * random.uniform(1 - JITTER, 1 + JITTER)
        if outcome.retry_after is not None:
            pause = max(pause, min(outcome.retry_after, max(self._retries)))
        return replace(record, attempts=attempts, due=now + pause, failed=failed, error=outcome.reason)


def _merged(now: SubscriptionRecord | None, record: SubscriptionRecord) -> SubscriptionRecord | None:
    """Return a subscription as it is now, with what came of an attempt; a refresh may have changed it meanwhile."""
    if now is None:
        return None
    refreshed = now.changed != record.changed
    return replace(
        now,
        position=max(now.position, record.position),
        attempts=record.attempts,
        due=record.due,
        active=record.active or refreshed,
        abandoned=0 if refreshed else record.abandoned,
        delivered=record.delivered,
        failed=record.failed,
        error=record.error,
    )


class SubscriptionSigner:
    """Signs the messages of a subscription, and has what else they need of it. Raises Unreadable if its secret cannot
    be opened."""

    def __init__(self, record: SubscriptionRecord, keys: Sequence[bytes], now: float) -> None:
        self.record = record
        self._now = now
        secrets = [unseal(keys, record.secret, record.id).decode()]
        if record.old_secret and record.old_until > now:
            secrets.append(unseal(keys, record.old_secret, record.id).decode())
        self._secrets = secrets
        self.identity: Identity | None = restore_identity(unseal(keys, record.identity, record.id))

    def headers(self, id: str, body: bytes) -> Mapping[str, str]:
        """Return the headers of a message, signed now: "Each retry attempt MUST regenerate the timestamp"."""
        return sign_headers(self._secrets, id, int(self._now), body) | {SUBSCRIPTION_HEADER: self.record.id}

    def message_id(self, event: KeptEvent) -> str:
        """Return the `webhook-id` of an event: the same with each attempt."""
        return message_id(self.record.id, event.id, declared=self.record.declared)


def message_id(subscription: str, event: str, *, declared: bool) -> str:
    """Return the `webhook-id` of an event by the ids of its subscription and its own. For a client of the SEP it is
    that of the message, which no other subscription has; ChatGPT wants that of the event."""
    return f"msg_event_{sha256(f'{subscription} {event}'.encode()).hexdigest()[:32]}" if declared else event


async def post_end(
    connection: ReceiverConnection, delivery: SubscriptionSigner, codes: EventCodes, reason: str
) -> None:
    """Tell a receiver, once, that its subscription has ended; ChatGPT's profile has no such message."""
    if delivery.record.declared:
        body = msgspec.json.encode(Terminated(ErrorObject(codes.forbidden, "Forbidden", {"reason": reason})))
        await connection.post(body, delivery.headers(f"msg_terminated_{os.urandom(12).hex()}", body))


def status_of(record: SubscriptionRecord) -> DeliveryStatus:
    """Return how the deliveries of a subscription went."""
    return DeliveryStatus(
        active=record.active,
        last_delivery_at=None if record.delivered is None else to_iso(record.delivered),
        last_error=record.error,
        failed_since=UNSET if record.failed is None else to_iso(record.failed),
    )
