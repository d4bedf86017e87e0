"""What to do next after a failure: near names, and what kind of server really answers.

Rules: advice is a note of the error (`BaseException.add_note`), shown after it; finding it takes at most `PATIENCE`
seconds, and a peer that does not help is left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from ..channel import ChannelError, Reason
from ..jsonrpc.errors import BadAnswer, CallTimeout, MethodNotFound, RpcError
from ..jsonrpc.options import closest
from ..net.commands import command_name
from ..net.scheme import SCHEMES, has_host
from ..net.urls import Url, is_standard, mask_url, parse, scheme_of
from ..rpc.outbound import IS_MCP
from ..rpc.peer import Peer
from .ends import meant
from .options import Access

T = TypeVar("T")

PATIENCE = 2.0
"""Seconds to look for advice: a failure must not wait long for its explanation."""
MOST = 10
"""Names that are listed."""
HANDSHAKE = ("initialize:", "server/discover:")
"""How the error of a server begins that does not answer the first request."""
TOLD = frozenset(
    (
        "login",
        "no_challenge",
        "refused_login",
        "scope",
        "forbidden",
        "no_worker",
        "denied",
        "not_websocket",
        "no_socket",
    )
)
"""Faults whose fix is told at once: the error alone makes them certain. The doctor has to look for others."""
OF_MCP = (-32020, -32021, -32022)
"""Error codes that only MCP has."""
HUNG_UP: frozenset[Reason] = frozenset(("hung_up", "reset", "not_websocket", "certificate_wanted"))
"""Why a channel failed whose far end hung up without a word, or with none that is understood."""
VARIABLES = ("DRAGOMAN_USER", "DRAGOMAN_BEARER", "DRAGOMAN_BUS", "DRAGOMAN_WORKER", "DRAGOMAN_SECRET")
"""What the environment may say to dragoman, apart from brokers."""
MENDED = (": write ", "; write ", ": give ", ": check ", "; use ", "--", "usually at", "served here")
"""What an error says that tells its mend."""
ALIKE = 0.9
"""How much a variable must be like a known one to be taken for a slip: others may be the user's own."""
OF_BROKERS = tuple(
    f"DRAGOMAN_{broker}_{what}" for broker in ("AMQP", "MQTT", "NATS", "REDIS") for what in ("USER", "PASSWORD")
)


class _Named(Struct):
    name: str


class _Methods(Struct):
    methods: list[_Named]


def there_are(names: Iterable[str]) -> str:
    """`it has a, b`: at most `MOST` names."""
    listed = list(names)
    return f"it has {', '.join(listed[:MOST])}{', ...' if len(listed) > MOST else ''}"


def near(name: str, known: Iterable[str]) -> str:
    """`did you mean x?`, or what there is; "" if there is nothing."""
    listed = list(known)
    return meant(name, listed, there_are(listed)) if listed else ""


def about_name(
    error: RpcError, what: str, name: str, known: Collection[str], others: Mapping[str, Collection[str]] | None = None
) -> None:
    """Note on the error of a call that names a tool, a resource or a prompt that the server does not list. `others`:
    what it lists of other kinds, by kind."""
    other = next((kind for kind, there in (others or {}).items() if name in there), "")
    if name in known:
        return
    if other:
        command = "read" if other == "resource" else other
        error.add_note(f"{name!r} is a {other}: dragoman {command} instead of {'read' if what == 'resource' else what}")
    elif "did you mean" not in error.message:  # as servers of dragoman say
        error.add_note(f"the server lists no {what} {name!r}; {near(name, known) or f'it has no {what}s'}")


@asynccontextmanager
async def probing() -> AsyncIterator[None]:
    """For a look that only finds advice: it takes at most `PATIENCE` seconds, and whatever it raises is passed over, or
    it would hide the error that is advised on."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(PATIENCE):
            yield


async def offered(ask: Awaitable[list[T]]) -> list[T]:
    """What a server lists, to prepare a call by it; nothing where it cannot list, which the call need not mind."""
    try:
        return await ask
    except (RpcError, BadAnswer):
        return []


async def about_method(error: MethodNotFound, peer: Peer, url: str, method: str) -> None:
    """Note on the error of an unknown method which method was called, what was meant, or that this is MCP."""
    place = shlex.quote(url)
    names: list[str] | None = None
    async with probing():
        names = await methods_of(peer)
        if names is None and await _is_mcp(peer):
            error.add_note(f"this is MCP, not JSON-RPC: dragoman tools {place} lists what it can do")
            return
    what = f"there is no method {method!r}"
    if not names:
        error.add_note(what if names is None else f"{what}; it has none")
        return
    error.add_note(f"{what}; {near(method, names)} (dragoman methods {place} lists them)")


async def methods_of(peer: Peer, seconds: float = PATIENCE) -> list[str] | None:
    """The names of the peer's methods; None if it does not describe itself within these seconds."""
    try:
        raw = await peer.call("rpc.discover", result=Raw, timeout=seconds)
        return [one.name for one in msgspec.json.decode(raw, type=_Methods).methods]
    except (RpcError, CallTimeout, msgspec.DecodeError):
        return None


