"""Every method of MCP: one row each, and the error codes of the protocol. Pure.

A row has the types of the params and the result, the direction, the revisions, and whether the method may ask the
client and its result be cached. An extension adds rows of its own (`extension`): a server and a client each have a
table that begins with these rows.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

from . import params as p
from .revisions import R2024_11, R2025_06, R2025_11, R2026_07, Revision

Direction: TypeAlias = Literal["client", "server", "both"]

HEADER_MISMATCH: Final = -32020
"""HTTP headers and body disagree, or a required header is missing."""
MISSING_CAPABILITY: Final = -32021
"""The client did not declare what the request needs; `MissingRequiredClientCapabilityData`."""
UNSUPPORTED_VERSION: Final = -32022
"""The server does not speak this revision; `UnsupportedProtocolVersionData`."""
RESOURCE_NOT_FOUND: Final = -32002
"""There is no such resource; only in stateful revisions, see `Revision.missing_resource`."""
URL_ELICITATION_REQUIRED: Final = -32042
"""The user must open a URL first; only where `Revision.url_elicitation_error`. `URLElicitationRequiredData`."""

DEFINED_CODES: Final[dict[int, str]] = {
    RESOURCE_NOT_FOUND: "Resource not found",
    HEADER_MISMATCH: "Header mismatch",
    MISSING_CAPABILITY: "Missing required client capability",
    UNSUPPORTED_VERSION: "Unsupported protocol version",
    URL_ELICITATION_REQUIRED: "URL elicitation required",
}
"""Codes of the reserved range that the protocol itself defines; no other of them may be used."""

# basic/index, "Error Codes": -32000 to -32019: "new implementations SHOULD NOT use codes from this sub-range at
# all"; -32020 to -32099: "Implementations MUST NOT emit any code from this sub-range that is not defined by this
# specification and MUST use defined codes only with their specified meanings."
RESERVED_CODES: Final = range(-32099, -31999)
"""Codes that a handler's own errors may not have on an MCP server."""


class Row(Struct, frozen=True):
    """One method: a request when it has a `result`, else a notification."""

    name: str
    """Its name on the wire, such as "tools/call"."""
    params: type[Struct]
    """The type of the params."""
    result: type[Struct] | None = None
    """The type of the result; None: a notification."""
    direction: Direction = "client"
    """Which side sends it."""
    since: Revision = R2024_11
    """The first revision that has it."""
    until: Revision = R2026_07
    """The last revision that has it."""
    cacheable: bool = False
    """Whether the result says how long it may be cached, in revisions that have that."""
    ask: bool = False
    """Whether it may be answered by `InputRequiredResult`, in revisions in which servers may not call."""
    named: str | None = None
    """The member of the params, by its name in JSON, that the header `Mcp-Name` repeats."""
    open: bool = False
    """Of an extension: whether clients that have not declared it are answered too."""
    own_state: bool = False
    """Whether its function reads `requestState` itself, which is then not opened as one that this server sealed."""
    stream: bool = False
    """Of an extension: whether a call lasts, and sends messages ahead of its answer. It has no time-out then, and does
    not count among the calls in flight: its function bounds how many there are."""

    def within(self, revision: Revision) -> bool:
        """Return whether `revision` has this method."""
        return self.since.order <= revision.order <= self.until.order


_LIFE: Final = (
    Row("initialize", p.InitializeRequestParams, p.InitializeResult, until=R2025_11),
    Row("notifications/initialized", p.NotificationParams, until=R2025_11),
    Row("ping", p.RequestParams, p.EmptyResult, direction="both", until=R2025_11),
    Row("server/discover", p.RequestParams, p.DiscoverResult, since=R2026_07, cacheable=True),
    Row("notifications/cancelled", p.CancelledNotificationParams, direction="both"),
    # Where servers send no requests, only servers report progress.
    Row("notifications/progress", p.ProgressNotificationParams, direction="both"),
)

_SERVER: Final = (
    Row("tools/list", p.PaginatedRequestParams, p.ListToolsResult, cacheable=True),
    Row("tools/call", p.CallToolRequestParams, p.CallToolResult, ask=True, named="name"),
    Row("notifications/tools/list_changed", p.NotificationParams, direction="server"),
    Row("resources/list", p.PaginatedRequestParams, p.ListResourcesResult, cacheable=True),
    Row(
        "resources/templates/list",
        p.PaginatedRequestParams,
        p.ListResourceTemplatesResult,
        cacheable=True,
    ),
    Row(
        "resources/read",
        p.ReadResourceRequestParams,
        p.ReadResourceResult,
        cacheable=True,
        ask=True,
        named="uri",
    ),
    Row("resources/subscribe", p.SubscribeRequestParams, p.EmptyResult, until=R2025_11),
    Row(
        "resources/unsubscribe",
        p.UnsubscribeRequestParams,
        p.EmptyResult,
        until=R2025_11,
    ),
    Row("notifications/resources/list_changed", p.NotificationParams, direction="server"),
    Row("notifications/resources/updated", p.ResourceUpdatedNotificationParams, direction="server"),
    Row("prompts/list", p.PaginatedRequestParams, p.ListPromptsResult, cacheable=True),
    Row("prompts/get", p.GetPromptRequestParams, p.GetPromptResult, ask=True, named="name"),
    Row("notifications/prompts/list_changed", p.NotificationParams, direction="server"),
    # The oldest revision has the method but not the capability.
    Row("completion/complete", p.CompleteRequestParams, p.CompleteResult),
    Row("logging/setLevel", p.SetLevelRequestParams, p.EmptyResult, until=R2025_11),
    Row("notifications/message", p.LoggingMessageNotificationParams, direction="server"),
    Row("subscriptions/listen", p.SubscriptionsListenRequestParams, p.SubscriptionsListenResult, since=R2026_07),
    Row(
        "notifications/subscriptions/acknowledged",
        p.SubscriptionsAcknowledgedNotificationParams,
        direction="server",
        since=R2026_07,
    ),
)

_CLIENT: Final = (
    # In the newest revision these three are not methods but questions inside `input_required`.
    Row(
        "sampling/createMessage",
        p.CreateMessageRequestParams,
        p.CreateMessageResult,
        direction="server",
        until=R2025_11,
    ),
    Row("roots/list", p.RequestParams, p.ListRootsResult, direction="server", until=R2025_11),
    Row(
        "elicitation/create",
        p.ElicitRequestParams,
        p.ElicitResult,
        direction="server",
        since=R2025_06,
        until=R2025_11,
    ),
    Row("notifications/roots/list_changed", p.NotificationParams, until=R2025_11),
    Row(
        "notifications/elicitation/complete",
        p.ElicitationCompleteNotificationParams,
        direction="server",
        since=R2025_11,
        until=R2025_11,
    ),
)

METHODS: Final[dict[str, Row]] = {row.name: row for row in (*_LIFE, *_SERVER, *_CLIENT)}
"""The protocol's methods by name."""
