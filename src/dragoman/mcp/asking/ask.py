"""The questions of a handler, which the same calls ask in both eras.

Rules:

- A call may have an asker of its own (`Admitted.asker`), such as `AskParked`: an extension gets the questions, and the
  handler waits for the answers. Otherwise the call's revision decides:
- Where the server may call, a question is a call to the client, and the handler waits for the answer.
- Where it may not, the handler ends with `InputRequired` at its first question without an answer; the client
  gathers the answers and sends its request again, with the state that it got, and the handler runs again from
  the top (basic/patterns/mrtr). So a handler *asks before it acts*, and asks the same things in the same order.
- An answer belongs to a question if its key *and* the question's text match. A question without a key of its own is
  identified by its position and a digest of its text. Without a matching answer the question is sent again; an answer
  without a question is ignored.
- A client gets no question for which it has not declared a capability, and in a session none before it is initialized:
  `CannotAsk`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn, Protocol, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from ...jsonrpc.errors import INTERNAL_ERROR, BadAnswer, LocalError, RpcError
from ..protocol.admission import Admitted
from ..protocol.encoding import encode
from ..protocol.methods import DEFINED_CODES, URL_ELICITATION_REQUIRED
from ..protocol.params import (
    ElicitationCompleteNotificationParams,
    InputRequest,
    InputRequiredResult,
    ListRootsRequest,
    URLElicitationRequiredData,
)
from ..protocol.results import read_back
from ..protocol.revisions import Revision
from .forms import CannotAsk
from .questions import ElicitUrl, Question, demand, known_in, may_ask
from .request_state import KnownAnswer, State, StateSeal, digest, digest_of

logger: logging.Logger = logging.getLogger("dragoman.mcp")

PATIENCE = 600.0
"""Seconds for which a question waits for its answer: people are slow."""
TRIES = 3
"""How often a form is shown at most, if its answers do not fit, where the handler waits for them."""
_RECORD = "dragoman.ask"
"""The name of the `_Record` among the values of a call's context."""


class QuestionContext(Protocol):
    """The part of a call's context that asking uses. `rpc`: the `dragoman.Context`."""

    @property
    def rpc(self) -> Any: ...
    @property
    def _admitted(self) -> Admitted: ...


class QuestionFailed(RpcError):
    """The client answered a question with an error, such as "User rejected sampling request"; it is in `error`.

    The caller gets -32603, with the client's own code and message in `data`.
    """

    code = INTERNAL_ERROR
    message = "The client could not answer a question"

    def __init__(self, error: RpcError) -> None:
        super().__init__(
            f"The client could not answer a question: {error.message}", {"code": error.code, "message": error.message}
        )
        self.error = error


class InputRequired(BaseException):
    """The handler's run ends here: the client answers `requests` and calls again with `state`.

    It is a BaseException, so that a handler's `except Exception` does not catch it. The code that runs handlers turns
    it into a result.
    """

    def __init__(self, requests: dict[str, InputRequest], request_state: str) -> None:
        super().__init__(f"input required: {', '.join(requests)}")
        self.requests = requests
        self.request_state = request_state

    def result(self) -> InputRequiredResult:
        """Return the result for the request that was being served."""
        return InputRequiredResult(input_requests=self.requests, request_state=self.request_state)


def input_required(error: BaseException) -> InputRequired | None:
    """Return the `InputRequired` that an exception is, or that its group contains (a TaskGroup raises one); else
    None."""
    if isinstance(error, InputRequired):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((found for one in error.exceptions if (found := input_required(one)) is not None), None)
    return None


# -- asking ---------------------------------------------------------------------------------------


