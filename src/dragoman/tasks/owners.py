"""Whose a task is, and the identity with which it is run again."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from ..access import LocalUser
from ..channel import Caller, Identity
from .record import NOBODY


def owner_of(server: str, principal: str | None) -> str:
    """Return the owner of the tasks of a principal at this server or service; "" without one: those belong to whoever
    knows their ids."""
    if principal is None:
        return ""
    return hashlib.sha256(json.dumps([server, principal]).encode()).hexdigest()[:40]


class KeptIdentity(Struct, omit_defaults=True):
    """An identity as it is kept with a task: without what it showed, and when that expires. `local`: it is the user of
    this machine."""

    subject: str
    client_id: str | None = None
    issuer: str | None = None
    scopes: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    claims: dict[str, Any] = {}
    local: bool = False


def keep_caller(identity: Identity | None) -> Raw:
    """Return a caller's identity as JSON text. Claims that JSON does not have are left out."""
    if identity is None:
        return NOBODY
    kept = KeptIdentity(
        identity.subject,
        identity.client_id,
        identity.issuer,
        identity.scopes,
        identity.roles,
        dict(identity.claims),
        isinstance(identity, LocalUser),
    )
    try:
        return Raw(msgspec.json.encode(kept))
    except (TypeError, ValueError, RecursionError):
        return Raw(msgspec.json.encode(structs.replace(kept, claims={})))


def restore_caller(kept: Raw) -> Caller:
    """Return the caller as whom a task is run again."""
    if kept == NOBODY:
        return Caller()
    found = msgspec.json.decode(kept, type=KeptIdentity)
    kind = LocalUser if found.local else Identity
    members = {name: getattr(found, name) for name in found.__struct_fields__ if name != "local"}
    return Caller(identity=kind(**members))
