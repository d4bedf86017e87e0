"""A function as the `Method` of a prompt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Raw, Struct

from ...jsonrpc.errors import LocalError
from ...rpc.binding.dependencies import Dependencies
from ...rpc.method import Method
from ..protocol.admission import Admitted
from ..protocol.params import GetPromptResult
from ..protocol.results import finish
from ..protocol.types import PromptArgument
from .content import messages, sound
from .errors import of_others
from .handlers import PLAIN, Options, bound, giver, handler_of, leaving, method_of, texts_reader


class MadePrompt(Struct, frozen=True, eq=False):
    """A prompt's method and its entry in the list."""

    method: Method
    arguments: list[PromptArgument]
    documentation: str


def prompt_method(
    name: str, function: Callable[..., Any], dependencies: Dependencies, options: Options = PLAIN
) -> MadePrompt:
    """The method of a prompt. Raises LocalError for arguments without names."""
    binding = bound(function, dependencies, options)
    arguments: list[PromptArgument] = []
    for p in binding.parameters:
        if p.kind in ("positional", "rest"):
            raise LocalError(f"{name}, parameter {p.name!r}: arguments have names here; take away the `/` or the `*`")
        if p.kind != "members":
            arguments.append(PromptArgument(name=p.name, description=p.description or UNSET, required=p.required))
    texts = texts_reader(binding)

    def read(admitted: Admitted, context: Any) -> tuple[Any, ...]:
        given = admitted.params.arguments
        return texts({} if given is UNSET else given, context)

    def finished(value: Any, admitted: Admitted) -> Raw:
        if isinstance(value, GetPromptResult):
            sound(value)
        else:
            value = GetPromptResult(messages=messages(value))
        return finish(value, admitted.revision, admitted.surroundings.stamp)

    handler = handler_of(binding.function, binding.kind, read, leaving(binding, finished), of_others(), giver(binding))
    return MadePrompt(method_of(name, binding, handler, options, read), arguments, binding.documentation)
