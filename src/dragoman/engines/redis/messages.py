"""The form of a broker message in Redis: an entry with a `head`, which is a JSON object, and a `body`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct, field

from ...transports.broker.contract import BrokerMessage, Outcome, unsettled


class MessageHead(Struct, omit_defaults=True):
    """The head of an entry."""

    to: str = ""
    id: str = ""
    count: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(MessageHead).decode


def head_of(message: BrokerMessage, count: int = 0) -> bytes:
    """Write the head of a message with that number of deliveries."""
    return _encode(MessageHead(message.reply_to, message.correlation, count, message.headers))


def message_of(
    fields: list[bytes], settle: Callable[[Outcome], None] = unsettled, count: int = 0
) -> BrokerMessage | None:
    """Return the broker message in an entry; None for an invalid one. `count`: the stream's number of deliveries."""
    if len(fields) == 4 and fields[0] == b"head" and fields[2] == b"body":
        raw, body = fields[1], fields[3]
    else:
        pairs = dict(zip(fields[::2], fields[1::2], strict=True))
        raw, body = pairs.get(b"head", b"{}"), pairs.get(b"body", b"")
    try:
        head = _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    count += max(0, head.count)
    return BrokerMessage(
        body=body, reply_to=head.to, correlation=head.id, headers=head.headers, count=count, settle=settle
    )


def after(id: bytes) -> str:
    """Return the id after this one."""
    milliseconds, _, sequence = id.decode().partition("-")
    return f"{milliseconds}-{int(sequence) + 1}"
