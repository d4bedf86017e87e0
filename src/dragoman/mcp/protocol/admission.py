"""Admits messages: finds the caller, its revision and its capabilities, from the handshake of the stateful era or from
the envelope of the stateless one. Pure.

A request whose `_meta` names its revision is stateless, also after stateful ones on its channel; any other belongs to
the `SessionState` that `initialize` began there. All messages go through `admit`. Over HTTP it compares the headers
with the same `_meta` and params that the method gets, so that a message cannot show a proxy one thing and the method
another. Then it normalises the URIs in the params (`uri`), so that no later code sees another spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from ...jsonrpc.condensed import LONG, Condensed
from ...jsonrpc.errors import InvalidParams, RpcError
from ...jsonrpc.messages import Request
from .encoding import READERS, decode, members_of
from .entry_versions import Order, requested
from .headers import VERSION, check, check_version
from .methods import HEADER_MISMATCH, METHODS, UNSUPPORTED_VERSION, Row
from .params import (
    CallToolRequestParams,
    CompleteRequestParams,
    InitializeRequestParams,
    ReadResourceRequestParams,
    ResourceTemplateReference,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    UnsubscribeRequestParams,
)
from .revisions import NEWEST_STATEFUL, REVISIONS, Revision, by_age
from .types import CLIENT_CAPABILITIES, PROTOCOL_VERSION, ClientCapabilities, Implementation, LoggingLevel, RequestMeta
from .uri import normal
from .uri_template import normal_reference

LEVELS = {level: number for number, level in enumerate(get_args(LoggingLevel))}
"""The log levels by severity, the lowest first."""
NOTHING = ClientCapabilities()
SHOWN = 200
"""Bytes of a wrong value's JSON that an error's `received` repeats: enough to recognise it, without echoing a large
one."""
UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
"""The exceptions of decoding text that is no JSON, or does not fit the type."""
_NO_META = RequestMeta()
_EMPTY = b"{}"


TOKEN_LENGTH = 1_024
"""Longest progress token, in characters: it is sent back with each step, as long as a request's id may be."""


class SessionState(Struct):
    """The state that `initialize` began, for as long as the channel (over HTTP: the `Mcp-Session-Id`) lives."""

    revision: Revision
    client: Implementation
    capabilities: ClientCapabilities
    log_level: str | None = None
    """The lowest level of log messages, from `logging/setLevel`; None: the client has not set it."""
    subscriptions: set[str] = msgspec.field(default_factory=set)
    """URIs of `resources/subscribe`."""
    initialized: bool = False
    """Whether `notifications/initialized` has come: then the server may send requests and notifications."""
    principal: str | None = None
    """The authenticated principal when it began."""
    kept: Any = None
    """The admission by which the server's budget counts what this state keeps of its client."""


class Admitted(Struct):
    """An admitted message: the params of its method, and the caller."""

    row: Row
    revision: Revision
    params: Any
    """The row's Struct; its URIs are in their normal form."""
    raw: Raw | UnsetType
    """The params as they came."""
    client: Implementation | None = None
    capabilities: ClientCapabilities = NOTHING
    log_level: str | None = None
    """The lowest level of log messages to send to the caller; None: it has not set one."""
    token: str | int | None = None
    """The caller's progress token."""
    session: SessionState | None = None
    principal: str | None = None
    condensed: Condensed | None = None
    """A tool's long arguments, without the long strings in them; None for short ones."""
    version: str = ""
    """The version of the tool, resource or prompt that answers, once it is found; "" for one without versions."""
    surroundings: Any = None
    """The `server.surroundings` of the function that answers, once the message is routed."""
    opened: Any = None
    """The sealed state that came with it, once that is opened; see `asking.ask.open_state`."""
    asker: Any = None
    """The `asking.ask.Asker` of this call; None: that of its revision."""
    on_progress: Callable[[float, float | None, str | None], bool] | None = None
    """Takes the progress of the call (value, total, message) in place of its caller; from a thread, too. None: the
    caller gets it, if it has requested it."""

    @property
    def method(self) -> str:
        """The method's name."""
        return self.row.name

    def has_declared(self, extension: str) -> bool:
        """Return whether its client has declared the extension of this name in its capabilities."""
        return self.capabilities.declares(extension)

    @property
    def requested_version(self) -> Order | None:
        """The requested version of a tool, resource or prompt; None: the highest. Raises InvalidParams for text that is
        no version."""
        return requested(self.raw)


