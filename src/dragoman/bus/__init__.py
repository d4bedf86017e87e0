"""What processes that serve together share: a bus for messages and a store; `contract` has the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import door

if TYPE_CHECKING:
    from .contract import Bus, BusLost, Store, Subscription, open_bus
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "contract": "Bus BusLost Store Subscription open_bus",
        },
    )
    del TYPE_CHECKING, annotations, door

__all__ = ["Bus", "BusLost", "Store", "Subscription", "open_bus"]
