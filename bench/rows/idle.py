"""Ten thousand idle TCP connections: what each costs in memory, and what an active one notices of them."""

from __future__ import annotations

import resource

from bench.environments import Missing
from bench.figures import Figure, Row, at_most, ratio
from bench.referee import Contestant, Failed, Referee, Talker

SPARE = 200
"""File descriptors a server needs besides its connections."""


def resident(pid: int) -> int:
    """Memory of a process in bytes (its resident set)."""
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def raise_file_limit(wanted: int) -> int:
    """How many files a process of ours may have open, raised up to `wanted`; children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def latencies(referee: Referee, load: Talker, one: Contestant, alone: Figure, beside: Figure) -> None:
    """Rounds of the one without idle connections and the one with them, in turn."""
    calls = referee.calls(one)
    for _ in range(referee.rounds):
        for name, figure in (("alone", alone), ("beside", beside)):
            figure.samples.append(load.ask(do="latency", name=name, calls=calls)["seconds"] * 1e6)


def held(referee: Referee, one: Contestant, count: int) -> tuple[Figure, Figure, Figure]:
    """Two servers, one of which gets `count` connections that make a call each: KiB for each, and both latencies."""
    memory, alone, beside = Figure(one.name), Figure(f"{one.name}, no idle ones"), Figure(f"{one.name}, beside them")
    try:
        with referee.generator() as load, referee.server(one) as first, referee.server(one) as second:
            for name, (pid, address) in (("alone", first), ("beside", second)):
                load.ask(do="open", name=name, framing="newline", address=address, pid=pid, echo=one.echo)
                load.ask(do="run", name=name, calls=referee.calls(one), window=32)
            empty = resident(second[0])
            load.ask(do="hold", name="beside", count=count)
            memory.samples.append((resident(second[0]) - empty) / count / 1024)
            latencies(referee, load, one, alone, beside)
            for name in ("alone", "beside"):
                load.ask(do="close", name=name)
    except (Missing, Failed, OSError) as error:
        for figure in (memory, alone, beside):
            if not figure.samples:
                figure.missing = str(error)
    return memory, alone, beside


def idle(referee: Referee) -> list[Row]:
    """Memory, then latency."""
    wanted = 10_000 if referee.scale >= 1 else 2_000
    count = min(wanted, raise_file_limit(wanted + SPARE) - SPARE)
    ours = Contestant("dragoman", ["-m", "bench.servers.wires", "tcp://127.0.0.1:%", "PORT"], 1_500)
    echo = Contestant("asyncio line echo", ["-m", "bench.limits.lines", "tcp", "PORT"], 1_500, echo=True)
    each, alone, beside = held(referee, ours, count)
    echo_each, echo_alone, echo_beside = held(referee, echo, count)
    memory = Row("idle-memory", f"idle TCP connection, {count:,} held, each", "KiB", each, echo_each)
    memory.goals = [at_most("<= 8 KiB", each.median if each.samples else None, 8, " KiB")]
    title = f"latency of an active one beside {count:,} idle"
    latency = Row("idle-latency", title, "us", beside, also=[alone, echo_beside, echo_alone])
    latency.goals = [at_most("unchanged (within 25 %)", ratio(beside, alone), 1.25)]
    return [memory, latency]
