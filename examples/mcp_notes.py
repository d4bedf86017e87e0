"""Notes: a resource and two templates, prompts that carry a note with them, and completion for all of these.

dragoman serve mcp_notes.py
dragoman read mcp_notes.py 'notes://tagged/garden?most=1'
dragoman prompt mcp_notes.py shorten title=roses words=10
"""

import asyncio

from msgspec import Struct

from dragoman.mcp import (
    Client,
    Completion,
    Context,
    EmbeddedResource,
    PromptMessage,
    ResourceContents,
    ResourceNotFound,
    Server,
    TextContent,
    ToolError,
)

app = Server("notes", version="1.0.0")


class Note(Struct):
    title: str
    text: str
    tags: list[str] = []


notes = {
    note.title: note
    for note in (
        Note("roses", "Cut them in March.", ["garden", "spring"]),
        Note("tulips", "Plant them in October.", ["garden", "autumn"]),
        Note("soup", "Leek, potato, a little cream.", ["kitchen"]),
    )
}


@app.resource("notes://titles")
def titles() -> list[str]:
    "The titles of all notes."
    return sorted(notes)


@app.resource("notes://note/{title}", name="note", mime_type="text/markdown")
def note(title: str) -> str:
    "One note."
    if title not in notes:
        raise ResourceNotFound(f"there is no note {title!r}")
    return f"# {title}\n\n{notes[title].text}\n"


@app.resource("notes://tagged/{tag}{?most}", name="tagged")
def tagged(tag: str, most: int = 10) -> list[Note]:
    "The notes that have a tag, at most so many."
    return [one for one in notes.values() if tag in one.tags][:most]


@app.tool
async def write(title: str, text: str, ctx: Context, tags: list[str] | None = None) -> str:
    "Write a new note, or another text in place of an old one."
    if "/" in title:
        raise ToolError("a title has no slash, because it is part of a URI")
    new = title not in notes
    notes[title] = Note(title, text, tags or ([] if new else notes[title].tags))
    ctx.notify_resource_updated("notes://titles" if new else f"notes://note/{title}")
    return "written" if new else "written anew"


@app.prompt
def shorten(title: str, words: int = 20) -> list[PromptMessage]:
    "Make a note shorter."
    attached = ResourceContents(uri=f"notes://note/{title}", text=note(title), mime_type="text/markdown")
    return [
        PromptMessage("user", TextContent(f"Say this in at most {words} words.")),
        PromptMessage("user", EmbeddedResource(resource=attached)),
    ]


@app.prompt(title="Ask about a tag")
def ask(tag: str, title: str) -> str:
    "A question about one note, which the others of its tag may help to answer."
    others = ", ".join(one.title for one in tagged(tag) if one.title != title)
    return f"{note(title)}\nWhat is missing here? The notes {others} may know."


@app.completion("notes://note/{title}", "title")
@app.completion("shorten", "title")
def complete_title(value: str) -> list[str]:
    return [title for title in sorted(notes) if title.startswith(value)]


@app.completion("ask", "title")
def complete_title_of_tag(value: str, arguments: dict[str, str]) -> list[str]:
    "Among the notes of the tag that was chosen before."
    return [one.title for one in tagged(arguments.get("tag", "")) if one.title.startswith(value)]


@app.completion("notes://tagged/{tag}{?most}", "tag")
@app.completion("ask", "tag")
def complete_tag(value: str) -> Completion:
    "The tags used most come first, and no more than three."
    tags = [tag for one in notes.values() for tag in one.tags if tag.startswith(value)]
    found = sorted(set(tags), key=lambda tag: (-tags.count(tag), tag))
    return Completion(found[:3], total=len(found), has_more=len(found) > 3)


async def main() -> None:
    async with Client(app) as client:
        [contents] = (await client.read_resource("notes://tagged/garden?most=1")).contents
        print(contents.text)  # [{"title":"roses","text":"Cut them in March.","tags":["garden","spring"]}]
        print((await client.complete("ask", "tag", "")).values)  # ['garden', 'autumn', 'kitchen']
        print((await client.complete("ask", "title", "", {"tag": "garden"})).values)  # ['roses', 'tulips']
        prompt = await client.get_prompt("shorten", {"title": "roses", "words": "5"})
        print([message.content.type for message in prompt.messages])  # ['text', 'resource']
        async with client.subscribe(uris=["notes://titles"]) as changes:
            print(await client.call_tool("write", {"title": "bread", "text": "Knead."}, result=str))  # written
            print((await anext(changes)).uri)  # notes://titles


if __name__ == "__main__":
    asyncio.run(main())
