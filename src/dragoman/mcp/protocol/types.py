"""Every type of MCP, once: its wire form, and the revisions that have it. Pure.

The names are those of the official schema of the newest revision, or of the last revision that has the type. Attributes
are snake_case, members on the wire camelCase, and `_meta` is `meta`. A member that is absent is `UNSET`. A field's
history is in its `msgspec.Meta.extra`:

* `since`, `until`: the first and the last revision that have it; absent: those of its type;
* `required_since`: it may be UNSET here, but not on the wire from that revision on;
* `required_in`, `optional_in`: the same for single revisions;
* `older`: (revision, function): for older revisions the function converts the value to what those peers understand; it
  returns UNSET to leave it out, or raises LocalError.

`encoding.encode` obeys it. Decoding accepts every revision's members at any time and ignores members that are not here.
Free members (`_meta`, JSON Schemas, arguments, structured content) are kept verbatim. Where the schema has variants
without a tag, one type has the members of all (`ResourceContents`, `params.ElicitRequestParams`, `PrimitiveSchema`),
and its text says which go together.

Members that many types have are explained here and not in each of them:

* `name`: the identifier that calls use; `title`: a name for people, shown instead of it where there is one;
  `description`: its purpose, written for a model; `icons`: pictures for people, in any order;
* `uri`: a URI (RFC 3986) as text; `mime_type`: a media type such as "text/plain";
* `annotations`: hints about the content's audience and importance; `type`: the tag that distinguishes content blocks;
* `meta`: a JSON object for clients, servers and extensions, by keys with a prefix; the protocol's own keys are the
  constants below PREFIX.

This module has the objects of the protocol; `params` has the messages' params and results.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from ...jsonrpc.errors import LocalError
from .foreign import ForeignContent
from .revisions import R2025_03, R2025_06, R2025_11, R2026_07, Revision

# --- Words and keys -------------------------------------------------------------------------------

ProgressToken: TypeAlias = str | int
Number: TypeAlias = int | float
Role: TypeAlias = Literal["user", "assistant"]
LoggingLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
Free: TypeAlias = dict[str, Any]
"""A JSON object that is kept as it came, with the order of its members."""

PREFIX: Final = "io.modelcontextprotocol/"
"""The beginning of the keys of `_meta` that the protocol itself uses."""
PROTOCOL_VERSION: Final = PREFIX + "protocolVersion"
CLIENT_INFO: Final = PREFIX + "clientInfo"
CLIENT_CAPABILITIES: Final = PREFIX + "clientCapabilities"
LOG_LEVEL: Final = PREFIX + "logLevel"
SERVER_INFO: Final = PREFIX + "serverInfo"
"""In `_meta` of results: the server's `Implementation`."""
SUBSCRIPTION_ID: Final = PREFIX + "subscriptionId"
"""In `_meta` of notifications and of the result of `subscriptions/listen`: the id of that request."""

SINCE_2025_03: Final = Meta(extra={"since": R2025_03})
SINCE_2025_06: Final = Meta(extra={"since": R2025_06})
SINCE_2025_11: Final = Meta(extra={"since": R2025_11})
SINCE_2026_07: Final = Meta(extra={"since": R2026_07})
UNTIL_2025_11: Final = Meta(extra={"until": R2025_11})
ONLY_2025_11: Final = Meta(extra={"since": R2025_11, "until": R2025_11})


def single(value: Any) -> Any:
    """Return the content of a sampling message as older revisions have it: one block. Raises LocalError for several."""
    if not isinstance(value, list):
        return value
    if len(value) == 1:
        return value[0]
    raise LocalError(f"this revision takes one content block in a sampling message, not {len(value)}")


def object_only(value: Any) -> Any:
    """Return structured content as older revisions have it: a JSON object, or UNSET for any other value."""
    if isinstance(value, Raw):
        return value if bytes(value).lstrip()[:1] == b"{" else UNSET
    return UNSET if value is None or isinstance(value, str | int | float | list | tuple) else value


def _object_schema(value: Free) -> Any:
    """Return an output schema as older revisions have it: that of an object, or UNSET for any other."""
    return _plain_schema(value) if value.get("type") == "object" else UNSET


def _plain_schema(value: Free) -> Free:
    """Return a tool's schema as older revisions have it: with an object in place of `true` or `false` for a
    property."""
    properties = value.get("properties")
    if not isinstance(properties, dict) or not any(isinstance(one, bool) for one in properties.values()):
        return value
    plain = {name: ({} if one else {"not": {}}) if isinstance(one, bool) else one for name, one in properties.items()}
    return value | {"properties": plain}


