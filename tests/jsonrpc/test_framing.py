"""Framing: any chunking gives the same messages, in linear time, within the limits."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from dragoman.jsonrpc.errors import LocalError
from dragoman.jsonrpc.framing import ContentLength, Found, Framing, LengthPrefix, Newline, framing
from dragoman.jsonrpc.json_text import JsonText
from dragoman.jsonrpc.limits import CLIENT, SERVER, Limits
from dragoman.jsonrpc.messages import NULL, Malformed
from tests.wire_cases import all_cases

MAKERS: list[Callable[[Limits], Framing]] = [Newline, ContentLength, LengthPrefix]
SMALL = Limits(message_size=16, header_size=64)
PING = b'{"id":1}'

every_framing = pytest.mark.parametrize("make", MAKERS)


def read(wire: Framing, *chunks: bytes) -> Found:
    """Everything a framing finds in these chunks, up to the end of the stream."""
    found: Found = []
    for chunk in chunks:
        found += wire.feed(chunk)
    return found + wire.end()


def bytewise(wire: Framing, stream: bytes) -> Found:
    return read(wire, *(stream[i : i + 1] for i in range(len(stream))))


def reasons(found: Found) -> list[str]:
    return [piece.reason for piece in found if isinstance(piece, Malformed)]


# -- all of them ----------------------------------------------------------------------------------


@every_framing
def test_what_was_wrapped_is_found_again(make: Callable[[Limits], Framing]) -> None:
    wire = make(SERVER)
    messages: Found = [PING, b"[]", b'"\xe4\xbd\xa0"', b"x" * 100_000]
    stream = b"".join(wire.wrap(cast(bytes, message)) for message in messages)
    assert read(make(SERVER), stream) == messages
    assert bytewise(make(SERVER), stream) == messages


@every_framing
def test_nothing_gives_nothing(make: Callable[[Limits], Framing]) -> None:
    wire = make(SERVER)
    assert wire.feed(b"") == []
    assert read(wire) == []
    assert not wire.lost


@every_framing
def test_every_wire_case_passes_unharmed(make: Callable[[Limits], Framing]) -> None:
    messages: Found = [case.message.strip(b" \t") for case in all_cases() if case.one_line]
    stream = b"".join(make(SERVER).wrap(cast(bytes, message)) for message in messages)
    chunks = [stream[i : i + 1_000] for i in range(0, len(stream), 1_000)]
    assert read(make(SERVER), *chunks) == messages
    assert read(make(SERVER), stream) == messages


@every_framing
@pytest.mark.parametrize("chunk", [1, 3, 17, 10_000])
def test_a_message_of_just_the_limit_is_taken_and_one_byte_more_is_not(
    make: Callable[[Limits], Framing], chunk: int
) -> None:
    wire = make(SMALL)
    stream = wire.wrap(b"a" * 16) + wire.wrap(b"b" * 17) + wire.wrap(b"c")
    found = read(wire, *(stream[i : i + chunk] for i in range(0, len(stream), chunk)))
    assert [piece if isinstance(piece, bytes) else piece.kind for piece in found] == [b"a" * 16, "too_large", b"c"]
    refused = found[1]
    assert isinstance(refused, Malformed)
    assert refused.refusal is not None
    assert refused.refusal.data == {"limit": "message_size", "allowed": 16, "received": 17}
    assert refused.reason == "Too large: message_size allows 16 bytes, received 17"
    assert (refused.id, refused.answerable) == (NULL, True)


@every_framing
def test_what_is_too_long_is_dropped_as_it_arrives(make: Callable[[Limits], Framing]) -> None:
    limits = SERVER.but(message_size=64 * 1024)
    wire = make(limits)
    piece = b"x" * 65_536
    head = {Newline: b"", ContentLength: b"Content-Length: %d\r\n\r\n" % (65_536 * 2_000)}.get(
        cast(Any, make), (65_536 * 2_000).to_bytes(4, "big")
    )
    tracemalloc.start()
    try:
        found = wire.feed(head)
        for _ in range(2_000):
            found += wire.feed(piece)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * 65_536
    found += wire.feed(wire.wrap(PING) if make is not Newline else b"\n" + wire.wrap(PING))
    (refused, ping) = found
    assert isinstance(refused, Malformed)
    assert refused.refusal is not None
    assert refused.refusal.data["received"] == 65_536 * 2_000
    assert ping == PING


@every_framing
def test_a_long_message_byte_by_byte(make: Callable[[Limits], Framing]) -> None:
    """Quadratic work would move half a terabyte here and take minutes."""
    message = b"x" * (1024 * 1024)
    assert bytewise(make(SERVER), make(SERVER).wrap(message)) == [message]


@every_framing
@given(data=st.data())
def test_any_chunking_gives_the_same(make: Callable[[Limits], Framing], data: st.DataObject) -> None:
    wire = make(SMALL)
    body = st.binary(max_size=24).map(lambda raw: raw.replace(b"\n", b"n").replace(b"\r", b"r"))
    good = body.map(wire.wrap)
    junk = st.sampled_from(
        [
            b"\n",
            b"\r\n",
            b"\r",
            b"\n\n",
            b"x",
            b":",
            b"Content-Length: 3\r\n",
            b"Content-Length: 99\n\n",
            b"content-length:4\nContent-Type: a; charset=latin-1\n\n",
            b"Content-Length: -1\r\n\r\n",
            b"A: " + b"a" * 30 + b"\n",
            b"\x00\x00\x00\x05",
            b"\x00\x01",
        ]
    )
    stream = b"".join(data.draw(st.lists(good | junk, max_size=12)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    whole, pieces, bytes_one_by_one = make(SMALL), make(SMALL), make(SMALL)
    expected = read(whole, stream)
    assert read(pieces, *chunks) == expected
    assert bytewise(bytes_one_by_one, stream) == expected
    assert whole.lost == pieces.lost == bytes_one_by_one.lost
    for piece in expected:
        assert isinstance(piece, Malformed) or len(piece) <= SMALL.message_size


@every_framing
@given(st.lists(st.binary(max_size=40), max_size=20))
def test_any_bytes_are_survived(make: Callable[[Limits], Framing], chunks: list[bytes]) -> None:
    wire = make(SMALL)
    for piece in read(wire, *chunks):
        assert isinstance(piece, bytes | Malformed)
    assert wire.end() == []


def test_framings_by_name() -> None:
    assert isinstance(framing("newline", SERVER), Newline)
    assert isinstance(framing("content-length", CLIENT), ContentLength)
    with pytest.raises(LocalError, match="No framing is called 'xml': take one of newline, content-length, json"):
        framing(cast(Any, "xml"), SERVER)


# -- newline --------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("stream", "messages"),
    [
        (b"1\n2\n", [b"1", b"2"]),
        (b"1\r\n2\r\n", [b"1", b"2"]),
        (b"1\n\n\r\n  \r\n\t\n2", [b"1", b"2"]),
        (b"\n\n\n", []),
        (b" 1 \n", [b"1"]),
        (b"1", [b"1"]),
        (b"1\r", [b"1"]),
        (b"\r", []),
        (b"   ", []),
        (b"1\r2\n", [b"1\r2"]),
        (b"\f\n", [b"\f"]),
    ],
)
def test_lines(stream: bytes, messages: Found, chunked: bool) -> None:
    assert (bytewise if chunked else read)(Newline(SERVER), stream) == messages


def test_a_line_break_inside_a_message_becomes_a_space() -> None:
    assert Newline(SERVER).wrap(b'{\r\n  "id": 1\n}') == b'{    "id": 1 }\n'
    assert Newline(SERVER).wrap(b"{\r}") == b"{ }\n"


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_the_end_of_a_line_does_not_count(end: bytes) -> None:
    line = b"a" * 16 + end
    assert read(Newline(SMALL), line) == [b"a" * 16]
    assert bytewise(Newline(SMALL), line) == [b"a" * 16]
    for found in (read(Newline(SMALL), b"a" * 17 + end), bytewise(Newline(SMALL), b"a" * 17 + end)):
        assert reasons(found) == ["Too large: message_size allows 16 bytes, received 17"]


def test_a_line_too_long_at_the_end_of_the_stream_is_reported_once() -> None:
    wire = Newline(SMALL)
    assert wire.feed(b"a" * 20) == []
    assert wire.feed(b"a" * 20) == []
    assert reasons(wire.end()) == ["Too large: message_size allows 16 bytes, received 40"]
    assert wire.end() == []


def test_many_lines_in_one_chunk_above_the_limit() -> None:
    assert read(Newline(SMALL), b"12345\n" * 10 + b"\n" + b"x" * 30 + b"\n1") == [
        *[b"12345"] * 10,
        *Newline(SMALL).feed(b"x" * 30 + b"\n"),
        b"1",
    ]


# -- content-length -------------------------------------------------------------------------------


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    "header",
    [
        b"Content-Length: 8\r\n\r\n",
        b"content-length: 8\r\n\r\n",
        b"CONTENT-LENGTH:8\r\n\r\n",
        b"Content-Length: \t 8 \t\r\n\r\n",
        b"Content-Length: 0008\r\n\r\n",
        b"Content-Length: 8\n\n",
        b"Content-Length: 8\r\n\n",
        b"Content-Length: 8\n\r\n",
        b"\r\n\n\r\nContent-Length: 8\r\n\r\n",
        b"Content-Length: 8\r\nContent-Length: 8\r\n\r\n",
        b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: 8\r\n\r\n",
        b"Content-Length: 8\r\nContent-Type: application/vscode-jsonrpc; charset=utf8\r\n\r\n",
        b'Content-Length: 8\r\ncontent-type: application/json;x=y; Charset = "UTF-8"\r\n\r\n',
        b"Content-Length: 8\r\nContent-Type: application/json\r\n\r\n",
        b"Content-Length: 8\r\nX-Other: anything: at all\r\n\r\n",
        b"Content-Length: 8\r\nX-Empty:\r\n\r\n",
    ],
)
def test_headers_that_are_understood(header: bytes, chunked: bool) -> None:
    stream = (header + PING) * 2
    assert (bytewise if chunked else read)(ContentLength(SERVER), stream) == [PING, PING]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"Content-Type: x\r\n\r\n", "Bad header: there is no Content-Length"),
        (b"Content-Length: -8\r\n\r\n", "Bad header: Content-Length must be a number of bytes, not '-8'"),
        (b"Content-Length: +8\r\n\r\n", "Bad header: Content-Length must be a number of bytes, not '+8'"),
        (b"Content-Length: 8.0\r\n\r\n", "Bad header: Content-Length must be a number of bytes, not '8.0'"),
        (b"Content-Length: 0x8\r\n\r\n", "Bad header: Content-Length must be a number of bytes, not '0x8'"),
        (b"Content-Length: 8, 8\r\n\r\n", "Bad header: Content-Length must be a number of bytes, not '8, 8'"),
        (b"Content-Length: \xc2\xb2\r\n\r\n", r"Bad header: Content-Length must be a number of bytes, not '\xc2\xb2'"),
        (b"Content-Length:\r\n\r\n", "Bad header: Content-Length must be a number of bytes, not ''"),
        (
            b"Content-Length: 99999999999999999999\r\n\r\n",
            "Bad header: Content-Length must be a number of bytes, not '99999999999999999999'",
        ),
        (
            b"Content-Length: 8\r\nContent-Length: 9\r\n\r\n",
            "Bad header: Content-Length is there twice with different values: 8, 9",
        ),
        (
            b"Content-Length: 8\r\ncontent-length: x\r\n\r\n",
            "Bad header: Content-Length must be a number of bytes, not 'x'",
        ),
        (
            b"Content-Length : 8\r\n\r\n",
            "Bad header: no header line: 'Content-Length : 8\\r'; there is no Content-Length",
        ),
        (b"hello\r\n\r\n", "Bad header: no header line: 'hello\\r'; there is no Content-Length"),
        (b"\x00\xff\r\n\r\n", r"Bad header: no header line: '\x00\xff\r'; there is no Content-Length"),
    ],
)
def test_a_header_without_a_length_is_reported_and_the_next_frame_is_read(
    header: bytes, reason: str, chunked: bool
) -> None:
    stream = header + PING + b"Content-Length: 8\r\n\r\n" + PING
    found = (bytewise if chunked else read)(ContentLength(SERVER), stream)
    assert reasons(found) == [reason]
    assert found[1:] == [PING]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (
            b"Content-Length: 8\r\nContent-Type: text/plain; charset=latin-1\r\n\r\n",
            "Bad header: the charset must be utf-8, not 'latin-1'",
        ),
        (
            b"Content-Type: text/plain; charset=utf-16\r\nContent-Length: 8\r\n\r\n",
            "Bad header: the charset must be utf-8, not 'utf-16'",
        ),
        (b"Content-Length: 8\r\nnonsense\r\n\r\n", "Bad header: no header line: 'nonsense\\r'"),
        (b"Content-Length: 8\r\n: no name\r\n\r\n", "Bad header: no header line: ': no name\\r'"),
    ],
)
def test_a_bad_header_with_a_length_has_its_body_skipped(header: bytes, reason: str, chunked: bool) -> None:
    stream = header + b"\n\r\n{}\n\r\n" + b"Content-Length: 8\r\n\r\n" + PING
    found = (bytewise if chunked else read)(ContentLength(SERVER), stream)
    assert reasons(found) == [reason]
    assert found[1:] == [PING]


def test_after_a_bad_header_the_body_may_speak_of_lengths() -> None:
    body = b'{\n "text": "Content-Length: 4"\n}'
    stream = b"Content-Length: ?\n\n" + body + b"Content-Type: a\nContent-Length: 8\n\n" + PING
    found = read(ContentLength(SERVER), stream)
    assert [type(piece) for piece in found] == [Malformed, Malformed]  # two lengths: it is not known which one holds
    lucky = b'{"text": "Content-Length: 4"}'
    stream = b"Content-Length: ?\n\n" + lucky + b"Content-Length: 8\nContent-Type: a\n\n" + PING
    assert read(ContentLength(SERVER), stream)[1:] == [PING]


def test_a_body_without_a_length_at_the_end_is_not_reported_twice() -> None:
    assert reasons(read(ContentLength(SERVER), b"X: y\r\n\r\n" + PING)) == ["Bad header: there is no Content-Length"]


def test_an_empty_body_is_a_message_of_no_bytes() -> None:
    assert read(ContentLength(SERVER), b"Content-Length: 0\r\n\r\nContent-Length: 8\r\n\r\n" + PING) == [b"", PING]
    assert bytewise(ContentLength(SERVER), b"content-length: 0\r\n\r\n") == [b""]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_header_block_above_its_limit_is_the_end(chunked: bool) -> None:
    wire = ContentLength(SMALL)
    stream = b"X: " + b"x" * 100 + b"\r\nContent-Length: 8\r\n\r\n" + PING
    found = (bytewise if chunked else read)(wire, b"Content-Length: 8\r\n\r\n" + PING + stream)
    assert found[0] == PING
    assert reasons(found) == ["Too large: header_size allows 64 bytes, received more"]
    refused = found[1]
    assert isinstance(refused, Malformed)
    assert refused.refusal is not None
    assert refused.refusal.data == {"limit": "header_size", "allowed": 64}
    assert wire.lost
    assert wire.feed(b"Content-Length: 8\r\n\r\n" + PING) == []
    assert wire.end() == []


@pytest.mark.parametrize("chunked", [False, True])
def test_a_header_block_of_just_its_limit_is_read(chunked: bool) -> None:
    header = b"Content-Length: 8\r\nX: "
    header += b"x" * (64 - len(header) - 4) + b"\r\n\r\n"
    assert len(header) == 64
    wire = ContentLength(SMALL)
    assert (bytewise if chunked else read)(wire, header + PING) == [PING]
    longer = header.replace(b"X: ", b"X: x")
    assert [type(piece) for piece in (bytewise if chunked else read)(wire, longer + PING)] == [Malformed]
    assert wire.lost


@pytest.mark.parametrize("lines", [1, 50_000])
def test_any_number_of_blank_lines_may_stand_before_a_header(lines: int) -> None:
    assert read(ContentLength(SMALL), b"\r\n" * lines + b"Content-Length: 8\r\n\r\n" + PING) == [PING]


def test_a_frame_cut_by_the_end_of_the_stream_is_reported() -> None:
    assert reasons(read(ContentLength(SERVER), b"Content-Length: 8\r\n\r\n{}")) == [
        "The stream ended inside a message: 2 of 8 bytes came"
    ]
    assert reasons(read(ContentLength(SERVER), b"Content-Length: 8\r\n")) == [
        r"The stream ended inside a header: 'Content-Length: 8\r\n'"
    ]
    assert reasons(read(ContentLength(SERVER), b"x" * 80)) == [
        "The stream ended inside a header: '" + "x" * 60 + "'..."
    ]


TOO_LONG = [
    (b'{"jsonrpc":"2.0","method":"a","params":["%b"],"id":7}', 7, True),
    (b'{"jsonrpc":"2.0","id":"x","method":"a","params":["%b"]}', "x", True),
    (b'{"id":7,"jsonrpc":"2.0","method":"%b"}', 7, True),
    (b'{"jsonrpc":"2.0","method":"a","params":["%b"]}', UNSET, False),
    (b'{"jsonrpc":"2.0","result":"%b","id":7}', 7, False),
    (b'{"jsonrpc":"2.0","result":"%b","id":7,"jsonrpc":"2.0"}', 7, False),
    (b'{"jsonrpc":"2.0","id":7,"result":"%b"}', 7, False),
    (b'{"jsonrpc":"2.0","error":{"code":1,"message":"%b"},"id":-3}', "-3", False),
    (b'{"jsonrpc":"2.0","result":"%b, \\"id\\":1}"}', "null", False),
    (b'[{"jsonrpc":"2.0","method":"a","params":["%b"],"id":7}]', "null", True),
    (b"%b", "null", True),
    (b'{"%b":1}', "null", True),
]


@pytest.mark.parametrize(("text", "id", "answerable"), TOO_LONG)
@pytest.mark.parametrize("kind", [Newline, ContentLength, LengthPrefix])
@pytest.mark.parametrize("chunk", [1, 7, 5_000, 100_000])
def test_what_is_too_long_is_reported_once_with_what_its_ends_show(
    kind: type[Newline | ContentLength | LengthPrefix], text: bytes, id: Any, answerable: bool, chunk: int
) -> None:
    limits = SERVER.but(message_size=2_000)
    wire = kind(limits)
    stream = wire.wrap(text % (b"x" * 9_000)) + wire.wrap(PING)
    found = [one for at in range(0, len(stream), chunk) for one in wire.feed(stream[at : at + chunk])]
    (refused, after) = found
    assert after == PING
    assert isinstance(refused, Malformed)
    told = bytes(refused.id).decode() if isinstance(refused.id, Raw) else refused.id
    assert (refused.kind, told, refused.answerable) == ("too_large", id, answerable)
    assert refused.refusal is not None
    assert refused.refusal.data == {"limit": "message_size", "allowed": 2_000, "received": len(text) - 2 + 9_000}


def test_a_frame_too_long_that_is_cut_is_reported_at_the_end() -> None:
    wire = ContentLength(SMALL)
    assert wire.feed(b"Content-Length: 1000000\r\n\r\n") == []
    assert wire.feed(b"x" * 999_999) == []
    assert reasons(wire.end()) == ["Too large: message_size allows 16 bytes, received 1000000"]


def test_a_header_block_above_the_limit_is_the_end_and_says_which_limit() -> None:
    wire = ContentLength(SERVER.but(header_size=100))
    (refused,) = wire.feed(b"X: " + b"x" * 200)
    assert isinstance(refused, Malformed)
    assert refused.refusal is not None
    assert refused.refusal.data == {"limit": "header_size", "allowed": 100}
    assert wire.lost


# -- length prefix --------------------------------------------------------------------------------


def test_length_prefixes() -> None:
    assert LengthPrefix(SERVER).wrap(PING) == b"\x00\x00\x00\x08" + PING
    assert read(LengthPrefix(SERVER), b"\x00\x00\x00\x00\x00\x00\x00\x01x") == [b"", b"x"]
    assert reasons(read(LengthPrefix(SERVER), b"\x00\x00")) == ["The stream ended inside a length: 2 of 4 bytes came"]
    assert reasons(read(LengthPrefix(SERVER), b"\x00\x00\x00\x03ab")) == [
        "The stream ended inside a message: 2 of 3 bytes came"
    ]
    wire = LengthPrefix(SMALL)
    assert wire.feed(b"\xff\xff\xff\xff") == []
    assert reasons(wire.end()) == ["Too large: message_size allows 16 bytes, received 4294967295"]


# -- JSON text ------------------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=12)
values = st.recursive(
    st.lists(scalars, max_size=3) | st.dictionaries(st.text(max_size=4), scalars, max_size=3),
    lambda inner: st.lists(inner | scalars, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def cut(data: st.DataObject, stream: bytes) -> list[bytes]:
    """A stream in pieces of any size."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    return [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


