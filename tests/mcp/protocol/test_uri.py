"""The normal form of URIs (RFC 3986, section 6.2.2): one for all spellings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.mcp.protocol.uri import normal, plain
from dragoman.mcp.protocol.uri_template import normal_reference

NORMAL = [
    ("config://app", "config://app"),
    ("Config://App", "config://app"),
    ("config://%61pp", "config://app"),
    ("config://%41pp", "config://app"),
    ("CONFIG:App", "config:App"),
    ("urn:ISBN:0-395-36341-1", "urn:ISBN:0-395-36341-1"),
    ("x:///Admin/%7Euser%2D%2e", "x:///Admin/~user-."),
    ("x:///a%2fb", "x:///a%2Fb"),
    ("x:///a%2Fb", "x:///a%2Fb"),
    ("x:///caf\u00e9", "x:///caf%C3%A9"),
    ("x:///caf%c3%a9", "x:///caf%C3%A9"),
    ("x:///\U0001f600", "x:///%F0%9F%98%80"),
    ("x://H%c3%89/A", "x://h%C3%89/A"),
    ("x://User:Pass@Host:80/A", "x://User:Pass@host:80/A"),
    ("x://A@B@C", "x://A@B@c"),
    ("x://[FE80::1]/A", "x://[fe80::1]/A"),
    ("x://HOST?Q=%7e#F%2d", "x://host?Q=~#F-"),
    ("x:///a b", "x:///a%20b"),
    ("x:///a\\b", "x:///a%5Cb"),
    ("x:///a\0b\n", "x:///a%00b%0A"),
    ('x:///<a>{b}|^`"', "x:///%3Ca%3E%7Bb%7D%7C%5E%60%22"),
    ("x:///%", "x:///%25"),
    ("x:///%zz", "x:///%25zz"),
    ("x:///%%36%31", "x:///%2561"),
    ("x:///%ff", "x:///%FF"),
    ("x:///a/../b", "x:///a/../b"),
    ("x:///a/%2e%2E/b", "x:///a/../b"),
    ("x:///\ud800", "x:///%ED%A0%80"),
    ("X:", "x:"),
    ("", ""),
    ("no uri", "no%20uri"),
    ("A/b", "A/b"),
]


@pytest.mark.parametrize(("uri", "form"), NORMAL)
def test_normal(uri: str, form: str) -> None:
    assert normal(uri) == form
    assert normal(form) is form or normal(form) == form


@given(st.text())
def test_every_text_has_one(text: str) -> None:
    form = normal(text)
    assert normal(form) == form
    assert form.isascii()


PLAIN = [
    ("x:///a/b", "x:///a/b"),
    ("x:///a//b", "x:///a/b"),
    ("x:///a///b//", "x:///a/b"),
    ("x:////a", "x:///a"),
    ("x:///a/", "x:///a"),
    ("x:///", "x:///"),
    ("x://h/", "x://h"),
    ("x://h//a", "x://h/a"),
    ("x:a//b", "x:a/b"),
    ("x:///a%2Bb", "x:///a+b"),
    ("x:///a%2Fb%3F%25", "x:///a%2Fb%3F%25"),
    ("x:///a/?b=c%26//", "x:///a?b=c%26//"),
    ("x:///a//#b//", "x:///a#b//"),
]


@pytest.mark.parametrize(("uri", "form"), PLAIN)
def test_as_a_function_might_read_it(uri: str, form: str) -> None:
    assert plain(uri) == form
    assert plain(form) == form


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("X://Host/caf\u00e9/{+Path}{?Page}", "x://host/caf%C3%A9/{+Path}{?Page}"),
        ("X://{Host}.Example/A", "x://{Host}.example/A"),
        ("x:///{", "x:///%7B"),
        ("X://A", "x://a"),
    ],
)
def test_of_references(text: str, form: str) -> None:
    """A completion names "a URI or URI template"."""
    assert normal_reference(text) == form
