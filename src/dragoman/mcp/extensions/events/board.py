"""The subscriptions of an `Events`, as the operator of its server may reach them: an `EventBoard`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from ....events.board import EventCounts, EventSubscription, SubscriptionPage, SubscriptionState
from ....events.clock import Clock
from ....events.outbox import Outbox, SubscriptionRecord
from ....jsonrpc.errors import LocalError
from ....store.contract import StoreLost
from ....store.database import DatabaseFull
from .delivery import Deliverer, SubscriptionSigner, post_end
from .model import EventCodes
from .sealing import Unreadable
from .sender import WebhookSender

_account: Callable[[str], tuple[str | None, str]] = msgspec.json.Decoder(tuple[str | None, str]).decode
"""Issuer and subject of `Identity.account`."""
logger: logging.Logger = logging.getLogger("dragoman.mcp")

ENDING: Final = 64
"""Receivers that are told at once that their subscription was ended; of more the subscriptions end all the same."""
WHY: Final = "ended by the operator of the server"


class OutboxBoard:
    """The subscriptions of `server` in this outbox. `deliverer`: that of this process; `wake`: lets it look at the
    outbox; `count`: returns what this process has done."""

    def __init__(
        self,
        server: str,
        outbox: Outbox,
        deliverer: Deliverer,
        *,
        sender: WebhookSender,
        clock: Clock,
        keys: Sequence[bytes],
        codes: EventCodes,
        wake: Callable[[], object],
        count: Callable[[], EventCounts],
    ) -> None:
        self.server: str = server
        self.store: str = sha256(outbox.epoch.encode()).hexdigest()[:12]
        self._outbox = outbox
        self._deliverer = deliverer
        self._sender = sender
        self._clock = clock
        self._keys = keys
        self._codes = codes
        self._wake = wake
        self.count_events: Callable[[], EventCounts] = count
        self._telling: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<OutboxBoard of {self.server}>"

    @property
    def leads(self) -> bool:
        """Whether their events are delivered here."""
        return self._deliverer.leads

    async def close(self) -> None:
        """Tell no receiver any more."""
        telling = list(self._telling)
        for task in telling:
            task.cancel()
        await asyncio.gather(*telling, return_exceptions=True)

    def list_subscriptions(
        self, state: SubscriptionState | None, words: list[str], after: tuple[str, str], limit: int
    ) -> SubscriptionPage:
        now, heads = self._clock.now(), self._outbox.heads()
        found = self._outbox.list_subscriptions(state, words, after, limit + 1, now)
        return SubscriptionPage(
            subscriptions=[self._shown(one, heads) for one in found[:limit]],
            more=len(found) > limit,
            kept=self._outbox.count_states(now),
        )

    def find_subscription(self, id: str) -> EventSubscription | None:
        found = self._find(id)
        return None if found is None else self._shown(found, self._outbox.heads())

    def _find(self, id: str) -> SubscriptionRecord | None:
        found = self._outbox.subscription(id)
        return found if found is not None and found.expires > self._clock.now() else None

    def _shown(self, record: SubscriptionRecord, heads: dict[str, int]) -> EventSubscription:
        position = max(record.position, self._deliverer.position_of(record.id))
        state = record.state
        issuer, subject = _account(record.account)
        return EventSubscription(
            id=record.id,
            name=record.name,
            server=self.server,
            receiver=record.origin,
            principal=subject,
            issuer=issuer or "",
            state=state,
            position=position,
            behind=max(0, heads.get(record.name, 0) - position),
            attempts=record.attempts,
            due=record.due if state == "retrying" else None,
            refusal=record.error or "",
            refused=record.failed,
            delivered=record.delivered,
            expires=record.expires,
            arguments=record.arguments.decode(errors="replace"),
            store=self.store,
            here=self.leads,
        )

    async def end_subscription(self, id: str) -> bool:
        record = self._find(id)
        with _writable():
            if record is None or not await self._outbox.remove(id):
                return False
        if record.declared and len(self._telling) < ENDING:
            self._begin(self._tell_end(record))
        return True

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell_end(self, record: SubscriptionRecord) -> None:
        try:
            signer = SubscriptionSigner(record, self._keys, self._clock.now())
            connection = self._sender.connect(self._sender.read_url(record.url))
        except (Unreadable, ValueError, LocalError) as error:
            logger.warning("events %s: the receiver of %s is not told of its end: %s", record.name, record.id, error)
            return
        try:
            await post_end(connection, signer, self._codes, WHY)
        finally:
            await connection.close()

    async def retry_subscription(self, id: str) -> bool:
        with _writable():
            done = await self._outbox.retry(id, self._clock.now())
        if done:
            self._wake()
        return done


@contextlib.contextmanager
def _writable() -> Iterator[None]:
    try:
        yield
    except DatabaseFull as error:
        raise StoreLost(str(error)) from error
