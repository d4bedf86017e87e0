"""A folder of files as resources: one template, its completion, and a notification when a file has changed.

dragoman serve mcp_files.py
dragoman read http://127.0.0.1:8000/mcp notes:///today.txt
"""

import asyncio
import tempfile
from pathlib import Path

from dragoman.mcp import Client, Context, ResourceNotFound, Server

app = Server("files", version="1.0.0")
folder = Path(tempfile.mkdtemp())
(folder / "today.txt").write_text("Water the plants.\n")
(folder / "tomorrow.txt").write_text("Rest.\n")


def inside(path: str) -> Path:
    "The file, if it is there; a template never lets `..` or an absolute path through, a symbolic link might."
    file = (folder / path).resolve()
    if not file.is_relative_to(folder.resolve()) or not file.is_file():
        raise ResourceNotFound(f"there is no file {path}")
    return file


@app.resource("notes:///{+path}", name="note", mime_type="text/plain")
def note(path: str) -> str:
    "A file of the folder."
    return inside(path).read_text()


@app.completion("notes:///{+path}", "path")
def paths(value: str) -> list[str]:
    return sorted(file.name for file in folder.iterdir() if file.name.startswith(value))


@app.tool
def write(path: str, text: str, ctx: Context) -> str:
    "Replace a file that is there already."
    inside(path).write_text(text)
    ctx.notify_resource_updated(f"notes:///{path}")
    return f"{len(text)} characters written"


async def main() -> None:
    async with Client(app) as client:
        [template] = await client.list_resource_templates()
        print(template.uri_template)  # notes:///{+path}
        print((await client.complete(template.uri_template, "path", "to")).values)  # ['today.txt', 'tomorrow.txt']
        async with client.subscribe(uris=["notes:///today.txt"]) as events:
            await client.call_tool("write", {"path": "today.txt", "text": "Done.\n"})
            print((await anext(events)).uri)  # notes:///today.txt
        [contents] = (await client.read_resource("notes:///today.txt")).contents
        print(contents.text)  # Done.


if __name__ == "__main__":
    asyncio.run(main())
