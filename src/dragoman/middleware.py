"""Middleware that is ready to use, around the calls of services and MCP servers, and around a peer's own.

    from dragoman.middleware import audit, rate_limit

    api = Service("shop", middleware=[audit(print), rate_limit(10, burst=20)])

Each is a function of its options that gives a middleware (`async def middleware(call, next)`). The first is the
outermost. None of them waits for anything but the call itself, except `retries`, so they work without a loop too.

A call is named by its method; a call of MCP by the tool, the prompt or the URI that it is for, otherwise by the
protocol's method.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, field

from .addresses import address_of
from .buckets import Buckets, SharedBuckets
from .channel import Broken, Caller
from .doors import public_dir
from .jsonrpc.errors import INTERNAL_ERROR, CallRefused, LocalError, Refusal, RpcError, too_large
from .jsonrpc.errors import PLAIN as PLAIN_JSON_RPC
from .jsonrpc.options import CALLABLE, FLAG, TIME, check, whole
from .routes import RouteRequest
from .rpc.middleware import Call, Middleware, Next

__all__ = [
    "AuditEntry",
    "Call",
    "Middleware",
    "Next",
    "account_of",
    "audit",
    "caller_of",
    "map_errors",
    "name_of",
    "rate_limit",
    "response_cache",
    "retries",
    "size_limit",
    "timing",
]
__dir__: Callable[[], list[str]] = public_dir(__name__)

log: logging.Logger = logging.getLogger("dragoman.calls")

BUSY: Final = frozenset({PLAIN_JSON_RPC.codes["busy"], PLAIN_JSON_RPC.codes["draining"]})


class AuditEntry(Struct, frozen=True):
    """What `audit` writes of a call. It has no arguments and no result."""

    name: str
    """The tool, the prompt or the URI for MCP; else the method."""
    method: str
    """As it was called: "tools/call"."""
    caller: str
    """The identity's principal, otherwise the address; "" where neither is known."""
    outcome: str
    """"ok", or the error's code as text; "failed" for an exception that is not an RpcError, "cancelled" for a call
    that was cancelled."""
    seconds: float
    """From its start to its outcome."""
    at: float
    """Unix time at which it began."""


def name_of(call: Call) -> str:
    """The name of a call: its method; for MCP the tool, the prompt or the URI that it is for."""
    params = getattr(call.params, "params", None)
    found = getattr(params, "name", None) or getattr(params, "uri", None)
    return found if isinstance(found, str) else call.method


def caller_of(call: Call) -> str:
    """The caller, as text: the identity's principal, otherwise the host of the address; "" where neither is known."""
    caller = _caller(call)
    return caller.principal or caller.remote.rpartition(":")[0] or caller.remote


def account_of(call: Call) -> str:
    """The account by which calls are counted and limited, as text: that of the identity, the same with any client that
    acts for it; otherwise the host of the address, of IPv6 its /64, since one caller has all of it."""
    caller = _caller(call)
    if caller.identity is not None:
        return caller.identity.account
    return address_of(caller.remote) or caller_of(call)


def _caller(call: Call) -> Caller:
    """Return the caller of a call; for an outgoing call an empty one."""
    caller = getattr(call.context, "caller", None)
    return caller if isinstance(caller, Caller) else Caller()


def _named(where: str, names: Collection[str], purpose: str) -> frozenset[str]:
    """Return the names that a user gave. Raises LocalError for none, and for a single text, whose letters would be
    taken for names. `purpose`: what follows "the calls" in its text."""
    if isinstance(names, str) or not names:
        raise LocalError(f"{where}: names are those of the calls {purpose}, as in ['lookup'], and not {names!r}")
    return frozenset(names)


def timing(
    took: Callable[[str, float], object] | None = None, *, clock: Callable[[], float] = time.perf_counter
) -> Middleware:
    """Call `took(name, seconds)` after each call, also of one that fails; by default a line of the log "dragoman.calls"
    at level info."""
    check("timing", {"took": CALLABLE}, {"took": took or _log_time})
    report = took or _log_time

    async def timed(call: Call, next: Next) -> Any:
        started = clock()
        try:
            return await next(call)
        finally:
            report(name_of(call), clock() - started)

    return timed


def _log_time(name: str, seconds: float) -> None:
    log.info("%s took %.3f ms", name, seconds * 1000)


