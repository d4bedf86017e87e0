"""Clients of the stateful era behind a broker: one peer per mailbox, as long as one worker serves them.

A broker's deliveries are exchanges, and an exchange has no session. But its caller has a permanent mailbox
(`Exchange.tell`, `caller.remote`), so `initialize` begins a session there. With several workers the next request may
reach another one, which has no such session: use the stateless era then.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from ...channel import Broken, Caller, ChannelError, Closed, Exchange, Outgoing, Receiver
from ...jsonrpc.codec import key
from ...jsonrpc.messages import Batch, Message, Request
from ...rpc.peering.channel_peer import ChannelPeer
from ..protocol.admission import Offer
from ..protocol.options import HttpOptions


class Serving(Protocol):
    """The part of a server that this uses."""

    @property
    def options(self) -> HttpOptions:
        """`sessions`: the most at once; beyond, the one that was silent longest is forgotten."""

    @property
    def offered(self) -> Offer: ...
    def peer(self) -> ChannelPeer:
        """A peer for one client."""


class Mailboxes:
    """The peers of one server's callers by mailbox."""

    def __init__(self, server: Serving) -> None:
        self._server = server
        self._peers: OrderedDict[str, tuple[ChannelPeer, MailboxHome]] = OrderedDict()

    def take(self, x: Exchange, message: Message, tell: Callable[[bytes], bool]) -> bool:
        """Take a message that belongs to a session, or begins one; False for others."""
        where = x.caller.remote
        known = self._peers.get(where)
        begins = type(message) is Request and message.method == "initialize"
        if known is None and not (begins and self._server.offered.stateful):
            return False
        if known is None or begins:  # a client that begins again has forgotten the old one
            known = self._begin(x.caller, where)
        if isinstance(message, Batch):  # the revisions that use brokers have none
            return False
        peer, home = known
        self._peers.move_to_end(where)
        home.tell = tell
        if type(message) is Request:
            x.gone = partial(self._gone, peer, key(message.id))
        peer.take(message, x.respond, x.stream, x.caller, x.request)
        return True

    def _begin(self, caller: Caller, where: str) -> tuple[ChannelPeer, MailboxHome]:
        peer, home = self._server.peer(), MailboxHome(caller)
        peer.attach(home)
        self._drop(where)
        self._peers[where] = peer, home
        while len(self._peers) > self._server.options.sessions:
            self._drop(next(iter(self._peers)))
        return peer, home

    def _drop(self, where: str) -> None:
        found = self._peers.pop(where, None)
        if found is not None:
            found[1].abort(Closed("the session was forgotten"))

    def _gone(self, peer: ChannelPeer, id: Any) -> None:
        run = peer.conversation.inbound.get(id)
        if run is not None:
            run.end(None)


class MailboxHome:
    """The channel for messages outside calls: they go to the mailbox."""

    duplex = True
    writable = True

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.tell: Callable[[bytes], bool] = lambda message: False
        self._receiver: Receiver | None = None

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def send(self, message: bytes, call: Outgoing | None = None) -> None:
        if not self.tell(message) and call is not None:
            raise Broken("the caller's mailbox takes nothing now")

    async def flush(self) -> None:
        return None

    async def close(self) -> None:
        self.abort(Closed("the server closed the session"))

    def abort(self, why: ChannelError) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.ended(why)
