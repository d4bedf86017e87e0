"""URI templates (RFC 6570): what matches, no way out of a root, linear time."""

from __future__ import annotations

import time
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.jsonrpc.errors import LocalError
from dragoman.mcp.protocol.uri_template import LONGEST, is_template, parse

MATCHES: list[tuple[str, str, dict[str, str] | None]] = [
    ("file:///{path}", "file:///a.txt", {"path": "a.txt"}),
    ("file:///{path}", "file:///a%20b", {"path": "a b"}),
    ("file:///{path}", "file:///%E6%97%A5", {"path": "日"}),
    ("file:///{path}", "file:///日", {"path": "日"}),
    ("file:///{path}", "file:///a/b", None),
    ("file:///{path}", "file:///", None),
    ("file:///{path}", "http:///a", None),
    ("file:///{path}", "file:///a?b", None),
    ("file:///{+path}", "file:///a/b/c.txt", {"path": "a/b/c.txt"}),
    ("file://{+path}", "file:///a/b", {"path": "/a/b"}),
    ("test://template/{id}/data", "test://template/123/data", {"id": "123"}),
    ("test://template/{id}/data", "test://template/1/2/data", None),
    ("test://template/{id}/data", "test://template//data", None),
    ("x://{a}-{b}", "x://p-q-r", {"a": "p-q", "b": "r"}),
    ("x://{+a}-{b}", "x://p-q/r-s", {"a": "p-q/r", "b": "s"}),
    ("x://{a}{b}", "x://abc", {"a": "ab", "b": "c"}),
    ("x://{a}{b}", "x://a", None),
    ("x://{name}.txt", "x://a.txt.txt", {"name": "a.txt"}),
    ("x://{name}.{kind}", "x://a.b.c", {"name": "a.b", "kind": "c"}),
    ("x://{a,b}", "x://1,2", {"a": "1", "b": "2"}),
    ("x://{a}/{a}", "x://1/1", {"a": "1"}),
    ("x://{a}/{a}", "x://1/2", None),
    ("x://r{/a,b}", "x://r/1/2", {"a": "1", "b": "2"}),
    ("x://r{/all*}", "x://r/1/2/3", {"all": "1/2/3"}),
    ("x://r{.kind}", "x://r.json", {"kind": "json"}),
    ("x://r{;a,b}", "x://r;a=1;b=2", {"a": "1", "b": "2"}),
    ("x://r{#part}", "x://r#a/b?c", {"part": "a/b?c"}),
    ("db://t{?a,b}", "db://t?b=2&a=1", {"a": "1", "b": "2"}),
    ("db://t{?a,b}", "db://t?b=x%26y", {"b": "x&y"}),
    ("db://t{?a,b}", "db://t", {}),
    ("db://t{?a,b}", "db://t?a=", {"a": ""}),
    ("db://t{?a,b}", "db://t?c=1", None),
    ("db://t{?a,b}", "db://t?a=1&a=2", None),
    ("db://{t}{?a}", "db://t1?a=1", {"t": "t1", "a": "1"}),
    ("db://t?fixed=1{&a}", "db://t?fixed=1&a=2", {"a": "2"}),
    ("q://s?q={q}&r={r}", "q://s?q=a/b&r=2", {"q": "a/b", "r": "2"}),
    ("x://{id:3}", "x://abc", {"id": "abc"}),
    ("x://{id:3}", "x://abcd", None),
    ("plain://here", "plain://here", {}),
    ("plain://here", "plain://here/", None),
]


@pytest.mark.parametrize(("template", "uri", "values"), MATCHES)
def test_match(template: str, uri: str, values: dict[str, str] | None) -> None:
    assert parse(template).match(uri) == values


ESCAPES = [
    "..",
    "%2e%2e",
    "..%2f..",
    "%2e%2e%2fetc",
    "%2E%2E%2Fetc",
    "a%2f..%2f..%2fetc",
    "..%5c..",
    "a%5Cb",
    "a\\b",
    "a%00b",
    "a\x00b",
    "%2Fetc%2Fpasswd",
    "%20..%20%2fx",
    "%ff",
    "%zz",
    "%",
]


