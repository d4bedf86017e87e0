"""URI templates (RFC 6570): what matches, no way out of a root, linear time."""

from __future__ import annotations

import re
import time
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.jsonrpc.errors import LocalError
from dragoman.mcp.protocol.uri import normal
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
    ("Files://{+path}", "files://a/b", {"path": "a/b"}),
    ("x://{name}/B", "x://NAME/B", {"name": "name"}),
    ("x://Host{;Sort}/B", "x://hosT;Sort=Up/B", {"Sort": "up"}),
    ("x://User@{host}/B", "x://User@HOST/B", {"host": "host"}),
    ("x://User@{host}/B", "x://user@HOST/B", None),
    ("{scheme}://Host/x", "HTTP://host/x", {"scheme": "http"}),
    ("file:///café/%7e/{path}", "file:///caf%c3%a9/~/a", {"path": "a"}),
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
    ("q://s?q={q}&r={r}", "q://s?q=a&r=2", {"q": "a", "r": "2"}),
    ("x://{id:3}", "x://abc", {"id": "abc"}),
    ("x://{id:3}", "x://abcd", None),
    ("plain://here", "plain://here", {}),
    ("plain://here", "plain://here/", None),
]


@pytest.mark.parametrize(("template", "uri", "values"), MATCHES)
def test_match(template: str, uri: str, values: dict[str, str] | None) -> None:
    assert parse(template).match(normal(uri)) == values


# -- operators, positions, encodings, spellings

SIMPLE = [
    ("x:///{v}", "x:///%s"),
    ("x:///{v}.txt", "x:///%s.txt"),
    ("x:///n-{v}", "x:///n-%s"),
    ("x:///a/{v}/b", "x:///a/%s/b"),
    ("x:///{w}/{v}", "x:///w/%s"),
    ("x:///r{.v}", "x:///r.%s"),
    ("x:///r{/v}", "x:///r/%s"),
    ("x:///r{/w,v}", "x:///r/w/%s"),
    ("x:///r{;v}", "x:///r;v=%s"),
    ("x:///{v:60}", "x:///%s"),
    ("x:{v}", "x:%s"),
]
WIDE = [
    ("x:///{+v}", "x:///%s"),
    ("x:///a/{+v}", "x:///a/%s"),
    ("x:///{+v}.txt", "x:///%s.txt"),
    ("x:///{+v}{?w}", "x:///%s?w=1"),
    ("x:///r{#v}", "x:///r#%s"),
    ("x:///r{/v*}", "x:///r/%s"),
    ("x:///r{/w,v*}", "x:///r/w/%s"),
]
ASKED = [
    ("x:///r{?v}", "x:///r?v=%s"),
    ("x:///r{?w,v}", "x:///r?w=1&v=%s"),
    ("x:///{w}{?v}", "x:///w?v=%s"),
    ("x:///r?w=1{&v}", "x:///r?w=1&v=%s"),
    ("x:///r?v={v}&w={w}", "x:///r?v=%s&w=1"),
]
KINDS = {"s": SIMPLE, "w": WIDE, "q": ASKED}

# What stands in the URI; the value that comes of it; in which kinds of names it comes ("": nothing matches).
VALUES: list[tuple[str, str, str]] = [
    ("a.txt", "a.txt", "swq"),
    ("%61.t%78t", "a.txt", "swq"),
    ("A%2DZ%5f%7e", "A-Z_~", "swq"),
    ("café", "café", "swq"),
    ("caf%C3%A9", "café", "swq"),
    ("caf%c3%a9", "café", "swq"),
    ("a b", "a b", "swq"),
    ("a%20b", "a b", "swq"),
    ("a+b", "a+b", "swq"),
    ("a%2Bb", "a+b", "swq"),
    ("a%2bb", "a+b", "swq"),
    ("a%3Fb", "a?b", "swq"),
    ("a%23b", "a#b", "swq"),
    ("a%26b%3D", "a&b=", "swq"),
    ("a%0Ab", "a\nb", "swq"),
    ("ab:c", "ab:c", "swq"),
    ("1:c", "1:c", "swq"),
    ("..a", "..a", "swq"),
    ("%2e%2Ea", "..a", "swq"),
    ("a..", "a..", "swq"),
    ("...", "...", "swq"),
    ("%E2%88%95", "\u2215", "swq"),  # looks like a slash, and is none
    # decoded once
    ("%252F", "%2F", "swq"),
    ("%25%32%46", "%2F", "swq"),
    ("%252e%252e", "%2e%2e", "swq"),
    ("%%36%31", "%61", "swq"),
    ("%zz", "%zz", "swq"),
    ("50%", "50%", "swq"),
    # several segments
    ("a/b", "a/b", "w"),
    ("a/%62/c", "a/b/c", "w"),
    ("a/.b/c", "a/.b/c", "w"),
    ("a//b", "a//b", "w"),
    ("a/", "a/", "w"),
    ("a/C:", "a/C:", "w"),
    # an encoded slash
    ("%2F", "", ""),
    ("%2f", "", ""),
    ("a%2Fb", "", ""),
    ("a%2fb", "", ""),
    ("%2Fetc%2Fpasswd", "", ""),
    ("%2fetc/passwd", "", ""),
    ("a/b%2Fc", "", ""),
    ("a%2F..%2F..%2Fetc", "", ""),
    # absolute paths
    ("/etc/passwd", "", ""),
    ("//etc", "", ""),
    ("/", "", ""),
    ("C:", "", ""),
    ("c:a", "", ""),
    ("C%3A", "", ""),
    ("C%3a%5CWindows", "", ""),
    ("%43:/Windows", "", ""),
    # backslashes
    ("\\", "", ""),
    ("a\\b", "", ""),
    ("%5C", "", ""),
    ("a%5cb", "", ""),
    ("..\\..", "", ""),
    ("%5C%5Chost%5Cshare", "", ""),
    # dot segments
    ("..", "", ""),
    ("%2e%2e", "", ""),
    ("%2E.", "", ""),
    (".%2e", "", ""),
    ("%20..%20", "", ""),
    ("../a", "", ""),
    ("a/..", "", ""),
    ("a/../b", "", ""),
    ("a/%2e%2E/b", "", ""),
    ("./a", "", ""),
    ("a/./b", "", ""),
    ("a/%2e", "", ""),
    (".", ".", "q"),
    ("%2e", ".", "q"),
    # no text
    ("\0", "", ""),
    ("a%00b", "", ""),
    ("%ff", "", ""),
    ("%c0%af", "", ""),
    ("%E0%80%AF", "", ""),
    ("%ED%A0%80", "", ""),
]
# The same where the resource has `any_path`.
ANY_PATH: list[tuple[str, str, str]] = [
    ("a", "a", "swq"),
    ("/etc/passwd", "/etc/passwd", "wq"),
    ("//host/share", "//host/share", "wq"),
    ("https://h/a//b", "https://h/a//b", "wq"),
    ("C:/a", "C:/a", "wq"),
    ("C:", "C:", "wq"),
    ("a/b", "a/b", "wq"),
    ("a%2Fb", "a/b", "q"),
    ("%2Fetc", "/etc", "q"),
    ("..", "", ""),
    ("/a/../b", "", ""),
    ("/a/%2e%2e/b", "", ""),
    ("a\\b", "", ""),
    ("a%5Cb", "", ""),
    ("a%00b", "", ""),
]


