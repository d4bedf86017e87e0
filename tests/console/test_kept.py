"""What is kept of what has ended, and the bounds of all of it."""

from __future__ import annotations

import asyncio
import sys
from time import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import Context, RpcError, Service, connect
from dragoman.console import recorder as recording
from dragoman.console import series as seconds_of
from dragoman.console.errors import ERRORS
from dragoman.console.recorder import Recorder
from dragoman.console.rows import EndedCall, MethodSeconds
from dragoman.console.series import BOUNDS, SECONDS, SLOT, MethodSeries, Series, percentile
from dragoman.console.timeline import NO_CODE, Line, Row, Timeline
from dragoman.console.views import mask, method_rows, parse_filter, sum_methods
from dragoman.jsonrpc.errors import LocalError
from dragoman.mcp import Client, Server, ToolError

from .ends import with_console

SERIES = MethodSeries("s", "m", "")


def line(method: str = "m", own: int = 0) -> Line:
    return Line("s", method, "", "request", "in", SERIES, own)


def row(number: int, text: str = "", one: Line | None = None) -> Row:
    return ((one or line(), "result", "tcp", "", "", "", text, ""), float(number), 0.5, -1.0, 1, 2, number, 0, NO_CODE)


# -- the ring


@given(st.lists(st.integers(0, 40), max_size=30))
def test_the_ring_has_the_newest_rows(sizes: list[int]) -> None:
    timeline, added = Timeline(rows=16), 0
    for size in sizes:
        timeline.add([row(added + one) for one in range(size)])
        added += size
        assert len(timeline) == min(added, 16)
        wanted = list(range(max(0, added - 16), added))
        assert [int(one.id) for one in timeline.newest()] == wanted[::-1]
        assert [int(one.id) for one in timeline.since(added - 5)] == wanted[-5:] if added >= 5 else True
        assert [one.seq for one in timeline.since(0)] == wanted


def test_texts_of_rows_are_bounded() -> None:
    timeline = Timeline(rows=100, texts=1000)
    timeline.add([row(one, "x" * 90) for one in range(50)])
    assert (len(timeline), timeline.bytes) == (11, 990)
    timeline.add([row(50, "x" * 5000)])
    assert (len(timeline), timeline.bytes) == (0, 0)  # one that is too long by itself goes too
    timeline.add([row(51, one=line("y" * 90, own=190))] * 20)
    assert (len(timeline), timeline.bytes) == (5, 950)
    timeline.add([row(52)] * 100)
    assert (len(timeline), timeline.bytes) == (100, 0)


def test_what_a_full_ring_takes() -> None:
    timeline = Timeline()
    for begin in range(0, 20_000, 250):
        timeline.add([row(begin + one) for one in range(250)])
    texts = sum(sys.getsizeof(one) for one in timeline._texts)
    columns = sum(sys.getsizeof(one) for one in timeline._columns)
    assert (texts + columns + sys.getsizeof(timeline._texts)) / 10_000 < 180


def test_a_row_keeps_what_its_columns_say() -> None:
    timeline = Timeline(rows=4)
    timeline.add([((line(), "error", "tcp", "r", "s", "ada", "t", "a"), 1e9, 0.25, 0.125, 2**40, 3, 7, 6, -32601)])
    (one,) = timeline.newest()
    assert one == EndedCall(
        seq=0, id="7", parent="6", time=1e9, ended=1e9 + 0.25, ms=250.0, wait=125.0, service="s", method="m", target="",
        kind="request", direction="in", wire="tcp", remote="r", session="s", principal="ada", outcome="error",
        code=-32601, text="t", about="a", received=2**40, sent=3,
    )  # fmt: skip


# -- series


