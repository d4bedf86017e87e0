"""Middleware that is ready to use, around services and MCP servers."""

from __future__ import annotations

from typing import Any

from dragoman import RpcError, Service
from dragoman.mcp import Server
from dragoman.middleware import (
    AuditEntry,
    Call,
    Next,
    audit,
    map_errors,
    name_of,
    rate_limit,
    response_cache,
    retries,
    size_limit,
    timing,
)
from dragoman.testing import Clock


def written(entry: AuditEntry) -> None:
    print(entry.name, entry.seconds)


async def counted(call: Call, next: Next) -> Any:
    print(name_of(call))
    return await next(call)


app = Server("app", middleware=[audit(written), rate_limit(10, burst=20, clock=Clock()), counted])
api = Service("api", middleware=[timing(), size_limit(1000, names=["upload"]), response_cache(["look"], ttl=5)])
app.use(rate_limit(0.5, by=name_of))

rate_limit("10")  # wrong: a number
rate_limit(10, by="caller")  # wrong: a function of the call
audit(lambda: None)  # wrong: it gets the entry
response_cache(["look"])  # wrong: how long it is kept
response_cache(["look"], ttl="5")  # wrong: a number
size_limit("1 MiB")  # wrong: a number of bytes
timing(print, interval=3)  # wrong: no such option
retries(["look"], times="3")  # wrong: a number
map_errors({KeyError: ValueError})  # wrong: to an RpcError
Server("a", middleware=[rate_limit])  # wrong: it makes one, and is none
error: RpcError = RpcError("slow down", {"retry_after": 1}, code=1001)