@given(st.lists(values, max_size=6), st.sampled_from([None, 2]), st.booleans(), st.data())
def test_values_are_found_again_however_they_are_written_and_cut(
    told: list[Any], indent: int | None, plain: bool, data: st.DataObject
) -> None:
    texts = [json.dumps(one, indent=indent, ensure_ascii=plain).encode("utf-8", "surrogatepass") for one in told]
    between = st.text(alphabet=" \t\r\n", max_size=3).map(str.encode)
    stream = b"".join(data.draw(between) + text for text in texts) + data.draw(between)
    assert read(JsonText(SERVER), stream) == texts
    assert read(JsonText(SERVER), *cut(data, stream)) == texts
    assert bytewise(JsonText(SERVER), stream) == texts


@given(st.lists(st.sampled_from([*b'{}[]"\\ \nxe,:']), max_size=60), st.data())
def test_of_any_brackets_and_quotes_any_chunking_finds_the_same(letters: list[int], data: st.DataObject) -> None:
    stream = bytes(letters)
    whole, pieces = JsonText(SMALL), JsonText(SMALL)
    found = read(whole, stream)
    assert read(pieces, *cut(data, stream)) == found
    assert bytewise(JsonText(SMALL), stream) == found
    for piece in found:
        assert isinstance(piece, Malformed) or 0 < len(piece) <= SMALL.message_size
    kept = b"".join(piece for piece in found if isinstance(piece, bytes))
    if all(isinstance(piece, bytes) for piece in found):  # nothing but white space is lost
        assert b"".join(stream.split()) == b"".join(kept.split())
    assert (whole.held, pieces.held) == (0, 0)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("stream", "messages"),
    [
        (b'{"id":1}{"id":2}[]', [b'{"id":1}', b'{"id":2}', b"[]"]),
        (b' {"a": "}"} ["\\"]", "\\\\"] ', [b'{"a": "}"}', b'["\\"]", "\\\\"]']),
        (b"hello\n{}", [b"hello", b"{}"]),
        (b"hello {}bye \r\n", [b"hello", b"{}", b"bye"]),
        (b"}{}", [b"}", b"{}"]),
        (b"{]{}", [b"{]", b"{}"]),
        (b"1 2", [b"1 2"]),
        (b"\xff{}", [b"\xff", b"{}"]),
    ],
)
def test_values(stream: bytes, messages: Found, chunked: bool) -> None:
    assert (bytewise if chunked else read)(JsonText(SERVER), stream) == messages


