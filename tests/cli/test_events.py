"""`dragoman events`, against a server in a process of its own: over HTTP, by streams and by polling."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys

import msgspec
import pytest

from dragoman.mcp import Client
from dragoman.mcp.extensions.events import EventsClient

from .conftest import Command

SERVER = """\
from msgspec import Struct

from dragoman.mcp import Server
from dragoman.mcp.extensions.events import EventLimits, Events

events = Events(poll_again=0.01, limits=EventLimits(events=4))
app = Server("shop", version="1.0.0", extensions=[events])


@events.event("orders.shipped", filters=["carrier"])
class OrderShipped(Struct):
    "An order has left the house.\\n\\nOnce for each parcel."

    order: str
    carrier: str = "DHL"


class Heavier(Struct):
    than: float = 0.0


@events.event("parcel.weighed", modes=["poll"], arguments=Heavier, match=lambda want, it: it.kilograms > want.than)
class ParcelWeighed(Struct):
    "A parcel was weighed."

    kilograms: float


@events.event("stock.counted", modes=["webhook"])
class StockCounted(Struct):
    pass


@app.tool
async def ship(orders: list[str], carrier: str = "DHL") -> str:
    for order in orders:
        await events.emit(OrderShipped(order, carrier), timestamp=1795766400)
    return "shipped"


@app.tool
async def weigh(kilograms: float) -> str:
    await events.emit(ParcelWeighed(kilograms))
    return "weighed"
