"""Asks a guard about a caller, within its time and for every wire alike."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from ..channel import Admitted, Denied, Guard, Handshake
from ..jsonrpc.codec import failure
from ..jsonrpc.errors import INTERNAL_ERROR, INVALID_REQUEST, RpcError
from ..jsonrpc.messages import NULL
from ..repeats import Repeats
from .urls import printable

log: logging.Logger = logging.getLogger("dragoman.wire")
repeats: Repeats = Repeats(log)

EXPIRED = Denied(reason="The admission has expired")
"""Why a caller whose `Admitted.expires` is past is turned away, and why its channel ends. A call that runs by then is
finished first, where the receiver of the channel does that (`LetsFinish`)."""


@runtime_checkable
class LetsFinish(Protocol):
    """A `channel.Receiver` that lets what runs finish when the admission of its channel expires."""

    def lapse(self) -> None:
        """Begin no call that comes from now on. Answer the calls that run, within a time of your own, and close the
        channel."""


def certificate_of(transport: asyncio.BaseTransport | None) -> tuple[Mapping[str, Any] | None, bytes | None]:
    """Return the caller's TLS certificate, as `Handshake.certificate` and `Handshake.certificate_der`."""
    found = None if transport is None else transport.get_extra_info("peercert")
    if transport is None or not found:  # {}: none was requested, or none was checked
        return None, None
    return found, transport.get_extra_info("ssl_object").getpeercert(binary_form=True)


async def decide(guard: Guard, handshake: Handshake, timeout: float | None, listener: str) -> Admitted | Denied:
    """Return the guard's decision about a caller. A guard that takes longer than `timeout` seconds denies with 503; one
    that raises or returns something else denies with 500 and a reference that is in the log. An admission that has
    already expired denies with 401. `listener`: the listener's name for the log."""
    try:
        async with asyncio.timeout(timeout):
            verdict = await guard(handshake)
        if not isinstance(verdict, Admitted | Denied):
            raise TypeError(f"a guard returns Admitted or Denied, not {type(verdict).__name__}")
    except TimeoutError:
        repeats.warning("%s: the guard did not decide within %s s", printable(listener), timeout)
        words = "Busy: the guard did not decide in time"
        return Denied(reason=words, status=503, headers=(("Retry-After", "1"),))
    except (Exception, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # our task is cancelled; otherwise it was a task of the guard's own
        reference = os.urandom(6).hex()
        log.error("%s: the guard raised, reference %s", printable(listener), reference, exc_info=error)
        return Denied(reason=f"Internal error; the reference is {reference}", status=500)
    if isinstance(verdict, Admitted) and verdict.expires is not None and verdict.expires <= time.time():
        return EXPIRED
    return verdict


def denial_error(denied: Denied) -> bytes:
    """Return a guard's denial as a JSON-RPC error without an id, for wires that have no status of their own."""
    code = INTERNAL_ERROR if denied.status >= 500 else INVALID_REQUEST
    return failure(NULL, RpcError.of(code, denied.reason, {"status": denied.status}))
