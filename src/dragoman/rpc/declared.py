"""Declared errors: turns an error of the far end into the exception class declared for it, and checks the `data` of a
raised error against its class."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from ..jsonrpc.errors import BadAnswer, LocalError, RpcError
from ..jsonrpc.messages import Failure
from .binding.annotations import result_tree
from .binding.projection import Project, projection
from .binding.results import result_decoder, to_json


class ErrorRegistry:
    """The error classes that a caller knows: errors are raised as these, their `data` decoded as annotated.

    Raises LocalError for an annotation that is not a type, or to which JSON cannot be decoded.
    """

    def __init__(self, errors: Sequence[type[RpcError]] = ()) -> None:
        self._kinds = {error.code: error for error in errors}
        self._data = {error.code: _data_decoder(error) for error in errors}

    def raised_by(self, message: Failure) -> Exception:
        """The exception for a failure; data that does not fit the declaration is kept as it is."""
        error = message.error
        data = error.data
        if isinstance(data, Raw):
            try:
                data = self._decoded(error.code, data)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                return BadAnswer("the error's data is not JSON that Python can hold")
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


def sendable_data(error: RpcError) -> Any:
    """The part of an error's `data` that may be sent: what its class declares, as for results (`binding.projection`),
    as JSON text if it declares classes with fields.

    Raises LocalError for data of an unrelated class, and for a value that JSON cannot hold.
    """
    data = error.data
    if data is None or type(error) is RpcError:
        return data
    kind: Any = type(error)
    leave = _sendable(kind)
    return data if leave is None else Raw(to_json(leave(data)))


@functools.lru_cache(1024)
def _sendable(kind: Any) -> Project | None:
    try:
        return projection(result_tree(_declared(kind), f"{kind.__name__}.data"))
    except LocalError:  # an unresolvable annotation declares nothing; the OpenRPC document shows no data either
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
