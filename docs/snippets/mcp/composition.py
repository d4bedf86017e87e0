# [composition]
import asyncio

from dragoman.mcp import Client, Context, Server

notes = Server("notes")


@notes.resource("notes://today")
def today() -> str:
    return "Buy milk."


@notes.tool
def add(text: str, ctx: Context) -> str:
    ctx.notify_resource_updated("notes://today")
    return f"kept: {text}"


app = Server("office")
app.include(notes, namespace="notes")


@notes.prompt  # later than `include`, and there all the same
def tidy() -> str:
    return "Put my notes in order."


async def main() -> None:
    async with Client(app) as client:
        print([tool.name for tool in await client.list_tools()])
        print([resource.uri for resource in await client.list_resources()])
        print([prompt.name for prompt in await client.list_prompts()])


asyncio.run(main())
# ['notes_add']
# ['notes://notes/today']
# ['notes_tidy']
# [/composition]
