"""Finds out which era and revision the server speaks, and opens the channel in it.

Rules (basic/versioning and the bindings' "Backward Compatibility"):

- `server/discover` is sent first, with the newest revision. A known modern error means a modern server, which gets the
  request again with the newest common revision. Any other error, or silence on a stream, means a legacy server, and
  `initialize` follows. Over HTTP a legacy endpoint that refuses that too may be one of HTTP+SSE.
- A server that was only slow is modern: if its answer to `server/discover` comes before its answer to `initialize`, it
  is connected again and gets the request once more, without the shorter timeout.
- An answer that means "later" (a 503, a 429, an error with `retry_after`) does not decide the era: it is raised.
- The outcome is remembered in this process, for each URL or command, and found out again when it fails. It is not
  remembered if only a fault decided it: a crash, an answer that makes no sense, a process that died.
- A server that dies because of `server/discover` is started again and gets `initialize`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct

from ...channel import ChannelError, EndedUnread
from ...jsonrpc.errors import BadAnswer, CallTimeout, MethodNotFound, RpcError
from ..protocol import lenient
from ..protocol.encoding import encode
from ..protocol.extension import NO_EXTENSIONS, Extensions
from ..protocol.methods import HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION
from ..protocol.params import DiscoverResult, InitializeRequestParams, InitializeResult
from ..protocol.revisions import NEWEST, NEWEST_STATEFUL, REVISIONS, Revision, by_age
from ..protocol.types import SERVER_INFO, ClientCapabilities, Implementation, RequestMeta, ServerCapabilities
from .connection import McpConnection
from .handlers import QuestionHandlers
from .http.refusals import HttpRefused

logger: logging.Logger = logging.getLogger("dragoman.mcp")

PROBE = 10.0
"""Seconds without an answer on a stream after which the server counts as a legacy one: longer than most commands need
to start. Most legacy servers answer at once, with an error."""

ServerKey: TypeAlias = "str | tuple[str, ...] | None"
"""A URL or a command; None: a server that no other client can reach."""


def server_key_of(target: Any) -> ServerKey:
    """Return the key under which an era is remembered: the URL without credentials and query, or the command."""
    if isinstance(target, str):
        scheme, mark, rest = target.partition("://")
        if not mark:
            return target
        authority, slash, path = rest.partition("#")[0].partition("?")[0].partition("/")
        scheme = scheme.lower()
        return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}" if scheme != "memory" else None
    return tuple(target) if isinstance(target, Sequence) else None


class ServerProfile(Struct, frozen=True, kw_only=True):
    """What the server says of itself, in the revision in use."""

    revision: Revision
    capabilities: ServerCapabilities
    server: Implementation | None = None
    instructions: str | None = None


class ClientProfile(Struct, frozen=True):
    """What this client says of itself."""

    info: Implementation
    answering: QuestionHandlers
    extensions: Extensions = NO_EXTENSIONS

    def capabilities(self, revision: Revision, answering: QuestionHandlers | None = None) -> ClientCapabilities:
        """Return the capabilities to declare to a server of this revision. `answering`: the functions that answer the
        questions of one call; None: those of the client."""
        found = (answering or self.answering).capabilities(revision)
        return msgspec.structs.replace(found, extensions=self.extensions.declared) if self.extensions.all else found

    def meta(self, revision: Revision, level: str | None, answering: QuestionHandlers | None = None) -> bytes:
        """Return the members of `_meta` for every request, as JSON text without braces; b"" if there are none. `level`:
        the lowest level of log messages; `answering` as in `capabilities`."""
        if revision.stateful:
            return b""
        meta = RequestMeta(
            protocol_version=revision.date,
            client_info=self.info,
            client_capabilities=self.capabilities(revision, answering),
            log_level=UNSET if level is None else level,
        )
        return encode(meta, revision)[1:-1]

    def initialize(self, revision: Revision) -> Raw:
        """Return the params of `initialize`."""
        params = InitializeRequestParams(
            protocol_version=revision.date, capabilities=self.capabilities(revision), client_info=self.info
        )
        return Raw(encode(params, revision))


Dial: TypeAlias = Callable[[bool], Coroutine[Any, Any, McpConnection]]
"""Opens a new channel to the server; with True over HTTP+SSE."""


class RevisionMemory:
    """The revision that each server spoke last; beyond `most` servers the oldest is dropped."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str | tuple[str, ...], Revision] = {}

    def get(self, server_key: ServerKey) -> Revision | None:
        """Return the revision that a server spoke; None if unknown."""
        return None if server_key is None else self._known.get(server_key)

    def put(self, server_key: ServerKey, revision: Revision | None) -> None:
        """Remember the revision that a server speaks; None: forget the server."""
        if server_key is None:
            return
        self._known.pop(server_key, None)
        if revision is not None:
            self._known[server_key] = revision
            if len(self._known) > self._most:
                del self._known[next(iter(self._known))]

    def clear(self) -> None:
        """Forget every server."""
        self._known.clear()


