"""Broken and foreign peers: what the library says when something else than expected answers at a URL.

Each row is what a peer sends once it has received something, and the parts that the error holds: what was wrong, where
(the address), and what would be right.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from dragoman import BadAnswer, RpcError, connect
from dragoman.channel import ChannelError

HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\n{}"
ALERT = b"\x15\x03\x01\x00\x02\x02\x46"
LSP = b'Content-Length: 38\r\n\r\n{"jsonrpc":"2.0","id":1,"result":null}'
LINE = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}\n'

PEERS: list[tuple[str, bytes, str, str]] = [
    # scheme, what the peer sends, what was wrong, what would be right
    ("tcp", HTTP, "does not send JSON-RPC", "write http://"),
    ("tcp", b"HTTP/1.0 501 Not Implemented\r\n\r\n", "speaks HTTP", "ws:// for a WebSocket"),
    ("tcp", b"HTTP/1.1 400\r\nServer: x\r\n\r\n", "speaks HTTP", "write http://"),
    ("tcp", ALERT, "speaks TLS", "write tls://"),
    ("tcp", b"\x15\x03\x03\x00\x02\x02\x28", "speaks TLS", "write tls://"),
    ("tcp", LSP, "Content-Length headers", "framing='content-length'"),
    ("tcp", b"content-length: 2\n\n{}", "Content-Length headers", "--framing content-length"),
    ("tcp", b"SSH-2.0-OpenSSH_9.6\r\n", "speaks SSH", "check the port"),
    ("tcp", b"220 mail.example ESMTP ready\r\n", "SMTP or FTP", "check the port"),
    ("tcp", b"220 ftp.example FTP server\r\n", "SMTP or FTP", "check the port"),
    ("tcp", b"-ERR unknown command\r\n", "speaks Redis", "write redis://"),
    ("tcp", b"-NOAUTH Authentication required.\r\n", "speaks Redis", "write redis://"),
    ("tcp", b"-DENIED Redis is running in protected mode\r\n", "speaks Redis", "write redis://"),
    ("tcp", b'INFO {"server_id":"x"}\r\n', "speaks NATS", "write nats://"),
    ("tcp", b"AMQP\x00\x00\x09\x01\r\n", "speaks AMQP", "write amqp://"),
    ("tcp", b"<!DOCTYPE html>\n<html></html>\n", "HTML or XML", "check the address"),
    ("tcp", b"<?xml version='1.0'?>\n", "HTML or XML", "check the address"),
    ("tcp?framing=content-length", LINE, "JSON came where a Content-Length header", "leave framing=content-length out"),
    ("tcp?framing=content-length", b'[{"jsonrpc":"2.0"}]\n', "JSON came", "leave framing=content-length out"),
    ("http", LINE, "not HTTP: it sends JSON", "write tcp://"),
    ("http", b'  [{"jsonrpc":"2.0"}]\n', "not HTTP: it sends JSON", "write tcp://"),
    ("http", ALERT, "not HTTP: it speaks TLS", "write https://"),
    ("http", LSP, "not HTTP: it sends Content-Length headers", "framing='content-length'"),
    ("http", b"SSH-2.0-OpenSSH_9.6\r\n", "not HTTP: it speaks SSH", "check the port"),
    ("http", b"-ERR unknown command\r\n", "not HTTP: it speaks Redis", "write redis://"),
    ("http", b'INFO {"server_id":"x"}\r\n', "not HTTP: it speaks NATS", "write nats://"),
    ("https", HTTP, "does not speak TLS", "write http:// for https://"),
    ("https", LINE, "does not speak TLS", "write http:// for https://"),
    ("tls", LINE, "does not speak TLS", "write tcp:// for tls://"),
    ("tls", b"SSH-2.0-OpenSSH_9.6\r\n", "does not speak TLS", "write tcp:// for tls://"),
    ("wss", HTTP, "does not speak TLS", "write ws:// for wss://"),
    ("tcp", b"\xef\xbb\xbf{}\n", "a byte order mark", "UTF-8 without one"),
    ("tcp", "{}\n".encode("utf-16-le").join((b"\xff\xfe", b"")), "it sends UTF-16", "the encoding UTF-8"),
    ("tcp", "{}\n".encode("utf-16-be").join((b"\xfe\xff", b"")), "it sends UTF-16", "the encoding UTF-8"),
    ("tcp", '{"id":1}\n'.encode("utf-16-le"), "it sends UTF-16", "the encoding UTF-8"),
    ("tcp", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\xab", "it sends gzip", "give plain JSON"),
    ("tcp", b'\x1e{"id":1}\n', "JSON text sequences", "give each message a newline"),
    ("tcp", b'\x00\x00\x00\x08{"id":1}', "a length before each message", "give each message a newline"),
    ("tcp", b'8:{"id":1},', "it sends netstrings", "give each message a newline"),
    ("tcp", b'data: {"id":1}\n\n', "server-sent events", "write http://"),
    ("tcp", b"event: message\ndata: {}\n\n", "server-sent events", "write http://"),
    ("tcp", b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00", "speaks HTTP/2", "write http://"),
    ("tcp", b"E\x00\x00\x00\x84SFATAL\x00", "speaks PostgreSQL", "check the port"),
    ("tcp", b"* OK IMAP4rev1 ready\r\n", "IMAP or POP3", "check the port"),
    ("tcp", b"+OK POP3 ready\r\n", "IMAP or POP3", "check the port"),
    ("http", b"* OK IMAP4rev1 ready\r\n", "IMAP or POP3", "check the port"),
    ("http", b"+OK POP3 ready\r\n", "IMAP or POP3", "check the port"),
    ("http", b"220 mail.example ESMTP ready\r\n", "SMTP or FTP", "check the port"),
    ("http", b"AMQP\x00\x00\x09\x01\r\n", "speaks AMQP", "write amqp://"),
    ("http", b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00", "speaks HTTP/2", "let it speak HTTP/1.1"),
    ("http", b"E\x00\x00\x00\x84SFATAL\x00", "speaks PostgreSQL", "check the port"),
    ("http", b"<!DOCTYPE html>\n<html></html>\n", "HTML or XML", "check the address"),
    ("http", b"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n", "Content-Length", "a head as RFC 9112 has it"),
    (
        "http",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n{} ",
        "Content-Length",
        "a head as RFC 9112 has it",
    ),
    ("https", b"SSH-2.0-OpenSSH_9.6\r\n", "does not speak TLS", "write http:// for https://"),
    ("https", b"-ERR unknown command\r\n", "does not speak TLS", "write http:// for https://"),
    ("tls", b"-ERR unknown command\r\n", "does not speak TLS", "write tcp:// for tls://"),
    ("tls", LSP, "does not speak TLS", "write tcp:// for tls://"),
    ("wss", LINE, "does not speak TLS", "write ws:// for wss://"),
]


@contextlib.asynccontextmanager
async def peer(sends: bytes) -> AsyncIterator[str]:
    """The address of a peer that answers anything with these bytes and hangs up."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(1)
            writer.write(sends)
            await writer.drain()
            writer.write_eof()
            await reader.read()
        except OSError:
            pass  # the far end has hung up
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()[:2]
        yield f"{host}:{port}"


