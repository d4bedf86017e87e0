"""The contract of stores that keep tasks.

Rules that every store keeps:

- What `create` and `change` return for is kept: after a `kill -9` of any process, and by the engine's promise also
  after a loss of power.
- `change` is one step, also where several processes change the same task: no change is lost, and a task that has ended
  is never changed.
- A runner is a process that runs tasks. It lives for `life` seconds after each `beat`, by the clock of the store. Tasks
  of a runner that lives no more are orphans, which another runner `claim`s; no two runners get the same one.
- A task is deleted after its time (`TaskRecord.until`), and not before. One that still runs then is failed first.
- Tasks are bounded in number and bytes, in all and for each owner (`TaskLimits`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from msgspec import Raw, Struct

from ..jsonrpc.errors import CallRefused, Refusal
from .record import Status, TaskRecord

Edit: TypeAlias = Callable[[TaskRecord], TaskRecord | None]
"""Returns the changed record, or None to leave it. It is pure: it may be called again with a newer record, and from
another thread. A task keeps its id, owner and server."""


class TasksFull(CallRefused):
    """A task has no room in its store; the text names the limit. The refusal is "busy" where all tasks together are
    too many, else "too_large"."""

    def __init__(self, text: str, *, busy: bool = False) -> None:
        super().__init__(Refusal("busy" if busy else "too_large", text))


class TaskLimits(Struct, frozen=True, kw_only=True):
    """The bounds of a store of tasks."""

    tasks: int = 100_000
    """Tasks in all."""
    tasks_each: int = 1_000
    """Tasks of one owner; those without an owner count together, and may be half of all."""
    record_size: int = 16 * 1024 * 1024
    """Bytes of one record: its arguments, questions, answers and result."""
    total: int = 1024 * 1024 * 1024
    """Bytes of all records."""
    total_each: int = 128 * 1024 * 1024
    """Bytes of the records of one owner; those without an owner may have half of all."""


DEFAULTS: Final = TaskLimits()
LIFE: Final = 3.0
"""Seconds for which a runner lives after a beat: who looks every second or two notices an orphan within 5 s."""


class ClaimedTask(Struct, frozen=True):
    """An orphan that a runner has now. `before`: the runner that was lost, "" where it was handed over."""

    record: TaskRecord
    before: str


@runtime_checkable
class KeepsTasks(Protocol):
    """A served object whose calls may go on as tasks."""

    def keep_tasks_at(self, url: str | None, bus: Any = None) -> None:
        """Keep tasks in the store at this URL from the next start on (None: as it says itself, else in memory), and
        tell their changes on this bus."""


@runtime_checkable
class TaskStore(Protocol):
    """Keeps tasks. Every method raises StoreLost while its engine is away."""

    life: float
    """Seconds for which a runner lives after a beat."""

    async def now(self) -> float:
        """The Unix time by the store's clock, which never goes back."""

    async def create(self, record: TaskRecord) -> None:
        """Keep a new task. Raises TasksFull, LocalError for an id that another has."""

    async def read(self, id: str) -> TaskRecord | None:
        """Return a task; None where there is none, or its time is over."""

    async def change(self, id: str, edit: Edit) -> TaskRecord | None:
        """Change a task in one step, unless it has ended; return it as it is then. None where there is none. Raises
        TasksFull, and what `edit` raises."""

    async def list_tasks(self, owner: str, after: str, limit: int) -> list[TaskRecord]:
        """Return tasks of an owner, the newest first, those that follow the task `after` ("": from the first). There
        are none where that is not there."""

    async def list_recent(
        self, server: str, before: float | None, limit: int, *, ended: bool | None = None
    ) -> list[TaskRecord]:
        """Return tasks of a server, of all owners, the newest first: those that were created before this time (None:
        from the newest on), with `ended` those alone that have ended (True) or have not (False). There may be fewer
        than `limit`, since a store reads some MiB at once at most; but none only if none are left."""

    async def beat(self, runner: str) -> list[TaskRecord]:
        """Let a runner live for `life` seconds more; return those of its tasks that call it
        (`TaskRecord.calls_runner`)."""

    async def leave(self, runner: str, handed_over: tuple[str, ...] = ()) -> None:
        """End a runner. These of its tasks wait for another one now; the others are orphans at once."""

    async def claim(self, runner: str, server: str, limit: int) -> list[ClaimedTask]:
        """Give this runner orphans of its server, at most `limit`, and return them. It lives on as after a beat: its
        own tasks are never among them."""

    async def sweep(self, limit: int) -> int:
        """Delete tasks whose time is over, at most `limit`; return their number. One that still runs is failed, and
        deleted by a later sweep."""

    def measures(self) -> Mapping[str, float]:
        """Return numbers for metrics, by name."""

    async def close(self) -> None:
        """Release what it holds."""


class RecentTasks(Struct, frozen=True):
    """Tasks, the newest first. `before`: from where those follow that are older; None: there are none."""

    records: list[TaskRecord]
    before: float | None = None


@runtime_checkable
class TaskBoard(Protocol):
    """The tasks of one server or service, of all its callers, for its operator. Whoever shows it decides what of a
    record may be seen. Every method raises StoreLost while the store is away."""

    server: str
    """The name in the records."""
    runner: str
    """The name of the runner of this process."""

    async def list_recent(self, status: Status | None, before: float | None, limit: int) -> RecentTasks:
        """Return tasks that have this status (None: any), the newest first, created before this time (None: from the
        newest on). There may be fewer than `limit`, even none, where older ones follow."""

    async def find(self, id: str) -> TaskRecord | None:
        """Return a task; None where there is none of this server."""

    async def cancel(self, id: str) -> None:
        """Request the cancellation of a task, wherever it runs."""

    async def answer(self, id: str, answers: Mapping[str, Raw]) -> None:
        """Give answers to questions of a task, by their keys; those that do not wait are ignored. Raises TasksFull."""
