"""PURE: what `dragoman top` shows of a look at a server, and what keys change of it: order, selection, pause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ..terminal import clean

SHOWN: Final = 20
"""Rows of each table; the rest is counted."""
Look: TypeAlias = dict[str, Any]
"""As the server answers `look`."""
Key: TypeAlias = Literal["up", "down"] | str
HELP: Final = "q quit   s sort   space pause   up, down select   k kill"

ORDERS: Final[dict[str, Callable[[Look, float], Any]]] = {
    "calls": lambda one, rate: -one["count"],
    "rate": lambda one, rate: -rate,
    "errors": lambda one, rate: -one["errors"],
    "p99": lambda one, rate: -one["p99"],
    "name": lambda one, rate: (one["service"], one["method"], one["name"]),
}
"""How methods are sorted, in the order in which `s` goes through them."""


class View:
    """What is shown, and what the user has chosen. `over`: the user wants to quit."""

    def __init__(self) -> None:
        self.over: bool = False
        self.paused: bool = False
        self.order: str = "calls"
        self.selected: str | None = None
        """The id of a call."""
        self.note: str = ""
        """The outcome of the last request."""
        self._asks: str | None = None
        self._seen: Look | None = None
        self._at = 0.0
        self._rates: dict[tuple[str, str, str], float] = {}

    def take(self, seen: Look, at: float) -> None:
        """A new look. `at`: when, in seconds of any clock."""
        before = self._seen
        if before is not None and at > self._at:
            counts = {_key(one): one["count"] for one in before["methods"]}
            self._rates = {
                _key(one): max(0.0, (one["count"] - counts.get(_key(one), 0)) / (at - self._at))
                for one in seen["methods"]
            }
        self._seen, self._at = seen, at
        if self.selected not in self._ids():
            self.selected = self._asks = None

    def press(self, key: Key) -> str | None:
        """Obey a key; returns the id of a call that is to be killed, if that is it."""
        if self._asks is not None:
            pending, self._asks = self._asks, None
            self.note = ""
            return pending if key == "y" else None
        self.note = ""
        if key == "q":
            self.over = True
        elif key == "s":
            names = list(ORDERS)
            self.order = names[(names.index(self.order) + 1) % len(names)]
        elif key == " ":
            self.paused = not self.paused
        elif key in ("up", "down"):
            self._move(1 if key == "down" else -1)
        elif key == "k":
            self._asks = self.selected
            self.note = "select a call first: up, down" if self.selected is None else ""
        return None

    def _move(self, step: int) -> None:
        ids = self._ids()
        if ids:
            at = ids.index(self.selected) + step if self.selected in ids else (0 if step > 0 else -1)
            self.selected = ids[at % len(ids)]

    def _ids(self) -> list[str]:
        return [] if self._seen is None else [one["id"] for one in self._seen["calls"][:SHOWN]]

    # -- the screen

    def screen(self, *, keys: bool = False) -> Group:
        """All of it. `keys`: say which keys there are."""
        seen = self._seen
        if seen is None:
            return Group()
        parts: list[Any] = []
        if seen["workers"]:
            parts += [_workers(seen), Text("")]
        parts += [_services(seen), *_tasks(seen), Text(""), self._calls(seen)]
        more = seen["more"] + max(0, len(seen["calls"]) - SHOWN)
        parts += [Text(f"and {more} more" if more else "", "dim"), self._methods(seen)]
        if len(seen["methods"]) > SHOWN:
            parts.append(Text(f"and {len(seen['methods']) - SHOWN} more", "dim"))
        return Group(*parts, *([Text(""), self._bottom()] if keys else []))

    def _bottom(self) -> Text:
        if self._asks is not None:
            return Text(f"kill call {clean(self._asks)}? y: yes, any other key: no", "bold yellow")
        words = ["paused"] if self.paused else []
        words += [self.note] if self.note else []
        return Text("   ".join([*words, f"sorted by {self.order}", HELP]), "dim")

    def _calls(self, seen: Look) -> Table:
        table = Table("id", "age", "service", "method", "wire", "caller", "state", title="calls in flight", box=None)
        for one in seen["calls"][:SHOWN]:
            method = " ".join(filter(None, (one["method"], one["name"])))
            caller = "known" if one["known"] else "anonymous"
            row = (one["id"], f"{one['age']:.1f} s", one["service"], method, one["wire"], caller, one["state"])
            _add(table, row, "reverse" if one["id"] == self.selected else "")
        return table

    def _methods(self, seen: Look) -> Table:
        heads = ("service", "method", "calls", "a second", "errors", "p50", "p95", "p99")
        table = Table(*heads, title="methods", box=None)
        order = ORDERS[self.order]
        for one in sorted(seen["methods"], key=lambda one: order(one, self._rates.get(_key(one), 0.0)))[:SHOWN]:
            rate = f"{self._rates.get(_key(one), 0.0):.1f}" if self._rates else ""
            method = " ".join(filter(None, (one["method"], one["name"])))
            times = [_time(one[name]) for name in ("p50", "p95", "p99")]
            _add(table, (one["service"], method, f"{one['count']}", rate, f"{one['errors']}", *times))
        return table


def _services(seen: Look) -> Table:
    heads = ("service", "channels", "sessions", "streams", "subscribers", "in flight", "queue", "wait p95")
    table = Table(*heads, title="services", box=None)
    names = ("channels", "sessions", "streams", "subscribers", "in_flight", "waiting")
    for one in seen["services"][:SHOWN]:
        _add(table, (one["service"], *(f"{one[name]:g}" for name in names), _time(one["wait_p95"])))
    return table


def _tasks(seen: Look) -> list[Text]:
    """How many tasks run, if any do."""
    running = seen["figures"].get("dragoman_tasks_running", 0)
    return [Text(f"{running:g} task{'' if running == 1 else 's'} running")] if running else []


def _workers(seen: Look) -> Table:
    heads = ("worker", "pid", "age", "state", "channels", "sessions", "in flight", "queue", "calls")
    table = Table(*heads, title="workers", box=None)
    names = ("channels", "sessions", "in_flight", "waiting", "ended")
    for one in seen["workers"][:SHOWN]:
        state = one["state"] if one["answers"] or one["state"] == "starting" else f"{one['state']}, no answer"
        counts = (f"{one[name]:g}" for name in names)
        _add(table, (f"{one['number']}", f"{one['pid']}", f"{one['age']:.0f} s", state, *counts))
    return table


def _add(table: Table, row: tuple[str, ...], style: str = "") -> None:
    table.add_row(*(Text(clean(cell)) for cell in row), style=style)


def _key(one: Look) -> tuple[str, str, str]:
    return one["service"], one["method"], one["name"]


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
