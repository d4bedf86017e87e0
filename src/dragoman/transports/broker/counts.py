"""What a worker counts of the deliveries of its broker, for metrics."""

from __future__ import annotations

from typing import Final

from .contract import AGAIN, BrokerMessage, Outcome, number_in

_NAMES: Final[dict[Outcome, str]] = {
    "answered": "deliveries_answered_total",
    "nothing_owed": "deliveries_unanswered_total",
    "retry": "deliveries_requeued_total",
    "reject": "deliveries_rejected_total",
}


class DeliveryCounts:
    """The deliveries that were taken, and how they were settled."""

    __slots__ = ("_again", "_settled", "_taken", "outages")

    def __init__(self) -> None:
        self._taken = self._again = 0
        self._settled: dict[Outcome, int] = dict.fromkeys(_NAMES, 0)
        self.outages: int = 0
        """How often the broker was lost."""

    def take(self, message: BrokerMessage) -> None:
        """A delivery has come."""
        self._taken += 1
        if message.count or number_in(message.headers, AGAIN):
            self._again += 1

    def settle(self, message: BrokerMessage, outcome: Outcome) -> None:
        """Settle a delivery."""
        self._settled[outcome] += 1
        message.settle(outcome)

    def measures(self) -> dict[str, float]:
        """By the names of metrics."""
        found: dict[str, float] = {name: self._settled[outcome] for outcome, name in _NAMES.items()}
        return found | {
            "deliveries_total": self._taken,
            "redeliveries_total": self._again,
            "broker_outages_total": self.outages,
        }
