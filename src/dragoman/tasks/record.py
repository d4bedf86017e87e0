"""The record of a task: a call that goes on beyond its request, and what came of it. Pure.

A task is `working`, and may wait for answers (`input_required`) any number of times. It ends once, as `completed`,
`failed` or `cancelled`, and its record does not change after that. `rules` has the changes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Raw, Struct

if TYPE_CHECKING:
    OptionalRaw: TypeAlias = Raw | None
else:
    OptionalRaw = Raw  # msgspec does not decode Raw | None; it takes the default where a member is missing

Status: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]
ENDED: Final = frozenset({"completed", "failed", "cancelled"})
"""The states in which a task stays."""
NOBODY: Final = Raw(b"null")
"""The caller of a task that has none, or needs none any more."""


_ID: Final = re.compile(r"[!-~]{1,200}")


def is_id(text: str) -> bool:
    """Whether a task can have this id: characters of ASCII without spaces, at most 200."""
    return _ID.fullmatch(text) is not None


class TaskRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is known of a task. Times are Unix seconds by the clock of its store."""

    id: str
    """Its name, which nobody can guess; `is_id` holds for it."""
    server: str
    """The name of the server or service that runs it."""
    method: str
    """The method of its request."""
    name: str = ""
    """The tool that it calls; "" for a method of a service."""
    owner: str = ""
    """Whose it is: a digest of the caller's principal; "": of whoever knows its id."""
    status: Status = "working"
    """Its state."""
    message: str = ""
    """What is to be said about its state, for people and models."""
    created: float
    """When it was begun."""
    updated: float
    """When its status, message or progress changed last."""
    keep: float | None = None
    """Seconds from `created` until it may be deleted; None: it is kept."""
    poll: float = 1.0
    """Seconds that a client should let pass between two looks at it."""
    answer_within: float = 50.0
    """Seconds that a call of a client without tasks waits for its result; of MCP alone."""
    params: Raw
    """The params of its request."""
    caller: Raw = NOBODY
    """Its caller's identity, with which it is run again."""
    revision: str = ""
    """The revision of MCP of its request; "" for a service."""
    progress: float | None = None
    """How far it is, in units of its function."""
    total: float | None = None
    """How far it is at its end."""
    reported: OptionalRaw = None
    """The last progress of a service's method, which may be any JSON value."""
    questions: dict[str, Raw] = {}
    """The questions that wait for an answer, by keys that never repeat in this task."""
    answers: dict[str, Raw] = {}
    """The answers that its runner has not taken yet, by the keys of their questions."""
    result: OptionalRaw = None
    """The result of its request, if it is completed."""
    error: OptionalRaw = None
    """The error object of its request, if it failed."""
    idempotent: bool = False
    """Whether its function may be run again after its runner was lost; also while it waits for its first run."""
    runs: int = 1
    """How often its function was begun, not counting those after it was handed over."""
    runner: str = ""
    """The runner that has it now; "": none, it waits for one."""
    cancelling: bool = False
    """Whether somebody has requested its cancellation."""

    @property
    def ended(self) -> bool:
        """Whether it is completed, failed or cancelled."""
        return self.status in ENDED

    @property
    def until(self) -> float | None:
        """When it may be deleted; None: never."""
        return None if self.keep is None else self.created + self.keep

    @property
    def calls_runner(self) -> bool:
        """Whether its runner has to look at it: answers have come, or it is to be cancelled."""
        return not self.ended and (self.cancelling or bool(self.answers))