# --- The two ends, and what they can do -----------------------------------------------------------


class Icon(Struct, frozen=True, rename="camel"):
    """A picture for a person to see. `src`: an https: or data: URI; `sizes`: "48x48", "any"."""

    src: str
    mime_type: str | UnsetType = UNSET
    sizes: list[str] | UnsetType = UNSET
    theme: Literal["light", "dark"] | UnsetType = UNSET
    """The background for which it is made."""


class Implementation(Struct, frozen=True, rename="camel"):
    """The name and version of a client's or a server's software. For display and logs, not for decisions."""

    name: str
    version: str
    """Any text; the protocol does not define an order."""
    title: Annotated[str | UnsetType, SINCE_2025_06] = UNSET
    description: Annotated[str | UnsetType, SINCE_2025_11] = UNSET
    icons: Annotated[list[Icon] | UnsetType, SINCE_2025_11] = UNSET
    website_url: Annotated[str | UnsetType, SINCE_2025_11] = UNSET
    """The https: URL of a page about it."""


class RootsCapability(Struct, frozen=True, rename="camel"):
    """The client lists its roots; `list_changed`: and notifies when they change."""

    list_changed: Annotated[bool | UnsetType, UNTIL_2025_11] = UNSET


class SamplingCapability(Struct, frozen=True, rename="camel"):
    """The client samples a model; `context`: with the context of servers; `tools`: with tools."""

    context: Annotated[Free | UnsetType, SINCE_2025_11] = UNSET
    tools: Annotated[Free | UnsetType, SINCE_2025_11] = UNSET


class ElicitationCapability(Struct, frozen=True, rename="camel"):
    """The client asks its user: by a form (also when neither is said), by a URL to open."""

    form: Annotated[Free | UnsetType, SINCE_2025_11] = UNSET
    url: Annotated[Free | UnsetType, SINCE_2025_11] = UNSET


class ClientCapabilities(Struct, frozen=True, kw_only=True, rename="camel"):
    """A client's capabilities: in `initialize` for the session, in each request's `_meta` for that request."""

    experimental: Free | UnsetType = UNSET
    """Capabilities beyond the protocol, by name."""
    roots: RootsCapability | UnsetType = UNSET
    """Present: `roots/list` is answered."""
    sampling: SamplingCapability | UnsetType = UNSET
    """Present: `sampling/createMessage` is answered."""
    elicitation: Annotated[ElicitationCapability | UnsetType, SINCE_2025_06] = UNSET
    """Present: `elicitation/create` is answered; its members are the modes."""
    tasks: Annotated[Free | UnsetType, ONLY_2025_11] = UNSET
    """Which requests may be made as tasks, as an object that is kept verbatim."""
    extensions: Annotated[Free | UnsetType, SINCE_2025_06] = UNSET
    """The settings of the extensions that the client supports, by identifier."""

    def declares(self, extension: str) -> bool:
        """Return whether they have the extension of this name."""
        return isinstance(self.extensions, dict) and extension in self.extensions


class PromptsCapability(Struct, frozen=True, rename="camel"):
    """The server has prompts; `list_changed`: and notifies when they change."""

    list_changed: bool | UnsetType = UNSET


class ResourcesCapability(Struct, frozen=True, rename="camel"):
    """The server has resources; `subscribe`: it notifies when one changes; `list_changed`: when the list does."""

    subscribe: bool | UnsetType = UNSET
    list_changed: bool | UnsetType = UNSET


class ToolsCapability(Struct, frozen=True, rename="camel"):
    """The server has tools; `list_changed`: and notifies when they change."""

    list_changed: bool | UnsetType = UNSET


class ServerCapabilities(Struct, frozen=True, kw_only=True, rename="camel"):
    """A server's capabilities."""

    experimental: Free | UnsetType = UNSET
    """Capabilities beyond the protocol, by name."""
    logging: Free | UnsetType = UNSET
    """Present (empty): log messages are sent."""
    completions: Annotated[Free | UnsetType, SINCE_2025_03] = UNSET
    """Present (empty): `completion/complete` is answered."""
    prompts: PromptsCapability | UnsetType = UNSET
    """Present: there are prompts, or may be."""
    resources: ResourcesCapability | UnsetType = UNSET
    """Present: there are resources, or may be."""
    tools: ToolsCapability | UnsetType = UNSET
    """Present: there are tools, or may be."""
    tasks: Annotated[Free | UnsetType, ONLY_2025_11] = UNSET
    """Which requests may be made as tasks, as an object that is kept verbatim."""
    extensions: Annotated[Free | UnsetType, SINCE_2025_06] = UNSET
    """The settings of the extensions that the server supports, by identifier."""


