"""The boards of what is served in this process: what an operator may see and do there beside calls."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from ..jsonrpc.errors import RpcError
from ..observer import HasBoards
from ..repeats import Repeats
from ..store.contract import StoreLost
from .board import LONGEST, NOT_KILLED

repeats: Repeats = Repeats(logging.getLogger("dragoman"))


def boards_of(served: Mapping[str, object]) -> Iterable[object]:
    """Return the boards of what is served. One object may be served at several paths, and included in others: the
    boards of the former come once."""
    once = {id(one): one for one in served.values() if isinstance(one, HasBoards)}
    return (board for one in once.values() for board in one.boards())


def warn_away(what: str, server: str, error: StoreLost) -> str:
    """Write to the log that a server's tasks, or subscriptions, cannot be read now; return the server's name."""
    repeats.warning("%s of %s cannot be shown: %s", what, server, error)
    return server[:LONGEST]


@contextmanager
def reaching(what: str, server: str) -> Iterator[None]:
    """Raise RpcError where the store of a board is away that is used within. `what`: tasks, or subscriptions."""
    try:
        yield
    except StoreLost as error:
        repeats.warning("%s of %s cannot be reached: %s", what, server, error)
        raise RpcError.of(NOT_KILLED, f"the {what} of {server[:LONGEST]} cannot be reached now") from error
