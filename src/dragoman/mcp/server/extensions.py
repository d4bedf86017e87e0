"""The server's side of extensions: the functions that answer their methods.

An extension is declared by an `Extension`: its rows are added to the server's table of methods, its settings to the
server's capabilities. `outcomes` handles what its functions may return.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Protocol, runtime_checkable

from ...jsonrpc.errors import LocalError
from ...rpc.method import CallOptions, Method
from ..protocol.admission import Admitted
from ..protocol.extension import Extension, Extensions
from ..protocol.methods import Row
from .context import Context
from .errors import failures
from .handlers import handler_of, method_for
from .outcomes import result_writer


@runtime_checkable
class ServerExtension(Protocol):
    """An extension with its functions for a server, for `Server(extensions=[...])`."""

    @property
    def declares(self) -> Extension:
        """The declaration for both ends."""

    @property
    def handlers(self) -> Mapping[str, Callable[..., Any]]:
        """The functions that answer its methods, by name, as `Server.method` takes them."""


def declarations_of(given: Iterable[Extension | ServerExtension]) -> Extensions:
    """Return the declarations of extensions. Raises LocalError for an invalid one, and for two that conflict."""
    found = []
    for one in given:
        if not isinstance(one, Extension | ServerExtension):
            raise LocalError(f"an extension is an Extension, or has `declares` and `handlers`; {one!r:.100} has not")
        found.append(one if isinstance(one, Extension) else one.declares)
    return Extensions(found)


def extension_method(row: Row, function: Callable[..., Any], options: CallOptions) -> Method:
    """Return a method of an extension. `function(params, context)` returns the row's result. Raises LocalError for
    options that conflict."""
    kind: Literal["async", "plain"] = "async" if inspect.iscoroutinefunction(function) else "plain"
    handler = handler_of(function, kind, _params_and_context, result_writer(row), failures(row.name), Context)
    return method_for(row.name, kind, function, handler, options)


def _params_and_context(admitted: Admitted, context: Any) -> tuple[Any, ...]:
    return admitted.params, context
