"""The guard's decision about an HTTP request by its head, before its body is read or a WebSocket accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ...channel import Admitted, Denied, Guard, Handshake
from ...net.guarding import certificate_of, decide
from .messages import Answer, Decided, Head, NamesScopes
from .refusals import refusal

if TYPE_CHECKING:
    from .known_heads import RequestFields, Similar


async def ask_guard(guard: Guard, handshake: Handshake, head: Head, timeout: float | None) -> Admitted | Answer:
    """The guard's decision about a request; if it denies, the answer."""
    verdict = await decide(guard, handshake, timeout, head.path)
    return _refused(head, verdict) if isinstance(verdict, Denied) else verdict


def handshake(
    head: Head,
    scheme: str,
    authority: bytes,
    fields: Sequence[tuple[bytes, bytes]],
    remote: str,
    transport: asyncio.BaseTransport | None = None,
) -> Handshake:
    """What the guard sees of a request. `authority`: the Host, or the authority in the target; `transport`: the
    connection, where it is ours."""
    certificate, der = certificate_of(transport)
    target = head.target if head.target.startswith(b"/") else b"/" + head.target.partition(b"://")[2].partition(b"/")[2]
    return Handshake(
        scheme=scheme,
        method=head.method,
        url=f"{scheme}://{authority.decode('latin-1')}{target.decode('latin-1')}",
        headers=fields,
        remote=remote,
        certificate=certificate,
        certificate_der=der,
    )


def credentials_of(fields: Iterable[tuple[bytes, bytes]], query: str) -> bytes | None:
    """Return the one `Authorization` field of a request, b"" without one; None if anything else in the request says who
    the caller is."""
    found = b""
    for name, value in fields:
        if name == b"authorization":
            if found or not value:
                return None
            found = value
        elif name == b"dpop":
            return None
    return None if "access_token" in query.lower() else found


def credentials_in(lines: Iterable[bytes], query: str) -> bytes | None:
    """Return the same for lines of a head."""
    pairs = (line.partition(b":") for line in lines if line[:1] in b"aAdD")
    return credentials_of(((name.lower(), value.strip()) for name, _, value in pairs), query)


def at_once(
    head: Head, credentials: bytes | None, known: Similar | RequestFields | None = None
) -> Admitted | Answer | None:
    """Return the decision that the guard of a request can make without waiting, or None. `known`: what equal requests
    share; a decision that holds for the next of them is kept there."""
    if known is not None:
        known.decided = None
    if credentials is None or head.protection is None:
        return None
    standing = head.protection.at_once(credentials)
    if standing is None:
        return None
    found = standing.verdict
    if isinstance(found, Denied) and (named := _with_scopes(head, found)) is not found:
        return _refusal(head, named)  # not kept: the scopes of what is called may change
    verdict = _refusal(head, found) if isinstance(found, Denied) else found
    if known is not None and standing.holds is not None:
        known.decided = Decided(verdict, standing.holds)
    return verdict


def _refused(head: Head, denied: Denied) -> Answer:
    return _refusal(head, _with_scopes(head, denied))


def _with_scopes(head: Head, denied: Denied) -> Denied:
    """Return the denial with the scopes that the call needs, if the head says what is called. RFC 6750 section 3: "The
    "scope" attribute is a space-delimited list of case-sensitive scope values indicating the required scope of the
    access token"."""
    endpoint, protection = head.endpoint, head.protection
    if protection is None or denied.status not in (401, 403) or not isinstance(endpoint, NamesScopes):
        return denied
    scopes = endpoint.scopes_of(head)
    return protection.naming(denied, scopes) if scopes else denied


def _refusal(head: Head, denied: Denied) -> Answer:
    return refusal(head, denied.status, denied.reason, tuple(denied.headers))


class PendingAdmission:
    """A guard that is deciding about one request; `decided` is called with its verdict."""

    __slots__ = ("_task",)

    def __init__(
        self,
        guard: Guard,
        handshake: Handshake,
        head: Head,
        timeout: float | None,
        decided: Callable[[Admitted | Answer], None],
    ) -> None:
        def done(task: asyncio.Task[Admitted | Answer]) -> None:
            if not task.cancelled():
                decided(task.result())

        self._task = asyncio.get_running_loop().create_task(ask_guard(guard, handshake, head, timeout))
        self._task.add_done_callback(done)

    def cancel(self) -> None:
        """Stop deciding: the decision is not needed any more."""
        self._task.cancel()