@pytest.mark.parametrize("chunk", [1, 3, 10_000])
def test_a_value_of_just_the_limit_and_one_byte_more(chunk: int) -> None:
    stream = b'["1234567890ab"]["1234567890abc"]{}' + b"x" * 17 + b"\n[1]"
    found = read(JsonText(SMALL), *(stream[i : i + chunk] for i in range(0, len(stream), chunk)))
    assert [piece if isinstance(piece, bytes) else piece.kind for piece in found] == [
        b'["1234567890ab"]',
        "too_large",
        b"{}",
        "too_large",
        b"[1]",
    ]
    assert reasons(found) == ["Too large: message_size allows 16 bytes, received 17"] * 2


def test_a_value_cut_by_the_end_of_the_stream() -> None:
    assert reasons(read(JsonText(SERVER), b'{"a":')) == ["The stream ended inside a value: 5 bytes of it came"]
    assert JsonText(SERVER).wrap(b"{}") == b"{}"


def test_a_value_without_end_is_dropped_as_it_arrives() -> None:
    wire = JsonText(SERVER.but(message_size=64 * 1024))
    tracemalloc.start()
    try:
        found = wire.feed(b'["')
        for _ in range(2_000):
            found += wire.feed(b"x" * 65_536)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * 65_536
    assert wire.held == 0
    assert reasons(found + wire.feed(b'"]')) == [f"Too large: message_size allows 65536 bytes, received {131_072_004}"]


