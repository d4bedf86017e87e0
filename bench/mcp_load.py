"""The load generator of the MCP rows: what `load` is, for `tools/call` and its like. Orders of its own: `sessions`
(begin so many, that then stay idle), `streams` (a GET stream on each of them), `listen` (subscriptions), `abort` (so
many POSTs whose sender hangs up at once, then one that stays: how long it takes).

A contestant's order holds `mcp`: `{"era": "2026" or "2025", "method", "tool", "sse", "fresh"}` (fresh: a `traceparent`
of its own in each head). In the stateful era every connection has a session of its own. Answers are counted by their
length, streams by their end.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

from bench.load import (
    FIRST_ID,
    IDS,
    LENGTHS,
    PATIENCE,
    LoadError,
    Pipes,
    cpu_of,
    dial,
    falling_due,
    patient_recv,
    send_all,
)
from bench.load import Wire as Stream

ABOUT = '{"name":"bench","version":"1.0.0"}'
KEY = "io.modelcontextprotocol"
META = f'"_meta":{{"{KEY}/protocolVersion":"2026-07-28","{KEY}/clientInfo":{ABOUT},"{KEY}/clientCapabilities":{{}}}}'
INITIALIZE = (
    '{"jsonrpc":"2.0","id":1,"method":"initialize",'
    f'"params":{{"protocolVersion":"2025-11-25","capabilities":{{}},"clientInfo":{ABOUT}}}}}'
)
INITIALIZED = '{"jsonrpc":"2.0","method":"notifications/initialized"}'
STREAM_END = b"0\r\n\r\n"
POSTS = 4 * LENGTHS
"""Requests that one connection has in turn."""


def body(era: str, method: str, tool: str, number: int, padding: int = 0) -> str:
    """One request."""
    parts = [META] if era == "2026" else []
    if method == "tools/call":
        space = " " * padding
        parts.append(f'"name":"{tool}","arguments":{{"minuend":42,"subtrahend":23{space}}}')
    elif method == "subscriptions/listen":
        parts.append('"notifications":{"toolsListChanged":true}')
    return f'{{"jsonrpc":"2.0","id":{number},"method":"{method}","params":{{{",".join(parts)}}}}}'


def big() -> str:
    """A call of `echo` in 2026-07-28 with 2 MB of text."""
    text = "19 words of which some are longer " * 60_000
    return (
        '{"jsonrpc":"2.0","id":1,"method":"tools/call",'
        f'"params":{{{META},"name":"echo","arguments":{{"text":"{text}"}}}}}}'
    )


def head(port: int, era: str, method: str, tool: str, session: str) -> str:
    """The lines of a request's head that its body's length does not change."""
    lines = [
        "POST /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"MCP-Protocol-Version: {'2026-07-28' if era == '2026' else '2025-11-25'}",
    ]
    if era == "2026":
        lines.append(f"Mcp-Method: {method}")
        if method == "tools/call":
            lines.append(f"Mcp-Name: {tool}")
    if session:
        lines.append(f"Mcp-Session-Id: {session}")
    return "\r\n".join(lines)


def post(lines: str, text: str) -> bytes:
    """A POST."""
    return f"{lines}\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


def response(wire: Stream, data: bytes = b"") -> tuple[str, bytes, int]:
    """Head, body and length of the next response; a stream's body is all its chunks as they came."""
    while b"\r\n\r\n" not in data:
        data = patient_recv(wire, data)
    lines, _, rest = data.partition(b"\r\n\r\n")
    given = lines.decode()
    said = given.lower()
    if "\r\ncontent-length:" in said:
        size = int(said.split("\r\ncontent-length:", 1)[1].split("\r\n", 1)[0])
        while len(rest) < size:
            rest = patient_recv(wire, rest)
    elif "transfer-encoding: chunked" in said:
        while not rest.endswith(STREAM_END):
            rest = patient_recv(wire, rest)
    elif not said.startswith(("http/1.1 202", "http/1.1 204")):
        raise LoadError(f"an answer without a length: {said[:200]}")
    return given, rest, len(lines) + 4 + len(rest)


def begin(wire: Stream, port: int) -> str:
    """Begin a session: its id."""
    send_all(wire, post(head(port, "", "initialize", "", ""), INITIALIZE))
    said, rest, _ = response(wire)
    sessions = [line[15:].strip() for line in said.split("\r\n") if line.lower().startswith("mcp-session-id:")]
    if not sessions:
        raise LoadError(f"no session: {said[:100]!r} {rest[:200]!r}")
    session = sessions[0]
    send_all(wire, post(head(port, "2025", "", "", session), INITIALIZED))
    said, rest, _ = response(wire)
    if not said.startswith("HTTP/1.1 202"):
        raise LoadError(f"initialized was answered {said[:100]!r} {rest[:200]!r}")
    return session


def traced(number: int) -> str:
    """A line that is new in each head."""
    return f"\r\ntraceparent: 00-{number:032x}-{number:016x}-01"


