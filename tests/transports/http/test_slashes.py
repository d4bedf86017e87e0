"""An endpoint is served with and without a slash at the end of its path, and never by a redirect."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from dragoman import Service, http_app
from dragoman.channel import Options
from dragoman.mcp import Server
from dragoman.rpc.servable import ServableService
from tests.behind import behind
from tests.calculator import calculator

from .cases import ANSWER, get, post
from .ends import asgi, face
from .test_behind_proxies import exchanged

FACES = pytest.mark.parametrize("kind", ["native", "asgi"])


@FACES
@pytest.mark.parametrize(
    ("at", "path", "status"),
    [
        ("/math", "/math", 200),
        ("/math", "/math/", 200),
        ("/math", "/math//", 404),
        ("/math", "/Math/", 404),
        ("/math", "/", 404),
        ("", "/", 200),
    ],
)
async def test_both_spellings_are_served(kind: str, at: str, path: str, status: int) -> None:
    async with face(kind, {at: ServableService(behind(calculator()))}, Options()) as port:
        for got in await exchanged(port, *[post(path=path)] * (3 if status == 200 else 1)):
            assert got.status == status
            assert status != 200 or got.body == ANSWER


@FACES
async def test_what_has_the_other_path_keeps_it(kind: str) -> None:
    api = Service("math")

    @api.route("/math/")
    def page(request: object) -> str:
        return "the page"

    async with face(kind, {"/math": ServableService(behind(api))}, Options()) as port:
        (got,) = await exchanged(port, get("/math/"))
        assert (got.status, got.body) == (200, b"the page")


@FACES
async def test_mcp_too(kind: str) -> None:
    server = Server("weather", version="1")
    async with face(kind, {"/mcp": server.__servable__()}, Options()) as port:
        for path in ("/mcp", "/mcp/"):
            (got,) = await exchanged(port, get(path, more="Accept: text/event-stream\r\n"))
            assert got.status in (400, 405)


async def test_mounted_at_the_root_after_other_routes() -> None:
    """The recipe of docs/wires/http.md: the framework has nothing to redirect."""
    site = Starlette(routes=[Route("/page", lambda request: PlainTextResponse("page"))])
    site.mount("", http_app({"/rpc": calculator()}))
    async with asgi(site) as port:
        for path in ("/rpc", "/rpc/"):
            (got,) = await exchanged(port, post(path=path))
            assert (got.status, got.body) == (200, ANSWER)
        (got,) = await exchanged(port, get("/page"))
        assert got.body == b"page"
