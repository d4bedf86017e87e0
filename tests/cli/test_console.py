"""`dragoman serve --console` and `dragoman console`: the page's URL is found by its user, and is in no log."""

from __future__ import annotations

import http.client
import json
import re
from urllib.parse import urlsplit

import pytest

from .conftest import Command
from .test_serve import until

URL = re.compile(r"http://127\.0\.0\.1:\d+/#[\w-]{43}")


def ask(url: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Make a request of a console, with the secret in its URL."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=60)
    try:
        headers = {"Authorization": f"Bearer {parts.fragment}", "Content-Type": "application/json"}
        connection.request("GET" if body is None else "POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("more", [[], ["--workers", "2"], ["--admin", ":0", "--metrics", ":0"]])
def test_a_console_is_found_and_calls(command: Command, more: list[str]) -> None:
    server = command.start("serve", "calculator", "http://127.0.0.1:0", "--console", "0", "--console-messages", *more)
    said = until(server.stderr, "dragoman console prints its URL with the secret")
    assert URL.search(said) is None
    (found,) = command.run("console", "--json").json
    assert URL.fullmatch(found["url"])
    port = urlsplit(found["url"]).port
    elsewhere = command.run("console", "1")
    assert (
        elsewhere.status,
        f"no console at port 1 of this user runs here; there are some at {port}" in elsewhere.err,
    ) == (
        2,
        True,
    )
    printed = command.run("console", "--print")
    assert (printed.status, found["url"] in printed.out) == (0, True)
    assert b"dragoman console" in ask(found["url"], "/")[1]
    message = b'{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}'
    assert json.loads(ask(found["url"], "/api/try?at=/", message)[1])["result"] == 19
    rows = json.loads(ask(found["url"], "/api/timeline")[1])["rows"]
    assert [(one["method"], one["wire"]) for one in rows] == [("subtract", "console")]
    kept = json.loads(ask(found["url"], "/api/messages")[1])
    assert [one["method"] for one in kept["messages"]] == ["subtract", "subtract"]
    server.terminate()
    assert server.wait(60) == 0
    assert command.run("console", "--json").json == []
    gone = command.run("console")
    assert (gone.status, "no console of this user runs here" in gone.err) == (2, True)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("x", "write a port, as in 9092"),
        ("example.com:9092", "is no address of this machine"),
        ("0.0.0.0:9092", "needs a certificate for TLS and auth"),
        (":70000", "a port is 0 to 65535"),
    ],
)
def test_a_place_where_it_may_not_be_is_told_at_once(command: Command, place: str, words: str) -> None:
    for more in ([], ["--workers", "2"]):
        done = command.run("serve", "calculator", "--console", place, *more)
        assert (done.status, words in done.err) == (2, True), done.err


def test_where_it_cannot_be_found_it_is_not_told_that_it_is(command: Command) -> None:
    (command.folder / "file").write_text("")
    unwritable = dict.fromkeys(("XDG_STATE_HOME", "LOCALAPPDATA"), f"{command.folder}/file")
    server = command.start("serve", "calculator", "http://127.0.0.1:0", "--console", "0", env=unwritable)
    until(server.stderr, "`dragoman console` does not find this console")
    assert "prints its URL" not in until(server.stderr, "console at http://127.0.0.1:")
