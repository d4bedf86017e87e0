"""One connection of a client with its server: the channel, our peer on it, and how it is used in each era."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...channel import Channel, Outgoing, Servable
from ...connecting import pair
from ...rpc.channel_peer import ChannelPeer
from ...rpc.outbound import OutboundCall
from ..protocol.headers import encode_value
from ..protocol.revisions import Revision
from .handlers import QuestionHandlers

if TYPE_CHECKING:
    from .http.posts import StreamableHttp


class McpConnection:
    """A channel and our peer on it. `streamable`: the channel, if it is Streamable HTTP; `http`: whether it is over
    HTTP at all; `inside`: the server, if it is in this process."""

    def __init__(
        self,
        peer: ChannelPeer,
        channel: Channel,
        streamable: StreamableHttp | None,
        http: bool,
        inside: Servable | None,
    ) -> None:
        self.peer = peer
        self.channel: Channel = channel
        self.streamable = streamable
        self.http = http
        self.status: int | None = None
        """Over HTTP: the status of the last JSON-RPC error that answered a call; None: there was none."""
        if streamable is not None:
            streamable.on_status = self._answered_with
        self.handlers: dict[int, QuestionHandlers] = {}
        """The functions of calls in flight that answer their questions themselves, by the call's id; in eras in which
        servers call."""
        self._settling: list[QuestionHandlers] = []
        self._exchanges = inside is None and not channel.duplex
        self._inside = inside

    def _answered_with(self, call: Outgoing, status: int) -> None:
        self.status = status

    @contextmanager
    def settling(self, handlers: QuestionHandlers) -> Iterator[None]:
        """Within the block an extension settles a call, which may be asked all the while."""
        self._settling.append(handlers)
        try:
            yield
        finally:
            self._settling.remove(handlers)

    def handlers_of_question(self, usual: QuestionHandlers, asks: Callable[[str], bool]) -> QuestionHandlers:
        """Return the functions that answer the question that is being delivered. `usual`: those of the client; `asks`:
        whether a server may ask in calls of a method.

        Over Streamable HTTP a question belongs to the call whose stream brings it. On any other channel nothing says to
        which call it belongs: if all calls that it may belong to have the same functions, these answer it. Everything
        else is answered by the client's.
        """
        if not self.handlers and not self._settling:
            return usual
        if self.streamable is not None:
            call = self.streamable.delivering
            return self.handlers.get(call.id, usual) if isinstance(call, OutboundCall) else usual
        found = [
            self.handlers.get(id, usual)
            for id, call in self.peer._conversation.outbound.items()
            if id in self.handlers or asks(call.method)
        ]
        found += self._settling
        if not found or any(one.functions != found[0].functions for one in found):
            return usual
        return found[0]

    def turn(self, *, stateless: bool) -> None:
        """Use the connection as this era does from now on."""
        if self.streamable is not None:
            self.streamable.stateless = stateless
            self.channel.duplex = self.streamable.duplex
        elif self._inside is not None and not stateless:
            served, self._inside = self._inside, None
            near, far = pair(self.peer._limits)
            self.channel = near
            self.peer.attach(near)
            served.attach(far)
        elif self._exchanges:  # a broker's: in a session the server asks and gets answers
            self.channel.duplex = not stateless

    async def ready(self, revision: Revision) -> None:
        """Notify the server that the handshake is complete, and use this revision from now on. Raises ChannelError."""
        if self.streamable is not None:
            # "the client MUST include the `MCP-Protocol-Version` header on all subsequent requests" (basic/transports)
            self.streamable.version = revision.date if revision.version_header else None
        self.peer.state = revision  # used to answer the server from here on
        await self.peer.notify("notifications/initialized")
        await self.channel.flush()
        if self.streamable is not None:
            self.streamable.listen()

    def headers(
        self, method: str, revision: Revision, name: str | None = None, extra: Mapping[str, str] | None = None
    ) -> dict[str, str] | None:
        """Return the HTTP headers of a stateless call; None on other wires."""
        if self.streamable is None or not revision.routing_headers:
            return None
        headers = {"MCP-Protocol-Version": revision.date, "Mcp-Method": method}
        if name is not None:
            headers["Mcp-Name"] = encode_value(name)
        if extra:
            headers.update(extra)
        return headers
