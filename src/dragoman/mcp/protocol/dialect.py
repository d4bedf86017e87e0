"""MCP's conventions for what JSON-RPC leaves open: cancelling, progress, and our own refusals. Pure.

The revisions share one vocabulary. Of the codes, -32000 to -32019 should not be used at all and
-32020 to -32099 belong to the specification (2026's basic/index, "Error Codes"), so our own
refusals are standard errors, distinguished by their text and data.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import msgspec

from ...jsonrpc.errors import INTERNAL_ERROR, INVALID_REQUEST, Dialect
from .revisions import Revision

MCP: Final = Dialect(
    name="mcp",
    cancel="notifications/cancelled",
    cancel_key="requestId",
    # "The `initialize` request MUST NOT be cancelled by clients" (basic/utilities/cancellation)
    uncancellable=frozenset({"initialize"}),
    # "MUST NOT send any further messages for it" (2026's basic/patterns/cancellation; SHOULD NOT before)
    cancelled_answer=False,
    progress="notifications/progress",
    progress_key="progressToken",
    progress_value=None,
    null_id=False,
    meta=True,
    batches=False,
    codes={
        "busy": INTERNAL_ERROR,
        "rate_limited": INTERNAL_ERROR,
        "draining": INTERNAL_ERROR,
        "timed_out": INTERNAL_ERROR,
        "too_large": INVALID_REQUEST,
        "forbidden": INVALID_REQUEST,
        "cancelled": INTERNAL_ERROR,
    },
)
"""The dialect of a peer until its revision is known, and in the stateless era."""


@cache
def of(revision: Revision) -> Dialect:
    """Return the dialect of a revision."""
    return msgspec.structs.replace(MCP, null_id=revision.null_error_id, batches=revision.batches)
