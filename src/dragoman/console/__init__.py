"""What goes on in a server, for its operator: calls in flight, ended calls, series, errors, connections, and the page's
API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import door

if TYPE_CHECKING:
    from .address import ConsoleAddress, check_address, read_address
    from .asking import WorkerProcesses
    from .board import BY
    from .gathering import ConsoleSource, GatheredConsole, OwnConsole, Sums, report
    from .listing import ListedConsole, read_listed
    from .opening import open_console
    from .overview import Overview
    from .process import ROWS
    from .replicas import ask_replicas
    from .rows import Connections, EndedCall, KeptError, Machines, MethodRow
    from .series import SECONDS
    from .watching import Watching
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "asking": "WorkerProcesses",
            "board": "BY",
            "gathering": "ConsoleSource GatheredConsole OwnConsole Sums report",
            "listing": "ListedConsole read_listed",
            "opening": "open_console",
            "overview": "Overview",
            "address": "ConsoleAddress check_address read_address",
            "process": "ROWS",
            "replicas": "ask_replicas",
            "rows": "Connections EndedCall KeptError Machines MethodRow",
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
    "ConsoleAddress",
    "ConsoleSource",
    "EndedCall",
    "GatheredConsole",
    "KeptError",
    "ListedConsole",
    "Machines",
    "MethodRow",
    "Overview",
    "OwnConsole",
    "Sums",
    "Watching",
    "WorkerProcesses",
    "ask_replicas",
    "check_address",
    "open_console",
    "read_address",
    "read_listed",
    "report",
]
