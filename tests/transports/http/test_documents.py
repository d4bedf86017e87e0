"""`/openrpc.json` is a call like any other: with the caller's headers, through the middleware, on both faces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman import RpcError, Service
from dragoman.channel import Options
from dragoman.rpc.servable import ServableService
from tests.behind import behind

from .cases import answer, get, post
from .ends import face, wire


def guarded() -> Service:
    api = Service("guarded", version="1.2.3")

    @api.method(inline=True)
    def secret(a: int) -> int:
        return a

    async def bearer(call: Any, next: Any) -> Any:
        if call.context.headers.get("authorization") == "Bearer broken":
            raise ValueError("swordfish")
        if call.context.headers.get("authorization") != "Bearer swordfish":
            raise RpcError("Forbidden", code=-32001)
        return await next(call)

    api.use(bearer)
    return api


ASK = b'{"jsonrpc":"2.0","method":"rpc.discover","id":1}'


@pytest.mark.parametrize("kind", ["native", "asgi"])
async def test_a_document_is_a_call_like_any_other(kind: str) -> None:
    quiet = ServableService(behind(Service("quiet", discover=False)))
    async with (
        face(kind, {"": ServableService(behind(guarded())), "/quiet": quiet}, Options()) as port,
        wire(port) as (reader, writer),
    ):

        async def got(request: bytes, to: str = "POST") -> tuple[int, Any]:
            writer.write(request)
            found = await answer(reader, to=to)
            return found.status, json.loads(found.body) if found.body else None

        status, denied = await got(get("/openrpc.json"))
        assert (status, denied["error"]["code"]) == (403, -32001)
        assert (await got(post(ASK)))[1]["error"]["code"] == -32001
        status, failed = await got(get("/openrpc.json", more="Authorization: Bearer broken\r\n"))
        assert (status, failed["error"]["code"]) == (500, -32603)
        assert "swordfish" not in str(failed)
        bearer = "Authorization: Bearer swordfish\r\n"
        status, document = await got(get("/openrpc.json", more=bearer))
        assert (status, document["info"]["version"]) == (200, "1.2.3")
        assert document["methods"][0]["name"] == "secret"
        assert await got(get("/openrpc.json", method="HEAD", more=bearer), "HEAD") == (200, None)
        assert (await got(get("/openrpc.json", method="DELETE")))[0] == 405
        # what does not describe itself does not do so over HTTP either
        assert (await got(get("/quiet/openrpc.json")))[0] == 404
        quiet.call_limit.draining = True
        assert (await got(get("/quiet/openrpc.json")))[0] == 503
