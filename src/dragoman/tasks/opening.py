"""Opens a store of tasks: `memory:`, `sqlite:PATH`, or `bus`, the store of the bus that the processes share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..jsonrpc.errors import LocalError
from ..store.opening import form_of
from .contract import DEFAULTS, LIFE, TaskLimits, TaskStore
from .encoding import Seal
from .own_file import make_folder

if TYPE_CHECKING:
    from ..store.database import Synchronous
    from .cells import SharedLogs
else:
    Synchronous = SharedLogs = Any  # start-up: annotations resolve at run time, to no more than this


PURPOSE: Final = b"dragoman.tasks"
"""What the secrets of sealed tasks are used for."""


class SharesLogs(Protocol):
    """The part of a `bus.Bus` that a store of tasks uses."""

    @property
    def url(self) -> str:
        """The URL without credentials."""

    @property
    def store(self) -> SharedLogs | None:
        """None if it stores nothing."""


def open_tasks(
    url: str,
    limits: TaskLimits = DEFAULTS,
    bus: SharesLogs | None = None,
    keys: Sequence[bytes] = (),
    *,
    life: float = LIFE,
    synchronous: Synchronous = "NORMAL",
) -> TaskStore:
    """Open the store that a URL names.

    `bus`: the `Bus` that the processes share, None without one. `keys`: secrets with which the records are encrypted,
    as `secret.read_secrets` returns them; without any they are not. `life`: seconds that a runner lives after a beat.
    `synchronous`: with "FULL" a file keeps what was stored also after a loss of power. Raises LocalError for another
    URL, for a file that cannot be opened, for a bus that stores nothing, and where what encrypts is not installed.
    """
    kind, path = form_of(url)
    seal: Seal | None = None
    if keys:
        from ..store.sealing import RecordSeal  # noqa: PLC0415  (an extra)

        seal = RecordSeal(keys, PURPOSE)
    if kind == "bus":
        if bus is None or bus.store is None:
            what = "there is no bus: give bus=, or serve with workers" if bus is None else f"{bus.url} stores nothing"
            raise LocalError(f"tasks on the bus: {what}; the others are memory: and sqlite:PATH")
        from .shared import BusTasks  # noqa: PLC0415  (an engine, imported when used)

        return BusTasks(bus.store, limits, life=life, seal=seal)
    from .sqlite import SqliteTasks  # noqa: PLC0415  (an engine, imported when used)

    if path:
        make_folder(path)
    return SqliteTasks(path or ":memory:", limits, life=life, synchronous=synchronous, seal=seal)
