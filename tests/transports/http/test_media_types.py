"""A body that is not declared to be JSON: 415, unless the server says by option that it reads any."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from dragoman import Service, http_app, serve
from dragoman.jsonrpc.leniency import Leniency
from dragoman.mcp import Server

from .cases import Answered, answer, post
from .ends import asgi, wire

KINDS = [None, "text/plain", "text/plain;", "application/x-www-form-urlencoded", "application/octet-stream"]
CALL = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()


@contextlib.asynccontextmanager
async def serving(face: str, what: Service | Server) -> AsyncIterator[int]:
    """The port at which it is served."""
    if face == "asgi":
        async with asgi(http_app(what)) as port:
            yield port
    else:
        async with serve(what, urls=["http://127.0.0.1:0/mcp"]) as server:
            yield int(server.urls[0].split(":")[2].partition("/")[0])


async def posted(face: str, what: Service | Server, kind: str | None) -> Answered:
    async with serving(face, what) as port, wire(port) as (reader, writer):
        writer.write(post(CALL, kind=kind, path="/mcp" if face == "native" else "/"))
        return await answer(reader)


@pytest.mark.parametrize("face", ["native", "asgi"])
@pytest.mark.parametrize("make", [Service, Server])
@pytest.mark.parametrize("kind", KINDS)
async def test_any_media_type_is_an_option(face: str, make: type[Service | Server], kind: str | None) -> None:
    refused = await posted(face, make("echo", lenient=Leniency(null_error=True)), kind)
    assert (refused.status, b"any_media_type" in refused.body) == (415, True)
    read = await posted(face, make("echo", lenient=Leniency(any_media_type=True)), kind)
    assert read.status != 415
    assert json.loads(read.body)["id"] == 1
