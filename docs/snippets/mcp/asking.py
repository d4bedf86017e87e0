# [elicit]
from typing import Annotated, Literal

from msgspec import Meta, Struct

from dragoman.mcp import Context, Server, ToolError

app = Server("restaurant", version="1.0.0")
booked: list[str] = []


class Table(Struct):
    guests: Annotated[int, Meta(ge=1, le=12, description="How many are coming")]
    where: Literal["inside", "terrace"] = "inside"


@app.tool
async def book(day: str, ctx: Context) -> str:
    "Book a table."
    answer = await ctx.elicit(f"A table for {day}?", Table)
    if answer.content is None:  # answer.action is "decline" or "cancel"
        return "not booked"
    booked.append(day)  # ask before you act
    return f"{answer.content.guests} guests, {answer.content.where}"


# [/elicit]
# [sample]
@app.tool
async def greet(ctx: Context) -> str:
    "The client's own model writes a line."
    result = await ctx.sample("A line to greet our guests, please.", max_tokens=50)
    return result.text


@app.tool
async def folders(ctx: Context) -> list[str]:
    "What the client lets us see."
    return [root.uri for root in await ctx.roots()]


# [/sample]
# [url]
@app.tool
async def pay(ctx: Context) -> str:
    "Secrets never go through a form: send the person to a page of yours."
    answer = await ctx.elicit_url("Please pay the deposit", "https://restaurant.example/pay/7")
    return "thank you" if answer.accepted else "not paid"


# [/url]
# [several]
from dragoman.mcp import Elicit, Roots


class Name(Struct):
    name: str


@app.tool
async def order(ctx: Context) -> str:
    "Two questions in one round."
    who, roots = await ctx.ask(Elicit("Your name?", Name, key="name"), Roots(key="roots"))
    if who.content is None:
        raise ToolError("no address to bring it to")
    return f"for {who.content.name}, who shares {len(roots)} folder"


# [/several]
# [client]
import asyncio

from dragoman.mcp import Client, CreateMessageRequestParams, ElicitRequestParams


async def on_elicit(asked: ElicitRequestParams) -> dict | bool | None:
    if "name" in asked.requested_schema["properties"]:
        return {"name": "Ada"}  # accepted
    return {"guests": 4}  # `where` has a default


async def on_elicit_url(asked: ElicitRequestParams) -> bool:
    return True  # after showing asked.url to a person; False declines, None cancels


async def on_sample(asked: CreateMessageRequestParams) -> str:
    return "Welcome!"  # what the model said; None declines


async def main() -> None:
    answers = {"on_elicit": on_elicit, "on_elicit_url": on_elicit_url, "on_sample": on_sample, "roots": ["/home/ada"]}
    for revision in ("2025-11-25", "2026-07-28"):
        async with Client(app, revision=revision, **answers) as client:
            print(await client.call_tool("book", {"day": "Sunday"}, result=str))  # 4 guests, inside
            print(await client.call_tool("greet", result=str))  # Welcome!
            print(await client.call_tool("folders", result=list))  # ['file:///home/ada']
            print(await client.call_tool("pay", result=str))  # thank you
            print(await client.call_tool("order", result=str))  # for Ada, who shares 1 folder


asyncio.run(main())
# [/client]
assert booked == ["Sunday", "Sunday"]
