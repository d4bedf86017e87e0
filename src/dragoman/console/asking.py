"""Who can be asked what goes on in a process: this one, and the workers of a supervisor."""

from __future__ import annotations

from typing import Protocol

from ..rpc.service import Service
from ..workers.supervisor import Supervisor

_DIGITS = 20
"""Characters of a process id."""


class Processes(Protocol):
    """Some processes, each with a key, that answer the methods of `process.worker_service`."""

    async def query(self, message: bytes, key: str | None = None) -> dict[str, bytes]:
        """Return the answers of all of them to a JSON-RPC message of one line, or of the one with that key, by key. An
        empty one is of a process that is known and does not answer in time. RpcError for a message that cannot be asked
        now."""


class OwnProcess:
    """This process."""

    def __init__(self, key: str, service: Service) -> None:
        self._key = key
        self._service = service

    def __repr__(self) -> str:
        return f"<OwnProcess {self._key}>"

    async def query(self, message: bytes, key: str | None = None) -> dict[str, bytes]:
        """Answer it here."""
        return {self._key: await self._service.answer_async(message) or b""} if key in (None, self._key) else {}


class WorkerProcesses:
    """The workers of a supervisor. A key is a process id."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def __repr__(self) -> str:
        return f"<WorkerProcesses of {self._supervisor!r}>"

    async def query(self, message: bytes, key: str | None = None) -> dict[str, bytes]:
        """Ask them over their control pipes; those that do not answer in time are left out."""
        if key is not None and not (key.isascii() and key.isdigit() and len(key) <= _DIGITS):
            return {}
        answers = await self._supervisor.query(message, None if key is None else int(key))
        return {f"{pid}": answer for pid, answer in answers.items()}
