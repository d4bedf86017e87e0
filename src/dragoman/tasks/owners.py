"""Whose a task is."""

from __future__ import annotations

import hashlib
import json
from typing import TypeGuard

from .record import TaskRecord


def owner_of(server: str, principal: str | None) -> str:
    """Return the owner of the tasks of a principal at this server or service; "" without one: those belong to whoever
    knows their ids."""
    if principal is None:
        return ""
    return hashlib.sha256(json.dumps([server, principal]).encode()).hexdigest()[:40]


def is_of(record: TaskRecord | None, server: str, principal: str | None) -> TypeGuard[TaskRecord]:
    """Whether a record was found, and is that of a task of this principal at this server or service."""
    return record is not None and record.server == server and record.owner in ("", owner_of(server, principal))
