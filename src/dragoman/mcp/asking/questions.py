"""The questions that a handler may ask: to the user (by a form, at a URL), to the client's model, for its roots.

Each is a value that knows its method, its request in a revision, and how its answer is decoded. `ask` sends them to a
client that has declared what the request needs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from ...jsonrpc.errors import BadAnswer, LocalError
from ...rpc.binding.results import result_decoder
from ..protocol.admission import Admitted
from ..protocol.foreign_decoding import decode_content
from ..protocol.methods import DEFINED_CODES, METHODS, MISSING_CAPABILITY
from ..protocol.params import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitAction,
    ElicitMode,
    ElicitRequest,
    ElicitRequestParams,
    IncludeContext,
    InputRequest,
    ListRootsRequest,
    ListRootsRequestParams,
    ListRootsResult,
)
from ..protocol.revisions import Revision
from ..protocol.types import (
    ClientCapabilities,
    ElicitationCapability,
    Free,
    ModelHint,
    ModelPreferences,
    Root,
    SamplingCapability,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)
from ..protocol.uri import normal
from .forms import CannotAsk, form_of

T = TypeVar("T")
A = TypeVar("A", covariant=True)
Lacks: TypeAlias = dict[str, Any]
"""Capabilities that the client would need and has not declared, written like capabilities; empty: it has all."""


def _decoder_at_first_use(type: Any) -> Callable[[Any], Any]:
    """Return a decoder of a type, which is built at its first use: that takes longer than importing this module."""
    made = cache(lambda: result_decoder(type))
    return lambda answer: made()(answer)


class Question(Protocol[A]):
    """A question; `A` is the type of its answer."""

    method: ClassVar[str]
    again: ClassVar[bool]
    """Whether the question is sent again if the answer does not fit, because a user filled it in."""

    @property
    def key(self) -> str | None:
        """The name of its answer where the client calls again; None: its position and a digest of its text."""

    def request(self, revision: Revision) -> InputRequest:
        """Make the request for the question. Raises CannotAsk if the revision cannot express it, LocalError if none
        can."""

    def text(self, request: InputRequest) -> bytes:
        """Return the bytes that distinguish it from other questions."""

    def read(self, answer: Raw) -> A:
        """Decode the answer. Raises BadAnswer with every fault."""


class Elicited(Struct, Generic[T], frozen=True):
    """The user's decision: `content` is the filled form if the user accepted, otherwise None."""

    action: ElicitAction
    """"accept", "decline" or "cancel"."""
    content: T | None = None

    @property
    def accepted(self) -> bool:
        """Whether the user accepted; if not, the user declined, or cancelled by closing the form."""
        return self.action == "accept"


class _Decision(Struct):
    action: Literal["accept", "decline", "cancel"]
    content: Any = None


_decode_decision = _decoder_at_first_use(_Decision)
_text = msgspec.json.Encoder().encode


def _lacks_of(question: Question[Any], declared: ClientCapabilities, revision: Revision) -> Lacks:
    """Return the capabilities that a client would need for this question and has not `declared`."""
    return _lacks(question.request(revision), declared, revision)


class Elicit(Struct, Generic[T], frozen=True):
    """A question that the user answers in a form. `schema`: a type with fields (Struct, dataclass, TypedDict, pydantic
    model), a single value's type, a dict that is the schema, or None for a mere yes or no.

    "Servers MUST NOT use form mode elicitation to request sensitive information such as passwords, API keys,
    access tokens, or payment credentials" (client/elicitation): use `ElicitUrl`.
    """

    method: ClassVar[str] = "elicitation/create"
    """The method of its request."""
    again: ClassVar[bool] = True
    """Whether the question is sent again if the answer does not fit."""

    message: str
    """The question, for the user to read."""
    schema: type[T] | Mapping[str, Any] | None
    key: str | None = None
    """The name of the answer where the client calls again; None: its position and a digest of its text."""

    def request(self, revision: Revision) -> InputRequest:
        """Make the request for the question. Raises LocalError for a schema that is not that of a form, CannotAsk if
        the revision cannot express it."""
        schema = form_of(self.schema).schema(revision)
        return ElicitRequest(ElicitRequestParams(message=self.message, mode="form", requested_schema=schema))

    lacks = _lacks_of

    def text(self, request: InputRequest) -> bytes:
        """Return the bytes that distinguish it from other questions."""
        return _text(request)

    def read(self, answer: Raw) -> Elicited[T]:
        """Return the decision, with the filled form as the type of `schema`. Raises BadAnswer with every fault."""
        given: _Decision = _decode_decision(answer)
        content = form_of(self.schema).read(given.content) if given.action == "accept" else None
        return Elicited(given.action, content)