def audit(write: Callable[[AuditEntry], object], *, clock: Callable[[], float] = time.time) -> Middleware:
    """Call `write(entry)` after each call: who called what, when, for how long, and how it ended."""
    check("audit", {"write": CALLABLE}, {"write": write})

    async def audited(call: Call, next: Next) -> Any:
        at, started, outcome = clock(), time.perf_counter(), "ok"
        try:
            return await next(call)
        except RpcError as error:
            outcome = str(error.code)
            raise
        except Exception:
            outcome = "failed"
            raise
        except BaseException:
            outcome = "cancelled"
            raise
        finally:
            write(AuditEntry(name_of(call), call.method, caller_of(call), outcome, time.perf_counter() - started, at))

    return audited


def rate_limit(
    rate: float,
    *,
    burst: int | None = None,
    by: Callable[[Call], str] = account_of,
    callers: int = 10_000,
    shared: bool = False,
    clock: Callable[[], float] | None = None,
) -> Middleware:
    """Let each caller make `rate` calls a second, and `burst` at once (default: those of one second).

    Each caller has a token bucket. `by(call)`: the caller, as text. At most `callers` buckets are kept; beyond, the one
    that was used least recently is dropped, and is full again for the caller's next call. A call above the rate is
    refused (-32000, on an MCP server -32603; 429 over HTTP), with the seconds after which there is room as
    `retry_after` in its data. Each process counts alone, unless `shared=True`: then the buckets are in what keeps
    `ctx.store` (`serve(store="bus")`, or a file), for all workers and replicas, and only while that is away does each
    process count alone. `clock`: returns seconds.
    """
    size = max(1, int(rate)) if burst is None else burst
    rules = {"rate": TIME, "burst": whole(1), "by": CALLABLE, "callers": whole(1), "shared": FLAG}
    check("rate_limit", rules, {"rate": rate, "burst": size, "by": by, "callers": callers, "shared": shared})
    now = clock or (time.time if shared else time.monotonic)
    here = Buckets(rate, size, callers)
    there = SharedBuckets(here, getattr(by, "__qualname__", type(by).__qualname__)) if shared else None

    async def limited(call: Call, next: Next) -> Any:
        after = here.take(by(call), now()) if there is None else await there.take(call.context, by(call), now())
        if after > 0:
            data = {"limit": "rate", "allowed": rate, "retry_after": round(after, 3)}
            raise CallRefused(Refusal("rate_limited", f"Busy: {rate:g} calls a second are allowed", data))
        return await next(call)

    return limited


