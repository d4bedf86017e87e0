"""The messages of MCP Events (SEP-3415), for a server and a client, and for the receiver of webhooks. Pure.

An event type has a name, a schema of its arguments and one of its payload. A client follows it by polling, by a stream
of its own, or by a webhook to which the server posts each event, signed by Standard Webhooks.

Two profiles share these messages. That of the SEP is declared in `capabilities.extensions`; that of ChatGPT, which came
before it, is declared by a bare `capabilities.events` and has webhooks alone.

Members that several types have:

* `name`, `arguments`: the event type, and the values by which its events are chosen;
* `cursor`: a position among the events of a type; null or absent: from now on;
* `max_age_ms`: events older than this are not sent again;
* `truncated`: events between the client's cursor and this one were skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from ....events.catalog import canonical
from ...protocol.extension import Extension, Topic
from ...protocol.methods import Row
from ...protocol.params import COMPLETE, REQUIRED_SINCE_2026_07, EmptyResult, PaginatedRequestParams
from ...protocol.revisions import Revision
from ...protocol.types import SINCE_2026_07, Free, RequestMeta

NAME: Final = "io.modelcontextprotocol/events"
"""The name of the extension."""
Profile: TypeAlias = Literal["sep", "chatgpt", "both"]
PROFILES: Final[tuple[Profile, ...]] = get_args(Profile)

WEBHOOK_ID: Final = "webhook-id"
WEBHOOK_TIMESTAMP: Final = "webhook-timestamp"
WEBHOOK_SIGNATURE: Final = "webhook-signature"
"""The headers of Standard Webhooks."""
SUBSCRIPTION_HEADER: Final = "X-MCP-Subscription-Id"
"""The header with the id of the subscription, by which a receiver finds the secret before it reads the body."""

Cursor: TypeAlias = str | UnsetType | None
Arguments: TypeAlias = dict[str, Any] | UnsetType | None
Milliseconds: TypeAlias = Annotated[int, Meta(ge=0)] | UnsetType | None


class EventCodes(Struct, frozen=True, kw_only=True):
    """The codes of the errors of Events; wrong params are -32602 as everywhere."""

    not_found: int
    """There is no such event type or subscription; `data.kind` says which of the two."""
    forbidden: int
    """This caller may not follow this event type with these arguments."""
    exhausted: int
    """A limit of the server is reached; `data.limit` names it, `data.max` is its value."""
    unsupported: int
    """The event type has not what was requested; `data.feature` and `data.value` say what."""
    callback: int
    """The receiver of a webhook could not be reached or did not prove itself; `data.reason` says why."""

    @property
    def all(self) -> frozenset[int]:
        """All of them."""
        return frozenset(msgspec.structs.astuple(self))


CODES: Final = EventCodes(not_found=-32011, forbidden=-32012, exhausted=-32013, unsupported=-32014, callback=-32015)
"""The codes that ChatGPT and the clients of today know."""
SEP_CODES: Final = EventCodes(not_found=-32023, forbidden=-32024, exhausted=-32025, unsupported=-32026, callback=-32027)
"""The codes that SEP-3415 requested when it was proposed; "provisional until" it is accepted."""

CallbackReason: TypeAlias = Literal[
    "connection_refused", "timeout", "tls_error", "http_4xx", "http_5xx", "challenge_failed"
]
CALLBACK_REASONS: Final[tuple[CallbackReason, ...]] = get_args(CallbackReason)
"""Why a webhook failed: "MUST be a server-generated category string", so that nobody reads answers through us."""


# -- event types and events


class EventType(Struct, frozen=True, kw_only=True, rename="camel"):
    """An event type, as `events/list` describes it."""

    name: str
    description: str | UnsetType = UNSET
    """When its events happen, for a model."""
    delivery: list[str]
    """The ways in which its events are delivered, some of `MODES`."""
    input_schema: Free
    """The JSON Schema of the arguments of a subscription."""
    payload_schema: Free
    """The JSON Schema of the `data` of its events."""
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class EventOccurrence(Struct, frozen=True, kw_only=True, rename="camel"):
    """One event. It is an entry of a poll, the params of `notifications/events/event`, and the body of a webhook."""

    event_id: str
    """The same wherever the event is delivered, and however often: clients recognise what they have by it."""
    name: str
    timestamp: str
    """When it happened, by ISO 8601."""
    data: Raw
    """The payload, a JSON object."""
    cursor: Cursor = UNSET
    """A position that may be kept: of everything up to it nothing is still to be delivered. UNSET in polls."""
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


# -- methods


class ListEventsResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of event types."""

    events: list[EventType]
    next_cursor: str | UnsetType = UNSET
    result_type: Annotated[str, SINCE_2026_07] = COMPLETE
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class PollEventsParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a client asks for by `events/poll`."""

    name: str
    arguments: Arguments = UNSET
    cursor: Cursor = UNSET
    max_age_ms: Milliseconds = UNSET
    max_events: Annotated[int, Meta(ge=1)] | UnsetType | None = UNSET
    """How many events the answer may have; UNSET: as many as the server likes."""
    timeout_ms: Milliseconds = UNSET
    """Beside the SEP: how long the server may wait for an event before it answers. UNSET, and at servers that do not
    know it: it answers at once."""
    meta: Annotated[RequestMeta | UnsetType, REQUIRED_SINCE_2026_07] = field(default=UNSET, name="_meta")


class PollEventsResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """The events after the client's cursor."""

    events: list[EventOccurrence]
    cursor: Cursor = UNSET
    """The cursor for the next poll."""
    truncated: bool = False
    has_more: bool = False
    """Whether there are more events, so that the next poll is worth making at once."""
    next_poll_ms: int | UnsetType = UNSET
    """When to poll next, unless there are more events."""
    result_type: Annotated[str, SINCE_2026_07] = COMPLETE
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class StreamEventsParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a client asks for by `events/stream`."""

    name: str
    arguments: Arguments = UNSET
    cursor: Cursor = UNSET
    max_age_ms: Milliseconds = UNSET
    meta: Annotated[RequestMeta | UnsetType, REQUIRED_SINCE_2026_07] = field(default=UNSET, name="_meta")


class Delivery(Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a webhook's events go."""

    url: str
    mode: str = "webhook"
    secret: str | UnsetType = UNSET
    """`whsec_` and the base64 text of 24 to 64 bytes, made by the client: it proves the server to the receiver. UNSET
    in `events/unsubscribe`."""

    def __repr__(self) -> str:
        return f"<Delivery, {self.mode!r:.40}>"  # URL and secret are not for logs


class SubscribeEventsParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a client asks for by `events/subscribe`; the same again refreshes the subscription."""

    name: str
    delivery: Delivery
    arguments: Arguments = UNSET
    cursor: Cursor = UNSET
    max_age_ms: Milliseconds = UNSET
    ttl_ms: Milliseconds = UNSET
    """How long the subscription should live; null: for ever; UNSET: as long as the server likes."""
    meta: Annotated[RequestMeta | UnsetType, REQUIRED_SINCE_2026_07] = field(default=UNSET, name="_meta")


class DeliveryStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """How the deliveries of a subscription went until it was refreshed."""

    active: bool
    """False: the server had given up until this refresh."""
    last_delivery_at: str | None = None
    """When the receiver last accepted an event."""
    last_error: str | None = None
    """One of `CALLBACK_REASONS`."""
    failed_since: str | UnsetType = UNSET
    throttled: bool | UnsetType = UNSET
    """True: the server limits the deliveries, which are late and do not fail. Ours limits none."""
    retry_after_ms: int | UnsetType = UNSET
    """How long that is expected to last."""


class SubscribeEventsResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """A subscription."""

    id: str
    """The same for the same caller, URL, event type and arguments; it is in `SUBSCRIPTION_HEADER` of each delivery."""
    refresh_before: str | None
    """When it ends unless it is refreshed; null: never."""
    cursor: str | None = None
    truncated: bool = False
    delivery_status: DeliveryStatus | UnsetType = UNSET
    """UNSET for a new subscription."""
    result_type: Annotated[str, SINCE_2026_07] = COMPLETE
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class UnsubscribeEventsParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """Which subscription ends: the one that these made."""

    name: str
    delivery: Delivery
    arguments: Arguments = UNSET
    meta: Annotated[RequestMeta | UnsetType, REQUIRED_SINCE_2026_07] = field(default=UNSET, name="_meta")


# -- notifications of a stream, each with the id of its request in `_meta`


class ErrorObject(Struct, frozen=True, omit_defaults=True):
    """An error of JSON-RPC."""

    code: int
    message: str
    data: Any = UNSET


class ActiveParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """A stream has begun, or goes on after events that were skipped."""

    cursor: str | None = None
    truncated: bool = False
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class HeartbeatParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """A stream lives, and no event of it is before `cursor`."""

    cursor: str | None = None
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class FailureParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """Something of a stream failed; or, in `notifications/events/terminated`, the stream has ended."""

    error: ErrorObject
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


# -- bodies of webhooks that are no events: they have a `type`


class Verification(Struct, frozen=True, tag_field="type", tag="verification"):
    """Asks a receiver whether it wants the events: it proves that by a `VerificationAnswer`."""

    challenge: str


class VerificationAnswer(Struct, frozen=True):
    """The receiver's answer to a `Verification`, which repeats the challenge."""

    challenge: str