class Caller:
    """One HTTP connection that makes one call after the other."""

    def __init__(self, address: list[Any], kind: dict[str, Any], base: int) -> None:
        self.wire = dial(address)
        self.sse = bool(kind.get("sse"))
        era, method, tool = kind["era"], kind.get("method", "tools/call"), kind.get("tool", "subtract")
        session = begin(self.wire, address[1]) if era == "2025" else ""
        lines = "\r\n".join([head(address[1], era, method, tool, session), *kind.get("lines", ())])
        self.posts = [
            post(
                lines + (traced(base + n) if kind.get("fresh") else ""), body(era, method, tool, base + n, n % LENGTHS)
            )
            for n in range(POSTS)
        ]
        self.next = self.got = 0
        self.last = b""
        self.ask()
        said, rest, self.size = response(self.wire)
        status, expected = 200, b"19" if method == "tools/call" else b'"tools"'
        if kind.get("refused"):
            status, expected = 401, b""
        if not said.startswith(f"HTTP/1.1 {status}") or expected not in rest or b'"isError":true' in rest:
            raise LoadError(f"answered {said[:60]!r} {rest[:300]!r}")
        if self.sse is not ("text/event-stream" in said.lower()):
            raise LoadError(f"{'no stream' if self.sse else 'a stream'}: {said[:200]!r}")
        self.wire.setblocking(False)

    def ask(self) -> None:
        """Send the next request."""
        self.wire.send(self.posts[self.next])
        self.next = (self.next + 1) % POSTS

    def take(self) -> bool:
        """Read what is there; True when the answer is whole."""
        data = self.wire.recv(262_144)
        if not data:
            raise LoadError("the server hung up")
        if self.sse:
            return self.whole(data)
        self.got += len(data)
        if self.got > self.size:
            raise LoadError(f"an answer of {self.got} bytes where {self.size} were due: {data[-200:]!r}")
        if self.got < self.size:
            return False
        self.got = 0
        return True

    def whole(self, data: bytes) -> bool:
        """The same for a stream, whose events may differ in length."""
        self.last += data
        if not self.last.endswith(STREAM_END):
            lines, end, rest = self.last.partition(b"\r\n\r\n")
            size = lines.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
            if not end or not size or len(rest) < int(size):
                return False
        self.last = b""
        return True


class Http:
    """Connections with one call in flight on each."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.address: list[Any] = order["address"]
        self.pid: int = order["pid"]
        self.kind: dict[str, Any] = order["mcp"]
        count: int = order.get("connections", 1)
        self.callers = [Caller(self.address, self.kind, FIRST_ID + n * POSTS) for n in range(count)]
        self.sessions: list[str] = []
        self.held: list[socket.socket] = []

    def run(self, calls: int, window: int) -> None:
        """Make so many calls."""
        del window
        poll = select.epoll()
        by_fd = {caller.wire.fileno(): caller for caller in self.callers}
        for fd, caller in by_fd.items():
            poll.register(fd, select.EPOLLIN)
            caller.ask()
        sent, done, calls = len(by_fd), 0, max(calls, len(by_fd))
        while done < calls:
            events = poll.poll(PATIENCE)
            if not events:
                raise LoadError(f"no answer in {PATIENCE:g} s after {done} of {calls}")
            for fd, _ in events:
                caller = by_fd[fd]
                if caller.take():
                    done += 1
                    if sent < calls:
                        sent += 1
                        caller.ask()
        poll.close()

    def pace(self, rate: int, seconds: float) -> None:
        """Make `rate` calls a second, each when it is due and a connection is free."""
        total, began, sent, done = int(rate * seconds), time.perf_counter(), 0, 0
        free, busy = list(self.callers), dict[Any, Caller]()
        while done < total:
            due, wait = falling_due(began, rate, sent, total)
            for caller in free[:due]:
                caller.ask()
                busy[caller.wire] = caller
            sent += len(free[:due])
            del free[:due]
            if due > 0 and free:
                continue
            ready = select.select(list(busy), [], [], wait if due <= 0 else PATIENCE)[0]
            if not ready and (due > 0 or sent == total):
                raise LoadError(f"no answer in {PATIENCE:g} s after {done} of {total}")
            for wire in ready:
                if busy[wire].take():
                    free.append(busy.pop(wire))
                    done += 1

    def begin(self, count: int) -> None:
        """Sessions that then stay idle, begun on one connection."""
        with dial(self.address) as wire:
            self.sessions += [begin(wire, self.address[1]) for _ in range(count)]

    def stream(self, count: int) -> None:
        """A GET stream on each of the first sessions."""
        for session in self.sessions[len(self.held) : len(self.held) + count]:
            wire = dial(self.address)
            self.held.append(wire)
            lines = (
                head(self.address[1], "2025", "", "", session)
                .replace("POST ", "GET ")
                .replace("application/json, ", "")
            )
            send_all(wire, f"{lines}\r\n\r\n".encode())
            self.opened(wire)

    def listen(self, count: int) -> None:
        """Subscriptions of the stateless era."""
        lines = head(self.address[1], "2026", "subscriptions/listen", "", "")
        for number in range(count):
            wire = dial(self.address)
            self.held.append(wire)
            send_all(wire, post(lines, body("2026", "subscriptions/listen", "", FIRST_ID + number)))
            self.opened(wire)

    def opened(self, wire: socket.socket) -> None:
        """Wait until a stream's head is there."""
        data = b""
        while b"\r\n\r\n" not in data:
            data = patient_recv(wire, data)
        if not data.startswith(b"HTTP/1.1 200") or b"text/event-stream" not in data.lower():
            raise LoadError(f"no stream: {data[:200]!r}")

    def abort(self, count: int) -> float:
        """Seconds of a healthy call after so many whose callers hung up."""
        aborted = self.callers[0].posts[0]
        for _ in range(count):
            with dial(self.address) as wire:
                wire.sendall(aborted)
        began = time.perf_counter()
        Caller(self.address, self.kind, FIRST_ID).wire.close()
        return time.perf_counter() - began

    def close(self) -> None:
        """Hang up everywhere."""
        for wire in (*(caller.wire for caller in self.callers), *self.held):
            wire.close()