def response_cache(
    names: Collection[str],
    *,
    ttl: float,
    entries: int = 1_000,
    shared: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> Middleware:
    """Keep the results of the calls of these `names` for `ttl` seconds: a call with equal params gets the one that is
    kept, without running. At most `entries` are kept; beyond, the one that was used least recently is dropped.

    Each caller has results of its own, and a caller without an identity none, because many may share an address;
    `shared=True`: they are the same for all callers, with any client. When params are compared, members of
    MCP's `_meta` that the protocol defines (the client, progress, traces) are ignored; all others count. Neither errors
    nor questions to the user are kept. Callers must not change a result, which others get too.
    """
    check("response_cache", {"ttl": TIME, "entries": whole(1)}, {"ttl": ttl, "entries": entries})
    wanted = _named("response_cache", names, "to keep")
    kept: OrderedDict[tuple[str, str, bytes], tuple[float, Any]] = OrderedDict()

    async def cached(call: Call, next: Next) -> Any:
        name = name_of(call)
        owner = "" if shared else _caller(call).principal
        if name not in wanted or call.id is UNSET or owner is None:
            return await next(call)
        key = (owner, name, _params(call.params))
        found = kept.pop(key, None)
        if found is not None and found[0] > clock():
            kept[key] = found
            return found[1]
        value = await next(call)
        if _final(value):
            kept[key] = (clock() + ttl, value)
            if len(kept) > entries:
                kept.popitem(last=False)
        return value

    return cached


class _Outcome(Struct, rename="camel"):
    """The members that distinguish a final result of MCP from an error and from a question to the user."""

    result_type: Any = "complete"
    is_error: Any = False


def _final(value: Any) -> bool:
    """Return whether a result may be returned to a later call."""
    if not isinstance(value, Raw):
        return True
    try:
        outcome = msgspec.json.decode(value, type=_Outcome)
    except msgspec.ValidationError:  # no object: the result of a method
        return True
    return outcome.result_type == "complete" and outcome.is_error is False


class _Meta(Struct):
    """The `_meta` of a request of MCP."""

    meta: dict[str, Raw] = field(default_factory=dict, name="_meta")


_ABOUT_THE_CALL: Final = frozenset({"progressToken", "fastmcp", "traceparent", "tracestate", "baggage"})
"""Members of `_meta`, besides those that the protocol names, that say how and by whom a call is made: they do not
affect its result."""


def _affects_result(member: str) -> bool:
    return member not in _ABOUT_THE_CALL and not member.startswith("io.modelcontextprotocol/")


def _params(params: Any) -> bytes:
    """Return a key that is the same for equal calls. For MCP it contains, besides the params, the revision, the version
    of what answers, and the members of `_meta` that a function may read."""
    if params is UNSET:
        return b""
    if isinstance(params, RouteRequest):
        return msgspec.json.encode([params.query, params.body])  # method and path are in the name of the call
    inner = getattr(params, "params", None)
    if inner is None:
        return bytes(params) if isinstance(params, Raw) else msgspec.json.encode(params)
    meta = {} if params.raw is UNSET else msgspec.json.decode(params.raw, type=_Meta).meta
    shown = sorted((member, value) for member, value in meta.items() if _affects_result(member))
    if hasattr(inner, "meta"):
        inner = msgspec.structs.replace(inner, meta=UNSET)
    return msgspec.json.encode([params.method, params.revision.date, params.version, shown, inner])


def _size(params: Any) -> int:
    """The bytes of a call's params as JSON; of a request to a route those of its body."""
    if isinstance(params, RouteRequest):
        return len(params.body)
    raw = getattr(params, "raw", params)
    return 0 if raw is UNSET else len(memoryview(raw) if isinstance(raw, Raw) else msgspec.json.encode(raw))


def size_limit(params: int, *, names: Collection[str] | None = None) -> Middleware:
    """Refuse calls (of these `names`; default: all) whose params are longer than `params` bytes of JSON, as too large
    (-32003, on an MCP server -32600; 413 over HTTP). The service's limit `message_size` must allow the largest call of
    all; this is for bounds of single methods below it."""
    check("size_limit", {"params": whole(1)}, {"params": params})
    wanted = None if names is None else _named("size_limit", names, "to look at")

    async def limited(call: Call, next: Next) -> Any:
        if wanted is None or name_of(call) in wanted:
            received = _size(call.params)
            if received > params:
                raise CallRefused(too_large("params", params, received))
        return await next(call)

    return limited


def map_errors(mapping: Mapping[type[Exception], type[RpcError] | Callable[[Any], RpcError]]) -> Middleware:
    """Answer with an `RpcError` of yours where a function raises something else: `{KeyError: NotFound}`. The value is a
    subclass of RpcError, made without arguments, or a function that returns the error for the exception. The entry of
    the nearest class counts. Other exceptions are answered with -32603, as without it.

    For methods; what a tool of MCP raises is a result for the model already.
    """
    for kind in mapping:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise LocalError(f"map_errors: {kind!r} is not a class of exceptions")

    async def mapped(call: Call, next: Next) -> Any:
        try:
            return await next(call)
        except RpcError:
            raise
        except Exception as error:
            for kind in type(error).__mro__:
                made = mapping.get(kind)
                if made is not None:
                    raise (made() if isinstance(made, type) else made(error)) from error
            raise

    return mapped


def retries(
    names: Collection[str],
    *,
    times: int = 3,
    pause: float = 0.1,
    busy: bool = True,
) -> Middleware:
    """For a peer's own calls, `connect(url, middleware=[retries(["lookup"])])`: call again where the channel broke, and
    (`busy`) where the far end was busy or draining, up to `times` more, after `pause` seconds that double each time.
    Only calls of these `names`, which must be harmless to repeat. The last error is raised."""
    check("retries", {"times": whole(1), "pause": TIME}, {"times": times, "pause": pause})
    wanted = _named("retries", names, "that may be repeated")

    async def again(call: Call, next: Next) -> Any:
        left = times if call.method in wanted else 0
        wait = pause
        while True:
            try:
                return await next(call)
            except Broken:
                if not left:
                    raise
            except RpcError as error:
                if not (left and busy and _passing(error)):
                    raise
                wait = max(wait, _retry_after(error))
            left -= 1
            await asyncio.sleep(wait)
            wait *= 2

    return again


def _passing(error: RpcError) -> bool:
    """Whether a far end says that it may have room later: -32000, -32001, and MCP's -32603 that names a time."""
    return error.code in BUSY or (error.code == INTERNAL_ERROR and _retry_after(error) > 0)


def _retry_after(error: RpcError) -> float:
    """The seconds that a busy far end asks for; at most a minute."""
    data = error.data
    after = data.get("retry_after") if isinstance(data, dict) else None
    return min(60.0, float(after)) if isinstance(after, int | float) and after > 0 else 0.0