class Gap(Struct, frozen=True, tag_field="type", tag="gap"):
    """Events of a subscription were skipped."""

    cursor: str | None = None


class Terminated(Struct, frozen=True, tag_field="type", tag="terminated"):
    """A subscription has ended, and exists no more."""

    error: ErrorObject


Control: TypeAlias = Verification | Gap | Terminated
"""The body of a webhook that is no event."""


# -- the declaration

ACTIVE: Final = "notifications/events/active"
EVENT: Final = "notifications/events/event"
HEARTBEAT: Final = "notifications/events/heartbeat"
ERROR: Final = "notifications/events/error"
TERMINATED: Final = "notifications/events/terminated"
LIST_CHANGED: Final = "notifications/events/list_changed"

WEBHOOK_ROWS: Final = (
    Row("events/list", PaginatedRequestParams, ListEventsResult, open=True),
    Row("events/subscribe", SubscribeEventsParams, SubscribeEventsResult, open=True),
    Row("events/unsubscribe", UnsubscribeEventsParams, EmptyResult, open=True),
)
"""The methods of both profiles. A client MAY declare the extension, so it is not demanded."""
ROWS: Final = (
    *WEBHOOK_ROWS,
    Row("events/poll", PollEventsParams, PollEventsResult, open=True),
    Row("events/stream", StreamEventsParams, EmptyResult, open=True, stream=True),
    Row(ACTIVE, ActiveParams, direction="server"),
    Row(EVENT, EventOccurrence, direction="server"),
    Row(HEARTBEAT, HeartbeatParams, direction="server"),
    Row(ERROR, FailureParams, direction="server"),
    Row(TERMINATED, FailureParams, direction="server"),
)
"""The methods and notifications of the SEP."""
LIST_TOPIC: Final = Topic(name="events/list", method=LIST_CHANGED, member="eventsListChanged", sessions=True)
"""Subscribers are notified when event types are added, changed or removed."""
EVENTS_TOPIC: Final = Topic(name="events", method=EVENT, member="events", sessions=True)
"""Beside the SEP: a member of the filter with names of event types, all of whose events a subscriber gets. Sessions of
the stateful era, which have no filter, get all that their caller may see, if their client has declared the
extension."""
TOPICS: Final = (LIST_TOPIC, EVENTS_TOPIC)
DECLARED: Final = Extension(name=NAME, stage="beta", methods=ROWS, topics=TOPICS)
"""The declaration for a client."""


def bare_capability(revision: Revision) -> Mapping[str, Any]:
    """Return the member of a server's capabilities by which ChatGPT knows that it has events."""
    return {"events": {}}


# -- what both ends work out


def subscription_id(principal: str, url: str, name: str, arguments: Any) -> str:
    """Return the id of a subscription. Equal ones have the same, and nobody can make one that is another's."""
    return f"sub_{sha256(canonical([principal, url, name, arguments])).hexdigest()[:32]}"
