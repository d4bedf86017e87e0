"""The load generator: raw sockets and epoll, requests built beforehand, answers counted by their length.

It runs as a process of its own, pinned to another core than the server, and takes one JSON order a line on stdin: `open`
(connect or start the child, make one checked call on each wire), `run` (so many calls with so many in flight), `latency`
(one call at a time), `sessions`, `streams` and `listen` (so many of MCP's, that then stay idle), `abort` (so many POSTs
whose sender hangs up at once, then one that stays: how long it takes), `close`. It reads the server's CPU clock itself,
right before and after the calls. What is called, `open` says: `method` and `params` of JSON-RPC; or of MCP the `era`
("2026", or "2025" with a session for each connection), `rpc`, `tool`, `sse` (answers are streams), `fresh` (a
`traceparent` of its own in each head), `token`. Rules:

- On one wire every request has the same length, so that a slice of one long string is the next k requests; over HTTP
  each connection has sixteen lengths of body in turn, since a server may remember heads.
- The first answer on each wire is checked; the others have its length, and streams an end: anything else is an error.
- What one wake-up frees is sent in one write, as a good client does.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import cycle
from typing import Any, Protocol

from bench.messages import FIRST_ID, INITIALIZE, INITIALIZED, body, call, head, post, signed_token

IDS = 10_000
"""Ids come round again long after the call that bore them was answered."""
LENGTHS = 16
"""How many lengths of body the requests over HTTP have in turn, so that their heads differ as callers' heads do."""
POSTS = 4 * LENGTHS
"""Requests that one HTTP connection has in turn."""
PATIENCE = 30.0
"""Seconds without an answer after which a load has failed."""
WEBSOCKET_KEY = "dGhlIHNhbXBsZSBub25jZQ=="
MASK = b"\x11\x22\x33\x44"
STREAM_END = b"0\r\n\r\n"


class LoadError(Exception):
    """The server did not do what every contestant must."""


def cpu_of(pid: int) -> float:
    """CPU seconds of another process, all its threads, to the nanosecond (Linux: the process's own CPU clock)."""
    return time.clock_gettime((~pid << 3) | 2)


class Wire(Protocol):
    """A byte stream to a server, non-blocking."""

    def fileno(self) -> int: ...
    def recv(self, size: int) -> bytes: ...
    def send(self, data: memoryview | bytes) -> int: ...
    def close(self) -> None: ...


class Pipes:
    """The two pipes of a child process as one wire; `send` writes to the child, `recv` reads from it."""

    def __init__(self, argv: list[str], core: int | None, env: dict[str, str]) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        pipe = subprocess.PIPE
        self.child = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=self.errors, env=os.environ | env, bufsize=0
        )
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        if core is not None:
            os.sched_setaffinity(self.child.pid, {core})
        self.source, self.sink = self.child.stdout.fileno(), self.child.stdin.fileno()
        os.set_blocking(self.source, False)
        os.set_blocking(self.sink, False)

    def fileno(self) -> int:
        return self.source

    def recv(self, size: int) -> bytes:
        data = os.read(self.source, size)
        if not data:
            self.errors.seek(0)
            lines = self.errors.read().decode("utf-8", "replace").strip().splitlines()
            raise LoadError(lines[-1] if lines else "the child ended without a word")
        return data

    def send(self, data: memoryview | bytes) -> int:
        return os.write(self.sink, data)

    def close(self) -> None:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.close()
        try:
            self.child.wait(3)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.child.stdout.close()
        self.errors.close()


def dial(address: list[Any]) -> socket.socket:
    """A socket to `["127.0.0.1", port]` or `[path]`."""
    if len(address) == 1:
        wire = socket.socket(socket.AF_UNIX)
        wire.connect(address[0])
        return wire
    wire = socket.create_connection((address[0], address[1]))
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return wire


def patient_recv(wire: Wire, buffer: bytes = b"") -> bytes:
    """`buffer` and what comes next, waiting for it."""
    poll = select.poll()
    poll.register(wire.fileno(), select.POLLIN)
    if not poll.poll(PATIENCE * 1e3):
        raise LoadError(f"no answer in {PATIENCE:g} s; so far {buffer[:200]!r}")
    data = wire.recv(262_144)
    if not data:
        raise LoadError(f"the server hung up; so far {buffer[:200]!r}")
    return buffer + data


def send_all(wire: Wire, data: memoryview | bytes) -> None:
    """Send, waiting where the wire is full."""
    view = memoryview(data)
    while view:
        try:
            view = view[wire.send(view) :]
        except BlockingIOError:
            time.sleep(0.0005)


