"""Identities as text that is kept, for what is done for a caller later: a task that is begun again, an event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from .access import LocalUser
from .channel import Identity


class _Kept(Struct, frozen=True, omit_defaults=True):
    """An identity without what it showed, and when that expires. `local`: it is the user of this machine."""

    subject: str
    client_id: str | None = None
    issuer: str | None = None
    scopes: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    claims: dict[str, Any] = {}
    local: bool = False


_decoder = msgspec.json.Decoder(_Kept | None)


def keep_identity(identity: Identity | None) -> Raw:
    """Return an identity as JSON text; `null` for none. Where JSON does not have all of its claims, none is kept."""
    if identity is None:
        return Raw(b"null")
    return Raw(
        msgspec.json.encode(
            _Kept(
                identity.subject,
                identity.client_id,
                identity.issuer,
                identity.scopes,
                identity.roles,
                _claims(identity.claims),
                isinstance(identity, LocalUser),
            )
        )
    )


def restore_identity(kept: Raw | bytes) -> Identity | None:
    """Return the identity of a text of `keep_identity`. Raises ValueError."""
    found = _decoder.decode(kept)
    if found is None:
        return None
    members = {name: getattr(found, name) for name in found.__struct_fields__ if name != "local"}
    return (LocalUser if found.local else Identity)(**members)


def _claims(claims: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of the claims is kept: a part of them might say what the whole does not."""
    found = dict(claims)
    try:
        msgspec.json.encode(found)
    except (TypeError, ValueError, RecursionError):
        return {}
    return found
