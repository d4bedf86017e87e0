# [kinds]
import time
from typing import Annotated, Literal

from msgspec import Meta, Struct

from dragoman.mcp import Context, Server

app = Server("shop", version="1.0.0")


class Offer(Struct):
    item: str
    price: Annotated[float, Meta(description="In euros")]
    stock: int = 0


@app.tool
async def find(text: str, sort: Literal["price", "stock"] = "price") -> list[Offer]:
    """Find offers.

    Args:
        text: Words that the name has.
        sort: What comes first.
    """
    return [Offer("green tea", 3.2, 12)]


@app.tool(inline=True)  # quick, never blocks: runs in place
def price(item: str) -> float:
    "The price of an item in euros."
    return 3.2


@app.tool("report", timeout=120, concurrency=1)  # plain: in a worker thread, may block
def build_report(month: Annotated[int, Meta(ge=1, le=12)], ctx: Context) -> str:
    "Sales of a month. Takes a while."
    time.sleep(0.01)
    return f"Nothing was sold in month {month}."


# [/kinds]
# [content]
from dragoman.mcp import CallToolResult, EmbeddedResource, Image, ResourceContents, ResourceLink, TextContent

PIXEL = bytes.fromhex("89504e470d0a1a0a")


@app.tool
def poster() -> Image:
    "An image: bytes or a path, with a media type."
    return Image(PIXEL, "image/png")


@app.tool
def catalogue() -> list[TextContent | Image | ResourceLink | EmbeddedResource]:
    "Several blocks."
    return [
        TextContent("Our tea, and where to read more:"),
        Image(PIXEL, "image/png"),
        ResourceLink(uri="shop://tea", name="tea"),
        EmbeddedResource(resource=ResourceContents(uri="shop://note", text="Closed on Sunday", mime_type="text/plain")),
    ]


@app.tool
def receipt(number: int) -> CallToolResult:
    "The whole result, as you say it."
    return CallToolResult(content=[TextContent(f"Receipt {number}")], meta={"shop.example/number": number})


# [/content]
# [described]
from dragoman.mcp import Icon, ToolAnnotations


@app.tool(
    "cancel_order",
    title="Cancel an order",
    description="Cancel an order that was not sent yet.",
    annotations=ToolAnnotations(destructive_hint=True, idempotent_hint=True),
    icons=[Icon("https://shop.example/cancel.png", mime_type="image/png", sizes=["48x48"])],
    meta={"shop.example/team": "orders"},
)
async def cancel(number: int) -> bool:
    return True


# [/described]
# [raw]
async def search(arguments: dict) -> dict:
    return {"found": arguments["query"].upper()}


app.add_tool(
    search,
    name="search",
    description="A tool whose schema you have already.",
    input_schema={"type": "object", "properties": {"query": {"type": "string", "minLength": 2}}, "required": ["query"]},
)
# [/raw]
# [header]
from dragoman.mcp import Header


@app.tool
async def stock(item: str, region: Annotated[str, Header("Region")]) -> int:
    "How many there are; proxies can route by the header Mcp-Param-Region."
    return 12


# [/header]
import asyncio

from dragoman.mcp import Client


async def main() -> None:
    async with Client(app) as client:
        print([tool.name for tool in await client.list_tools()])
        offers = await client.call_tool("find", {"text": "tea"}, result=list[Offer])
        print(offers)  # [Offer(item='green tea', price=3.2, stock=12)]
        assert await client.call_tool("price", {"item": "tea"}, result=float) == 3.2
        assert "month 3" in await client.call_tool("report", {"month": 3}, result=str)
        assert (await client.call_tool("report", {"month": 13})).is_error
        assert [block.type for block in (await client.call_tool("catalogue")).content] == [
            "text",
            "image",
            "resource_link",
            "resource",
        ]
        assert (await client.call_tool("poster")).content[0].mime_type == "image/png"
        assert (await client.call_tool("receipt", {"number": 7})).content == [TextContent("Receipt 7")]
        assert await client.call_tool("cancel_order", {"number": 7}, result=bool) is True
        assert (await client.call_tool("search", {"query": "tea"})).is_error is not True
        assert (await client.call_tool("search", {"query": "t"})).is_error is True
        assert await client.call_tool("stock", {"item": "tea", "region": "eu"}, result=int) == 12


asyncio.run(main())
