"""The ways in which contestants are measured: each begins with a contestant and gives what takes its samples."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from bench.environments import CACHE, ROOT, Missing, interpreter
from bench.figures import Contestant
from bench.referee import LOAD_CORE, SAMPLE, SERVER_CORE, Failed, Race, Sampler, Talker, Way

SPARE = 200
"""File descriptors a process needs besides its connections."""
PEAK = "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
"""The program's own highest resident set in KiB: `ru_maxrss` would count what it was forked from."""


def _in_process(race: Race, one: Contestant, **places: object) -> Sampler:
    talker = race.talker(one, **places)
    answer = talker.ask(calls=1)["answer"]
    if "19" not in answer:
        raise Failed(f"answered {answer}")

    def run(calls: int) -> float:
        spent: float = talker.ask(calls=calls)["cpu"]
        return spent

    calls = race.calls(run)
    return lambda: run(calls) / calls / one.about.get("each", 1)


in_process = Way(_in_process)
"""CPU of a contestant for one call inside its own process; `each`: how many it makes at a time."""


def _at_bare_server(race: Race, one: Contestant) -> Sampler:
    _, (_, port) = race.server(Contestant("bare_mcp http PORT"))
    return _in_process(race, one, PORT=port)


at_bare_server = Way(_at_bare_server)
"""The same of a client, whose calls a bare server answers."""


def _opened(race: Race, one: Contestant, **order: Any) -> tuple[Talker, dict[str, Any]]:
    """A load generator, and the order that opens its wires to a contestant: a server, or a child with two pipes."""
    order |= {"do": "open", **one.about}
    _allow_files(max(order.get("hold", 0), order.get("many", 0)))
    pinned = "workers" not in order
    load = race.load(LOAD_CORE if pinned else None)
    if "PORT" in one.command or "SOCKET" in one.command:
        order["pid"], order["address"] = race.server(one, SERVER_CORE if pinned else None)
    else:
        argv, env = race.command(one)
        order |= {"argv": argv, "env": env, "core": SERVER_CORE}
    return load, order


def over(framing: str, clock: str = "cpu", **order: Any) -> Way:
    """CPU of a server for one call over its wire, or wall time: with 32 in flight, or one on each of `connections`. The
    rest of `order` is what the load calls. Sockets are opened anew for each sample."""

    def begin(race: Race, one: Contestant) -> Sampler:
        load, opening = _opened(race, one, framing=framing, **order)
        stays = opening.keys() & {"argv", "hold", "pend"}
        if stays:
            load.ask(**opening)

        def run(calls: int) -> float:
            if not stays:
                load.ask(**opening)
            spent: float = load.ask(do="run", calls=calls, window=32)[clock]
            if not stays:
                load.ask(do="close")
            return spent

        calls = race.calls(run, order.get("connections", 10), SAMPLE if clock == "cpu" else 1)
        return lambda: run(calls) / calls

    return Way(begin)


def _latency(race: Race, one: Contestant) -> Sampler:
    load, opening = _opened(race, one, framing="newline")
    load.ask(**opening | {"hold": race.many(one.about.get("hold", 0))})
    load.ask(do="run", calls=1_500, window=32)
    return lambda: float(load.ask(do="latency", calls=max(10, int(1_500 * race.referee.scale)))["seconds"])


latency = Way(_latency)
"""The median time of a call on TCP with nothing else in flight."""


def weight(framing: str, holding: str, many: int, **order: Any) -> Way:
    """Memory of a server for each of so many things that are held: `hold`, `sessions`, `streams`, `listen`."""

    def begin(race: Race, one: Contestant) -> Sampler:
        load, opening = _opened(race, one, framing=framing, many=many, **order)
        do, count = one.about.get("holding", holding), race.many(many)
        load.ask(**opening)
        load.ask(do="run", calls=1_500, window=32)
        if do in ("sessions", "streams"):
            load.ask(do="sessions", count=count if do == "streams" else 100)  # what the first ones bring along

        def sample() -> float:
            empty = _resident(opening["pid"])
            load.ask(do=do, count=count)
            return (_resident(opening["pid"]) - empty) / count

        return sample

    return Way(begin, lambda asked: 1)


