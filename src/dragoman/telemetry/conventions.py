"""Names and attributes of spans and metrics, by OpenTelemetry's conventions: of RPC for services, of MCP for MCP.

Rules:

- This file has all of the names; both conventions are in development and change.
- Arguments, results, texts of errors and header fields are never attributes.
- What a far end may choose at will is cut after `SHOWN` characters. A method that does not exist is "_OTHER", since
  the name of a span must have few values.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, field

from ..jsonrpc.errors import METHOD_NOT_FOUND
from ..observer import Direction, Observation
from .figures import Labels
from .metrics import UNKNOWN, Durations

OTHER: Final = "_OTHER"
TOOL_ERROR: Final = "tool_error"
SHOWN: Final = 200
"""Characters of a value that a far end chooses."""
FAILED: Final = frozenset({"error", "refused", "timed_out", "lost", "failed", "dropped"})
"""Outcomes that make the status of a span an error."""
_TRANSPORTS: Final = {
    "http": "tcp",
    "https": "tcp",
    "ws": "tcp",
    "wss": "tcp",
    "tcp": "tcp",
    "tls": "tcp",
    "unix": "unix",
    "stdio": "pipe",
    "udp": "udp",
}
_BROKERS: Final = {
    "amqp": "rabbitmq",
    "amqps": "rabbitmq",
    "mqtt": "mqtt",
    "mqtts": "mqtt",
    "nats": "nats",
    "natss": "nats",
    "redis": "redis",
    "rediss": "redis",
}
_TARGETS: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}


_VERSION: Final = "mcp-protocol-version"
_META_VERSION: Final = "io.modelcontextprotocol/protocolVersion"


class _Params(Struct):
    name: Any = ""
    meta: dict[str, Any] = field(default_factory=dict, name="_meta")


class _Message(Struct):
    params: _Params = field(default_factory=_Params)


class _Outcome(Struct):
    is_error: bool = field(default=False, name="isError")


class _Answer(Struct):
    result: _Outcome = field(default_factory=_Outcome)


_params = msgspec.json.Decoder(_Params).decode
_message = msgspec.json.Decoder(_Message).decode
_answer = msgspec.json.Decoder(_Answer).decode


def name_of(seen: Observation) -> str:
    """Return the name of a span that begins."""
    return seen.method[:SHOWN]


def beginning(seen: Observation) -> dict[str, Any]:
    """Return the attributes that are known at the beginning, for a sampler."""
    found: dict[str, Any] = _of_method(seen.protocol, name_of(seen), seen.service)
    if (transport := _TRANSPORTS.get(seen.caller.scheme)) is not None:
        found["network.transport"] = transport
    elif (system := _BROKERS.get(seen.caller.scheme)) is not None:
        found["messaging.system"] = system
    return found


def ending(seen: Observation) -> tuple[str, dict[str, Any]]:
    """Return the final name, and the attributes that are known when it is over."""
    found: dict[str, Any] = {"jsonrpc.protocol.version": "2.0"}
    if seen.id is not UNSET:
        found["jsonrpc.request.id"] = _id(seen.id)[:SHOWN]
    name = name_of(seen)
    if seen.code is not None:
        found["rpc.response.status_code"] = f"{seen.code}"
    if seen.code == METHOD_NOT_FOUND:
        key = "mcp.method.name" if seen.protocol == "mcp" else "rpc.method"
        found |= {key: OTHER, "rpc.method_original": name}
        name = OTHER
    if (wrong := _wrong(seen)) is not None:
        found["error.type"] = wrong
    if seen.wait is not None:
        found["dragoman.queue_wait"] = seen.wait
    if seen.session:  # a name in place of the id, which is a secret
        found["mcp.session.id"] = seen.session
    if seen.about:
        found["dragoman.about"] = seen.about[:SHOWN]
    if seen.caller.redelivered:
        found["dragoman.redelivered"] = seen.caller.redelivered
    return _of_mcp(seen, name, found) if seen.protocol == "mcp" else (name, found)


def _of_mcp(seen: Observation, name: str, found: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a call's attributes with those that MCP adds: the revision, and the tool or prompt that was named."""
    params = _params_of(seen)
    version = params.meta.get(_META_VERSION) or seen.caller.headers.get(_VERSION)
    if isinstance(version, str):
        found["mcp.protocol.version"] = version[:SHOWN]
    chosen = params.name
    if seen.method in _TARGETS and chosen and isinstance(chosen, str):
        found |= _of_target(seen.method, chosen[:SHOWN])
        if seen.code is None:  # else there may be no such tool
            name = f"{name} {chosen[:SHOWN]}"
    return name, found


