"""What a flow asks of the world: the steps of the engine, which itself does no I/O.

A flow is a generator: it yields a step and is sent its outcome, or has FetchFailed or FetchRefused thrown into it. The
async client, the blocking one, the command and the tests run the same flows with other drivers.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct, field

from ..fetch import By
from .tokens import Registration

T = TypeVar("T")


class Get(Struct, frozen=True, kw_only=True):
    """GET a document. Outcome: `Fetched`."""

    url: str
    by: By = "document"
    """Whether the operator wrote the URL, or a document named it."""
    why: str = ""
    """What it is for, for those who watch."""


class Post(Struct, frozen=True, kw_only=True):
    """POST a form, or `content` as JSON. Outcome: `Fetched`. Its `repr` shows no value."""

    url: str
    form: Mapping[str, str] = field(default_factory=dict)
    content: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    by: By = "document"
    why: str = ""

    def __repr__(self) -> str:
        return f"Post({self.url!r}, {sorted(self.form)})"


class Listen(Struct, frozen=True, kw_only=True):
    """Listen for the answer of the authorization server, on this port if it is free. Outcome: the redirect URI."""

    port: int = 0
    exact: bool = False
    """No other port will do."""


class Browse(Struct, frozen=True, kw_only=True):
    """Send the user's browser to `url`. Outcome: the query of the answer whose `state` is this one, as text."""

    url: str
    state: str

    def __repr__(self) -> str:
        return "Browse(...)"


class ShowCode(Struct, frozen=True, kw_only=True):
    """Show the user a code to enter elsewhere (RFC 8628 section 3.3). Outcome: None."""

    uri: str
    code: str
    complete: str | None = None
    """The URL with the code in it."""
    expires_in: float = 600.0


class Wait(Struct, frozen=True):
    """Let this many seconds pass. Outcome: None."""

    seconds: float


class Say(Struct, frozen=True):
    """Tell the user, or those who watch. Outcome: None."""

    text: str


class Recall(Struct, frozen=True):
    """Ask the store for the client that was registered at this issuer. Outcome: a `Registration` or None."""

    issuer: str


class Keep(Struct, frozen=True):
    """Keep what was registered at this issuer; None: forget it. Outcome: None."""

    issuer: str
    client: Registration | None


Step: TypeAlias = Get | Post | Listen | Browse | ShowCode | Wait | Say | Recall | Keep
Flow: TypeAlias = Generator[Step, Any, T]
