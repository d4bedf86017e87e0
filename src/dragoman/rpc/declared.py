"""From an error that the far end answered with to the exception that its caller gets."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from ..jsonrpc.errors import BadAnswer, LocalError, RpcError
from ..jsonrpc.messages import Failure
from .binding.results import result_decoder


class ErrorRegistry:
    """The errors that a caller knows by class: they are raised as that, their `data` decoded as it is annotated.

    LocalError for an annotation that is no type, or one that no JSON can be decoded to.
    """

    def __init__(self, errors: Sequence[type[RpcError]] = ()) -> None:
        self._kinds = {error.code: error for error in errors}
        self._data = {error.code: _data_decoder(error) for error in errors}

    def raised_by(self, message: Failure) -> Exception:
        """The exception for a failure; data that is not as declared is taken as it is."""
        error = message.error
        data = error.data
        if isinstance(data, Raw):
            try:
                data = self._decoded(error.code, data)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                return BadAnswer("the error's data is no JSON that Python can hold")
        result = RpcError.of(error.code, error.message, data, kinds=self._kinds)
        result.name = error.name
        return result

    def _decoded(self, code: int, data: Raw) -> Any:
        if (declared := self._data.get(code)) is not None:
            try:
                return declared(data)
            except BadAnswer:
                pass
        return msgspec.json.decode(data)


UNDECLARED = ErrorRegistry()


def _data_decoder(kind: type[RpcError]) -> Callable[[Raw], Any]:
    try:
        annotation = typing.get_type_hints(kind, include_extras=True).get("data", Any)
    except NameError as error:
        raise LocalError(f"errors: the annotations of {kind.__name__} cannot be found: {error}") from error
    decoder: Callable[[Raw], Any] = result_decoder(annotation)
    return decoder