def ask(
    context: QuestionContext,
    /,
    *questions: Question[Any],
    once: bool | None = None,
    timeout: float | None = PATIENCE,
) -> Any:
    """Ask questions, all at once, and return a tuple of the answers, in order. In `async def` it is awaited; in a plain
    function, which runs in a thread, it blocks while the handler waits for the answers.

    `timeout`: seconds, where the server calls (None: for ever). `once`: whether the client can use the state that it
    gets only once (None: as the server's option `once`); answers without that state are then ignored.

    Raises CannotAsk; QuestionFailed, CallTimeout, BadAnswer, ChannelError where the server calls; InputRequired
    where it may not; LocalError for invalid questions.
    """
    rounds = asker_of(context._admitted).rounds(context, questions, once, timeout)
    return (_ask if context.rpc._where == "async" else _ask_blocking)(rounds)


async def _ask(rounds: Rounds) -> tuple[Any, ...]:
    """Return the answers after all rounds, in `async def`."""
    with _client_errors():
        try:
            asked = next(rounds)
            while True:
                asked = rounds.send(await asked)
        except StopIteration as done:
            answers: tuple[Any, ...] = done.value
    return answers


def _ask_blocking(rounds: Rounds) -> tuple[Any, ...]:
    """Return the answers after all rounds, in a plain function."""
    with _client_errors():
        try:
            found = next(rounds)
            while True:
                found = rounds.send(found)
        except StopIteration as done:
            answers: tuple[Any, ...] = done.value
    return answers


Rounds: TypeAlias = Generator[Any, Sequence[Raw], tuple[Any, ...]]
"""Asks in rounds. In each it yields the client's results: in `async def` an awaitable of them, in a plain function the
results themselves, for which it has waited. It is sent the results, and in the end returns the answers in them."""


@contextmanager
def _client_errors() -> Iterator[None]:
    """Raise an error with which the client answered as QuestionFailed."""
    try:
        yield
    except RpcError as error:
        if not error.remote:
            raise
        raise QuestionFailed(error) from error


def require_url(context: QuestionContext, /, *questions: ElicitUrl) -> NoReturn:
    """End this call, because the user must first open these URLs; then the client calls again.

    Raises RpcError (-32042) if the revision has that, InputRequired in revisions in which the client calls again in any
    case; otherwise CannotAsk.
    """
    asker_of(context._admitted).require_url(context, questions)


# -- the ways to ask ------------------------------------------------------------------------------


class Asker(Protocol):
    """Asks the questions of a call, in one of the ways in which they can reach its client."""

    def rounds(
        self, context: QuestionContext, questions: Sequence[Question[Any]], once: bool | None, timeout: float | None
    ) -> Rounds:
        """Return the rounds that ask these questions; see `ask` for the options and errors."""

    def require_url(self, context: QuestionContext, questions: Sequence[ElicitUrl]) -> NoReturn:
        """End the call, which the client makes again after the user has opened these URLs; see `require_url`."""

    def seal_result(self, result: InputRequiredResult, admitted: Admitted) -> InputRequiredResult:
        """Return the result with a function's own questions, its `requestState` sealed. Raises CannotAsk where the
        revision has no such result, or the client did not declare what it needs; LocalError for a result without
        questions and state, or that no client could read."""


class AskByCall:
    """Asks by calls to the client, in revisions in which the server may call."""

    def rounds(
        self, context: QuestionContext, questions: Sequence[Question[Any]], once: bool | None, timeout: float | None
    ) -> Rounds:
        admitted = context._admitted
        requests = _requests(admitted, questions)
        if admitted.session is not None and not admitted.session.initialized:
            # "The server SHOULD NOT send requests other than pings and logging before receiving the `initialized`
            # notification" (basic/lifecycle)
            raise CannotAsk("This client has not sent notifications/initialized, before which nothing is asked")

        def call(open: Sequence[int]) -> Any:
            calls = [(questions[index].method, _params(requests[index], admitted.revision)) for index in open]
            return context.rpc.call_all(calls, result=Raw, timeout=timeout)

        return (yield from _ask_until_fit(admitted, questions, call))

    def require_url(self, context: QuestionContext, questions: Sequence[ElicitUrl]) -> NoReturn:
        _requests(context._admitted, questions)
        # "Any elicitations returned in the error MUST be URL mode elicitations and have an `elicitationId`"
        data = URLElicitationRequiredData([question.params() for question in questions])
        code = URL_ELICITATION_REQUIRED
        raise RpcError(DEFINED_CODES[code], Raw(encode(data, context._admitted.revision)), code=code)

    def seal_result(self, result: InputRequiredResult, admitted: Admitted) -> InputRequiredResult:
        date = admitted.revision.date
        raise CannotAsk(f"{admitted.method}: a client of {date} is asked by calls: `await ctx.ask(...)`")