class Offer(Struct, frozen=True):
    """The revisions that a server or client speaks."""

    stateless: Mapping[str, Revision]
    stateful: Mapping[str, Revision]

    @property
    def dates(self) -> list[str]:
        """The dates of all of them, the newest first."""
        return [*reversed([*self.stateful, *self.stateless])]


def offer(revisions: Iterable[Revision]) -> Offer:
    """Return an offer of these revisions."""
    ordered = by_age(revisions)
    return Offer(
        {one.date: one for one in ordered if not one.stateful}, {one.date: one for one in ordered if one.stateful}
    )


EVERYTHING = offer(REVISIONS.values())
"""An offer of all revisions."""


def admit(
    message: Any,
    session: SessionState | None,
    offered: Offer,
    channel: bool = True,
    principal: str | None = None,
    headers: Mapping[str, str] | None = None,
    methods: Mapping[str, Row] = METHODS,
) -> Admitted | None:
    """Admit a request or notification from a client; None if its revision has no such method.

    `session`: the state of its session; None: there is none. `channel`: whether it came on a channel, and not in an
    exchange. `headers`: those of its HTTP request (names in lower case), with which a stateless message must agree;
    None: it came by another wire. `methods`: the known methods, by name. Raises RpcError for headers that disagree
    (-32020), for params that do not fit (-32602, with every fault), for an envelope that lacks a required member
    (-32602) and for a revision that is not offered (-32022).
    """
    row, raw = methods.get(message.method), message.params
    # "Notifications MUST NOT include an ID" (basic/index): as a request there is no such method
    if row is None or row.direction == "server" or (row.result is None and type(message) is Request):
        _claimed_revision(message, None, offered, headers, channel)
        return None
    short = None
    try:
        read = READERS[row.params]
        if raw is not UNSET and len(raw) > LONG:
            params, short = _decode_long(message, read)
        else:
            params = read(_EMPTY if raw is UNSET else raw)
    except UNREADABLE as error:
        # params of a revision that is not offered may be right there: the revision is the error
        revision = _claimed_revision(message, row, offered, headers, channel)
        if revision is None and session is not None:
            revision = session.revision
        if revision is not None and not row.within(revision):
            return None
        raise _params_error(row, raw, error) from None
    meta = getattr(params, "meta", None)
    if type(meta) is not RequestMeta:
        meta = _NO_META if meta is not None else _decode_meta(row, raw)
    if headers is not None and not (channel and meta.protocol_version is UNSET):
        _check_headers(message, row, params, meta.protocol_version, headers)
        if not channel and row.until.stateful:  # such as an `initialize`: without `_meta` it would begin a session
            return None
    with_uris = _WITH_URIS.get(row.params)
    if with_uris is not None:
        params = with_uris(params)
    return _admit_as(row, params, raw, meta, session, offered, principal, channel, short)


def _decode_long(message: Any, read: Callable[[bytes | Raw], Any]) -> tuple[Any, Condensed | None]:
    """Decode long params. Of a `tools/call` the long strings, which the codec has decoded already, are not scanned
    again: its arguments are also returned without them. Raises what `read` raises."""
    whole = message.condensed if type(message) is Request else None
    if whole is not None and whole.raw is message.params:
        try:
            params = read(whole.text)
        except UNREADABLE:  # the whole text says what is wrong
            return read(message.params), None
        if type(params) is CallToolRequestParams and (short := whole.member(params.arguments)) is not None:
            return structs.replace(params, arguments=short.raw), short
    return read(message.params), None


def _claimed_revision(
    message: Any, row: Row | None, offered: Offer, headers: Mapping[str, str] | None, channel: bool
) -> Revision | None:
    """Return the stateless revision that a message names, None if it names none; for messages that cannot be served.
    Raises RpcError if it is not offered, or if the headers disagree."""
    version = claimed(message.params)
    if headers is not None and not (channel and version is UNSET):  # otherwise it belongs to a session
        _check_headers(message, row, None, version, headers)
    return _offered_revision(version, offered)


def _check_headers(
    message: Any, row: Row | None, params: Any, version: str | UnsetType, headers: Mapping[str, str]
) -> None:
    """Raise RpcError (-32020) if the headers of a stateless message do not agree with its body; those that repeat
    arguments are compared once the tool is found.

    `row`, `params`: None if there is no such method, or its params do not fit: then the message is not served.
    """
    fault = None if headers.get(VERSION) == version else check_version(version, headers)
    # "header requirements for notification POSTs are not defined by this revision"
    if fault is None and type(message) is Request:
        named = None if row is None or params is None else row.named
        value = None if named is None or row is None else getattr(params, members_of(row.params)[named])
        fault = check(message.method, value, headers)
    if fault is not None:
        raise RpcError.of(HEADER_MISMATCH, fault)


