"""The types that a context's questions return, for type checkers and editors; no instance is made at run time.

On the same `Context` a question is awaited in `async def`, and blocks in a plain function. So each of these types is
the answer itself, for a plain function, and can also be awaited for the answer, in `async def`."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar, TypeVarTuple

from ..protocol.params import CreateMessageResult
from ..protocol.types import Root
from .questions import Elicited

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Answers(tuple[*Ts]):
    """The answers of `Context.ask`, in order."""

    def __await__(self) -> Generator[Any, None, tuple[*Ts]]:
        return self
        yield


class Decision(Elicited[T], frozen=True):
    """The answer of `Context.elicit` and `elicit_url`."""

    def __await__(self) -> Generator[Any, None, Elicited[T]]:
        return self
        yield


class Sampled(CreateMessageResult, frozen=True):
    """The answer of `Context.sample`."""

    def __await__(self) -> Generator[Any, None, CreateMessageResult]:
        return self
        yield


class Folders(list[Root]):
    """The answer of `Context.roots`."""

    def __await__(self) -> Generator[Any, None, list[Root]]:
        return self
        yield
