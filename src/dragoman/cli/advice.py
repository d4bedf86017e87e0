"""What to do next after a failure: near names, and what kind of server really answers.

Rules: advice is a note of the error (`BaseException.add_note`), shown after it; finding it takes at most `PATIENCE`
seconds, and a peer that does not help is left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from ..channel import ChannelError, Reason
from ..jsonrpc.errors import BadAnswer, CallTimeout, MethodNotFound, RpcError
from ..jsonrpc.options import nearest_name
from ..net.commands import command_name
from ..net.scheme import SCHEMES, has_host
from ..net.urls import Url, is_standard, mask_url, parse, scheme_of
from ..rpc.outbound import MCP_NOTE
from ..rpc.peer import Peer
from ..system.words import quote_word
from .exit_status import suggest_name
from .options import AccessOptions
from .programs import target_word

T = TypeVar("T")

PATIENCE = 2.0
"""Seconds to look for advice: a failure must not wait long for its explanation."""
MOST = 10
"""Names that are listed."""
HANDSHAKE = ("initialize:", "server/discover:")
"""How the error of a server begins that does not answer the first request."""
CERTAIN = frozenset(
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
"""Faults whose fix is printed at once, as the error alone makes them certain. The doctor examines others."""
OF_MCP = (-32020, -32021, -32022)
"""Error codes that only MCP has."""
HUNG_UP: frozenset[Reason] = frozenset(("hung_up", "reset", "not_websocket", "certificate_wanted"))
"""Why a channel failed whose far end hung up without a word, or with none that is understood."""
VARIABLES = (
    *("DRAGOMAN_USER", "DRAGOMAN_BEARER", "DRAGOMAN_BUS", "DRAGOMAN_WORKER", "DRAGOMAN_SECRET"),
    "DRAGOMAN_RUN_SECRET",
    "DRAGOMAN_WEBHOOK_SECRET",
)
"""What the environment may say to dragoman, apart from brokers."""
HAS_FIX = (": write ", "; write ", ": give ", ": check ", "; use ", "--", "usually at", "served here")
"""Texts in an error that already says how to fix it."""
ALIKE = 0.9
"""How much a variable must be like a known one to be taken for a slip: others may be the user's own."""
OF_BROKERS = tuple(
    f"DRAGOMAN_{broker}_{what}" for broker in ("AMQP", "MQTT", "NATS", "REDIS") for what in ("USER", "PASSWORD")
)


class _Named(Struct):
    name: str


class ServiceInfo(Struct):
    """Name and version of a service that describes itself."""

    title: str = ""
    version: str = ""

    @property
    def words(self) -> str:
        """Both, as far as they are known."""
        return " ".join(filter(None, (self.title, self.version)))


class NamedService(Struct):
    """A service that describes itself: its name, and those of its methods."""

    methods: list[_Named]
    info: ServiceInfo = msgspec.field(default_factory=ServiceInfo)


def name_offers(names: Iterable[str]) -> str:
    """`it has a, b`: at most `MOST` names."""
    listed = list(names)
    return f"it has {', '.join(listed[:MOST])}{', ...' if len(listed) > MOST else ''}"


def suggest(name: str, known: Iterable[str]) -> str:
    """`did you mean x?`, or what there is; "" if there is nothing."""
    listed = list(known)
    return suggest_name(name, listed, name_offers(listed)) if listed else ""


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
        error.add_note(f"the server lists no {what} {name!r}; {suggest(name, known) or f'it has no {what}s'}")


@asynccontextmanager
async def probing() -> AsyncIterator[None]:
    """For a look that only finds advice: it takes at most `PATIENCE` seconds, and what it raises is ignored, or
    it would hide the error that is advised on."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(PATIENCE):
            yield


async def list_offered(ask: Awaitable[list[T]]) -> list[T]:
    """What a server lists, to prepare a call; nothing where it cannot list: the call works without."""
    try:
        return await ask
    except (RpcError, BadAnswer):
        return []


async def about_method(error: MethodNotFound, peer: Peer, url: str, method: str) -> None:
    """Note on the error of an unknown method which method was called, what was meant, or that this is MCP."""
    where = quote_word(url)
    names: list[str] | None = None
    async with probing():
        names = await methods_of(peer)
        if names is None and await _is_mcp(peer):
            error.add_note(_of_mcp(where))
            return
    what = f"there is no method {method!r}"
    if not names:
        error.add_note(what if names is None else f"{what}; it has none")
        return
    error.add_note(f"{what}; {suggest(method, names)} (dragoman methods {where} lists them)")


async def about_undescribed(error: Exception, peer: Peer, url: str) -> None:
    """Note on the error of a peer without `rpc.discover` that this is MCP, if it is."""
    async with probing():
        if await _is_mcp(peer):
            error.add_note(_of_mcp(quote_word(url)))


def _of_mcp(where: str) -> str:
    return f"this is MCP, not JSON-RPC: dragoman tools {where} lists what it can do"


async def methods_of(peer: Peer, seconds: float = PATIENCE) -> list[str] | None:
    """The names of the peer's methods; None if it does not describe itself within these seconds."""
    service = await service_of(peer, seconds)
    return None if service is None else [one.name for one in service.methods]


