"""What a script pays for importing: CPU time of a whole interpreter, over a bare one in the same environment.

The goals in milliseconds were set where msgspec alone took 20 ms, and with asyncio 67: they are judged by those ratios,
measured in the same run, so that the machine's own speed cancels out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution

from bench.environments import CACHE, ROOT, Missing
from bench.figures import Figure, Goal, Row, at_most, ratio
from bench.referee import Referee

SERVICE = "api = dragoman.Service('s')\n@api.method(inline=True)\ndef subtract(minuend: int, subtrahend: int) -> int:\n    return minuend - subtrahend\n"
CALL = 'api.answer(b\'{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":1}\')\n'
BARE = "pass"
IMPORT = "import dragoman"
ANSWER = f"import dragoman\n{SERVICE}assert b'19' in {CALL}import sys\nassert 'asyncio' not in sys.modules, 'asyncio was imported'\n"
SERVER = (
    f"import asyncio, dragoman\n{SERVICE}async def main():\n    async with dragoman.serve(api, urls=['tcp://127.0.0.1:0']):\n"
    "        pass\nasyncio.run(main())\n"
)
HTTP = SERVER.replace("tcp:", "http:")
PEAK = "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
"""The program's own highest resident set in KiB: `ru_maxrss` would count what it was forked from."""
ASYNCIO = "import asyncio\nasync def main(): pass\nasyncio.run(main())"
PEERS = {
    "pjrpc": "import pjrpc.server",
    "jsonrpcserver": "import jsonrpcserver",
    "fastapi-jsonrpc": "import fastapi_jsonrpc",
    "pylsp-jsonrpc": "import pylsp_jsonrpc.endpoint",
    "pygls": "import pygls.lsp.server",
}


def once(program: str, code: str) -> tuple[float, float]:
    """CPU milliseconds and MiB of one interpreter that runs `code`. Raises Missing with what it said."""
    pipe = subprocess.PIPE
    # byte code is kept, as it is for everyone, wherever this environment would have it
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(CACHE / "bytecode")
    child = subprocess.Popen([program, "-c", f"{code}\n{PEAK}"], stdout=pipe, stderr=pipe, cwd=ROOT / "bench", env=env)
    assert child.stdout is not None
    assert child.stderr is not None
    peak, words = child.stdout.read(), child.stderr.read()
    child.stdout.close()
    child.stderr.close()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise Missing(words.decode().strip().splitlines()[-1][:200] if words else f"exit status {child.returncode}")
    return (usage.ru_utime + usage.ru_stime) * 1e3, int(peak) / 1024


def packages(name: str, seen: set[str] | None = None) -> set[str]:
    """What `pip install name` brings, without extras."""
    seen = set() if seen is None else seen
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key not in seen:
        try:
            requires = distribution(name).requires or []
        except PackageNotFoundError:
            return seen
        seen.add(key)
        for line in requires:
            if ";" not in line:
                found = re.match(r"[A-Za-z0-9._-]+", line)
                if found:
                    packages(found.group(), seen)
    return seen


def imports(referee: Referee) -> list[Row]:
    """Time over bare Python, memory, packages."""
    ours = {"import": IMPORT, "answer": ANSWER, "server": SERVER, "http server": HTTP}
    ours |= {"import msgspec": "import msgspec", "msgspec and asyncio.run": f"import msgspec\n{ASYNCIO}"}
    runs = {("bare", ""): BARE} | {(name, ""): code for name, code in ours.items()}
    for peer, code in PEERS.items():
        runs[(peer, peer)], runs[("bare " + peer, peer)] = code, BARE
    time: dict[str, Figure] = {name: Figure(name) for name, _ in runs}
    space: dict[str, Figure] = {name: Figure(name) for name, _ in runs}
    for round_ in range(-1, max(3, 2 * referee.rounds)):
        for (name, peer), code in runs.items():
            try:
                if peer and not referee.peers:
                    raise Missing("peers were left out")
                cpu, mib = once(referee.environments.program(peer)[0] if peer else sys.executable, code)
            except Missing as missing:
                time[name].missing = space[name].missing = str(missing)
                continue
            if round_ >= 0:  # the first one writes the byte code
                time[name].samples.append(cpu)
                space[name].samples.append(mib)
    over = {name: above(time[name], time["bare " + name if name in PEERS else "bare"]) for name in [*ours, *PEERS]}
    return rows(over, space)


def above(figure: Figure, bare: Figure) -> Figure:
    """A figure over the bare interpreter's, round by round."""
    samples = [a - b for a, b in zip(figure.samples, bare.samples, strict=False)]
    return Figure(figure.name, samples, figure.missing)


def rows(over: dict[str, Figure], space: dict[str, Figure]) -> list[Row]:
    """The three lines."""

    def median(figure: Figure) -> float | None:
        return figure.median if figure.samples else None

    script = Row(
        "import", "import and service.answer, over bare Python", "ms CPU", over["answer"], over["import msgspec"]
    )
    script.also, script.peers = [over["import"]], [over[peer] for peer in PEERS]
    script.goals = [
        at_most("<= 40 ms (2x msgspec's 20)", ratio(over["answer"], script.limit), 2),
        Goal(
            "asyncio isn't imported",
            "it is" if "asyncio" in over["answer"].missing else "so",
            not over["answer"].missing,
        ),
    ]
    server = Row(
        "import-server",
        "with a server (TCP), over bare Python",
        "ms CPU",
        over["server"],
        over["msgspec and asyncio.run"],
    )
    server.also = [over["http server"]]
    server.goals = [at_most("<= 100 ms (1.5x the limit's 67)", ratio(over["server"], server.limit), 100 / 67)]
    memory = Row("import-memory", "memory of the script", "MiB", space["answer"], space["import msgspec"])
    memory.also = [space["server"], space["http server"], space["bare"], space["msgspec and asyncio.run"]]
    memory.peers = [space[peer] for peer in PEERS]
    brought = packages("dragoman")
    memory.goals = [
        at_most("<= 30 MiB", median(space["answer"]), 30, " MiB"),
        Goal("two packages", f"{len(brought)}: {', '.join(sorted(brought))}", len(brought) == 2),
    ]
    return [script, server, memory]
