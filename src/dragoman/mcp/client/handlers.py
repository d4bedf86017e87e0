"""Answers a server's questions: elicitation, sampling and roots, by the user's functions, which are the same in both
eras.

In the stateful era a question is a request and its answer a response; in the stateless era it is a member of
`inputRequests` and its answer one of `inputResponses`. The functions cannot tell which.
Rules:

- Capabilities are declared for the functions that are given; questions for the others are refused.
- A plain function runs in a worker thread, because users and models are slow; `async def` is awaited.
- An accepted form is completed with the defaults of its schema, and checked against it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from os import PathLike, fspath
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...jsonrpc.errors import BadAnswer, InvalidParams, LocalError, MethodNotFound, RpcError
from ...jsonrpc.leniency import STRICT, Leniency
from ...jsonrpc.limits import CLIENT
from ...rpc.binding.results import to_json
from ..asking.forms import form_of
from ..protocol.encoding import encode
from ..protocol.foreign_decoding import decode_content
from ..protocol.lenient import without_nulls
from ..protocol.params import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    ListRootsResult,
)
from ..protocol.revisions import Revision
from ..protocol.types import (
    ClientCapabilities,
    ElicitationCapability,
    Root,
    RootsCapability,
    SamplingCapability,
    SamplingMessage,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)
from ..protocol.uri import normal

logger: logging.Logger = logging.getLogger("dragoman.mcp")

OnElicit: TypeAlias = Callable[[ElicitRequestParams], Any]
"""Answers an elicitation: an `ElicitResult`, the accepted form as a dict or Struct, True (accepted, with the form's
defaults), False (declined) or None (cancelled); or an awaitable of one."""
OnSample: TypeAlias = Callable[[CreateMessageRequestParams], Any]
"""Answers a sampling: a `CreateMessageResult`, the model's text, or None (declined); or an awaitable of one."""
RootsSource: TypeAlias = Sequence[Root | str | PathLike[str]] | Callable[[], Any]
"""Roots, folders or file: URIs; or a function, plain or async, that returns them when they are requested."""

ELICIT = "elicitation/create"
SAMPLE = "sampling/createMessage"
ROOTS = "roots/list"
REJECTED = -1
"""The code for "User rejected sampling request" (client/sampling, Error Handling)."""


class Declined(Exception):
    """A question of the server was declined here. The user's functions may raise it; a call that cannot go on without
    the answer raises it. It is not sent to the server as it is."""


class AnswerOptions(Struct, frozen=True, kw_only=True):
    """The options of `Client` that answer questions."""

    on_elicit: OnElicit | None
    on_elicit_url: OnElicit | None
    on_sample: OnSample | None
    sample_tools: bool
    roots: RootsSource | None


OWN_HANDLERS: Final = {
    "on_elicit": "elicitation",
    "on_elicit_url": "elicitation",
    "on_sample": "sampling",
    "on_roots": "roots",
}
"""The options of a call that answer the questions of this call, and the capabilities that they need."""


