"""The public names: listed here, so that none comes or goes unnoticed."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dragoman
from dragoman import jsonrpc, sync

PUBLIC = [
    *("BadAnswer", "Broken", "CallTimeout", "Caller", "ChannelError", "Closed", "Context", "Depends"),
    *("Dialect", "Ended", "EventPublisher", "EventSubscription", "Identity"),
    *("InternalError", "InvalidParams", "InvalidRequest", "Limits", "LocalError", "MethodNotFound", "Options"),
    *("ParseError", "Peer", "PeerEvent", "ProcessLimits", "RpcError", "Service"),
    *("TaskHandle", "TaskPolicy", "TaskStatus"),
    *("connect", "http_app", "in_process", "method", "serve"),
]
PROTOCOL = [
    *(
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
    ),
    *("Request", "Response", "Result", "RpcError", "decode", "encode", "failure"),
]


def test_the_public_names_are_these() -> None:
    assert dragoman.__all__ == PUBLIC
    assert jsonrpc.__all__ == PROTOCOL
    assert set(sync.__all__) == {
        "Answer",
        "SyncBatch",
        "SyncEvents",
        "SyncNotifications",
        "SyncPeer",
        "SyncTask",
        "connect",
    }


@pytest.mark.parametrize("name", PUBLIC)
def test_each_is_there_and_says_what_it_is(name: str) -> None:
    assert name in dir(dragoman)
    assert getattr(dragoman, name).__doc__


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dragoman.nothing  # type: ignore[attr-defined]


def test_the_core_brings_two_packages() -> None:
    script = (
        "import sys, dragoman, dragoman.connecting\n"
        "ours = {m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)\n"
        "print(sorted(name for name in ours if not name.startswith('_') and name != 'sitecustomize'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import site; site.main()\n{script}"], capture_output=True, text=True, check=False
    )
    found = set(done.stdout.strip("[]\n ").replace("'", "").split(", "))
    assert {"dragoman", "msgspec"} <= found, done.stderr
    assert not found & {"aiohttp", "httptools", "websockets", "rich", "cyclopts", "uvloop", "pydantic"}
