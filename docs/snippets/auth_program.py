# [program]
import asyncio

from dragoman import serve
from dragoman.auth import Bearer, ClientCredentials
from dragoman.auth.testing import LocalIssuer
from dragoman.mcp import Client, Server

URL = "http://127.0.0.1:8000/mcp"


async def main(issuer: LocalIssuer) -> None:
    server = Server("notes", auth=Bearer(issuer.url, resource=URL))

    @server.tool
    def count() -> int:
        return 3

    async with serve(server, urls=URL):
        robot = ClientCredentials("robot", secret="from a file", issuer=issuer.url)
        async with Client(URL, auth=robot) as client:
            print(await client.call_tool("count", result=int))  # 3


with LocalIssuer() as issuer:
    issuer.client("robot", "from a file", grants=("client_credentials",))
    asyncio.run(main(issuer))
# [/program]
