# [declares]
from msgspec import Struct

from dragoman.mcp import NEWEST, Extension, Row


class RateParams(Struct):
    currency: str


class RateResult(Struct):
    rate: float


rates = Extension(
    name="com.example/rates",
    methods=(Row("com.example/rate", RateParams, RateResult, since=NEWEST),),
)
# [/declares]
# [server]
from dragoman.mcp import Context, Server

app = Server("bank", version="1.0.0", extensions=[rates])


@app.method("com.example/rate")
async def rate(params: RateParams, ctx: Context) -> RateResult:
    return RateResult(7.1 if params.currency == "CNY" else 1.0)


# [/server]
# [client]
import asyncio

from dragoman.mcp import Client


async def main() -> None:
    async with Client(app, extensions=[rates]) as client:
        print((await client.request("com.example/rate", RateParams("CNY"))).rate)  # 7.1


asyncio.run(main())
# [/client]
