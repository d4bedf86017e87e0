"""What is believed of `Forwarded` and `X-Forwarded-*`: who the caller is, how it called, and at which host."""

from __future__ import annotations

import pytest

from dragoman import LocalError
from dragoman.channel import Options
from dragoman.net.forwarded import HOPS, KNOWN, RequestOrigin, TrustedProxies, elements_of

OURS = ("10.0.0.0/8", "127.0.0.1", "fd00::/8")


def read(**fields: str) -> tuple[str, str, str]:
    """Address, scheme and host for header fields by their names with "_"."""
    found = TrustedProxies(OURS).origin_of({name.replace("_", "-"): value for name, value in fields.items()})
    return found.remote, found.scheme, found.host


@pytest.mark.parametrize(
    ("hops", "remote"),
    [
        ("203.0.113.7", "203.0.113.7:0"),
        ("203.0.113.7:4711", "203.0.113.7:4711"),
        ("2001:db8::1", "[2001:db8::1]:0"),
        ("[2001:db8::1]", "[2001:db8::1]:0"),
        ("[2001:DB8:0::1]:4711", "[2001:db8::1]:4711"),
        ("::ffff:203.0.113.7", "203.0.113.7:0"),
        ("198.51.100.1, 203.0.113.7", "203.0.113.7:0"),  # what the caller wrote itself is not read
        ("127.0.0.1, 203.0.113.7", "203.0.113.7:0"),
        ("203.0.113.7, 10.1.2.3", "203.0.113.7:0"),
        ("203.0.113.7,10.1.2.3 ,\t10.9.9.9", "203.0.113.7:0"),
        ("203.0.113.7, ::ffff:10.1.2.3", "203.0.113.7:0"),
        ("203.0.113.7, fd00::5", "203.0.113.7:0"),
        ("10.1.2.3", "10.1.2.3:0"),  # all are ours: the first one called
        ("10.1.2.3, 10.9.9.9", "10.1.2.3:0"),
        ("203.0.113.7, unknown", ""),
        ("203.0.113.7, unknown, 10.9.9.9", "10.9.9.9:0"),
        ("203.0.113.7, , ,", "203.0.113.7:0"),
        ("", ""),
        (",", ""),
        ("unknown", ""),
        ("localhost", ""),
        ("203.0.113.256", ""),
        ("203.0.113", ""),
        ("0203.0.113.7", ""),
        ("0x7f.0.0.1", ""),
        ("2130706433", ""),
        ("203.0.113.7:", ""),
        ("203.0.113.7:70000", ""),
        ("203.0.113.7:-1", ""),
        ("203.0.113.7:1:2", ""),
        ("fe80::1%eth0", ""),
        ("[2001:db8::1", ""),
        ("2001:db8::1]", ""),
        ("٢٠٣.٠.١١٣.٧", ""),
        ('"203.0.113.7"', ""),
        ("203.0.113.7 evil", ""),
        ("203.0.113.7\x00", ""),
        ("<script>", ""),
        ("10.0.0.1, " * 5_000 + "203.0.113.7", "203.0.113.7:0"),
        ("203.0.113.7, " + ", ".join(["10.0.0.1"] * HOPS), "10.0.0.1:0"),
        ("9" * 60_000, ""),
        ("[" * 60_000, ""),
        (" " * 60_000, ""),
    ],
)
def test_the_last_hop_that_is_not_ours_called(hops: str, remote: str) -> None:
    assert read(x_forwarded_for=hops) == (remote, "", "")


@pytest.mark.parametrize(
    ("forwarded", "expected"),
    [
        ("for=203.0.113.7", ("203.0.113.7:0", "", "")),
        ('for="203.0.113.7:4711"', ("203.0.113.7:4711", "", "")),
        ('For="[2001:db8::1]:4711"', ("[2001:db8::1]:4711", "", "")),
        ('for="[2001:db8::1]:_port"', ("[2001:db8::1]:0", "", "")),
        (
            "for=203.0.113.7;Proto=HTTPS;host=mcp.example;by=10.0.0.1",
            ("203.0.113.7:0", "https", "mcp.example"),
        ),
        ('for=203.0.113.7; proto=https ; host="mcp.example:8443"', ("203.0.113.7:0", "https", "mcp.example:8443")),
        # the element that the edge wrote says how the caller called
        (
            "for=203.0.113.7;proto=https;host=a.example, for=10.1.2.3;proto=http;host=b.example",
            ("203.0.113.7:0", "https", "a.example"),
        ),
        (
            "for=198.51.100.1;proto=https;host=evil.example, for=203.0.113.7;proto=http",
            ("203.0.113.7:0", "http", ""),
        ),
        ("for=unknown;proto=https", ("", "https", "")),
        ("for=_hidden", ("", "", "")),
        ("proto=https;host=a.example", ("", "https", "a.example")),
        (r'for="203.0.113\.7"', ("203.0.113.7:0", "", "")),
        ('for="203.0.113.7, for=198.51.100.1"', ("", "", "")),
        ('host="a,b;c";for=203.0.113.7', ("203.0.113.7:0", "", "")),
        ("for=203.0.113.7, , ", ("203.0.113.7:0", "", "")),
        # not as RFC 7239 writes it: nothing is believed
        ("for=203.0.113.7:80", ("", "", "")),
        ("for=[2001:db8::1]", ("", "", "")),
        ("for=203.0.113.7;for=198.51.100.1", ("", "", "")),
        ("for=203.0.113.7;FOR=198.51.100.1", ("", "", "")),
        ("for =203.0.113.7", ("", "", "")),
        ('for="203.0.113.7', ("", "", "")),
        ("for=203.0.113.7 proto=https", ("", "", "")),
        ("203.0.113.7", ("", "", "")),
        (";" * 60_000, ("", "", "")),
        ('for="' + '\\"' * 30_000, ("", "", "")),
        ("for=203.0.113.7" + " " * 60_000 + "x", ("", "", "")),
        (" " * 60_000 + "x", ("", "", "")),
        ("a" * 60_000, ("", "", "")),
        ("for=a," * 10_000 + "for=203.0.113.7", ("203.0.113.7:0", "", "")),
    ],
)
def test_forwarded_is_read_as_rfc_7239_writes_it(forwarded: str, expected: tuple[str, str, str]) -> None:
    assert read(forwarded=forwarded) == expected


