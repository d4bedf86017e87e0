"""dragoman: JSON-RPC 2.0 on every wire, in both directions.

    from dragoman import Service, connect, http_app, serve

Names are imported when they are used, so a script that only answers bytes does not import asyncio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import running
from .doors import door

if TYPE_CHECKING:
    from .channel import Broken, Caller, ChannelError, Closed, Ended, Identity, Options
    from .connecting import connect
    from .events.publisher import EventPublisher
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
    from .rpc.binding.dependencies import Depends
    from .rpc.context import Context
    from .rpc.event_subscription import EventSubscription, PeerEvent
    from .rpc.including import method
    from .rpc.peer import Peer
    from .rpc.process.declaring import in_process
    from .rpc.process.pool import ProcessLimits
    from .rpc.service import Service
    from .rpc.task_handle import TaskHandle
    from .rpc.task_messages import TaskStatus
    from .serving import http_app, serve
    from .tasks.policy import TaskPolicy
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "channel": "Broken Caller ChannelError Closed Ended Identity Options",
            "connecting": "connect",
            "events.publisher": "EventPublisher",
            "jsonrpc.errors": """
                BadAnswer CallTimeout Dialect InternalError InvalidParams InvalidRequest LocalError MethodNotFound
                ParseError RpcError
            """,
            "jsonrpc.limits": "Limits",
            "rpc.binding.dependencies": "Depends",
            "rpc.including": "method",
            "rpc.context": "Context",
            "rpc.event_subscription": "EventSubscription PeerEvent",
            "rpc.peer": "Peer",
            "rpc.process.declaring": "in_process",
            "rpc.process.pool": "ProcessLimits",
            "rpc.service": "Service",
            "rpc.task_handle": "TaskHandle",
            "rpc.task_messages": "TaskStatus",
            "tasks.policy": "TaskPolicy",
            "serving": "http_app serve",
        },
    )
    del TYPE_CHECKING, annotations, door


def _run(*args: Any, **options: Any) -> None:
    """Do the work of `app.run`. Apps are not allowed to import `serving`, so the package passes it to `running`."""
    from .serving import run  # noqa: PLC0415  (start-up: asyncio)

    run(*args, **options)


running.serve_app = _run

__version__ = "0.1.0"

__all__ = [
    "BadAnswer",
    "Broken",
    "CallTimeout",
    "Caller",
    "ChannelError",
    "Closed",
    "Context",
    "Depends",
    "Dialect",
    "Ended",
    "EventPublisher",
    "EventSubscription",
    "Identity",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "Limits",
    "LocalError",
    "MethodNotFound",
    "Options",
    "ParseError",
    "Peer",
    "PeerEvent",
    "ProcessLimits",
    "RpcError",
    "Service",
    "TaskHandle",
    "TaskPolicy",
    "TaskStatus",
    "connect",
    "http_app",
    "in_process",
    "method",
    "serve",
]