class RequestMeta(Struct, frozen=True, kw_only=True, rename="camel"):
    """`_meta` of a request, as far as the protocol reads it (RequestMetaObject).

    All are optional and `log_level` is any text: admission checks what a revision requires, not the decoder.
    """

    progress_token: ProgressToken | UnsetType = UNSET
    protocol_version: Annotated[
        str | UnsetType, Meta(extra={"since": R2026_07, "required_since": R2026_07})
    ] = field(default=UNSET, name=PROTOCOL_VERSION)  # fmt: skip
    client_info: Annotated[Implementation | UnsetType, SINCE_2026_07] = field(default=UNSET, name=CLIENT_INFO)
    client_capabilities: Annotated[
        ClientCapabilities | UnsetType, Meta(extra={"since": R2026_07, "required_since": R2026_07})
    ] = field(default=UNSET, name=CLIENT_CAPABILITIES)  # fmt: skip
    log_level: Annotated[str | UnsetType, SINCE_2026_07] = field(default=UNSET, name=LOG_LEVEL)


# --- Content ---------------------------------------------------------------------------------------


class Annotations(Struct, frozen=True, kw_only=True, rename="camel"):
    """Hints about a content: its audience, its importance (0 to 1), the time of its last change (ISO 8601)."""

    audience: list[Role] | UnsetType = UNSET
    """Its audience: "user", "assistant", or both."""
    priority: Number | UnsetType = UNSET
    """0 (may be left out) to 1 (is needed)."""
    last_modified: Annotated[str | UnsetType, SINCE_2025_06] = UNSET
    """When it last changed: an ISO 8601 time."""


class TextContent(Struct, frozen=True, rename="camel", tag_field="type", tag="text"):
    """Text."""

    type: ClassVar[Literal["text"]] = "text"
    text: str
    """The text."""
    annotations: Annotations | UnsetType = UNSET
    meta: Annotated[Free | UnsetType, SINCE_2025_06] = field(default=UNSET, name="_meta")


class ImageContent(Struct, frozen=True, rename="camel", tag_field="type", tag="image"):
    """A picture. `data`: base64."""

    type: ClassVar[Literal["image"]] = "image"
    data: str
    mime_type: str
    annotations: Annotations | UnsetType = UNSET
    meta: Annotated[Free | UnsetType, SINCE_2025_06] = field(default=UNSET, name="_meta")

    def decoded(self) -> bytes:
        """Return the bytes of the picture. Raises ValueError when `data` is not base64."""
        return b64decode(self.data)


class AudioContent(Struct, frozen=True, rename="camel", tag_field="type", tag="audio"):
    """A sound. `data`: base64."""

    type: ClassVar[Literal["audio"]] = "audio"
    data: str
    mime_type: str
    annotations: Annotations | UnsetType = UNSET
    meta: Annotated[Free | UnsetType, SINCE_2025_06] = field(default=UNSET, name="_meta")

    def decoded(self) -> bytes:
        """Return the bytes of the sound. Raises ValueError when `data` is not base64."""
        return b64decode(self.data)


class ResourceContents(Struct, frozen=True, kw_only=True, rename="camel"):
    """The contents of a resource: either `text`, or `blob` in base64 (TextResourceContents, BlobResourceContents)."""

    uri: str
    mime_type: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    blob: str | UnsetType = UNSET
    meta: Annotated[Free | UnsetType, SINCE_2025_06] = field(default=UNSET, name="_meta")

    def decoded(self) -> bytes:
        """Return the content as bytes, whichever of the two it is. Raises ValueError when `blob` is not base64."""
        if isinstance(self.text, str):
            return self.text.encode()
        return b64decode(self.blob) if isinstance(self.blob, str) else b""


class EmbeddedResource(Struct, frozen=True, rename="camel", tag_field="type", tag="resource"):
    """A resource with its contents."""

    type: ClassVar[Literal["resource"]] = "resource"
    resource: ResourceContents
    """The resource, with its contents."""
    annotations: Annotations | UnsetType = UNSET
    meta: Annotated[Free | UnsetType, SINCE_2025_06] = field(default=UNSET, name="_meta")


class ResourceLink(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="resource_link"):
    """A link to a resource of the server, without its contents. `size`: bytes."""

    type: ClassVar[Literal["resource_link"]] = "resource_link"
    uri: str
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    size: int | UnsetType = UNSET
    icons: Annotated[list[Icon] | UnsetType, SINCE_2025_11] = UNSET
    annotations: Annotations | UnsetType = UNSET
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


