# [refused]
import asyncio

from dragoman import Broken, serve
from dragoman.auth import Bearer
from dragoman.auth.testing import LocalIssuer
from dragoman.mcp import Client, Server

URL = "http://127.0.0.1:8003/mcp"
notes = Server("notes")


@notes.tool(scopes="notes:write")
async def keep(text: str) -> str:
    "Keep a note."
    return "kept"


async def main(issuer: LocalIssuer) -> None:
    tokens = {
        "good": issuer.token("alice", resource=URL, scopes="notes:write"),
        "without the scope": issuer.token("alice", resource=URL),
        "of another audience": issuer.token("alice", resource="https://other.example", scopes="notes:write"),
        "none": None,
    }
    async with serve(notes, urls=URL, auth=Bearer(issuer.url, resource=URL)):
        for kind, token in tokens.items():
            try:
                async with Client(URL, auth=token) as client:
                    print(kind, await client.call_tool("keep", {"text": "milk"}, result=str))  # good kept
            except Broken as refused:
                print(kind, refused)  # without the scope POST...


with LocalIssuer(resources=[URL]) as issuer:
    asyncio.run(main(issuer))
# [/refused]
