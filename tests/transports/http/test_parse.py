"""Heads and bodies of requests: what a client wrote is what is read, however it was cut into pieces (RFC 9112)."""

from __future__ import annotations

from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from dragoman.jsonrpc.limits import SERVER
from dragoman.transports.http.app import App
from dragoman.transports.http.known_heads import KnownHeads
from dragoman.transports.http.messages import Head
from dragoman.transports.http.parse import Event, IncomingRequest, RequestParser
from tests.servable import Idle

NAMES = st.from_regex(r"X-[A-Za-z0-9!#$%&'*+.^_`|~-]{1,12}", fullmatch=True)
VALUES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=20) | st.just("a b\tc")


class Asked(Struct, frozen=True):
    """A request, as a test writes it."""

    path: str
    query: str
    fields: dict[str, str]
    body: bytes
    chunks: list[int] | None
    """Sizes of the chunks that it is sent in; None: with its length."""

    def raw(self) -> bytes:
        lines = [f"POST {self.path}{self.query and '?'}{self.query} HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in self.fields.items()]
        if self.chunks is None:
            return "\r\n".join([*lines, f"Content-Length: {len(self.body)}", "", ""]).encode() + self.body
        out, rest = "\r\n".join([*lines, "Transfer-Encoding: chunked", "", ""]).encode(), self.body
        for size in [*self.chunks, len(self.body)]:
            piece, rest = rest[:size], rest[size:]
            out += b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b""
        return out + b"0\r\n\r\n"


REQUESTS = st.builds(
    Asked,
    path=st.from_regex(r"/[a-z0-9/._~-]{0,20}", fullmatch=True),
    query=st.from_regex(r"([a-z]=[a-z0-9]{0,8})?", fullmatch=True),
    fields=st.dictionaries(NAMES, VALUES, max_size=4),
    body=st.binary(min_size=1, max_size=200),
    chunks=st.none() | st.lists(st.integers(1, 50), max_size=4),
)


class TakesAll(App):
    """Takes every request."""

    def route(
        self,
        method: str,
        path: str,
        query: str,
        headers: dict[bytes, bytes],
        *,
        loopback: bool,
        upgrade: bool = False,
        forwarded: bytes = b"",
    ) -> Head:
        return Head(method=method, path=path, query=query, headers=headers, served=Idle())


@given(st.lists(REQUESTS, min_size=1, max_size=4), st.data())
def test_requests_are_read_as_they_were_written(asked: list[Asked], data: st.DataObject) -> None:
    parser = RequestParser(TakesAll({}), KnownHeads(SERVER.header_size, SERVER.message_size), loopback=True)
    rest, events = b"".join(one.raw() for one in asked), list[Event]()
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        events += parser.feed(rest[:size])
        rest = rest[size:]
    assert len(events) == len(asked)
    for one, event in zip(asked, events, strict=True):
        assert isinstance(event, IncomingRequest), event
        assert (event.head.method, event.head.path, event.head.query) == ("POST", unquote(one.path), one.query)
        assert event.body == one.body
        told = {name.decode(): value.decode() for name, value in event.head.headers.items()}
        wanted: dict[str, str] = {}
        for name, value in one.fields.items():
            name = name.lower()
            wanted[name] = f"{wanted[name]}, {value}" if name in wanted else value
        assert {name: told[name] for name in wanted} == wanted
    assert not parser.held
