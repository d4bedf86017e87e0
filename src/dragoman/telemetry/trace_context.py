"""W3C Trace Context, level 1: `traceparent` and `tracestate`, as they are sent and read. Pure.

Read by ourselves, because OpenTelemetry's propagators take a dictionary apart for each message, which costs more than
the call. `baggage` is not read: a stranger must not choose what our handlers and their own calls carry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Raw, Struct

from ..observer import Observation

SAMPLED = 1
STATE = 512
"""Characters of `tracestate` that are passed on ("Vendors SHOULD propagate at least 512 characters", 3.3.1.5)."""
_form = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\Z").match


class Parent(Struct, frozen=True):
    """A `traceparent` with its `tracestate`."""

    trace_id: int
    span_id: int
    flags: int
    state: str = ""


def parent(text: Any, state: Any = "") -> Parent | None:
    """Return the parent that is named; None for anything that is not a `traceparent` (section 3.2)."""
    found = _form(text) if isinstance(text, str) and len(text) <= STATE else None
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    trace_id, span_id = int(found[2], 16), int(found[3], 16)
    if not trace_id or not span_id:
        return None
    return Parent(trace_id, span_id, int(found[4], 16), state if isinstance(state, str) and len(state) <= STATE else "")


def in_headers(headers: Mapping[str, str]) -> Parent | None:
    """Return the parent that HTTP's or a broker's header fields name."""
    text = headers.get("traceparent")
    return None if text is None else parent(text, headers.get("tracestate", ""))


def in_meta(seen: Observation) -> Parent | None:
    """Return the parent that `params._meta` of MCP names."""
    if not isinstance(seen.params, Raw) or b"traceparent" not in bytes(seen.params):
        return None
    meta = seen.meta()
    return parent(meta.get("traceparent"), meta.get("tracestate", ""))


def in_text(text: str) -> Parent | None:
    """Return the parent that a message of the bus names: `traceparent`, and after a space `tracestate`."""
    first, _, state = text.partition(" ")
    return parent(first, state)


def write_traceparent(trace_id: int, span_id: int, flags: int) -> str:
    """Write a `traceparent`."""
    return f"00-{trace_id:032x}-{span_id:016x}-{flags:02x}"
