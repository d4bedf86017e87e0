"""An `InputRequiredResult` that a function itself returned, and the answers to it."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET, Raw

from ...jsonrpc.errors import LocalError
from ..protocol.admission import Admitted
from ..protocol.params import InputRequiredResult
from ..protocol.results import read_back
from .ask import QuestionContext, StateSealer, opened
from .forms import CannotAsk
from .questions import demand, may_ask
from .request_state import KnownAnswer

_OWN: Final = "dragoman.own"
"""The key of a function's own `requestState` among the answers in a sealed state."""


def by_hand(result: InputRequiredResult, admitted: Admitted, server: StateSealer) -> InputRequiredResult:
    """Return the result for a function that returned questions of its own: its `requestState` is sealed like ours.

    The next run has the answers in `input_responses`, and the state in `own_state`. Raises CannotAsk if the call may
    not be answered so, or the client did not declare the question; LocalError for a result without questions and
    state, or that no client could read.
    """
    revision = admitted.revision
    if revision.server_calls:
        raise CannotAsk(f"{admitted.method}: a client of {revision.date} is asked by calls: `await ctx.ask(...)`")
    may_ask(admitted)
    result = read_back(result)
    demand(admitted, () if result.input_requests is UNSET else result.input_requests.values())
    if result.request_state is UNSET:
        if result.input_requests is UNSET:
            # "Servers MUST include at least one of `inputRequests` or `requestState`" (basic/patterns/mrtr)
            raise LocalError(f"{admitted.method}: an InputRequiredResult has input_requests, request_state, or both")
        return result
    known = {_OWN: KnownAnswer("", Raw(msgspec.json.encode(result.request_state)))}
    wanted, _ = opened(admitted, server)
    state = server.seal.seal(wanted, admitted.principal, digests={}, known=known, once=server.once)
    return msgspec.structs.replace(result, request_state=state)


def own_state(context: QuestionContext) -> str | None:
    """Return the `requestState` of a function's own questions, as it returned it; None if this run does not follow such
    questions."""
    _, state = opened(context._admitted, context._server)
    if state is None:
        return None
    own = state.known.get(_OWN)
    return None if own is None else msgspec.json.decode(own.answer, type=str)
