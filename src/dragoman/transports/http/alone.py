"""What is served over HTTP alone and has no methods: the metrics, an authorization server."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping

from ...channel import CallLimit, Channel, Closed, Document, Exchange
from ...jsonrpc.codec import failed_answer
from ...jsonrpc.errors import PLAIN, Refusal
from ...jsonrpc.limits import SERVER, Limits
from ...jsonrpc.messages import NULL


class HttpAlone:
    """A `Servable` that refuses calls and channels; its subclasses answer requests. `name`: its name in logs; `words`:
    the error text for a caller of methods."""

    subprotocol: str | None = None
    """None: there is no WebSocket."""

    def __init__(self, name: str, words: str) -> None:
        self.name: str = name
        """Its name in logs."""
        self.limits: Limits = SERVER
        """The bounds under which it is served."""
        self.call_limit: CallLimit = CallLimit(SERVER)
        """The requests in flight."""
        self._words = words
        self._tasks: set[asyncio.Task[None]] = set()

    def restrict(self, limits: Limits) -> None:
        """Serve under other limits from now on."""
        self.limits = limits
        self.call_limit.restrict(limits)

    async def start(self) -> None:
        """No effect: there is nothing to start."""

    async def stop(self) -> None:
        """No effect."""

    async def drain(self, timeout: float) -> None:
        """Wait for the requests that are being answered."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)

    def routes(self) -> Mapping[str, Document]:
        """Return none: what a subclass serves are endpoints of its own."""
        return {}

    def exchange(self, x: Exchange) -> None:
        """Refuse: there are no methods here."""
        refusal = Refusal("unfit", self._words)
        x.respond(failed_answer(NULL, PLAIN.error(refusal), refusal=refusal))

    def attach(self, channel: Channel) -> None:
        """Refuse: there are no methods here."""
        channel.abort(Closed(self._words))

    def _begin(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Answer a request in a task, for which `drain` waits."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
