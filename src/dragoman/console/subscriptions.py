"""The subscriptions to the events of what is served: where events are posted to, and how that goes.

Rules:

- Names that callers and receivers have chosen are cut. URLs and secrets are not there: a board has none.
- What chooses among the events is shown only where messages are, and masked as they are (`messages`).
- Each end and each retry is a line of the log "dragoman.audit".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from ..events.board import EventBoard, EventSubscription, SubscriptionState
from ..jsonrpc.errors import LocalError, RpcError
from ..rpc.tracing import SECRETS, masking
from ..store.contract import StoreLost
from .board import LONGEST, NOT_KILLED, log_act
from .boards import boards_of, reaching, warn_away
from .messages import WHOLE
from .rows import SubscriptionRows
from .views import merge_subscriptions

ROWS: Final = 200
"""Subscriptions in one answer at most."""
WORDS: Final = 5
"""Words that are sought at once: each is compared with every subscription."""
SOUGHT: Final = 500
"""Characters of those."""
ARGUMENTS: Final = 300
"""Characters of what chooses among the events."""
WHAT: Final = "subscriptions"
PLACE: Final = 300
"""Characters of a place: an event type and an id."""


class OperatedSubscriptions:
    """The subscriptions of what is served in this process. `served`: what that is now, by path; `arguments`: whether
    what chooses among the events is shown."""

    def __init__(self, served: Callable[[], Mapping[str, object]], *, arguments: bool) -> None:
        self._served = served
        self._arguments = arguments
        self._text = masking(SECRETS, whole=WHOLE)

    def _boards(self) -> Iterable[EventBoard]:
        boards = (one for one in boards_of(self._served()) if isinstance(one, EventBoard))
        return {(one.server, one.store): one for one in boards}.values()

    async def list_subscriptions(
        self, state: SubscriptionState | None, words: str, after: str, limit: int
    ) -> SubscriptionRows | None:
        """Return subscriptions in the order of their event types; None where nothing that is served has any. `words`:
        all are held by the id, type, receiver and caller; `after`: the place behind which the page begins."""
        pages: list[SubscriptionRows] = []
        check_place(after)
        sought = read_words(words)
        name, _, id = after.rpartition(" ")
        for board in self._boards():
            counts = board.count_events()
            try:
                page = board.list_subscriptions(state, sought, (name, id), min(limit, ROWS))
            except StoreLost as error:
                away = [warn_away(WHAT, board.server, error)]
                pages.append(SubscriptionRows(subscriptions=[], away=away, counts=counts))
                continue
            rows = [self._row(one) for one in page.subscriptions]
            last = page.subscriptions[-1:] if page.more else []
            pages.append(
                SubscriptionRows(
                    subscriptions=rows,
                    after=next((f"{one.name} {one.id}" for one in last), None),
                    kept={board.store: page.kept},
                    counts=counts,
                )
            )
        return merge_subscriptions(pages, min(limit, ROWS)) if pages else None

    async def end(self, id: str, by: str) -> None:
        """End a subscription. `by`: who does it, for the log. RpcError if there is none, or its store is away."""
        board, found = self._demand(id)
        with reaching(WHAT, board.server):
            ended = await board.end_subscription(id)
        if not ended:
            raise no_subscription(id)
        log_act("ended", by, _about(found))

    async def retry(self, id: str, by: str) -> None:
        """Try the event that its receiver did not accept again at once. `by` and the error as for `end`; RpcError also
        if there is no such event."""
        board, found = self._demand(id)
        with reaching(WHAT, board.server):
            retried = await board.retry_subscription(id)
        if not retried:
            raise RpcError.of(NOT_KILLED, f"subscription {id} waits for no other try: its receiver accepts its events")
        log_act("retried", by, _about(found))

    def _demand(self, id: str) -> tuple[EventBoard, EventSubscription]:
        for board in self._boards():
            with reaching(WHAT, board.server):
                found = board.find_subscription(id)
            if found is not None:
                return board, found
        raise no_subscription(id)

    def _row(self, one: EventSubscription) -> EventSubscription:
        shown = self._arguments and one.arguments not in ("{}", "")
        arguments = self._text(one.arguments.encode()) if shown else ""
        return replace(
            one,
            server=one.server[:LONGEST],
            receiver=one.receiver[:LONGEST],
            principal=one.principal[:LONGEST],
            issuer=one.issuer[:LONGEST],
            arguments=arguments if len(arguments) <= ARGUMENTS else f"{arguments[:ARGUMENTS]}...",
        )


def read_words(text: str) -> list[str]:
    """Return the words that are sought. Raises LocalError for too many."""
    words = text.split()
    if len(words) > WORDS or len(text) > SOUGHT:
        raise LocalError(f"at most {WORDS} words of {SOUGHT} characters together are sought at once")
    return words


def check_place(text: str) -> None:
    """Raise LocalError for what is no place behind which a page begins."""
    if len(text) > PLACE:
        raise LocalError(f"after is that of the page before, which has at most {PLACE} characters")


def no_subscription(id: str) -> RpcError:
    """The error for a subscription that there is not."""
    return RpcError.of(NOT_KILLED, f"no subscription {id[:LONGEST]} exists; it may have ended")


def _about(one: EventSubscription) -> dict[str, str]:
    return {
        "subscription": one.id,
        "service": one.server[:LONGEST],
        "event": one.name,
        "receiver": one.receiver[:LONGEST],
        "principal": one.principal[:LONGEST],
    }
