from __future__ import annotations

from typing import Any

import pytest

from dragoman.auth.client.tokens import LONGEST_LIFE, MOST_SCOPES, NoTokens, Tokens, lifetime, tokens_of, union
from dragoman.jsonrpc.errors import LocalError

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
    with pytest.raises(LocalError, match="scopes="):
        union(tuple(str(number) for number in range(MOST_SCOPES + 1)))
