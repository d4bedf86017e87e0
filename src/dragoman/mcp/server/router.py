"""Routes a message: admits it, and finds the method that answers it in the server's table of methods.

Both eras use this. A call of an unknown name gets a method that answers with the error, so that middleware sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from ...allowance import Owner, owner_of
from ...channel import Caller
from ...jsonrpc.errors import RpcError
from ...jsonrpc.messages import Notification, Request
from ...rpc.channel_peer import ChannelPeer
from ...rpc.method import Method, living
from ...rpc.middleware import Call
from ..asking.ask import verify
from ..asking.request_state import SealError, State
from ..protocol.admission import Admitted, admit, bad_id, no_request
from ..protocol.headers import HTTP
from ..protocol.lenient import without_nulls
from ..protocol.methods import Row
from .builtin import error_method
from .served import Replicas
from .surroundings import Surroundings
from .table import ServerMethods


class Router:
    """Finds the method that answers a message. `replicas`: the server's part in its replicas."""

    def __init__(self, surroundings: Surroundings, table: ServerMethods, replicas: Replicas) -> None:
        self._surroundings, self._table, self._replicas = surroundings, table, replicas
        self._offered = surroundings.options.offered
        self._service = surroundings.service
        self._dependencies = self._service._dependencies

    def route(
        self, message: Request | Notification, caller: Caller, peer: ChannelPeer | None
    ) -> tuple[Method | None, Request | Notification]:
        """Admit a message and find the method that answers it; see `rpc.dispatch.Router`. Raises RpcError."""
        request = type(message) is Request
        if request:
            id: Any = message.id  # type: ignore[union-attr]
            if type(id) is Raw and not _is_integer(id):
                raise bad_id()
        identity, table = caller.identity, self._table
        if not request:
            no_request(message.method, table.rows)
        if self._service._lenient.null_params:
            message = _without_nulls(message, table.rows)
        admitted = admit(
            message,
            None if peer is None else peer.state,
            self._offered,
            peer is not None or not request,
            None if identity is None else identity.principal,
            caller.headers if caller.scheme in HTTP else None,
            table.rows,
        )
        if admitted is None:
            return None, message
        admitted.surroundings = self._surroundings
        session = admitted.session
        if session is not None and message.method == "notifications/initialized":
            # set here: later messages rely on it, and the method may have to wait, or be refused under load
            session.initialized = True
        found = table.get(message.method)
        if found is None:
            return None, message
        method = found.method
        try:
            find = found.find
            if find is not None:
                method = find(admitted, caller) or method
            own_state = found.row.own_state or admitted.surroundings.own_state
            if found.row.ask and not own_state and getattr(admitted.params, "request_state", UNSET) is not UNSET:
                method = self._verify_state(method, admitted, caller)
        except RpcError as error:
            method = error_method(message.method, error)
        if method is None:
            return None, message
        life = self._dependencies.life
        if life is not None and life.here() is None:  # to call `living` costs more
            method = living(life, method, self._service._handler)
        return method, Request(message.method, admitted, id) if request else Notification(message.method, admitted)

    def _verify_state(self, method: Method | None, admitted: Admitted, caller: Caller) -> Method | None:
        """Return the method for a call that brings sealed state back. Raises SealError (-32602) for a state that does
        not belong to this call."""
        state = verify(admitted)
        return method if state is None or method is None else self._use_once(method, state, owner_of(caller))

    def _use_once(self, method: Method, state: State, owner: Owner) -> Method:
        """Return a method that first marks a single-use state as used. A call of it fails with SealError (-32602) if
        the state was used before, with InternalError if too many of this owner are remembered."""
        seal, shared = self._surroundings.seal, self._replicas.shared
        inner = self._service._handler(method)

        async def use_state(call: Call) -> Any:
            if shared is None or shared.store is None:
                seal.use(state, owner)
            else:
                seal.nonces.allow(owner)
                if not await shared.use(state, seal.clock()):
                    raise SealError("used")
            return await inner(call)

        return msgspec.structs.replace(method, handler=use_state, quick=False, runs_inline=False)


def _without_nulls(message: Request | Notification, rows: Mapping[str, Row]) -> Request | Notification:
    """Return the message without params that are null and may be absent."""
    row, params = rows.get(message.method), message.params
    if row is None or type(params) is not Raw:
        return message
    kept = without_nulls(params, row.params)
    if kept is params:
        return message
    return Request(message.method, kept, message.id) if type(message) is Request else Notification(message.method, kept)


def _is_integer(id: Raw) -> bool:
    """Return whether an id that is kept as JSON text is an integer nevertheless (1.0 is; 1.5 and null are not)."""
    try:
        value = msgspec.json.decode(id)
    except msgspec.DecodeError:
        return False
    return isinstance(value, int | float) and not isinstance(value, bool) and value == int(value)
