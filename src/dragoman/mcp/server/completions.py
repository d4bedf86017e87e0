"""A function as the `Method` behind the completion of an argument."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from ...jsonrpc.errors import LocalError
from ...rpc.binding.dependencies import Dependencies
from ...rpc.method import Method
from ..protocol.admission import Admitted
from ..protocol.params import CompleteResult, Completion
from ..protocol.results import finish, read_back
from .errors import of_others
from .handlers import PLAIN, Options, bound, giver, handler_of, method_of

MOST_COMPLETIONS: Final = 100
"""server/utilities/completion: "Maximum 100 items per response"."""

_encode = msgspec.json.Encoder().encode


def completion_method(
    name: str, function: Callable[..., Any], dependencies: Dependencies, options: Options = PLAIN
) -> Method:
    """The method for the completion of an argument: the function takes the text typed so far, and, by the name
    `arguments`, the arguments already known."""
    binding = bound(function, dependencies, options)
    first = next((p for p in binding.parameters if p.name != "arguments"), None)
    others = [p for p in binding.parameters if p is not first and p.name != "arguments" and p.required]
    if first is None or others or any(p.kind in ("positional", "rest") for p in binding.parameters):
        raise LocalError(f"{name}: a completion takes the text typed so far, and `arguments` and a Context if it wants")
    knows = any(p.name == "arguments" for p in binding.parameters)
    typed, decode = first.name, binding.arguments

    def read(admitted: Admitted, context: Any) -> tuple[Any, ...]:
        params = admitted.params
        values: dict[str, Any] = {typed: params.argument.value}
        if knows:
            known = UNSET if params.context is UNSET else params.context.arguments
            values["arguments"] = {} if known is UNSET else known
        return decode(Raw(_encode(values)), context)

    def finished(value: Any, admitted: Admitted) -> Raw:
        return finish(CompleteResult(completion=_completion(value)), admitted.revision, admitted.surroundings.stamp)

    handler = handler_of(binding.function, binding.kind, read, finished, of_others(name), giver(binding))
    return method_of(name, binding, handler, options, read)


def _completion(value: Any) -> Completion:
    if isinstance(value, Completion):
        read_back(value)
        if len(value.values) <= MOST_COMPLETIONS:
            return value
        total = len(value.values) if value.total is UNSET else value.total
        return Completion(value.values[:MOST_COMPLETIONS], total, True)
    if isinstance(value, str) or not isinstance(value, Iterable | None):
        raise LocalError(f"a completion returns a list of texts, or a Completion, not {value!r:.100}")
    values = [] if value is None else [str(one) for one in value]
    return Completion(values[:MOST_COMPLETIONS], len(values), len(values) > MOST_COMPLETIONS)
