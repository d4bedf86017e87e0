"""What goes on in a server, for its operator: calls in flight, ended calls, series, errors, connections, and the page's
API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import door

if TYPE_CHECKING:
    from .board import BY
    from .gathering import ConsoleSource, OwnConsole, Sums, WorkersConsole, report
    from .listing import ListedConsole, read_listed
    from .opening import check_place, open_console
    from .overview import Overview
    from .place import Place, read_place
    from .process import ROWS
    from .rows import Connections, EndedCall, KeptError, Machine, MethodRow
    from .series import SECONDS
    from .watching import Watching
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "board": "BY",
            "gathering": "ConsoleSource OwnConsole Sums WorkersConsole report",
            "listing": "ListedConsole read_listed",
            "opening": "check_place open_console",
            "overview": "Overview",
            "place": "Place read_place",
            "process": "ROWS",
            "rows": "Connections EndedCall KeptError Machine MethodRow",
            "series": "SECONDS",
            "watching": "Watching",
        },
    )
    del TYPE_CHECKING, annotations, door

__all__ = [
    "BY",
    "ROWS",
    "SECONDS",
    "Connections",
    "ConsoleSource",
    "EndedCall",
    "KeptError",
    "ListedConsole",
    "Machine",
    "MethodRow",
    "Overview",
    "OwnConsole",
    "Place",
    "Sums",
    "Watching",
    "WorkersConsole",
    "check_place",
    "open_console",
    "read_listed",
    "read_place",
    "report",
]