@pytest.mark.parametrize(
    ("proto", "host", "expected"),
    [
        ("https", "mcp.example", ("https", "mcp.example")),
        ("HTTPS", "MCP.example:8443", ("https", "MCP.example:8443")),
        ("wss", "[2001:db8::1]:443", ("https", "[2001:db8::1]:443")),
        ("http, https", "evil.example, mcp.example", ("https", "mcp.example")),
        ("https, http", "", ("http", "")),
        ("ftp", "mcp.example/path", ("", "")),
        ("javascript", "user@mcp.example", ("", "")),
        ("https\x00", "mcp.example\x00", ("", "")),
        ("", "mcp.example evil", ("", "")),
        ("https,", "mcp.example,", ("", "")),
        ("h" * 60_000, "h" * 60_000, ("", "")),
    ],
)
def test_the_nearest_proxy_says_how_and_where(proto: str, host: str, expected: tuple[str, str]) -> None:
    assert read(x_forwarded_proto=proto, x_forwarded_host=host) == ("", *expected)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {
                "forwarded": "for=203.0.113.7;proto=https;host=mcp.example",
                "x_forwarded_for": "203.0.113.7",
                "x_forwarded_proto": "https",
                "x_forwarded_host": "MCP.example",
            },
            ("203.0.113.7:0", "https", "MCP.example"),
        ),
        # a proxy that writes X-Forwarded-For lets what its caller wrote into Forwarded pass
        ({"forwarded": "for=198.51.100.1", "x_forwarded_for": "203.0.113.7"}, ("", "", "")),
        ({"forwarded": "nonsense", "x_forwarded_for": "203.0.113.7"}, ("", "", "")),
        (
            {"forwarded": "for=203.0.113.7;host=evil.example", "x_forwarded_for": "203.0.113.7"},
            ("203.0.113.7:0", "", ""),
        ),
        # and one that writes Forwarded the others
        ({"forwarded": "for=203.0.113.7", "x_forwarded_host": "evil.example"}, ("", "", "")),
        ({"forwarded": "for=203.0.113.7;proto=http", "x_forwarded_proto": "https"}, ("", "", "")),
    ],
)
def test_of_both_kinds_only_what_they_agree_on_is_believed(
    fields: dict[str, str], expected: tuple[str, str, str]
) -> None:
    assert read(**fields) == expected


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("10.255.0.1", True),
        ("::ffff:10.0.0.1", True),
        ("127.0.0.1", True),
        ("127.0.0.2", False),
        ("fd12::1", True),
        ("fd12::1%eth0", True),
        ("fe80::1", False),
        ("11.0.0.1", False),
        ("", False),
        ("localhost", False),
    ],
)
def test_who_is_trusted(host: str, ours: bool) -> None:
    assert TrustedProxies(OURS).trusts(host) is ours


def test_what_is_kept_is_bounded() -> None:
    proxies = TrustedProxies(OURS)
    for number in range(3 * KNOWN):
        proxies.trusts(f"192.0.{number // 256}.{number % 256}")
        proxies.origin("", f"203.0.113.7:{number}", "", "")
    proxies.origin("", "x" * 60_000, "", "")
    assert len(proxies._known) <= KNOWN
    assert len(proxies._trusted) <= KNOWN
    assert all(sum(map(len, key)) < 1_000 for key in proxies._known)


def test_the_same_fields_are_read_once() -> None:
    proxies = TrustedProxies(OURS)
    first = proxies.origin("", "203.0.113.7", "https", "a.example")
    assert first == RequestOrigin(("203.0.113.7", 0), "https", "a.example")
    assert proxies.origin("", "203.0.113.7", "https", "a.example") is first


def test_elements() -> None:
    assert elements_of('a=b;c="d\\"e", , f=g') == [{"a": "b", "c": 'd"e'}, {"f": "g"}]
    assert elements_of("") == []


@pytest.mark.parametrize("wrong", ["10.0.0.1/8", "0.0.0.0/0", "::/0", "*", "localhost", "", "10.0.0.0/33", 7, None])
def test_a_network_that_cannot_be_is_told_at_once(wrong: object) -> None:
    with pytest.raises(LocalError, match=r"trusted_proxies is a list, of which each is an address, or a network"):
        Options(trusted_proxies=[wrong])  # type: ignore[list-item]


def test_text_is_no_list_of_networks() -> None:
    with pytest.raises(LocalError, match="trusted_proxies"):
        Options(trusted_proxies="10.0.0.0/8")
