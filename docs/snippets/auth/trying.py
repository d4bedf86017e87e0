# [try]
import asyncio

from dragoman import Identity, serve
from dragoman.auth import Bearer
from dragoman.auth.testing import LocalIssuer
from dragoman.mcp import Client, Server

notes = Server("notes")


@notes.tool(scopes="notes:write")
async def keep(text: str, who: Identity) -> str:
    "Keep a note."
    return f"kept for {who.subject}"


async def main() -> None:
    url = "http://127.0.0.1:8003/mcp"
    with LocalIssuer(resources=[url]) as issuer:
        async with serve(notes, urls=url, auth=Bearer(issuer.url, resource=url)):
            token = issuer.token("alice", resource=url, scopes="notes:write")
            async with Client(url, auth=token) as client:
                print(await client.call_tool("keep", {"text": "milk"}, result=str))  # kept for alice


asyncio.run(main())
# [/try]
