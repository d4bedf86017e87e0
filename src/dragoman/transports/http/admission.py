"""Asks the guard about an HTTP request by its head, before its body is read or a WebSocket accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ...channel import Admitted, Denied, Guard, Handshake
from ...net.guarding import decide
from .messages import Answer, Head
from .refusals import refusal


async def admitted(guard: Guard, handshake: Handshake, head: Head, timeout: float | None) -> Admitted | Answer:
    """The guard's decision about a request; if it denies, the answer."""
    verdict = await decide(guard, handshake, timeout, head.path)
    if isinstance(verdict, Denied):
        return refusal(head, verdict.status, verdict.reason, tuple(verdict.headers))
    return verdict


def handshake(
    head: Head,
    scheme: str,
    authority: bytes,
    fields: Sequence[tuple[bytes, bytes]],
    remote: str,
    certificate: object = None,
) -> Handshake:
    """What the guard sees of a request. `authority`: the Host, or the authority in the target."""
    target = head.target if head.target.startswith(b"/") else b"/" + head.target.partition(b"://")[2].partition(b"/")[2]
    return Handshake(
        scheme=scheme,
        method=head.method,
        url=f"{scheme}://{authority.decode('latin-1')}{target.decode('latin-1')}",
        headers=fields,
        remote=remote,
        certificate=certificate if isinstance(certificate, dict) and certificate else None,
    )


class Admission:
    """A guard that is deciding about one request; `decided` is called once `verdict` is set."""

    __slots__ = ("_task", "verdict")

    def __init__(
        self, guard: Guard, handshake: Handshake, head: Head, timeout: float | None, decided: Callable[[], None]
    ) -> None:
        self.verdict: Admitted | Answer | None = None

        def done(task: asyncio.Task[Admitted | Answer]) -> None:
            if not task.cancelled():
                self.verdict = task.result()
                decided()

        self._task = asyncio.get_running_loop().create_task(admitted(guard, handshake, head, timeout))
        self._task.add_done_callback(done)

    def cancel(self) -> None:
        """The decision is not needed any more."""
        self._task.cancel()
