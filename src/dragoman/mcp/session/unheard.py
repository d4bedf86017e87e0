"""Questions whose client may have gone: their calls are ended once no client can answer them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import TypeAlias

from ...channel import Ended
from ...rpc.channel_peer import ChannelPeer
from ...rpc.deadlines import GRAIN
from ...rpc.inbound import InboundCall
from ...rpc.outbound import OutboundCall
from ...rpc.runner import Runner

logger: logging.Logger = logging.getLogger("dragoman.mcp")

Waiting: TypeAlias = Iterable[tuple[float, OutboundCall | None]]
"""Since when each stream has no reader, on the monotonic clock, with each question on it, or with None."""


class Unheard:
    """The sessions of one table that have streams without a reader.

    A client that loses its connection may come back for the stream with the question, so the call waits. Once the
    stream can no longer be resumed (`HttpOptions.resume`), nobody can answer the question or fetch the answer of its
    call: the call is ended, without an error, and its slot is free at once. A server that has no slot left ends the
    oldest such call early rather than refuse a new one. `seconds`: how long a stream can be resumed.
    """

    def __init__(self, host: Runner, seconds: float) -> None:
        self._host = host
        self._seconds = seconds
        self._sessions: dict[ChannelPeer, Callable[[], Waiting]] = {}
        """The function that yields the waiting questions of each session, by its peer."""

    def add(self, peer: ChannelPeer, waiting: Callable[[], Waiting]) -> None:
        """Watch a session whose reader has gone, or that has a question without a reader."""
        if not self._sessions:
            self._host.clock.set(self, self._seconds)
            self._host.call_limit.spares.append(self.end_oldest)
        self._sessions[peer] = waiting

    def discard(self, peer: ChannelPeer) -> None:
        """Forget a session that is over."""
        if self._sessions.pop(peer, None) is not None and not self._sessions:
            self._close()

    def expired(self) -> None:
        """End the questions that have waited for too long, and set the clock for the next."""
        now = monotonic()
        first = now
        for peer, waiting in tuple(self._sessions.items()):
            waits = False
            for since, question in tuple(waiting()):
                if question is not None and since + self._seconds <= now + GRAIN:
                    _end(peer, question)
                elif since + self._seconds > now + GRAIN:
                    waits, first = True, min(first, since)
                else:  # there is no question yet
                    waits = True
            if not waits:
                del self._sessions[peer]
        if self._sessions:
            self._host.clock.set(self, max(first + self._seconds - now, self._seconds / 4))
        else:
            self._close()

    def end_oldest(self) -> bool:
        """End the question that has waited longest without a reader; False if there is none."""
        for peer, waiting in self._sessions.items():
            questions = [(since, question) for since, question in waiting() if question is not None]
            if questions:
                _end(peer, min(questions, key=lambda pair: pair[0])[1])
                return True
        return False

    def _close(self) -> None:
        self._host.clock.drop(self)
        if self.end_oldest in self._host.call_limit.spares:
            self._host.call_limit.spares.remove(self.end_oldest)


def _end(peer: ChannelPeer, question: OutboundCall) -> None:
    """End a question, and the calls that wait for it."""
    logger.debug("session of %s: %s cannot be answered any more", peer.caller.remote, question.method)
    peer._conversation.forget(question.id)
    for run in tuple(_waiting_calls(peer, question)):
        run.abandon()
    question.fail(Ended("the client has gone that was to answer"))


def _waiting_calls(peer: ChannelPeer, question: OutboundCall) -> Iterator[InboundCall]:
    for run in peer._conversation.inbound.values():
        if run.asks and run.reply_stream == question.reply_stream:
            yield run
