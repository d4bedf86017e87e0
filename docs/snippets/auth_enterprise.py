# [enterprise]
from dragoman.auth import Enterprise
from dragoman.mcp import Client

COMPANY = Enterprise(
    idp="https://login.company.example",
    idp_client_id="assistant",  # registered there, with the redirect URI http://127.0.0.1/callback
    client_id="assistant-at-notes",  # registered at the server's authorization server
    client_secret="from a file",
)


async def main() -> None:
    async with Client("https://notes.example/mcp", auth=COMPANY) as client:
        print([tool.name for tool in await client.list_tools()])


# [/enterprise]
