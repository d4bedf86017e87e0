"""dragoman: JSON-RPC 2.0 on every wire, in both directions.

    from dragoman import Service, connect, http_app, serve

Names are imported when they are used, so that a script which only answers bytes pays for no loop.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .channel import Broken, Caller, ChannelError, Closed, Ended, Options
    from .jsonrpc.errors import (
        BadAnswer,
        CallTimeout,
        Dialect,
        InternalError,
        InvalidParams,
        InvalidRequest,
        LocalError,
        MethodNotFound,
        ParseError,
        RpcError,
    )
    from .jsonrpc.limits import Limits
    from .rpc.context import Context
    from .rpc.peer import Peer
    from .rpc.service import Service
    from .wires import connect, http_app, serve

__version__ = "0.1.0"

_WHERE = {
    "BadAnswer": "jsonrpc.errors",
    "Broken": "channel",
    "CallTimeout": "jsonrpc.errors",
    "Caller": "channel",
    "ChannelError": "channel",
    "Closed": "channel",
    "Context": "rpc.context",
    "Dialect": "jsonrpc.errors",
    "Ended": "channel",
    "InternalError": "jsonrpc.errors",
    "InvalidParams": "jsonrpc.errors",
    "InvalidRequest": "jsonrpc.errors",
    "Limits": "jsonrpc.limits",
    "LocalError": "jsonrpc.errors",
    "MethodNotFound": "jsonrpc.errors",
    "Options": "channel",
    "ParseError": "jsonrpc.errors",
    "Peer": "rpc.peer",
    "RpcError": "jsonrpc.errors",
    "Service": "rpc.service",
    "connect": "wires",
    "http_app": "wires",
    "serve": "wires",
}

__all__ = [
    "BadAnswer",
    "Broken",
    "CallTimeout",
    "Caller",
    "ChannelError",
    "Closed",
    "Context",
    "Dialect",
    "Ended",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "Limits",
    "LocalError",
    "MethodNotFound",
    "Options",
    "ParseError",
    "Peer",
    "RpcError",
    "Service",
    "connect",
    "http_app",
    "serve",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_WHERE[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
