# [keys]
import os

from dragoman import Identity
from dragoman.auth import Static
from dragoman.mcp import Server

keys = {
    os.environ.get("READER_KEY", "kN3xV0q2f9Wb7cLr"): "ada",  # who it is, without scopes
    os.environ.get("WRITER_KEY", "Zt8yPq1sE4mJ6hDu"): Identity(subject="ci", scopes=frozenset({"notes:write"})),
}
server = Server("notes", auth=Static(keys))


@server.tool(scopes="notes:write")
async def save(text: str, who: Identity) -> str:
    "Save a note."
    return f"saved for {who.subject}"


# [/keys]