def framed(framing: str, text: str) -> bytes:
    """A message as its wire carries it."""
    payload = text.encode()
    if framing == "content-length":
        return b"Content-Length: %d\r\n\r\n%b" % (len(payload), payload)
    if framing == "websocket":  # a text frame from a client; payloads are below 126 bytes
        masked = bytes(byte ^ MASK[i % 4] for i, byte in enumerate(payload))
        return bytes([0x81, 0x80 | len(payload)]) + MASK + masked
    return payload + b"\n"


def whole(framing: str, data: bytes) -> int:
    """The length on the wire of the first message in `data`; 0 while it is not whole."""
    if framing == "newline":
        return data.find(b"\n") + 1
    if framing == "websocket":
        size = 2 + data[1] if len(data) > 1 else 0
    else:
        lines, end, _ = data.lower().partition(b"\r\n\r\n")
        length = lines.partition(b"content-length:")[2].partition(b"\r\n")[0]
        size = len(lines) + 4 + int(length) if end and length else 0
    return size if size <= len(data) else 0


def response(wire: Wire) -> tuple[str, bytes]:
    """Head and body of the next response over HTTP; a stream's body is all its chunks as they came."""
    data = b""
    while b"\r\n\r\n" not in data:
        data = patient_recv(wire, data)
    lines, _, rest = data.partition(b"\r\n\r\n")
    said = lines.decode()
    if length := re.search(r"\r\ncontent-length: *(\d+)", said, re.IGNORECASE):
        while len(rest) < int(length[1]):
            rest = patient_recv(wire, rest)
    elif "transfer-encoding: chunked" in said.lower():
        while not rest.endswith(STREAM_END):
            rest = patient_recv(wire, rest)
    elif not said.startswith(("HTTP/1.1 202", "HTTP/1.1 204")):
        raise LoadError(f"an answer without a length: {said[:200]}")
    return said, rest


def begin(wire: Wire, port: int) -> str:
    """Begin a session: its id."""
    send_all(wire, post(head(port, "", "initialize", "", ""), INITIALIZE))
    said, rest = response(wire)
    session = re.search(r"\r\nmcp-session-id: *(\S+)", said, re.IGNORECASE)
    if not session:
        raise LoadError(f"no session: {said[:100]!r} {rest[:200]!r}")
    send_all(wire, post(head(port, "2025", "", "", session[1]), INITIALIZED))
    said, rest = response(wire)
    if not said.startswith("HTTP/1.1 202"):
        raise LoadError(f"initialized was answered {said[:100]!r} {rest[:200]!r}")
    return session[1]


def request(order: dict[str, Any], number: int, padding: int = 0) -> str:
    """What is asked."""
    if "era" in order:
        return body(order["era"], order.get("rpc", "tools/call"), order.get("tool", "subtract"), number, padding)
    return call(order.get("method", "subtract"), number, order.get("params", "[42,23]") + " " * padding)


def check(order: dict[str, Any], answer: bytes) -> None:
    """Look at the first answer."""
    expected = order.get("expect", r"\b19\b").encode()
    if not re.search(expected, answer) or b'"isError":true' in answer:
        raise LoadError(f"answered {answer[:300]!r}")


