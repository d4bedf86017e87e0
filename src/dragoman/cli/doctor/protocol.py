"""The steps above the wire: JSON-RPC or MCP, its era, its capabilities, and a call."""

from __future__ import annotations

import asyncio
import contextlib

from msgspec import Struct

from ... import __version__
from ...channel import ChannelError
from ...connecting import connect
from ...credentials import Auth
from ...jsonrpc.errors import BadAnswer, CallTimeout, MethodNotFound, RpcError
from ...jsonrpc.framing import FramingName
from ...jsonrpc.limits import CLIENT
from ...mcp import Client
from ...mcp.client.http.refusals import HttpRefused, SessionLost
from ...mcp.protocol.revisions import NEWEST, REVISIONS
from ...net.urls import Url
from ...rpc.peer import Peer
from ...system.words import quote_word
from ..advice import service_of
from ..auth.on_demand import on_demand
from ..faults import BROKERS, diagnose_call, diagnose_failure, diagnose_silence
from ..options import AccessOptions, LinkOptions, WireOptions
from ..reach import peer_options
from ..terminal import count_of
from .record import Diagnosis, Examination, FaultFound, Patience

UNDESCRIBED = "JSON-RPC 2.0, which does not describe itself"
"""What is found of a server that answers, and has neither rpc.discover nor MCP."""


class Target(Struct, frozen=True):
    """What is examined. `reach`: where it answers; `url`: None for a command; `where`: its name; `target`: what a user
    writes for it; `doubt`: what a failure is then."""

    reach: str
    url: Url | None
    where: str
    target: str = ""
    doubt: Diagnosis | None = None
    framing: FramingName | None = None


async def examine(
    target: Target, link: LinkOptions, wire: WireOptions, record: Examination, patience: Patience
) -> None:
    """Find out what the far end speaks, and call it once. Raises FaultFound."""
    if await _described(target, link, wire, record, patience):
        return
    access = link.access
    with record.step("era") as step:
        if (wire.framing or target.framing) not in (None, "newline"):
            step.said = record.found = UNDESCRIBED  # MCP is spoken in lines
            return
        seconds = 0.6 * patience.left
        try:
            client = Client(
                target.reach,
                name="dragoman",
                version=__version__,
                timeout=seconds,
                probe=seconds / 2,
                headers=access.headers(),
                auth=_auth(target, access),
                tls=access.tls(),
                stderr=_unheard,
                limits=CLIENT.but(call_timeout=seconds, header_timeout=seconds),
            )
            await client.__aenter__()
        except (BadAnswer, RpcError, ChannelError, CallTimeout) as error:
            step.said = UNDESCRIBED
            if (fault := await _no_mcp(error, target, access, patience)) is not None:
                raise FaultFound(fault) from None
            record.found = UNDESCRIBED
            return
        stateful = client.revision.stateful
        step.said = f"MCP {client.revision.date}, {'with sessions' if stateful else 'stateless'}"
    server = client.server
    name = "" if server is None else f"{server.title or server.name} {server.version}"
    record.found = ", ".join(filter(None, (name, f"MCP {client.revision.date}")))
    try:
        await _used(client, target, record, seconds)
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience.look):
                await client.close()


def _auth(target: Target, access: AccessOptions) -> Auth:
    """The credentials that were given, else the login that is stored."""
    return access.auth() or on_demand(target.reach, access.headers(), access.account, False)


def _unheard(line: str) -> None:
    """Nothing: the step before has what a command printed on stderr."""


async def _described(
    target: Target, link: LinkOptions, wire: WireOptions, record: Examination, patience: Patience
) -> bool:
    """Whether the far end is a JSON-RPC server that describes itself. Raises FaultFound where there is no
    connection."""
    url = target.url
    with record.step("protocol") as step:
        seconds = patience.left
        try:
            options = peer_options(link, wire, seconds)
            async with connect(target.reach, auth=_auth(target, link.access), stderr=_unheard, **options) as peer:
                if (service := await service_of(peer, seconds / 3)) is not None:
                    count = count_of(len(service.methods), "method")
                    step.said = f"JSON-RPC 2.0, {count} in rpc.discover"
                    record.found = ", ".join(filter(None, (service.info.words, "JSON-RPC 2.0", count)))
                    return True
                if url is not None and url.plain in ("ws", "udp", "amqp", "mqtt", "nats", "redis"):
                    await _answers(peer)
        except (ChannelError, BadAnswer, CallTimeout) as error:
            if target.doubt is None and url is not None and url.plain != "http":
                raise FaultFound(_broken(error, target, seconds)) from None
        step.said = "no rpc.discover"
    return False


