"""Clients of the stateful era behind a broker: one peer per mailbox and principal, as long as one worker serves them.

A broker's deliveries are exchanges, and an exchange has no session. But its caller has a permanent mailbox
(`Exchange.tell`, `caller.remote`), so `initialize` begins a session there. With several workers the next request may
reach another one, which has no such session: use the stateless era then.

Every caller that may put a request on the queue may name any mailbox in it. So a session belongs to a mailbox *and* to
the principal whom the guard found (`Caller.principal`): for another principal there is no such session, as over HTTP.
What two sessions ask at one mailbox has different ids, for the answers of one must fit no question of the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from ...allowance import NoRoom, Places, owner_of
from ...channel import Broken, Caller, ChannelError, Closed, Exchange, Outgoing, Receiver
from ...jsonrpc.call_limit import busy
from ...jsonrpc.codec import key
from ...jsonrpc.messages import Batch, Message, Request
from ...rpc.peering.channel_peer import ChannelPeer
from ..protocol.dialect import MCP
from .backend import McpBackend

MailboxKey: TypeAlias = tuple[str, str | None]
"""Mailbox and principal."""


class MailboxSessions:
    """The peers of one server's callers, by their mailboxes and principals."""

    def __init__(self, server: McpBackend) -> None:
        self._server = server
        self._peers: dict[MailboxKey, tuple[ChannelPeer, MailboxHome]] = {}
        self._places: Places[MailboxKey] = Places(server.options.sessions)

    def take(self, x: Exchange, message: Message, tell: Callable[[bytes], bool]) -> bool:
        """Take a message that belongs to a session, or begins one; False for others."""
        where = x.caller.remote, x.caller.principal
        known = self._peers.get(where)
        begins = type(message) is Request and message.method == "initialize"
        if known is None and not (begins and self._server.offered.stateful):
            return False
        if known is None or begins:  # a client that begins again has forgotten the old one
            known = self._begin(x.caller, where)
            if known is None:
                full = busy("sessions", self._server.options.sessions)
                x.respond(self._server.host.service._answers.refused(message, full, MCP))
                return True
        if isinstance(message, Batch):  # the revisions that use brokers have none
            return False
        peer, home = known
        self._places.touch(where)
        home.tell = tell
        if type(message) is Request:
            x.gone = partial(self._gone, peer, key(message.id))
        peer.take(message, x.respond, x.stream, x.caller, x.request)
        return True

    def _begin(self, caller: Caller, where: MailboxKey) -> tuple[ChannelPeer, MailboxHome] | None:
        """Begin a session; None where there is no room for it."""
        self._drop(where)
        try:
            gone = self._places.take(owner_of(caller), where)
        except NoRoom:
            return None
        if gone is not None:
            self._drop(gone)
        peer, home = self._server.peer(), MailboxHome(caller)
        peer.attach(home)
        peer.conversation.last_id = int.from_bytes(
            os.urandom(6), "big"
        )  # far below 2^53, which every JSON number holds
        self._peers[where] = peer, home
        return peer, home

    def _drop(self, where: MailboxKey) -> None:
        self._places.free(where)
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
