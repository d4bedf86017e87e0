"""Deliveries that no honest caller sends, as rows: any member may hold what the sender likes.

`{n}` is another number in each row, `{mailbox}` a mailbox that answers may go to, `{victim}` the address of another
service on the same broker, `{own}` the address of the service itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from dragoman.jsonrpc.limits import SERVER

End: TypeAlias = Literal["answered", "silent", "dead", "either"]
"""What becomes of it: an answer in `{mailbox}`, nothing more, set aside; "either" where engines differ in what
arrives."""

ADD = b'{"jsonrpc":"2.0","method":"add","params":[1,2],"id":1}'


class Hostile(Struct, frozen=True, kw_only=True):
    """One delivery, sent `copies` times."""

    name: str
    end: End
    body: bytes = ADD
    reply_to: str = "{mailbox}"
    correlation: str = "c-{n}"
    headers: Mapping[str, str] = {}
    copies: int = 1
    ttl: float | None = None
    says: bytes = b""
    """A part of the answer."""


def _reply_to(name: str, address: str, end: End = "dead") -> Hostile:
    return Hostile(name=f"reply-to: {name}", reply_to=address, end=end)


def _correlation(name: str, text: str, end: End = "answered") -> Hostile:
    return Hostile(name=f"correlation: {name}", correlation=text, end=end)


def _headers(name: str, end: End = "answered", /, **headers: str) -> Hostile:
    return Hostile(name=f"header: {name}", headers=headers, end=end)


def _body(name: str, body: bytes, says: bytes = b"", end: End = "answered") -> Hostile:
    return Hostile(name=f"body: {name}", body=body, says=says, end=end)


def request(method: object = "add", params: object = (1, 2), id: object = 1) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params, "id": id}).encode()


ROWS: tuple[Hostile, ...] = (
    # -- where the worker would publish
    _reply_to("another service", "{victim}"),
    _reply_to("below another service", "{victim}/x"),
    _reply_to("another service's mailboxes", "{victim}:to:x"),
    _reply_to("the service itself", "{own}"),
    _reply_to("its control address, with a colon", "{own}:control"),
    _reply_to("its control address, with a dot", "{own}.control"),
    _reply_to("its control address, with a slash", "{own}/control"),
    _reply_to("its dead letters", "{own}.dead"),
    _reply_to("JetStream's API", "$JS.API.STREAM.PURGE.orders"),
    _reply_to("NATS's own account", "$SYS.REQ.SERVER.PING"),
    _reply_to("the MQTT broker's own topics", "$SYS/broker/uptime"),
    _reply_to("RabbitMQ's log", "amq.rabbitmq.log"),
    _reply_to("direct reply-to, bare", "amq.rabbitmq.reply-to", "either"),
    _reply_to("every subject", ">"),
    _reply_to("every word", "*"),
    _reply_to("every topic", "#"),
    _reply_to("every level", "+"),
    _reply_to("a wildcard below a mailbox", "{mailbox}/#", "either"),
    _reply_to("a wildcard in a mailbox", "{mailbox}/+/x", "either"),
    _reply_to("a prefix of inboxes", "_INBOX", "either"),
    _reply_to("inboxes in lower case", "_inbox.abc"),
    _reply_to("mailboxes in capitals", "DRAGOMAN.ANSWERS.X"),
    _reply_to("a control character", "{mailbox}\x01"),
    _reply_to("a NUL", "{mailbox}\x00"),
    _reply_to("DEL", "{mailbox}\x7f"),
    _reply_to("lines of a protocol", "{mailbox} 0\r\n\r\nPUB {victim} 4\r\nevil"),
    _reply_to("a line separator", "{mailbox}\u2028"),
    _reply_to("half of a surrogate pair", "{mailbox}\ud800"),
    _reply_to("nothing but a space", " "),
    _reply_to("3,000 characters", "x" * 3_000),
    _reply_to("a mailbox with 3,000 more", "{mailbox}" + "x" * 3_000),
    _reply_to("300 levels", "{mailbox}" + "/" * 300, "either"),
    _reply_to("a path upwards", "../{mailbox}"),
    _reply_to("none", "", "silent"),
    # -- what is to come back with the answer
    Hostile(name="correlation: none", correlation="", end="either"),
    _correlation("a space", " "),
    _correlation("1,024 characters", "x" * 1_024),
    _correlation("1,025 characters", "x" * 1_025, "dead"),
    _correlation("20,000 characters", "x" * 20_000, "dead"),
    _correlation("Latin", "é"),
    _correlation("beyond Latin", "漢字"),
    _correlation("beyond the first plane", "😀"),
    _correlation("a control character", "\x01"),
    _correlation("a NUL", "\x00"),
    _correlation("a line end", "a\r\nb"),
    _correlation("levels", "a/b/c"),
    _correlation("words", "a.b.c"),
    _correlation("wildcards", "#/+/*/>"),
    _correlation("percent signs", "%2F%00%"),
    _correlation("half of a surrogate pair", "\ud800"),
    _correlation("JSON", '{"id":1}'),
    # -- what travels beside the body
    _headers("an empty key", key=""),
    _headers("a key of 100,000 characters", key="x" * 100_000),
    _headers("a key with a NUL", key="a\x00b"),
    _headers("a key beyond Latin", key="漢字"),
    _headers("a key with half a pair", key="\ud800"),
    _headers("an empty deadline", deadline=""),
    _headers("a deadline in words", deadline="soon"),
    _headers("a negative deadline", deadline="-1"),
    _headers("a deadline in other digits", deadline="٣٤٥"),
    _headers("a deadline of 400 digits", deadline="9" * 400),
    _headers("a deadline as a power", deadline="1e99"),
    _headers("a deadline long ago", "silent", deadline="1"),
    _headers("sent before, in words", again="often"),
    _headers("sent before, negative", again="-1"),
    _headers("sent before, 100 digits", again="9" * 100),
    _headers("a cancel that is none", kind="cancel"),
    _headers("a broadcast that is none", kind="broadcast"),
    _headers("an answer that is none", kind="unroutable"),
    _headers("of no kind", kind="\x7f"),
    _headers("a count in words", count="many"),
    _headers("a negative count", count="-5"),
    _headers("spaces and signs", a="x y+z/#&%="),
    Hostile(name="header: no name", headers={"": "x"}, end="answered"),
    Hostile(name="header: a line end in its name", headers={"a\r\nb": "x"}, end="answered"),
    Hostile(name="header: a line end in its value", headers={"a": "x\r\ny: z"}, end="answered"),
    Hostile(name="header: for the NATS server", headers={"Nats-Expected-Stream": "x"}, end="answered"),
    Hostile(name="header: 5,000 of them", headers={f"h{n}": "x" for n in range(5_000)}, end="answered"),
    Hostile(name="header: one of a million characters", headers={"h": "x" * 1_000_000}, end="answered"),
    # -- bodies
    _body("empty", b"", b"-32700"),
    _body("no UTF-8", b"\xff\xfe\xfd", b"-32700"),
    _body("NULs", bytes(1_000), b"-32700"),
    _body("a byte order mark", b"\xef\xbb\xbf" + ADD, b"-32700"),
    _body("UTF-16", ADD.decode().encode("utf-16"), b"-32700"),
    _body("compressed", bytes.fromhex("1f8b0800000000000003"), b"-32700"),
    _body("cut off", ADD[:-5], b"-32700"),
    _body("two of them", ADD + ADD, b"-32700"),
    _body("an empty batch", b"[]", b"-32600"),
    _body("100,000 levels", b"[" * 100_000, b"error"),
    _body("null", b"null", b"-32600"),
    _body("a number beyond floats", b"1e999", b"error"),
    _body("a text", b'"text"', b"-32600"),
    _body("half of a pair", b'{"jsonrpc":"2.0","method":"\\ud800","id":1}', b"error"),
    _body("a method of 1,000 characters", request("x" * 1_000), b"error"),
    _body("a method that is a list", request(["add"]), b"-32600"),
    _body("an id of 2,000 digits", ADD.replace(b'"id":1', b'"id":' + b"9" * 2_000), b"error"),
    _body("params that are a text", request(params="x"), b"error"),
    _body("1,001 elements", b"[" + b",".join([ADD] * 1_001) + b"]", b"error"),
    _body("a batch with two equal ids", b"[" + ADD + b"," + ADD + b"]"),
    _body("above message_size", b'"' + b"x" * SERVER.message_size + b'"', b"-32003"),
    _body("a notification", b'{"jsonrpc":"2.0","method":"add","params":[1,2]}', end="silent"),
    _body("a result", b'{"jsonrpc":"2.0","result":1,"id":1}', end="either"),
    _body("an error", b'{"jsonrpc":"2.0","error":{"code":1,"message":"x"},"id":null}', end="either"),
    Hostile(name="body: no JSON and no address to answer", body=b"\xff", reply_to="", end="dead"),
    # -- again and again, late and never
    Hostile(name="twice with one key", headers={"key": "k"}, copies=2, end="answered"),
    Hostile(name="thirty times with one key", headers={"key": "k"}, copies=30, end="answered"),
    Hostile(name="thirty times without a key", copies=30, end="answered"),
    Hostile(name="thirty times, no address to answer", reply_to="", copies=30, end="silent"),
    Hostile(name="expires at once", ttl=0.0, end="either"),
    Hostile(name="expired before it was sent", ttl=-1.0, end="either"),
    Hostile(name="expires after centuries", ttl=1e10, end="either"),
)
