"""The rows, a file a family. A family takes the referee and gives its rows; `FAMILIES` is their order in the table."""

from __future__ import annotations

from collections.abc import Callable

from bench.figures import Row
from bench.referee import Referee
from bench.rows import (
    amqp,
    auth,
    console,
    flat,
    http,
    idle,
    imports,
    in_process,
    mcp_http,
    mcp_more,
    memory,
    middleware,
    mqtt,
    nats,
    redis,
    stdio,
    stream,
    telemetry,
    tokens,
    websocket,
    workers,
)

FAMILIES: dict[str, Callable[[Referee], list[Row]]] = {
    "dispatch": in_process.dispatch,
    "batch": in_process.batch,
    "telemetry": telemetry.telemetry,
    "console": console.console,
    "middleware": middleware.middleware,
    "tokens": tokens.tokens,
    "auth-http": auth.http,
    "http32": http.native_32,
    "http256": http.native_256,
    "asgi": http.asgi,
    "stdio": stdio.stdio,
    "tcp": stream.tcp,
    "unix": stream.unix,
    "websocket": websocket.websocket,
    "memory": memory.memory,
    "idle": idle.idle,
    "imports": imports.imports,
    "flat": flat.flat,
    "mcp-http": mcp_http.native,
    "mcp-asgi": mcp_http.asgi,
    "mcp-sessions": mcp_http.sessions,
    "mcp-aborted": mcp_http.aborted,
    "mcp-stdio": mcp_more.stdio,
    "mcp-process": mcp_more.process,
    "mcp-memory": mcp_more.memory,
    "mcp-client": mcp_more.client,
    "mcp-tools": mcp_more.tools,
    "mcp-idle": mcp_more.idle,
    "mcp-imports": mcp_more.imports,
    "workers": workers.workers,
    "amqp": amqp.amqp,
    "redis": redis.redis,
    "mqtt": mqtt.mqtt,
    "nats": nats.nats,
}
