"""Mutated wire cases against a running server: `python -m tests.fuzz [--count N] [--seed S] [--wire http|tcp|stdio]`.

For every input there must be the right answer, or rightly none (`oracle` says which); after each
hundred a ping is answered on every wire, the server's memory is bounded, and its log holds no
traceback but those of methods that are there to fail. On a fault it prints the seed, the number of the
input and the smallest input that shows the fault, and exits with 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from typing import IO, Any, Protocol

import psutil

from . import mutate
from .oracle import ANY, TOO_LARGE, Expected, Owed, Wrong, expected, fault, matched, parse, senseless, together
from .service import FAILING

PATIENCE = 10.0
"""Seconds for an answer."""
GROWTH = 64 * 1024 * 1024
"""Bytes the server may grow by after its first thousand inputs."""
WARM = 1000
TRIES = 300
"""Inputs that are tried to find a smaller one."""
SERVE = [sys.executable, "-m", "dragoman", "serve", "tests.fuzz.service:api"]
PING = b'{"jsonrpc":"2.0","method":"subtract","params":[42,23],"id":"ping"}'
PONG = {"jsonrpc": "2.0", "result": 19, "id": "ping"}
ALLOWED = re.compile(rf"method '({'|'.join(FAILING)})' failed")


class Fault(Exception):
    """The server did what it must not."""


class Kind(Protocol):
    """One way of sending inputs."""

    name: str
    server: Server

    def make(self, random: Random) -> bytes:
        """An input."""

    def fault(self, raw: bytes) -> str | None:
        """Send it, see what comes, and say what is wrong with that."""

    def renew(self) -> None:
        """Forget what was sent so far, and begin again."""

    def close(self) -> None:
        """Send nothing more."""


# -- servers --------------------------------------------------------------------------------------


class Server:
    """A `dragoman serve` in a process of its own, watched."""

    def __init__(self, *words: str) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        self.process = subprocess.Popen(
            [*SERVE, *words, "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log
        )
        self.memory = psutil.Process(self.process.pid)
        self.warm: int | None = None
        self.asked = 0
        self._read = 0

    @property
    def pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        """Its standard input and output."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        return self.process.stdin, self.process.stdout

    def close(self) -> None:
        """End it and see that it ends well."""
        self.process.terminate()
        for pipe in self.pipes:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        try:
            status = self.process.wait(PATIENCE)
            self.look()
        finally:
            self.process.kill()
            self.process.wait()
            self.log.close()
        if status:
            raise Fault(f"the server ended with {status}")

    def look(self) -> None:
        """At its memory and its log."""
        if self.process.poll() is None:
            rss = self.memory.memory_info().rss
            if self.warm is None and self.asked >= WARM:
                self.warm = rss
            if self.warm is not None and rss > self.warm + GROWTH:
                raise Fault(f"the server has grown from {self.warm:,} to {rss:,} bytes")
        self.log.seek(self._read)
        new = self.log.read()
        self._read += len(new)
        lines = new.decode(errors="backslashreplace").splitlines()
        for before, line in zip(["", *lines], lines, strict=False):
            chained = not before.strip()  # to one that was looked at already
            if line.startswith("Traceback") and not chained and not ALLOWED.search(before):
                raise Fault(f"a traceback in the server's log:\n{before}\n" + "\n".join(lines[-30:]))


# -- one message after another on one channel -----------------------------------------------------


class Lines:
    """Messages as lines on a channel; a marker after each shows when everything before it was read."""

    def __init__(self, name: str, server: Server, reach: Callable[[], tuple[IO[bytes], IO[bytes]]]) -> None:
        self.name = name
        self.server = server
        self._reach = reach
        self._count = 0
        self._writer, self._reader = reach()

    def make(self, random: Random) -> bytes:
        """A message; some hold line breaks, which makes them several."""
        return mutate.message(random)

    def renew(self) -> None:
        """A new channel."""
        self.close()
        self._writer, self._reader = self._reach()

    def close(self) -> None:
        """See `Kind.close`."""
        with contextlib.suppress(OSError):
            self._writer.close()
        self._reader.close()

    def fault(self, raw: bytes) -> str | None:
        """See `Kind.fault`."""
        lines = [line for piece in raw.split(b"\n") if (line := piece.strip(b" \t\r"))]
        rights = together([expected(line) for line in lines])
        answers: list[bytes] = []
        self._count += 1
        marker = f"marker {self._count}"
        self._writer.write(raw + b'\n{"jsonrpc":"2.0","method":"get_data","id":"%b"}\n' % marker.encode())
        self._writer.flush()
        least = sum(fault(None, right) is not None for right in rights)
        marked = False
        try:
            while not marked or len(answers) < least:
                answer = self._reader.readline()
                if not answer:
                    return "the channel was closed"
                if _id(answer) == marker:
                    marked = True
                else:
                    answers.append(answer)
        except TimeoutError:
            return f"nothing more within {PATIENCE} s; so far {answers}, marker {marked}"
        except ConnectionError as error:
            return f"the channel broke: {error}"
        return matched(answers, rights)


