"""Server-Sent Events: the HTML standard's rules (section 9.2), and ours on what is too long."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dragoman.transports.http.sse import EventTooLong, Parser, SseEvent, comment, event

LIMIT = 1 << 20


def parsed(*chunks: bytes, limit: int = LIMIT) -> list[SseEvent | EventTooLong]:
    parser = Parser(limit)
    return [found for chunk in chunks for found in parser.feed(chunk)]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: one\n\n", [SseEvent(b"one")]),
        (b"data:one\n\n", [SseEvent(b"one")]),
        (b"data:  one \n\n", [SseEvent(b" one ")]),
        (b"data: a\ndata: b\ndata\n\n", [SseEvent(b"a\nb\n")]),
        (b"data\n\ndata\ndata\n\ndata:", [SseEvent(b""), SseEvent(b"\n")]),
        (b"data: a\rdata: b\r\ndata: c\n\r\n", [SseEvent(b"a\nb\nc")]),
        (b"data: a\r\rdata: b\r\r", [SseEvent(b"a"), SseEvent(b"b")]),
        (b"\xef\xbb\xbfdata: a\n\n", [SseEvent(b"a")]),
        (b"\xef\xbb\xbf\n\xef\xbb\xbfdata: a\n\n", []),
        (b": c\n:\ndata: a\n: d\n\n", [SseEvent(b"a")]),
        (b"event: tick\ndata: a\n\ndata: b\n\n", [SseEvent(b"a", "tick"), SseEvent(b"b")]),
        (b"event: tick\n\ndata: b\n\n", [SseEvent(b"b")]),
        (b"event: tick\nevent\ndata: b\n\n", [SseEvent(b"b")]),
        (
            b"id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n",
            [SseEvent(b"a", id="1"), SseEvent(b"b", id="1"), SseEvent(b"c")],
        ),
        (b"id: 1\ndata: a\nid: 2\0\n\n", [SseEvent(b"a", id="1")]),
        (b"id: \xc3\xa9\ndata: a\n\n", [SseEvent(b"a", id="é")]),
        (b"Data: a\n data: b\nfoo: c\n\n", []),
        (b"data: cut off\n", []),
        (b"data: \n\n", [SseEvent(b"")]),
        (b"data: \xff\n\n", [SseEvent(b"\xff")]),
        (b"data: \x0b\x0c\xe2\x80\xa8\n\n", [SseEvent(b"\x0b\x0c\xe2\x80\xa8")]),
    ],
)
def test_the_standards_rules(stream: bytes, events: list[SseEvent]) -> None:
    assert parsed(stream) == events
    assert parsed(*(stream[i : i + 1] for i in range(len(stream)))) == events


def test_an_id_counts_without_data_once_its_event_is_whole() -> None:
    parser = Parser(LIMIT, "0")
    assert parser.last_id == "0"
    assert parser.feed(b"id: 1\n") == []
    assert parser.last_id == "0"
    assert parser.feed(b"\n") == []
    assert parser.last_id == "1"
    assert parser.feed(b"data: x\n\n") == [SseEvent(b"x", id="1")]


@pytest.mark.parametrize(
    ("value", "retry"),
    [
        (b"500", 500),
        (b"0", 0),
        (b"007", 7),
        (b"-1", None),
        (b"1.5", None),
        (b"", None),
        (b"\xd9\xa1", None),
        (b"9" * 5000, 10**15 - 1),
    ],
)
def test_retry_is_all_digits_or_ignored(value: bytes, retry: int | None) -> None:
    parser = Parser(LIMIT)
    parser.feed(b"retry: " + value + b"\n\n")
    assert parser.retry == retry


@pytest.mark.parametrize(
    "long",
    [
        b"data: " + b"x" * 21,
        b"data: " + b"x" * 10 + b"\ndata: " + b"x" * 10,
        b"data\n" * 29 + b"data",
        b"x" * 27,
        b"event: " + b"x" * 27,
        b":" + b"x" * 40,
    ],
)
def test_what_is_too_long_is_told_once_and_dropped(long: bytes) -> None:
    stream = b"id: 1\n" + long + b"\ndata: more\nid: 2\n\ndata: next\n\n"
    told = [EventTooLong(20), SseEvent(b"next", id="2")]
    assert parsed(stream, limit=20) == told
    assert parsed(*(stream[i : i + 1] for i in range(len(stream))), limit=20) == told


def test_what_fits_exactly_is_not_a_fault() -> None:
    assert parsed(b"data: " + b"x" * 20 + b"\n\n", limit=20) == [SseEvent(b"x" * 20)]


def test_too_long_is_told_before_the_line_ends_and_not_kept() -> None:
    parser = Parser(1000)
    assert parser.feed(b"data: " + b"x" * 1001) == [EventTooLong(1000)]
    for _ in range(100):
        assert parser.feed(b"x" * 10_000) == []
    assert parser.feed(b"\n\ndata: next\n\n") == [SseEvent(b"next")]


def test_comments_without_end_do_not_add_up() -> None:
    """2026-07-28 basic/transports/streamable-http: clients must ignore comment lines."""
    parser = Parser(100)
    for _ in range(1000):
        assert parser.feed(b":\r\n") == []
    assert parser.feed(b"data: a\n\n") == [SseEvent(b"a")]


@pytest.mark.parametrize("piece", [b"x" * 10, b"\r" * 10, b"data\n" * 2, b"data: x\n"])
def test_time_is_linear(piece: bytes) -> None:
    """Quadratic time would not end before the test's time-out."""
    parser = Parser(1 << 30)
    for _ in range(300_000):
        parser.feed(piece)
    assert len(parser.feed(b"\ndata: end\n\n")) >= 1


