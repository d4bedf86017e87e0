"""Inputs for the fuzzer, made from the wire cases: every function here is a function of its `Random`."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from tests.wire_cases import all_cases

LONGEST = 4096
"""Bytes of a case to begin with; longer ones are for the wire cases' own tests."""
SEEDS = [case.message for case in all_cases() if len(case.message) <= LONGEST]

BITS = [
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\",
    b"\n",
    b"\r",
    b" ",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
]
BITS += [b"null", b"true", b"NaN", b"-", b"1e999", b"1E400", b"-0", b"0.1", b"9" * 40, b"1" + b"0" * 400, b"\\ud800"]
BITS += [b"\\u0000", b'"id":1', b'"method":', b'"jsonrpc":"2.0",', b"[" * 50, b"{}", b"[]", "é😀".encode(), b"\xc3"]

LEAVES: list[Any] = [None, True, False, 0, 1, -1, 1.0, 1.5, -0.0, 2**31, 2**53, 2**63, 2**64, 10**40, -(10**40), 1e308]
LEAVES += [
    5e-324,
    float("nan"),
    float("inf"),
    "",
    "1",
    "é😀",
    "\0",
    "\ud800",
    "x" * 300,
    "y" * 2000,
    [],
    {},
    [[]],
    [1, 2],
]
LEAVES += ["2.0", "1.0", "subtract", "sum", "echo", "get_data", "fail", "later", "in_thread", "divide", "rpc.discover"]
NAMES = ["jsonrpc", "method", "params", "id", "result", "error", "Method", "ID", "", "x", "code", "message", "minuend"]


def message(random: Random) -> bytes:
    """One message, mutated once to four times."""
    raw = random.choice(SEEDS)
    for _ in range(random.choice((1, 1, 2, 3, 4))):
        raw = (of_json if random.random() < 0.5 else of_bytes)(raw, random)
    return raw


# -- bytes ----------------------------------------------------------------------------------------


def of_bytes(raw: bytes, random: Random) -> bytes:
    """Change some bytes, whatever they mean."""
    return random.choice(BYTES)(raw, random)


def _place(raw: bytes, random: Random) -> int:
    return random.randrange(len(raw) + 1)


def _flip(raw: bytes, random: Random) -> bytes:
    if not raw:
        return raw
    at = random.randrange(len(raw))
    return raw[:at] + bytes([raw[at] ^ 1 << random.randrange(8)]) + raw[at + 1 :]


def _put(raw: bytes, random: Random) -> bytes:
    at = _place(raw, random)
    return raw[:at] + random.choice(BITS) + raw[at:]


def _replace(raw: bytes, random: Random) -> bytes:
    at, end = sorted((_place(raw, random), _place(raw, random)))
    return raw[:at] + random.choice(BITS) + raw[min(end, at + 8) :]


def _cut(raw: bytes, random: Random) -> bytes:
    at, end = sorted((_place(raw, random), _place(raw, random)))
    return raw[:at] + raw[end:]


def _truncate(raw: bytes, random: Random) -> bytes:
    return raw[: _place(raw, random)]


def _repeat(raw: bytes, random: Random) -> bytes:
    at, end = sorted((_place(raw, random), _place(raw, random)))
    return raw[:end] + raw[at:end] * random.randrange(1, 4) + raw[end:] if end - at < 500 else raw


def _splice(raw: bytes, random: Random) -> bytes:
    other = random.choice(SEEDS)
    return raw[: _place(raw, random)] + other[_place(other, random) :]


BYTES: list[Callable[[bytes, Random], bytes]] = [_flip, _put, _replace, _cut, _truncate, _repeat, _splice]


# -- JSON -----------------------------------------------------------------------------------------


