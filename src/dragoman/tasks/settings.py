"""Where the tasks of a service are kept: the value of its option `tasks`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from ..jsonrpc.errors import LocalError
from ..jsonrpc.options import ANYTHING, NONE, TEXT, Rule, check, instance
from .contract import TaskLimits, TaskStore

STORE: Final = TEXT | Rule(lambda value: isinstance(value, TaskStore), "a TaskStore")
_RULES: Final = {
    "store": STORE | NONE,
    "keys": ANYTHING,
    "limits": instance(TaskLimits, "a TaskLimits"),
}


class TaskSettings(Struct, frozen=True, kw_only=True):
    """Where the tasks of a service are kept, and how many: `Service("lab", tasks=TaskSettings(...))`. Raises LocalError
    for values that do not fit."""

    store: str | TaskStore | None = None
    """"sqlite:PATH" (a file), "memory:" (this process, while it serves), "bus" (the store of the bus that replicas
    share), or a `TaskStore`. None: what `serve(tasks=...)` says, else memory."""
    keys: Sequence[str | bytes] | str | None = None
    """Secrets with which arguments and results are encrypted in the store: the first seals, and all open. None: the
    environment's DRAGOMAN_SECRET; (): they are not encrypted."""
    limits: TaskLimits = TaskLimits()
    """The bounds of the store."""

    def __repr__(self) -> str:  # without the keys
        return f"TaskSettings(store={self.store!r}, limits={self.limits!r})"

    def __post_init__(self) -> None:
        check("TaskSettings", _RULES, {name: getattr(self, name) for name in _RULES})


def settings_of(service: str, value: Any) -> TaskSettings:
    """Return the settings that the option `tasks` of a service states. Raises LocalError for what states none."""
    if isinstance(value, TaskSettings):
        return value
    if value is True:
        return TaskSettings()
    if STORE.fits(value):
        return TaskSettings(store=value)
    raise LocalError(
        f'Service {service!r}: tasks is True, where they are kept as in "sqlite:lab.db", a TaskStore, or a TaskSettings, '
        f"not {value!r:.60}"
    )