def _id(answer: bytes) -> Any:
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        return None
    return value.get("id") if isinstance(value, dict) else None


def stream(port: int) -> tuple[IO[bytes], IO[bytes]]:
    """Both directions of a TCP stream."""
    wire = socket.create_connection(("127.0.0.1", port), PATIENCE)
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with wire:
        return wire.makefile("wb"), wire.makefile("rb")


def exchanged(port: int, raw: bytes) -> bytes:
    """Everything that comes back when `raw` is all there is. TimeoutError when the far end doesn't close."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as wire:
        with contextlib.suppress(ConnectionError):  # it may have heard enough
            wire.sendall(raw)
            wire.shutdown(socket.SHUT_WR)
        pieces = []
        try:
            while piece := wire.recv(65536):
                pieces.append(piece)
        except ConnectionError:
            return b"".join(pieces)
        return b"".join(pieces)


# -- frames ---------------------------------------------------------------------------------------

FRAME = re.compile(rb"Content-Length: ([0-9]{1,15})\r\n\r\n")


class Frames:
    """Frames with Content-Length, a channel for each input."""

    name = "tcp, content-length"

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self._port = port

    def make(self, random: Random) -> bytes:
        """See `Kind.make`."""
        return mutate.frames(random)

    def renew(self) -> None:
        """Every input has its own channel."""

    def close(self) -> None:
        """Nothing is open."""

    def fault(self, raw: bytes) -> str | None:
        """See `Kind.fault`."""
        try:
            answers = unframed(exchanged(self._port, raw))
        except TimeoutError:
            return f"the channel lives on {PATIENCE} s after its end of file"
        if answers is None:
            return "what came back is not whole frames"
        sent = unframed(raw)
        if sent is not None:
            return matched(answers, together([expected(message) for message in sent]))
        return next((bad for answer in answers if (bad := _senseless(answer)) is not None), None)


def unframed(raw: bytes) -> list[bytes] | None:
    """The messages in plain frames, or None where it is anything else."""
    found, at = [], 0
    while at < len(raw):
        head = FRAME.match(raw, at)
        if head is None or (end := head.end() + int(head[1])) > len(raw):
            return None
        found.append(raw[head.end() : end])
        at = end
    return found


def _senseless(answer: bytes) -> str | None:
    try:
        return senseless(parse(answer))
    except Wrong as error:
        return f"the answer is not JSON: {error}"


# -- HTTP -----------------------------------------------------------------------------------------


class Bodies:
    """Messages as bodies of good HTTP requests on one wire."""

    name = "http, bodies"

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self._wire = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def make(self, random: Random) -> bytes:
        """See `Kind.make`."""
        return mutate.message(random)

    def renew(self) -> None:
        """A new wire."""
        self._wire.close()

    def close(self) -> None:
        """See `Kind.close`."""
        self._wire.close()

    def fault(self, raw: bytes) -> str | None:
        """See `Kind.fault`."""
        right: Expected = expected(raw)
        try:
            self._wire.request("POST", "/", raw, {"Content-Type": "application/json"})
            answer = self._wire.getresponse()
            body = answer.read()
        except OSError as error:
            self._wire.close()
            return f"no answer: {error!r}"
        if answer.status == 413 and not body and None in right:  # a notification is refused by the status alone
            return None
        too_large = any(isinstance(one, Owed) and TOO_LARGE in one.codes for one in right)
        if answer.status not in (200, 204) and not (answer.status == 413 and (too_large or ANY in right)):
            return f"status {answer.status}: {body[:300]!r}"
        return fault(None if answer.status == 204 else body, right)


STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) [A-Za-z' -]+\r\n")
LENGTH = re.compile(rb"\r\ncontent-length: ([0-9]+)\r\n", re.IGNORECASE)
REFUSALS = {400, 403, 404, 405, 408, 411, 413, 414, 415, 417, 421, 426, 431, 501, 503, 505}


class Requests:
    """HTTP requests with something wrong about them, a wire for each input."""

    name = "http, requests"

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self._port = port

    def make(self, random: Random) -> bytes:
        """See `Kind.make`."""
        return mutate.http(random)

    def renew(self) -> None:
        """Every input has its own wire."""

    def close(self) -> None:
        """Nothing is open."""

    def fault(self, raw: bytes) -> str | None:
        """See `Kind.fault`."""
        try:
            said = exchanged(self._port, raw)
        except TimeoutError:
            return f"the wire lives on {PATIENCE} s after its end of file"
        while said:
            head, blank, rest = said.partition(b"\r\n\r\n")
            status = STATUS.match(head + b"\r\n")
            if not blank or status is None:
                return f"no HTTP answer: {said[:300]!r}"
            code = int(status[1])
            if code == 101:
                return None
            if code in (100, 204):
                said = rest
                continue
            length = LENGTH.search(head + b"\r\n")
            if length is None or int(length[1]) > len(rest):
                return f"an HTTP answer without its length, or cut: {said[:300]!r}"
            body, said = rest[: int(length[1])], rest[int(length[1]) :]
            if code == 200 and (bad := self._fine(body)) is not None:
                return bad
            if code != 200 and code not in REFUSALS:
                return f"status {code}: {body[:300]!r}"
        return None

    def _fine(self, body: bytes) -> str | None:
        try:
            value = parse(body)
        except Wrong as error:
            return f"the answer is not JSON: {error}"
        if isinstance(value, dict) and ("openrpc" in value or "status" in value):
            return None  # what is there to GET
        return senseless(value)


# -- the run --------------------------------------------------------------------------------------


@contextlib.contextmanager
def targets(wires: list[str]) -> Iterator[list[tuple[Kind, float]]]:
    """The kinds of these wires, each with its share of the inputs; and their servers, while it lasts."""
    with contextlib.ExitStack() as stack:
        kinds: list[tuple[Kind, float]] = []
        if "tcp" in wires or "http" in wires:
            places = ["tcp://127.0.0.1:0", "tcp://127.0.0.1:0?framing=content-length", "http://127.0.0.1:0"]
            server = Server(*places)
            stack.callback(server.close)
            urls = json.loads(server.pipes[1].readline())["urls"]
            ports = [int(url.split("?")[0].rstrip("/").rsplit(":", 1)[1]) for url in urls]
            if "tcp" in wires:
                kinds.append((Lines("tcp", server, lambda: stream(ports[0])), 2))
                kinds.append((Frames(server, ports[1]), 1))
            if "http" in wires:
                kinds.append((Bodies(server, ports[2]), 2))
                kinds.append((Requests(server, ports[2]), 1))
        if "stdio" in wires:
            child = Server("stdio:")
            stack.callback(child.close)
            kinds.append((Lines("stdio", child, lambda: child.pipes), 2))
        for kind, _ in kinds:
            stack.callback(kind.close)
        yield kinds


def run(count: int, seed: int, wires: list[str]) -> None:
    """Send `count` inputs in all. Raises Fault, with everything needed to see it again."""
    with targets(wires) as kinds:
        whole = sum(share for _, share in kinds)
        for kind, share in kinds:
            for number in range(int(count * share / whole)):
                raw = kind.make(Random(f"{seed} {kind.name} {number}"))
                bad = kind.fault(raw)
                kind.server.asked += 1
                if bad is not None:
                    raise Fault(_report(kind, seed, number, raw, bad))
                if number % 100 == 99:
                    _ping(kind)
                    kind.server.look()


def _ping(kind: Kind) -> None:
    ping = PING
    if isinstance(kind, Frames):
        ping = b"Content-Length: %d\r\n\r\n%b" % (len(PING), PING)
    elif isinstance(kind, Requests):
        head = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        ping = head % len(PING) + PING
    if (bad := kind.fault(ping)) is not None:
        raise Fault(f"{kind.name}: the ping was not answered: {bad}")


def _report(kind: Kind, seed: int, number: int, raw: bytes, bad: str) -> str:
    smallest = minimal(kind, raw)
    return (
        f"{kind.name}, seed {seed}, input {number}: {bad}\n"
        f"the input: {raw!r}\n"
        f"the smallest that shows a fault: {smallest!r}"
        + (f"\nwhose fault is: {kind.fault(smallest)}" if smallest != raw else "")
    )


def minimal(kind: Kind, raw: bytes) -> bytes:
    """The smallest input found that still shows a fault, by leaving pieces out."""
    until = time.monotonic() + 60

    def faulty(some: bytes) -> bool:
        kind.renew()
        return kind.fault(some) is not None

    if isinstance(kind, Lines) and kind.name == "stdio":
        return raw  # its one channel is spoilt
    piece, tries = max(1, len(raw) // 2), 0
    while tries < TRIES and time.monotonic() < until:
        at = 0
        while at < len(raw) and tries < TRIES and time.monotonic() < until:
            tries += 1
            some = raw[:at] + raw[at + piece :]
            if faulty(some):
                raw = some
            else:
                at += piece
        if piece == 1:
            break
        piece = max(1, piece // 2)
    kind.renew()
    return raw


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Mutated wire cases against a server.")
    parser.add_argument("--count", type=int, default=20_000, help="how many inputs, 20000 unless said")
    parser.add_argument("--seed", type=int, default=None, help="to see a run again; a new one unless said")
    parser.add_argument("--wire", choices=["http", "tcp", "stdio"], action="append", help="all three unless said")
    words = parser.parse_args()
    seed = secrets.randbelow(2**32) if words.seed is None else words.seed
    print(f"seed {seed}", flush=True)
    begun = time.monotonic()
    try:
        run(words.count, seed, words.wire or ["http", "tcp", "stdio"])
    except Fault as found:
        print(found)
        return 1
    print(f"{words.count} inputs, no fault, {time.monotonic() - begun:.1f} s")
    return 0


if __name__ == "__main__":
    assert Path("tests").is_dir(), "run it from the project's folder"
    sys.exit(main())
