# [routes]
import asyncio
from typing import Any
from urllib.request import urlopen

from dragoman import Context, Service, serve
from dragoman.routes import RouteRequest, RouteResponse

shop = Service("shop")
prices = {"tea": 4}


@shop.method
def price(name: str) -> int:
    return prices[name]


@shop.route("/prices")
async def all_prices(request: RouteRequest) -> dict[str, int]:
    return prices


@shop.route("/orders", methods=["POST"])
def order(request: RouteRequest, ctx: Context) -> RouteResponse:  # a plain function: in a worker thread
    given = request.json(dict[str, int])  # 400 for a body that is not this
    return RouteResponse(body=given, status=201, headers={"Location": "/orders/1"})


@shop.route("/", public=True)  # without the guard; the endpoint is at /rpc here
async def front_page(request: RouteRequest) -> RouteResponse:
    return RouteResponse(body="<h1>Tea</h1>", media_type="text/html; charset=utf-8")


def read(url: str) -> Any:
    with urlopen(url) as found:
        return found.status, found.headers["Content-Type"], found.read()


async def main() -> None:
    async with serve(shop, urls="http://127.0.0.1:0/rpc") as serving:
        url = serving.urls[0].removesuffix("/rpc")
        print(await asyncio.to_thread(read, f"{url}/prices"))  # (200, 'application/json', b'{"tea":4}')
        print(await asyncio.to_thread(read, f"{url}/"))  # (200, 'text/html; charset=utf-8', b'<h1>Tea</h1>')


asyncio.run(main())
# [/routes]
