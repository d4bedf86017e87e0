"""Passes a server's notifications on: to caches, subscriptions, and the functions of extensions and the user.

Notifications are passed on in order, on the loop. A function that fails is logged; an async one runs as a task, and the
next notification does not wait for it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...jsonrpc.leniency import STRICT, Leniency
from ...repeats import Repeats
from ..protocol.encoding import decode
from ..protocol.lenient import without_nulls
from ..protocol.methods import METHODS, Row
from ..protocol.params import (
    ElicitationCompleteNotificationParams,
    LoggingMessageNotificationParams,
    ProgressNotificationParams,
)
from ..protocol.uri import normal
from .cache import Cache
from .multi_round_trip import UrlElicitations
from .options import OnProgress
from .subscriptions import ACKNOWLEDGED, CANCELLED, LISTS, UPDATED, ClientSubscriptions
from .tools import KnownTools

logger: logging.Logger = logging.getLogger("dragoman.mcp")
repeats: Repeats = Repeats(logger)

OnLog: TypeAlias = Callable[[LoggingMessageNotificationParams], object]
OnNotification: TypeAlias = Callable[[str, dict[str, Any]], object]
"""Called with the method and the params of every notification except progress."""

_STALE = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}
PROGRESS = "notifications/progress"
HEARING = 1_000
"""Async functions for notifications that run at once for one client, those of extensions and those of the user each: a
server may send notifications faster than these end. Beyond that a notification is dropped, with a warning in the
log."""
_LISTENED = frozenset({*LISTS, UPDATED, ACKNOWLEDGED, CANCELLED})


class _Uri(Struct):
    uri: str | None = None


class NotificationRouter:
    """Passes the notifications of a server on to all who need them. `rows`: the known methods, by name."""

    hear: Callable[[str, Raw | UnsetType], None]
    """Called with every notification that is not the protocol's own."""
    progressed: Callable[[Raw], bool]
    """Called with the params of progress that belongs to no call in flight; returns whether it was of a call that an
    extension settles."""

    def __init__(
        self,
        cache: Cache,
        tools: KnownTools,
        subscriptions: ClientSubscriptions,
        url_elicitations: UrlElicitations,
        on_log: OnLog | None,
        on_notification: OnNotification | None,
        lenient: Leniency = STRICT,
        rows: Mapping[str, Row] = METHODS,
    ) -> None:
        self._null_params = lenient.null_params
        self._rows = rows
        self._cache = cache
        self._tools = tools
        self._subscriptions = subscriptions
        self._url_elicitations = url_elicitations
        self._on_log = on_log
        self._on_notification = on_notification
        self._running: set[asyncio.Future[Any]] = set()
        """What the user's async functions do."""

    def route(self, method: str, params: Raw | UnsetType) -> None:
        """Pass a notification on. One that does not fit is logged and ignored."""
        try:
            self._take(method, params)
        except (msgspec.DecodeError, RecursionError) as error:
            logger.debug("%s cannot be read: %s", method, error)

    def _take(self, method: str, params: Raw | UnsetType) -> None:
        if self._null_params and params is not UNSET and (row := self._rows.get(method)) is not None:
            params = without_nulls(params, row.params)
        for stale in _STALE.get(method, ()):
            self._cache.drop(stale)
        if method == "notifications/tools/list_changed":
            self._tools.changed()
        elif method == UPDATED and params is not UNSET:
            uri = decode(params, _Uri).uri
            self._cache.drop("resources/read", None if uri is None else normal(uri))
        if method in _LISTENED:
            self._subscriptions.take(method, params)
        elif method == "notifications/message" and self._on_log is not None and params is not UNSET:
            call_among(self._running, method, self._on_log, decode(params, LoggingMessageNotificationParams))
        elif method == "notifications/elicitation/complete" and params is not UNSET:
            self._url_elicitations.done(decode(params, ElicitationCompleteNotificationParams).elicitation_id)
        elif method == PROGRESS and params is not UNSET and self.progressed(params):
            return
        elif method not in METHODS:
            self.hear(method, params)
        if self._on_notification is not None:
            given = {} if params is UNSET else msgspec.json.decode(params)
            call_among(self._running, method, self._on_notification, method, given)


def call_among(
    running: set[asyncio.Future[Any]], method: str, function: Callable[..., object], *arguments: Any
) -> None:
    """Call a function for a notification, unless `HEARING` others among these still run. Raises nothing."""
    if len(running) >= HEARING:
        repeats.warning("%s was dropped: %d functions for notifications still run", method, HEARING)
        return
    future = call_function(function, *arguments)
    if future is not None:
        running.add(future)
        future.add_done_callback(running.discard)


_running: set[asyncio.Future[Any]] = set()


def call_function(function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any] | None:
    """Call a user's function; what an async one returns is run as a task, which is returned. Raises nothing."""
    try:
        found = function(*arguments)
    except Exception:
        repeats.error("%r failed", function, exc_info=True)
        return None
    if not inspect.isawaitable(found):
        return None
    future: asyncio.Future[Any] = asyncio.ensure_future(found)
    _running.add(future)
    future.add_done_callback(_finished)
    return future


def _finished(future: asyncio.Future[Any]) -> None:
    _running.discard(future)
    if not future.cancelled() and (error := future.exception()) is not None:
        repeats.error("a function for notifications failed", exc_info=error)


def progress_receiver(receiver: OnProgress) -> Callable[[Any], None]:
    """Return a function that decodes the params of a call's progress notifications and calls `receiver`."""

    def step(progress: Any) -> None:
        try:
            found = msgspec.convert(progress, ProgressNotificationParams)
        except msgspec.ValidationError as error:
            logger.debug("notifications/progress cannot be read: %s", error)
            return
        call_function(receiver, found)

    return step