ContentBlock: TypeAlias = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource | ForeignContent


class ToolUseContent(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="tool_use"):
    """A model asks for a call of a tool."""

    type: ClassVar[Literal["tool_use"]] = "tool_use"
    id: str
    name: str
    input: Free
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


class ToolResultContent(Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="tool_result"):
    """The tool's answer to a model's `tool_use`, by its id."""

    type: ClassVar[Literal["tool_result"]] = "tool_result"
    tool_use_id: str
    content: list[ContentBlock]
    structured_content: Annotated[Any, Meta(extra={"older": (R2026_07, object_only)})] = UNSET
    is_error: bool | UnsetType = UNSET
    meta: Free | UnsetType = field(default=UNSET, name="_meta")


SamplingMessageContentBlock: TypeAlias = (
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent | ForeignContent
)

BORN: Final[dict[type[Struct], Revision]] = {
    AudioContent: R2025_03,
    ResourceLink: R2025_06,
    ToolUseContent: R2025_11,
    ToolResultContent: R2025_11,
}
"""The first revision of content blocks that are newer than MCP; the others are in every revision."""


def stand_in(block: Struct) -> TextContent | None:
    """Return the text that replaces a block for a revision without its kind; None if no text can."""
    if isinstance(block, ResourceLink):
        about = f" ({block.description})" if block.description else ""
        return TextContent(f"{block.title or block.name}: {block.uri}{about}", block.annotations)
    if isinstance(block, AudioContent):
        return TextContent(f"[audio, {block.mime_type}]", block.annotations)
    return None


# --- What a server offers --------------------------------------------------------------------------


class ToolAnnotations(Struct, frozen=True, kw_only=True, rename="camel"):
    """Hints about what a tool does; a client must not trust them unless it trusts the server."""

    title: str | UnsetType = UNSET
    read_only_hint: bool | UnsetType = UNSET
    """Whether it changes nothing. Default: False."""
    destructive_hint: bool | UnsetType = UNSET
    """Whether it may delete or overwrite, and not only add; ignored where `read_only_hint` is True. Default: True."""
    idempotent_hint: bool | UnsetType = UNSET
    """Whether a second call with the same arguments has no further effect. Default: False."""
    open_world_hint: bool | UnsetType = UNSET
    """Whether it deals with things outside of the server, as a search of the web does. Default: True."""


class ToolExecution(Struct, frozen=True, rename="camel"):
    """Whether a tool may, must or must not be called as a task."""

    task_support: Literal["forbidden", "optional", "required"] | UnsetType = UNSET


class Tool(Struct, frozen=True, kw_only=True, rename="camel"):
    """A tool: its arguments as JSON Schema, and its structured content."""

    name: str
    title: Annotated[str | UnsetType, SINCE_2025_06] = UNSET
    description: str | UnsetType = UNSET
    icons: Annotated[list[Icon] | UnsetType, SINCE_2025_11] = UNSET
    input_schema: Annotated[Free, Meta(extra={"older": (R2026_07, _plain_schema)})]
    """JSON Schema (2020-12 unless it names another) of the arguments; its `type` is "object"."""
    output_schema: Annotated[
        Free | UnsetType, Meta(extra={"since": R2025_06, "older": (R2026_07, _object_schema)})
    ] = UNSET  # fmt: skip
    """JSON Schema of `structured_content`; UNSET: there is none."""
    annotations: Annotated[ToolAnnotations | UnsetType, SINCE_2025_03] = UNSET
    execution: Annotated[ToolExecution | UnsetType, ONLY_2025_11] = UNSET
    """Whether it can be called as a task."""
    meta: Annotated[Free | UnsetType, SINCE_2025_06] = field(default=UNSET, name="_meta")


class Resource(Struct, frozen=True, kw_only=True, rename="camel"):
    """A resource that can be read by its URI. `size`: bytes."""

    uri: str
    name: str
    title: Annotated[str | UnsetType, SINCE_2025_06] = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    size: int | UnsetType = UNSET
    icons: Annotated[list[Icon] | UnsetType, SINCE_2025_11] = UNSET
    annotations: Annotations | UnsetType = UNSET
    meta: Annotated[Free | UnsetType, SINCE_2025_06] = field(default=UNSET, name="_meta")


class ResourceTemplate(Struct, frozen=True, kw_only=True, rename="camel"):
    """Resources that can be read by a URI made of a template (RFC 6570)."""

    uri_template: str
    """The template (RFC 6570) of their URIs, such as `file:///{path}`."""
    name: str
    title: Annotated[str | UnsetType, SINCE_2025_06] = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    icons: Annotated[list[Icon] | UnsetType, SINCE_2025_11] = UNSET
    annotations: Annotations | UnsetType = UNSET
    meta: Annotated[Free | UnsetType, SINCE_2025_06] = field(default=UNSET, name="_meta")


