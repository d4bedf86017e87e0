"""`nats://[user:password@]host[:port]/calculator`, `natss://` for TLS: requests to a queue group, answers to an inbox.

The address `calculator` is these subjects (a path `/team/calculator` is the subject `team.calculator`):

- `calculator`: requests, taken by one member of the queue group (`?group=`, `workers`). The reply subject is the
  caller's inbox and, as its last part, the call's correlation id; the answer goes there without headers. So any NATS
  client can call: `nats request calculator '{"jsonrpc":"2.0","method":"add","params":[1,2],"id":1}'`.
- `calculator.control`: cancels, `calculator.all`: broadcasts. All workers of the address get them.

Rules:

- At most once. Without a worker the server reports it, and the call fails at once (`Unroutable`; within
  `RECONNECT_GRACE` seconds of a reconnection it is tried again). When the server is lost, calls in flight fail at once,
  and nothing that a worker may have received is sent again; whether they ran is not known.
- `?prefetch=` requests run at once and as many wait as `limits.calls` allows; further requests are answered as
  busy. Nothing is dropped silently.
- A worker that closes gives requests it has not begun back to the group.
- A worker publishes answers only to `_INBOX.>`, and to what `?reply_to=` adds. A subject such as
  `$JS.API.STREAM.PURGE.orders`
  in a request's reply would make it do what its caller may not.
- `?stream=` makes it at least once: see `stream`.
"""

from __future__ import annotations

import re

from ...channel import Options
from ...jsonrpc.errors import LocalError
from ...net.urls import Url, address, read_query
from ...transports.broker.contract import Mailboxes, mailbox_parts
from ...transports.broker.ends import ends
from .adapter import NatsAdapter
from .connection import INBOX, share_connection
from .stream import StreamAdapter, stream_of

GROUP = "workers"
MAILBOX = f"{INBOX}.*"
"""The subjects on which NATS clients wait for replies."""
_KNOWN = (
    "subject",
    "group",
    "stream",
    "replicas",
    "wait",
    "max",
    "deliveries",
    "prefetch",
    "reply_to",
    "mailbox",
    "creds",
    "token",
)
_SUBJECT = r"(?!\$|_INBOX)[^\s\x00-\x1f.*>]+(\.[^\s\x00-\x1f.*>]+)*"


def subject_of(where: Url) -> str:
    """Return the subject that a URL names. Raises LocalError if there is none."""
    last, before = address(where, "subject", legal=_SUBJECT)
    if "subject" in where.query and before:
        raise LocalError(f"{where.shown}: name the subject in the path or as ?subject=, not in both")
    return ".".join(part for part in (*before.split("/"), last) if part)


def _is_subject(address: str) -> bool:
    """Whether a printable text names one subject: it has no space and no wildcard."""
    return bool(address) and " " not in address and "*" not in address and ">" not in address


def adapter_at(where: Url, options: Options) -> NatsAdapter | StreamAdapter:
    """Return the adapter for a URL; it is not open yet."""
    query = read_query(where, *_KNOWN)
    group = query.get("group", GROUP)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", group):
        raise LocalError(f"{where.shown}: ?group= is made of letters, digits, - and _")
    mailbox_parts(where)  # for its errors alone: the connection makes the inboxes
    mailboxes = Mailboxes(where, MAILBOX, legal=_is_subject)
    subject, stream = subject_of(where), stream_of(where) if "stream" in query else None
    # last: if something above raised, the share would have no owner
    share = share_connection(where, "wire", options.client_tls)
    plain = NatsAdapter(share, subject, group, options.limits.calls, mailboxes)
    return plain if stream is None else StreamAdapter(plain, stream)


dial, listen = ends(lambda where, options, serving: adapter_at(where, options), lambda adapter: adapter.subject)
