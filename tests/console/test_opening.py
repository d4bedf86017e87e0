"""Where a console listens, who may come there, and how it is found again."""

from __future__ import annotations

import asyncio
import errno
import http.client
import json
import logging
import os
import re
import ssl
from pathlib import Path

import msgspec
import pytest
import trustme

from dragoman import LocalError, Service, connect, serve
from dragoman.auth import Bearer
from dragoman.auth.testing import LocalIssuer
from dragoman.console import ConsoleAddress, read_address, read_listed
from dragoman.console.listing import LONGEST_NAME, folder, listed
from dragoman.system.files import STATE_HOME

from .ends import Ends

RESOURCE = "https://me.example"


def certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    return context


AUTHORITY = trustme.CA()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (9092, ConsoleAddress("127.0.0.1", 9092, loopback=True)),
        ("9092", ConsoleAddress("127.0.0.1", 9092, loopback=True)),
        (":9092", ConsoleAddress("127.0.0.1", 9092, loopback=True)),
        ("localhost:0", ConsoleAddress("127.0.0.1", 0, loopback=True)),
        ("127.8.0.1:65535", ConsoleAddress("127.8.0.1", 65535, loopback=True)),
        ("[::1]:9092", ConsoleAddress("[::1]", 9092, loopback=True)),
        ("0.0.0.0:9092", ConsoleAddress("0.0.0.0", 9092, loopback=False)),
        ("[::]:9092", ConsoleAddress("[::]", 9092, loopback=False)),
        ("10.1.2.3:1", ConsoleAddress("10.1.2.3", 1, loopback=False)),
    ],
)
def test_places(text: str | int, address: ConsoleAddress) -> None:
    assert read_address(text, "console=") == address


@pytest.mark.parametrize(
    "text",
    ["", ":", "x", "127.0.0.1", "127.0.0.1:", ":65536", ":-1", ":9092x", "::1:9092x", "http://127.0.0.1:1", ":٣"],
)
def test_what_is_no_place_is_told_what_would_be(text: str) -> None:
    with pytest.raises(LocalError, match=r"--console .*9092"):
        read_address(text, "--console")


@pytest.mark.parametrize("text", ["example.com:9092", "machine:1", "127.1:9092", "0x7f000001:1"])
def test_a_name_is_no_place(text: str) -> None:
    with pytest.raises(LocalError, match="no address of this machine"):
        read_address(text, "--console")


async def test_it_is_open_while_it_serves_and_is_listed_meanwhile() -> None:
    api = Service("open")
    async with serve(api, urls="tcp://127.0.0.1:0", console=0) as serving:
        assert serving.console is not None
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#[\w-]{43}", serving.console)
        (one,) = read_listed()
        assert (one.name, one.url, one.pid) == ("open", serving.console, os.getpid())
        ends = ends_of(serving.console)
        assert (await ends.get("/api/services"))["services"][0]["name"] == "open"
    assert read_listed() == []
    with pytest.raises(OSError, match=r"refused|Connect"):
        await ends.get("/api/now")
    async with serve(api, urls="tcp://127.0.0.1:0") as serving:
        assert serving.console is None


def test_what_is_listed_is_its_owner_s_alone() -> None:
    with listed("s", "http://127.0.0.1:1/#x"):
        assert [path.stat().st_mode & 0o777 for path in (folder(), *folder().iterdir())] == [0o700, 0o600]


def ends_of(url: str) -> Ends:
    """The ends of a console at its URL."""
    port, _, secret = url.removeprefix("http://127.0.0.1:").partition("/#")
    return Ends(None, None, None, int(port), secret)  # type: ignore[arg-type]


async def test_calls_on_every_wire_are_shown() -> None:
    api = Service("counted")

    @api.method(inline=True)
    def count() -> int:
        return 1

    urls = ["http://127.0.0.1:0", "ws://127.0.0.1:0", "tcp://127.0.0.1:0", "udp://127.0.0.1:0"]
    async with serve(api, urls=urls, console=0) as serving:
        assert serving.console is not None
        for url in serving.urls:
            async with connect(url) as peer:
                assert await peer.call("count") == 1
        rows = (await ends_of(serving.console).get("/api/timeline"))["rows"]
        assert [one["wire"] for one in reversed(rows)] == ["http", "ws", "tcp", "udp"]


@pytest.mark.parametrize("lacking", ["TLS", "auth", "TLS and auth"])
async def test_others_reach_it_only_by_tls_and_with_a_guard(lacking: str) -> None:
    auth = None if "auth" in lacking else Bearer("https://issuer.example", resource=RESOURCE)
    tls = None if "TLS" in lacking else certificate()
    with pytest.raises(LocalError, match=r"others reach this address, and there it needs .*ssh -L"):
        async with serve(Service("s"), urls="http://127.0.0.1:0", tls=tls, auth=auth, console="0.0.0.0:0"):
            pass