class QuestionHandlers:
    """The functions that answer a server's questions, and the capabilities that they declare."""

    def __init__(self, given: AnswerOptions, *, questions: int = CLIENT.questions, lenient: Leniency = STRICT) -> None:
        if given.sample_tools and given.on_sample is None:
            raise LocalError("sample_tools says that on_sample takes tools: give on_sample too")
        self._null_params = lenient.null_params
        self._form = given.on_elicit
        self._url = given.on_elicit_url
        self._sample = given.on_sample
        self._sample_tools = given.sample_tools
        self.roots: RootsSource | None = given.roots
        self.questions: int = questions
        """How many questions one result may have, and how many a server may ask at once."""

    @property
    def functions(self) -> tuple[Any, ...]:
        """What answers, in one value: questions of calls with equal ones get the same answers."""
        return self._form, self._url, self._sample, self._sample_tools, self.roots

    def with_own(self, own: Mapping[str, Any]) -> QuestionHandlers:
        """Return the functions for one call: those of `own`, by their options, and these for the other questions."""
        found = copy(self)
        found._form = own.get("on_elicit") or self._form
        found._url = own.get("on_elicit_url") or self._url
        found._sample = own.get("on_sample") or self._sample
        found.roots = self.roots if own.get("on_roots") is None else own["on_roots"]
        return found

    def undeclared(self, own: Mapping[str, Any]) -> str | None:
        """Return the first option of `own` whose questions these functions do not declare; None: there is none."""
        declared = {
            "on_elicit": self._form,
            "on_elicit_url": self._url,
            "on_sample": self._sample,
            "on_roots": self.roots,
        }
        return next((name for name in own if declared[name] is None), None)

    def capabilities(self, revision: Revision) -> ClientCapabilities:
        """Return the capabilities to declare to a server of this revision; `encode` leaves out those that it does not
        have."""
        form: dict[str, Any] | UnsetType = {} if self._form else UNSET
        url: dict[str, Any] | UnsetType = {} if self._url and revision.elicitation_modes else UNSET
        # "Clients declaring the `elicitation` capability MUST support at least one mode" (client/elicitation)
        elicits = form is not UNSET or url is not UNSET
        tools: dict[str, Any] | UnsetType = {} if self._sample_tools else UNSET
        return ClientCapabilities(
            elicitation=ElicitationCapability(form=form, url=url) if elicits else UNSET,
            sampling=SamplingCapability(tools=tools) if self._sample else UNSET,
            roots=RootsCapability(list_changed=True) if self.roots is not None else UNSET,
        )

    async def answer(self, method: str, params: Raw | UnsetType, revision: Revision) -> bytes:
        """Return the answer to one question as JSON text.

        Raises MethodNotFound for an undeclared capability, InvalidParams for an invalid question, Declined if it was
        declined, LocalError if a function returns an invalid answer, and what the function raises.
        """
        if method == ELICIT and (self._form or (self._url and revision.elicitation_modes)):
            answer: Struct = await self._answer_elicitation(params, revision)
        elif method == SAMPLE and self._sample is not None:
            answer = await self._answer_sampling(params, self._sample)
        elif method == ROOTS and self.roots is not None:
            answer = ListRootsResult([_root(one) for one in await self._list_roots(self.roots)])
        else:
            # "Client does not support roots: -32601 (Method not found)" (client/roots, Error Handling)
            name = method.partition("/")[0]
            raise MethodNotFound(f"{method}: not supported", {"reason": f"this client did not declare {name!r}"})
        return encode(answer, revision)

    async def _answer_elicitation(self, params: Raw | UnsetType, revision: Revision) -> ElicitResult:
        request = self._read(ELICIT, params, ElicitRequestParams)
        # "Clients MUST treat requests without a `mode` field as form mode" (client/elicitation)
        mode = "form" if request.mode is UNSET else request.mode
        function = self._form if mode == "form" else self._url if revision.elicitation_modes else None
        if function is None:
            # "Server sends an elicitation/create request with a mode not declared in client capabilities: -32602"
            raise InvalidParams(f"{ELICIT}: mode {mode!r} was not declared", {"reason": "undeclared mode"})
        if mode == "url" and not _is_url(request.url):
            raise InvalidParams(f"{ELICIT}: the url is missing or no http(s) URL")
        if mode == "form" and not isinstance(request.requested_schema, dict):
            raise InvalidParams(f"{ELICIT}: requestedSchema is missing")
        return _elicit_result(await call_in_turn(function, request), request if mode == "form" else None)

    async def _answer_sampling(self, params: Raw | UnsetType, function: OnSample) -> CreateMessageResult:
        request = self._read(SAMPLE, params, CreateMessageRequestParams)
        if not self._sample_tools and (request.tools is not UNSET or request.tool_choice is not UNSET):
            # "The client MUST return an error if this field is provided but `sampling.tools` is not declared"
            raise InvalidParams(f"{SAMPLE}: tools were not declared", {"reason": "sampling.tools is not declared"})
        fault = _find_unbalanced(request.messages)
        if fault is not None:
            raise InvalidParams(f"{SAMPLE}: {fault}")
        found = await call_in_turn(function, request)
        if found is None:
            raise Declined("User rejected sampling request")
        if isinstance(found, str):
            found = CreateMessageResult(role="assistant", content=TextContent(found), model="unknown")
        if not isinstance(found, CreateMessageResult):
            raise LocalError(f"on_sample answers a CreateMessageResult, a text or None, not {found!r}")
        return found

    def _read(self, method: str, params: Raw | UnsetType, kind: type[Any]) -> Any:
        """Return the params of a question. Raises InvalidParams."""
        try:
            if self._null_params and params is not UNSET:
                params = without_nulls(params, kind)
            return decode_content(Raw(b"{}") if params is UNSET else params, kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidParams(f"{method}: {error}") from error

    async def _list_roots(self, roots: RootsSource) -> Sequence[Root | str | PathLike[str]]:
        return await call_in_turn(roots) if callable(roots) else roots


async def call_in_turn(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return a function's result: that of `async def` is awaited, any other function runs in a thread."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        return await function(*arguments)
    found = await asyncio.to_thread(function, *arguments)
    return await found if isinstance(found, Awaitable) else found


def declined_error(error: Exception) -> RpcError:
    """Return the error that answers a declined question of a server of the stateful era."""
    return RpcError(str(error) or "User rejected the request", code=REJECTED)


# -- elicitation ----------------------------------------------------------------------------------


def _is_url(url: str | UnsetType) -> bool:
    return isinstance(url, str) and url.partition("://")[0].lower() in ("https", "http") and len(url) > 8


def _elicit_result(found: Any, form: ElicitRequestParams | None) -> ElicitResult:
    """Return a function's result as the protocol's answer. `form`: the question, in form mode; None in URL mode. Raises
    LocalError for an invalid result."""
    if isinstance(found, ElicitResult):
        action, content = found.action, found.content
    elif found is None or found is False:
        # "Cancel: User dismissed without making an explicit choice"
        return ElicitResult(action="cancel" if found is None else "decline")
    else:
        action, content = "accept", UNSET if found is True else _members(found)
    if action != "accept" or form is None:
        return ElicitResult(action=action)
    schema = form.requested_schema if isinstance(form.requested_schema, dict) else {}
    whole = with_defaults(schema, {} if content is UNSET else content)
    # "Clients SHOULD validate all responses against the provided schema" (client/elicitation)
    _check(schema, whole)
    return ElicitResult(action="accept", content=whole)


def _check(schema: Mapping[str, Any], content: dict[str, Any]) -> None:
    try:
        form = form_of(schema)
    except LocalError as error:  # the form has more than forms may have: then only the server checks the answer
        logger.debug("%s: %s", ELICIT, error)
        return
    try:
        form.read(content, foreign=True)
    except BadAnswer as error:
        raise LocalError(f"{ELICIT}: what was accepted does not fit the form: {error}") from error


def _members(found: Any) -> dict[str, Any]:
    value = dict(found) if isinstance(found, Mapping) else msgspec.json.decode(to_json(found))
    if not isinstance(value, dict):
        raise LocalError(f"on_elicit answers an ElicitResult, a form's values, True, False or None, not {found!r}")
    return value


def with_defaults(schema: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the form's values, with the schema's defaults for missing ones ("Clients that support defaults SHOULD
    pre-populate form fields with these values", client/elicitation)."""
    properties = schema.get("properties")
    whole = dict(content)
    for name, field in properties.items() if isinstance(properties, dict) else ():
        if name not in whole and isinstance(field, dict) and "default" in field:
            whole[name] = field["default"]
    return whole


# -- sampling -------------------------------------------------------------------------------------


def _blocks(message: SamplingMessage) -> list[Any]:
    return message.content if isinstance(message.content, list) else [message.content]


def _find_unbalanced(messages: Sequence[SamplingMessage]) -> str | None:
    """Return what is wrong with the tool calls in the messages of a sampling (client/sampling, Message Content
    Constraints); None if nothing is."""
    owed: set[str] = set()
    for message in messages:
        blocks = _blocks(message)
        results = {one.tool_use_id for one in blocks if isinstance(one, ToolResultContent)}
        # "it MUST contain ONLY tool results"
        if results and not all(isinstance(one, ToolResultContent) for one in blocks):
            return "Tool results mixed with other content"
        # "each tool use matched by a corresponding tool result, before any other message"
        if owed - results:
            return "Tool result missing in request"
        if results - owed:
            return "Tool result without its tool use"
        owed = {one.id for one in blocks if isinstance(one, ToolUseContent)}
    return "Tool result missing in request" if owed else None


# -- roots ----------------------------------------------------------------------------------------


def _folder(text: str) -> Root:
    from pathlib import Path  # noqa: PLC0415  (start-up)

    return Root(Path(text).absolute().as_uri(), Path(text).name or text)


def _root(one: Root | str | PathLike[str]) -> Root:
    """Return the root for a folder, a URI or a root ("This MUST be a `file://` URI", client/roots). Raises
    LocalError."""
    root = one if isinstance(one, Root) else None
    if root is None:
        text = fspath(one)  # type: ignore[arg-type]  # no Root
        root = Root(text) if normal(text).startswith("file://") else _folder(text)
    if not normal(root.uri).startswith("file://"):
        raise LocalError(f"a root is a folder or a file: URI, not {root.uri!r}")
    return root
