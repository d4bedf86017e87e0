# [program]
from pydantic import BaseModel, Field

from dragoman.mcp import Context, PromptMessage, Server, TextContent, ToolAnnotations, ToolError

stock = {"tea": 3, "rice": 0}
app = Server("shop", version="1.0", instructions="Look before you take.")


class Order(BaseModel):
    item: str
    amount: int = Field(1, ge=1, description="How many")


class Left(BaseModel):
    item: str
    left: int


@app.tool(annotations=ToolAnnotations(read_only_hint=True))
def count(item: str) -> Left:
    """Count what is left of an item."""
    return Left(item=item, left=stock[item])


@app.tool
async def take(order: Order, ctx: Context) -> Left:
    """Take an item out of the stock."""
    if stock[order.item] < order.amount:
        raise ToolError(f"only {stock[order.item]} left")
    for number in range(order.amount):
        stock[order.item] -= 1
        await ctx.progress(number + 1, order.amount)
    return Left(item=order.item, left=stock[order.item])


@app.resource("stock://{item}", mime_type="application/json")
def item(item: str) -> dict[str, int]:
    return {"left": stock[item]}


@app.prompt
def order(item: str) -> list[PromptMessage]:
    """Order what is missing."""
    return [
        PromptMessage("user", TextContent(f"Order more {item}.")),
        PromptMessage("assistant", TextContent("How many?")),
    ]


if __name__ == "__main__":
    app.run()
# [/program]
