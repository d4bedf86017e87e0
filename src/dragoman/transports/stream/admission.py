"""The guard on the listeners of TCP, TLS and Unix sockets: it decides about each channel after its handshake.

Rules:

- The guard sees where the caller comes from, its TLS certificate and, on a Unix socket, its process as the kernel knows
  it.
- Nothing of the conversation is read before the guard has decided; what comes meanwhile stays in the system's buffers,
  and in TLS's, which are bounded.
- What the guard decides about counts among `limits.channels`, as handshakes do, and it has `limits.guard_timeout`.
- A caller that it denies gets one JSON-RPC error without an id and the end of the channel; one that is admitted for a
  time gets the same when that is over and what runs by then is finished.
- What a caller can cause at will is one escaped line at debug level.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from ...channel import Admitted, ChannelError, Closed, Denied, Guard, Handshake, Outgoing, UnixCredentials
from ...jsonrpc.messages import Malformed
from ...net.guarding import EXPIRED, certificate_of, decide, denial_error
from ...net.reconnect import BackgroundTasks
from ...net.urls import printable
from ...observer import Rejection
from ...system.sockets import peer_process
from .channel import StreamChannel

log: logging.Logger = logging.getLogger("dragoman.wire")


class DroppingReceiver:
    """A `Receiver` for a caller that is turned away: what it sends is dropped."""

    def received(self, message: bytes, call: Outgoing | None = None) -> None: ...

    def refused(self, malformed: Malformed) -> None: ...

    def resumed(self) -> None: ...

    def finished(self) -> None: ...

    def ended(self, why: ChannelError) -> None: ...


class Admissions:
    """The guard of one listener: the channels that it decides about, and those that it has admitted for a time.

    `attach` takes a channel that is admitted. `url`: the listener's, for the guard and the log. `rejected`: as
    `Options.rejected`.
    """

    def __init__(
        self,
        guard: Guard,
        timeout: float | None,
        url: str,
        attach: Callable[[StreamChannel], None],
        rejected: Callable[[Rejection], object] | None = None,
    ) -> None:
        self._rejected = rejected
        self._guard = guard
        self._timeout = timeout
        self._url = url
        self._attach = attach
        self._deciding: dict[StreamChannel, asyncio.Task[Admitted | Denied]] = {}
        self._expiring: dict[StreamChannel, asyncio.TimerHandle] = {}
        self._ends = BackgroundTasks(url)

    def ask(self, channel: StreamChannel, transport: asyncio.Transport) -> None:
        """Ask the guard about a channel whose wire has come, and do what it says."""
        caller = channel.caller
        certificate, der = certificate_of(transport)
        handshake = Handshake(
            scheme=caller.scheme,
            url=self._url,
            remote=caller.remote,
            certificate=certificate,
            certificate_der=der,
            credentials=_credentials(transport) if caller.scheme == "unix" else None,
        )
        deciding = decide(self._guard, handshake, self._timeout, self._url)
        self._deciding[channel] = task = asyncio.get_running_loop().create_task(deciding)
        task.add_done_callback(partial(self._decided, channel))

    def _decided(self, channel: StreamChannel, task: asyncio.Task[Admitted | Denied]) -> None:
        if self._deciding.pop(channel, None) is None or task.cancelled():
            return  # it has gone, or the listener was closed, or the loop ends
        verdict = task.result()
        if isinstance(verdict, Denied):
            channel.open(DroppingReceiver())
            self._turn_away(channel, verdict)
        else:
            self._admit(channel, verdict)

    def _admit(self, channel: StreamChannel, admitted: Admitted) -> None:
        channel.caller = replace(channel.caller, identity=admitted.identity)
        if admitted.expires is not None:
            left = max(0.0, admitted.expires - time.time())
            self._expiring[channel] = asyncio.get_running_loop().call_later(left, self._expired, channel)
        self._attach(channel)

    def _expired(self, channel: StreamChannel) -> None:
        """End a channel whose admission has expired as one that is turned away, once what runs has finished."""
        del self._expiring[channel]
        why = Closed(f"{channel.caller.remote} turned away: {EXPIRED.reason}")
        if channel.lapse(denial_error(EXPIRED), why):
            self._report(channel, EXPIRED)
        else:
            self._turn_away(channel, EXPIRED)

    def _turn_away(self, channel: StreamChannel, denied: Denied) -> None:
        """Send the reason and end the channel; what is queued before it is still sent."""
        self._report(channel, denied)
        self._ends.begin(
            channel.end(denial_error(denied), Closed(f"{channel.caller.remote} turned away: {denied.reason}"))
        )

    def _report(self, channel: StreamChannel, denied: Denied) -> None:
        """Report to the observers and the log that a channel is turned away."""
        if self._rejected is not None:
            caller = replace(channel.caller, identity=None)
            self._rejected(Rejection(kind="denied", reason=denied.reason, place=self._url, caller=caller))
        log.debug("%s: %s turned away: %s", self._url, channel.caller.remote, printable(denied.reason))

    def left(self, channel: StreamChannel) -> None:
        """Forget a channel that is over."""
        if (deciding := self._deciding.pop(channel, None)) is not None:
            deciding.cancel()
        if (expiring := self._expiring.pop(channel, None)) is not None:
            expiring.cancel()

    def close(self) -> None:
        """Close the channels that are not admitted yet: the listener closes."""
        for channel in tuple(self._deciding):
            self.left(channel)
            channel.abort(Closed("The listener was closed before the guard had decided"))

    async def closed(self) -> None:
        """Wait until the channels that were turned away are gone."""
        await self._ends.wait(None)


def _credentials(transport: asyncio.Transport) -> UnixCredentials | None:
    """Return the process at the far end; None where the system does not name it."""
    found = peer_process(transport.get_extra_info("socket"))
    return None if found is None else UnixCredentials(*found)
