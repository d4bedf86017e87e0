"""The params and the result of every method of MCP, and the data of errors. Pure.

`types` explains how a field states its history, which members are kept verbatim, and the members that many types have
(`name`, `title`, `description`, `icons`, `uri`, `mime_type`, `annotations`, `type`). These are common here:

* `meta`: `_meta` of the message: in a request the part that the protocol reads, `RequestMeta`; elsewhere any object;
* `result_type`: "complete", "input_required" (the client answers questions and calls again) or a value of an extension;
* `ttl_ms`: milliseconds that a client may keep the result; `cache_scope`: "public", or "private" for this caller alone;
* `cursor`, `next_cursor`: where a page begins (UNSET: it is the first), and where the next one does (UNSET: there is
  none).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from .revisions import R2024_11, R2025_06, R2025_11, R2026_07
from .types import (
    ONLY_2025_11,
    SINCE_2025_03,
    SINCE_2025_06,
    SINCE_2025_11,
    SINCE_2026_07,
    UNTIL_2025_11,
    ClientCapabilities,
    ContentBlock,
    Free,
    Implementation,
    LoggingLevel,
    ModelPreferences,
    Number,
    ProgressToken,
    Prompt,
    PromptMessage,
    RequestMeta,
    Resource,
    ResourceContents,
    ResourceTemplate,
    Role,
    Root,
    SamplingMessage,
    SamplingMessageContentBlock,
    ServerCapabilities,
    TextContent,
    Tool,
    ToolChoice,
    object_only,
    single,
)

RequestId: TypeAlias = str | int
Cursor: TypeAlias = str
CacheScope: TypeAlias = Literal["private", "public"]
IncludeContext: TypeAlias = Literal["none", "thisServer", "allServers"]
ElicitAction: TypeAlias = Literal["accept", "decline", "cancel"]
ElicitMode: TypeAlias = Literal["form", "url"]

COMPLETE: Final = "complete"
INPUT_REQUIRED: Final = "input_required"
"""The two values of `resultType`. An absent one means `complete`."""

REQUIRED_SINCE_2026_07: Final = Meta(extra={"required_since": R2026_07})


# --- Params and results: the handshake of either era -----------------------------------------------


class RequestParams(Struct, frozen=True, rename="camel"):
    """The params of a request without params of its own."""

    meta: Annotated[RequestMeta | UnsetType, REQUIRED_SINCE_2026_07] = field(default=UNSET, name="_meta")


class NotificationParams(Struct, frozen=True, rename="camel"):
    """The params of a notification without params of its own."""

    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class EmptyResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """An empty result."""

    result_type: Annotated[str, SINCE_2026_07] = COMPLETE
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class InitializeRequestParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """The params of `initialize`."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation
    meta: RequestMeta | UnsetType = field(default=UNSET, name="_meta")


class InitializeResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """The revision of the session, and the server's description."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | UnsetType = UNSET
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class DiscoverResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """The revisions and capabilities of a stateless server. `ttl_ms`: how long a client may cache it, in
    milliseconds."""

    supported_versions: list[str]
    """The revisions that the server speaks, as dates."""
    capabilities: ServerCapabilities
    """The server's capabilities."""
    instructions: str | UnsetType = UNSET
    """How a model should use the server; for a system prompt, say."""
    result_type: str = COMPLETE
    ttl_ms: int = 0
    cache_scope: CacheScope = "private"
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


# --- Params and results: tools, resources, prompts, completion -------------------------------------


class PaginatedRequestParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """Which page of a list; the first without a cursor."""

    cursor: Cursor | UnsetType = UNSET
    meta: Annotated[RequestMeta | UnsetType, REQUIRED_SINCE_2026_07] = field(default=UNSET, name="_meta")


class ListToolsResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of tools."""

    tools: list[Tool]
    next_cursor: Cursor | UnsetType = UNSET
    result_type: Annotated[str, SINCE_2026_07] = COMPLETE
    ttl_ms: Annotated[int, SINCE_2026_07] = 0
    cache_scope: Annotated[CacheScope, SINCE_2026_07] = "private"
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class CallToolRequestParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """A call of a tool. `arguments`: a JSON object as it came; `input_responses`: the client's answers, by key."""

    name: str
    arguments: Raw | UnsetType = UNSET
    input_responses: Annotated[dict[str, Raw] | UnsetType, SINCE_2026_07] = UNSET
    request_state: Annotated[str | UnsetType, SINCE_2026_07] = UNSET
    meta: Annotated[RequestMeta | UnsetType, REQUIRED_SINCE_2026_07] = field(default=UNSET, name="_meta")


class CallToolResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a tool; `is_error`: the tool failed. `structured_content`: any JSON value, an object for older
    peers."""

    content: list[ContentBlock]
    """What a model reads: any number of blocks."""
    structured_content: Annotated[Any, Meta(extra={"since": R2025_06, "older": (R2026_07, object_only)})] = UNSET
    is_error: bool | UnsetType = UNSET
    result_type: Annotated[str, SINCE_2026_07] = COMPLETE
    meta: Free | UnsetType = field(default=UNSET, name="_meta")

    @property
    def text(self) -> str:
        """Its text blocks, one per line."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))


class ListResourcesResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of resources."""

    resources: list[Resource]
    next_cursor: Cursor | UnsetType = UNSET
    result_type: Annotated[str, SINCE_2026_07] = COMPLETE
    ttl_ms: Annotated[int, SINCE_2026_07] = 0
    cache_scope: Annotated[CacheScope, SINCE_2026_07] = "private"
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class ListResourceTemplatesResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of templates of resources."""

    resource_templates: list[ResourceTemplate]
    next_cursor: Cursor | UnsetType = UNSET
    result_type: Annotated[str, SINCE_2026_07] = COMPLETE
    ttl_ms: Annotated[int, SINCE_2026_07] = 0
    cache_scope: Annotated[CacheScope, SINCE_2026_07] = "private"
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class ReadResourceRequestParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """Which resource."""

    uri: str
    input_responses: Annotated[dict[str, Raw] | UnsetType, SINCE_2026_07] = UNSET
    request_state: Annotated[str | UnsetType, SINCE_2026_07] = UNSET
    meta: Annotated[RequestMeta | UnsetType, REQUIRED_SINCE_2026_07] = field(default=UNSET, name="_meta")


class ReadResourceResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """The contents of the resource, and perhaps of resources below it."""

    contents: list[ResourceContents]
    """Each with its own `uri`."""
    result_type: Annotated[str, SINCE_2026_07] = COMPLETE
    ttl_ms: Annotated[int, SINCE_2026_07] = 0
    cache_scope: Annotated[CacheScope, SINCE_2026_07] = "private"
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class SubscribeRequestParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """The resource whose changes the client wants."""

    uri: str
    meta: RequestMeta | UnsetType = field(default=UNSET, name="_meta")


class UnsubscribeRequestParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """The resource whose changes the client no longer wants."""

    uri: str
    meta: RequestMeta | UnsetType = field(default=UNSET, name="_meta")


class ListPromptsResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of prompts."""

    prompts: list[Prompt]
    next_cursor: Cursor | UnsetType = UNSET
    result_type: Annotated[str, SINCE_2026_07] = COMPLETE
    ttl_ms: Annotated[int, SINCE_2026_07] = 0
    cache_scope: Annotated[CacheScope, SINCE_2026_07] = "private"
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class GetPromptRequestParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """Which prompt, with which arguments."""

    name: str
    arguments: dict[str, str] | UnsetType = UNSET
    input_responses: Annotated[dict[str, Raw] | UnsetType, SINCE_2026_07] = UNSET
    request_state: Annotated[str | UnsetType, SINCE_2026_07] = UNSET
    meta: Annotated[RequestMeta | UnsetType, REQUIRED_SINCE_2026_07] = field(default=UNSET, name="_meta")


class GetPromptResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """The messages of a prompt."""

    messages: list[PromptMessage]
    """The messages, in order."""
    description: str | UnsetType = UNSET
    result_type: Annotated[str, SINCE_2026_07] = COMPLETE
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class PromptReference(Struct, frozen=True, rename="camel", tag_field="type", tag="ref/prompt"):
    """A prompt, by name."""

    type: ClassVar[Literal["ref/prompt"]] = "ref/prompt"
    name: str
    title: Annotated[str | UnsetType, SINCE_2025_06] = UNSET


class ResourceTemplateReference(Struct, frozen=True, rename="camel", tag_field="type", tag="ref/resource"):
    """A template of resources, by URI (ResourceReference in older schemas)."""

    type: ClassVar[Literal["ref/resource"]] = "ref/resource"
    uri: str


class CompletionArgument(Struct, frozen=True, rename="camel"):
    """The argument that is being typed, and its text so far."""

    name: str
    value: str


class CompletionContext(Struct, frozen=True, rename="camel"):
    """The arguments that are already given."""

    arguments: dict[str, str] | UnsetType = UNSET


class CompleteRequestParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """A request for values of an argument."""

    ref: PromptReference | ResourceTemplateReference
    argument: CompletionArgument
    context: Annotated[CompletionContext | UnsetType, SINCE_2025_06] = UNSET
    meta: Annotated[RequestMeta | UnsetType, REQUIRED_SINCE_2026_07] = field(default=UNSET, name="_meta")


class Completion(Struct, frozen=True, rename="camel"):
    """At most 100 values; `total`: how many there are in all; `has_more`: whether there are more."""

    values: list[str]
    """Most relevant first."""
    total: int | UnsetType = UNSET
    has_more: bool | UnsetType = UNSET


class CompleteResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """Values for an argument."""

    completion: Completion
    """The values."""
    result_type: Annotated[str, SINCE_2026_07] = COMPLETE
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class SetLevelRequestParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """The lowest level of log messages that the client wants. Any text is decoded; an unknown level is answered with an
    error."""

    level: str
    meta: RequestMeta | UnsetType = field(default=UNSET, name="_meta")


# --- Params and results: what a server asks, as a request or inside `input_required` ----------------


class CreateMessageRequestParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """A request to sample the client's model."""

    messages: list[SamplingMessage]
    """The conversation so far, the oldest first."""
    max_tokens: int
    """The most tokens that the model may generate; the client may allow fewer."""
    model_preferences: ModelPreferences | UnsetType = UNSET
    """Which model would be best; the client chooses."""
    system_prompt: str | UnsetType = UNSET
    """A system prompt, which the client may change or leave out."""
    include_context: IncludeContext | UnsetType = UNSET
    """Whose context the client adds: none, this server's, or all servers'. Deprecated by the specification."""
    temperature: Number | UnsetType = UNSET
    """As the model understands it."""
    stop_sequences: list[str] | UnsetType = UNSET
    """Texts at which the model stops."""
    metadata: Free | UnsetType = UNSET
    """For the provider of the model; any object."""
    tools: Annotated[list[Tool] | UnsetType, SINCE_2025_11] = UNSET
    """Tools that the model may ask for."""
    tool_choice: Annotated[ToolChoice | UnsetType, SINCE_2025_11] = UNSET
    """Whether it may, must or must not ask for one."""
    meta: Annotated[RequestMeta | UnsetType, UNTIL_2025_11] = field(default=UNSET, name="_meta")


class CreateMessageResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """The model's answer. `stop_reason`: "endTurn", "stopSequence", "maxTokens", "toolUse" or the provider's own."""

    role: Role
    """"assistant", as a rule."""
    content: Annotated[
        SamplingMessageContentBlock | list[SamplingMessageContentBlock], Meta(extra={"older": (R2025_11, single)})
    ]  # fmt: skip
    """One block, or a list of blocks where the revision has tools here."""
    model: str
    """The name of the model that answered."""
    stop_reason: str | UnsetType = UNSET
    meta: Free | UnsetType = field(default=UNSET, name="_meta")

    @property
    def text(self) -> str:
        """Its text blocks, one per line."""
        blocks = self.content if isinstance(self.content, list) else [self.content]
        return "\n".join(block.text for block in blocks if isinstance(block, TextContent))


class ListRootsRequestParams(Struct, frozen=True, rename="camel"):
    """The params of `roots/list` inside `input_required`."""

    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class ListRootsResult(Struct, frozen=True, rename="camel"):
    """The client's roots."""

    roots: list[Root]
    meta: Annotated[Free | UnsetType, UNTIL_2025_11] = field(default=UNSET, name="_meta")


class ElicitRequestParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """A question to the user: with `requested_schema`, by a form (`mode` "form" or absent); with `url`, at that URL
    (`mode` "url").

    ElicitRequestFormParams and ElicitRequestURLParams. `requested_schema` is a flat JSON Schema of type
    "object" whose properties are `PrimitiveSchema`s.
    """

    message: str
    """The question, for the user to read."""
    mode: Annotated[ElicitMode | UnsetType, SINCE_2025_11] = UNSET
    requested_schema: Annotated[Free | UnsetType, Meta(extra={"required_in": (R2025_06,)})] = UNSET
    url: Annotated[str | UnsetType, SINCE_2025_11] = UNSET
    elicitation_id: Annotated[str | UnsetType, ONLY_2025_11] = UNSET
    """Identifies a question at a URL; unique within the server."""
    meta: Annotated[RequestMeta | UnsetType, UNTIL_2025_11] = field(default=UNSET, name="_meta")


class ElicitResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """The user's decision; `content`: the filled form if it was accepted."""

    action: ElicitAction
    """"accept", "decline" (the user refused) or "cancel" (the user did not decide)."""
    content: dict[str, str | int | float | bool | list[str] | None] | UnsetType = UNSET
    meta: Annotated[Free | UnsetType, UNTIL_2025_11] = field(default=UNSET, name="_meta")


