"""The commands of logins, against the authorization server for tests and a server that asks for its tokens."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.auth.testing import LocalIssuer

from ...auth.client.protected import Protected
from ..conftest import Command, Done

BROWSER = """
import http.client, sys
from urllib.parse import urlsplit
url = sys.argv[1]
for _ in range(5):
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.netloc, timeout=10)
    connection.request("GET", f"{place.path}?{place.query}")
    url = connection.getresponse().getheader("location")
    if url is None:
        break
"""
"""The browser of a user who says yes, and follows to the end."""


class User:
    """Runs commands as a user with a home, a browser and no keyring."""

    def __init__(self, command: Command, home: Path) -> None:
        self.command = command
        (home / "browser.py").write_text(BROWSER)
        self.env = {
            "XDG_STATE_HOME": str(home / "state"),
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
            "BROWSER": f"{sys.executable} {home / 'browser.py'} %s",
        }

    def __call__(self, *words: str) -> Done:
        return self.command.run(*words, env=self.env)


@pytest.fixture
def dragoman(command: Command, tmp_path: Path) -> User:
    return User(command, tmp_path)


@pytest.fixture
def server() -> Iterator[Protected]:
    with LocalIssuer() as issuer, Protected(issuer, lambda token: True) as made:
        yield made


def test_login_and_out(server: Protected, dragoman: User) -> None:
    done = dragoman("whoami", server.url)
    assert (done.status, "dragoman login" in done.err) == (2, True)
    done = dragoman("login", server.url)
    assert done.status == 0, done.err
    assert "open this URL" in done.err
    assert "alice" in done.out
    done = dragoman("whoami", server.url, "--json")
    shown = json.loads(done.out)
    assert (shown["subject"], shown["logged_in"], shown["client"]) == ("alice", True, "registered")
    done = dragoman("tokens")
    assert server.url in done.out
    assert "not sealed" in done.err
    done = dragoman("auth", "explain", server.url)
    assert done.status == 0, done.out
    for words in ("HTTP 401", "resource_metadata", "S256", "with the token: HTTP 200"):
        assert words in done.out
    tokens = {token for token in server.tokens if token}
    assert tokens
    for output in (done.out, done.err, dragoman("tokens", "--json").out):
        assert not any(token in output for token in tokens)
    assert dragoman("logout", server.url).status == 0
    assert dragoman("logout", server.url).status == 2
    assert dragoman("tokens").err.startswith("no logins")


def test_a_command_says_what_to_do_when_nobody_is_there(server: Protected, dragoman: User) -> None:
    done = dragoman("call", server.url, "echo", "1")
    assert done.status == 3
    assert f"dragoman login {server.url}" in done.err
    assert f"to find out why: dragoman auth explain {server.url}" in done.err


def test_a_command_uses_what_is_stored(server: Protected, dragoman: User) -> None:
    assert dragoman("login", server.url).status == 0
    server.tokens.clear()
    done = dragoman("call", server.url, "echo", "1")
    assert (done.status, done.out.strip()) == (0, "[1]"), done.err
    assert None not in server.tokens


def test_explain_says_why(dragoman: User) -> None:
    with LocalIssuer(path="/tenant") as issuer, Protected(issuer, lambda token: True) as server:
        real, wrong = issuer.url, issuer.url + "/"
        done = dragoman("auth", "explain", server.url)
        assert done.status == 0, done.out
        assert real in done.out
        assert "none is stored" in done.out

        class Other:
            url = wrong

        server.issuer = Other()  # type: ignore[assignment]
        done = dragoman("auth", "explain", server.url, "--json")
        assert done.status == 1
        assert "issuer=" in json.loads(done.out)["steps"][-1]["said"]


def test_a_server_that_asks_for_nothing(dragoman: User, server: Protected) -> None:
    server.takes_none = True
    done = dragoman("login", server.url)
    assert (done.status, "asks for no login" in done.err) == (1, True)
    done = dragoman("login", server.url, "--json")
    assert (done.status, "asks for no login" in done.json["error"]["message"]) == (1, True)


@pytest.mark.parametrize("words", ["login", "auth explain"])
def test_a_server_that_is_not_there(dragoman: User, words: str) -> None:
    done = dragoman(*words.split(), "http://127.0.0.1:1")
    assert (done.status, "connection refused" in done.err) == (3, True)
