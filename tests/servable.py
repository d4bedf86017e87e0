"""What every servable of the tests has beside what its test is about."""

from __future__ import annotations

from collections.abc import Mapping

from dragoman.channel import CallLimit, Channel, Document, Exchange
from dragoman.jsonrpc.codec import FailedAnswer
from dragoman.jsonrpc.errors import Refusal
from dragoman.jsonrpc.limits import Limits
from dragoman.jsonrpc.messages import ErrorObject


class Idle:
    """A `Servable` that does nothing of itself."""

    name = "idle"
    subprotocol: str | None = None

    def __init__(self) -> None:
        self.limits = Limits()
        self.call_limit = CallLimit(self.limits)

    def exchange(self, x: Exchange) -> None:
        """Nothing is owed."""
        x.respond(None)

    def attach(self, channel: Channel) -> None: ...

    def routes(self) -> Mapping[str, Document]:
        return {}

    def restrict(self, limits: Limits) -> None:
        self.limits = limits

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def drain(self, timeout: float) -> None: ...


def refused(refusal: Refusal, text: bytes | None = b"{}") -> FailedAnswer:
    """An answer of this text that is a refusal."""
    return FailedAnswer(text, ErrorObject(-32000, refusal.reason), refusal)
