"""Several processes that serve together, and the supervisor that starts and watches them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import door

if TYPE_CHECKING:
    from .supervisor import run_workers
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "supervisor": "run_workers",
        },
    )
    del TYPE_CHECKING, annotations, door

__all__ = ["run_workers"]
