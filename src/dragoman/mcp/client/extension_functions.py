"""Calls the functions of a client's extensions that answer the server's requests and get its notifications."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...jsonrpc.errors import InvalidParams, LocalError, MethodNotFound
from ...rpc.binding.results import to_json
from ..protocol.encoding import decode, encode
from ..protocol.params import EmptyResult
from ..protocol.revisions import Revision
from .extending import ClientExtensions
from .extension_client import ExtensionClient
from .handlers import call_in_turn
from .notifications import call_among

logger: logging.Logger = logging.getLogger("dragoman.mcp")

_UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
"""What decoding raises for params that do not fit."""


class ExtensionFunctions:
    """The functions of one client's extensions. `spoken`: returns the revision in use; None before the handshake is
    complete."""

    def __init__(
        self, extensions: ClientExtensions, client: ExtensionClient, spoken: Callable[[], Revision | None]
    ) -> None:
        self._rows = extensions.declarations.methods
        self._answers = extensions.answers
        self._heard = extensions.heard
        self._client = client
        self._spoken = spoken
        self._running: set[asyncio.Future[Any]] = set()

    async def answer(self, method: str, params: Raw | UnsetType, revision: Revision) -> bytes:
        """Return the answer to a request of the server as JSON text.

        Raises MethodNotFound if no function answers it, InvalidParams for params that do not fit its row, LocalError if
        the function returns neither the row's result nor a mapping, and what the function raises.
        """
        function = self._answers.get(method)
        if function is None:
            raise MethodNotFound(data={"method": method})
        row = self._rows[method]
        assert row.result is not None
        try:
            given = decode(b"{}" if params is UNSET else params, row.params)
        except _UNREADABLE as error:
            raise InvalidParams(f"{method}: {error}") from error
        found = await call_in_turn(function, given, self._client)
        if found is None and row.result is EmptyResult:
            return b"{}"
        if isinstance(found, row.result):
            return encode(found, revision)
        if isinstance(found, Mapping) and not isinstance(found, Struct):
            return to_json(found)
        raise LocalError(f"{method} is answered by {row.result.__name__} or a mapping, and not by {found!r:.100}")

    def hear(self, method: str, params: Raw | UnsetType) -> None:
        """Call the function for a notification of the server, if there is one, unless the revision in use does not have
        the notification. Raises nothing; params that do not fit are logged."""
        function, revision = self._heard.get(method), self._spoken()
        if function is None or revision is None:
            return
        row = self._rows.get(method)
        if row is not None and not row.within(revision):
            return
        kind: Any = dict[str, Any] if row is None else row.params
        try:
            given = decode(b"{}" if params is UNSET else params, kind)
        except _UNREADABLE as error:
            logger.debug("%s cannot be read: %s", method, error)
            return
        call_among(self._running, method, function, given, self._client)