class ElicitUrl(Struct, frozen=True):
    """A question that sends the user to a URL, for data that must not pass through the client. The answer says whether
    the user agreed to open it, not what happened there: "The client is not directly informed of the outcome"
    (client/elicitation).

    `id`: identifies the question in `completed` and in the error -32042, in revisions that have these.
    The URL may differ on each run: questions of this kind are distinguished by their message.
    """

    method: ClassVar[str] = "elicitation/create"
    """The method of its request."""
    again: ClassVar[bool] = True
    """Whether the question is sent again if the answer does not fit."""

    message: str
    """Why the user should go there."""
    url: str
    """An absolute URL."""
    key: str | None = None
    """The name of the answer where the client calls again; None: its position and a digest of its text."""
    id: str = field(default_factory=lambda: os.urandom(16).hex())

    def params(self) -> ElicitRequestParams:
        """Return the params of `elicitation/create`. Raises LocalError when the URL is invalid."""
        from urllib.parse import urlsplit  # noqa: PLC0415  (start-up: for such a question)

        # "The `url` parameter MUST contain a valid URL" (client/elicitation)
        try:
            valid = all(urlsplit(self.url)[:2]) and not any(letter.isspace() for letter in self.url)
        except ValueError:
            valid = False
        if not valid:
            raise LocalError(f"{self.url!r} is not a URL to send a user to")
        return ElicitRequestParams(message=self.message, mode="url", url=self.url, elicitation_id=self.id)

    def request(self, revision: Revision) -> InputRequest:
        """Make the request for the question. Raises LocalError when the URL is invalid."""
        return ElicitRequest(self.params())

    lacks = _lacks_of

    def text(self, request: InputRequest) -> bytes:
        """Return the bytes that distinguish it from other questions."""
        return b"url\0" + self.message.encode("utf-8", "surrogatepass")

    def read(self, answer: Raw) -> Elicited[None]:
        """Return the decision, without content. Raises BadAnswer."""
        given: _Decision = _decode_decision(answer)
        return Elicited(given.action)


Messages: TypeAlias = str | SamplingMessage | Sequence[str | SamplingMessage]
ToolUse: TypeAlias = Literal["auto", "required", "none"]
MAX_TOKENS = 512
"""The most tokens of a model's answer, where the handler does not say: a paragraph or two. The protocol requires a
number, and a client may allow fewer."""


class Sample(Struct, frozen=True, kw_only=True):
    """A question to the client's model. The answer is a `CreateMessageResult`.

    `messages`: a text, messages, or a list of both; a text is a message of the user. `model_preferences`: also names of
    models, the best first; `include_context`: deprecated by the specification. A message that answers a model's
    `tool_use`s must answer all of them, and contain nothing else: LocalError.
    """

    method: ClassVar[str] = "sampling/createMessage"
    """The method of its request."""
    again: ClassVar[bool] = False
    """Whether the question is sent again if the answer does not fit."""

    messages: Messages
    max_tokens: int = MAX_TOKENS
    """The most tokens of the answer; the client may allow fewer."""
    system_prompt: str | None = None
    """A system prompt, which the client may change or leave out."""
    tools: Sequence[Tool] | None = None
    """Tools that the model may ask for; the answer then has `tool_use` blocks."""
    tool_choice: ToolUse | None = None
    """Whether the model may, must or must not ask for a tool."""
    model_preferences: ModelPreferences | str | Sequence[str] | None = None
    include_context: IncludeContext | None = None
    temperature: float | None = None
    """As the model understands it."""
    stop_sequences: Sequence[str] | None = None
    """Texts at which the model stops."""
    metadata: Free | None = None
    """For the provider of the model; any JSON object."""
    key: str | None = None
    """The name of the answer where the client calls again; None: its position and a digest of its text."""

    def request(self, revision: Revision) -> InputRequest:
        """Make the request for the question. Raises LocalError for a `tool_use` that is not answered."""
        messages = _listed(self)
        _check_tools(messages)
        if not revision.sampling_tools:
            messages = [part for message in messages for part in _parts(message)]
        return CreateMessageRequest(
            CreateMessageRequestParams(
                messages=messages,
                max_tokens=self.max_tokens,
                model_preferences=_preferences(self.model_preferences),
                system_prompt=_unset(self.system_prompt),
                include_context=_unset(self.include_context),
                temperature=_unset(self.temperature),
                stop_sequences=UNSET if self.stop_sequences is None else list(self.stop_sequences),
                metadata=_unset(self.metadata),
                tools=UNSET if self.tools is None else list(self.tools),
                tool_choice=UNSET if self.tool_choice is None else ToolChoice(self.tool_choice),
            )
        )

    lacks = _lacks_of

    def text(self, request: InputRequest) -> bytes:
        """Return the bytes that distinguish it from other questions."""
        return _text(request)

    def read(self, answer: Raw) -> CreateMessageResult:
        """Return the result of the model. Raises BadAnswer with every fault."""
        result: CreateMessageResult = _decode_sample(answer)
        return result


