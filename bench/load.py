"""The load generator: raw sockets and epoll, requests built beforehand, answers counted by their length.

It runs as a process of its own, pinned to another core than the server, and takes one JSON order a line on stdin:
`open` (connect or start the child, make one checked call), `run` (so many calls with so many in flight), `latency`
(one call at a time), `pace` (calls at a steady rate), `hold` (further connections that stay idle), `pend` (calls that
are never answered), `close`.
It reads the server's CPU clock itself, right before and after the calls. Rules:

- On one wire every request has the same length, so that a slice of one long string is the next k requests; over HTTP
  the bodies have sixteen lengths in turn, since a server may remember heads.
- Every answer has the length of the first, which was parsed and checked; anything else is an error.
- What one wake-up frees is sent in one write, as a good client does.
"""

from __future__ import annotations

import json
import os
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, Protocol

FIRST_ID, IDS = 100_000, 10_000
"""Ids of one fixed width; they come round again long after the call that bore them was answered."""
LENGTHS = 16
"""How many lengths of body the requests over HTTP have in turn, so that their heads differ as callers' heads do."""
PATIENCE = 30.0
"""Seconds without an answer after which a load has failed."""
WEBSOCKET_KEY = "dGhlIHNhbXBsZSBub25jZQ=="
MASK = b"\x11\x22\x33\x44"


class LoadError(Exception):
    """The server did not do what every contestant must."""


def cpu_of(pid: int) -> float:
    """CPU seconds of another process, all its threads, to the nanosecond (Linux: the process's own CPU clock)."""
    return time.clock_gettime((~pid << 3) | 2)


def call(method: str, number: int, params: str = "[42,23]") -> bytes:
    """One request."""
    return f'{{"jsonrpc":"2.0","method":"{method}","params":{params},"id":{number}}}'.encode()


def masked_frame(payload: bytes) -> bytes:
    """A WebSocket text frame from a client (payloads below 126 bytes)."""
    body = bytes(byte ^ MASK[i % 4] for i, byte in enumerate(payload))
    return bytes([0x81, 0x80 | len(payload)]) + MASK + body


def framed(framing: str, payload: bytes, port: int) -> bytes:
    """A message as its wire carries it."""
    if framing == "http":
        head = f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload
    if framing == "content-length":
        return b"Content-Length: %d\r\n\r\n%b" % (len(payload), payload)
    if framing == "websocket":
        return masked_frame(payload)
    return payload + b"\n"


def unframed(framing: str, data: bytes) -> tuple[bytes, int] | None:
    """The first message in `data` and its length on the wire; None while it is not whole."""
    if framing == "newline":
        end = data.find(b"\n")
        return None if end < 0 else (data[:end], end + 1)
    if framing == "websocket":
        size = 2 + data[1] if len(data) > 1 else 0
        return (data[2:size], size) if size and len(data) >= size else None
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    lines = data[:end].split(b"\r\n")
    if framing == "http" and not lines[0].startswith(b"HTTP/1.1 200"):
        raise LoadError(f"answered {lines[0]!r}")
    lengths = [int(line[15:]) for line in lines if line.lower().startswith(b"content-length:")]
    if not lengths:
        raise LoadError(f"no Content-Length in {data[:200]!r}")
    size = end + 4 + lengths[0]
    return (data[end + 4 : size], size) if len(data) >= size else None


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


def send_all(wire: Wire, data: bytes) -> None:
    """Send, waiting where the wire is full."""
    view = memoryview(data)
    while view:
        try:
            view = view[wire.send(view) :]
        except BlockingIOError:
            time.sleep(0.0005)


def falling_due(began: float, rate: int, sent: int, total: int) -> tuple[int, float]:
    """How many calls are due now, of `total` that fall due at a steady rate; and the seconds until the next one is, or
    how long the last answers may take."""
    now = time.perf_counter()
    due = min(total, int((now - began) * rate) + 1) - sent
    return due, PATIENCE if sent == total else max(0.0, began + sent / rate - now)


