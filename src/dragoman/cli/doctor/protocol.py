"""The steps above the wire: JSON-RPC or MCP, its era, its capabilities, and a call."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ... import __version__
from ...channel import ChannelError
from ...connecting import connect
from ...jsonrpc.errors import BadAnswer, CallTimeout, MethodNotFound, RpcError
from ...jsonrpc.limits import CLIENT
from ...mcp import Client
from ...mcp.client.http.refusals import HttpRefused
from ...mcp.protocol.revisions import NEWEST, REVISIONS
from ...net.urls import Url
from ...rpc.peer import Peer
from ..advice import methods_of
from ..options import Link, Wire
from ..reach import peer_options
from ..terminal import many
from .naming import of_call
from .record import Fault, Faulty, Record


async def examine(
    target: str | Sequence[str],
    url: Url | None,
    place: str,
    link: Link,
    wire: Wire,
    seconds: float,
    record: Record,
    doubt: Fault | None,
) -> None:
    """Find out what the far end speaks, and call it once. `doubt`: what a failure is then. Raises Faulty."""
    if await _described(target, url, place, link, wire, seconds, record, doubt):
        return
    access = link.access
    with record.step("era") as step:
        try:
            client = Client(
                target,
                name="dragoman",
                version=__version__,
                timeout=seconds,
                headers=access.headers(),
                auth=access.auth(),
                tls=access.tls(),
                stderr=_unheard,
                limits=CLIENT.but(call_timeout=seconds, header_timeout=seconds),
            )
            await client.__aenter__()
        except (BadAnswer, RpcError, ChannelError, CallTimeout) as error:
            step.said = "JSON-RPC 2.0, which does not describe itself"
            if (fault := _no_mcp(error, url, place, doubt)) is not None:
                raise Faulty(fault) from None
            return
        stateful = client.revision.stateful
        step.said = f"MCP {client.revision.date}, {'with sessions' if stateful else 'stateless'}"
    try:
        await _used(client, url, place, record)
    finally:
        await client.close()


def _unheard(line: str) -> None:
    """What a command says on stderr was told before."""


async def _described(
    target: str | Sequence[str],
    url: Url | None,
    place: str,
    link: Link,
    wire: Wire,
    seconds: float,
    record: Record,
    doubt: Fault | None,
) -> bool:
    """Whether the far end is a JSON-RPC server that describes itself. Raises Faulty where there is no connection."""
    with record.step("protocol") as step:
        try:
            options = peer_options(link, wire, seconds)
            async with connect(target, auth=link.access.auth(), stderr=_unheard, **options) as peer:
                if (names := await methods_of(peer)) is not None:
                    step.said = f"JSON-RPC 2.0, {many(len(names), 'method')} in rpc.discover"
                    return True
                if url is not None and url.plain in ("ws", "udp", "amqp", "mqtt", "nats", "redis"):
                    await _answers(peer)
        except (ChannelError, BadAnswer, CallTimeout) as error:
            if doubt is None and url is not None and url.plain != "http":
                raise Faulty(of_call(error, url, place)) from None
        step.said = "no rpc.discover"
    return False


async def _answers(peer: Peer) -> None:
    """Raise what a far end's silence raises; an error is an answer."""
    with contextlib.suppress(RpcError):
        await peer.call("ping")


def _no_mcp(error: Exception, url: Url | None, place: str, doubt: Fault | None) -> Fault | None:
    """The fault of a far end with which no MCP session could be begun; None for a JSON-RPC server."""
    if doubt is not None:
        return doubt
    if isinstance(error, RpcError) or isinstance(error.__cause__, MethodNotFound):
        return None
    if isinstance(error, BadAnswer) and ("revision" in str(error)):
        mend = f"one end is too old: upgrade it; dragoman speaks {min(REVISIONS)} to {NEWEST.date}"
        return Fault("revision", f"{place}: {error}", mend)
    if isinstance(error, BadAnswer) and str(error).startswith("initialize"):
        mend = "the server must answer initialize with protocolVersion, capabilities and serverInfo"
        return Fault("handshake", f"{place}: {error}", mend)
    if isinstance(error, CallTimeout):
        return None  # it answers ping, so it lives; a method that it does not know is not answered
    if isinstance(error, HttpRefused):
        return None  # the POST before was answered with JSON-RPC
    return of_call(error, url, place)


async def _used(client: Client, url: Url | None, place: str, record: Record) -> None:
    """The steps of a server that speaks MCP: what it offers, and whether it keeps its word."""
    offers = client.capabilities
    with record.step("capabilities") as step:
        named = [
            name for name in ("tools", "resources", "prompts", "completions", "logging") if getattr(offers, name, None)
        ]
        step.said = ", ".join(named) or "none"
    with record.step("call") as step:
        try:
            if "tools" in named:
                step.said = many(len(await client.list_tools()), "tool")
            elif "resources" in named:
                step.said = many(len(await client.list_resources()), "resource")
            elif "prompts" in named:
                step.said = many(len(await client.list_prompts()), "prompt")
            else:
                await client.ping()
                step.said = "ping"
        except RpcError as error:
            mend = "a server must answer the lists that its capabilities name: look into its log"
            raise Faulty(
                Fault("broken_promise", f"{place} offers {named[0] if named else 'ping'} and answers: {error}", mend)
            ) from None
        except BadAnswer as error:
            mend = "the result must have the shape of the revision's schema; look at it: dragoman tools URL --trace -"
            raise Faulty(Fault("bad_result", f"{place}: {error}", mend)) from None
        except (ChannelError, CallTimeout) as error:
            raise Faulty(of_call(error, url, place)) from None
