# [observer]
import asyncio
from contextvars import ContextVar, copy_context

from calculator import api
from dragoman import connect, serve
from dragoman.observer import Additions, Observation, Rejection

parent: ContextVar[str] = ContextVar("parent", default="")


class AccessLog:
    """One line for each call that came in."""

    def came_in(self, seen: Observation):
        context = copy_context()
        context.run(parent.set, seen.caller.headers.get("traceparent", ""))
        return context  # the handler runs in it

    def outbound(self, seen: Observation) -> Additions:
        return Additions(headers={"traceparent": parent.get() or "00-1-1-01"})

    def started(self, seen: Observation) -> None:
        pass

    def rejected(self, seen: Rejection) -> None:
        print(seen.caller.scheme, seen.kind, seen.reason)

    def ended(self, seen: Observation) -> None:
        if seen.direction == "in" and seen.kind != "batch":
            print(seen.caller.scheme, seen.method, seen.outcome, seen.code, len(seen.message))


async def main() -> None:
    async with serve(api, urls="http://127.0.0.1:0", observers=[AccessLog()]) as serving:
        async with connect(serving.urls[0], observers=[AccessLog()]) as peer:
            await peer.call("subtract", [42, 23])


# [/observer]
asyncio.run(main())  # http subtract result None 61
