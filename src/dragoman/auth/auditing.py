"""An event for each decision about a caller: who called, and what was decided; it holds neither a token nor a query.

The log "dragoman.audit" has a line of each: at level info of what is denied or forbidden, at level debug of what is
admitted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from ..channel import Admitted, Caller, Denied, Handshake, Identity
from ..jsonrpc.errors import Refusal
from ..net.urls import printable

log: Final = logging.getLogger("dragoman.audit")
ADMITTED: Final = logging.DEBUG
DENIED: Final = logging.INFO
"""The log levels of decisions that admit, and of those that do not."""

Outcome: TypeAlias = Literal["admitted", "denied", "forbidden"]


class Decision(Struct, frozen=True, kw_only=True):
    """A decision about a caller: at the door, or about one call."""

    outcome: Outcome
    """"denied": at the door; "forbidden": the caller was admitted, and may not make this call."""
    reason: str = ""
    status: int = 200
    """The HTTP status, on a wire that has one."""
    subject: str = ""
    client_id: str = ""
    issuer: str = ""
    scheme: str = ""
    """The scheme of the wire, such as "https"."""
    remote: str = ""
    """The far end's address."""
    path: str = ""
    """Of HTTP: the path, without its query."""
    at: float
    """Unix time."""


class Audit:
    """Writes decisions to the log, and passes them to `write` where there is one."""

    __slots__ = ("_write", "wants")

    def __init__(self, write: Callable[[Decision], object] | None) -> None:
        self._write = write
        self.wants: Callable[[int], bool] = log.isEnabledFor if write is None else _always
        """Whether decisions at this log level are recorded anywhere."""

    def door(self, verdict: Admitted | Denied, handshake: Handshake) -> None:
        """Record a decision about a handshake."""
        admitted = isinstance(verdict, Admitted)
        if not self.wants(ADMITTED if admitted else DENIED):
            return
        path = "/" + handshake.url.partition("?")[0].partition("://")[2].partition("/")[2]
        denied = verdict if isinstance(verdict, Denied) else None
        self._record(
            _decision(
                "admitted" if denied is None else "denied",
                "" if denied is None else denied.reason,
                200 if denied is None else denied.status,
                verdict.identity if isinstance(verdict, Admitted) else None,
                (handshake.scheme, handshake.remote, path),
            )
        )

    def call(self, refusal: Refusal, caller: Caller) -> None:
        """Record that a caller may not make a call."""
        if not self.wants(DENIED):
            return
        where = caller.scheme, caller.remote, caller.path
        self._record(_decision("forbidden", refusal.reason, 403, caller.identity, where))

    def _record(self, decision: Decision) -> None:
        level = ADMITTED if decision.outcome == "admitted" else DENIED
        if log.isEnabledFor(level):
            words = " ".join(
                f"{name}={printable(value)}"
                for name in ("subject", "client_id", "issuer", "scheme", "remote", "path", "reason")
                if (value := getattr(decision, name))
            )
            log.log(level, "%s %s", decision.outcome, words)
        if self._write is not None:
            try:
                self._write(decision)
            except Exception:
                log.exception("the function audit= raised; the decision stands")


def _always(level: int) -> bool:
    return True


def _decision(
    outcome: Outcome, reason: str, status: int, identity: Identity | None, where: tuple[str, str, str]
) -> Decision:
    scheme, remote, path = where
    return Decision(
        outcome=outcome,
        reason=reason,
        status=status,
        subject="" if identity is None else identity.subject,
        client_id="" if identity is None else identity.client_id or "",
        issuer="" if identity is None else identity.issuer or "",
        scheme=scheme,
        remote=remote,
        path=path,
        at=time.time(),
    )