class PromptArgument(Struct, frozen=True, kw_only=True, rename="camel"):
    """An argument of a prompt: always text."""

    name: str
    title: Annotated[str | UnsetType, SINCE_2025_06] = UNSET
    description: str | UnsetType = UNSET
    required: bool | UnsetType = UNSET


class Prompt(Struct, frozen=True, kw_only=True, rename="camel"):
    """A prompt: messages made on request from its arguments."""

    name: str
    title: Annotated[str | UnsetType, SINCE_2025_06] = UNSET
    description: str | UnsetType = UNSET
    icons: Annotated[list[Icon] | UnsetType, SINCE_2025_11] = UNSET
    arguments: list[PromptArgument] | UnsetType = UNSET
    """The arguments that it takes; UNSET: none."""
    meta: Annotated[Free | UnsetType, SINCE_2025_06] = field(default=UNSET, name="_meta")


class PromptMessage(Struct, frozen=True, rename="camel"):
    """One message of a prompt."""

    role: Role
    """The speaker: "user" or "assistant"."""
    content: ContentBlock
    """One block."""


# --- What a client offers --------------------------------------------------------------------------


class Root(Struct, frozen=True, rename="camel"):
    """A folder in which the client lets the server work. `uri`: file:."""

    uri: str
    name: str | UnsetType = UNSET
    meta: Annotated[Free | UnsetType, SINCE_2025_06] = field(default=UNSET, name="_meta")


class ModelHint(Struct, frozen=True, rename="camel"):
    """A part of a model's name."""

    name: str | UnsetType = UNSET


class ModelPreferences(Struct, frozen=True, kw_only=True, rename="camel"):
    """Preferences for the choice of a model; the priorities are 0 to 1."""

    hints: list[ModelHint] | UnsetType = UNSET
    cost_priority: Number | UnsetType = UNSET
    speed_priority: Number | UnsetType = UNSET
    intelligence_priority: Number | UnsetType = UNSET


class ToolChoice(Struct, frozen=True, rename="camel"):
    """Whether a sampled model may, must or must not call tools."""

    mode: Literal["auto", "required", "none"] | UnsetType = UNSET


class SamplingMessage(Struct, frozen=True, rename="camel"):
    """A message to or from a sampled model; several blocks in one message since the revision that has tools."""

    role: Role
    """The speaker: "user" or "assistant"."""
    content: Annotated[
        SamplingMessageContentBlock | list[SamplingMessageContentBlock], Meta(extra={"older": (R2025_11, single)})
    ]  # fmt: skip
    """One block, or a list of blocks."""
    meta: Annotated[Free | UnsetType, SINCE_2025_11] = field(default=UNSET, name="_meta")


class EnumOption(Struct, frozen=True, rename="camel"):
    """A choice with the title to show for it."""

    const: str
    title: str


class EnumItems(Struct, frozen=True, rename="camel"):
    """The choices of a list: `enum` with `type` "string", or `any_of` with titles."""

    type: Literal["string"] | UnsetType = UNSET
    enum: list[str] | UnsetType = UNSET
    any_of: list[EnumOption] | UnsetType = UNSET


class PrimitiveSchema(Struct, frozen=True, kw_only=True, rename="camel"):
    """One field of a form: the type of the values of `properties` in a form's schema.

    StringSchema: `format`, lengths; NumberSchema ("number", "integer"): `minimum`, `maximum`; BooleanSchema;
    choice of one: `enum` (with the deprecated `enum_names`) or `one_of`; of several ("array"): `items`.
    """

    type: Literal["string", "number", "integer", "boolean", "array"]
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    default: Any = UNSET
    min_length: int | UnsetType = UNSET
    max_length: int | UnsetType = UNSET
    format: Literal["email", "uri", "date", "date-time"] | UnsetType = UNSET
    minimum: Number | UnsetType = UNSET
    maximum: Number | UnsetType = UNSET
    enum: list[str] | UnsetType = UNSET
    enum_names: list[str] | UnsetType = UNSET
    one_of: Annotated[list[EnumOption] | UnsetType, SINCE_2025_11] = UNSET
    items: Annotated[EnumItems | UnsetType, SINCE_2025_11] = UNSET
    min_items: Annotated[int | UnsetType, SINCE_2025_11] = UNSET
    max_items: Annotated[int | UnsetType, SINCE_2025_11] = UNSET