async def service_of(peer: Peer, seconds: float = PATIENCE) -> NamedService | None:
    """What the peer says of itself; None if it does not within these seconds."""
    try:
        raw = await peer.call("rpc.discover", result=Raw, timeout=seconds)
        return msgspec.json.decode(raw, type=NamedService)
    except (RpcError, CallTimeout, msgspec.DecodeError):
        return None


async def _is_mcp(peer: Peer) -> bool:
    """Whether the peer answers the `ping` of MCP as MCP does."""
    try:
        return bytes(await peer.call("ping", {}, result=Raw)).replace(b" ", b"").startswith(b"{")
    except (RpcError, CallTimeout):
        return False


@asynccontextmanager
async def add_advice(where: str | Sequence[str], access: AccessOptions, said: Callable[[], str]) -> AsyncIterator[None]:
    """Add to an error of the connection to `where` how to fix it, or that `dragoman doctor` finds out. `said`: why a
    command that was started may fail, by its stderr."""
    try:
        yield
    except ChannelError as error:
        async with probing():
            await _about_tls(error, where, access.cert is not None)
        _about_fault(error, where, access)
        raise
    except BadAnswer as error:
        _about_fault(error, where, access)
        raise
    except CallTimeout as error:
        if not isinstance(where, str) and str(error).startswith(HANDSHAKE):
            _about_silence(error, where, said())
        raise


def _about_silence(error: CallTimeout, command: Sequence[str], cause: str) -> None:
    """Note on the error of a command that does not answer which one it is, and what it said."""
    printed = f"on its stderr: {cause}" if cause else "it has written nothing to stderr"
    error.add_note(f"{command_name(command)} runs, and does not answer; {printed}")
    error.add_note("if it is slow to start, give it longer: --timeout 60")
    error.add_note(_doctor(command))


def _about_fault(error: ChannelError | BadAnswer, where: str | Sequence[str], access: AccessOptions) -> None:
    if isinstance(error, BadAnswer):
        from .faults import diagnose_loose_answer  # noqa: PLC0415  (start-up: for a fault)

        if (loose := diagnose_loose_answer(str(error))) is not None:
            error.add_note(f"what to do: {loose.fix}")
            return
    if getattr(error, "__notes__", ()) or any(sign in str(error) for sign in HAS_FIX):
        return
    if isinstance(where, str) and not is_standard(where):
        from .faults import diagnose_failure  # noqa: PLC0415  (start-up: for a fault)

        authorized = access.auth() is not None or "authorization" in (name.lower() for name in access.headers())
        fault = diagnose_failure(error, parse(where), PATIENCE, authorized)
        if fault.kind in CERTAIN and not isinstance(error, BadAnswer) and "dragoman login" not in str(error):
            error.add_note(f"what to do: {fault.fix}")
            return
    error.add_note(_doctor(where, "auth explain" if "dragoman login" in str(error) else "doctor"))


def _doctor(where: str | Sequence[str], command: str = "doctor") -> str:
    return f"to find out why: dragoman {command} {target_word(mask_url(where) if isinstance(where, str) else where)}"


async def _about_tls(error: ChannelError, where: str | Sequence[str], has_certificate: bool) -> None:
    """Note on the error of a far end that hung up that it speaks TLS, by a handshake, or may want a certificate."""
    if error.reason not in HUNG_UP or not isinstance(where, str) or not has_host(scheme_of(where)):
        return
    url = parse(where)
    if url.tls:
        if not has_certificate:
            error.add_note("if the server asks for client certificates, give one: --cert FILE")
        return
    if await speaks_tls(url):
        error.add_note(f"{url.address} speaks TLS: write {with_tls(url.scheme)}:// for {url.scheme}://")


async def speaks_tls(url: Url, seconds: float = PATIENCE) -> bool:
    """Whether what listens at a URL's host and port completes a TLS handshake; nothing is sent after it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without authorities, whose reading takes time
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
        notes[:] = [note for note in notes if note != MCP_NOTE]
        place = quote_word(url)
        error.add_note(
            f"this looks like MCP: dragoman tools {place} lists what it can do, dragoman tool {place} NAME does it"
        )


def find_misspelt_variables(environment: Mapping[str, str] = os.environ) -> list[str]:
    """A sentence for each variable DRAGOMAN_... of the environment that is nearly one that is read."""
    known = [*VARIABLES, *OF_BROKERS, "DRAGOMAN_NATS_TOKEN", "DRAGOMAN_NATS_CREDS"]
    found = []
    for name in environment:
        if name.startswith("DRAGOMAN_") and name not in known and (alike := nearest_name(name, known, ALIKE)):
            found.append(f"the environment's {name} is not read; did you mean {alike}?")
    return found
