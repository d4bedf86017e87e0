# [server]
from dragoman import Identity
from dragoman.auth import Bearer
from dragoman.mcp import Server

server = Server("notes", auth=Bearer("https://as.example", resource="https://mcp.example/mcp"))


@server.tool(scopes="notes:write")
async def save(text: str, who: Identity) -> str:
    "Save a note."
    return f"saved for {who.subject}"


# [/server]
