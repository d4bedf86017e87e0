"""dragoman in process with one middleware (argument): `none`, `nothing` (one that does nothing), or the name of one of
`dragoman.middleware`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from bench.servers.calculator import calculator
from bench.worker import SINGLE, offer
from dragoman.middleware import audit, map_errors, rate_limit, response_cache, size_limit, timing
from dragoman.rpc.middleware import Middleware


async def nothing(call: Any, next: Any) -> Any:
    return await next(call)


MADE: dict[str, Callable[[], Middleware]] = {
    "nothing": lambda: nothing,
    "timing": lambda: timing(lambda name, seconds: None),
    "audit": lambda: audit(lambda entry: None),
    "rate_limit": lambda: rate_limit(1e9),
    "response_cache": lambda: response_cache(["subtract"], ttl=3600),
    "size_limit": lambda: size_limit(1_000_000),
    "map_errors": lambda: map_errors({}),
}

if __name__ == "__main__":
    api = calculator(1)
    if sys.argv[1] != "none":
        api.use(MADE[sys.argv[1]]())
    offer({"single": lambda: api.answer(SINGLE)})
