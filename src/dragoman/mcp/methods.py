"""Every method of MCP: one row each, and the error codes of the protocol. Pure.

A row says what the params and the result are, who sends it, in which revisions, and what the far end
must have declared. The tasks of the experimental and the extension kind have no rows yet.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

from . import params as p
from .revisions import R2024_11, R2025_06, R2025_11, R2026_07, Revision

Direction: TypeAlias = Literal["client", "server", "both"]

HEADER_MISMATCH: Final = -32020
"""HTTP headers and body disagree, or a header that must be there is not."""
MISSING_CAPABILITY: Final = -32021
"""The client did not declare what the request needs; `MissingRequiredClientCapabilityData`."""
UNSUPPORTED_VERSION: Final = -32022
"""This revision is not spoken here; `UnsupportedProtocolVersionData`."""
RESOURCE_NOT_FOUND: Final = -32002
"""Stateful revisions only; see `Revision.missing_resource`."""
URL_ELICITATION_REQUIRED: Final = -32042
"""Where `Revision.url_elicitation_error`; `URLElicitationRequiredData`."""

DEFINED_CODES: Final[dict[int, str]] = {
    RESOURCE_NOT_FOUND: "Resource not found",
    HEADER_MISMATCH: "Header mismatch",
    MISSING_CAPABILITY: "Missing required client capability",
    UNSUPPORTED_VERSION: "Unsupported protocol version",
    URL_ELICITATION_REQUIRED: "URL elicitation required",
}
"""What the protocol itself says with codes of the reserved range; nobody else may say anything with them."""

# basic/index, "Error Codes": -32000 to -32019: "new implementations SHOULD NOT use codes from this sub-range at
# all"; -32020 to -32099: "Implementations MUST NOT emit any code from this sub-range that is not defined by this
# specification and MUST use defined codes only with their specified meanings."
RESERVED_CODES: Final = range(-32099, -31999)
"""Codes that a handler's own errors may not have on an MCP server."""


class Row(Struct, frozen=True, kw_only=True):
    """One method: a request when it has a `result`, else a notification."""

    name: str
    params: type[Struct]
    result: type[Struct] | None = None
    """What answers it; None: a notification."""
    direction: Direction
    """Who sends it."""
    since: Revision = R2024_11
    until: Revision = R2026_07
    """The first and the last revision that have it."""
    capability: str | None = None
    """What the far end must have declared, dotted: its attributes in `ClientCapabilities` or `ServerCapabilities`."""
    cacheable: bool = False
    """The result says how long it may be kept, in revisions that have that."""
    ask: bool = False
    """It may be answered by `InputRequiredResult` where servers may not call."""

    def within(self, revision: Revision) -> bool:
        """Whether `revision` has this method."""
        return self.since.order <= revision.order <= self.until.order


_LIFE: Final = (
    Row(
        name="initialize",
        params=p.InitializeRequestParams,
        result=p.InitializeResult,
        direction="client",
        until=R2025_11,
    ),
    Row(
        name="notifications/initialized",
        params=p.NotificationParams,
        direction="client",
        until=R2025_11,
    ),
    Row(name="ping", params=p.RequestParams, result=p.EmptyResult, direction="both", until=R2025_11),
    Row(
        name="server/discover",
        params=p.RequestParams,
        result=p.DiscoverResult,
        direction="client",
        since=R2026_07,
        cacheable=True,
    ),
    Row(name="notifications/cancelled", params=p.CancelledNotificationParams, direction="both"),
    # Where servers send no requests, only they tell progress.
    Row(name="notifications/progress", params=p.ProgressNotificationParams, direction="both"),
)

