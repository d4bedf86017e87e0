"""What FastMCP's documentation shows, in our words, as one server, `app`, beside two that want tokens, `guarded` and
`remote`; `there` has FastMCP's own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, Field

from dragoman import Depends
from dragoman.auth import Bearer, Static
from dragoman.channel import Identity
from dragoman.mcp import (
    CallToolResult,
    Context,
    Icon,
    Image,
    PromptMessage,
    Server,
    TextContent,
    ToolAnnotations,
    ToolError,
)
from dragoman.routes import RouteRequest

Level: TypeAlias = Literal["low", "high"]
PNG = bytes.fromhex("89504e470d0a1a0a")


async def life(server: Server) -> AsyncIterator[dict[str, str]]:
    yield {"opened": "yes"}


app = Server(
    "moving",
    version="1.2.3",
    instructions="Ask.",
    website_url="https://moving.example",
    icons=[Icon("https://moving.example/icon.png")],
    lifespan=life,
    ttl=60,
    page_size=50,
)


@app.use
async def naming(call: Any, next: Callable[[Any], Any]) -> Any:
    if call.method == "tools/call" and call.params.params.name == "forbidden":
        return CallToolResult(content=[TextContent("not today")], is_error=True)
    return await next(call)


class Person(BaseModel):
    name: str
    age: int = Field(ge=0)


@dataclass
class Point:
    x: int
    y: int


# -- tools: arguments


@app.tool
def search(
    query: str,
    limit: Annotated[int, Field(ge=1, le=100, description="How many")] = 10,
    sort: Literal["new", "old"] = "new",
    tags: list[str] | None = None,
) -> str:
    return f"{query} {limit!r} {sort} {tags}"


@app.tool
def documented(width: int, height: int = 2) -> str:
    """Draw a box.

    Args:
        width: In pixels.
        height: In lines.
    """
    return f"{width} by {height}"


@app.tool
def greet(person: Person) -> str:
    return f"{person.name} is {person.age}"


@app.tool(
    "named",
    title="A title",
    description="A description",
    annotations=ToolAnnotations(read_only_hint=True),
    icons=[Icon("https://moving.example/tool.png")],
    meta={"team": "a"},
)
def function_name() -> str:
    return "named"


@app.tool
def in_thread() -> bool:
    return threading.current_thread() is not threading.main_thread()


class Machine:
    @staticmethod
    def start(speed: int) -> str:
        return f"started at {speed}"

    def stop(self, hard: bool = False) -> str:
        return f"stopped {hard}"


app.tool(Machine().stop)
app.tool(Machine.start)

# -- tools: results


@app.tool
def a_text() -> str:
    return "text"


@app.tool
def a_number() -> int:
    return 5


@app.tool
def a_list() -> list[int]:
    return [1, 2]


@app.tool
def a_dict() -> dict[str, int]:
    return {"a": 1}


@app.tool
def a_model() -> Person:
    return Person(name="Ada", age=36)


@app.tool
def a_dataclass() -> Point:
    return Point(1, 2)


@app.tool
def unannotated():  # type: ignore[no-untyped-def]
    return {"a": 1}


@app.tool
def nothing() -> None:
    return None


@app.tool
def some_bytes() -> bytes:
    return PNG


@app.tool
def an_image() -> Image:
    return Image(PNG, "image/png")


@app.tool
def mixed() -> list[Any]:
    return ["text", Image(PNG, "image/png")]


@app.tool
def whole() -> CallToolResult:
    return CallToolResult(content=[TextContent("short")], structured_content={"a": 1}, meta={"took": 1})


@app.tool(output_schema={"type": "object", "properties": {"a": {"type": "integer"}}})
def own_schema() -> dict[str, int]:
    return {"a": 1}


# -- tools: failures


@app.tool
def fails() -> str:
    raise ValueError("a secret of ours")


@app.tool
def tells() -> str:
    raise ToolError("try again")


@app.tool
def forbidden() -> str:
    return "reached"


@app.tool(timeout=0.05)
async def late() -> str:
    await asyncio.sleep(5)
    return "in time"


@app.tool(tags={"admin"})
def erase() -> str:
    return "erased"


app.disable(tag="admin")


# -- dependencies, context, lifespan


def user() -> str:
    return "ada"


made: list[str] = []


def counted() -> int:
    made.append("")
    return len(made)


def one(n: Annotated[int, Depends(counted)]) -> int:
    return n


def two(n: Annotated[int, Depends(counted)]) -> int:
    return n


async def committing() -> AsyncIterator[str]:
    yield "db"
    raise RuntimeError("the commit failed")


@app.tool
def depends(text: str, by: Annotated[str, Depends(user)]) -> str:
    return f"{text} by {by}"


@app.tool
def cached(a: Annotated[int, Depends(one)], b: Annotated[int, Depends(two)]) -> bool:
    return a == b


@app.tool
async def commits(db: Annotated[str, Depends(committing)]) -> str:
    return "committed"


@app.tool
async def opened(ctx: Context[dict[str, str]]) -> str:
    return ctx.state["opened"]


@app.tool
async def reports(ctx: Context) -> str:
    await ctx.progress(1, 2, "half")
    await ctx.info("halfway")
    return "done"


@app.tool
async def remembers(ctx: Context) -> int:
    before: int = await ctx.store.get("count", 0)
    await ctx.store.set("count", before + 1)
    return before + 1


@app.tool
async def asks(ctx: Context) -> str:
    answer = await ctx.elicit("Who?", Person)
    return answer.content.name if answer.content is not None else answer.action


@app.tool
async def asks_text(ctx: Context) -> str:
    answer = await ctx.elicit("Who?", str)
    return answer.content if answer.content is not None else answer.action


@app.tool
async def asks_choice(ctx: Context) -> str:
    answer = await ctx.elicit("How?", Level)
    return answer.content if answer.content is not None else answer.action


@app.tool
async def reads(ctx: Context) -> str:
    return text_resource()


# -- resources


@app.resource("data://text")
def text_resource() -> str:
    return "text"


@app.resource("data://json")
def json_resource() -> dict[str, int]:
    return {"a": 1}


@app.resource("data://blob", mime_type="image/png")
def blob_resource() -> bytes:
    return PNG


@app.resource("users://{number}/profile")
def profile(number: int) -> str:
    return repr(number)


@app.resource("files://{+path}")
def file(path: str) -> str:
    return path


@app.resource("list://{kind}{?limit}")
def listed(kind: str, limit: int = 10) -> str:
    return f"{kind} {limit!r}"


@app.resource("broken://x")
def broken() -> str:
    raise ValueError("a secret of ours")


@app.resource("told://x")
def told() -> str:
    raise ToolError("closed on Sundays")


# -- prompts


@app.prompt
def typed(count: int, words: list[str] = []) -> str:  # noqa: B006
    "A prompt of its own."
    return f"{count!r} {words!r}"


@app.prompt
def talk(topic: str) -> list[PromptMessage]:
    return [
        PromptMessage("user", TextContent(f"About {topic}")),
        PromptMessage("assistant", TextContent("Gladly.")),
    ]


@app.prompt
def theme(name: str, kind: str = "poem") -> str:
    return name


@app.completion("theme", "name")
def names(value: str, arguments: dict[str, str]) -> list[str]:
    known = ["nature", "night"] if arguments.get("kind") != "song" else ["love"]
    return [name for name in known if name.startswith(value)]


# -- composition

part = Server("part")


@part.tool
def ping() -> str:
    return "pong"


@part.resource("part://x")
def part_x() -> str:
    return "x"


@part.prompt
def say() -> str:
    return "say"


app.include(part, namespace="part")


@part.tool
def later() -> str:
    return "later"


# -- versions


@app.tool("sum_of", version="1.0")
def sum_of_two(a: int, b: int) -> int:
    return a + b


@app.tool("sum_of", version="2.0")
def sum_of_many(numbers: list[int]) -> int:
    return sum(numbers)


limited = Server("limited")


@limited.tool
def safe() -> str:
    return "safe"


@limited.tool
def risky() -> str:
    return "risky"


limited.disable("tool")
limited.enable("tool", "safe")
app.include(limited, namespace="only")


# -- over HTTP


@app.route("/health")
async def health(request: RouteRequest) -> str:
    return "well"


@part.route("/of-the-part")
async def of_the_part(request: RouteRequest) -> str:
    return "well"


# -- what registering says


def outcome(register: Callable[[], object]) -> str:
    try:
        register()
    except Exception:
        return "refused"
    return "taken"


def any_arguments(**kwargs: int) -> None: ...


def twice() -> str:
    return "first"


def again() -> str:
    return "second"


def renamed(name: str) -> str:
    return name


spare = Server("spare")
spare.tool("twice")(twice)
untyped: Any = spare
registered = {
    "**kwargs": outcome(lambda: spare.tool(any_arguments)),
    "a name that is taken": outcome(lambda: spare.tool("twice")(again)),
    "a template whose variable no parameter takes": outcome(lambda: spare.resource("a://{other}")(renamed)),
    "an option that does not exist": outcome(lambda: untyped.tool(titel="x")(twice)),
}


@app.tool
def registering() -> dict[str, str]:
    return registered


TOKENS: dict[str, Identity | str] = {
    "token-of-ada": Identity(subject="ada", scopes=frozenset({"read", "write"})),
    "token-of-bob": Identity(subject="bob", scopes=frozenset({"read"})),
}
guarded = Server("guarded", auth=Static(TOKENS))


@guarded.tool
def who(ctx: Context) -> str:
    assert ctx.identity is not None
    return ctx.identity.subject


@guarded.tool(scopes=["write"])
def write() -> str:
    return "written"


remote = Server("remote", auth=Bearer("https://issuer.example", resource="http://127.0.0.1:8000/mcp"))


@remote.tool("who")
def somebody() -> str:
    return "somebody"
