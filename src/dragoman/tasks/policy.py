"""How calls become tasks: the value of the option `task` of a service's method and of an MCP server's tool. Pure."""

from __future__ import annotations

from math import inf
from typing import Any, Final

from msgspec import Struct

from ..jsonrpc.errors import LocalError
from ..jsonrpc.options import FLAG, NONE, SECONDS, TIME, Rule, check, instance

LEAST_KEPT: Final = 60.0
"""Seconds for which a task that has ended is kept at least: a client that polls slowly must find its result."""
_FINITE: Final = Rule(lambda value: SECONDS.fits(value) and value < inf, SECONDS.words)
_KEEP: Final = Rule(lambda value: SECONDS.fits(value) and LEAST_KEPT <= value < inf, f"at least {LEAST_KEPT:g} seconds")
_POLL: Final = Rule(lambda value: SECONDS.fits(value) and 0.05 <= value <= 3600, "0.05 to 3600 seconds")
_RULES: Final = {
    "answer_within": _FINITE,
    "begin_after": _FINITE,
    "required": FLAG,
    "idempotent": FLAG,
    "keep": _KEEP,
    "timeout": TIME | NONE,
    "patience": TIME,
    "poll": _POLL,
}
_OF_TOOLS: Final = ("answer_within", "begin_after", "required", "patience")
"""The fields that only MCP has a use for."""


class TaskPolicy(Struct, frozen=True, kw_only=True):
    """How the calls of a method or a tool become tasks: `@api.method(task=TaskPolicy(...))`, `@app.tool(task=...)`;
    `task=True` is `TaskPolicy()`. Times are in seconds. Raises LocalError for values that do not fit."""

    idempotent: bool = False
    """Whether it may be run again, from the top, if its process is lost or ends. Otherwise such a task fails."""
    keep: float = 3600.0
    """How long a task is kept after its end; of MCP, unless its client requests a shorter time."""
    timeout: float | None = 3600.0
    """The time without progress after which a task fails, in place of the `timeout` of the method or tool; None: none.
    It stands still while a question waits for its answer."""
    poll: float = 1.0
    """The time that clients are told to wait between two looks at a task."""
    answer_within: float = 50.0
    """MCP: a client without tasks gets the tool's result if it is there within this time, otherwise a handle; so does
    each of its calls of `task_result`. Progress does not make it longer: most hosts wait 60 seconds in all. 0: a handle
    at once, and 50 seconds in `task_result`."""
    begin_after: float = 0.0
    """MCP: a call of a client with tasks becomes a task after this time: a tool that is done before, or asks before,
    answers like any other. 0: at once."""
    required: bool = False
    """MCP: whether clients without tasks are refused, as the revisions say; otherwise they get a result or a handle."""
    patience: float = 3600.0
    """MCP: how long a question may wait for its answer."""

    def __post_init__(self) -> None:
        check("TaskPolicy", _RULES, {name: getattr(self, name) for name in _RULES})


def policy_of(value: Any) -> TaskPolicy | None:
    """Return the policy that the option `task` states; None: its calls are no tasks."""
    return TaskPolicy() if value is True else value or None


OPTION: Final = FLAG | instance(TaskPolicy, "a TaskPolicy") | NONE
"""The rule of the option `task`."""
_DEFAULTS: Final = TaskPolicy()


def method_policy(name: str, value: Any, *, inline: bool) -> TaskPolicy | None:
    """Return the policy that the option `task` of a service's method states; None: its calls are no tasks. Raises
    LocalError for what is no policy, for a field of MCP, and for an inline function, which is quick."""
    check(name, {"task": OPTION}, {"task": value})
    policy = policy_of(value)
    if policy is None:
        return None
    if inline:
        raise LocalError(f"{name}: an inline function is quick, and needs no task: leave out task= or inline=True")
    for field in _OF_TOOLS:
        if getattr(policy, field) != getattr(_DEFAULTS, field):
            raise LocalError(
                f"{name}: {field} of a TaskPolicy is for tools of MCP; a method of a service has no use for it"
            )
    return policy
