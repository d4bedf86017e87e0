# [resources]
from pathlib import Path

from dragoman.mcp import ResourceNotFound, Server

app = Server("library", version="1.0.0")


@app.resource("library://opening-hours", title="Opening hours", mime_type="text/plain")
def hours() -> str:
    return "9 to 17"


@app.resource("library://cover", mime_type="image/png")
def cover() -> bytes:
    return bytes.fromhex("89504e470d0a1a0a")


@app.resource("library://statistics", mime_type="application/json")
async def statistics() -> dict[str, int]:
    return {"books": 3}


# [/resources]
# [templates]
BOOKS = {1: "Dream of the Red Chamber", 2: "Middlemarch", 3: "The Tale of Genji"}


@app.resource("library://books/{number}", name="book", mime_type="text/plain")
def book(number: int) -> str:
    "A book by its number."
    if number not in BOOKS:
        raise ResourceNotFound(f"there is no book {number}")
    return BOOKS[number]


@app.resource("library://files/{+path}{?lines}", name="file")
def file(path: str, lines: int = 10) -> str:
    "The first lines of a file."
    return "\n".join((Path("texts") / path).read_text().splitlines()[:lines])


# [/templates]
import asyncio

from dragoman import RpcError
from dragoman.mcp import Client

Path("texts/poems").mkdir(parents=True)
Path("texts/poems/one.txt").write_text("line 1\nline 2\nline 3\n")


async def main() -> None:
    async with Client(app) as client:
        assert [one.uri for one in await client.list_resources()] == [
            "library://opening-hours",
            "library://cover",
            "library://statistics",
        ]
        assert [one.name for one in await client.list_resource_templates()] == ["book", "file"]
        # [read]
        [contents] = (await client.read_resource("library://books/2")).contents
        print(contents.text, contents.mime_type)  # Middlemarch text/plain
        [contents] = (await client.read_resource("library://cover")).contents
        print(contents.decoded())  # b'\x89PNG\r\n\x1a\n'
        # [/read]
        [contents] = (await client.read_resource("library://files/poems/one.txt?lines=2")).contents
        assert contents.text == "line 1\nline 2"
        refused = []
        for uri in (
            "library://books/9",
            "library://books/x",
            "library://files/../secret",
            "library://files/%2Fetc/passwd",
        ):
            try:
                await client.read_resource(uri)
            except RpcError as error:
                refused.append(error.code)
        assert refused == [-32602] * 4, refused


asyncio.run(main())