REMEMBERED = 1_000
"""Servers whose revision a process remembers; beyond that some are negotiated again."""
_remembered = RevisionMemory(REMEMBERED)


class Negotiation:
    """Opens a channel to the server, in the era that it speaks. `revision`: the only one that is allowed; None: any.
    `timeout`: seconds of each request; `probe`: seconds without an answer after which a server on a stream counts as a
    legacy one."""

    def __init__(
        self,
        open_channel: Dial,
        profile: ClientProfile,
        *,
        server_key: ServerKey,
        revision: Revision | None,
        timeout: float | None,
        probe: float,
    ) -> None:
        self._open_channel = open_channel
        self._profile = profile
        self._server_key = server_key
        self._revision = revision
        self._timeout = timeout
        self._probe = probe
        self._fault: Exception | None = None
        """The fault that made the server count as a legacy one; it may be temporary. None: there was none."""

    async def open(self) -> tuple[McpConnection, ServerProfile]:
        """Open a channel; return it, and the server's profile.

        Raises ChannelError, CallTimeout, RpcError, BadAnswer if the server cannot be reached or there is no common
        revision; the channel is closed then.
        """
        known = self._revision or _remembered.get(self._server_key)
        if known is not None and known.stateful:
            try:
                found = await self._stateful(known)
            except (RpcError, HttpRefused, BadAnswer) as error:
                if self._revision is not None or _is_later(error, None):
                    raise
                _remembered.put(
                    self._server_key, None
                )  # "re-probing if the cached assumption later fails" (basic/versioning)
            else:
                return found
        self._fault = None
        found = await self._open_probing(known or NEWEST, self._probe)
        if self._fault is None:
            _remembered.put(self._server_key, found[1].revision)
        return found

    # -- the stateless era

    async def _open_probing(self, revision: Revision, probe: float | None) -> tuple[McpConnection, ServerProfile]:
        connection = await self._open_channel(False)
        try:
            return await self._with_fallback(connection, self._negotiate(connection, revision, probe))
        except _Legacy as found:
            return await self._stateful(found.revision)
        except _Slow:
            return await self._open_probing(revision, None)

    async def _negotiate(self, connection: McpConnection, revision: Revision, probe: float | None) -> ServerProfile:
        era = await self._try_stateless(connection, revision, probe)
        if era is not None:
            return era
        if self._revision is not None and not self._revision.stateful:
            why = "" if self._fault is None else f": {self._fault}"
            raise BadAnswer(
                f"the server does not speak revision {self._revision.date}, nor anything as new{why}"
            ) from self._fault
        return await self._handshake(connection, NEWEST_STATEFUL)

    async def _with_fallback(
        self, connection: McpConnection, outcome: Awaitable[ServerProfile]
    ) -> tuple[McpConnection, ServerProfile]:
        """Return the channel, and the outcome of the handshake; if that fails, close the channel. An HTTP endpoint that
        refuses it is tried over HTTP+SSE."""
        try:
            return connection, await outcome
        except HttpRefused as error:
            await connection.peer.close(0)
            if not connection.http or not _may_be_sse(error):
                raise
            return await self._try_sse(error)
        except BaseException:
            await connection.peer.close(0)
            raise

    async def _try_stateless(
        self, connection: McpConnection, revision: Revision, probe: float | None
    ) -> ServerProfile | None:
        """Return the answer of a modern server; None: it is a legacy one."""
        connection.turn(stateless=True)
        tried = [revision.date]
        while True:
            try:
                found = await self._discover(connection, revision, probe)
            except RpcError as error:
                if _is_later(error, connection.status):
                    raise
                other = self._next_revision(error, revision)
            except HttpRefused as error:
                if not _is_legacy(error):
                    raise
                if error.status >= 500:
                    self._fault = error
                return None
            except BadAnswer as error:
                logger.debug("server/discover: %s", error)
                self._fault = error
                return None
            except ChannelError as error:
                if connection.http or isinstance(error, EndedUnread):  # another request would not help
                    raise
                # it died because of a request before `initialize`
                logger.debug("server/discover: %s", error)
                self._fault = error
                raise _Legacy(NEWEST_STATEFUL) from error
            else:
                if found is None or isinstance(found, ServerProfile):
                    return found
                # "select a mutually supported version from `supportedVersions`" (basic/transports/stdio)
                other = self._common(found.supported_versions)
                if other is revision:
                    return _era(found, revision)
            if other is None:
                return None
            if other.stateful:
                return await self._handshake(connection, other)
            # a server that has just been upgraded may refuse a revision and list it: that is worth one more try
            if tried.count(other.date) > 1:
                raise BadAnswer(f"the server refuses revision {other.date} and says that it speaks it")
            revision = other
            tried.append(revision.date)

    async def _discover(
        self, connection: McpConnection, revision: Revision, probe: float | None
    ) -> DiscoverResult | ServerProfile | None:
        """Send `server/discover`, and return its result; None: it is a legacy server. A ServerProfile: the server was
        silent for `probe` seconds (None: without that limit), and then answered `initialize`."""
        connection.status = None
        params = Raw(b'{"_meta":{' + self._profile.meta(revision, None) + b"}}")
        call = connection.peer.call(
            "server/discover",
            params,
            result=Raw,
            timeout=self._timeout,
            extra=connection.headers("server/discover", revision),
        )
        if connection.http or self._revision is not None or probe is None:
            return _read_discovery(await call)
        asking = asyncio.ensure_future(call)
        try:
            done, _ = await asyncio.wait([asking], timeout=probe)
            if done:
                return _read_discovery(asking.result())
            return await self._try_handshake(connection, asking, probe)
        finally:
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await asking

    async def _try_handshake(
        self, connection: McpConnection, asking: asyncio.Future[Raw], probe: float
    ) -> DiscoverResult | ServerProfile | None:
        """Send `initialize` to a server that has not answered `server/discover`: "Does not respond within a reasonable
        timeout: the server is legacy" (basic/transports/stdio). One that only started slowly answers both requests in
        order: then the first answer counts."""
        logger.info("server/discover: no answer within %s s, so `initialize` is tried", probe)
        try:
            era = await self._handshake(connection, NEWEST_STATEFUL)
        except (RpcError, BadAnswer, CallTimeout):
            if not _is_modern(asking):
                raise
            return _read_discovery(asking.result())
        if _is_modern(asking):
            # "An `initialize` request selects legacy semantics, scoped to the stdio process" (basic/versioning)
            raise _Slow
        return era

    def _next_revision(self, error: RpcError, revision: Revision) -> Revision | None:
        """Return the revision for the next try after an error; None: it is a legacy server. Raises an error that a
        modern server would repeat."""
        if error.code in (HEADER_MISMATCH, MISSING_CAPABILITY):
            raise error
        if error.code != UNSUPPORTED_VERSION:
            # "The fallback MUST NOT be keyed to one specific error code" (basic/transports/stdio)
            logger.debug("server/discover with %s: %s", revision.date, error)
            return None
        other = self._common(supported(error))
        if other is None or self._revision is not None:
            raise error
        return other

    def _common(self, dates: Iterable[str]) -> Revision | None:
        """Return the newest common revision. Raises BadAnswer if there is none."""
        dates = list(dates)
        if self._revision is not None and self._revision.date in dates:
            return self._revision
        found = None if self._revision is not None else newest(dates)
        if found is None:
            ours = self._revision.date if self._revision is not None else ", ".join(REVISIONS)
            raise BadAnswer(f"no common revision: the server speaks {', '.join(dates) or 'none'}, this client {ours}")
        return found

    # -- the stateful era

    async def _stateful(self, revision: Revision) -> tuple[McpConnection, ServerProfile]:
        connection = await self._open_channel(False)
        return await self._with_fallback(connection, self._handshake(connection, revision))

    async def _try_sse(self, error: HttpRefused) -> tuple[McpConnection, ServerProfile]:
        """Try HTTP+SSE at an endpoint that refuses POST (basic/transports, Backward Compatibility). Raises `error` if
        it does not speak that."""
        try:
            connection = await self._open_channel(True)
        except (ChannelError, BadAnswer) as fault:
            raise error from fault
        try:
            return connection, await self._handshake(connection, self._revision or NEWEST_STATEFUL)
        except BaseException:
            await connection.peer.close(0)
            raise

    async def _handshake(self, connection: McpConnection, revision: Revision) -> ServerProfile:
        connection.turn(stateless=False)
        return await handshake(connection, self._profile, revision, timeout=self._timeout, forced=self._revision)