class Load:
    """One open load: its wires, its requests, and the length of an answer."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.framing: str = order["framing"]
        self.address: list[Any] = order.get("address", [])
        self.echo: bool = order.get("echo", False)
        self.wires: list[Wire] = []
        self.idle: list[socket.socket] = []
        self.pid: int = order.get("pid", 0)
        method, params = order.get("method", "subtract"), order.get("params", "[42,23]")
        port = self.address[1] if len(self.address) == 2 else 0
        self.posts: list[bytes] = []
        if self.framing == "http":
            lengths = [params + " " * spaces for spaces in range(LENGTHS)]
            self.posts = [framed(self.framing, call(method, FIRST_ID, padded), port) for padded in lengths]
        ids = range(FIRST_ID, FIRST_ID + IDS)
        requests = self.posts[:1] or [framed(self.framing, call(method, number, params), port) for number in ids]
        self.size, self.count = len(requests[0]), len(requests)
        self.requests = memoryview(b"".join(requests * (2 if self.count > 1 else 1)))
        self.next = 0
        if "argv" in order:
            pipes = Pipes(order["argv"], order.get("core"), order.get("env", {}))
            self.pid = pipes.child.pid
            self.wires.append(pipes)
        else:
            self.wires += [self.connect() for _ in range(order.get("connections", 1))]
        self.answer = [self.first(wire) for wire in self.wires].pop()

    def connect(self) -> socket.socket:
        """A wire past its handshake."""
        wire = dial(self.address)
        if self.framing == "websocket":
            host = f"127.0.0.1:{self.address[1]}"
            upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            wire.sendall(
                f"GET / HTTP/1.1\r\nHost: {host}\r\n{upgrade}Sec-WebSocket-Key: {WEBSOCKET_KEY}\r\n\r\n".encode()
            )
            head = b""
            while b"\r\n\r\n" not in head:
                head = patient_recv(wire, head)
            if not head.startswith(b"HTTP/1.1 101") or not head.endswith(b"\r\n\r\n"):
                raise LoadError(f"no upgrade: {head[:200]!r}")
        wire.setblocking(False)
        return wire

    def take(self, count: int) -> memoryview:
        """The next `count` requests."""
        if self.count == 1:
            return self.requests
        begin, self.next = self.next, (self.next + count) % self.count
        return self.requests[begin * self.size : (begin + count) * self.size]

    def first(self, wire: Wire) -> int:
        """One call, parsed and checked; the length of its answer."""
        send_all(wire, bytes(self.take(1)))
        data = b""
        while (found := unframed(self.framing, data)) is None:
            data = patient_recv(wire, data)
        message, size = found
        if not self.echo and json.loads(message).get("result") != 19:
            raise LoadError(f"answered {message[:200]!r}")
        if len(data) != size:
            raise LoadError(f"more than one answer: {data[:400]!r}")
        return size

    def run(self, calls: int, window: int) -> None:
        """Make `calls` calls; `window` in flight on one wire, or one in flight on each of several."""
        if len(self.wires) == 1:
            self.run_window(self.wires[0], calls, window)
        else:
            self.run_many(calls)

    def run_window(self, wire: Wire, calls: int, window: int) -> None:
        size, recv = self.answer, wire.recv
        poll = select.epoll()
        poll.register(wire.fileno(), select.EPOLLIN)
        waiting = poll.poll
        sent, received, want, answered = min(window, calls), 0, calls * size, 0
        send_all(wire, bytes(self.take(sent)))
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
                part = self.take(fresh)
                if wire.send(part) != len(part):
                    raise LoadError("the server does not read 32 requests while it answers")
        poll.close()
        if received != want:
            raise LoadError(
                f"answers of other lengths: {received} bytes where {want} were due; at the end {data[-200:]!r}"
            )

    def run_many(self, calls: int) -> None:
        size, posts, count = self.answer, self.posts, len(self.wires)
        poll = select.epoll()
        by_fd = {wire.fileno(): wire for wire in self.wires}
        partial = dict.fromkeys(by_fd, 0)
        for fd, wire in by_fd.items():
            poll.register(fd, select.EPOLLIN)
            wire.send(posts[0])
        sent, done = count, 0
        calls = max(calls, count)
        while done < calls:
            events = poll.poll(PATIENCE)
            if not events:
                raise LoadError(f"no answer in {PATIENCE:g} s after {done} of {calls}")
            for fd, _ in events:
                wire = by_fd[fd]
                length = len(wire.recv(65_536))
                if length != size:
                    length += partial[fd]
                    partial[fd] = length if length < size else 0
                    if length > size or length == partial[fd] == 0:
                        raise LoadError(f"an answer of {length} bytes where {size} were due")
                    if length < size:
                        continue
                done += 1
                if sent < calls:
                    sent += 1
                    wire.send(posts[sent % LENGTHS])
        poll.close()

    def pace(self, rate: int, seconds: float) -> None:
        """Make `rate` calls a second on one wire, each when it is due."""
        wire, size, total = self.wires[0], self.answer, int(rate * seconds)
        began, sent, received = time.perf_counter(), 0, 0
        while received < total * size:
            due, wait = falling_due(began, rate, sent, total)
            if due:
                send_all(wire, bytes(self.take(due)))
                sent += due
            elif select.select([wire], [], [], wait)[0]:
                received += len(patient_recv(wire))
            elif sent == total:
                raise LoadError(f"no answer in {PATIENCE:g} s after {received // size} of {total}")

    def latency(self, calls: int) -> float:
        """The median time in seconds of a call with nothing else in flight."""
        wire, size, taken = self.wires[0], self.answer, []
        for _ in range(calls):
            request = self.take(1)
            began = time.perf_counter()
            wire.send(request)
            got = 0
            while got < size:
                got += len(patient_recv(wire))
            taken.append(time.perf_counter() - began)
        return statistics.median(taken)

    def hold(self, count: int) -> None:
        """Bring the idle connections to `count`; each has made one call."""
        while len(self.idle) < count:
            wire = self.connect()
            self.idle.append(wire)
            self.first(wire)

    def pend(self, count: int, method: str) -> None:
        """Start `count` calls that will not be answered, then make sure the wire still answers."""
        wire, base = self.wires[0], FIRST_ID * 10 + self.pending
        blob = b"".join(framed(self.framing, call(method, base + i), 0) for i in range(count - self.pending))
        self.pending = count
        send_all(wire, blob)
        self.first(wire)

    pending = 0

    def close(self) -> None:
        """Hang up everywhere; a child is waited for."""
        for wire in (*self.wires, *self.idle):
            wire.close()


def obey(loads: dict[str, Load], order: dict[str, Any]) -> dict[str, Any]:
    """Carry out one order."""
    name = order["name"]
    if order["do"] == "open":
        load = loads[name] = Load(order)
        return {"pid": load.pid, "answer": load.answer}
    load = loads[name]
    if order["do"] == "run":
        cpu, wall, own = cpu_of(load.pid), time.perf_counter(), time.process_time()
        load.run(order["calls"], order["window"])
        spent = cpu_of(load.pid) - cpu, time.perf_counter() - wall, time.process_time() - own
        return dict(zip(("cpu", "wall", "own"), spent, strict=True))
    if order["do"] == "pace":
        cpu, wall = cpu_of(load.pid), time.perf_counter()
        load.pace(order["rate"], order["seconds"])
        return {"cpu": cpu_of(load.pid) - cpu, "wall": time.perf_counter() - wall}
    if order["do"] == "latency":
        return {"seconds": load.latency(order["calls"])}
    if order["do"] == "hold":
        load.hold(order["count"])
    elif order["do"] == "pend":
        load.pend(order["count"], order["method"])
    elif order["do"] == "close":
        loads.pop(name).close()
    return {}


def main() -> None:
    """Orders in, reports out, until end of file."""
    loads: dict[str, Load] = {}
    for line in sys.stdin:
        order = json.loads(line)
        try:
            report = obey(loads, order)
        except (LoadError, OSError, ValueError) as error:
            report = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(report), flush=True)
    for load in loads.values():
        load.close()


if __name__ == "__main__":
    main()
