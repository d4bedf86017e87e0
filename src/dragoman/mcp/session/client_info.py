"""What a session keeps of its client, its description and capabilities: bounded, and counted in the server's budget."""

from __future__ import annotations

from typing import Final

import msgspec

from ...jsonrpc.budget import Budget
from ...jsonrpc.call_limit import busy
from ...jsonrpc.errors import Refusal, too_large
from ...jsonrpc.limits import Limits
from ..protocol.admission import SessionState

ORDINARY: Final = 4 * 1024
"""Bytes up to which nothing is counted: ordinary clients need no more, and the number of sessions is limited."""
_OBJECT, _ARRAY, _ELEMENT = 240, 90, 70
"""Bytes that an object, an array and an element take in memory beside their text."""

_json = msgspec.json.Encoder().encode


def keep_client(state: SessionState, owner: str, budget: Budget, limits: Limits) -> Refusal | None:
    """Count what a session keeps of its client to its owner's share of the budget. Return the refusal if that is too
    much, else None."""
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
