# mypy: ignore-errors
"""What FastMCP's documentation shows, as servers of FastMCP's: `mcp`, and two that want tokens, `guarded` and
`remote`; `here` has the same in our words. Arguments: a port (without: stdio) and a server's name."""

from __future__ import annotations

import asyncio
import sys
import threading
import warnings
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Literal

from fastmcp import Context, FastMCP
from fastmcp.dependencies import Depends
from fastmcp.exceptions import ResourceError, ToolError
from fastmcp.prompts import Message
from fastmcp.server.auth import RemoteAuthProvider, require_scopes
from fastmcp.server.auth.providers.jwt import JWTVerifier, StaticTokenVerifier
from fastmcp.server.dependencies import get_access_token
from fastmcp.server.lifespan import lifespan
from fastmcp.server.middleware import Middleware
from fastmcp.tools import ToolResult
from fastmcp.utilities.types import Image
from mcp.types import Icon, PromptReference, ToolAnnotations
from pydantic import AnyHttpUrl, BaseModel, Field
from starlette.requests import Request
from starlette.responses import PlainTextResponse

warnings.simplefilter("ignore")
PNG = bytes.fromhex("89504e470d0a1a0a")


@lifespan
async def life(server):
    yield {"opened": "yes"}


class Naming(Middleware):
    async def on_call_tool(self, context, call_next):
        if context.message.name == "forbidden":
            raise ToolError("not today")
        return await call_next(context)


mcp = FastMCP(
    "moving",
    version="1.2.3",
    instructions="Ask.",
    website_url="https://moving.example",
    icons=[Icon(src="https://moving.example/icon.png")],
    lifespan=life,
    middleware=[Naming()],
    cache_ttl=60,
    list_page_size=50,
)


class Person(BaseModel):
    name: str
    age: int = Field(ge=0)


@dataclass
class Point:
    x: int
    y: int


# -- tools: arguments


@mcp.tool
def search(
    query: str,
    limit: Annotated[int, Field(ge=1, le=100, description="How many")] = 10,
    sort: Literal["new", "old"] = "new",
    tags: list[str] | None = None,
) -> str:
    return f"{query} {limit!r} {sort} {tags}"


@mcp.tool
def documented(width: int, height: int = 2) -> str:
    """Draw a box.

    Args:
        width: In pixels.
        height: In lines.
    """
    return f"{width} by {height}"


@mcp.tool
def greet(person: Person) -> str:
    return f"{person.name} is {person.age}"


@mcp.tool(
    name="named",
    title="A title",
    description="A description",
    annotations=ToolAnnotations(readOnlyHint=True),
    icons=[Icon(src="https://moving.example/tool.png")],
    meta={"team": "a"},
)
def function_name() -> str:
    return "named"


@mcp.tool
def in_thread() -> bool:
    return threading.current_thread() is not threading.main_thread()


class Machine:
    @staticmethod
    def start(speed: int) -> str:
        return f"started at {speed}"

    def stop(self, hard: bool = False) -> str:
        return f"stopped {hard}"


mcp.tool(Machine().stop)
mcp.tool(Machine.start)

# -- tools: results


@mcp.tool
def a_text() -> str:
    return "text"


@mcp.tool
def a_number() -> int:
    return 5


@mcp.tool
def a_list() -> list[int]:
    return [1, 2]


@mcp.tool
def a_dict() -> dict[str, int]:
    return {"a": 1}


@mcp.tool
def a_model() -> Person:
    return Person(name="Ada", age=36)


@mcp.tool
def a_dataclass() -> Point:
    return Point(1, 2)


@mcp.tool
def unannotated():
    return {"a": 1}


@mcp.tool
def nothing() -> None:
    return None


@mcp.tool
def some_bytes() -> bytes:
    return PNG


@mcp.tool
def an_image() -> Image:
    return Image(data=PNG, format="png")


@mcp.tool
def mixed() -> list:
    return ["text", Image(data=PNG, format="png")]


@mcp.tool
def whole() -> ToolResult:
    return ToolResult(content="short", structured_content={"a": 1}, meta={"took": 1})


@mcp.tool(output_schema={"type": "object", "properties": {"a": {"type": "integer"}}})
def own_schema() -> dict:
    return {"a": 1}


# -- tools: failures


@mcp.tool
def fails() -> str:
    raise ValueError("a secret of ours")


@mcp.tool
def tells() -> str:
    raise ToolError("try again")


@mcp.tool
def forbidden() -> str:
    return "reached"


@mcp.tool(timeout=0.05)
async def late() -> str:
    await asyncio.sleep(5)
    return "in time"


@mcp.tool(tags={"admin"})
def erase() -> str:
    return "erased"


mcp.disable(tags={"admin"})


# -- dependencies, context, lifespan


def user() -> str:
    return "ada"


made: list[str] = []


def counted() -> int:
    made.append("")
    return len(made)


def one(n: int = Depends(counted)) -> int:
    return n


def two(n: int = Depends(counted)) -> int:
    return n


@asynccontextmanager
async def committing():
    yield "db"
    raise RuntimeError("the commit failed")


@mcp.tool
def depends(text: str, by: str = Depends(user)) -> str:
    return f"{text} by {by}"


@mcp.tool
def cached(a: int = Depends(one), b: int = Depends(two)) -> bool:
    return a == b


@mcp.tool
async def commits(db: str = Depends(committing)) -> str:
    return "committed"


@mcp.tool
async def opened(ctx: Context) -> str:
    return ctx.lifespan_context["opened"]


