"""The options of a service, and its limits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from dragoman import Caller, Context, Identity, Limits, Service
from dragoman.jsonrpc import Leniency


class Shelf:
    books: int = 3


@asynccontextmanager
async def opened(service: Service) -> AsyncGenerator[Shelf, None]:
    yield Shelf()


async def generated(service: Service) -> AsyncIterator[Shelf]:
    yield Shelf()


small = Limits(message_size=1024, handler_timeout=2.5)
one = Service("one", lifespan=opened, limits=small, lenient=Leniency(null_params=True), debug=True)
two = Service("two", lifespan=generated, lenient=True, null_id="notification", servers=["https://rpc.example"])
one.debug = False


@one.method
def books(ctx: Context[Shelf]) -> int:
    return ctx.state.books


answer: bytes | None = one.answer(b"{}", caller=Caller(identity=Identity(subject="ada")))

Service()  # wrong: it has a name
Service("a", limits=5)  # wrong: not Limits
Service("a", limits=Limits(message_size="1 MiB"))  # wrong: a number of bytes
Service("a", null_id="ignore")  # wrong: none of the two
Service("a", tile="A")  # wrong: misspelt
Service("a", middleware=[print])  # wrong: nothing to await
Service("a", auth="secret")  # wrong: a verifier
one.answer("{}")  # wrong: bytes
one.name = "other"  # wrong: cannot be set
