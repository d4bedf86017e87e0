from __future__ import annotations

import pytest

from dragoman import schemes
from dragoman.channel import Options
from dragoman.jsonrpc.errors import LocalError
from dragoman.net.urls import mask_url, parse, printable, scheme_of

from ..transports.ends import Echo


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port", "path", "query"),
    [
        ("tcp://127.0.0.1:9000", "tcp", "127.0.0.1", 9000, "", {}),
        ("TCP://localhost:0/", "tcp", "localhost", 0, "", {}),
        ("tcp://:9000", "tcp", "", 9000, "", {}),
        ("tls://[::1]:9443?framing=content-length", "tls", "::1", 9443, "", {"framing": "content-length"}),
        ("udp://h:65535", "udp", "h", 65535, "", {}),
        ("http://h", "http", "h", 80, "/", {}),
        ("https://h/a%20b?x=1&x=2", "https", "h", 443, "/a b", {"x": "2"}),
        ("ws://h:8001/rpc", "ws", "h", 8001, "/rpc", {}),
        ("wss://[fe80::1]", "wss", "fe80::1", 443, "/", {}),
        ("unix:/run/a.sock", "unix", "", 0, "/run/a.sock", {}),
        ("unix:///run/a.sock", "unix", "", 0, "/run/a.sock", {}),
        ("unix:a.sock?framing=newline", "unix", "", 0, "a.sock", {"framing": "newline"}),
        ("unix:a%3Fb", "unix", "", 0, "a?b", {}),
        ("memory:calc", "memory", "", 0, "calc", {}),
        ("stdio:", "stdio", "", 0, "", {}),
        ("stdio:?framing=content-length", "stdio", "", 0, "", {"framing": "content-length"}),
    ],
)
def test_a_url_is_taken_to_pieces(
    url: str, scheme: str, host: str, port: int, path: str, query: dict[str, str]
) -> None:
    found = parse(url)
    assert (found.scheme, found.host, found.port, found.path, found.query) == (scheme, host, port, path, query)


def test_target_is_what_an_http_request_line_says() -> None:
    assert parse("http://h").target == "/"
    assert parse("http://h?a=b").target == "/?a=b"
    assert parse("https://h/a%20b?x=1&x=2").target == "/a%20b?x=1&x=2"


def test_credentials_are_read_and_never_shown() -> None:
    url = parse("http://ann:s%40cret@h:8332/wallet")
    assert url.auth == ("ann", "s@cret")
    assert url.shown == str(url) == "http://ann:***@h:8332/wallet"
    assert "cret" not in repr(url)
    assert parse("http://token@h").shown == "http://***@h:80"
    assert parse("http://h").auth is None


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "no scheme"),
        ("localhost", "no scheme"),
        ("tcp:127.0.0.1:9000", "write tcp://host:port"),
        ("tcp://127.0.0.1", "needs a port"),
        ("tcp://h:99999", "0 to 65535"),
        ("tcp://h:9_0", "not a port"),
        ("tcp://h:-1", "not a port"),
        ("tcp://h:٣", "not a port"),
        ("tcp://::1:9000", "brackets"),
        ("tcp://[::1", "brackets"),
        ("tcp://[::1]9000", "brackets"),
        ("tcp://[nonsense]:9000", "not an IPv6 address"),
        ("tcp://h:1/path", "no path"),
        ("tcp://user@h:1", "no user"),
        ("tcp://h:1#x", "fragment"),
        ("http://h/a b", "spaces"),
        ("tcp://h:1?framing=a&framing=b", "twice"),
        ("unix:", "needs a path"),
        ("unix://a.sock", "unix:/a.sock"),
        ("unix:a%00b", "NUL"),
        ("memory:", "needs a name"),
        ("stdio:/x", "takes no path"),
    ],
)
def test_what_is_not_a_url_is_said_in_one_sentence(url: str, says: str) -> None:
    with pytest.raises(LocalError, match=says) as caught:
        parse(url)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://ann:hush@h:x/", "tcp://ann:hush@h:1", "http://ann:hu/sh@h:x/", "http://hush@h:x"]
)
def test_errors_show_no_password(url: str) -> None:
    with pytest.raises(LocalError) as caught:
        parse(url)
    assert "hush" not in str(caught.value)
    assert "hu/sh" not in str(caught.value)
    assert "sh@" not in mask_url(url)


def test_a_secret_in_a_query_is_not_shown() -> None:
    assert "hush" not in parse("http://h/?token=hush").shown
    assert "hush" not in mask_url("http://h:x/?token=hush")


def test_what_is_printed_is_one_line() -> None:
    assert printable("a\nb\x1b[0m\ud800\u202e") == "a\\nb\\x1b[0m\\ud800\\u202e"
    assert len(printable("x" * 1000)) == 300


def test_schemes() -> None:
    assert scheme_of("TCP://h") == "tcp"
    assert scheme_of("python -m x:y") == ""
    assert scheme_of("/usr/bin/x") == ""
    assert scheme_of("127.0.0.1:9000") == ""


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("tpc://h:1", r"the schemes are http, .*Did you mean tcp:\?"),
        ("localhost:9000", r"Did you mean tcp://localhost:9000\?"),
        ("gopher://h", "unknown scheme 'gopher'"),
    ],
)
async def test_an_unknown_scheme_names_the_known_ones_and_the_nearest(url: str, says: str) -> None:
    with pytest.raises(LocalError, match=says):
        await schemes.dial(url, Options())
    with pytest.raises(LocalError, match=says):
        await schemes.listen(url, {"": Echo()}, Options())


async def test_what_is_neither_url_nor_command() -> None:
    with pytest.raises(LocalError, match="a URL begins with a scheme"):
        await schemes.listen("calc.sock", {"": Echo()}, Options())
    with pytest.raises(LocalError, match="neither a URL nor a command"):
        await schemes.dial("echo 'unfinished", Options())
    with pytest.raises(LocalError, match="not empty"):
        await schemes.dial([], Options())
    with pytest.raises(LocalError, match=r"there is no program '127.0.0.1' .a URL begins with a scheme"):
        await schemes.dial(["127.0.0.1"], Options())


async def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins
    import sys

    ours = "dragoman.transports.http.client."
    for name in [n for n in sys.modules if n.split(".")[0] == "httptools" or n.startswith(ours)]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without_httptools(name: str, *rest: object) -> object:
        if name.split(".")[0] == "httptools":
            raise ModuleNotFoundError("No module named 'httptools'", name="httptools")
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without_httptools)
    with pytest.raises(LocalError, match=r'http:// needs httptools: pip install "dragoman\[http\]"'):
        await schemes.dial("http://127.0.0.1:1", Options())