_SERVER: Final = (
    Row(
        name="tools/list",
        params=p.PaginatedRequestParams,
        result=p.ListToolsResult,
        direction="client",
        capability="tools",
        cacheable=True,
    ),
    Row(
        name="tools/call",
        params=p.CallToolRequestParams,
        result=p.CallToolResult,
        direction="client",
        capability="tools",
        ask=True,
    ),
    Row(name="notifications/tools/list_changed", params=p.NotificationParams, direction="server"),
    Row(
        name="resources/list",
        params=p.PaginatedRequestParams,
        result=p.ListResourcesResult,
        direction="client",
        capability="resources",
        cacheable=True,
    ),
    Row(
        name="resources/templates/list",
        params=p.PaginatedRequestParams,
        result=p.ListResourceTemplatesResult,
        direction="client",
        capability="resources",
        cacheable=True,
    ),
    Row(
        name="resources/read",
        params=p.ReadResourceRequestParams,
        result=p.ReadResourceResult,
        direction="client",
        capability="resources",
        cacheable=True,
        ask=True,
    ),
    Row(
        name="resources/subscribe",
        params=p.SubscribeRequestParams,
        result=p.EmptyResult,
        direction="client",
        until=R2025_11,
        capability="resources.subscribe",
    ),
    Row(
        name="resources/unsubscribe",
        params=p.UnsubscribeRequestParams,
        result=p.EmptyResult,
        direction="client",
        until=R2025_11,
        capability="resources.subscribe",
    ),
    Row(name="notifications/resources/list_changed", params=p.NotificationParams, direction="server"),
    Row(
        name="notifications/resources/updated",
        params=p.ResourceUpdatedNotificationParams,
        direction="server",
    ),
    Row(
        name="prompts/list",
        params=p.PaginatedRequestParams,
        result=p.ListPromptsResult,
        direction="client",
        capability="prompts",
        cacheable=True,
    ),
    Row(
        name="prompts/get",
        params=p.GetPromptRequestParams,
        result=p.GetPromptResult,
        direction="client",
        capability="prompts",
        ask=True,
    ),
    Row(name="notifications/prompts/list_changed", params=p.NotificationParams, direction="server"),
    # The oldest revision has the method and no word for the capability.
    Row(
        name="completion/complete",
        params=p.CompleteRequestParams,
        result=p.CompleteResult,
        direction="client",
        capability="completions",
    ),
    Row(
        name="logging/setLevel",
        params=p.SetLevelRequestParams,
        result=p.EmptyResult,
        direction="client",
        until=R2025_11,
        capability="logging",
    ),
    Row(
        name="notifications/message",
        params=p.LoggingMessageNotificationParams,
        direction="server",
    ),
    Row(
        name="subscriptions/listen",
        params=p.SubscriptionsListenRequestParams,
        result=p.SubscriptionsListenResult,
        direction="client",
        since=R2026_07,
    ),
    Row(
        name="notifications/subscriptions/acknowledged",
        params=p.SubscriptionsAcknowledgedNotificationParams,
        direction="server",
        since=R2026_07,
    ),
)

_CLIENT: Final = (
    # In the newest revision these three are no methods but questions inside `input_required`.
    Row(
        name="sampling/createMessage",
        params=p.CreateMessageRequestParams,
        result=p.CreateMessageResult,
        direction="server",
        until=R2025_11,
        capability="sampling",
    ),
    Row(
        name="roots/list",
        params=p.RequestParams,
        result=p.ListRootsResult,
        direction="server",
        until=R2025_11,
        capability="roots",
    ),
    Row(
        name="elicitation/create",
        params=p.ElicitRequestParams,
        result=p.ElicitResult,
        direction="server",
        since=R2025_06,
        until=R2025_11,
        capability="elicitation",
    ),
    Row(
        name="notifications/roots/list_changed",
        params=p.NotificationParams,
        direction="client",
        until=R2025_11,
    ),
    Row(
        name="notifications/elicitation/complete",
        params=p.ElicitationCompleteNotificationParams,
        direction="server",
        since=R2025_11,
        until=R2025_11,
        capability="elicitation.url",
    ),
)

METHODS: Final[dict[str, Row]] = {row.name: row for row in (*_LIFE, *_SERVER, *_CLIENT)}
"""By name."""