def _ask_until_fit(
    admitted: Admitted, questions: Sequence[Question[Any]], ask_these: Callable[[Sequence[int]], Any]
) -> Rounds:
    """Return the rounds that ask questions, and ask those again whose answers do not fit, each `TRIES` times at most.
    `ask_these`: asks the questions at these positions, and returns what the rounds yield. Raises BadAnswer for an
    answer that does not fit, if its question is not asked again."""
    answers: dict[int, Any] = {}
    open = list(range(len(questions)))
    for tries in range(1, TRIES + 1):
        if not open:
            break
        found = yield ask_these(open)
        again = []
        for index, raw in zip(open, found, strict=True):
            try:
                answers[index] = questions[index].read(raw)
            except BadAnswer as error:
                if not questions[index].again or tries == TRIES:
                    raise
                logger.info("%s: %s: asked again", admitted.method, error)
                again.append(index)
        open = again
    return tuple(answers[index] for index in range(len(questions)))


Park: TypeAlias = Callable[[dict[str, InputRequest]], Awaitable[Mapping[str, Raw]]]
"""Is called on the loop with the questions by key, and returns the answer to each, as JSON text, by the same keys."""


class AskParked:
    """Asks by `park`, a function of an extension: the handler waits until it returns the answers, which may come in
    later requests. An object is the asker of one call (`Admitted.asker`), in which no key is used twice. `park` decides
    how long the answers may take: the `timeout` of `ask` has no effect."""

    def __init__(self, park: Park) -> None:
        self._park = park
        self._keys: set[str] = set()
        self._count = 0

    def rounds(
        self, context: QuestionContext, questions: Sequence[Question[Any]], once: bool | None, timeout: float | None
    ) -> Rounds:
        """Return the rounds that ask these questions by `park`. `once` and `timeout` have no effect."""
        admitted = context._admitted
        if not admitted.revision.server_calls:
            may_ask(admitted)
        requests = _requests(admitted, questions)

        def park(open: Sequence[int]) -> Any:
            asked = {self._new_key(questions[index].key): requests[index] for index in open}
            return context.rpc._site.ask_elsewhere(context.rpc, lambda: self._answers(admitted, asked))

        return (yield from _ask_until_fit(admitted, questions, park))

    def _new_key(self, wanted: str | None) -> str:
        """Return a key that no question of the call had before: the wanted one, else one with a number."""
        self._count += 1
        key = wanted or f"q{self._count}"
        while key in self._keys:
            key = f"{wanted or 'q'}-{self._count}"
            self._count += 1
        self._keys.add(key)
        return key

    async def _answers(self, admitted: Admitted, asked: dict[str, InputRequest]) -> list[Raw]:
        """Return the answers of `park`, in order. Raises LocalError if some are missing."""
        found = await self._park(dict(asked))  # a copy: `park` may remove from it what was answered
        if missing := [key for key in asked if key not in found]:
            raise LocalError(
                f"{admitted.method}: park returned no answer to {', '.join(missing)}: one to each question"
            )
        return [found[key] for key in asked]

    def require_url(self, context: QuestionContext, questions: Sequence[ElicitUrl]) -> NoReturn:
        """End the call with the error that names these URLs, in revisions that have it. Raises CannotAsk in others,
        because a call that waits for its answers is not made again."""
        if context._admitted.revision.url_elicitation_error:
            _BY_CALL.require_url(context, questions)
        method = context._admitted.method
        raise CannotAsk(
            f"{method}: a call that waits for its answers does not begin again: `await ctx.elicit_url(...)`"
        )

    def seal_result(self, result: InputRequiredResult, admitted: Admitted) -> InputRequiredResult:
        """Raise CannotAsk: a function whose questions are parked asks by `ctx.ask`, and not by a result."""
        raise CannotAsk(f"{admitted.method}: a call that waits for its answers asks by `await ctx.ask(...)`")


