"""MCP's `tools/call` over HTTP: the native front and the ASGI app in the stateless era, and sessions of the stateful
one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.environments import Missing
from bench.figures import Figure, Row, at_least, at_most, ratio
from bench.referee import Contestant, Failed, Referee
from bench.rows.in_process import percent, speed

SERVER = ["-m", "bench.servers.mcp", "serve", "http://127.0.0.1:%/mcp", "PORT"]
SDK = ["-m", "bench.peers.mcp_sdk", "http", "PORT"]
LIMIT = ["-m", "bench.limits.mcp"]
STATELESS, STATEFUL = {"era": "2026"}, {"era": "2025"}
FRESH = STATELESS | {"fresh": True}
CHECKED = ["-m", "bench.limits.mcp_checked"]
IN_SESSION = ["-m", "bench.limits.mcp_session", "PORT"]
CONNECTIONS = 32


def sdk(manner: str, kind: Mapping[str, object], calls: int) -> Contestant:
    """The official SDK."""
    name = {
        "default": "official SDK, default",
        "json": "official SDK, JSON answers",
        "best": "official SDK, its best",
    }[manner]
    return Contestant(name, [*SDK, manner], calls, peer="mcp", mcp=kind)


def measured(
    referee: Referee,
    key: str,
    title: str,
    ours: Contestant,
    limit: Contestant | None,
    others: Sequence[Sequence[Contestant]],
) -> Row:
    """One row: ours, the limit, peers, and what stands beside."""
    peers, also = others
    referee.over_wire([ours, *([limit] if limit else []), *peers, *also], framing="http", connections=CONNECTIONS)
    beside, further = ([one.figure for one in some] for some in others)
    return Row(key, title, "us", ours.figure, limit.figure if limit else None, beside, further)


def times(ours: Figure, other: Figure) -> float | None:
    """How many times ours the other costs."""
    return speed(ratio(ours, other))


def native(referee: Referee) -> list[Row]:
    """Stateless, on the native front."""
    ours = Contestant("dragoman", SERVER, 8_000, mcp=STATELESS)
    limit = Contestant("Protocol + httptools + msgspec", [*LIMIT, "http", "PORT"], 12_000, mcp=STATELESS)
    default, best = sdk("default", {"era": "2026"}, 500), sdk("best", {"era": "2026"}, 700)
    threaded = sdk("default", STATELESS | {"tool": "subtract_thread"}, 400)
    threaded.name = threaded.figure.name = "official SDK, default, plain function"
    inline = Contestant("inline", SERVER, 8_000, mcp=STATELESS | {"tool": "subtract_inline"})
    checked = Contestant("the limit with every check", [*CHECKED, "PORT"], 8_000, mcp=STATELESS)
    fresh = Contestant("a new head each time", SERVER, 8_000, mcp=FRESH)
    also = [
        Contestant("on uvloop", [*SERVER, "uvloop"], 8_000, mcp=STATELESS),
        inline,
        Contestant("async def that waits a turn", SERVER, 6_000, mcp=STATELESS | {"tool": "subtract_waits"}),
        Contestant("plain function in a thread", SERVER, 4_000, mcp=STATELESS | {"tool": "subtract_thread"}),
        threaded,
        Contestant("inline, on uvloop", [*SERVER, "uvloop"], 8_000, mcp=STATELESS | {"tool": "subtract_inline"}),
        Contestant("the limit on uvloop", [*LIMIT, "http", "PORT", "uvloop"], 12_000, mcp=STATELESS),
        checked,
        fresh,
        Contestant("the limit with every check, a new head each time", [*CHECKED, "PORT"], 8_000, mcp=FRESH),
    ]
    title = "MCP tools/call, HTTP 2026-07-28, native front"
    row = measured(referee, "mcp-http", title, ours, limit, ([default, best], also))
    row.goals = [
        at_least(">= 25x the SDK's default", times(ours.figure, default.figure), 25),
        at_least(">= 15x the SDK's best", times(ours.figure, best.figure), 15),
        at_most("inline <= 1.3x the limit with every check", ratio(inline.figure, checked.figure), 1.3),
        at_most("a new head <= 1.4x a known one", ratio(fresh.figure, ours.figure), 1.4),
    ]
    return [row]


def asgi(referee: Referee) -> list[Row]:
    """Stateless, as an ASGI app."""
    ours = Contestant("dragoman", ["-m", "bench.servers.mcp", "asgi", "PORT"], 6_000, mcp=STATELESS)
    limit = Contestant("raw ASGI app + msgspec", [*LIMIT, "asgi", "PORT"], 8_000, mcp=STATELESS)
    default = sdk("default", {"era": "2026"}, 500)
    inline = Contestant("inline", ours.argv, 6_000, mcp=STATELESS | {"tool": "subtract_inline"})
    title = "MCP tools/call, HTTP 2026-07-28, ASGI on uvicorn"
    row = measured(referee, "mcp-asgi", title, ours, limit, ([default], [inline]))
    row.goals = [
        at_least(">= 12x the SDK's default", times(ours.figure, default.figure), 12),
        at_least(">= 60 % of a raw ASGI app", percent(ratio(ours.figure, limit.figure)), 60, " %"),
    ]
    return [row]


def sessions(referee: Referee) -> list[Row]:
    """Stateful, answered in JSON and by a stream."""
    rows = []
    for name, sse, least, words in (("JSON", False, 25, []), ("SSE", True, 30, ["stream"])):
        kind = STATEFUL | {"sse": sse}
        ours = Contestant("dragoman", [*SERVER, *words], 6_000, mcp=kind)
        peer = sdk("default" if sse else "json", kind, 400)
        also = [] if sse else [sdk("best", kind, 400)]
        also += [Contestant("inline", [*SERVER, *words], 6_000, mcp=kind | {"tool": "subtract_inline"})]
        also += [Contestant("on uvloop", [*SERVER, "uvloop", *words], 6_000, mcp=kind)]
        limit = None if sse else Contestant("by hand, with every check", IN_SESSION, 8_000, mcp=kind)
        title = f"MCP tools/call, HTTP 2025-11-25 in a session, {name}"
        row = measured(referee, f"mcp-session-{name.lower()}", title, ours, limit, ([peer], also))
        row.goals = [at_least(f">= {least}x the SDK", times(ours.figure, peer.figure), least)]
        rows.append(row)
    return rows


def aborted(referee: Referee) -> list[Row]:
    """A healthy call after a hundred whose callers hung up at once."""
    ours = Contestant("dragoman", SERVER, 1, mcp=STATELESS)
    default = sdk("default", {"era": "2026"}, 1)
    session = Contestant("dragoman, in a session", SERVER, 1, mcp=STATEFUL)
    for _ in range(max(2, referee.rounds // 2)):
        for one in (ours, default, session):
            after_aborts(referee, one)
    row = Row(
        "mcp-aborted",
        "MCP: a call after 100 aborted POSTs",
        "ms",
        ours.figure,
        None,
        [default.figure],
        [session.figure],
    )
    worst = max(ours.figure.samples) if ours.figure.samples else None
    row.goals = [at_most("< 300 ms, at worst", worst, 300, " ms")]
    return [row]


def after_aborts(referee: Referee, one: Contestant) -> None:
    """One sample, of a server of its own."""
    try:
        with referee.generator("bench.mcp_load") as load, referee.server(one) as (pid, address):
            load.ask(do="open", name="a", address=address, pid=pid, mcp=one.mcp)
            one.figure.samples.append(load.ask(do="abort", name="a", count=100)["seconds"] * 1e3)
            load.ask(do="close", name="a")
    except (Missing, Failed, OSError) as error:
        one.figure.missing = str(error)
