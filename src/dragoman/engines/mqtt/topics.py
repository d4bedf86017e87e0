"""Reads MQTT URLs, topics and properties. Pure, except for the client id and the TLS context that it makes."""

from __future__ import annotations

import re
import ssl
import uuid
from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl, quote, unquote, urlencode

from msgspec.structs import replace

from ...channel import Options
from ...jsonrpc.errors import LocalError
from ...net.urls import Url, choice, credentials, number, printable
from ...transports.broker.contract import BrokerMessage, Outcome
from .connection import MqttEndpoint
from .messages import MqttMessage

AWAY = 60
"""Seconds that the broker keeps the session of a generated client id."""
AWAY_NAMED = 86_400
"""Seconds that the broker keeps the session of a `?client=`: a client with a name is expected to come back."""
COUNT = "count"
"""The header of a republished message with the number of earlier deliveries."""
ALL_IN_TOPIC = "#"
"""The last level of a reply address whose answers have in their topic what is otherwise in properties. It occurs in no
topic."""
UNANSWERABLE = "+"
"""Replaces an address to which nothing can be published."""
FELL = 5
"""Seconds after which a worker that lost its link without a disconnect is taken to be dead."""
LEVEL = re.compile(r"[^/+#\s\x00]{1,100}")
"""The pattern of one level of a topic."""
GROUP = "dragoman"
"""The name of the shared subscription."""
OWN_NAME = re.compile(r"dragoman-[0-9a-f]{16}")
"""The pattern of generated client ids."""
OPTIONS = ("v", "client", "group", "expiry", "keepalive", "acks", "prefetch", "deliveries", "reply_to", "mailbox")
MAILBOX = rf"([^/+#]*/){{0,100}}([^/+#]*|{ALL_IN_TOPIC})"
"""The pattern of a reply address. Brokers close the connection because of a topic with more than 200 levels."""


def topic_of(where: Url) -> str:
    """Return the topic in the URL's path. Raises LocalError for an invalid one."""
    topic = where.path.strip("/")
    if not topic:
        raise LocalError(f"{where.shown}: name the topic, as in {where.scheme}://{where.address}/devices/lamp-1")
    # MQTT 5.0, 4.7: "wildcard characters MUST NOT be used within a Topic Name"; "$" begins what is the broker's own
    if re.search(r"[+#\x00]", topic) or topic.startswith("$") or len(topic.encode()) > 1_000:
        raise LocalError(f"{where.shown}: {printable(topic)!r} is not a topic: it has no + and #, and begins without $")
    return topic


def endpoint_of(where: Url, options: Options, *, serving: bool) -> MqttEndpoint:
    """Return where to connect, and with which client id and session. Raises LocalError for an invalid query."""
    query = where.query
    version, acks = choice(where, "v", "5", "3.1.1"), choice(where, "acks", "ordered", "any")
    tls = options.client_tls
    if where.tls and tls is None:
        tls = ssl.create_default_context()
    client = query.get("client", "")
    if client and not re.fullmatch(LEVEL, client):
        raise LocalError(f"{where.shown}: ?client= is a name without / + and #, not {printable(client)!r}")
    group = query.get("group", GROUP)
    if not LEVEL.fullmatch(group):
        raise LocalError(f"{where.shown}: ?group= is a name without / + and #, not {printable(group)!r}")
    expiry = number(where, "expiry", AWAY_NAMED if client else AWAY, least=0)
    if version != "5" and not client:  # 3.1.1 keeps a session for ever, or not at all
        expiry = 0
    mine = client or f"dragoman-{uuid.uuid4().hex[:16]}"
    will = serving and version == "5" and not client
    return MqttEndpoint(
        host=where.host or "127.0.0.1",
        port=where.port,
        client=mine,
        tls=tls if where.tls else None,
        auth=credentials(where),
        version=version,
        keepalive=min(number(where, "keepalive", 10), 65_535),
        expiry=min(expiry, 0xFFFFFFFF),
        receive=min(_prefetch(where, options), 65_535) if serving else 65_535,
        ordered=acks == "ordered",
        will=(f"{topic_of(where)}/fallen/{group}/{mine}", mine.encode()) if will else None,
        will_after=FELL,
        will_kept=max(expiry - FELL, 0) if will else 0,
    )


def _prefetch(where: Url, options: Options) -> int:
    return number(where, "prefetch", min(options.limits.calls, options.limits.calls_per_channel))


def message_of(
    message: MqttMessage, above: str, *, answer: bool = False, settle: Callable[[Outcome], None] | None = None
) -> BrokerMessage:
    """Return a request or an answer as it came, with properties, or with a topic below `above` that says the same:
    `<mailbox>/<correlation>[/<headers>]`, without the mailbox where it is an `answer`."""
    reply_to, correlation, headers = message.reply_to, message.correlation, message.headers
    below = mailbox = ""
    if message.topic.startswith(f"{above}/"):
        words = message.topic[len(above) + 1 :].split("/")
        if not answer:
            reply_to, below = unquote(words[0]), "/".join([*words[1:2], ALL_IN_TOPIC])
            words = words[1:]
        correlation = unquote(words[0]) if words else ""
        headers = dict(parse_qsl(words[1], keep_blank_values=True)) if len(words) > 1 else {}
    if "#" in reply_to:  # nothing can be published to a wildcard, and a caller must not write `ALL_IN_TOPIC`
        reply_to = UNANSWERABLE
    elif below and reply_to:
        mailbox, reply_to = reply_to, f"{reply_to}/{below}"
    text = headers.get(COUNT, "")
    if text:
        headers = {name: value for name, value in headers.items() if name != COUNT}
    count = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    made = BrokerMessage(
        body=message.body,
        reply_to=reply_to,
        mailbox=mailbox,
        correlation=correlation,
        headers=headers,
        count=count + message.again,
    )
    return made if settle is None else replace(made, settle=settle)


def in_topic(headers: Mapping[str, str]) -> str:
    """Write headers as one level of a topic; a space is not written `+`, which is a wildcard there."""
    return urlencode(headers, quote_via=quote, safe="")


def describe_code(code: int) -> str:
    """Return a reason code of PUBACK as text (MQTT 5.0, 3.4.2.1)."""
    known = {0x87: "not authorized", 0x90: "topic name invalid", 0x95: "packet too large", 0x97: "quota exceeded"}
    return known.get(code, f"reason code 0x{code:02x}")