class AskByRetry:
    """Asks by a result after which the client calls again, in revisions in which the server may not call."""

    def rounds(
        self, context: QuestionContext, questions: Sequence[Question[Any]], once: bool | None, timeout: float | None
    ) -> Rounds:
        admitted = context._admitted
        may_ask(admitted)
        if _reads_own_state(admitted):  # the retry's answers would never be found
            raise LocalError(
                f"{admitted.method} reads its requestState itself (own_state): it asks by an InputRequiredResult of its "
                "own, or by an AskParked"
            )
        return _replay(context, questions, _requests(context._admitted, questions), once)
        yield  # is not reached: it makes this function a generator, which asks in no rounds

    def require_url(self, context: QuestionContext, questions: Sequence[ElicitUrl]) -> NoReturn:
        admitted = context._admitted
        may_ask(admitted)
        requests = _requests(admitted, questions)
        record = context.rpc.values.get(_RECORD) or _Record(context)
        keys = [q.key or f"u{n}-{digest(q.message.encode())[:6]}" for n, q in enumerate(questions, 1)]
        request_state = _seal_of(admitted).seal(record.request, admitted.principal, digests={}, known=record.used)
        raise InputRequired(dict(zip(keys, requests, strict=True)), request_state)

    def seal_result(self, result: InputRequiredResult, admitted: Admitted) -> InputRequiredResult:
        may_ask(admitted)
        result = read_back(result)
        demand(admitted, () if result.input_requests is UNSET else result.input_requests.values())
        if result.request_state is UNSET:
            if result.input_requests is UNSET:
                # "Servers MUST include at least one of `inputRequests` or `requestState`" (basic/patterns/mrtr)
                raise LocalError(
                    f"{admitted.method}: an InputRequiredResult has input_requests, request_state, or both"
                )
            return result
        if _reads_own_state(admitted):
            return result
        known = {_OWN_STATE: KnownAnswer("", Raw(msgspec.json.encode(result.request_state)))}
        request, _ = open_state(admitted)
        state = _seal_of(admitted).seal(
            request, admitted.principal, digests={}, known=known, once=admitted.surroundings.options.once
        )
        return msgspec.structs.replace(result, request_state=state)


_BY_CALL: Final = AskByCall()
_BY_RETRY: Final = AskByRetry()


def asker_by(revision: Revision) -> Asker:
    """Return the asker that asks as a revision does: by calls, or by a result after which the client calls again."""
    return _BY_CALL if revision.server_calls else _BY_RETRY


def asker_of(admitted: Admitted) -> Asker:
    """Return the asker of a call: its own if it has one, else that of its revision."""
    if admitted.asker is not None:
        own: Asker = admitted.asker
        return own
    return asker_by(admitted.revision)


def _params(request: InputRequest, revision: Revision) -> Any:
    """Return the params of a request as JSON text; UNSET for one without params."""
    return UNSET if isinstance(request, ListRootsRequest) else Raw(encode(request.params, revision))


# -- requests -------------------------------------------------------------------------------------


