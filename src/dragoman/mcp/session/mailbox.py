"""Clients of the stateful era behind a broker: one peer for each mailbox and principal, in the worker that serves them.

A broker's deliveries are exchanges, and an exchange has no session. But its caller has a permanent mailbox
(`Exchange.tell`, `caller.remote`), so `initialize` begins a session for that. With several workers the next request may
reach another one, which has no such session: then use the stateless era.

Every caller that may put a request on the queue may name any mailbox in it. So a session belongs to a mailbox *and* to
the principal whom the guard found (`Caller.principal`): for another principal there is no such session, as over HTTP.
The questions of two sessions at one mailbox have different ids, so that no answer of one fits a question of the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from ...allowance import NoRoom, Slots, owner_of
from ...channel import Broken, Caller, ChannelError, Closed, Exchange, Outgoing, Receiver
from ...jsonrpc.call_limit import busy
from ...jsonrpc.codec import key
from ...jsonrpc.messages import Batch, Message, Request
from ...rpc.channel_peer import ChannelPeer
from ..protocol.dialect import MCP
from .backend import McpBackend

MailboxKey: TypeAlias = tuple[str, str | None]
"""Mailbox and principal."""


class MailboxSessions:
    """The peers of one server's callers, by their mailboxes and principals."""

    def __init__(self, server: McpBackend) -> None:
        self._server = server
        self._peers: dict[MailboxKey, tuple[ChannelPeer, MailboxHome]] = {}
        self._slots: Slots[MailboxKey] = Slots(server.options.sessions)

    def take(self, x: Exchange, message: Message, tell: Callable[[bytes], bool]) -> bool:
        """Serve a message that belongs to a session, or begins one; return False for others. `tell`: sends a later
        message to the mailbox."""
        mailbox = x.caller.remote, x.caller.principal
        known = self._peers.get(mailbox)
        begins = type(message) is Request and message.method == "initialize"
        if known is None and not (begins and self._server.offered.stateful):
            return False
        if known is None or begins:  # a client that begins again has forgotten the old one
            known = self._begin(x.caller, mailbox)
            if known is None:
                full = busy("sessions", self._server.options.sessions)
                x.respond(self._server.host.service._answers.refused(message, full, MCP))
                return True
        if isinstance(message, Batch):  # the revisions that use brokers have none
            return False
        peer, home = known
        self._slots.touch(mailbox)
        home.tell = tell
        if type(message) is Request:
            x.gone = partial(self._cancel, peer, key(message.id))
        peer.take(message, x.respond, x.stream, x.caller, x.request)
        return True

    def _begin(self, caller: Caller, mailbox: MailboxKey) -> tuple[ChannelPeer, MailboxHome] | None:
        """Begin a session, in place of an earlier one; None where there is no room for it."""
        self._drop(mailbox)
        try:
            gone = self._slots.take(owner_of(caller), mailbox)
        except NoRoom:
            return None
        if gone is not None:
            self._drop(gone)
        peer, home = self._server.peer(), MailboxHome(caller)
        peer.attach(home)
        peer._conversation.last_id = int.from_bytes(
            os.urandom(6), "big"
        )  # far below 2^53, which every JSON number holds
        self._peers[mailbox] = peer, home
        return peer, home

    def _drop(self, mailbox: MailboxKey) -> None:
        self._slots.free(mailbox)
        found = self._peers.pop(mailbox, None)
        if found is not None:
            found[1].abort(Closed("the session was forgotten"))

    def _cancel(self, peer: ChannelPeer, id: Any) -> None:
        run = peer._conversation.inbound.get(id)
        if run is not None:
            run.end(None)


class MailboxHome:
    """The channel for messages outside calls, which are sent to the mailbox."""

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