Row = tuple[str, str, str | None]


def _rows(text: str, value: str, comes: str) -> list[Row]:
    return [
        (template, uri.replace("%s", text), value if kind in comes else None)
        for kind, templates in KINDS.items()
        for template, uri in templates
    ]


def _found(rows: list[Row], *, any_path: bool) -> list[Row]:
    """The rows, with the values that come."""
    found = []
    for template, uri, _ in rows:
        values = parse(template, any_path=any_path).match(normal(uri))
        assert values is None or {*values} <= {"v", "w"}
        found.append((template, uri, (values or {}).get("v")))
    return found


@pytest.mark.parametrize(("text", "value", "comes"), VALUES)
def test_which_value_comes(text: str, value: str, comes: str) -> None:
    rows = _rows(text, value, comes)
    assert _found(rows, any_path=False) == rows


@pytest.mark.parametrize(("text", "value", "comes"), ANY_PATH)
def test_which_path_comes_where_any_may(text: str, value: str, comes: str) -> None:
    rows = _rows(text, value, comes)
    assert _found(rows, any_path=True) == rows


TEXTS = st.text(st.sampled_from("ab.:/\\%25FfCc0é +?#&=") | st.characters(codec="utf-8"), min_size=1, max_size=12)


@given(TEXTS, st.sampled_from([*SIMPLE, *ASKED]), st.booleans())
def test_no_simple_value_has_a_separator(text: str, where: tuple[str, str], quoted: bool) -> None:
    template, uri = where
    found = parse(template).match(normal(uri.replace("%s", quote(text, safe="") if quoted else text))) or {}
    value = found.get("v", "")
    assert not set("/\\\0") & set(value)
    assert value != ".."
    assert re.match("[A-Za-z]:", value) is None


@given(TEXTS, st.sampled_from(WIDE), st.booleans())
def test_no_wide_value_is_absolute(text: str, where: tuple[str, str], quoted: bool) -> None:
    template, uri = where
    found = parse(template).match(normal(uri.replace("%s", quote(text) if quoted else text))) or {}
    value = found.get("v", "")
    assert not set("\\\0") & set(value)
    assert not value.startswith("/")
    assert not {".", ".."} & set(value.split("/"))
    assert re.match("[A-Za-z]:", value) is None


def test_decoded_once() -> None:
    assert parse("x:///{a}").match("x:///%252e%252e") == {"a": "%2e%2e"}


SAFE = st.text(st.characters(exclude_characters="/\\\0", codec="utf-8"), min_size=1, max_size=40).filter(
    lambda text: text.strip() not in (".", "..") and re.match("[A-Za-z]:", text) is None
)


@given(SAFE, SAFE)
def test_back_again(a: str, b: str) -> None:
    """What a client puts in, percent-encoded, comes out."""
    template = parse("x:///{a}/of/{b}")
    assert template.match(normal(f"x:///{quote(a, safe='')}/of/{quote(b, safe='')}")) == {"a": a, "b": b}
    asked = parse("x:///here{?a,b}")
    assert asked.match(normal(f"x:///here?{urlencode({'a': a, 'b': b}, quote_via=quote)}")) == {"a": a, "b": b}


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
        ("file://{+a}", "any_path=True"),
        ("x://{+a}.TXT", "in lower case"),
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
        ("x:///{a}", "X:///" + "%61é" * 15_000),
    ],
)
def test_linear(template: str, uri: str) -> None:
    """A backtracking matcher would need years for these."""
    start = time.process_time()
    parse(template).match(normal(uri))
    assert time.process_time() - start < 5


def test_longest() -> None:
    assert parse("x:///{a}").match("x:///" + "a" * LONGEST) is None
