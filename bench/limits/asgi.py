"""The limit of an ASGI app: the same msgspec work in a raw app, on uvicorn with httptools and uvloop."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

import uvicorn

from bench.limits.rpc import answer

Event = MutableMapping[str, Any]


Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]


def answering(answer: Callable[[bytes], bytes]) -> Callable[[Event, Receive, Send], Awaitable[None]]:
    """A raw app: read the body, answer it."""

    async def app(scope: Event, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            event = await receive()
            body += event.get("body", b"")
            more = event.get("more_body", False)
        out = answer(body)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(out))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": out})

    return app


def run(application: Any, port: int) -> None:
    """uvicorn as every contestant of the row runs it."""
    uvicorn.run(
        application,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_keep_alive=120,
    )


if __name__ == "__main__":
    run(answering(answer), int(sys.argv[1]))