async def _is_mcp(peer: Peer) -> bool:
    """Whether the peer answers the `ping` of MCP as MCP does."""
    try:
        return bytes(await peer.call("ping", {}, result=Raw)).replace(b" ", b"").startswith(b"{")
    except (RpcError, CallTimeout):
        return False


@asynccontextmanager
async def advised(place: str | Sequence[str], access: Access, said: Callable[[], str]) -> AsyncIterator[None]:
    """Notes on an error of the connection to `place` what the doctor would say of it (`faults` finds those of both), or
    that the doctor looks. `said`: why a command that was started may fail, by its stderr."""
    try:
        yield
    except ChannelError as error:
        async with probing():
            await _about_tls(error, place, access.cert is not None)
        _about_fault(error, place, access)
        raise
    except BadAnswer as error:
        _about_fault(error, place, access)
        raise
    except CallTimeout as error:
        if not isinstance(place, str) and str(error).startswith(HANDSHAKE):
            _about_silence(error, place, said())
        raise


def _about_silence(error: CallTimeout, command: Sequence[str], cause: str) -> None:
    """Note on the error of a command that does not answer which one it is, and what it said."""
    told = f"on its stderr: {cause}" if cause else "it has written nothing to stderr"
    error.add_note(f"{command_name(command)} runs, and does not answer; {told}")
    error.add_note("if it is slow to start, give it longer: --timeout 60")
    error.add_note(_doctor(command))


def _about_fault(error: ChannelError | BadAnswer, place: str | Sequence[str], access: Access) -> None:
    if isinstance(error, BadAnswer):
        from .faults import of_loose_answer  # noqa: PLC0415  (start-up: for a fault)

        if (loose := of_loose_answer(str(error))) is not None:
            error.add_note(f"what to do: {loose.mend}")
            return
    if getattr(error, "__notes__", ()) or any(sign in str(error) for sign in MENDED):
        return
    if isinstance(place, str) and not is_standard(place):
        from .faults import of_failure  # noqa: PLC0415  (start-up: for a fault)

        authorized = access.auth() is not None or "authorization" in (name.lower() for name in access.headers())
        fault = of_failure(error, parse(place), PATIENCE, authorized)
        if fault.kind in TOLD and not isinstance(error, BadAnswer) and "dragoman login" not in str(error):
            error.add_note(f"what to do: {fault.mend}")
            return
    error.add_note(_doctor(place, "auth explain" if "dragoman login" in str(error) else "doctor"))


def _doctor(place: str | Sequence[str], command: str = "doctor") -> str:
    target = mask_url(place) if isinstance(place, str) else shlex.join(place)
    return f"to find out why: dragoman {command} {shlex.quote(target)}"


async def _about_tls(error: ChannelError, place: str | Sequence[str], has_certificate: bool) -> None:
    """Note on the error of a far end that hung up that it speaks TLS, by a handshake, or may want a certificate."""
    if error.reason not in HUNG_UP or not isinstance(place, str) or not has_host(scheme_of(place)):
        return
    url = parse(place)
    if url.tls:
        if not has_certificate:
            error.add_note("if the server asks for client certificates, give one: --cert FILE")
        return
    if await speaks_tls(url):
        error.add_note(f"{url.address} speaks TLS: write {with_tls(url.scheme)}:// for {url.scheme}://")


async def speaks_tls(url: Url, seconds: float = PATIENCE) -> bool:
    """Whether what listens at a URL's host and port completes a TLS handshake; nothing is sent after it."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is said to it: only its first answer is looked at
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(url.host, url.port, ssl=context)
    except (OSError, TimeoutError):
        return False
    writer.transport.abort()
    return True


def with_tls(scheme: str) -> str:
    """The scheme of the same wire with TLS."""
    return next((name for name, row in SCHEMES.items() if row.plain == scheme), scheme)


def of_mcp(url: str) -> bool:
    """Whether a URL has a path at which MCP servers usually are."""
    return bool(scheme_of(url)) and url.partition("?")[0].rstrip("/").endswith(("/mcp", "/sse"))


def about_mcp(error: Exception, url: str) -> None:
    """Note on the error of a call that it went to an MCP server, if the path or the error's code says so."""
    if of_mcp(url) or (isinstance(error, RpcError) and error.code in OF_MCP):
        notes = getattr(error, "__notes__", [])
        notes[:] = [note for note in notes if note != IS_MCP]
        place = shlex.quote(url)
        error.add_note(
            f"this looks like MCP: dragoman tools {place} lists what it can do, dragoman tool {place} NAME does it"
        )


def misspelt(environment: Mapping[str, str] = os.environ) -> list[str]:
    """A sentence for each variable DRAGOMAN_... of the environment that is nearly one that is read."""
    known = [*VARIABLES, *OF_BROKERS, "DRAGOMAN_NATS_TOKEN", "DRAGOMAN_NATS_CREDS"]
    found = []
    for name in environment:
        if name.startswith("DRAGOMAN_") and name not in known and (one := closest(name, known, ALIKE)):
            found.append(f"the environment's {name} is not read; did you mean {one}?")
    return found
