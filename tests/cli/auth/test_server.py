"""`dragoman auth server`: what it says, what it serves, and what it refuses."""

from __future__ import annotations

import json
import signal
import urllib.request

import pytest

from ..conftest import Command


def test_it_serves_says_what_and_ends_by_a_signal(command: Command) -> None:
    process = command.start(
        *("auth", "server", "http://127.0.0.1:0", "--automatic", "bob", "--user", "bob", "--json", "--registration"),
        *("--client", "notes=http://127.0.0.1/callback", "--resource", "https://notes.example/mcp"),
    )
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    assert (said["users"], said["automatic"]) == (["bob"], "bob")
    with urllib.request.urlopen(said["issuer"] + "/.well-known/oauth-authorization-server", timeout=20) as reply:
        found = json.load(reply)
    assert found["issuer"] == said["issuer"]
    assert found["protected_resources"] == ["https://notes.example/mcp"]
    assert found["registration_endpoint"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def test_it_says_that_it_is_not_for_production(command: Command) -> None:
    process = command.start("auth", "server", "http://127.0.0.1:0")
    assert process.stderr is not None
    assert process.stdout is not None
    assert "not for production" in process.stderr.readline()
    assert process.stdout.readline().startswith("issuer")
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["http://0.0.0.0:9000"], "plain HTTP off loopback"),
        (["http://0.0.0.0:9000", "--issuer", "https://as.example"], "plain HTTP off loopback"),
        (["http://127.0.0.1:9000", "--issuer", "http://as.example"], "plain HTTP off loopback"),
        (["tcp://127.0.0.1:9000"], "is not a URL such as"),
        (["--automatic", "carol"], "none of the users"),
        (["--client", "notes"], "ID=REDIRECT"),
        (["--client", "notes=http://app.example"], "only loopback may be"),
        (["--tls-key", "x.pem"], "--tls-key needs --tls-cert"),
        (["--tls-cert", "no-such.pem"], "--tls-cert no-such.pem"),
    ],
    ids=str,
)
def test_what_is_wrong_is_refused_before_anything_listens(command: Command, arguments: list[str], said: str) -> None:
    done = command.run("auth", "server", *arguments)
    assert done.status == 2
    assert said in done.err