_decode_known_sample = _decoder_at_first_use(CreateMessageResult)


def _decode_sample(answer: Raw) -> CreateMessageResult:
    try:
        found: CreateMessageResult = _decode_known_sample(answer)
    except BadAnswer:
        try:
            return decode_content(answer, CreateMessageResult)
        except (msgspec.DecodeError, RecursionError):
            pass
        raise
    return found


_decode_roots = _decoder_at_first_use(ListRootsResult)


class Roots(Struct, frozen=True):
    """A question for the client's roots. The answer is a list of `Root`."""

    method: ClassVar[str] = "roots/list"
    """The method of its request."""
    again: ClassVar[bool] = False
    """Whether the question is sent again if the answer does not fit."""

    key: str | None = None
    """The name of the answer where the client calls again; None: its position and a digest of its text."""

    def request(self, revision: Revision) -> InputRequest:
        """Make the request for the question."""
        return ListRootsRequest(ListRootsRequestParams())

    lacks = _lacks_of

    def text(self, request: InputRequest) -> bytes:
        """Return the bytes that distinguish it from other questions."""
        return b"roots"

    def read(self, answer: Raw) -> list[Root]:
        """Return the roots. Raises BadAnswer with every fault, also for a root that is not a `file://` URI
        (client/roots)."""
        result: ListRootsResult = _decode_roots(answer)
        for root in result.roots:
            # "This MUST be a `file://` URI" (client/roots)
            if not normal(root.uri).startswith("file://"):
                raise BadAnswer(f"the result does not fit: a root is a file:// URI, not {root.uri[:100]!r}")
        return result.roots


def known_in(question: Question[Any], revision: Revision) -> bool:
    """Return whether the revision has this question."""
    if isinstance(question, ElicitUrl) and not revision.elicitation_modes:
        return False
    # where the server may not call, these are not methods but questions inside `input_required`
    return not revision.server_calls or METHODS[question.method].within(revision)


def may_ask(admitted: Admitted) -> None:
    """Raise CannotAsk if this call may not be answered by questions; for revisions in which servers may not call."""
    if not admitted.row.ask:
        # "Servers MUST NOT send `InputRequiredResult` responses on any other client requests" (basic/patterns/mrtr)
        raise CannotAsk(f"{admitted.method} may not ask the client, in revision {admitted.revision.date}")


# -- what the client must have declared -----------------------------------------------------------


def demand(admitted: Admitted, requests: Iterable[InputRequest]) -> None:
    """Raise CannotAsk unless the client has declared what all these requests need."""
    # "Servers MUST NOT send an `inputRequests` that the client has not declared support for" (basic/patterns/mrtr)
    revision = admitted.revision
    lacking: Lacks = {}
    for request in requests:
        for name, inner in _lacks(request, admitted.capabilities, revision).items():
            lacking.setdefault(name, {}).update(inner)
    if not lacking:
        return
    words = ", ".join(f"{name} ({', '.join(inner)})" if inner else name for name, inner in lacking.items())
    data = {"requiredCapabilities": lacking}
    if revision.stateful:
        raise CannotAsk(f"This client has not declared {words}, which is needed here", data)
    raise CannotAsk(f"{DEFINED_CODES[MISSING_CAPABILITY]}: {words}", data, code=MISSING_CAPABILITY)