# -- any stream, cut anywhere ---------------------------------------------------------------------

PIECES = (b"data|id|event|retry|:|: | |\0|\xef\xbb\xbf|x|1|\xff|xxxxxxxxxx|data: y\n\n|id: 7\n").split(b"|")
streams = st.lists(st.sampled_from([*PIECES, b"\n", b"\r", b"\r\n", b"\n\n"]), max_size=40).map(b"".join)


def reference(stream: bytes) -> list[SseEvent]:
    """The standard's algorithm, step by step, on the whole stream."""
    text = stream.decode("latin-1").removeprefix("\xef\xbb\xbf")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1]
    found, data, kind, last = [], "", "", ""
    for line in lines:
        if not line:
            if data:
                found.append(
                    SseEvent(
                        data[:-1].encode("latin-1"),
                        kind.encode("latin-1").decode("utf-8", "replace") or "message",
                        last.encode("latin-1").decode("utf-8", "replace"),
                    )
                )
            data = kind = ""
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data += value + "\n"
        elif field == "event":
            kind = value
        elif field == "id" and "\0" not in value:
            last = value
    return found


@given(streams, st.data())
def test_any_chunking_gives_the_same(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert parsed(*chunks) == reference(stream)
    limit = data.draw(st.integers(0, 30))
    assert parsed(*chunks, limit=limit) == parsed(stream, limit=limit)


@given(
    st.binary(),
    st.none() | st.text().filter(lambda text: not set(text) & set("\r\n\0")),
    st.none() | st.text(min_size=1).filter(lambda text: not set(text) & set("\r\n\0")),
    st.none() | st.integers(0, 10**14),
)
@example("a\u2028b\u2029".encode(), None, None, None)
def test_what_is_written_is_read(data: bytes, id: str | None, kind: str | None, retry: int | None) -> None:
    try:
        wire = comment() + event(data, id, kind, retry) + comment()
    except UnicodeEncodeError:  # lone surrogates
        return
    parser = Parser(LIMIT)
    read = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    read = read.replace("\u2028".encode(), rb"\u2028").replace("\u2029".encode(), rb"\u2029")  # as JSON may write them
    assert parser.feed(wire) == [SseEvent(read, kind or "message", id or "")]
    assert parser.retry == retry


def test_the_bytes_of_an_event() -> None:
    assert event(b"{}") == b"data: {}\n\n"
    assert event(b"", "a-1", "message", 500) == b"id: a-1\nevent: message\nretry: 500\ndata: \n\n"
    assert event(b"a\nb\rc\r\nd") == b"data: a\ndata: b\ndata: c\ndata: d\n\n"
    assert comment() == b":\n\n"


@pytest.mark.parametrize(
    ("id", "kind", "retry"), [("a\nb", None, None), (None, "a\rb", None), ("\0", None, None), (None, None, -1)]
)
def test_what_would_break_the_stream_is_not_written(id: str | None, kind: str | None, retry: int | None) -> None:
    with pytest.raises(ValueError):
        event(b"x", id, kind, retry)


def test_separators_of_lines_go_escaped() -> None:
    """Some readers end a line at U+2028 and U+2029; in JSON an escape means the same."""
    text = json.dumps({"a": "x\u2028y\u2029z\u2027"}, ensure_ascii=False)
    sent = event(text.encode())
    assert sent == b'data: {"a": "x\\u2028y\\u2029z\xe2\x80\xa7"}\n\n'
    (found,) = Parser(1_000).feed(sent)
    assert isinstance(found, SseEvent)
    assert json.loads(found.data) == json.loads(text)