class Stream:
    """One wire with so many calls in flight: a socket, or the pipes of a child."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order, self.framing = order, order["framing"]
        texts = [framed(self.framing, request(order, number)) for number in range(FIRST_ID, FIRST_ID + IDS)]
        self.size, self.next = len(texts[0]), 0
        self.requests = memoryview(b"".join(texts * 2))
        self.pid: int = order.get("pid", 0)
        self.wire: Wire
        if "argv" in order:
            self.wire = pipes = Pipes(order["argv"], order.get("core"), order.get("env", {}))
            self.pid = pipes.child.pid
        else:
            self.wire = self.connect()
        if order.get("era") == "2025":
            send_all(self.wire, f"{INITIALIZE}\n".encode())
            self.answer_to(self.wire)
            send_all(self.wire, f"{INITIALIZED}\n".encode())
        self.answer = self.first(self.wire)
        self.idle: list[Wire] = []
        self.hold(order.get("hold", 0))
        if "pend" in order:
            self.pend(order["pend"])

    def connect(self) -> socket.socket:
        """A wire past its handshake."""
        wire = dial(self.order["address"])
        if self.framing == "websocket":
            lines = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{self.order['address'][1]}\r\nConnection: Upgrade\r\n"
            lines += f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {WEBSOCKET_KEY}\r\n\r\n"
            wire.sendall(lines.encode())
            said = b""
            while b"\r\n\r\n" not in said:
                said = patient_recv(wire, said)
            if not said.startswith(b"HTTP/1.1 101") or not said.endswith(b"\r\n\r\n"):
                raise LoadError(f"no upgrade: {said[:200]!r}")
        wire.setblocking(False)
        return wire

    def take(self, count: int) -> memoryview:
        """The next `count` requests."""
        first, self.next = self.next, (self.next + count) % IDS
        return self.requests[first * self.size : (first + count) * self.size]

    def answer_to(self, wire: Wire) -> bytes:
        """One whole answer, after which nothing comes."""
        data = b""
        while not (size := whole(self.framing, data)):
            data = patient_recv(wire, data)
        if size != len(data):
            raise LoadError(f"more than one answer: {data[:400]!r}")
        return data

    def first(self, wire: Wire) -> int:
        """One call, checked; the length of its answer."""
        send_all(wire, self.take(1))
        answer = self.answer_to(wire)
        check(self.order, answer)
        return len(answer)

    def run(self, calls: int, window: int) -> None:
        """Make `calls` calls with `window` in flight."""
        size, wire, recv = self.answer, self.wire, self.wire.recv
        poll = select.epoll()
        poll.register(wire.fileno(), select.EPOLLIN)
        waiting = poll.poll
        sent, received, want, answered = min(window, calls), 0, calls * size, 0
        send_all(wire, self.take(sent))
        while received < want:
            if not waiting(PATIENCE):
                raise LoadError(f"no answer in {PATIENCE:g} s after {received // size} of {calls}")
            data = recv(262_144)
            if not data:
                raise LoadError(f"the server hung up after {received // size} of {calls}")
            received += len(data)
            done = received // size
            fresh = min(done - answered, calls - sent)
            answered = done
            if fresh > 0:
                sent += fresh
                send_all(wire, self.take(fresh))
        poll.close()
        if received != want:
            raise LoadError(f"answers of other lengths: {received} bytes where {want} were due; {data[-200:]!r}")

    def latency(self, calls: int) -> float:
        """The median time in seconds of a call with nothing else in flight."""
        taken = []
        for _ in range(calls):
            text, got = self.take(1), 0
            began = time.perf_counter()
            self.wire.send(text)
            while got < self.answer:
                got += len(patient_recv(self.wire))
            taken.append(time.perf_counter() - began)
        return statistics.median(taken)

    def hold(self, count: int) -> None:
        """Connections that have made one call and then stay idle."""
        for _ in range(count):
            self.idle.append(self.connect())
            self.first(self.idle[-1])

    def pend(self, count: int) -> None:
        """Start calls that will not be answered, then make sure the wire still answers."""
        texts = (framed(self.framing, call("hold", FIRST_ID * 10 + number)) for number in range(count))
        send_all(self.wire, b"".join(texts))
        self.first(self.wire)

    def close(self) -> None:
        """Hang up everywhere; a child is waited for."""
        for wire in (self.wire, *self.idle):
            wire.close()


class Caller:
    """One HTTP connection that makes one call after the other."""

    def __init__(self, order: dict[str, Any], base: int) -> None:
        self.wire, self.got, self.last = dial(order["address"]), 0, b""
        port, era = order["address"][1], order.get("era", "")
        if era:
            session = begin(self.wire, port) if era == "2025" else ""
            lines = head(port, era, order.get("rpc", "tools/call"), order.get("tool", "subtract"), session)
        else:
            lines = f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json"
        if order.get("token"):
            lines += f"\r\nAuthorization: Bearer {signed_token()}"
        fresh = "\r\ntraceparent: 00-{0:032x}-{0:016x}-01" if order.get("fresh") else ""
        texts = [(lines + fresh.format(base + n), request(order, base + n, n % LENGTHS)) for n in range(POSTS)]
        self.post = cycle([post(*text) for text in texts]).__next__
        send_all(self.wire, self.post())
        said, rest = response(self.wire)
        if not said.startswith(f"HTTP/1.1 {order.get('status', 200)}"):
            raise LoadError(f"answered {said[:60]!r} {rest[:300]!r}")
        check(order, rest)
        if order.get("sse", False) is not ("text/event-stream" in said.lower()):
            raise LoadError(f"a stream where none should be, or none: {said[:200]!r}")
        self.size = 0 if order.get("sse") else len(said) + 4 + len(rest)  # the events of streams may differ in length
        self.wire.setblocking(False)

    def ends(self, data: bytes) -> bool:
        """Whether an answer that came in parts, or a stream, is whole with these bytes."""
        if not data:
            raise LoadError("the server hung up")
        if self.size:
            self.got += len(data)
            if self.got > self.size:
                raise LoadError(f"an answer of {self.got} bytes where {self.size} were due: {data[-200:]!r}")
            self.got %= self.size
            return not self.got
        self.last += data
        if not self.last.endswith(STREAM_END) and not whole("http", self.last):
            return False
        self.last = b""
        return True


class Http:
    """Connections with one call in flight on each."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order, self.address, self.pid = order, order["address"], order["pid"]
        self.callers = [Caller(order, FIRST_ID + n * POSTS) for n in range(order.get("connections", 1))]
        self.sessions_begun: list[str] = []
        self.held: list[socket.socket] = []

    def run(self, calls: int, window: int) -> None:
        """Make so many calls, at least one on each connection."""
        del window
        poll = select.epoll()
        by_fd = {caller.wire.fileno(): caller for caller in self.callers}
        for fd, caller in by_fd.items():
            poll.register(fd, select.EPOLLIN)
            caller.wire.send(caller.post())
        sent, done, calls = len(by_fd), 0, max(calls, len(by_fd))
        # With a core of its own it never sleeps: the server would pay for each time that it is woken.
        wait, heard = PATIENCE, time.monotonic()
        while done < calls:
            events = poll.poll(wait)
            if not events:
                if time.monotonic() - heard > PATIENCE:
                    raise LoadError(f"no answer in {PATIENCE:g} s after {done} of {calls}")
                continue
            heard = time.monotonic()
            for fd, _ in events:
                caller = by_fd[fd]
                data = caller.wire.recv(65_536)
                if (len(data) == caller.size and not caller.got) or caller.ends(data):
                    done += 1
                    if sent < calls:
                        sent += 1
                        caller.wire.send(caller.post())
        poll.close()

    def sessions(self, count: int) -> None:
        """Sessions that then stay idle, begun on one connection."""
        with dial(self.address) as wire:
            self.sessions_begun += [begin(wire, self.address[1]) for _ in range(count)]

    def streams(self, count: int) -> None:
        """A GET stream on each of the first sessions."""
        for session in self.sessions_begun[:count]:
            lines = head(self.address[1], "2025", "", "", session).replace("POST ", "GET ")
            self.open_stream(f"{lines.replace('application/json, ', '')}\r\n\r\n".encode())

    def listen(self, count: int) -> None:
        """Subscriptions of the stateless era."""
        method = "subscriptions/listen"
        for number in range(count):
            self.open_stream(post(head(self.address[1], "2026", method, "", ""), body("2026", method, "", number)))

    def open_stream(self, raw: bytes) -> None:
        """Send this, and wait until a stream's head is there."""
        self.held.append(dial(self.address))
        send_all(self.held[-1], raw)
        data = b""
        while b"\r\n\r\n" not in data:
            data = patient_recv(self.held[-1], data)
        if not data.startswith(b"HTTP/1.1 200") or b"text/event-stream" not in data.lower():
            raise LoadError(f"no stream: {data[:200]!r}")

    def abort(self, count: int) -> float:
        """Seconds of a healthy call after so many whose callers hung up."""
        aborted = self.callers[0].post()
        for _ in range(count):
            with dial(self.address) as wire:
                wire.sendall(aborted)
        began = time.perf_counter()
        Caller(self.order, FIRST_ID).wire.close()
        return time.perf_counter() - began

    def close(self) -> None:
        """Hang up everywhere."""
        for wire in (*(caller.wire for caller in self.callers), *self.held):
            wire.close()


def run(load: Stream | Http, calls: int, window: int) -> dict[str, float]:
    """Make calls: the CPU that the server spent on them, and the time."""
    cpu, wall = cpu_of(load.pid), time.perf_counter()
    load.run(calls, window)
    return {"cpu": cpu_of(load.pid) - cpu, "wall": time.perf_counter() - wall}


def main() -> None:
    """Orders in, reports out, until end of file."""
    load: Any = None
    for order in map(json.loads, sys.stdin):
        report: dict[str, Any] = {}
        try:
            match order.pop("do"):
                case "open":
                    load = Http(order) if order["framing"] == "http" else Stream(order)
                case "run":
                    report = run(load, **order)
                case "close":
                    load.close()
                case name:
                    report = {"seconds": getattr(load, name)(**order)}
        except (LoadError, OSError, ValueError) as error:
            report = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(report), flush=True)
    with contextlib.suppress(OSError):
        if load is not None:
            load.close()


if __name__ == "__main__":
    main()
