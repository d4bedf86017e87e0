"""The safe fetcher: which URLs and addresses it asks, and how much of an answer it takes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import IPv4Address
from typing import Any

import pytest
import trustme

from dragoman.auth.fetch import Fetcher, FetchFailed, FetchRefused
from dragoman.auth.urls import is_loopback
from dragoman.net.address_kinds import kind_of


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("93.184.216.34", "public"),
        ("2606:2800:220:1:248:1893:25c8:1946", "public"),
        ("10.0.0.1", "private"),
        ("172.16.3.4", "private"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "private"),
        ("fd00::1", "private"),
        ("127.0.0.1", "loopback"),
        ("127.9.9.9", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::127.0.0.1", "loopback"),
        ("64:ff9b::7f00:1", "loopback"),
        ("2002:7f00:1::", "loopback"),
        ("::ffff:10.0.0.1", "private"),
        ("64:ff9b::a00:1", "private"),
        ("2002:a00:1::", "private"),
        ("169.254.169.254", "forbidden"),
        ("::ffff:169.254.169.254", "forbidden"),
        ("64:ff9b::a9fe:a9fe", "forbidden"),
        ("2002:a9fe:a9fe::", "forbidden"),
        ("fe80::1", "forbidden"),
        ("fe80::1%eth0", "forbidden"),
        ("0.0.0.0", "forbidden"),
        ("0.1.2.3", "forbidden"),
        ("::", "forbidden"),
        ("224.0.0.1", "forbidden"),
        ("ff02::1", "forbidden"),
        ("255.255.255.255", "forbidden"),
        ("240.0.0.1", "forbidden"),
        ("168.63.129.16", "forbidden"),
        ("168.63.129.17", "public"),
        ("100.100.100.200", "forbidden"),
        ("192.0.0.192", "forbidden"),
        ("192.0.0.170", "private"),
        ("192.0.2.1", "private"),
        ("192.88.99.1", "private"),
        ("198.18.0.1", "private"),
        ("203.0.113.9", "private"),
        ("fec0::1", "private"),
        ("fc00::1", "private"),
        ("fd00:ec2::254", "forbidden"),
        ("fd20:ce::254", "forbidden"),
        ("fd00:c1::a9fe:a9fe", "forbidden"),
        ("2001:db8::1", "private"),
        ("3fff::1", "private"),
        ("2001:10::1", "private"),
        ("100::1", "private"),
        ("5f00::1", "private"),
        ("4000::1", "private"),
        ("2001:4860:4860::8888", "public"),
        ("2a00:1450:4001:81b::200e", "public"),
        # ISATAP: what it is, and the IPv4 address in it
        ("2a00:1450::5efe:a9fe:a9fe", "forbidden"),
        ("2a00:1450::200:5efe:a00:1", "private"),
        ("2a00:1450::5efe:808:808", "public"),
        # a NAT64 prefix of 48 bits: both places in which the address may be
        ("64:ff9b:1:a9fe:a9:fe00:0:1", "forbidden"),
        ("64:ff9b:1:808:8:800:808:808", "public"),
        # Teredo: the server, and the client's address, of which each bit is turned
        ("2001:0:a9fe:a9fe::f7f7:f7f7", "forbidden"),
    ],
)
def test_kinds_of_addresses(address: str, kind: str) -> None:
    assert kind_of(address) == kind


INSIDE = {
    "mapped": lambda ip: f"::ffff:{ip}",
    "in hex": lambda ip: f"::ffff:{int(ip) >> 16:x}:{int(ip) & 0xFFFF:x}",
    "compatible": lambda ip: f"::{ip}",
    "translated": lambda ip: f"::ffff:0:{ip}",
    "NAT64": lambda ip: f"64:ff9b::{ip}",
    "NAT64 of a network": lambda ip: f"64:ff9b:1:808:8:800:{ip}",
    "6to4": lambda ip: f"2002:{int(ip) >> 16:x}:{int(ip) & 0xFFFF:x}::1",
    "Teredo": lambda ip: f"2001:0:808:808::{~int(ip) >> 16 & 0xFFFF:x}:{~int(ip) & 0xFFFF:x}",
    "with a zone": lambda ip: f"::ffff:{ip}%eth0",
}
"""The spellings of an IPv4 address as one of IPv6."""


@pytest.mark.parametrize("spelling", INSIDE)
@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("8.8.8.8", "public"),
        ("10.1.2.3", "private"),
        ("192.168.3.4", "private"),
        ("100.64.0.1", "private"),
        ("192.0.0.170", "private"),
        ("127.0.0.1", "loopback"),
        ("169.254.169.254", "forbidden"),
        ("168.63.129.16", "forbidden"),
        ("192.0.0.192", "forbidden"),
        ("100.100.100.200", "forbidden"),
        ("224.0.0.1", "forbidden"),
        ("255.255.255.255", "forbidden"),
    ],
)
def test_an_address_in_another_is_what_it_leads_to(spelling: str, address: str, kind: str) -> None:
    assert kind_of(INSIDE[spelling](IPv4Address(address))) == kind


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "a.localhost", "127.0.0.1", "127.1.1.1", "::1"])
def test_loopback_as_written(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["localhost.evil.example", "10.0.0.1", "0177.0.0.1", "", "example.com"])
def test_not_loopback_as_written(host: str) -> None:
    assert not is_loopback(host)


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Every name resolves to these addresses, at each question to the next; returns who was asked for."""
    asked: list[str] = []

    async def getaddrinfo(self: Any, host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        found = answers[min(len(asked), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return asked


@pytest.mark.parametrize(
    ("url", "address", "by", "origin"),
    [
        ("http://as.example/x", "93.184.216.34", "operator", None),
        ("ftp://as.example/x", "93.184.216.34", "operator", None),
        ("file:///etc/passwd", "", "operator", None),
        ("javascript:alert(1)", "", "operator", None),
        ("https://", "", "operator", None),
        ("https://user:secret@as.example/x", "93.184.216.34", "operator", None),
        ("https://as.example/x#f", "93.184.216.34", "operator", None),
        ("https://as.example/a b", "93.184.216.34", "operator", None),
        ("https://as.example/x", "169.254.169.254", "operator", None),
        ("https://as.example/x", "0.0.0.0", "operator", None),
        ("https://as.example/x", "10.0.0.1", "document", None),
        ("https://as.example/x", "10.0.0.1", "document", "https://mcp.example/mcp"),
        ("https://as.example/x", "10.0.0.1", "document", "https://as.example:8443/mcp"),
        ("https://as.example/x", "10.0.0.1", "document", "http://as.example/mcp"),
        ("https://as.example/x", "127.0.0.1", "document", "https://mcp.example/mcp"),
        ("https://as.example/x", "::ffff:127.0.0.1", "document", "https://mcp.example/mcp"),
        ("https://as.example/x", "64:ff9b::7f00:1", "document", "https://mcp.example/mcp"),
        ("https://0177.0.0.1/x", "127.0.0.1", "document", "https://mcp.example/mcp"),
        ("https://2130706433/x", "127.0.0.1", "document", "https://mcp.example/mcp"),
        ("https://127.0.0.1/x", "127.0.0.1", "document", "https://mcp.example/mcp"),
        ("http://localhost/x", "127.0.0.1", "document", "https://mcp.example/mcp"),
        ("http://localhost.evil.example/x", "127.0.0.1", "document", "http://localhost/mcp"),
        ("http://localhost/x", "10.0.0.1", "document", "http://localhost/mcp"),
        ("https://a.example/x", "10.0.0.1", "document", "http://127.0.0.1:3000/mcp"),
    ],
)
async def test_what_is_not_fetched(
    monkeypatch: pytest.MonkeyPatch, url: str, address: str, by: Any, origin: str | None
) -> None:
    resolving(monkeypatch, [address])
    with pytest.raises(FetchRefused) as refused:
        await Fetcher().get(url, by=by, origin=origin)
    assert "secret" not in str(refused.value)
    with pytest.raises(FetchRefused):
        await Fetcher().post_form(url, {"a": "b"}, by=by, origin=origin)


async def test_one_bad_address_of_several_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, ["93.184.216.34", "10.0.0.1"])
    with pytest.raises(FetchRefused, match=r"10\.0\.0\.1"):
        await Fetcher().get("https://as.example/x")


async def test_a_document_may_name_trusted_hosts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = resolving(monkeypatch, ["93.184.216.34"])
    with pytest.raises(FetchRefused, match="trusted"):
        await Fetcher(trusted_hosts=["ok.example"]).get("https://as.example/x")
    assert asked == []


# -- a real server on loopback

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


def replying(*replies: bytes, seen: list[bytes]) -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0)
        seen.append(head + await reader.readexactly(length))
        writer.write(replies[min(len(seen), len(replies)) - 1])

    return handler


OK = b'HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n{"a":1}'


async def test_a_document_and_a_form() -> None:
    seen: list[bytes] = []
    async with served(replying(OK, seen=seen)) as url:
        got = await Fetcher().get(f"{url}/x?y=1", by="operator")
        assert (got.status, got.json) == (200, {"a": 1})
        got = await Fetcher().post_form(f"{url}/t", {"a": "b c", "d": "&"}, by="document", origin=f"{url}/mcp")
        assert got.status == 200
    assert seen[0].startswith(b"GET /x?y=1 HTTP/1.1\r\n")
    assert seen[1].endswith(b"\r\n\r\na=b+c&d=%26")
    assert b"content-type: application/x-www-form-urlencoded" in seen[1]


async def test_an_answer_that_breaks_off_was_an_answer() -> None:
    """A form is sent to no second address of a host that took it: its code or refresh token is spent."""
    seen: list[bytes] = []
    broken = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nxyz"
    async with served(replying(broken, seen=seen)) as url:
        with pytest.raises(FetchFailed) as failed:
            await Fetcher().post_form(f"{url}/t", {"code": "c"}, by="operator")
    assert failed.value.sent
    assert len(seen) == 1


async def test_behind_a_proxy_no_name_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks with a proxy often resolve no names outside."""
    seen: list[bytes] = []

    async def nowhere(*_: Any, **__: Any) -> Any:
        raise socket.gaierror("no such name")

    async with served(replying(b"HTTP/1.1 502 No\r\n\r\n", seen=seen)) as url:
        monkeypatch.setenv("https_proxy", url)
        monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", nowhere)
        with pytest.raises(FetchFailed, match="by way of the proxy"):
            await Fetcher(environment_proxies=True).get("https://as.example/x")
        with pytest.raises(FetchFailed, match="no address"):
            await Fetcher().get("https://as.example/x")
    version = b"1.1" if sys.version_info >= (3, 12) else b"1.0"
    assert [one.split(b"\r\n")[0] for one in seen] == [b"CONNECT as.example:443 HTTP/" + version]


@pytest.mark.parametrize("proxied", [True, False])
@pytest.mark.parametrize("known", [True, False])
async def test_the_given_context_decides_whom_to_trust_also_behind_a_proxy(
    proxied: bool, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, seen, tunnels, ended = trustme.CA(), list[bytes](), list[bytes](), asyncio.Event()
    ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(ours)
    theirs = ssl.create_default_context()
    if known:
        authority.configure_trust(theirs)

    async def origin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await replying(OK, seen=seen)(reader, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(origin, "127.0.0.1", 0, ssl=ours)
    port = server.sockets[0].getsockname()[1]

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tunnels.append(await reader.readuntil(b"\r\n\r\n"))
        far, out = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(pump(reader, out), pump(far, writer))
        with contextlib.suppress(ConnectionError):
            await out.wait_closed()
        ended.set()

    for name in ("no_proxy", "NO_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with server, served(tunnel) as proxy:
        if proxied:
            monkeypatch.setenv("https_proxy", proxy)
        fetching = Fetcher(environment_proxies=True, tls=theirs).get(f"https://localhost:{port}/", by="operator")
        if known:
            assert (await fetching).json == {"a": 1}
        else:
            with pytest.raises(FetchFailed, match=r"(?i)certificate|tls"):
                await fetching
        if proxied:
            await ended.wait()
    assert len(tunnels) == proxied
    assert len(seen) == known


@pytest.mark.parametrize(
    "answer",
    [b"not HTTP\r\n\r\n", *(b"HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab" % n for n in (200, 500))],
)
async def test_an_answer_of_a_proxy_that_cannot_be_read_is_a_failure_like_others(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with served(replying(answer, seen=[])) as url:
        monkeypatch.setenv("http_proxy", url)
        with pytest.raises(FetchFailed, match="by way of the proxy"):
            await Fetcher(environment_proxies=True).get("http://127.0.0.1:9/x", by="operator")


async def test_the_connection_goes_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that changes its address between the check and the connection is not asked again."""
    seen: list[bytes] = []
    async with served(replying(OK, seen=seen)) as url:
        asked = resolving(monkeypatch, ["127.0.0.1"], ["169.254.169.254"])
        port = url.rpartition(":")[2]
        await Fetcher().get(f"http://localhost:{port}/", by="operator")
    assert [host for host in asked if host == "localhost"] == ["localhost"]
    assert b"host: localhost:" in seen[0]


async def test_each_hop_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    away = b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/latest\r\ncontent-length: 0\r\n\r\n"
    async with served(replying(away, seen=seen)) as url:
        with pytest.raises(FetchRefused, match=r"169\.254"):
            await Fetcher().get(f"{url}/", by="operator", origin=url)
    assert len(seen) == 1


async def test_a_redirect_to_what_is_no_url_is_refused() -> None:
    async with served(
        replying(b"HTTP/1.1 302 Found\r\nlocation: https://[\r\ncontent-length: 0\r\n\r\n", seen=[])
    ) as url:
        with pytest.raises(FetchRefused, match="redirects to what is not a URL"):
            await Fetcher().get(f"{url}/", by="operator", origin=url)


async def test_redirects_are_bounded_and_a_post_follows_none() -> None:
    seen: list[bytes] = []
    round_and_round = b"HTTP/1.1 307 There\r\nlocation: /again\r\ncontent-length: 0\r\n\r\n"
    async with served(replying(round_and_round, seen=seen)) as url:
        with pytest.raises(FetchFailed, match="redirects"):
            await Fetcher().get(f"{url}/", by="operator", origin=url)
        assert len(seen) == 4
        assert (await Fetcher().get(f"{url}/", by="operator", redirects=0)).status == 307
        assert (await Fetcher().post_form(f"{url}/", {}, by="operator")).status == 307


@pytest.mark.parametrize("head", [b"content-length: 1000000\r\n", b"transfer-encoding: chunked\r\n"])
async def test_what_never_ends_is_cut_off(head: bytes) -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")
        while True:
            writer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
            await writer.drain()

    async with served(endless) as url:
        with pytest.raises(FetchFailed):
            await Fetcher(limit=10_000).get(f"{url}/", by="operator")


async def test_what_does_not_answer_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with served(silent) as url:
        with pytest.raises(FetchFailed, match="within"):
            await Fetcher(timeout=0.05).get(f"{url}/", by="operator")
    with pytest.raises(FetchFailed):
        await Fetcher().get(f"{url}/", by="operator")
