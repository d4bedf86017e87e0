"""A call of an MCP server as a task: its questions wait in its record, or reach the client while it waits."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NoReturn

from msgspec import Raw

from ....rpc.detached import DetachedCall
from ....rpc.method import LongResult
from ....tasks.policy import TaskPolicy
from ....tasks.runner import RunningTask, TaskRunner
from ...asking.ask import Asker, AskParked, Rounds, asker_by
from ...protocol.encoding import encode
from ...protocol.errors import ToolError
from ...protocol.params import InputRequest, InputRequiredResult
from ...protocol.revisions import Revision


class ToolTask(RunningTask):
    """A task of a tool, or a call that may become one. It is the `Asker` of its call. `revision`: that of the call;
    `again`: it was begun before."""

    def __init__(
        self, runner: TaskRunner, id: str, policy: TaskPolicy, revision: Revision, keep: float, again: bool = False
    ) -> None:
        super().__init__(runner, id, keep=keep, patience=policy.patience, idempotent=policy.idempotent)
        self.policy: TaskPolicy = policy
        self._revision = revision
        self._parked = AskParked(self._park)
        self._run = f"-{secrets.token_hex(4)}" if again else ""
        """Ends the keys of its questions: those of a run before were other questions ("MUST NOT use the same key to
        refer to two distinct requests over a task's lifetime", ext-tasks, "Task Update Requests")."""

    def _asker(self) -> Asker:
        return self._parked if self.kept else asker_by(self._revision)

    def rounds(self, context: Any, questions: Sequence[Any], once: bool | None, timeout: float | None) -> Rounds:
        """Ask as the revision does, or once the task is kept, in its record."""
        return (yield from self._asker().rounds(context, questions, once, timeout))

    def require_url(self, context: Any, questions: Sequence[Any]) -> NoReturn:
        """End the call as the revision does, if it is no task yet."""
        self._asker().require_url(context, questions)

    def seal_result(self, result: InputRequiredResult, admitted: Any) -> InputRequiredResult:
        """Return a result with questions, if the call is no task yet."""
        return self._asker().seal_result(result, admitted)

    async def _park(self, requests: dict[str, InputRequest]) -> Mapping[str, Raw]:
        """Put questions into the record, and return their answers. Raises ToolError if nobody answers in time."""
        questions = {key + self._run: Raw(encode(one, self._revision)) for key, one in requests.items()}
        try:
            answers = await self.ask(questions, _waiting(requests))
            return {key: answers[key + self._run] for key in requests}
        except TimeoutError:
            raise ToolError(f"nobody answered its question within {self.patience:g} seconds") from None


class ToolCall:
    """The call of a tool whose result is taken as JSON text: an `OngoingCall`."""

    def __init__(self, call: DetachedCall) -> None:
        self._call = call

    @property
    def result(self) -> Awaitable[Any]:
        """The result as JSON text; raises what the call raises."""
        return self._text()

    async def _text(self) -> Raw:
        value = await self._call.result
        return Raw(value.as_text() if isinstance(value, LongResult) else value)

    def cancel(self) -> None:
        """End it."""
        self._call.cancel()


def _waiting(requests: Mapping[str, InputRequest]) -> str:
    """Return what is said of a task that waits for answers."""
    asked = [str(text) for one in requests.values() if (text := getattr(getattr(one, "params", None), "message", ""))]
    return "waits for an answer" + (f": {'; '.join(asked)}" if asked else "")