def of_json(raw: bytes, random: Random) -> bytes:
    """Change the value that the text stands for, and write it again; what is not JSON has its bytes changed."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return of_bytes(raw, random)
    change = random.random()
    if change < 0.1:
        value = [value] * random.randrange(1, 4)
    elif change < 0.2:
        others = [random.choice(SEEDS) for _ in range(random.randrange(1, 4))]
        value = [value, *(_loaded(other) for other in others)]
        random.shuffle(value)
    else:
        value = _changed(value, random)
    try:
        text = json.dumps(value, ensure_ascii=random.random() < 0.5, indent=random.choice((None, None, 0)))
        return text.encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return raw


def _loaded(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _changed(value: Any, random: Random) -> Any:
    """A value with one place changed."""
    if isinstance(value, dict) and value and random.random() < 0.8:
        name = random.choice(list(value))
        what = random.random()
        if what < 0.5:
            return {**value, name: _changed(value[name], random)}
        rest = {one: other for one, other in value.items() if one != name}
        if what < 0.65:
            return rest
        if what < 0.8:
            return {**rest, random.choice(NAMES): value[name]}
        return {**value, random.choice(NAMES): random.choice(LEAVES)}
    if isinstance(value, list) and value and random.random() < 0.8:
        at = random.randrange(len(value))
        what = random.random()
        if what < 0.6:
            return [*value[:at], _changed(value[at], random), *value[at + 1 :]]
        if what < 0.8:
            return value[:at] + value[at + 1 :]
        return [*value[:at], random.choice(LEAVES), *value[at:]]
    return [value] if random.random() < 0.1 else random.choice(LEAVES)


# -- what is around messages ----------------------------------------------------------------------

LENGTHS = [
    b"0",
    b"-1",
    b"+1",
    b"1e3",
    b"0x10",
    b"007",
    b"99999999999999999999",
    b"",
    b" ",
    b"61, 61",
    b"1.0",
    b"4194305",
]


def frames(random: Random) -> bytes:
    """Some frames with Content-Length, most with something wrong about one head."""
    bodies = [message(random) for _ in range(random.randrange(1, 4))]
    whole = [_frame(body, b"%d" % len(body)) for body in bodies]
    if random.random() < 0.3:
        return b"".join(whole)
    at = random.randrange(len(bodies))
    body = bodies[at]
    what = random.random()
    if what < 0.3:
        whole[at] = _frame(body, random.choice(LENGTHS))
    elif what < 0.5:
        whole[at] = _frame(body, b"%d" % max(0, len(body) + random.randrange(-5, 6)))
    elif what < 0.7:
        whole[at] = whole[at].replace(b"\r\n\r\n", random.choice(HEADS), 1)
    else:
        whole[at] = of_bytes(whole[at], random)
    return b"".join(whole)


HEADS = [
    b"\n\n",
    b"\r\n",
    b"\r\n\r\n\r\n",
    b"\r\nContent-Length: 3\r\n\r\n",
    b"\r\nContent-Type: text; charset=utf-16\r\n\r\n",
]
HEADS += [
    b"\r\nX: y\r\n\r\n",
    b"\r\nno header line\r\n\r\n",
    b"\r\n\0\xff\r\n\r\n",
    b"\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
]


def _frame(body: bytes, length: bytes) -> bytes:
    return b"Content-Length: %b\r\n\r\n%b" % (length, body)


METHODS = [b"POST", b"POST", b"POST", b"GET", b"PUT", b"OPTIONS", b"post", b"CONNECT", b"PRI", b"\0", b"POST POST"]
TARGETS = [
    b"/",
    b"/",
    b"/x",
    b"/live",
    b"/openrpc.json",
    b"*",
    b"http://127.0.0.1/",
    b"//",
    b"/%ff",
    b"/#x",
    b"",
    b"/?x=1",
]
VERSIONS = [
    b"HTTP/1.1",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"HTTP/0.9",
    b"http/1.1",
    b"HTTP/1.1 ",
    b"",
    b"HTTP/1.9",
]
HEADERS = [
    b"Host: 127.0.0.1",
    b"Host: evil.example",
    b"Host:",
    b"Content-Type: application/json",
    b"Content-Type: text/plain",
]
HEADERS += [
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Connection: close",
    b"Connection: keep-alive",
]
HEADERS += [
    b"Connection: upgrade",
    b"Upgrade: websocket",
    b"Upgrade: h2c",
    b"Expect: 100-continue",
    b"Expect: x",
    b"Origin: null",
]
HEADERS += [
    b"Origin: http://evil.example",
    b" folded",
    b"No colon",
    b": x",
    b"X\0: y",
    b"X: \xff\x80",
    b"X: " + b"x" * 20_000,
]
HEADERS += [b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", b"Sec-WebSocket-Version: 13", b"Content-Encoding: gzip"]
HEADERS += [b"Content-Length: " + length for length in LENGTHS]


def http(random: Random) -> bytes:
    """A few HTTP requests on one wire, with something wrong about them."""
    return b"".join(_http(random) for _ in range(random.choice((1, 1, 2, 3))))


def _http(random: Random) -> bytes:
    body = message(random)
    lines = [b"Host: 127.0.0.1", b"Content-Type: application/json", b"Content-Length: %d" % len(body)]
    for _ in range(random.choice((0, 1, 1, 2))):
        lines.insert(random.randrange(len(lines) + 1), random.choice(HEADERS))
    if random.random() < 0.2:
        del lines[random.randrange(len(lines))]
    if random.random() < 0.2:
        lines = [b"Host: 127.0.0.1", b"Content-Type: application/json", b"Transfer-Encoding: chunked"]
        body = _chunks(body, random)
    first = b" ".join((random.choice(METHODS), random.choice(TARGETS), random.choice(VERSIONS)))
    if random.random() < 0.6:
        first = b"POST / HTTP/1.1"
    end = b"\r\n" if random.random() < 0.9 else b"\n"
    raw = end.join((first, *lines, b"", b"")) + body
    return of_bytes(raw, random) if random.random() < 0.4 else raw


def _chunks(body: bytes, random: Random) -> bytes:
    sizes = [b"%x", b"%x", b"%X;x=y", b"0%x", b"-%x", b"0x%x", b"%x "]
    pieces = [body[at : at + 10] for at in range(0, len(body), 10)]
    return b"".join(random.choice(sizes) % len(one) + b"\r\n" + one + b"\r\n" for one in pieces) + b"0\r\n\r\n"
