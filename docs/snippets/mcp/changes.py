# [changes]
from dragoman.mcp import Context, Server

app = Server("garden", version="1.0.0")
plants = {"rose": "dry"}


@app.resource("garden://plants/{name}", mime_type="text/plain")
def plant(name: str) -> str:
    return plants.get(name, "not here")


@app.tool
async def water(name: str, ctx: Context) -> str:
    plants[name] = "wet"
    ctx.notify_resource_updated(f"garden://plants/{name}")  # to those who listen
    return "watered"


@app.tool
def prune() -> str:
    return "pruned"


def winter() -> None:
    app.disable("tool", "prune")  # not listed, not callable; every listener is told


# [/changes]
import asyncio

from dragoman.mcp import Client


async def main() -> None:
    # [listening]
    async with Client(app) as client:
        print([tool.name for tool in await client.list_tools()])  # ['water', 'prune']
        async with client.subscribe(uris=["garden://plants/rose"], tools=True) as events:
            await client.call_tool("water", {"name": "rose"})
            winter()
            seen = [await anext(events), await anext(events)]
        print(len(seen), [tool.name for tool in await client.list_tools()])  # 2 ['water']
    # [/listening]


asyncio.run(main())
# [lists]
many = Server("many", version="1.0.0", page_size=50, ttl=60, cache_scope="public")


@many.resource("many://fresh", ttl=0)
def fresh() -> str:
    return "read me again each time"


for number in range(120):
    many.add_tool(lambda number=number: number, name=f"tool_{number:03}", description="One of many.")
# [/lists]


async def pages() -> None:
    async with Client(many) as client:
        assert len(await client.list_tools()) == 120
        assert len(await client.list_tools()) == 120  # from the cache


asyncio.run(pages())
