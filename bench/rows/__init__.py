"""The rows, a file a family. A family takes the referee and gives its rows; `FAMILIES` is their order in the table."""

from __future__ import annotations

from collections.abc import Callable

from bench.figures import Row
from bench.referee import Referee
from bench.rows import flat, http, idle, imports, in_process, memory, stdio, stream, websocket

FAMILIES: dict[str, Callable[[Referee], list[Row]]] = {
    "dispatch": in_process.dispatch,
    "batch": in_process.batch,
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
}
