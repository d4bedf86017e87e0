"""MCP on stdio, in memory and by our client; a thousand tools; what idle sessions and streams weigh."""

from __future__ import annotations

import contextlib
import sys

from bench.environments import Missing
from bench.figures import Figure, Row, at_least, at_most, ratio
from bench.referee import Contestant, Failed, Referee, Talker
from bench.rows.idle import raise_file_limit, resident
from bench.rows.imports import above, once
from bench.rows.in_process import speed
from bench.rows.mcp_http import SERVER, STATEFUL, STATELESS, sdk

OURS = ["-m", "bench.servers.mcp"]
SDK = ["-m", "bench.peers.mcp_sdk"]
TYPESCRIPT = "bench/peers/mcp_ts.js"
NODE = "@modelcontextprotocol/server"
MSGSPEC = "bench.peers.mcp_utils_msgspec"
TOGETHER = 32


def stdio(referee: Referee) -> list[Row]:
    """Lines on pipes, 32 calls in flight."""
    server = [*OURS, "serve", "stdio:"]
    ours = Contestant("dragoman", server, 16_000, mcp=STATELESS)
    limit = Contestant("bare loop + msgspec", ["-m", "bench.limits.mcp", "stdio"], 40_000, mcp=STATELESS)
    official = Contestant("official SDK", [*SDK, "stdio"], 500, peer="mcp", mcp=STATELESS)
    node = Contestant("TypeScript SDK", [TYPESCRIPT, "stdio"], 16_000, peer=NODE, mcp=STATELESS)
    also = [
        Contestant("inline", server, 16_000, mcp=STATELESS | {"tool": "subtract_inline"}),
        Contestant("2025-11-25", server, 16_000, mcp=STATEFUL),
        Contestant("2025-11-25, inline", server, 16_000, mcp=STATEFUL | {"tool": "subtract_inline"}),
        Contestant("official SDK, 2025-11-25", [*SDK, "stdio"], 500, peer="mcp", mcp=STATEFUL),
        Contestant("TypeScript SDK, 2025-11-25", [TYPESCRIPT, "stdio"], 16_000, peer=NODE, mcp=STATEFUL),
    ]
    referee.over_wire([ours, limit, official, node, *also], framing="newline", wire="stdio")
    peers, beside = [official.figure, node.figure], [one.figure for one in also]
    row = Row("mcp-stdio", "MCP tools/call, stdio, 32 in flight", "us", ours.figure, limit.figure, peers, beside)
    row.goals = [
        at_least(">= 40x the SDK", speed(ratio(ours.figure, official.figure)), 40),
        at_least("ahead of the TypeScript SDK", speed(ratio(ours.figure, node.figure)), 1),
    ]
    return [row]


