"""What is accepted from peers that do not keep to JSON-RPC 2.0."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from .options import check_struct, one_of, rules_of


class Leniency(Struct, frozen=True, kw_only=True):
    """What is accepted from peers that do not keep to JSON-RPC 2.0. Everything is off by default."""

    accept_v1: bool = False
    """Accept JSON-RPC 1.0 as well: no `jsonrpc` member, positional params, `id: null` is a notification, responses
    carry both `result` and `error`. Bitcoin Core and many devices speak it."""
    null_id: Literal["request", "notification"] = "request"
    """What `"id": null` means in 2.0. The specification discourages it; some clients send it for notifications."""
    string_codes: bool = False
    """Accept strings as `error.code` in responses ("INVALID_PARAMS") and map them to their numbers; the string is
    kept."""

    def __post_init__(self) -> None:
        check_struct(self, _RULES)


_RULES = rules_of(Leniency, null_id=one_of("request", "notification"))

STRICT = Leniency()