"""
eras = pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])


@pytest.fixture
def url(command: Command) -> str:
    (command.folder / "shop.py").write_text(SERVER)
    _, urls = command.serve_of("shop:app", "http://127.0.0.1:0/mcp")
    return urls[0]


def call(url: str, tool: str, **arguments: object) -> None:
    """Call a tool."""

    async def run() -> None:
        async with Client(url) as client:
            await client.call_tool(tool, arguments)

    asyncio.run(run())


def position(url: str, name: str) -> str:
    """The position after the events that there are."""

    async def run() -> str:
        async with Client(url, extensions=[EventsClient()]) as client:
            found = msgspec.json.decode(await client.request_raw("events/poll", {"name": name, "arguments": {}}))
            return str(found["cursor"])

    return asyncio.run(run())


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@eras
def test_event_types(command: Command, url: str, era: str) -> None:
    listed = command.run("events", url, "--revision", era)
    assert listed.out.splitlines() == [
        "orders.shipped(carrier?: string)\tpoll, push, webhook\tAn order has left the house.",
        "parcel.weighed(than?: number)\tpoll\tA parcel was weighed.",
        "stock.counted()\twebhook",
    ]
    whole = command.run("events", url, "--json", "--revision", era).json["events"]
    assert [(one["name"], one["delivery"]) for one in whole][1:] == [
        ("parcel.weighed", ["poll"]),
        ("stock.counted", ["webhook"]),
    ]
    assert whole[1]["inputSchema"]["properties"]["than"]["type"] == "number"
    lines = command.run("events", url, "--output", "ndjson", "--revision", era).out.splitlines()
    assert [json.loads(line) for line in lines] == whole
    assert command.run("events", url, "stock.counted", "--json", "--revision", era).json["events"] == whole[2:]


def test_an_event_type_in_detail(command: Command, url: str) -> None:
    shown = command.run("events", url, "orders.shipped").out.splitlines()
    assert [line.rstrip() for line in shown] == [
        "orders.shipped(carrier?: string)",
        "  An order has left the house.",
        "",
        "  Once for each parcel.",
        "  carrier  string, may be left out",
        "  delivery: poll, push, webhook",
        "  data: order: string, carrier?: string",
    ]


@eras
def test_events_are_followed_until_ctrl_c(command: Command, url: str, era: str) -> None:
    before = position(url, "orders.shipped")
    call(url, "ship", orders=["1"])
    words = ("events", url, "orders.shipped", "carrier=DHL", "--watch", "--revision", era)
    process = command.start(*words, "--cursor", before)
    assert line_of(process) == '2026-11-27T08:00:00.000Z  orders.shipped  {"order":"1","carrier":"DHL"}\n'
    call(url, "ship", orders=["2"], carrier="UPS")
    call(url, "ship", orders=["3"])
    assert '{"order":"3","carrier":"DHL"}' in line_of(process)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)
    assert (process.returncode, said[0]) == (0, "")
    assert said[1].startswith("go on after these: --cursor ")
    call(url, "ship", orders=["4"])
    again = command.run(*words, "--cursor", said[1].split()[-1], "--count", "1", "--json")
    assert again.status == 0, again.err
    assert (again.json["data"], again.json["timestamp"]) == (
        {"order": "4", "carrier": "DHL"},
        "2026-11-27T08:00:00.000Z",
    )
    assert again.json["cursor"] == again.err.split()[-1]


def test_events_are_polled_where_there_is_no_stream(command: Command, url: str) -> None:
    before = position(url, "parcel.weighed")
    for kilograms in (1, 5, 7):
        call(url, "weigh", kilograms=kilograms)
    words = ("events", url, "parcel.weighed", "than=2", "--watch", "--json", "--cursor", before)
    done = command.run(*words, "--count", "2")
    assert done.status == 0, done.err
    found = [json.loads(line) for line in done.out.splitlines()]
    assert [one["data"] for one in found] == [{"kilograms": 5.0}, {"kilograms": 7.0}]
    assert all(one.keys() >= {"id", "name", "timestamp"} for one in found)
    call(url, "weigh", kilograms=9)
    done = command.run(*words[:-1], found[-1]["cursor"], "-n", "1")
    assert done.json["data"] == {"kilograms": 9.0}


def test_it_says_what_was_skipped(command: Command, url: str) -> None:
    before = position(url, "orders.shipped")
    call(url, "ship", orders=["1", "2", "3", "4", "5", "6"])
    words = ("events", url, "orders.shipped", "--watch", "--count", "2", "--cursor", before)
    done = command.run(*words)
    assert [line.split("  ")[2] for line in done.out.splitlines()] == [
        f'{{"order":"{number}","carrier":"DHL"}}' for number in (3, 4)
    ]
    assert done.err.startswith("events before this one were skipped\n")
    found = [json.loads(line) for line in command.run(*words, "--json").out.splitlines()]
    assert [one.get("truncated") for one in found] == [True, None]


WRONG: dict[str, tuple[list[str], str]] = {
    "watch nothing": (["--watch"], "--watch needs the name of an event type"),
    "count alone": (["orders.shipped", "--count", "1"], "--count needs --watch"),
    "cursor alone": (["orders.shipped", "--cursor", "1"], "--cursor needs --watch"),
    "max-age alone": (["orders.shipped", "--max-age", "1"], "--max-age needs --watch"),
    "arguments alone": (["orders.shipped", "carrier=DHL"], "'carrier=DHL' is too much"),
    "count of none": (["orders.shipped", "--watch", "--count", "0"], "--count is above 0"),
    "an age of what is new": (["orders.shipped", "--watch", "--max-age", "1"], "--max-age needs --cursor"),
    "no age": (["orders.shipped", "--watch", "--max-age", "nan", "--cursor", "1"], "0 or more"),
    "unknown": (["orders.shiped", "--watch"], "the server has no events 'orders.shiped'; did you mean orders.shipped?"),
    "an unknown argument": (["orders.shipped", "--watch", "carier=DHL"], "did you mean carrier?"),
    "a wrong argument": (["parcel.weighed", "--watch", "than=much"], "than: it must be a number, not 'much'"),
    "by webhook": (["stock.counted", "--watch"], "stock.counted is delivered by webhook alone"),
}


def test_wrong_uses(command: Command, url: str) -> None:
    for case, (words, said) in WRONG.items():
        done = command.run("events", url, *words)
        assert (done.status, done.out) == (2, ""), case
        assert said in done.err, case


def test_a_server_without_events(command: Command) -> None:
    (command.folder / "plain.py").write_text('from dragoman.mcp import Server\napp = Server("plain")\n')
    done = command.run("events", "plain.py")
    assert (done.status, done.out, done.err) == (0, "", "the server has no events\n")
    done = command.run("events", "plain.py", "orders.shipped", "--watch")
    assert (done.status, done.out) == (2, "")
    assert "the server has no events 'orders.shipped'; it has no events" in done.err


def test_what_a_server_says_stays_in_its_line(command: Command) -> None:
    """A type and a time with line ends and control characters, and data that is laid out."""
    (command.folder / "evil.py").write_text(EVIL)
    done = command.run("events", f"{sys.executable} evil.py", "x", "--watch", "--count", "1")
    assert done.status == 0, done.err
    assert done.out == 'now\\nthen\\x1b[2J  x\\ny  {"a":["\\u001b[2J",1.0]}\n'


EVIL = r"""
import json, sys

DECLARED = {"extensions": {"io.modelcontextprotocol/events": {}}}
EVENT = {"eventId": "1", "name": "x\ny", "timestamp": "now\nthen\x1b[2J", "data": {"a": ["\x1b[2J", 1.0]}}
TYPE = {"name": "x", "delivery": ["poll"], "inputSchema": {}, "payloadSchema": {}}
INFO = {"name": "evil", "version": "1"}
ANSWERS = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": DECLARED, "serverInfo": INFO},
    "events/list": {"events": [TYPE]},
    "events/poll": {"events": [EVENT], "cursor": "1", "hasMore": False, "truncated": False, "nextPollMs": 1},
}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked["method"] in ANSWERS:
        answer["result"] = ANSWERS[asked["method"]]
    else:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    print(json.dumps(answer), flush=True)
"""