def process(referee: Referee) -> list[Row]:
    """`tools/call` of 2026-07-28, bytes to bytes in one process; and one with 2 MB of arguments and of result."""
    rows = []
    for key, title, calls, task in (
        ("mcp-process", "MCP tools/call 2026-07-28 in process", 20_000, "single"),
        ("mcp-process-big", "MCP tools/call 2026-07-28 in process, 2 MB", 30, "big"),
    ):
        ours = Contestant("dragoman", [*OURS, "process"], calls, task=task)
        peer = Contestant("mcp-utils-msgspec", ["-m", MSGSPEC], calls, task=task, peer="mcp-utils-msgspec")
        also = []
        if task == "single":
            also = [Contestant("inline", ours.argv, calls, task="inline")]
            also += [Contestant("plain function in a thread", ours.argv, calls // 4, task="thread")]
        referee.in_process([ours, peer, *also])
        row = Row(key, title, "us", ours.figure, None, [peer.figure], [one.figure for one in also])
        row.goals = [at_least("ahead of mcp-utils-msgspec", speed(ratio(ours.figure, peer.figure)), 1)]
        rows.append(row)
    return rows


def unused(referee: Referee) -> list[Row]:
    """A plain `tools/call` of a server that has `Tasks` and `Events`, beside one that has not, bytes to bytes."""
    ours = Contestant("dragoman", [*OURS, "process", "declared"], 20_000)
    without = Contestant("without them", [*OURS, "process"], 20_000)
    referee.in_process([ours, without])
    row = Row("mcp-unused", "MCP tools/call beside tasks and events that it does not use", "us", ours.figure)
    row.also = [without.figure]
    row.goals = [at_most("as without them (within 5 %)", ratio(ours.figure, without.figure), 1.05)]
    return [row]


def memory(referee: Referee) -> list[Row]:
    """`Client(server)`: both ends in one process, one awaited call after the other."""
    ours = Contestant("dragoman", [*OURS, "memory"], 4_000)
    official = Contestant("official SDK", [*SDK, "memory"], 400, peer="mcp")
    node = Contestant("TypeScript SDK", [TYPESCRIPT, "memory"], 10_000, peer=NODE)
    referee.in_process([ours, official, node])
    figures = [official.figure, node.figure]
    row = Row("mcp-memory", "MCP client to server in memory", "us", ours.figure, None, figures)
    row.goals = [
        at_least(">= 20x the SDK", speed(ratio(ours.figure, official.figure)), 20),
        at_least("ahead of the TypeScript SDK", speed(ratio(ours.figure, node.figure)), 1),
    ]
    return [row]


def client(referee: Referee) -> list[Row]:
    """Our HTTP client beside the SDK's, both at the bare server, 32 calls at a time: CPU of the client."""
    limit = Contestant("bare server", ["-m", "bench.limits.mcp", "serve", "PORT"], 1)
    try:
        with referee.server(limit) as (_, address):
            url = f"http://127.0.0.1:{address[1]}/mcp"
            ours = Contestant("dragoman", [*OURS, "client", url], 150, task="together")
            official = Contestant("official SDK", [*SDK, "client", url], 20, peer="mcp", task="together")
            also = Contestant("one at a time", [*OURS, "client", url], 1_500)
            referee.in_process([ours, official, also])
    except (Missing, Failed, OSError) as error:
        return [Row("mcp-client", "MCP client, HTTP", "us", Figure("dragoman", missing=str(error)))]
    for figure in (ours.figure, official.figure):
        figure.samples = [sample / TOGETHER for sample in figure.samples]
    title = "MCP client over HTTP, 32 calls at a time"
    row = Row("mcp-client", title, "us", ours.figure, None, [official.figure], [also.figure])
    row.goals = [at_least(">= 8x its client", speed(ratio(ours.figure, official.figure)), 8)]
    return [row]


def tools(referee: Referee) -> list[Row]:
    """A thousand tools: register them, list them, call one."""
    return [registered(referee), listed(referee), called(referee)]


def registered(referee: Referee) -> Row:
    """CPU of making such a server."""
    ours = Contestant("dragoman", [*OURS, "tools", "1000"], 1)
    official = Contestant("official SDK", [*SDK, "tools", "1000"], 1, peer="mcp")
    with contextlib.ExitStack() as ends:
        talkers: list[tuple[Contestant, Talker]] = []
        for one in (ours, official):
            try:
                argv, env = referee.command(one)
                talkers.append((one, Talker(argv, referee.server_core, env)))
                ends.callback(talkers[-1][1].end)
            except (Missing, OSError) as error:
                one.figure.missing = str(error)
        for _ in range(3):
            for one, talker in talkers:
                try:
                    one.figure.samples.append(talker.ask(task="single", calls=1)["cpu"] * 1e3)
                except Failed as error:
                    one.figure.missing = str(error)
    row = Row("mcp-register", "MCP: register 1,000 tools", "ms", ours.figure, None, [official.figure])
    row.goals = [at_most("<= 150 ms", ours.figure.median if ours.figure.samples else None, 150, " ms")]
    return row


def listed(referee: Referee) -> Row:
    """`tools/list` of all of them on one page."""
    kind = STATELESS | {"method": "tools/list"}
    ours = Contestant("dragoman", [*SERVER, "1000"], 200, mcp=kind)
    official = Contestant("official SDK", [*SDK, "list", "PORT", "1000"], 10, peer="mcp", mcp=kind)
    referee.over_wire([ours, official], framing="http", connections=2)
    for figure in (ours.figure, official.figure):
        figure.samples = [sample / 1e3 for sample in figure.samples]
    row = Row("mcp-list", "MCP: tools/list of 1,000 tools", "ms", ours.figure, None, [official.figure])
    row.goals = [at_most("<= 1 ms of CPU", ours.figure.median if ours.figure.samples else None, 1, " ms")]
    return row


def called(referee: Referee) -> Row:
    """`tools/call` beside a thousand, and beside none."""
    many = Contestant("dragoman", [*SERVER, "1000"], 6_000, mcp=STATELESS)
    few = Contestant("with one tool", SERVER, 6_000, mcp=STATELESS)
    referee.over_wire([many, few], framing="http", connections=32)
    row = Row("mcp-flat", "MCP: tools/call beside 1,000 tools", "us", many.figure, also=[few.figure])
    row.goals = [at_most("flat (within 25 % of one tool)", ratio(many.figure, few.figure), 1.25)]
    return row


def weights(referee: Referee, one: Contestant, count: int) -> tuple[Figure, Figure, Figure]:
    """KiB for each idle session, for each GET stream on one, and for each subscription of the stateless era."""
    figures = Figure(one.name), Figure(one.name), Figure(f"{one.name}, subscriptions/listen")
    try:
        with referee.generator("bench.mcp_load") as load, referee.server(one) as (pid, address):
            for name, kind in (("stateful", STATEFUL), ("stateless", STATELESS)):
                load.ask(do="open", name=name, address=address, pid=pid, mcp=kind, connections=2)
                load.ask(do="run", name=name, calls=200, window=2)
            load.ask(do="sessions", name="stateful", count=100)  # what the first ones bring along
            for figure, name, what in zip(
                figures, ("stateful", "stateful", "stateless"), ("sessions", "streams", "listen"), strict=True
            ):
                before = resident(pid)
                load.ask(do=what, name=name, count=count)
                figure.samples.append((resident(pid) - before) / count / 1024)
            for name in ("stateful", "stateless"):
                load.ask(do="close", name=name)
    except (Missing, Failed, OSError) as error:
        for figure in figures:
            if not figure.samples:
                figure.missing = str(error)
    return figures


def idle(referee: Referee) -> list[Row]:
    """Memory of sessions and streams."""
    raise_file_limit(4_000)
    count = 1_000 if referee.scale >= 1 else 300
    ours = weights(referee, Contestant("dragoman", SERVER, 1), count)
    theirs = weights(referee, sdk("best", {}, 1), count // 2)
    session = Row("mcp-session", f"MCP: idle session, {count:,} held, each", "KiB", ours[0], None, [theirs[0]])
    session.goals = [at_most("<= 6 KiB", ours[0].median if ours[0].samples else None, 6, " KiB")]
    stream = Row("mcp-stream", f"MCP: open SSE stream, {count:,} held, each", "KiB", ours[1], None, [theirs[1]])
    stream.also = [ours[2], theirs[2]]
    stream.goals = [at_most("<= 12 KiB", ours[1].median if ours[1].samples else None, 12, " KiB")]
    return [session, stream]


def imports(referee: Referee) -> list[Row]:
    """What importing costs over bare Python, and what an idle server weighs."""
    codes = {
        ("dragoman", ""): "from dragoman.mcp import Client, Context, Server",
        ("bare", ""): "pass",
        ("official SDK", "mcp"): "from mcp import Client\nfrom mcp.server.mcpserver import Context, MCPServer",
        ("bare SDK", "mcp"): "pass",
        ("msgspec and asyncio", ""): "import msgspec, asyncio",
    }
    time = {name: Figure(name) for name, _ in codes}
    for round_ in range(-1, max(3, 2 * referee.rounds)):
        for (name, peer), code in codes.items():
            try:
                if peer and not referee.peers:
                    raise Missing("peers were left out")
                cpu, _ = once(referee.environments.program(peer)[0] if peer else sys.executable, code)
            except Missing as missing:
                time[name].missing = str(missing)
                continue
            if round_ >= 0:  # the first one writes the byte code
                time[name].samples.append(cpu)
    ours, theirs = above(time["dragoman"], time["bare"]), above(time["official SDK"], time["bare SDK"])
    least = above(time["msgspec and asyncio"], time["bare"])
    row = Row("mcp-import", "import dragoman.mcp, over bare Python", "ms CPU", ours, least, [theirs])
    row.goals = [at_most("<= 120 ms (1.8x msgspec and asyncio's 67)", ratio(ours, least), 120 / 67)]
    return [row, resting(referee)]


def resting(referee: Referee) -> Row:
    """The resident set of a server that has answered a few calls."""
    contestants = [Contestant("dragoman", SERVER, 1), sdk("default", {}, 1)]
    for one in contestants:
        try:
            with referee.generator("bench.mcp_load") as load, referee.server(one) as (pid, address):
                load.ask(do="open", name="a", address=address, pid=pid, mcp=STATELESS)
                load.ask(do="run", name="a", calls=20, window=1)
                one.figure.samples.append(resident(pid) / 1024 / 1024)
                load.ask(do="close", name="a")
        except (Missing, Failed, OSError) as error:
            one.figure.missing = str(error)
    ours, theirs = (one.figure for one in contestants)
    row = Row("mcp-server-memory", "MCP: an idle server", "MiB", ours, None, [theirs])
    row.goals = [at_most("<= 35 MiB", ours.median if ours.samples else None, 35, " MiB")]
    return row
