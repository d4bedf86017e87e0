# mypy: ignore-errors
# [program]
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.prompts import Message
from pydantic import BaseModel, Field

stock = {"tea": 3, "rice": 0}
mcp = FastMCP("shop", version="1.0", instructions="Look before you take.")


class Order(BaseModel):
    item: str
    amount: int = Field(1, ge=1, description="How many")


class Left(BaseModel):
    item: str
    left: int


@mcp.tool(annotations={"readOnlyHint": True})
def count(item: str) -> Left:
    """Count what is left of an item."""
    return Left(item=item, left=stock[item])


@mcp.tool
async def take(order: Order, ctx: Context) -> Left:
    """Take an item out of the stock."""
    if stock[order.item] < order.amount:
        raise ToolError(f"only {stock[order.item]} left")
    for number in range(order.amount):
        stock[order.item] -= 1
        await ctx.report_progress(number + 1, order.amount)
    return Left(item=order.item, left=stock[order.item])


@mcp.resource("stock://{item}", mime_type="application/json")
def item(item: str) -> dict[str, int]:
    return {"left": stock[item]}


@mcp.prompt
def order(item: str) -> list[Message]:
    """Order what is missing."""
    return [Message(f"Order more {item}."), Message("How many?", role="assistant")]


if __name__ == "__main__":
    mcp.run()
# [/program]