def _requests(admitted: Admitted, questions: Sequence[Question[Any]]) -> list[InputRequest]:
    """Return the requests for the questions. Raises CannotAsk unless the client's revision has all of them, and the
    client has declared what they need."""
    revision = admitted.revision
    for question in questions:
        if not known_in(question, revision):
            raise CannotAsk(f"This client's revision of MCP has no {_name_of(question)}")
    requests = [question.request(revision) for question in questions]
    demand(admitted, requests)
    return requests


def _name_of(question: Question[Any]) -> str:
    return "elicitation by URL" if isinstance(question, ElicitUrl) else question.method


# -- where the client calls again -----------------------------------------------------------------


class _Record:
    """The questions of one run of a handler, and the answers that are known so far. `answers`: those that came with the
    request, by key; `request`: the digest of the request; `has_state`: whether a state came with it; `digests`: of the
    questions that were sent with that state, by key; `known`: the answers in it; `used`: those that this run has used;
    `count`: the questions of this run."""

    __slots__ = ("answers", "count", "digests", "has_state", "known", "request", "used")

    def __init__(self, context: QuestionContext) -> None:
        admitted = context._admitted
        given = getattr(admitted.params, "input_responses", UNSET)
        self.answers: dict[str, Raw] = {} if given is UNSET else given
        self.request, found = open_state(admitted)
        self.has_state = found is not None
        request_state = _NO_STATE if found is None else found
        self.digests = request_state.digests
        self.known = request_state.known
        self.used: dict[str, KnownAnswer] = {}
        self.count = 0

    def find(self, key: str, question_digest: str, once: bool) -> Raw | None:
        """Return the answer to a question, or None."""
        known = self.known.get(key)
        if known is not None and known.digest == question_digest:
            return known.answer
        if not self.has_state:  # the answer belongs to another state, or the client guessed the question
            return None if once else self.answers.get(key)
        return self.answers.get(key) if self.digests.get(key) == question_digest else None

    def lost(self) -> list[str]:
        """Return the keys of questions that were answered before and have not been asked in this run."""
        answered = {key: known.digest for key, known in self.known.items()}
        answered |= {key: found for key, found in self.digests.items() if key in self.answers}
        return [key for key, found in answered.items() if key not in self.used or self.used[key].digest != found]


_NO_STATE = State("", None, 0, "", False, {}, {})
"""Stands for the state of a request without one."""


def _replay(
    context: QuestionContext, questions: Sequence[Question[Any]], requests: list[InputRequest], once: bool | None
) -> tuple[Any, ...]:
    """Return the answers to the questions of a handler that runs again. Raises InputRequired if some are missing,
    LocalError for equal keys."""
    record = context.rpc.values.get(_RECORD)
    if record is None:
        record = context.rpc.values[_RECORD] = _Record(context)
    single: bool = context._admitted.surroundings.options.once if once is None else once
    answers: list[Any] = []
    missing: dict[str, InputRequest] = {}
    digests: dict[str, str] = {}
    for question, request in zip(questions, requests, strict=True):
        question_digest = digest(question.method.encode() + b"\0" + question.text(request))[:16]
        record.count += 1
        key = question.key or f"q{record.count}-{question_digest[:6]}"
        if key in record.used or key in missing:
            raise LocalError(f"two questions of one call have the key {key!r}: give each its own")
        answer = record.find(key, question_digest, single)
        try:
            if answer is not None:
                answers.append(question.read(answer))
                record.used[key] = KnownAnswer(question_digest, answer)
                continue
        except BadAnswer as error:
            # "respond with a new `InputRequiredResult` requesting the missing information again" (basic/patterns/mrtr)
            logger.info("%s: %s to question %r: asked again", context._admitted.method, error, key)
            record.digests.pop(key, None)
        missing[key], digests[key] = request, question_digest
    if missing:
        raise _input_required(context, record, missing, digests, single)
    return tuple(answers)


