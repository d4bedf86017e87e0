"""The revisions of MCP: one record each, with what the revision can do. Pure.

Only this module knows dates. Other code reads what a revision can do (`revision.server_calls`, `revision.resumable`),
and never compares its date.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct


class Revision(Struct, frozen=True, kw_only=True):
    """What one revision of the protocol can do."""

    date: str
    """Its name on the wire."""
    order: int
    """0 for the oldest; greater is newer."""
    stateful: bool
    """A connection begins with `initialize`, which is valid for the whole session."""
    server_calls: bool
    """The server may send requests of its own; where not, it answers `input_required`."""
    batches: bool = False
    """Several messages may come in one array."""
    streamable: bool = True
    """It knows Streamable HTTP."""
    version_header: bool = True
    """Clients send `MCP-Protocol-Version` over HTTP."""
    routing_headers: bool = False
    """Clients mirror method, name and marked arguments into HTTP headers, and servers compare."""
    resumable: bool = False
    """A broken SSE stream can be resumed by `Last-Event-ID`."""
    primed: bool = False
    """An SSE stream begins with an event that has an id and no data, so that the server may close it and be polled."""
    null_error_id: bool = False
    """An error whose request's id could not be read has `"id": null`; elsewhere it has no id."""
    argument_results: bool = False
    """Wrong arguments of a tool are a result with `isError`, for the model to read; elsewhere the error -32602."""
    structured: bool = True
    """Clients know `structuredContent`."""
    elicitation_modes: bool = False
    """A client declares elicitation by form and by URL separately; before, there are only forms."""
    rich_forms: bool = False
    """Forms have choices of several, defaults of every kind, and name their dialect."""
    form_patterns: bool = False
    """A field of a form may have a `pattern`: one revision's page says so, but no schema does."""
    sampling_tools: bool = False
    """A sampling may have tools, and several blocks in one message; `sampling.context` is a capability of its own."""
    structured_values: bool = False
    """`structuredContent` and `outputSchema` may have any JSON value; otherwise only objects."""
    missing_resource: int = -32602
    """The code of the error for an unknown resource."""
    url_elicitation_error: bool = False
    """A call may fail with -32042 to send the user to a URL first."""

    def within(self, since: Revision | None, until: Revision | None = None) -> bool:
        """Return whether it is in the range from `since` to `until`, both included; None: unbounded."""
        return (since is None or since.order <= self.order) and (until is None or self.order <= until.order)


R2024_11: Final = Revision(
    date="2024-11-05",
    order=0,
    stateful=True,
    server_calls=True,
    streamable=False,
    version_header=False,
    null_error_id=True,
    structured=False,
    missing_resource=-32002,
)
R2025_03: Final = Revision(
    date="2025-03-26",
    order=1,
    stateful=True,
    server_calls=True,
    batches=True,
    version_header=False,
    resumable=True,
    null_error_id=True,
    structured=False,
    missing_resource=-32002,
)
R2025_06: Final = Revision(
    date="2025-06-18",
    order=2,
    stateful=True,
    server_calls=True,
    resumable=True,
    null_error_id=True,
    missing_resource=-32002,
)
R2025_11: Final = Revision(
    date="2025-11-25",
    order=3,
    stateful=True,
    server_calls=True,
    resumable=True,
    primed=True,
    argument_results=True,
    elicitation_modes=True,
    rich_forms=True,
    form_patterns=True,
    sampling_tools=True,
    missing_resource=-32002,
    url_elicitation_error=True,
)
R2026_07: Final = Revision(
    date="2026-07-28",
    order=4,
    stateful=False,
    server_calls=False,
    routing_headers=True,
    argument_results=True,
    elicitation_modes=True,
    rich_forms=True,
    sampling_tools=True,
    structured_values=True,
)

REVISIONS: Final = {one.date: one for one in (R2024_11, R2025_03, R2025_06, R2025_11, R2026_07)}
"""By date, the oldest first."""


def by_age(revisions: Iterable[Revision]) -> list[Revision]:
    """Return these revisions, the oldest first."""
    return sorted(revisions, key=lambda one: one.order)


NEWEST: Final = R2026_07
NEWEST_STATEFUL: Final = R2025_11
