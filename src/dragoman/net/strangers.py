"""Recognises another protocol by the first bytes that it sent, so that an error can say what to write instead.

Rules: only bytes that really came are judged, never a port or a name. What is not certain is not named.
"""

from __future__ import annotations

import re

_CERTAIN: tuple[tuple[bytes, str], ...] = (
    (rb"HTTP/[0-9.]+ [0-9]{3}", "it speaks HTTP: write http:// (or ws:// for a WebSocket) for {scheme}://"),
    (rb"\x15\x03[\x00-\x04]", "it speaks TLS: write {tls}:// for {scheme}://"),
    (
        rb"(?i)content-length:[ \t]*[0-9]+",
        "it sends Content-Length headers, not lines: give framing='content-length', or --framing content-length",
    ),
    (rb"SSH-[0-9.]+-", "it speaks SSH, not JSON-RPC: check the port"),
    (rb"(?i)220[ -][^\r\n]*(?:SMTP|FTP)", "it speaks SMTP or FTP, not JSON-RPC: check the port"),
    (rb"-(?:ERR|NOAUTH|DENIED) ", "it speaks Redis: write redis://host/name of the service"),
    (rb"INFO \{", "it speaks NATS: write nats://host/name of the service"),
    (rb"AMQP[\x00-\x0f]", "it speaks AMQP: write amqp://host/name of the service"),
    (rb"(?i)<(?:!doctype|html|\?xml)", "it sends HTML or XML, not JSON-RPC: check the address"),
    (rb"\* OK |\+OK ", "it speaks IMAP or POP3, not JSON-RPC: check the port"),
    (
        rb"\xff\xfe[^\x00]\x00|\xfe\xff\x00|[\[{]\x00[^\x00]\x00",
        "it sends UTF-16: give the server's output the encoding UTF-8 (RFC 8259, 8.1)",
    ),
    (rb"E\x00\x00.{2}S(?:FATAL|ERROR)", "it speaks PostgreSQL, not JSON-RPC: check the port"),
    (rb"\x00\x00.\x04[\x00\x01]\x00{4}", "it speaks HTTP/2: write http://, and let it speak HTTP/1.1, too"),
    (
        rb"\xef\xbb\xbf",
        "it sends a byte order mark: give the server's output encoding UTF-8 without one (RFC 8259, 8.1)",
    ),
    (rb"\x1f\x8b\x08", "it sends gzip, which was not asked for: give plain JSON out at the server"),
    (rb"\x1e\s*[\[{]", "it sends JSON text sequences (RFC 7464), not lines: give each message a newline as its end"),
    (rb"\x00.{3}[\[{]", "it sends a length before each message: give each message a newline as its end"),
    (rb"[0-9]{1,9}:[\[{]", "it sends netstrings, not lines: give each message a newline as its end"),
    (rb"(?:event|data): ?[\w{\[]", "it sends server-sent events without HTTP: check the port, or write http://"),
)
_OF_STDIO = rb"(?i)content-length:|\xff\xfe[^\x00]\x00|\xfe\xff\x00|[\[{]\x00[^\x00]\x00"
_JSON = rb"\s*[\[{]\s*[\"{}\]]"
_HTTP = rb"HTTP/1[.][01] "
_TLS_OF = {"tcp": "tls", "http": "https", "ws": "wss"}


def recognise_stranger(first: bytes, scheme: str) -> str | None:
    """Return, in words, what has sent these first bytes on a wire of this scheme and what to write instead; None if
    that is not certain.

    On `stdio` only a framing and UTF-16 are recognised: a program may print anything else before it begins.
    """
    if scheme in ("http", "https") and re.match(_JSON, first):
        return "it sends JSON without HTTP: write tcp:// for http://, or tls:// for https://"
    if scheme in ("http", "https") and re.match(_HTTP, first):
        return None
    for sign, words in _CERTAIN:
        if re.match(sign, first, re.DOTALL) and (scheme != "stdio" or re.match(_OF_STDIO, first)):
            return words.format(scheme=scheme, tls=_TLS_OF.get(scheme, "tls"))
    return None