def claimed(raw: Any) -> str | UnsetType:
    """Return the revision that the `_meta` of any params names; UNSET without one."""
    try:
        return decode(_EMPTY if raw is UNSET else raw, _ParamsMeta).meta.version
    except UNREADABLE:
        return UNSET


class _VersionMeta(Struct):
    version: str | UnsetType = msgspec.field(default=UNSET, name=PROTOCOL_VERSION)


class _ParamsMeta(Struct):
    meta: _VersionMeta = msgspec.field(default_factory=_VersionMeta, name="_meta")


def _offered_revision(version: str | UnsetType, offered: Offer) -> Revision | None:
    """Return the stateless revision of this date; None without a date. Raises RpcError (-32022) for one that is not
    offered."""
    if version is UNSET:
        return None
    revision = offered.stateless.get(version)
    if revision is None:
        raise _unsupported(version, offered)
    return revision


def _unsupported(version: str, offered: Offer) -> RpcError:
    # "it MUST respond with an UnsupportedProtocolVersionError listing the versions it does support" (basic/versioning)
    data = {"supported": offered.dates, "requested": version}
    return RpcError.of(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def _admit_as(
    row: Row,
    params: Any,
    raw: Any,
    meta: RequestMeta,
    session: SessionState | None,
    offered: Offer,
    principal: str | None,
    channel: bool,
    short: Condensed | None,
) -> Admitted | None:
    """Admit a message by the revision that it names itself, or else by that of its session; None if that revision has
    no such method. Raises RpcError."""
    version: Any = meta.protocol_version
    client: Any
    level: Any
    if version is not UNSET:
        revision = offered.stateless.get(version)
        if revision is None:
            raise _unsupported(version, offered)
        session, client, level = None, meta.client_info, meta.log_level
        capabilities: Any = meta.client_capabilities
        if capabilities is UNSET:
            raise InvalidParams(*_lacking_members(meta, offered))
        if level is not UNSET and level not in LEVELS:
            raise InvalidParams(f"Invalid params: `_meta` has the log level {level!r:.40}; the levels are {_levels()}")
    elif session is not None and row.name != "initialize":
        revision, client, level = session.revision, session.client, session.log_level
        capabilities = session.capabilities
    else:  # `initialize` begins a session, and on a channel also a new one instead of another
        session = None
        revision, client, level, capabilities = (
            _revision_without_session(row, params, meta, offered, channel),
            None,
            None,
            NOTHING,
        )
    if revision is None or not row.within(revision):
        return None
    token = meta.progress_token
    if type(token) is str and len(token) > TOKEN_LENGTH:
        raise InvalidParams(f"Invalid params: `_meta.progressToken` has {len(token)} characters, {TOKEN_LENGTH} may be")
    return Admitted(
        row,
        revision,
        params,
        raw,
        None if client is UNSET else client,
        capabilities,
        None if level is UNSET else level,
        None if token is UNSET else token,
        session,
        principal,
        short,
    )


def _revision_without_session(
    row: Row, params: Any, meta: RequestMeta, offered: Offer, channel: bool
) -> Revision | None:
    """Return the revision of a message without a session that names none itself; None: there is no such method. Raises
    InvalidParams for a request that has to name its revision."""
    if row.name == "initialize" and offered.stateful:
        return negotiated(params, offered)
    if row.name == "ping" and offered.stateful and channel:
        # "The client SHOULD NOT send requests other than pings before the server has responded" (basic/lifecycle)
        return NEWEST_STATEFUL
    if row.result is None:  # an unknown notification
        return None
    raise InvalidParams(*_lacking_members(meta, offered))


def _levels() -> str:
    return ", ".join(LEVELS)


def _lacking_members(meta: RequestMeta, offered: Offer) -> tuple[str, Any]:
    """Return text and data of the error for a request without a session whose envelope lacks a required member."""
    missing = [
        name
        for name, value in (
            (PROTOCOL_VERSION, meta.protocol_version),
            (CLIENT_CAPABILITIES, meta.client_capabilities),
        )
        if value is UNSET
    ]
    text = f"Invalid params: `_meta` lacks {' and '.join(missing)}"
    if offered.stateful and PROTOCOL_VERSION in missing:
        text += ", or `initialize` must come first"
    return text, {"missing": [f"_meta.{name}" for name in missing], "supported": offered.dates}


def negotiated(params: InitializeRequestParams, offered: Offer) -> Revision:
    """Return the revision of a new session.

    "If the server supports the requested protocol version, it MUST respond with the same version. Otherwise [...]
    This SHOULD be the latest version supported by the server." (basic/lifecycle)
    """
    found = offered.stateful.get(params.protocol_version)
    return found if found is not None else next(reversed([*offered.stateful.values()]))


def begun(admitted: Admitted) -> SessionState:
    """Return the session that an admitted `initialize` begins."""
    params: InitializeRequestParams = admitted.params
    return SessionState(admitted.revision, params.client_info, params.capabilities, principal=admitted.principal)


# -- params ---------------------------------------------------------------------------------------


def _normalize_uri(params: Any) -> Any:
    uri = normal(params.uri)
    return params if uri is params.uri else structs.replace(params, uri=uri)


def _normalize_subscriptions(params: SubscriptionsListenRequestParams) -> SubscriptionsListenRequestParams:
    changes = params.notifications
    uris = changes.resource_subscriptions
    if isinstance(uris, UnsetType):
        return params
    those = list(dict.fromkeys(map(normal, uris)))
    return structs.replace(params, notifications=structs.replace(changes, resource_subscriptions=those))


def _normalize_reference(params: CompleteRequestParams) -> CompleteRequestParams:
    ref = params.ref
    if not isinstance(ref, ResourceTemplateReference):
        return params
    return structs.replace(params, ref=structs.replace(ref, uri=normal_reference(ref.uri)))


_WITH_URIS: Mapping[type[Struct], Callable[[Any], Any]] = {
    ReadResourceRequestParams: _normalize_uri,
    SubscribeRequestParams: _normalize_uri,
    UnsubscribeRequestParams: _normalize_uri,
    SubscriptionsListenRequestParams: _normalize_subscriptions,
    CompleteRequestParams: _normalize_reference,
}
"""By the type of some params, the function that normalises their URIs."""


class _OnlyMeta(Struct):
    meta: RequestMeta | UnsetType = msgspec.field(default=UNSET, name="_meta")


def _decode_meta(row: Row, raw: Any) -> RequestMeta:
    """Return the envelope of an extension's method whose params type has no `_meta`. Raises InvalidParams."""
    try:
        found = decode(_EMPTY if raw is UNSET else raw, _OnlyMeta).meta
    except UNREADABLE as error:
        raise _params_error(structs.replace(row, params=_OnlyMeta), raw, error) from None
    return found if type(found) is RequestMeta else _NO_META


def _params_error(row: Row, raw: Any, error: Exception) -> InvalidParams:
    """Return the error for params that do not fit, with every fault, field by field: the decoder stops at the first."""
    faults: list[dict[str, Any]] = []
    try:
        members = decode(_EMPTY if raw is UNSET else raw, dict[str, Raw])
    except UNREADABLE:
        return InvalidParams(f"Invalid params: {row.name} takes an object")
    for field in structs.fields(row.params):
        name = field.encode_name
        if name not in members:
            if field.required:
                faults.append({"field": name, "message": "is missing"})
            continue
        try:
            decode(members[name], field.type)
        except UNREADABLE as fault:
            faults.append({"field": name, "message": str(fault), "received": _shown(members[name])})
    if not faults:
        return InvalidParams(f"Invalid params: {error}")
    text = "; ".join(f"`{fault['field']}` {fault['message']}" for fault in faults)
    return InvalidParams(f"Invalid params: {text}", {"errors": faults})


def _shown(value: Raw) -> Any:
    """Return a value as an error shows it: complete if it is short, otherwise the beginning of its JSON text."""
    text = bytes(value)
    return value if len(text) <= SHOWN else text[:SHOWN].decode("utf-8", "ignore") + "..."


def no_request(method: str, methods: Mapping[str, Row]) -> None:
    """Raise RpcError (-32600) for a notification with the name of a request: "Requests MUST include a string or integer
    ID" (basic/index), so no handler runs for it."""
    row = methods.get(method)
    if row is not None and row.result is not None:
        raise RpcError.of(-32600, f"Invalid Request: {method} is a request, which must have an `id`")


def bad_id() -> RpcError:
    """Return the error for an id that is null or fractional, -32600: "a string or integer ID [...] MUST NOT be null"
    (basic/index)."""
    return RpcError.of(-32600, "Invalid Request: `id` must be a string or an integer")
