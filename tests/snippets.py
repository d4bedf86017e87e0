"""What the documentation shows, run as a reader would run it.

Rules of a snippet:

- The address 127.0.0.1:PORT is a placeholder; every run gets a free port in its place, and output is
  compared with the placeholder put back.
- In Python, `print(...)  # text` says what is printed: the texts must come out in this order ("..." at
  the end: any rest). Nothing may be written to stderr, warnings included.
- A broker's URL with its usual port, redis://127.0.0.1:6379 and the like (`BROKERS`), leads to one that the tests
  have started; without one the snippet is skipped.
- `# served: TARGET URL...` in the part that is not shown asks for a running `dragoman serve`.
- A `.console` file is a session: `$ command`, then what it prints ("..." stands for anything in a line,
  and alone on a line for any lines). Two spaces or more between words are any space, as columns have it. A first line
  `# samples: 4711 3.2`, which is not shown, lists words that stand for any number. `dragoman serve` goes on while the
  rest is run, or until `pkill -9 -f WORDS` kills the session's own server with these words.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType

import msgspec
import pytest

from tests.ports import free_port

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
SNIPPETS = ROOT / "docs" / "snippets"

ADDRESS = re.compile(r"127\.0\.0\.1:(\d+)")
URL = re.compile(r"[a-z]+://127\.0\.0\.1:\d+")
EXPECTED = re.compile(r"print\(.*\)  # (.*)")
SERVED = re.compile(r"^# served: (.*)$", re.MULTILINE)
BROKERS = {"5672": "rabbitmq", "1883": "mosquitto", "4222": "nats", "6379": "redis"}
"""The ports that mean a broker, and the fixtures of `tests.engines.brokers` that start it."""
SAMPLES = re.compile(r"\A# samples: (.*)\n")
STATE = Path(tempfile.mkdtemp(prefix="dragoman-state-"))
"""The reader's folder for state."""
atexit.register(shutil.rmtree, STATE, ignore_errors=True)
LINES = 60.0
"""Seconds for a command; what hangs is killed."""


# -- places ---------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """The environment of a reader who has activated the virtual environment. Coverage is not measured there: the tests
    of the command reach what the pages show, and it doubles the time of each command."""
    ours = ("COVERAGE_", "DRAGOMAN_", "FORCE_COLOR", "NO_COLOR")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    own = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "200"}
    return plain | own | {"XDG_STATE_HOME": str(STATE)}


def folder(source: Path, place: Path, ports: Mapping[str, str]) -> Path:
    """A copy of the files beside `source`, with what the examples serve, and real ports."""
    work = place / "work"
    work.mkdir()
    served = [path for name in ("calculator.py", "weather.py", "mcp_*.py") for path in EXAMPLES.glob(name)]
    for path in [*served, *source.parent.iterdir()]:
        if path.suffix in (".py", ".json", ".jsonl"):
            (work / path.name).write_text(replaced(path.read_text(), ports))
    return work


def replaced(text: str, ports: Mapping[str, str]) -> str:
    """The text with real ports where it has placeholders."""
    return ADDRESS.sub(lambda found: f"127.0.0.1:{ports.get(found[1], found[1])}", text)


def free_ports(names: Sequence[str]) -> dict[str, str]:
    """A free port for each placeholder."""
    return {name: str(free_port()) for name in names}


# -- running --------------------------------------------------------------------------------------


@contextmanager
def serving(words: Sequence[str], work: Path, ports: dict[str, str]) -> Iterator[None]:
    """`dragoman serve` while the block runs; its real ports go into `ports`."""
    real = [anywhere(word, ports) for word in words]
    command = [sys.executable, "-m", "dragoman", "serve", *real, "--json"]
    process = subprocess.Popen(
        command, cwd=work, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise AssertionError(f"serve {words} ended: {process.communicate()[1]}")
        note_ports(words, msgspec.json.decode(line)["urls"], ports)
        yield
    finally:
        _stop(process)
    assert process.returncode == 0


def anywhere(text: str, ports: Mapping[str, str], again: Collection[str] = ()) -> str:
    """The text with brokers where they are, and every other address on any free port, but those of `again` where they
    were."""
    known = (*BROKERS, *again)
    return ADDRESS.sub(lambda found: f"127.0.0.1:{ports.get(found[1], 0) if found[1] in known else 0}", text)


def note_ports(words: Sequence[str], urls: Sequence[str], ports: dict[str, str]) -> None:
    """Which placeholder became which port, by the order of the URLs."""
    located = [[found for url in given for found in ADDRESS.findall(url)] for given in (words, urls)]
    ports.update(zip(*located, strict=True))


def _stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=LINES)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def brokers(text: str) -> dict[str, str]:
    """The ports of brokers in a text, with the fixture of each."""
    return {port: BROKERS[port] for port in dict.fromkeys(ADDRESS.findall(text)) if port in BROKERS}


def run_python(
    path: Path, place: Path, served: Sequence[str] = (), engines: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Run a Python snippet; its output, checked against what its comments say. `engines`: real ports of brokers."""
    text = path.read_text()
    asked = SERVED.search(text)
    served = asked[1].split() if asked else served
    own = [port for port in dict.fromkeys(ADDRESS.findall(text)) if port != "0" and port not in engines]
    with ExitStack() as stack:
        ports = free_ports(own) | dict(engines)
        if served:
            scratch = place / "served"
            scratch.mkdir()
            stack.enter_context(serving(served, folder(path, scratch, {}), ports))
        work = folder(path, place, ports)
        command = [sys.executable, "-W", "error", path.name]
        if path.name.endswith("_test.py"):
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path.name]
            command += ["-o", "asyncio_default_fixture_loop_scope=function"]
        # the pages say it: who shares a bus over a network has given it a secret
        shared = {"DRAGOMAN_SECRET": "the-secret-of-all-who-read-this-page"} if 'bus="' in text else {}
        done = subprocess.run(
            command,
            cwd=work,
            env=environment() | shared,
            capture_output=True,
            text=True,
            timeout=3 * LINES,
            check=False,
        )
    assert done.returncode == 0, f"{path.name} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    assert not done.stderr, f"{path.name} wrote to stderr:\n{done.stderr}"
    check_output(EXPECTED.findall(text), done.stdout, path.name)
    return done.stdout


