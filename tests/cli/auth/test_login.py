"""The commands of logins, against the authorization server for tests and a server that asks for its tokens."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.auth.engine.model import Client
from dragoman.auth.testing import LocalIssuer
from dragoman.cli.app import build
from dragoman.cli.commands import COMMANDS

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
            "LOCALAPPDATA": str(home / "state"),
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
            "BROWSER": f"{Path(sys.executable).as_posix()} {(home / 'browser.py').as_posix()} %s",
        }

    def __call__(self, *words: str) -> Done:
        return self.command.run(*words, env=self.env)


class Wrong(Protected):
    """A server that answers each call with 400."""

    async def _answered(self, path: str, fields: list[str], body: bytes) -> tuple[int, dict[str, str], Any]:
        return 400, {}, {}


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


def test_the_doctor_uses_what_is_stored(server: Protected, dragoman: User) -> None:
    done = dragoman("doctor", server.url)
    assert (done.status, "dragoman login" in done.out) == (1, True), done
    assert dragoman("login", server.url).status == 0
    server.tokens.clear()
    done = dragoman("doctor", server.url)
    assert ("ok     http" in done.out, "dragoman login" in done.out) == (True, False), done
    assert server.tokens
    assert None not in server.tokens


def test_each_command_calls_as_the_account_that_is_named(server: Protected, dragoman: User) -> None:
    """The second login is another one, and the commands that call know both."""
    assert dragoman("login", server.url).status == 0
    assert dragoman("login", server.url, "--account", "work").status == 0
    used = {}
    for account in ("default", "work"):
        server.tokens.clear()
        done = dragoman("call", server.url, "echo", "1", "--account", account)
        assert (done.status, done.out.strip()) == (0, "[1]"), done.err
        (used[account],) = set(server.tokens)
    assert len({*used.values(), None}) == 3
    server.tokens.clear()
    assert dragoman("auth", "explain", server.url, "--account", "work").status == 0
    assert set(server.tokens) == {used["work"], None}  # explain asks without one first
    none = dragoman("call", server.url, "echo", "--account", "none")
    assert (none.status, "dragoman login" in none.err) == (3, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tcp://127.0.0.1:1", "echo"], "logins are for servers at http and https URLs"),
        (["http://127.0.0.1:1", "echo", "--bearer", "x"], "--account and --user or --bearer exclude each other"),
        (["http://127.0.0.1:1", "echo", "-H", "Authorization: x"], "there is an Authorization header already"),
    ],
)
def test_an_account_where_there_is_none(dragoman: User, words: list[str], said: str) -> None:
    done = dragoman("call", *words, "--account", "work")
    assert (done.status, said in done.err) == (2, True), done.err


WITHOUT_A_CALL = "serve check tokens new demo completion top console"
"""Commands that call no server that may ask for a login; all others know accounts and certificates."""


@pytest.mark.parametrize("name", sorted({*COMMANDS} - {*WITHOUT_A_CALL.split(), "auth"}))
def test_every_command_that_may_log_in_knows_accounts_and_certificates(name: str) -> None:
    names = {one for argument in build()[name].assemble_argument_collection() for one in argument.names}
    assert {"--account", *(["--ca"] if name != "whoami" else [])} <= names


def test_logout_ends_the_logins_of_all_clients_or_of_one(dragoman: User) -> None:
    clients = [Client(id=name, redirect_uris=("http://127.0.0.1/callback",)) for name in ("mine", "other")]
    with LocalIssuer(clients=clients) as issuer, Protected(issuer, lambda token: True) as server:
        for client in clients:
            assert dragoman("login", server.url, "--client-id", client.id).status == 0
        assert dragoman("login", server.url).status == 0
        assert len(dragoman("tokens", "--json").json["tokens"]) == 3
        assert dragoman("logout", server.url, "--client-id", "none").status == 2
        done = dragoman("logout", server.url, "--client-id", "mine", "--json")
        assert (done.status, done.json["ended"], done.json["revoked"]) == (0, 1, True)
        left = {one["client_id"] for one in dragoman("tokens", "--json").json["tokens"]}
        assert len(left) == 2
        assert "mine" not in left
        done = dragoman("logout", server.url, "--json")
        assert (done.status, done.json["ended"], done.json["revoked"]) == (0, 2, True)
        assert dragoman("tokens", "--json").json["tokens"] == []


def test_logout_says_that_tokens_are_still_good(dragoman: User) -> None:
    with LocalIssuer() as issuer, Protected(issuer, lambda token: True) as server:
        assert dragoman("login", server.url).status == 0
    done = dragoman("logout", server.url)
    assert done.status == 1
    assert "did not revoke the tokens: they are good until they expire" in done.err
    assert dragoman("tokens", "--json").json["tokens"] == []


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


def test_explain_tells_an_answer_that_is_no_challenge(dragoman: User) -> None:
    with LocalIssuer() as issuer, Wrong(issuer, lambda token: True) as server:
        done = dragoman("auth", "explain", server.url)
    assert (done.status, "HTTP 400" in done.out, "what to do" in done.out) == (1, True, True), done


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