def _broken(error: Exception, target: Target, seconds: float) -> Diagnosis:
    """The fault of a connection that failed above its socket."""
    fault = diagnose_call(error, target.url, target.where, seconds)
    if fault.kind == "late":  # its socket was reached before
        return diagnose_silence(target.where, seconds, request="a connection")
    if fault.kind != "silent" or target.url is None or target.url.plain not in BROKERS:
        return fault
    fix = f"start a worker there: dragoman serve FILE {quote_word(target.target)}; if one is slow: {fault.fix}"
    return Diagnosis("silent", f"the broker is there, and no worker has answered at {target.where}", fix, False)


async def _answers(peer: Peer) -> None:
    """Make a call to see that the far end answers, be it with an error. Raises what silence raises."""
    with contextlib.suppress(RpcError):
        await peer.call("ping")


async def _no_mcp(error: Exception, target: Target, access: AccessOptions, patience: Patience) -> Diagnosis | None:
    """The fault of a far end with which no MCP session could be begun; None for a JSON-RPC server."""
    where, doubt = target.where, target.doubt
    if isinstance(error, SessionLost):
        fix = "the server must keep a session until it is ended: look for replicas that do not share them, or a restart"
        return Diagnosis("session_lost", f"{where} forgets its session as soon as it has begun one", fix)
    closed = isinstance(error, HttpRefused) and error.status in (401, 403, 429, 502, 503, 504)
    if target.url is not None and (closed or (isinstance(error, ChannelError) and error.reason == "login")):
        authorized = access.auth() is not None or "authorization" in (name.lower() for name in access.headers())
        return diagnose_failure(error, target.url, patience.total, authorized)
    if isinstance(error, CallTimeout):
        what = "answers ping" if doubt is None else "answers"
        return diagnose_silence(where, patience.total, f"it {what}", "initialize")
    if doubt is not None and target.url is not None:
        from . import http  # noqa: PLC0415 - needs the extra "http"

        return await http.without_a_session(target.url, access, doubt, patience)
    if isinstance(error, RpcError) or isinstance(error.__cause__, MethodNotFound):
        return None
    if isinstance(error, BadAnswer) and ("revision" in str(error)):
        fix = f"one end is too old: upgrade it; dragoman speaks {min(REVISIONS)} to {NEWEST.date}"
        return Diagnosis("revision", f"{where}: {error}", fix)
    if isinstance(error, BadAnswer) and str(error).startswith("initialize"):
        fix = "the server must answer initialize with protocolVersion, capabilities and serverInfo"
        return Diagnosis("handshake", f"{where}: {error}", fix)
    if isinstance(error, HttpRefused):
        return None  # the POST before was answered with JSON-RPC
    return diagnose_call(error, target.url, where, patience.total)


async def _used(client: Client, target: Target, record: Examination, seconds: float) -> None:
    """The steps of a server that speaks MCP: what it offers, and whether it keeps its word."""
    offers, where = client.capabilities, target.where
    with record.step("capabilities") as step:
        named = [
            name for name in ("tools", "resources", "prompts", "completions", "logging") if getattr(offers, name, None)
        ]
        step.said = ", ".join(named) or "none"
    with record.step("call") as step:
        try:
            if "tools" in named:
                step.said = count_of(len(await client.list_tools()), "tool")
            elif "resources" in named:
                step.said = count_of(len(await client.list_resources()), "resource")
            elif "prompts" in named:
                step.said = count_of(len(await client.list_prompts()), "prompt")
            else:
                await client.ping()
                step.said = "ping"
            record.found += f", {step.said if step.said != 'ping' else 'no tools'}"
        except RpcError as error:
            fix = "a server must answer the lists that its capabilities name: look into its log"
            raise FaultFound(
                Diagnosis("broken_promise", f"{where} offers {named[0] if named else 'ping'} and answers: {error}", fix)
            ) from None
        except BadAnswer as error:
            fix = "the result must have the shape of the revision's schema; look at it: "
            fix += f"dragoman tools {quote_word(target.target)} --trace -"
            raise FaultFound(Diagnosis("bad_result", f"{where}: {error}", fix)) from None
        except (ChannelError, CallTimeout) as error:
            if isinstance(error, SessionLost):
                fix = "the server must keep a session until it is ended: look for replicas that do not share them"
                raise FaultFound(Diagnosis("session_lost", f"{where} forgets its session", fix)) from None
            raise FaultFound(diagnose_call(error, target.url, where, seconds)) from None