def _lacks(request: InputRequest, declared: ClientCapabilities, revision: Revision) -> Lacks:
    if isinstance(request, ElicitRequest):
        return _lacks_elicitation("url" if request.params.mode == "url" else "form", declared.elicitation, revision)
    if isinstance(request, CreateMessageRequest):
        return _lacks_sampling(request.params, declared.sampling, revision)
    return {"roots": {}} if declared.roots is UNSET else {}


def _lacks_elicitation(mode: ElicitMode, declared: ElicitationCapability | UnsetType, revision: Revision) -> Lacks:
    if isinstance(declared, UnsetType):
        return {"elicitation": {mode: {}} if revision.elicitation_modes else {}}
    # "an empty capabilities object is equivalent to declaring support for `form` mode only" (client/elicitation)
    forms = declared.form is not UNSET or declared.url is UNSET or not revision.elicitation_modes
    return {} if (forms if mode == "form" else declared.url is not UNSET) else {"elicitation": {mode: {}}}


def _lacks_sampling(
    params: CreateMessageRequestParams, declared: SamplingCapability | UnsetType, revision: Revision
) -> Lacks:
    if isinstance(declared, UnsetType):
        return _lacks_sampling(params, SamplingCapability(), revision) or {"sampling": {}}
    wanted: Lacks = {}
    # "Servers MUST NOT send tool-enabled sampling requests to Clients that have not declared support"
    with_tools = params.tools is not UNSET or params.tool_choice is not UNSET or any(map(_has_tools, params.messages))
    if with_tools and (declared.tools is UNSET or not revision.sampling_tools):
        wanted["tools"] = {}
    # "SHOULD NOT use them unless the client declares `sampling.context` capability" (client/sampling)
    with_context = params.include_context not in (UNSET, "none") and revision.sampling_tools
    if with_context and declared.context is UNSET:
        wanted["context"] = {}
    return {"sampling": wanted} if wanted else {}


# -- sampling -------------------------------------------------------------------------------------


def _unset(value: Any) -> Any:
    return UNSET if value is None else value


def _listed(sample: Sample) -> list[SamplingMessage]:
    given = sample.messages
    many: Sequence[str | SamplingMessage] = [given] if isinstance(given, str | SamplingMessage) else given
    return [SamplingMessage("user", TextContent(one)) if isinstance(one, str) else one for one in many]


def _preferences(given: ModelPreferences | str | Sequence[str] | None) -> Any:
    if given is None or isinstance(given, ModelPreferences):
        return _unset(given)
    return ModelPreferences(hints=[ModelHint(name) for name in ([given] if isinstance(given, str) else given)])


def _blocks(message: SamplingMessage) -> list[Any]:
    return message.content if isinstance(message.content, list) else [message.content]


def _has_tools(message: SamplingMessage) -> bool:
    return any(isinstance(block, ToolUseContent | ToolResultContent) for block in _blocks(message))


def _parts(message: SamplingMessage) -> list[SamplingMessage]:
    """Return a message as several of one block each, as older revisions have them."""
    return [msgspec.structs.replace(message, content=block) for block in _blocks(message)]


def _check_tools(messages: list[SamplingMessage]) -> None:
    """Raise LocalError unless every use of a tool is answered by the next message, which contains nothing else
    (client/sampling, "Tool Use and Result Balance" and "Tool Result Messages")."""
    owed: set[str] = set()
    for message in messages:
        blocks = _blocks(message)
        results = {block.tool_use_id for block in blocks if isinstance(block, ToolResultContent)}
        if results and (message.role != "user" or any(not isinstance(block, ToolResultContent) for block in blocks)):
            raise LocalError("results of tools are in a message of the user with nothing else in it")
        if results != owed:
            raise LocalError(
                f"the message after a use of tools answers each of them: {sorted(owed)}, not {sorted(results)}"
            )
        owed = {block.id for block in blocks if isinstance(block, ToolUseContent)}
    if owed:
        raise LocalError(f"a use of tools is not answered: {sorted(owed)}")
