"""JSON-RPC 2.0 as pure values: bytes to messages and back, for people who bring their own wire.

    message = decode(b'{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}')
    match message:
        case Request(method, params, id): ...        # message.is_internal: an `rpc.` name
        case Notification(method, params): ...
        case Result(value, id) | Failure(error, id): ...
        case Batch(messages): ...                    # any of these, Malformed ones too
        case Malformed(kind, reason, id): ...        # never an exception
    encode(Result(19, 1))                            # b'{"jsonrpc":"2.0","result":19,"id":1}'

No asyncio, no sockets, no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import door

if TYPE_CHECKING:
    from .codec import decode, encode, failure
    from .errors import RpcError
    from .leniency import LENIENT, STRICT, Leniency
    from .limits import Limits
    from .messages import (
        Batch,
        ErrorObject,
        Failure,
        Malformed,
        Message,
        Notification,
        Request,
        Response,
        Result,
    )
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "codec": "decode encode failure",
            "errors": "RpcError",
            "leniency": "LENIENT Leniency STRICT",
            "limits": "Limits",
            "messages": "Batch ErrorObject Failure Malformed Message Notification Request Response Result",
        },
    )
    del TYPE_CHECKING, annotations, door

__all__ = [
    "LENIENT",
    "STRICT",
    "Batch",
    "ErrorObject",
    "Failure",
    "Leniency",
    "Limits",
    "Malformed",
    "Message",
    "Notification",
    "Request",
    "Response",
    "Result",
    "RpcError",
    "decode",
    "encode",
    "failure",
]
