from __future__ import annotations

from typing import Any

import pytest

from dragoman.auth.client.errors import AuthorizationFailed
from dragoman.auth.client.tokens import (
    LONGEST_LIFE,
    MOST_SCOPES,
    Grant,
    NoTokens,
    Registration,
    Tokens,
    lifetime,
    tokens_of,
    union,
)
from dragoman.auth.metadata import ServerMetadata

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (3600, 3600.0),
        (1, 1.0),
        (3599.9, 3599.0),
        ("3600", 3600.0),
        (" 60 ", 60.0),
        (10**30, LONGEST_LIFE),
        (1e300, LONGEST_LIFE),
        (None, None),
        (0, None),
        (0.5, None),
        (-1, None),
        ("", None),
        ("-5", None),
        ("soon", None),
        ("1e3", None),
        ("9" * 30, None),
        (True, None),
        ([3600], None),
        (float("nan"), None),
    ],
)
def test_what_expires_in_says(said: Any, seconds: float | None) -> None:
    assert lifetime(said) == seconds


def test_it_is_renewed_before_it_expires_and_not_at_once() -> None:
    long = tokens_of({"access_token": "t", "expires_in": 3600}, NOW, ())
    assert (long.expires_at, long.renew_at) == (NOW + 3600, NOW + 3570)
    short = tokens_of({"access_token": "t", "expires_in": 10}, NOW, ())
    assert short.renew_at == NOW + 5


@pytest.mark.parametrize(
    "answer",
    [None, [], "t", {}, {"access_token": ""}, {"access_token": 5}, {"access_token": "a b"}, {"access_token": "a\nb"}]
    + [{"access_token": "t", "token_type": kind} for kind in ("mac", 5, "N_A")],
)
def test_what_is_no_answer_of_a_token_endpoint(answer: Any) -> None:
    with pytest.raises(NoTokens):
        tokens_of(answer, NOW, ())


def test_a_refresh_keeps_what_it_does_not_replace() -> None:
    before = Tokens(access_token="a", refresh_token="r", scopes=("x",))
    assert tokens_of({"access_token": "b"}, NOW, (), before).refresh_token == "r"
    assert tokens_of({"access_token": "b"}, NOW, (), before).scopes == ("x",)
    assert tokens_of({"access_token": "b", "refresh_token": "s"}, NOW, (), before).refresh_token == "s"


def test_nothing_secret_is_shown() -> None:
    assert "secret" not in repr(Tokens(access_token="secret", refresh_token="secret", id_token="secret"))


def test_the_union_is_bounded() -> None:
    assert union(("a", "b"), ("b", "c")) == ("a", "b", "c")
    with pytest.raises(AuthorizationFailed, match="scopes="):
        union(tuple(str(number) for number in range(MOST_SCOPES + 1)))


@pytest.mark.parametrize(
    ("secret", "expires_at", "expired"),
    [("s", 0.0, False), ("s", NOW - 1, True), ("s", NOW, True), ("s", NOW + 1, False), (None, NOW - 1, False)],
)
def test_a_secret_expires_when_its_server_said(secret: str | None, expires_at: float, expired: bool) -> None:
    client = Registration(client_id="c", client_secret=secret, secret_expires_at=expires_at)
    assert client.expired(NOW) is expired
    assert Registration(client_id="c", client_secret=secret).expired(NOW) is False


@pytest.mark.parametrize("resource", [None, "https://a.example/mcp", "https://b.example/mcp"])
def test_each_resource_has_an_entry_of_its_own(resource: str | None) -> None:
    server = ServerMetadata(issuer="https://as.example", token_endpoint="https://as.example/token")
    grant = Grant(url="https://a.example/mcp", server=server, resource=resource, client=Registration(client_id="c"))
    key = grant.key("hint")
    assert (key.issuer, key.resource, key.account) == ("https://as.example", resource or "none", "default")


@pytest.mark.parametrize(("kind", "shown"), [("DPoP", "DPoP"), ("dpop", "DPoP"), ("bearer", "Bearer")])
def test_the_type_of_a_token_is_what_its_server_said(kind: str, shown: str) -> None:
    assert tokens_of({"access_token": "t", "token_type": kind}, NOW, ()).token_type == shown