async def test_there_callers_show_a_token_and_do_what_its_scopes_allow() -> None:
    with LocalIssuer(resources=[RESOURCE]) as issuer:
        auth = Bearer(issuer.url, resource=RESOURCE)
        async with serve(
            Service("s"), urls="https://127.0.0.1:0", tls=certificate(), auth=auth, console="0.0.0.0:0"
        ) as one:
            assert one.console is not None
            assert one.console.startswith("https://0.0.0.0:")
            assert "#" not in one.console
            port = int(one.console.removeprefix("https://0.0.0.0:").rstrip("/"))
            look = issuer.token("ada", scopes="console:view", resource=RESOURCE)
            stop = issuer.token("ada", scopes="console:view console:stop", resource=RESOURCE)
            nothing = issuer.token("ada", resource=RESOURCE)
            for token, path, status in (
                (None, "/", 200),
                (None, "/api/now", 401),
                ("x" * 40, "/api/now", 401),
                (nothing, "/api/now", 403),
                (look, "/api/now", 200),
                (look, "/api/stop", 403),
                (stop, "/api/stop", 200),
                (stop, "/api/try?at=", 403),
            ):
                got, challenge, _ = await asyncio.to_thread(ask, port, path, token)
                assert (got, path, token) == (status, path, token)
                assert challenge.startswith("Bearer") == (status in (401, 403))
            found = json.loads((await asyncio.to_thread(ask, port, "/api/services", look))[2])
            assert found["may"] == ["console:view"]


def ask(port: int, path: str, token: str | None) -> tuple[int, str, bytes]:
    """Make a request over TLS, a POST where something is done; return status, challenge and body of the answer."""
    trust = ssl.create_default_context()
    AUTHORITY.configure_trust(trust)
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=trust, timeout=30)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    if path.startswith(("/api/stop", "/api/try")):
        connection.request("POST", path, b'{"ids": []}', headers | {"Content-Type": "application/json"})
    else:
        connection.request("GET", path, headers=headers | {"Accept": "text/html"})
    answer = connection.getresponse()
    try:
        return answer.status, answer.headers.get("www-authenticate", ""), answer.read()
    finally:
        answer.close()
        connection.close()


def test_files_of_processes_that_have_ended_are_removed() -> None:
    where = folder()
    where.mkdir(parents=True, mode=0o700)
    gone = where / "1-a.json"
    gone.write_bytes(msgspec.json.encode({"name": "x", "url": "http://127.0.0.1:1/#x", "pid": 2**22 + 1, "began": 0.0}))
    (where / "2-b.json").write_text("{")
    (where / "3-c.json").symlink_to("/etc/passwd")
    assert read_listed() == []
    assert not gone.exists()


async def test_a_folder_of_others_lists_nothing_and_stops_nothing() -> None:
    folder().mkdir(parents=True, mode=0o755)
    folder().chmod(0o755)
    async with serve(Service("s"), urls="tcp://127.0.0.1:0", console=0) as serving:
        assert serving.console is not None
        assert read_listed() == []


async def test_a_folder_that_cannot_be_made_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(STATE_HOME, f"{tmp_path}/file")
    with caplog.at_level(logging.WARNING, "dragoman"), listed("s", "http://127.0.0.1:1/#x"):
        assert read_listed() == []
    (line,) = caplog.messages
    assert "`dragoman console` does not find this console" in line
    assert STATE_HOME in line


@pytest.mark.parametrize("name", ["services " * 1000, "\ud800", "\x00" * 5000], ids=["long", "surrogate", "zeros"])
def test_any_name_is_listed(name: str) -> None:
    with listed(name, "http://127.0.0.1:1/#x"):
        (one,) = read_listed()
    assert one.url == "http://127.0.0.1:1/#x"
    assert 0 < len(one.name) <= LONGEST_NAME
    assert read_listed() == []


def test_a_folder_that_is_gone_meanwhile_ends_nothing(tmp_path: Path) -> None:
    with listed("s", "http://127.0.0.1:1/#x"):
        folder().rename(tmp_path / "elsewhere")
        folder().write_text("")


async def test_a_port_that_is_taken_is_told_to_be_that_of_the_console() -> None:
    async with serve(Service("s"), urls="tcp://127.0.0.1:0") as serving:
        port = int(serving.urls[0].rpartition(":")[2])
        with pytest.raises(LocalError, match=rf"^The console: Cannot listen on .*:{port}: .*in use") as told:
            async with serve(Service("s"), urls="tcp://127.0.0.1:0", console=port):
                pass
    assert isinstance(told.value, OSError)
    assert told.value.errno == errno.EADDRINUSE