def test_percentiles_are_real() -> None:
    series = MethodSeries("s", "m", "")
    taken = [0.001 * one for one in range(1, 1001)]
    for begin in range(0, 1000, 100):
        series.add(1_000_000 + begin // 10, taken[begin : begin + 100], 0, 0)
    found = series.read(1_000_100)
    for share in (0.5, 0.95, 0.99):
        assert percentile(found.buckets, share) == pytest.approx(share, rel=0.1)
    assert sum(found.counts) == 1000
    assert percentile([0] * (len(BOUNDS) + 1), 0.5) == 0


def test_percentiles_of_workers_are_of_all_their_calls() -> None:
    """The mean of two 95th percentiles would be half a second."""
    quick, slow = MethodSeries("s", "m", ""), MethodSeries("s", "m", "")
    quick.add(1_000_000, [0.001] * 99, 1, 10)
    slow.add(1_000_000, [1.0], 0, 5)
    (both,) = method_rows(sum_methods([[quick.read(1_000_000, 60)], [slow.read(1_000_000, 60)]]))
    assert (both.count, both.failed, both.bytes) == (100, 1, 15)
    assert both.p95 == pytest.approx(1, rel=0.2)
    assert both.p50 == pytest.approx(1, rel=0.2)


def test_seconds_are_forgotten_after_a_quarter_of_an_hour() -> None:
    series = MethodSeries("s", "m", "")
    series.add(1_000_000, [0.001], 1, 10)
    series.add(1_000_001, [0.001], 0, 10)
    assert series.read(1_000_001).counts[-2:] == [1, 1]
    assert sum(series.read(1_000_000 + SECONDS).counts) == 1
    assert sum(series.read(1_000_001 + SECONDS + SLOT).buckets) == 0
    series.add(1_000_000 + SECONDS, [0.5], 0, 1)  # the same bucket, of the next round
    found = series.read(1_000_000 + SECONDS)
    assert (found.counts[-1], found.errors[-1], found.bytes[-1]) == (1, 0, 1)
    assert sum(found.counts) == 2


def test_steps_of_seconds() -> None:
    series = MethodSeries("s", "m", "")
    for second in range(25):
        series.add(1_000_000 + second, [0.1], second % 2, 3)
    found = series.read(1_000_024, 25, 10)
    assert (found.counts, found.errors, found.bytes) == ([10, 10, 5], [5, 5, 2], [30, 30, 15])


def test_methods_beyond_the_bound_are_one() -> None:
    series = Series(methods=3)
    for name in "abcde":
        series.of("s", name, "", 1000).add(1000, [0.1], 0, 0)
    found = {one.method: sum(one.counts) for one in series.read(1000, 60)}
    assert found == {"a": 1, "b": 1, "c": 1, "other": 2}
    series.of("s", "late", "", 1000 + SECONDS).add(1000 + SECONDS, [0.1], 0, 0)  # one that is silent gives way
    assert {one.method for one in series.read(1000 + SECONDS, 60)} == {"late"}
    assert len(series) == 3


# -- what the recorder keeps


def mixed() -> Service:
    api = Service("mixed")

    @api.method(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    @api.method
    async def fail() -> None:
        raise RpcError("Nothing here", code=7)

    @api.method
    async def leak() -> None:
        raise ValueError("password=hunter2 is wrong")

    @api.method
    async def ask(ctx: Context) -> object:
        answer = await ctx.call("answer")
        await asyncio.sleep(0.05)  # it ends later than what it asked, also by a coarse clock
        return answer

    return api


async def test_a_timeline_of_calls_and_questions() -> None:
    own = Service("caller")

    @own.method(inline=True)
    def answer() -> int:
        return 42

    async with with_console(mixed()) as ends, connect(ends.serving.urls[0], service=own) as peer:
        assert await peer.call("add", [1, 2]) == 3
        with pytest.raises(RpcError):
            await peer.call("fail")
        assert await peer.call("ask") == 42
        with pytest.raises(RpcError):
            await peer.call("absent")
        await peer.notify("add", [1, 2])
        await peer.call("add", [3, 4])
        rows = (await ends.get("/api/timeline"))["rows"][::-1]
        shown = [(one["method"], one["kind"], one.get("direction", "in"), one["outcome"]) for one in rows]
        assert shown == [
            ("add", "request", "in", "result"),
            ("fail", "request", "in", "error"),
            ("answer", "request", "out", "result"),
            ("ask", "request", "in", "result"),
            ("absent", "request", "in", "error"),
            ("add", "notification", "in", "notified"),
            ("add", "request", "in", "result"),
        ]
        assert rows[2]["parent"] == rows[3]["id"]
        assert (rows[1]["code"], rows[1]["text"]) == (7, "RpcError: Nothing here")
        assert rows[0]["received"] > 40
        assert rows[0]["sent"] > 30
        assert abs(rows[0]["time"] - time()) < 60
        # a page of them, by the time of the last
        older = (await ends.get(f"/api/timeline?limit=2&before={rows[3]['ended']!r}"))["rows"]
        assert [one["id"] for one in older] == [rows[2]["id"], rows[1]["id"]]
        found = (await ends.get("/api/timeline?q=method:add+kind:request"))["rows"]
        assert len(found) == 2
        methods = {one["method"]: one for one in (await ends.get("/api/methods?seconds=60&step=60"))["methods"]}
        assert methods["add"]["count"] == 3
        assert methods["fail"]["failed"] == 1
        assert methods["other"]["count"] == 1  # what does not exist has no series of its own
        assert methods["add"]["p99"] >= methods["add"]["p50"] > 0


async def test_errors_by_code_and_text() -> None:
    async with with_console(mixed()) as ends, connect(ends.serving.urls[0]) as peer:
        for method in ("fail", "leak", "fail", "absent"):
            with pytest.raises(RpcError):
                await peer.call(method)
        found = await ends.get("/api/errors")
        assert [one["method"] for one in found["errors"]] == ["absent", "fail", "leak", "fail"]
        first = found["groups"][0]
        assert (first["code"], first["text"], first["count"], first["methods"]) == (
            7,
            "RpcError: Nothing here",
            2,
            ["fail"],
        )
        (leak,) = [one for one in found["errors"] if one["method"] == "leak"]
        assert leak["text"] == "ValueError: password***"
        assert "hunter2" not in f"{found}{await ends.get('/api/timeline')}"


async def test_a_tool_that_says_it_failed_is_an_error() -> None:
    app = Server("tools")

    @app.tool
    async def fails() -> str:
        raise ToolError("no such city")

    @app.tool
    async def quotes() -> str:
        return '"isError":true'

    async with with_console(app, "http://127.0.0.1:0/mcp") as ends:
        async with Client(ends.serving.urls[0]) as client:
            await client.call_tool("quotes", {})
            assert (await client.call_tool("fails", {})).is_error
        rows = {one["target"]: one for one in (await ends.get("/api/timeline?q=method:tools/call"))["rows"]}
        assert (rows["quotes"]["outcome"], rows["fails"]["outcome"]) == ("result", "tool_error")
        assert [one["target"] for one in (await ends.get("/api/timeline?q=status:error"))["rows"]] == ["fails"]


async def test_floods_are_bounded() -> None:
    recorder, api = Recorder(), mixed()
    api.observe(recorder)
    for number in range(12_000):
        name = f"{'x' * 200}{number}"
        await api.answer_async(msgspec.json.encode({"jsonrpc": "2.0", "method": name, "id": 1}))
    assert len(recorder.timeline) <= 10_000
    assert recorder.timeline.bytes <= 2 * 1024 * 1024 + 500
    assert all(len(one.method) <= recording.NAME for one in recorder.timeline.newest())
    assert len(recorder._lines) == 0
    assert len(recorder.series) == 0
    assert len(list(recorder.errors.newest())) == ERRORS
    assert len(recorder.board) == 0


async def test_no_message_is_held() -> None:
    recorder, api = Recorder(), mixed()
    api.observe(recorder)
    secret = f"{'hush' * 10}"
    await api.answer_async(
        msgspec.json.encode({"jsonrpc": "2.0", "method": "add", "params": [secret, 1], "id": secret})
    )
    rows = list(recorder.timeline.newest())
    assert len(rows) == 1
    assert secret not in f"{rows}{list(recorder.errors.newest())}"


def test_bounds_are_those_of_the_docs() -> None:
    assert (seconds_of.SECONDS, seconds_of.METHODS, ERRORS) == (900, 200, 1000)


# -- views


ROW = EndedCall(
    seq=1, id="7", time=1.0, ended=2.0, ms=600.0, wait=2.0, service="shop", method="Orders.add", kind="request",
    wire="tcp", remote="127.0.0.1:5", principal="ada", outcome="error", code=-32601, text="Method not found",
    received=10, sent=20,
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("", True),
        ("method:orders", True),
        ("method:x", False),
        ("status:error", True),
        ("status:ok", False),
        ("status:cancelled", False),
        ("ms:>500", True),
        ("ms:>=600", True),
        ("ms:<600", False),
        ("ms:600", True),
        ("code:-32601", True),
        ("code:=7", False),
        ("principal:ADA", True),
        ("method:add status:error ms:>500 principal:ada", True),
        ("method:add status:error ms:>500 principal:bob", False),
        ("not found", True),
        ("orders", True),
        ("wire:tc", False),
        ("id:7", True),
        ("wait:>1", True),
    ],
)
def test_filters(text: str, fits: bool) -> None:
    assert parse_filter(text)(ROW) is fits


def test_a_number_that_is_not_there_fits_nothing() -> None:
    other = msgspec.structs.replace(ROW, code=None, wait=None)
    assert not parse_filter("code:<0")(other)
    assert not parse_filter("wait:>=0")(other)


@given(st.text(max_size=600))
def test_any_text_is_a_filter_or_an_error(text: str) -> None:
    try:
        parse_filter(text)(ROW)
    except LocalError:
        pass


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("all is well", "all is well"),
        ("the API-Key k1 is bad", "the API-Key***"),
        ("authorization: Basic eA==", "authorization***"),
        ("my_private_key=..", "my_private_key***"),
    ],
)
def test_secrets_are_masked(text: str, shown: str) -> None:
    assert mask(text) == shown


def test_sums_need_the_same_steps() -> None:
    one = MethodSeconds(service="s", method="m", target="", counts=[1], errors=[0], bytes=[2], buckets=[1])
    assert sum_methods([[one], [one]])[0].counts == [2]


async def test_rows_of_calls_that_go_on_at_the_same_time() -> None:
    recorder, api = Recorder(), mixed()
    api.observe(recorder)
    raw = b'{"jsonrpc":"2.0","method":"fail","id":1}'
    await asyncio.gather(*(api.answer_async(raw) for _ in range(600)))
    assert recorder.timeline.count == 600
    assert sum(recorder.series.of("mixed", "fail", "", int(time())).read(int(time())).counts) == 600
    assert recorder.errors.count == 600
