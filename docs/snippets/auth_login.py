# [login]
from dragoman.auth import Login
from dragoman.mcp import Client


async def main() -> None:
    async with Client("https://mcp.example.org/mcp", auth=Login()) as client:
        print([tool.name for tool in await client.list_tools()])


# [/login]


print(Login())  # Login(account='default')
