"""The decorators of an MCP server, and their options."""

from __future__ import annotations

from dragoman.mcp import Annotations, Completion, File, Icon, Image, PromptMessage, Server, TextContent, ToolAnnotations

app = Server("shop", version="1.0.0")


@app.tool
async def price(item: str) -> float:
    "The price of an item."
    return len(item) * 1.5


@app.tool("order", title="Order", annotations=ToolAnnotations(destructive_hint=True), timeout=None, version="2")
def order(item: str, number: int = 1) -> str:
    return item * number


@app.tool(
    tags={"pictures"}, visible=lambda caller: caller.identity is not None, icons=[Icon("https://a.example/i.png")]
)
def picture() -> Image | File:
    return Image(data=b"", mime_type="image/png")


@app.resource("note://{name}", mime_type="text/plain", annotations=Annotations(priority=0.5), ttl=60)
def note(name: str) -> str:
    return name


@app.prompt(description="Greet somebody")
def greet(name: str) -> list[PromptMessage]:
    return [PromptMessage("user", TextContent(f"Hello {name}"))]


@app.completion("greet", "name")
def names(typed: str) -> Completion | list[str]:
    return [typed]


entry = app.add_tool(price, name="price2", meta={"com.example/rank": 1})
app.remove_tool("price2")
app.disable("tool", "order", version="2")


@app.tool(title=3)  # wrong: text
def one() -> None: ...


@app.tool(annotations={"readOnlyHint": True})  # wrong: ToolAnnotations
def two() -> None: ...


@app.tool(timeout="3")  # wrong: seconds are a number
def three() -> None: ...


@app.tool(readonly=True)  # wrong: no such option
def four() -> None: ...


@app.resource  # wrong: a resource has a URI
def five() -> str:
    return ""


@app.prompt(mime_type="text/plain")  # wrong: of resources alone
def six() -> str:
    return ""


app.enable("tools")  # wrong: one of the three kinds
app.add_tool("price")  # wrong: a function
cost: str = order("tea", "two")  # wrong: the function is not changed
