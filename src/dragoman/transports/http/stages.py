"""The stages of a connection of the native server: what it waits for, how long, and what happens at the deadline."""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec import Struct

from ...jsonrpc.limits import Limits
from .parse import BODY, HEAD
from .parts import Connection
from .refusals import turned_away
from .responses import ResponseWriter

log: logging.Logger = logging.getLogger("dragoman.http")

NEVER = float("inf")
LINGER = 2.0
"""Seconds for which bytes behind a final answer are read and dropped."""
PROBES = 2
"""How often a far end that has closed its sending side is probed."""
NO_LOOK_YET = 1 << 62
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Stage(Struct, frozen=True):
    """What a connection waits for."""

    seconds: Callable[[Limits], float | None]
    """Seconds, from the limits; None: no deadline."""
    expired: Callable[[Connection], None]
    """Called at the deadline."""


def stage_of(connection: Connection) -> int:
    """The stage of a connection at the end of a wake-up."""
    if connection.full:
        return UNREAD
    state, waiting = connection.state, connection.waiting
    if waiting:
        if state == BODY and waiting.wants_body:
            return IN_BODY
    elif state == HEAD:
        return IN_HEAD
    elif state == BODY:
        return IN_BODY
    if connection.owed or waiting:
        return PROBING if connection.eof and connection.probes < PROBES else AT_WORK
    return IDLE


def probe(connection: Connection) -> None:
    """Find out whether the far end has closed both sides: then the second probe fails."""
    connection.probes += 1
    turn = connection.owed[0] if connection.owed else None
    if turn is not None:
        head = turn.head
    elif connection.waiting:
        head = connection.waiting.first.head
    else:
        return
    if connection.transport is None:
        return
    if not head.old and (turn is None or not turn.begun):
        connection.transport.write(CONTINUE)
    elif isinstance(turn, ResponseWriter) and turn.doubted is not None:
        turn.doubted()


def _nothing(connection: Connection) -> None:
    """There is no deadline."""


def _close(connection: Connection) -> None:
    connection.close()


def _late_head(connection: Connection) -> None:
    connection.refuse(turned_away(408, "The head took longer than limit header_timeout allows"))


def _late_body(connection: Connection) -> None:
    head = None if connection.parser is None else connection.parser.under_way
    connection.refuse(turned_away(408, "The body took longer than limit body_timeout allows"), head)


def _probed(connection: Connection) -> None:
    connection.enter(PROBING if connection.probes < PROBES else AT_WORK)


def _unread(connection: Connection) -> None:
    """Close the connection if the far end has read nothing since the last check."""
    transport = connection.transport
    assert transport is not None  # otherwise there is no deadline
    unsent = transport.get_write_buffer_size()
    if unsent >= connection.unsent:
        log.debug("%s reads nothing: cut off", connection.remote)
        transport.abort()
    else:
        connection.unsent = unsent
        connection.enter(connection.stage)


NOTHING, IDLE, IN_HEAD, IN_BODY, AT_WORK, UNREAD, LINGERING, PROBING, FLUSHING = range(9)

STAGES: tuple[Stage, ...] = (
    Stage(lambda limits: None, _nothing),  # NOTHING: the wake-up is not over
    Stage(lambda limits: limits.idle_timeout, _close),  # IDLE: no request has begun
    Stage(lambda limits: limits.header_timeout, _late_head),  # IN_HEAD
    Stage(lambda limits: limits.body_timeout, _late_body),  # IN_BODY
    Stage(lambda limits: None, _nothing),  # AT_WORK: calls and the guard have clocks of their own
    Stage(lambda limits: None, _nothing),  # UNREAD: the far end does not read its answers, which `SendWatch` times
    Stage(lambda limits: LINGER, _close),  # LINGERING: what still comes behind the last answer is dropped
    Stage(lambda limits: 0.0, _probed),  # PROBING: a far end that sends nothing more may have gone
    Stage(lambda limits: limits.write_timeout, _unread),  # FLUSHING: the last bytes leave
)
"""By the number of the stage."""