@mcp.tool
async def reports(ctx: Context) -> str:
    await ctx.report_progress(1, 2, "half")
    await ctx.info("halfway")
    return "done"


@mcp.tool
async def remembers(ctx: Context) -> int:
    before = await ctx.get_state("count") or 0
    await ctx.set_state("count", before + 1)
    return before + 1


@mcp.tool
async def asks(ctx: Context) -> str:
    answer = await ctx.elicit("Who?", Person)
    return answer.data.name if answer.action == "accept" else answer.action


@mcp.tool
async def asks_text(ctx: Context) -> str:
    answer = await ctx.elicit("Who?", str)
    return answer.data if answer.action == "accept" else answer.action


@mcp.tool
async def asks_choice(ctx: Context) -> str:
    answer = await ctx.elicit("How?", ["low", "high"])
    return answer.data if answer.action == "accept" else answer.action


@mcp.tool
async def reads(ctx: Context) -> str:
    return (await ctx.read_resource("data://text")).contents[0].content


# -- resources


@mcp.resource("data://text")
def text_resource() -> str:
    return "text"


@mcp.resource("data://json")
def json_resource() -> dict:
    return {"a": 1}


@mcp.resource("data://blob", mime_type="image/png")
def blob_resource() -> bytes:
    return PNG


@mcp.resource("users://{number}/profile")
def profile(number: int) -> str:
    return repr(number)


@mcp.resource("files://{path*}")
def file(path: str) -> str:
    return path


@mcp.resource("list://{kind}{?limit}")
def listed(kind: str, limit: int = 10) -> str:
    return f"{kind} {limit!r}"


@mcp.resource("broken://x")
def broken() -> str:
    raise ValueError("a secret of ours")


@mcp.resource("told://x")
def told() -> str:
    raise ResourceError("closed on Sundays")


# -- prompts


@mcp.prompt
def typed(count: int, words: list[str] = []) -> str:  # noqa: B006
    "A prompt of its own."
    return f"{count!r} {words!r}"


@mcp.prompt
def talk(topic: str) -> list[Message]:
    return [Message(f"About {topic}"), Message("Gladly.", role="assistant")]


@mcp.prompt
def theme(name: str, kind: str = "poem") -> str:
    return name


@mcp.completion
def complete(ref, argument, context):
    if isinstance(ref, PromptReference) and ref.name == "theme" and argument.name == "name":
        known = (context.arguments or {}) if context else {}
        names = ["nature", "night"] if known.get("kind") != "song" else ["love"]
        return [name for name in names if name.startswith(argument.value)]
    return None


# -- composition

part = FastMCP("part")


@part.tool
def ping() -> str:
    return "pong"


@part.resource("part://x")
def part_x() -> str:
    return "x"


@part.prompt
def say() -> str:
    return "say"


mcp.mount(part, namespace="part")


@part.tool
def later() -> str:
    return "later"


# -- versions


@mcp.tool(name="sum_of", version="1.0")
def sum_of_two(a: int, b: int) -> int:
    return a + b


@mcp.tool(name="sum_of", version="2.0")
def sum_of_many(numbers: list[int]) -> int:
    return sum(numbers)


limited = FastMCP("limited")


@limited.tool
def safe() -> str:
    return "safe"


@limited.tool
def risky() -> str:
    return "risky"


limited.enable(names={"safe"}, only=True)
mcp.mount(limited, namespace="only")


# -- over HTTP


@mcp.custom_route("/health", methods=["GET"])
async def health(request: Request) -> PlainTextResponse:
    return PlainTextResponse("well")


@part.custom_route("/of-the-part", methods=["GET"])
async def of_the_part(request: Request) -> PlainTextResponse:
    return PlainTextResponse("well")


# -- what registering says


def outcome(register) -> str:
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


spare = FastMCP("spare")
spare.tool(twice, name="twice")
registered = {
    "**kwargs": outcome(lambda: spare.tool(any_arguments)),
    "a name that is taken": outcome(lambda: spare.tool(again, name="twice")),
    "a template whose variable no parameter takes": outcome(lambda: spare.resource("a://{other}")(lambda name: name)),
    "an option that does not exist": outcome(lambda: spare.tool(twice, titel="x")),
}


@mcp.tool
def registering() -> dict[str, str]:
    return registered


TOKENS = {
    "token-of-ada": {"client_id": "ada", "sub": "ada", "scopes": ["read", "write"]},
    "token-of-bob": {"client_id": "bob", "sub": "bob", "scopes": ["read"]},
}
guarded = FastMCP("guarded", auth=StaticTokenVerifier(tokens=TOKENS))


@guarded.tool
def who() -> str:
    return get_access_token().client_id


@guarded.tool(auth=require_scopes("write"))
def write() -> str:
    return "written"


ISSUER = "https://issuer.example"
verifier = JWTVerifier(jwks_uri=f"{ISSUER}/jwks", issuer=ISSUER, audience="http://127.0.0.1:8000/mcp")
remote = FastMCP(
    "remote",
    auth=RemoteAuthProvider(
        token_verifier=verifier, authorization_servers=[AnyHttpUrl(ISSUER)], base_url="http://127.0.0.1:8000"
    ),
)


@remote.tool(name="who")
def somebody() -> str:
    return "somebody"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        served = {"mcp": mcp, "guarded": guarded, "remote": remote}[sys.argv[2] if len(sys.argv) > 2 else "mcp"]
        served.run("http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False)
    else:
        mcp.run("stdio", show_banner=False)