async def handshake(
    connection: McpConnection,
    profile: ClientProfile,
    revision: Revision,
    *,
    timeout: float | None,
    forced: Revision | None = None,
) -> ServerProfile:
    """Send `initialize` and `notifications/initialized`, and return the server's profile. `forced`: the only revision
    that is allowed. Raises BadAnswer if the server chose a revision that this client does not speak."""
    try:
        raw = await connection.peer.call("initialize", profile.initialize(revision), result=Raw, timeout=timeout)
    except MethodNotFound as error:
        why = "it has no initialize: this is JSON-RPC, not MCP; use dragoman.connect"
        raise BadAnswer(why) from error
    try:
        found = lenient.decode(raw, InitializeResult)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadAnswer(f"initialize: the result does not fit: {error}") from error
    spoken = REVISIONS.get(found.protocol_version)
    if spoken is None or not spoken.stateful or (forced is not None and spoken is not forced):
        # "If the client does not support the version in the server's response, it SHOULD disconnect" (basic/lifecycle)
        ours = forced.date if forced is not None else ", ".join(date for date, one in REVISIONS.items() if one.stateful)
        raise BadAnswer(f"the server answers with revision {found.protocol_version!r}; this client speaks {ours}")
    await connection.ready(spoken)
    return ServerProfile(
        revision=spoken,
        capabilities=found.capabilities,
        server=found.server_info,
        instructions=None if found.instructions is UNSET else found.instructions,
    )