def check_output(expected: Sequence[str], out: str, name: str) -> None:
    """Each expected text is a line of the output, in this order."""
    lines = iter(out.splitlines())
    for text in expected:
        rest = text.removesuffix("...")
        fits = any(line.startswith(rest) if rest != text else line == text for line in lines)
        assert fits, f"{name} does not print {text!r} where it says so; it prints:\n{out}"


class Session:
    """A `.console` file, run line by line."""

    def __init__(self, path: Path, place: Path, engines: Mapping[str, str] = MappingProxyType({})) -> None:
        self.name = path.name
        self.ports: dict[str, str] = dict(engines)
        self.work = folder(path, place, {})
        self.status = 0
        self._again: frozenset[str] = frozenset()
        """The placeholders of servers that were killed."""
        self._processes: list[subprocess.Popen[str]] = []
        self.absent: list[str] = []
        text = path.read_text()
        found = SAMPLES.match(text)
        self._samples = re.compile("|".join(map(re.escape, found[1].split()))) if found else None
        self._steps = steps(without_samples(text))

    def run(self) -> None:
        """Run every command and compare; then end what was started, which must end well."""
        try:
            for command, expected in self._steps:
                if command.startswith("dragoman serve"):
                    self._serve(command, expected)
                elif command.startswith("pkill -9 -f "):
                    self._kill(command.removeprefix("pkill -9 -f "))
                else:
                    self._command(command, expected)
        finally:
            for process in self._processes:
                _stop(process)
        assert [process.returncode for process in self._processes] == [0] * len(self._processes)
        if self.absent:
            pytest.skip(f"the rest is as it is shown, but not on this machine: {', '.join(sorted(set(self.absent)))}")

    def _command(self, command: str, expected: list[str]) -> None:
        programs = [part.split()[0] for part in command.split(" | ")]
        absent = [name for name in programs if shutil.which(name, path=environment()["PATH"]) is None]
        if absent:  # curl, socat and the like are not everywhere; the command itself is
            self.absent += absent
            return
        self._keep_closed(command)
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", replaced(command.replace("$?", str(self.status)), self.ports)],
            cwd=self.work,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LINES,
            check=False,
        )
        self.status = done.returncode
        self._compare(command, expected, done.stdout.splitlines())

    def _kill(self, words: str) -> None:
        """Kill the servers of this session whose command has these words, and no others of the machine."""
        for process in [one for one in self._processes if words in str(one.args)]:
            process.kill()
            process.communicate()
            self._processes.remove(process)
            self._again = frozenset(self.ports)

    def _keep_closed(self, command: str) -> None:
        """A port without a server is one that refuses."""
        for port in ADDRESS.findall(command):
            if port not in self.ports:
                self.ports |= free_ports([port])

    def _serve(self, command: str, expected: list[str]) -> None:
        process = subprocess.Popen(
            ["bash", "-c", "exec " + anywhere(command, self.ports, self._again)],
            cwd=self.work,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._processes.append(process)
        assert process.stdout is not None
        lines = [process.stdout.readline().rstrip("\n") for _ in expected]
        told = [line.partition('"pages"')[0] for line in lines if not line.startswith(("try", "docs"))]
        urls = URL.findall("\n".join(told))
        note_ports(URL.findall(command), urls, self.ports)
        self._compare(command, expected, lines)

    def _compare(self, command: str, expected: list[str], lines: list[str]) -> None:
        back = {real: shown for shown, real in self.ports.items()}
        text = "\n".join(replaced(line.rstrip(), back) for line in lines)
        pattern = "\n".join(map(self._pattern, expected))
        pattern = re.sub(r"^\.\*$", r"[\\s\\S]*", pattern, flags=re.MULTILINE)
        shown = "\n".join(expected)
        assert re.fullmatch(pattern, text), f"{self.name}: $ {command}\nshould print:\n{shown}\nprints:\n{text}"

    def _pattern(self, line: str) -> str:
        parts = [line] if self._samples is None else self._samples.split(line)
        found = r"[\d.,]+".join(re.escape(part).replace(r"\.\.\.", ".*") for part in parts)
        return re.sub(r"(?<=\S)(?:\\ ){2,}", r"\\s+", found)


def without_samples(text: str) -> str:
    """A session as it is shown."""
    return SAMPLES.sub("", text)


def steps(text: str) -> list[tuple[str, list[str]]]:
    """The commands of a session, each with what it prints. A line that ends with a backslash goes on."""
    found: list[tuple[str, list[str]]] = []
    open_line = False
    for line in text.splitlines():
        if open_line:
            command, expected = found[-1]
            found[-1] = (f"{command} {line.strip().removesuffix(chr(92)).strip()}", expected)
        elif line.startswith("$ "):
            found.append((line[2:].removesuffix("\\").strip(), []))
        elif found:
            found[-1][1].append(line)
        open_line = line.endswith("\\") and (open_line or line.startswith("$ "))
    return found