def _of_method(protocol: str, method: str, service: str) -> dict[str, str]:
    called = {"mcp.method.name": method} if protocol == "mcp" else {"rpc.system.name": "jsonrpc", "rpc.method": method}
    return called | {"dragoman.service": service}


def _of_target(method: str, name: str) -> dict[str, str]:
    """Return the attributes of a call of MCP's tool or prompt of this name."""
    operation = {"gen_ai.operation.name": "execute_tool"} if method == "tools/call" else {}
    return {_TARGETS[method]: name} | operation


# -- the bus


def publishing(url: str, topic: str) -> tuple[str, dict[str, Any]]:
    """Return the span of a message that is published on a bus, by the conventions of messaging."""
    return "publish", _messaging("publish", "send", url, topic)


def processing(url: str, topic: str) -> tuple[str, dict[str, Any]]:
    """Return the span of what a subscriber does with a message."""
    return "process", _messaging("process", "process", url, topic)


def _messaging(name: str, kind: str, url: str, topic: str) -> dict[str, Any]:
    found = {"messaging.operation.name": name, "messaging.operation.type": kind}
    return found | {"messaging.system": _engine(url), "messaging.destination.name": topic[:SHOWN]}


def storing(url: str, operation: str) -> tuple[str, dict[str, Any]]:
    """Return the span of an operation of a bus's store, by the conventions of databases; without its key."""
    return operation, {"db.system.name": _engine(url), "db.operation.name": operation}


def _engine(url: str) -> str:
    scheme = url.partition(":")[0]
    return _BROKERS.get(scheme, scheme)


# -- metrics

DURATIONS: Final[dict[tuple[bool, Direction], str]] = {
    (False, "in"): "rpc.server.call.duration",
    (False, "out"): "rpc.client.call.duration",
    (True, "in"): "mcp.server.operation.duration",
    (True, "out"): "mcp.client.operation.duration",
}
"""The histograms of calls, by whether the protocol is MCP, and by direction."""
_LABELS: Final = {
    "service": "dragoman.service",
    "method": "rpc.method",
    "tool": "gen_ai.tool.name",
    "prompt": "gen_ai.prompt.name",
    "outcome": "dragoman.outcome",
    "code": "rpc.response.status_code",
    "kind": "dragoman.rejection.kind",
    "wire": "dragoman.wire",
    "bus": "dragoman.bus",
}
_UNITS: Final = {"_seconds": "s", "_bytes": "By"}


def metric_name(name: str) -> tuple[str, str]:
    """Return the name and the unit of a metric of ours that no convention has: "received_bytes_total" is
    "dragoman.received" in "By"; names say neither units nor that they are totals (general/naming)."""
    name = name.removesuffix("_total")
    ending = next((one for one in _UNITS if name.endswith(one)), "")
    dotted = name.removesuffix(ending)
    if dotted.startswith("outbound_"):
        dotted = dotted.replace("_", ".", 1)
    return f"dragoman.{dotted}", _UNITS.get(ending, "1")


def metric_attributes(labels: Labels) -> dict[str, str]:
    """Return the attributes of a sample."""
    return {_LABELS.get(name, f"dragoman.{name}"): value for name, value in labels}


def duration_attributes(one: Durations) -> dict[str, str]:
    """Return the attributes of a histogram of calls."""
    method = OTHER if one.method == UNKNOWN else one.method[:SHOWN]
    found = _of_method(one.protocol, method, one.service) | {"dragoman.outcome": one.outcome}
    if one.target:
        found |= _of_target(one.method, one.target)
    if one.code:
        found |= {"rpc.response.status_code": one.code, "error.type": one.code}
    elif one.outcome in FAILED:
        found["error.type"] = one.outcome
    return found


def _wrong(seen: Observation) -> str | None:
    """Return `error.type`: the code, or the outcome; "tool_error" for a result with `isError`."""
    if seen.code is not None:
        return f"{seen.code}"
    if seen.outcome in FAILED:
        return seen.outcome
    if seen.protocol == "mcp" and seen.method == "tools/call" and seen.answer is not None and b"isError" in seen.answer:
        with suppress(msgspec.DecodeError, UnicodeError, RecursionError):
            return TOOL_ERROR if _answer(seen.answer).result.is_error else None
    return None


def _params_of(seen: Observation) -> _Params:
    """Return the params, empty if they are not known; on the way out they are only in the message."""
    with suppress(msgspec.DecodeError, UnicodeError, RecursionError):
        if isinstance(seen.params, Raw):
            return _params(seen.params)
        if seen.direction == "out" and seen.message:
            return _message(seen.message).params
    return _Params()


def _id(id: object) -> str:
    return bytes(id).decode("utf-8", "replace") if isinstance(id, Raw) else f"{id}"
