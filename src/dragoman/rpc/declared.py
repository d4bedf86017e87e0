"""Errors by what their classes declare: from one that the far end answered with to the exception that its caller gets,
and from one that was raised here to the `data` that leaves."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from ..jsonrpc.errors import BadAnswer, LocalError, RpcError
from ..jsonrpc.messages import Failure
from .binding.annotations import result_tree
from .binding.projection import Leave, projection
from .binding.results import result_decoder, to_json


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


def leaving(error: RpcError) -> Any:
    """What of an error's `data` leaves: what its class declares, as with results (`binding.projection`), as JSON text
    where it declares classes with fields.

    LocalError for data of a class that has nothing to do with the declared one, and for what JSON cannot say.
    """
    data = error.data
    if data is UNSET or type(error) is RpcError:
        return data
    kind: Any = type(error)
    leave = _leaving(kind)
    return data if leave is None else Raw(to_json(leave(data)))


@functools.lru_cache(1024)
def _leaving(kind: Any) -> Leave | None:
    try:
        return projection(result_tree(_declared(kind), f"{kind.__name__}.data"))
    except LocalError:  # what cannot be resolved declares nothing: the OpenRPC document shows no data either
        return None


def _data_decoder(kind: type[RpcError]) -> Callable[[Raw], Any]:
    decoder: Callable[[Raw], Any] = result_decoder(_declared(kind))
    return decoder


def _declared(kind: type[RpcError]) -> Any:
    """The annotation of an error's `data`."""
    try:
        return typing.get_type_hints(kind, include_extras=True).get("data", Any)
    except NameError as error:
        raise LocalError(f"errors: the annotations of {kind.__name__} cannot be found: {error}") from error