@pytest.mark.parametrize(("scheme", "sends", "what", "right"), PEERS)
async def test_what_answers_is_named_with_what_to_write(scheme: str, sends: bytes, what: str, right: str) -> None:
    plain, _, query = scheme.partition("?")
    async with peer(sends) as place:
        with pytest.raises((ChannelError, BadAnswer)) as caught:
            async with connect(f"{plain}://{place}{query and '?' + query}", timeout=20) as far:
                await far.call("subtract", [42, 23])
    said = str(caught.value)
    assert what in said
    assert right in said
    assert "JSON came" in said or place in said


async def test_noise_before_an_answer_is_not_taken_for_another_protocol() -> None:
    async with (
        peer(b'hello\nHello: 1\n{"jsonrpc":"2.0","id":1,"result":19}\n') as place,
        connect(f"tcp://{place}", timeout=20) as far,
    ):
        assert await far.call("subtract", [42, 23]) == 19


async def test_a_result_of_another_type_names_its_method() -> None:
    async with peer(b'{"jsonrpc":"2.0","id":1,"result":"x"}\n') as place, connect(f"tcp://{place}", timeout=20) as far:
        with pytest.raises(BadAnswer, match=r"subtract: .*does not fit"):
            await far.call("subtract", [42, 23], result=int)


async def test_a_known_error_is_left_as_it_is() -> None:
    async with peer(LINE) as place, connect(f"tcp://{place}", timeout=20) as far:
        with pytest.raises(RpcError, match="Parse error"):
            await far.call("subtract", [42, 23])
