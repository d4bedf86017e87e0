"""The context of a tool: questions, progress, log lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dragoman.mcp import Context, Elicit, Roots, Sample, Server, ToolError

app = Server("desk")


@dataclass
class Table:
    guests: int


@app.tool
async def book(day: str, ctx: Context) -> str:
    table = await ctx.elicit(f"A table for {day}?", Table)
    if table.content is None:
        raise ToolError("not booked")
    guests: int = table.content.guests
    wished = await ctx.elicit("Which?", Literal["window", "door"])
    line = await ctx.sample("A line, please.", max_tokens=20, temperature=0.5)
    first, folders = await ctx.ask(Elicit("Name?", Table), Roots())
    await ctx.progress(1, 2, "half")
    await ctx.info({"guests": guests, "folders": [one.uri for one in folders]})
    await ctx.completed("id")
    return line.text if first.accepted and wished.accepted else ""


@app.tool
def book_in_thread(day: str, ctx: Context) -> int:
    table = ctx.elicit(f"A table for {day}?", Table)
    ctx.warning("asked")
    ctx.completed("id")
    return 0 if table.content is None else table.content.guests


@app.tool
async def mistaken(ctx: Context) -> None:
    table = await ctx.elicit("Table?", Table)
    print(table.content.guests)  # wrong: it may be None
    name: str = await ctx.sample("Hello")  # wrong: a result, whose text it is
    await ctx.progress("half")  # wrong: a number
    await ctx.ask(Sample(messages="Hello", max_tokens="20"))  # wrong: a number
    await ctx.ask("Name?")  # wrong: a question
    await ctx.elicit_url("Pay")  # wrong: a URL is missing
    await ctx.sample(messages="Hello", model="fast")  # wrong: no such option
    number: int = ctx.revision  # wrong: a Revision
    await ctx.notify_resource_updated("note://a")  # wrong: nothing to await
    print(name, number)
