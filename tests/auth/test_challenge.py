from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.auth.challenge import MOST, Challenge, parse_challenges

TCHAR = "!#$%&'*+-.^_`|~" + string.digits + string.ascii_letters


@pytest.mark.parametrize(
    ("text", "challenges"),
    [
        ("", []),
        (" , ,", []),
        ("Negotiate", [("Negotiate", {}, None)]),
        ("Negotiate, Bearer", [("Negotiate", {}, None), ("Bearer", {}, None)]),
        ("Negotiate dG9rZW4=", [("Negotiate", {}, "dG9rZW4=")]),
        ("Negotiate a==, Basic realm=x", [("Negotiate", {}, "a=="), ("Basic", {"realm": "x"}, None)]),
        ('Bearer realm="a, b", scope="x y"', [("Bearer", {"realm": "a, b", "scope": "x y"}, None)]),
        ('Bearer REALM = "a" ,  Scope= b', [("Bearer", {"realm": "a", "scope": "b"}, None)]),
        (r'Bearer realm="say \"hi\" \\"', [("Bearer", {"realm": 'say "hi" \\'}, None)]),
        (
            'Basic realm="x, Bearer resource_metadata=\\"https://evil.example\\"", Bearer resource_metadata="https://ok"',
            [
                ("Basic", {"realm": 'x, Bearer resource_metadata="https://evil.example"'}, None),
                ("Bearer", {"resource_metadata": "https://ok"}, None),
            ],
        ),
        ("Bearer a=1, a=2", [("Bearer", {"a": "1"}, None)]),
        ("Bearer a=1,, b=2,", [("Bearer", {"a": "1", "b": "2"}, None)]),
        # what is not in the grammar ends the reading; what stands before it counts
        ('Bearer a=1 b=2, Basic realm="x"', []),
        ('Basic realm="ok", Bearer scope="never ends', [("Basic", {"realm": "ok"}, None)]),
        ('Bearer scope="never ends', []),
        ("Bearer a=1, =2", [("Bearer", {"a": "1"}, None)]),
        ("Bearer\x00a=1", []),
        ('"Bearer" a=1', []),
        ('DPoP error="use_dpop_nonce", Bearer', [("DPoP", {"error": "use_dpop_nonce"}, None), ("Bearer", {}, None)]),
        ("Digest nonce=,qop=1", [("Digest", {}, "nonce=")]),
    ],
)
def test_a_field_value(text: str, challenges: list[tuple[str, dict[str, str], str | None]]) -> None:
    assert [(one.scheme, dict(one.params), one.token68) for one in parse_challenges(text)] == challenges


def test_several_values_and_the_bound() -> None:
    assert [one.scheme for one in parse_challenges(["Basic", "Bearer x=1"])] == ["Basic", "Bearer"]
    assert len(parse_challenges([f"S{number}" for number in range(100)])) == MOST


def test_scopes_and_schemes() -> None:
    [one] = parse_challenges('bearer scope="a b  a c"')
    assert one.scopes == ("a", "b", "c")
    assert one.of("Bearer")
    assert not one.of("DPoP")


@pytest.mark.parametrize("bad", [Challenge("a b"), Challenge("a", {"b c": ""}), Challenge("a", {"b": "x\r\ny"})])
def test_what_no_field_can_hold_is_not_written(bad: Challenge) -> None:
    with pytest.raises(ValueError):
        bad.text()


_names = st.text(TCHAR, min_size=1, max_size=12)
_values = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x2FF, exclude_characters="\x7f"), max_size=30)
_challenges = st.builds(
    Challenge, _names, st.dictionaries(_names.map(str.lower), _values.map(lambda text: text), min_size=1, max_size=4)
)


@given(st.lists(_challenges, max_size=5))
def test_what_is_written_is_read(challenges: list[Challenge]) -> None:
    assert parse_challenges(", ".join(one.text() for one in challenges)) == challenges


@given(st.text(max_size=200) | st.text('Bearer ,="\\a', max_size=60))
def test_any_text_is_read_without_a_fault(text: str) -> None:
    for one in parse_challenges(text):
        assert one.scheme in text
        assert all("\n" not in value or "\n" in text for value in one.params.values())
