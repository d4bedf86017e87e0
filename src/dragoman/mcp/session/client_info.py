"""What a session keeps of its client: bounded for each, and counted in the server's budget."""

from __future__ import annotations

from typing import Final

import msgspec

from ...jsonrpc.budget import Budget
from ...jsonrpc.call_limit import busy
from ...jsonrpc.errors import Refusal, too_large
from ...jsonrpc.limits import Limits
from ..protocol.admission import SessionState

ORDINARY: Final = 4 * 1024
"""Bytes that are not counted: what ordinary clients say of themselves is a part of what a session costs anyway, and of
those there is a bound."""
_OBJECT, _ARRAY, _ELEMENT = 240, 90, 70
"""Bytes that each takes beside its text."""

_json = msgspec.json.Encoder().encode


def keep_client(state: SessionState, owner: str, budget: Budget, limits: Limits) -> Refusal | None:
    """Count what a session knows of its client as its owner's; the refusal where that is too much."""
    texts = [_json(state.client), _json(state.capabilities)]
    size = sum(map(len, texts))
    if size > limits.client_info_size:
        return too_large("client_info_size", limits.client_info_size, size)
    for text in texts:
        size += _OBJECT * text.count(b"{") + _ARRAY * text.count(b"[") + _ELEMENT * text.count(b",")
    if size > ORDINARY:
        state.kept = budget.admit(owner, size)
        if state.kept is None:
            return busy("kept_bytes", budget.share)
    return None