class Stdio:
    """A server that is our child; so many calls in flight on its pipes."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.wire = Pipes(order["argv"], order.get("core"), order.get("env", {}))
        self.pid = self.wire.child.pid
        kind: dict[str, Any] = order["mcp"]
        if kind["era"] == "2025":
            send_all(self.wire, f"{INITIALIZE}\n".encode())
            self.line()
            send_all(self.wire, f"{INITIALIZED}\n".encode())
        tool = kind.get("tool", "subtract")
        texts = [body(kind["era"], "tools/call", tool, number) + "\n" for number in range(FIRST_ID, FIRST_ID + IDS)]
        self.each = len(texts[0])
        self.requests = memoryview("".join(texts * 2).encode())
        self.next = 0
        send_all(self.wire, bytes(self.take(1)))
        first = self.line()
        if b"19" not in first or b'"isError":true' in first:
            raise LoadError(f"answered {first[:300]!r}")
        self.size = len(first)

    def line(self) -> bytes:
        """One whole line."""
        data = b""
        while not data.endswith(b"\n"):
            data = patient_recv(self.wire, data)
        return data

    def take(self, count: int) -> memoryview:
        """The next so many requests."""
        first, self.next = self.next, (self.next + count) % IDS
        return self.requests[first * self.each : (first + count) * self.each]

    def run(self, calls: int, window: int) -> None:
        """Make so many calls."""
        poll = select.epoll()
        poll.register(self.wire.fileno(), select.EPOLLIN)
        sent, answered, received, want = min(window, calls), 0, 0, calls * self.size
        send_all(self.wire, bytes(self.take(sent)))
        while received < want:
            if not poll.poll(PATIENCE):
                raise LoadError(f"no answer in {PATIENCE:g} s after {answered} of {calls}")
            data = self.wire.recv(262_144)
            received += len(data)
            done = received // self.size
            fresh = min(done - answered, calls - sent)
            answered = done
            if fresh > 0:
                sent += fresh
                send_all(self.wire, bytes(self.take(fresh)))
        poll.close()
        if received != want:
            raise LoadError(f"answers of other lengths: {received} bytes where {want} were due; {data[-300:]!r}")

    def close(self) -> None:
        """End the child."""
        self.wire.close()


def obey(loads: dict[str, Http | Stdio], order: dict[str, Any]) -> dict[str, Any]:
    """Carry out one order."""
    name, do = order["name"], order["do"]
    if do == "open":
        opened = loads[name] = Stdio(order) if "argv" in order else Http(order)
        return {"pid": opened.pid}
    load = loads[name]
    if do == "run":
        cpu, wall = cpu_of(load.pid), time.perf_counter()
        load.run(order["calls"], order["window"])
        return {"cpu": cpu_of(load.pid) - cpu, "wall": time.perf_counter() - wall}
    if do == "close":
        loads.pop(name).close()
        return {}
    assert isinstance(load, Http)
    if do == "pace":
        cpu, wall = cpu_of(load.pid), time.perf_counter()
        load.pace(order["rate"], order["seconds"])
        return {"cpu": cpu_of(load.pid) - cpu, "wall": time.perf_counter() - wall}
    if do == "abort":
        return {"seconds": load.abort(order["count"])}
    {"sessions": load.begin, "streams": load.stream, "listen": load.listen}[do](order["count"])
    return {}


def orders() -> Iterator[dict[str, Any]]:
    """What the referee wants."""
    yield from map(json.loads, sys.stdin)


def main() -> None:
    """Orders in, reports out, until end of file."""
    loads: dict[str, Http | Stdio] = {}
    for order in orders():
        try:
            report = obey(loads, order)
        except (LoadError, OSError, ValueError) as error:
            report = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(report), flush=True)
    for load in loads.values():
        with contextlib.suppress(OSError):
            load.close()


if __name__ == "__main__":
    main()