class _Legacy(Exception):
    """A legacy server: it must be connected again, and gets `initialize`."""

    def __init__(self, revision: Revision) -> None:
        self.revision = revision


class _Slow(Exception):
    """A modern server that answered late: it must be connected again, and gets only `server/discover`."""


def newest(dates: Iterable[str]) -> Revision | None:
    """Return the newest of these revisions that this client speaks; None if there is none."""
    known = [REVISIONS[date] for date in dates if date in REVISIONS]
    return by_age(known)[-1] if known else None


def supported(error: RpcError) -> list[str]:
    """Return the revisions that an UNSUPPORTED_VERSION error lists."""
    dates = error.data.get("supported") if isinstance(error.data, dict) else None
    return [date for date in dates if isinstance(date, str)] if isinstance(dates, list) else []


def _read_discovery(raw: Any) -> DiscoverResult | None:
    """Return the result of `server/discover`; None if it is something else: a legacy server may answer any method."""
    try:
        found = lenient.decode(raw, DiscoverResult)
    except (msgspec.DecodeError, RecursionError) as error:
        logger.debug("server/discover: the result does not fit: %s", error)
        return None
    return found


def _is_modern(asking: asyncio.Future[Raw]) -> bool:
    """Return whether `server/discover` has been answered by now as only a modern server answers it, with a revision of
    the stateless era that this client speaks."""
    if not asking.done():
        return False
    error = asking.exception()
    if error is not None:
        dates = supported(error) if isinstance(error, RpcError) and error.code == UNSUPPORTED_VERSION else []
    else:
        found = _read_discovery(asking.result())
        dates = [] if found is None else found.supported_versions
    common = newest(dates)
    return common is not None and not common.stateful


def _era(found: DiscoverResult, revision: Revision) -> ServerProfile:
    server = None
    if isinstance(found.meta, dict) and SERVER_INFO in found.meta:
        with contextlib.suppress(msgspec.ValidationError):
            server = msgspec.convert(found.meta[SERVER_INFO], Implementation)
    return ServerProfile(
        revision=revision,
        capabilities=found.capabilities,
        server=server,
        instructions=None if found.instructions is UNSET else found.instructions,
    )


_LATER = (401, 403, 407, 408, 425, 429)


def _is_later(error: Exception, status: int | None) -> bool:
    """Return whether an answer means that the server may answer otherwise later, or to another caller. `status`: the
    HTTP status of a JSON-RPC error; None: it did not come over HTTP."""
    if isinstance(error, HttpRefused):
        return error.status in _LATER or error.status in (502, 503, 504)
    if not isinstance(error, RpcError):
        return False
    if status is not None and (status in _LATER or status in (502, 503, 504)):
        return True
    after = error.data.get("retry_after") if isinstance(error.data, dict) else None
    return isinstance(after, int | float) and not isinstance(after, bool)


def _is_legacy(error: HttpRefused) -> bool:
    """Return whether a legacy server may refuse a modern request in this way: by a 4xx or a crash, but not because of
    authorization or load."""
    return (400 <= error.status < 500 and error.status not in _LATER) or error.status in (500, 501)


def _may_be_sse(error: HttpRefused) -> bool:
    """Return whether the endpoint may be one of HTTP+SSE: "If it fails with 400, 404 or 405" (basic/transports,
    Backward Compatibility); other 4xx in older texts."""
    return 400 <= error.status < 500 and error.status not in _LATER
