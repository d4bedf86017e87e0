"""The context of a call of a tool, a resource or a prompt, for parameters annotated `Context`.

In `async def` its methods are awaited; in a plain function, which runs in a worker thread, they block. It is the same
in both eras: where the server may not call the client, `ask` ends the first run, and the function runs again, from the
top, with the answers. So: ask before you act."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar, cast, overload

import msgspec
from msgspec import UNSET, Raw

from ...channel import Caller, Identity
from ...jsonrpc.codec import CallMessage
from ...jsonrpc.errors import InvalidParams, LocalError
from ...jsonrpc.options import elsewhere
from ...rpc.binding.results import to_json
from ...rpc.context import Context as RpcContext
from ...rpc.context import Done, Site, State, store_of
from ...rpc.context_members import CONTEXT, STORE, ContextMembers
from ..asking.ask import PATIENCE, ask, completed, own_state, require_url
from ..asking.questions import MAX_TOKENS, Elicit, ElicitUrl, Messages, Question, Roots, Sample, ToolUse
from ..protocol.admission import LEVELS, UNREADABLE, Admitted
from ..protocol.encoding import decode, encode
from ..protocol.params import IncludeContext, LoggingMessageNotificationParams, ProgressNotificationParams
from ..protocol.revisions import Revision
from ..protocol.types import ClientCapabilities, Free, Implementation, ModelPreferences, Tool

if TYPE_CHECKING:
    from ...store.calls import CallStore
    from ..asking.answers import Answers, Decision, Folders, Sampled
else:
    from ..asking.questions import Elicited as Decision

    CallStore = Folders = Sampled = Any  # start-up: annotations resolve at run time, to no more than this

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
logger: logging.Logger = logging.getLogger("dragoman.mcp")

_ELSEWHERE: Final = {
    "report_progress": "progress(value, total)",
    "request_context": "state, headers, meta, client and the like, each by itself",
    "lifespan_context": "state",
    "client_id": "identity.client_id",
    "request_id": "rpc.message.id",
    "session": "elicit, sample and progress themselves",
    "list_roots": "roots()",
}
"""Names in other libraries, with those to use here."""
DEFAULT_LEVEL = "info"
"""The lowest level that is sent to a stateful client that never called `logging/setLevel`: the server may choose it."""
_IN_CHILD: Final = ContextMembers(
    constants=CONTEXT.constants,
    values=frozenset(
        {
            "revision", "client", "capabilities", "identity", "principal", "meta", "caller", "headers", "input_responses",
            "request_state",
        }
    ),
    live=frozenset({"time_left"}),
    at_once=frozenset(
        {
            "progress", "log", "debug", "info", "warning", "error", "notify_resource_updated", "close_stream",
            "require_url",
        }
    ),
    awaited=frozenset({"ask", "elicit", "elicit_url", "sample", "roots", "completed"}),
    inside={"store": STORE, "rpc": CONTEXT},
    refused={"state": CONTEXT.refused["state"]},
)  # fmt: skip
_SAFE = 2**53
"""Larger integers are sent as a double."""


class Context(Generic[State]):
    """One call of a tool, a resource, a prompt or a completion, for its function. `Context[AppState]` states the type
    of the value of the server's lifespan."""

    __slots__ = ("_admitted", "_progress", "rpc")

    _context_of = "an MCP server's tools, resources and prompts", "from dragoman.mcp import Context"
    """Which functions have such a context, and how it is imported, for error texts."""
    _in_child = _IN_CHILD
    """Which of its members a function has in a child process."""

    def __init__(self, rpc: RpcContext, admitted: Admitted) -> None:
        self.rpc: RpcContext[Any] = rpc
        """The JSON-RPC side: headers, time left, cancelled, peer."""
        self._admitted: Admitted = admitted
        self._progress: float | None = None

    def __repr__(self) -> str:
        return f"<mcp.Context of {self.rpc.message.method}, {self.revision.date}>"

    # -- the caller

    @property
    def revision(self) -> Revision:
        """The revision of this call."""
        return self._admitted.revision

    @property
    def client(self) -> Implementation | None:
        """The name and version of the caller's software; for display and logs, not for decisions. None: it gave
        none."""
        return self._admitted.client

    @property
    def capabilities(self) -> ClientCapabilities:
        """The capabilities that the caller declared."""
        return self._admitted.capabilities

    @property
    def identity(self) -> Identity | None:
        """The caller's identity, which the guard has verified; None without a guard."""
        return self.rpc.caller.identity

    @property
    def principal(self) -> str | None:
        """Issuer, subject and client of `identity` in one text (`Identity.principal`): a key for data that belong only
        to this caller. None without a guard."""
        return self._admitted.principal

    @property
    def meta(self) -> dict[str, Any]:
        """The request's `_meta` as it came; {} if there is none. Raises InvalidParams for a number that no double can
        hold."""
        return {} if self._admitted.raw is UNSET else _read(self._admitted.raw, _Meta).meta

    @property
    def state(self) -> State:
        """The value of the server's lifespan; None without one."""
        found: State = self.rpc.state
        return found

    @property
    def store(self) -> CallStore:
        """The store in which the function keeps data for its caller between calls (docs/services.md); that of an
        anonymous caller belongs to its session, on every replica."""
        session = self.rpc.headers.get("mcp-session-id", "") if self.rpc.caller.scheme in ("http", "https") else ""
        return store_of(self.rpc, session if self._admitted.session is not None else "")

    @property
    def _site(self) -> Site:
        return self.rpc._site

    @property
    def caller(self) -> Caller:
        """What the wire knows about the caller."""
        return self.rpc.caller

    @property
    def headers(self) -> Mapping[str, str]:
        """HTTP headers, names in lower case; empty on other wires."""
        return self.rpc.headers

    @property
    def cancelled(self) -> bool:
        """True once the caller has cancelled, or time is up. A thread cannot be stopped, so check it there."""
        return self.rpc.cancelled

    @property
    def time_left(self) -> float | None:
        """Seconds until this call's deadline; None without one."""
        return self.rpc.time_left

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(elsewhere("Context", "ctx", name, _ELSEWHERE))

    # -- notifying

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> Done:
        """Report progress (basic/utilities/progress): `value` of `total`, and a text. Progress that grows restarts the
        call's time-out, whether or not its caller requests it.

        Awaited in `async def`; elsewhere it is done at once. Returns False if nothing was sent: the caller did not
        request progress or reads too slowly, or `value` has not grown ("The progress value MUST increase with each
        notification") or is not finite. Raises LocalError if it is not a number.
        """
        admitted = self._admitted
        number, whole = _number(value), None if total is None else _number(total)
        if not (isfinite(number) and (self._progress is None or number > self._progress)):
            logger.debug("progress of %r must grow: %r after %r is not sent", admitted.method, value, self._progress)
            return Done(False)
        self._progress = number
        self.rpc.renew()
        if whole is not None and not isfinite(whole):
            whole = None
        if admitted.on_progress is not None:
            return Done(admitted.on_progress(number, whole, None if message is None else str(message)))
        if admitted.token is None:
            return Done(False)
        params = ProgressNotificationParams(
            progress_token=admitted.token,
            progress=number,
            total=UNSET if whole is None else whole,
            message=UNSET if message is None else str(message),
        )
        return Done(self._notify("notifications/progress", params))

    def log(self, level: str, data: object, logger: str | None = None) -> Done:
        """Send a log message to the client (server/utilities/logging): `level` is "debug", "info", "notice", "warning",
        "error", "critical", "alert" or "emergency"; `data` any JSON value (other values are sent as their `repr`);
        `logger` a name.

        Returns False if nothing was sent: the client requests no messages, or none of this level. Raises LocalError for
        an unknown level. Do not log secrets and personal data.
        """
        weight = LEVELS.get(level)
        if weight is None:
            raise LocalError(f"there is no log level {level!r}; choose one of {', '.join(LEVELS)}")
        least = self._admitted.log_level
        session = self._admitted.session
        if session is not None:  # it may have changed since the call began
            least = session.log_level or DEFAULT_LEVEL
        if least is None or weight < LEVELS[least]:
            return Done(False)
        params = LoggingMessageNotificationParams(
            level=level,  # type: ignore[arg-type]
            data=_loggable(data),
            logger=UNSET if logger is None else logger,
        )
        return Done(self._notify("notifications/message", params))

    def debug(self, data: object) -> Done:
        """`log("debug", data)`."""
        return self.log("debug", data)

    def info(self, data: object) -> Done:
        """`log("info", data)`."""
        return self.log("info", data)

    def warning(self, data: object) -> Done:
        """`log("warning", data)`."""
        return self.log("warning", data)

    def error(self, data: object) -> Done:
        """`log("error", data)`."""
        return self.log("error", data)

    def _notify(self, method: str, params: Any) -> bool:
        return self.rpc.speak(to_json(CallMessage(method, Raw(encode(params, self._admitted.revision)))), method)

    def notify_resource_updated(self, uri: str) -> None:
        """Notify every client that subscribed to a resource that it has changed."""
        self._admitted.surroundings.notify_resource_updated(uri)

    def close_stream(self, retry: float | None = None) -> Done:
        """Close the HTTP stream of this call's answer, so that the client polls for the rest, after `retry` seconds
        (basic/transports, in revisions whose streams begin with an id). Returns False if that is not possible."""
        from ..session.session import Responder  # noqa: PLC0415  (start-up: sessions)

        site: Any = self.rpc._site
        stream = site.reply_stream
        if not isinstance(stream, Responder) or not self.revision.primed:
            return Done(False)
        if self.rpc._where == "thread":
            site.loop.call_soon_threadsafe(stream.disconnect, retry)
            return Done(True)
        return Done(stream.disconnect(retry))

    # -- asking

    @overload
    def ask(self, one: Question[A], /, *, once: bool | None = ..., timeout: float | None = ...) -> Answers[A]: ...
    @overload
    def ask(
        self, one: Question[A], two: Question[B], /, *, once: bool | None = ..., timeout: float | None = ...
    ) -> Answers[A, B]: ...
    @overload
    def ask(
        self,
        one: Question[A],
        two: Question[B],
        three: Question[C],
        /,
        *,
        once: bool | None = ...,
        timeout: float | None = ...,
    ) -> Answers[A, B, C]: ...
    @overload
    def ask(
        self, *questions: Question[Any], once: bool | None = ..., timeout: float | None = ...
    ) -> Answers[*tuple[Any, ...]]: ...
    def ask(self, *questions: Question[Any], once: bool | None = None, timeout: float | None = PATIENCE) -> Any:
        """Ask the client several questions together; returns a tuple of the answers, in order.

        `timeout`: seconds, where the server calls (None: for ever). `once`: whether the state that goes with the
        questions can be used only once (None: as the server's `once`). Raises CannotAsk if the client did not declare
        the capability, QuestionFailed if it answered with an error, CallTimeout, BadAnswer, ChannelError.
        """
        if self.rpc._where == "inline":
            raise LocalError(f"{self.rpc.method}: an inline function must not wait; register it without inline=True")
        return ask(self, *questions, once=once, timeout=timeout)

    @property
    def input_responses(self) -> dict[str, Any]:
        """The answers to the questions that the function returned in an `InputRequiredResult`, by key, as JSON values;
        {} in its first run. A client may send answers to no question, so check their form. Raises InvalidParams, as
        `meta` does."""
        given = getattr(self._admitted.params, "input_responses", UNSET)
        return {} if given is UNSET else {key: _read(one, Any) for key, one in given.items()}

    @property
    def request_state(self) -> str | None:
        """The `request_state` of the `InputRequiredResult` that the function returned, on the retry; otherwise None.
        The client got it sealed, and bound to this call and this principal."""
        return own_state(self)

    def require_url(self, *questions: ElicitUrl) -> NoReturn:
        """End this call, because the user must first open these URLs; then the client calls again (client/elicitation).
        Raises CannotAsk if the client cannot do that."""
        require_url(self, *questions)

    def completed(self, elicitation_id: str) -> Awaitable[None]:
        """Notify the client that the user has finished at the URL of the `ElicitUrl` with this `id`."""
        return cast("Awaitable[None]", completed(self, elicitation_id))  # None in a plain function, where it is done

    def _one(self, question: Any) -> Any:
        answers = self.ask(question)
        return _first(answers) if self.rpc._where == "async" else answers[0]

    @overload
    def elicit(self, message: str, schema: type[T], *, key: str | None = None) -> Decision[T]: ...
    @overload
    def elicit(self, message: str, schema: Any, *, key: str | None = None) -> Decision[Any]: ...
    def elicit(self, message: str, schema: Any, *, key: str | None = None) -> Any:
        """Ask the user to fill in a form (client/elicitation); returns `Elicited`, with a `schema` as its `content`.

        `schema`: a Struct, dataclass, TypedDict or pydantic model of plain members, or a JSON Schema.
        """
        return self._one(Elicit(message, schema, key=key))

    def elicit_url(self, message: str, url: str, *, key: str | None = None) -> Decision[None]:
        """Send the user to a URL for data that must not pass through the client (client/elicitation); returns
        `Elicited`."""
        agreed: Decision[None] = self._one(ElicitUrl(message, url, key=key))
        return agreed

    def sample(
        self,
        messages: Messages,
        *,
        max_tokens: int = MAX_TOKENS,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        tools: Sequence[Tool] | None = None,
        tool_choice: ToolUse | None = None,
        model_preferences: ModelPreferences | str | Sequence[str] | None = None,
        include_context: IncludeContext | None = None,
        metadata: Free | None = None,
        key: str | None = None,
    ) -> Sampled:
        """Ask the client's model (client/sampling); returns a `CreateMessageResult`, whose `text` is the model's.
        `messages`: a text, a SamplingMessage, or a list of both; a text is a message of the user. `max_tokens`: the
        most tokens of the answer; `model_preferences`: also names of models, the best first."""
        sampled: Sampled = self._one(
            Sample(
                messages=messages,
                max_tokens=max_tokens,
                system_prompt=system_prompt,
                temperature=temperature,
                stop_sequences=stop_sequences,
                tools=tools,
                tool_choice=tool_choice,
                model_preferences=model_preferences,
                include_context=include_context,
                metadata=metadata,
                key=key,
            )
        )
        return sampled

    def roots(self, *, key: str | None = None) -> Folders:
        """Ask for the folders in which the client works (client/roots); returns a list of `Root`."""
        folders: Folders = self._one(Roots(key=key))
        return folders


async def _first(answers: Awaitable[Sequence[Any]]) -> Any:
    return (await answers)[0]


def _number(value: Any) -> float:
    """Return a number of any type (numpy's, Decimal) for JSON. Raises LocalError if it is not a number."""
    if type(value) is float:
        return value
    try:
        if isinstance(value, int):
            return int(value) if -_SAFE < value < _SAFE else float(value)
        if not isinstance(value, str | bytes):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise LocalError(f"progress is a number, not {value!r:.40}")


def _loggable(data: object) -> Raw:
    """Return the `data` of a log message as JSON; of a value that cannot be encoded its `repr`, so that the call does
    not fail."""
    try:
        return Raw(to_json(data))
    except LocalError:
        pass
    try:
        text = repr(data)
    except Exception:  # a user's class may raise anything
        text = object.__repr__(data)
    return Raw(to_json(text.encode("utf-8", "replace").decode()))


class _Meta(msgspec.Struct):
    meta: dict[str, Any] = msgspec.field(default_factory=dict, name="_meta")


def _read(text: Raw, kind: Any) -> Any:
    try:
        return decode(text, kind)
    except UNREADABLE as error:
        raise InvalidParams(f"Invalid params: {error}") from None
