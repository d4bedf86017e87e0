"""Middleware of a service and of a peer."""

from __future__ import annotations

from typing import Any

from dragoman import Service, connect
from dragoman.middleware import Call, Middleware, Next, caller_of


async def logged(call: Call, next: Next) -> Any:
    print(caller_of(call), call.method)
    return await next(call)


def tenant(name: str) -> Middleware:
    async def within(call: Call, next: Next) -> Any:
        call.arguments = {**call.arguments, "tenant": name}
        return call.decoded(await next(call))

    return within


api = Service("api", middleware=[logged, tenant("a")])


@api.use
async def used(call: Call, next: Next) -> Any:
    return await next(call)


def blocking(call: Call, next: Next) -> Any:
    return next(call)


async def alone(call: Call) -> Any:
    return call


async def of_text(call: str, next: Next) -> Any:
    return next


def nothing(call: Call, next: Next) -> int:
    return 1


async def forgotten(call: Call, next: Next) -> int:
    return next(call)  # wrong: not awaited


async def renamed(call: Call, next: Next) -> Any:
    return await next(call.method)  # wrong: it takes the call


async def misspelt(call: Call, next: Next) -> Any:
    return await next(call.with_params([]))  # wrong: no such method


Service("a", middleware=[alone])  # wrong: it gets the next too
Service("a", middleware=[of_text])  # wrong: it gets a Call
Service("a", middleware=logged)  # wrong: a list of them
api.use(nothing)  # wrong: nothing to await
connect("tcp://a.example:1", middleware=[tenant])  # wrong: it makes one, and is none
connect("tcp://a.example:1", middleware=[blocking, tenant("a")])