def _input_required(
    context: QuestionContext, record: _Record, missing: dict[str, InputRequest], digests: dict[str, str], once: bool
) -> InputRequired:
    """Return the end of a run that asks the `missing` questions, with the state for the next run."""
    admitted = context._admitted
    lost = record.lost()
    if lost:
        logger.warning(
            "%s asks %s before what was answered already (%s): it is asked anew. A handler that runs again asks the "
            "same questions in the same order, and asks before it acts",
            _describe_call(admitted),
            ", ".join(digests),
            ", ".join(lost),
        )
    kept = {key: one for key, one in record.known.items() if key not in record.used and key not in digests}
    request_state = _seal_of(admitted).seal(
        record.request, admitted.principal, digests=digests, known=record.used | kept, once=once
    )
    return InputRequired(missing, request_state)


def _describe_call(admitted: Admitted) -> str:
    """Return the method, and the name or URI, for the log."""
    name = getattr(admitted.params, "name", UNSET)
    return f"{admitted.method} {name if name is not UNSET else getattr(admitted.params, 'uri', '')}".rstrip()


def _seal_of(admitted: Admitted) -> StateSeal:
    """Return the seal of the server that answers a call."""
    found: StateSeal = admitted.surroundings.seal
    return found


def _reads_own_state(admitted: Admitted) -> bool:
    """Return whether the function of a call reads its `requestState` itself."""
    return bool(admitted.row.own_state or admitted.surroundings.own_state)


def open_state(admitted: Admitted) -> tuple[str, State | None]:
    """Return the digest of a request, and the state that came with it. None: no state came, or the function reads it
    itself. The state is opened once, however often this is called. Raises SealError for a state that is not valid."""
    text: Any = UNSET if _reads_own_state(admitted) else getattr(admitted.params, "request_state", UNSET)
    if admitted.opened is None or admitted.opened[0] is not text:
        request = digest_of(admitted.method, admitted.raw)
        state = _seal_of(admitted).open(text, request, admitted.principal) if isinstance(text, str) else None
        admitted.opened = text, request, state
    return admitted.opened[1], admitted.opened[2]


def verify(admitted: Admitted) -> State | None:
    """Verify the state that came with a request before its handler runs, and return it if it is for a single use.

    Raises SealError (-32602) for a state that was changed, has expired, or belongs to another principal or request:
    "MUST reject state that fails verification" (basic/patterns/mrtr). The caller marks a state for a single use as used
    when the call starts, so that a refused call (busy, draining) does not use it.
    """
    _, request_state = open_state(admitted)
    return request_state if request_state is not None and request_state.once else None


_OWN_STATE: Final = "dragoman.own"
"""The key under which a sealed state has a function's own `requestState`, among the answers."""


def own_state(context: QuestionContext) -> str | None:
    """Return the `requestState` that the function returned with questions of its own; None if this run is not the one
    after such questions."""
    _, state = open_state(context._admitted)
    if state is None:
        return None
    own = state.known.get(_OWN_STATE)
    return None if own is None else msgspec.json.decode(own.answer, type=str)


# -- elicitation by URL, in the revision that has a message for its end ----------------------------


def completed(context: QuestionContext, elicitation_id: str) -> Awaitable[None] | None:
    """Notify the client that the user has finished at the URL of the `ElicitUrl` with this `id`; awaitable in
    `async def`.

    Nothing is sent if the revision has no such message. It is sent to the client of this call: "MUST only send the
    notification to the client that initiated the elicitation request" (client/elicitation). In `async def` it also
    works after the end of the call."""
    rpc = context.rpc
    if not context._admitted.revision.url_elicitation_error:
        return None if rpc._where == "thread" else _do_nothing()
    params = Raw(
        encode(ElicitationCompleteNotificationParams(elicitation_id=elicitation_id), context._admitted.revision)
    )
    sent: Awaitable[None] | None = rpc.notify("notifications/elicitation/complete", params)
    return sent


async def _do_nothing() -> None:
    """Await nothing: there is no message to send."""
    return