@pytest.mark.parametrize("piece", [b"[", b'"', b"\\", b"x", b'[""', b"{}"], ids=repr)
def test_a_long_value_byte_by_byte_and_whole(piece: bytes) -> None:
    """Quadratic work would look at half a terabyte here and take minutes."""
    stream = b"[" + piece * (512 * 1024 // len(piece))
    assert bytewise(JsonText(SERVER), stream) == read(JsonText(SERVER), stream)


# -- what is kept ---------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [*MAKERS, JsonText])
def test_what_is_held_of_a_message_whose_rest_has_not_come(make: Callable[[Limits], Framing]) -> None:
    wire = make(SERVER)
    stream = wire.wrap(b"[1234567]")
    assert wire.held == 0
    seen = []
    for _ in range(2):
        assert wire.feed(stream[:-1]) == []
        assert len(stream) - 1 >= wire.held >= 8
        seen.append(wire.begun)
        assert wire.feed(stream[-1:]) == [b"[1234567]"]
        assert wire.held == 0
    assert len(set(seen)) == 2
    wire.feed(stream[:-1])
    wire.feed(stream[-1:] + stream + stream[:-1])
    assert wire.held >= 8
    assert wire.begun not in seen


@pytest.mark.parametrize("chunk", [1, 7, 10_000])
def test_a_value_that_is_too_long_still_tells_its_id(chunk: int) -> None:
    stream = b'{"id":7,"method":"a","params":["' + b"x" * 5_000 + b'"]}{"id":8}'
    wire = JsonText(Limits(message_size=4_000))
    found = read(wire, *(stream[i : i + chunk] for i in range(0, len(stream), chunk)))
    [refused, message] = found
    assert message == b'{"id":8}'
    assert isinstance(refused, Malformed)
    assert (refused.id, refused.answerable) == (7, True)


def test_a_frame_that_is_too_long_is_skipped_from_its_length_to_its_end() -> None:
    wire = LengthPrefix(SMALL)
    assert not wire.skipping
    for byte in (17).to_bytes(4, "big"):
        assert not wire.skipping
        wire.feed(bytes([byte]))
    for _ in range(17):
        assert wire.skipping
        wire.feed(b"x")
    assert not wire.skipping
    assert wire.feed(wire.wrap(PING)[:6]) == []
    assert not wire.skipping  # a frame that is not too long