def _resting(race: Race, one: Contestant) -> Sampler:
    load, opening = _opened(race, one, framing="http", era="2026")
    load.ask(**opening)
    load.ask(do="run", calls=20, window=1)
    return lambda: _resident(opening["pid"])


resting = Way(_resting, lambda asked: 1)
"""The resident set of an MCP server that has answered a few calls."""


def _after_aborts(race: Race, one: Contestant) -> Sampler:
    def sample() -> float:
        with Race(race.referee, race.row) as own:
            load, opening = _opened(own, one, framing="http", era="2026")
            load.ask(**opening)
            seconds: float = load.ask(do="abort", count=100)["seconds"]
            return seconds

    return sample


after_aborts = Way(_after_aborts, lambda asked: max(2, asked // 2))
"""The time of a healthy call after a hundred whose callers hung up at once: of a server of its own for each sample."""


def _resident(pid: int) -> int:
    """Memory of a process in bytes (its resident set)."""
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def _allow_files(count: int) -> None:
    """Let this process and its children have so many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + SPARE if hard == resource.RLIM_INFINITY else min(count + SPARE, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


# -- scripts --------------------------------------------------------------------------------------


def _cpu_over_bare(race: Race, one: Contestant) -> Sampler:
    program = _interpreter(race, one)
    _once(program, one.command)  # this one writes the byte code
    return lambda: _once(program, one.command)[0] - _once(program, "pass")[0]


def _peak(race: Race, one: Contestant) -> Sampler:
    program = _interpreter(race, one)
    return lambda: _once(program, one.command)[1]


cpu_over_bare = Way(_cpu_over_bare, lambda asked: max(3, 2 * asked))
"""CPU of an interpreter that runs a script (the command), over one that does nothing. `peer`: whose interpreter."""
peak = Way(_peak, lambda asked: max(3, 2 * asked))
"""The memory of the same."""


def _interpreter(race: Race, one: Contestant) -> str:
    peer = one.about.get("peer", "")
    if peer and not race.referee.peers:
        raise Missing("peers were left out")
    return interpreter(peer)[0][0]


def _once(program: str, code: str) -> tuple[float, int]:
    """CPU seconds and bytes of one interpreter that runs `code`. Raises Missing with what it said."""
    pipe = subprocess.PIPE
    # byte code is kept, as it is for everyone, wherever this environment would have it
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(CACHE / "bytecode")
    child = subprocess.Popen([program, "-c", f"{code}\n{PEAK}"], stdout=pipe, stderr=pipe, cwd=ROOT / "bench", env=env)
    assert child.stdout is not None
    assert child.stderr is not None
    with child.stdout, child.stderr:
        found, words = child.stdout.read(), child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise Missing(words.decode().strip().splitlines()[-1][:200] if words else f"exit status {child.returncode}")
    return usage.ru_utime + usage.ru_stime, int(found) * 1024


# -- messages between processes -------------------------------------------------------------------


def trips(window: int, place: Callable[[], AbstractContextManager[object]], url: str) -> Way:
    """Round trips between two contestants by something in the middle, which `place` begins and gives its port or path
    (PLACE in `url`). The parts `worker URL` and `caller URL` of the command have a core each, the middle what is left of
    both. Wall time: the median of one call, or with more in flight the time of all over their number."""

    def begin(race: Race, one: Contestant) -> Sampler:
        where = race.shared("place", place)
        said = url.replace("PLACE", str(where)).replace("NAME", one.name.split()[-1])
        said += one.about.get("query", "")
        race.talker(Contestant(f"{one.command} worker {said}")).ask()
        caller = race.talker(Contestant(f"{one.command} caller {said}"), LOAD_CORE)

        def run(calls: int) -> dict[str, float]:
            return caller.ask(calls=calls, window=window)

        calls = race.calls(lambda count: run(count)["wall"], least=20, seconds=1)
        return lambda: run(calls)["median"] if window == 1 else run(calls)["wall"] / calls

    return Way(begin)
