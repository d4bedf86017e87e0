"""A shop: arguments are pydantic's models and fields, of which a model is told every fault, and tools show images.

    dragoman serve mcp_shop.py
    dragoman tool mcp_shop.py find words=tea most=5
    dragoman tool mcp_shop.py order 'lines=[{"item": "assam"}]' 'payment={"kind": "card", "digits": "4242"}'

pydantic has to be there; with a `msgspec.Struct` in place of each model it need not.
"""

import asyncio
import struct
import zlib
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from dragoman.mcp import Client, Image, Server, TextContent, ToolAnnotations, ToolError

app = Server("shop", version="1.0.0", instructions="Call `find` first: the other tools want an item's id.")
READS = ToolAnnotations(read_only_hint=True)

ItemId = Annotated[str, Field(pattern="^[a-z]+$", description="An item's id, as `find` tells it")]


class Item(BaseModel):
    id: ItemId
    name: str
    price: float = Field(description="In euros")
    colour: tuple[int, int, int] = Field(description="Red, green, blue")


class Line(BaseModel):
    item: ItemId
    count: int = Field(1, ge=1, le=20)


class Card(BaseModel):
    kind: Literal["card"]
    digits: str = Field(pattern=r"^\d{4}$", description="The last four")


class Invoice(BaseModel):
    kind: Literal["invoice"]
    email: str = Field(pattern=".@.")


class Receipt(BaseModel):
    total: float
    paid: bool


STOCK = {
    item.id: item
    for item in (
        Item(id="sencha", name="Green tea", price=4.5, colour=(107, 142, 35)),
        Item(id="assam", name="Black tea", price=3.8, colour=(92, 46, 15)),
        Item(id="pot", name="Pot for tea", price=28, colour=(136, 153, 170)),
    )
}


def known(id: str) -> Item:
    if id not in STOCK:
        raise ToolError(f"there is no item {id!r}, only {', '.join(STOCK)}")  # the model reads this, and tries again
    return STOCK[id]


def once(lines: list[Line]) -> list[Line]:
    if len({line.item for line in lines}) < len(lines):
        raise ValueError("name every item once, with its count")
    return lines


@app.tool(annotations=READS, inline=True)
def find(
    words: Annotated[str, Field(description="A part of the name")] = "",
    most: Annotated[float | None, Field(gt=0, description="What it may cost, in euros")] = None,
) -> list[Item]:
    "Find items, the cheapest first."
    found = [item for item in STOCK.values() if words.lower() in item.name.lower()]
    return sorted((item for item in found if most is None or item.price <= most), key=lambda item: item.price)


@app.tool
def order(
    lines: Annotated[list[Line], Field(min_length=1), AfterValidator(once)],
    payment: Annotated[Card | Invoice, Field(discriminator="kind")],
) -> Receipt:
    "Order items. A card pays at once, an invoice later."
    total = sum(known(line.item).price * line.count for line in lines)
    return Receipt(total=round(total, 2), paid=payment.kind == "card")


@app.tool(annotations=READS)
def picture(item: ItemId) -> Image:
    "What an item looks like."
    return Image(png(known(item).colour))


@app.tool(annotations=READS)
def compare(items: Annotated[list[ItemId], Field(min_length=2, max_length=4)]) -> list[TextContent | Image]:
    "Items side by side, each with its price and its picture."
    blocks: list[TextContent | Image] = []
    for item in map(known, items):
        blocks += [TextContent(f"{item.name}, {item.price:.2f} euros"), Image(png(item.colour))]
    return blocks


def png(colour: tuple[int, int, int], side: int = 16) -> bytes:
    "A square of one colour; stands for a photograph."

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = (b"\0" + bytes(colour) * side) * side
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


async def main() -> None:
    async with Client(app) as client:
        print(
            [item.name for item in await client.call_tool("find", {"most": 5}, result=list[Item])]
        )  # ['Black tea', ...
        card = {"kind": "card", "digits": "4242"}
        lines = [{"item": "sencha", "count": 2}, {"item": "pot"}]
        print(
            await client.call_tool("order", {"lines": lines, "payment": card}, result=Receipt)
        )  # total=37.0 paid=True
        try:
            await client.call_tool("order", {"lines": [{"item": "Pot"}], "payment": {"kind": "card"}}, result=Receipt)
        except ToolError as faults:
            print(faults)
            # Invalid arguments for order:
            # - lines[0].item: String should match pattern '^[a-z]+$' (received "Pot")
            # - payment.digits: Missing field
        shown = await client.call_tool("compare", {"items": ["sencha", "assam"]})
        print([block.type for block in shown.content])  # ['text', 'image', 'text', 'image']


if __name__ == "__main__":
    asyncio.run(main())
