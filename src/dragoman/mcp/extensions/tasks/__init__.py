"""Tasks: tools that go on beyond their requests, and outlive a connection, a restart and the loss of a process.

A server gets `Tasks`, a client gets `TasksClient`. `model` has what is sent in each revision; `running` runs tasks, and
`server` decides what the client of a call gets; `following` follows a task at a server, and `client` gives it to users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....doors import door

if TYPE_CHECKING:
    from .client import TaskHandle, TasksClient
    from .following import TaskStatus
    from .policy import TaskPolicy
    from .server import Tasks
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "client": "TaskHandle TasksClient",
            "following": "TaskStatus",
            "policy": "TaskPolicy",
            "server": "Tasks",
        },
    )
    del TYPE_CHECKING, annotations, door

__all__ = ["TaskHandle", "TaskPolicy", "TaskStatus", "Tasks", "TasksClient"]