@pytest.mark.parametrize("value", ESCAPES)
@pytest.mark.parametrize("template", ["file:///{path}", "file:///{+path}", "file:///root{/path*}", "file:///r{?path}"])
def test_no_way_out(template: str, value: str) -> None:
    """resources, Security: "Servers MUST sanitize file paths to prevent directory traversal attacks"."""
    uri = template.replace("{path}", value).replace("{+path}", value)
    uri = uri.replace("{/path*}", "/" + value).replace("{?path}", "?path=" + value)
    found = parse(template).match(uri)
    # a value of the query is never a path below a literal
    assert found is None or (template.endswith("{?path}") and found == {"path": "/etc/passwd"})


@pytest.mark.parametrize("value", ["a/../b", "../a", "a/..", "/etc/passwd", "//etc", "a/%2e%2e/b", "a\\..\\b"])
def test_no_way_out_of_many_segments(value: str) -> None:
    assert parse("file:///{+path}").match("file:///" + value) is None


@pytest.mark.parametrize("value", ["..a", "a..", "a..b", ".", "...", ".hidden", "a/.b/c"])
def test_dots_that_lead_nowhere(value: str) -> None:
    assert parse("file:///{+path}").match("file:///" + value) == {"path": value}


def test_decoded_once() -> None:
    assert parse("x:///{a}").match("x:///%252e%252e") == {"a": "%2e%2e"}


SAFE = st.text(st.characters(exclude_characters="\\\0", codec="utf-8"), min_size=1, max_size=40).filter(
    lambda text: not text.startswith("/") and all(part.strip() != ".." for part in text.split("/"))
)


@given(SAFE, SAFE)
def test_back_again(a: str, b: str) -> None:
    """What a client puts in, percent-encoded, comes out."""
    template = parse("x:///{a}/of/{b}")
    assert template.match(f"x:///{quote(a, safe='')}/of/{quote(b, safe='')}") == {"a": a, "b": b}
    asked = parse("x:///here{?a,b}")
    assert asked.match(f"x:///here?{urlencode({'a': a, 'b': b}, quote_via=quote)}") == {"a": a, "b": b}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x://{", "cannot stand"),
        ("x://}", "cannot stand"),
        ("x://{}", "no variable"),
        ("x://{a b}", "no variable"),
        ("x://{a", "cannot stand"),
        ("x://{!a}", "no variable"),
        ("x://{a:0}", "no variable"),
        ("x://a b/{c}", "cannot stand"),
        ("x://%zz/{c}", "cannot stand"),
        ("x://{?a}/b", "come last"),
        ("x://{?a}{b}", "come last"),
    ],
)
def test_what_is_not_a_template(text: str, words: str) -> None:
    with pytest.raises(LocalError, match=words):
        parse(text)


def test_is_template() -> None:
    assert is_template("x://{a}")
    assert is_template("x://a}")
    assert not is_template("x://a")


def test_names() -> None:
    template = parse("x://{a}/{b}/{a}{?c,d}")
    assert template.names == ("a", "b", "c", "d")
    assert template.optional == {"c", "d"}


def test_the_more_specific_comes_first() -> None:
    texts = ["x://{+all}", "x://{a}/{b}", "x://users/{b}", "x://users/{b}/data", "x://users/me"]
    assert sorted(texts, key=lambda text: parse(text).rank) == texts[::-1]


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("x:///{+a}x{+b}x{+c}x{+d}y", "x:///" + "x" * 60_000 + "zy"),
        ("x:///{+a}x{+b}x{+c}x{+d}y", "x:///" + "x" * 60_000 + "\\y"),
        ("x:///{a}{b}{c}{d}{e}", "x:///" + "a" * 60_000 + "/"),
        ("x:///{a}-{b}-{c}-{d}", "x:///" + "-" * 60_000 + "/"),
        ("x:///{+a}{+b}{+c}#", "x:///" + "/" * 60_000),
        ("x:///{a}", "x:///" + "%2e" * 20_000),
        ("x:///{+a}", "x:///" + "../" * 20_000),
        ("x:///{?a,b,c}", "x:///?" + "a&" * 30_000),
    ],
)
def test_linear(template: str, uri: str) -> None:
    """A backtracking matcher would need years for these."""
    start = time.process_time()
    parse(template).match(uri)
    assert time.process_time() - start < 5


def test_longest() -> None:
    assert parse("x:///{a}").match("x:///" + "a" * LONGEST) is None
