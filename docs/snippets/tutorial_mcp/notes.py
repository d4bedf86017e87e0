# [server]
from typing import Annotated

from msgspec import Meta, Struct

from dragoman.mcp import Context, ResourceNotFound, Server

app = Server("notes", version="1.0.0", instructions="Short notes of one user. Search before you add.")

NOTES: dict[str, str] = {"tea": "Green tea: 80 degrees, two minutes."}


@app.tool
def add(
    name: Annotated[str, Meta(pattern="^[a-z]+$", description="One word, lower case")],
    text: Annotated[str, Meta(min_length=1, description="What to remember")],
) -> str:
    "Add a note, or replace the one of that name."
    NOTES[name] = text
    return f"{name} is noted"


# [/server]


# [found]
class Found(Struct):
    name: str
    text: str


@app.tool
def search(words: str) -> list[Found]:
    "The notes that contain these words."
    return [Found(name, text) for name, text in NOTES.items() if words.lower() in text.lower()]


# [/found]


# [resource]
@app.resource("note:///{name}", mime_type="text/plain")
def note(name: str) -> str:
    "One note."
    if name not in NOTES:
        raise ResourceNotFound(f"There is no note {name!r}")
    return NOTES[name]


@app.completion("note:///{name}", "name")
def names(value: str) -> list[str]:
    return [name for name in NOTES if name.startswith(value)]


# [/resource]


# [prompt]
@app.prompt
def summary(topic: str) -> str:
    "Ask for a summary of the notes on a topic."
    return f"Search my notes for {topic} and summarize what they say in three sentences."


# [/prompt]


# [ask]
class Sure(Struct):
    delete: Annotated[bool, Meta(description="Delete the note for good")] = False


@app.tool
async def delete(name: str, ctx: Context) -> str:
    "Delete a note; the user has to confirm it."
    answer = await ctx.elicit(f"Delete the note {name!r}?", Sure)
    if answer.content is None or not answer.content.delete:
        return "kept"
    NOTES.pop(name, None)  # after the question: the code above it may run twice
    return "deleted"


# [/ask]