class CreateMessageRequest(Struct, frozen=True, rename="camel", tag_field="method", tag="sampling/createMessage"):
    """A question of `input_required`: sample a model."""

    method: ClassVar[Literal["sampling/createMessage"]] = "sampling/createMessage"
    params: CreateMessageRequestParams


class ListRootsRequest(Struct, frozen=True, rename="camel", tag_field="method", tag="roots/list"):
    """A question of `input_required`: which roots?"""

    method: ClassVar[Literal["roots/list"]] = "roots/list"
    params: ListRootsRequestParams | UnsetType = UNSET


class ElicitRequest(Struct, frozen=True, rename="camel", tag_field="method", tag="elicitation/create"):
    """A question of `input_required`: ask the user."""

    method: ClassVar[Literal["elicitation/create"]] = "elicitation/create"
    params: ElicitRequestParams


InputRequest: TypeAlias = CreateMessageRequest | ListRootsRequest | ElicitRequest
InputRequests: TypeAlias = dict[str, InputRequest]
InputResponse: TypeAlias = CreateMessageResult | ListRootsResult | ElicitResult
"""The type of an answer follows from the question with its key."""


class InputRequiredResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """Not an answer yet: the client answers the questions and calls again, with the state. At least one of the two is
    set."""

    input_requests: InputRequests | UnsetType = UNSET
    """The questions, by keys that their answers will have."""
    request_state: str | UnsetType = UNSET
    """Text that the client sends back unchanged, without interpreting it."""
    result_type: str = INPUT_REQUIRED
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


# --- Subscriptions and notifications ---------------------------------------------------------------


class SubscriptionFilter(Struct, frozen=True, kw_only=True, rename="camel"):
    """The changes that a subscriber wants, or will get. `resource_subscriptions`: URIs."""

    tools_list_changed: bool | UnsetType = UNSET
    prompts_list_changed: bool | UnsetType = UNSET
    resources_list_changed: bool | UnsetType = UNSET
    resource_subscriptions: list[str] | UnsetType = UNSET


class SubscriptionsListenRequestParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """The changes that the client wants from now on."""

    notifications: SubscriptionFilter
    meta: Annotated[RequestMeta | UnsetType, REQUIRED_SINCE_2026_07] = field(default=UNSET, name="_meta")


class SubscriptionsListenResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """The subscription has ended regularly. `meta` has SUBSCRIPTION_ID."""

    meta: Free = field(name="_meta")
    result_type: str = COMPLETE


class SubscriptionsAcknowledgedNotificationParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """The first message of a subscription: the changes of which the client will be notified. `meta` has
    SUBSCRIPTION_ID."""

    notifications: SubscriptionFilter
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class CancelledNotificationParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """The caller no longer wants an answer to this request."""

    request_id: Annotated[
        RequestId | UnsetType, Meta(extra={"required_since": R2024_11, "optional_in": (R2025_11,)})
    ] = UNSET  # fmt: skip
    reason: str | UnsetType = UNSET
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class ProgressNotificationParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """The progress of a request; `progress` always grows."""

    progress_token: ProgressToken
    """The token in the request's `_meta`."""
    progress: Number
    total: Number | UnsetType = UNSET
    """The value of `progress` at the end, where that is known."""
    message: Annotated[str | UnsetType, SINCE_2025_03] = UNSET
    """What is being done, for a person."""
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class LoggingMessageNotificationParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """A log message; `data` is any JSON value."""

    level: LoggingLevel
    """Its severity, by the names of RFC 5424."""
    data: Any
    logger: str | UnsetType = UNSET
    """The logger's name; UNSET: the server does not say."""
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class ResourceUpdatedNotificationParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """This resource, or one under it, has changed."""

    uri: str
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class ElicitationCompleteNotificationParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """The user has finished at the URL."""

    elicitation_id: str
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


# --- The data of errors ----------------------------------------------------------------------------


class UnsupportedProtocolVersionData(Struct, frozen=True, rename="camel"):
    """For UNSUPPORTED_VERSION: the supported revisions, and the requested one."""

    supported: list[str]
    requested: str


class MissingRequiredClientCapabilityData(Struct, frozen=True, rename="camel"):
    """For MISSING_CAPABILITY: what the client must declare for this request."""

    required_capabilities: ClientCapabilities


class URLElicitationRequiredData(Struct, frozen=True, rename="camel"):
    """For URL_ELICITATION_REQUIRED: the URLs that the user must open first."""

    elicitations: list[ElicitRequestParams]
