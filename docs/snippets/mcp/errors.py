import logging

logging.disable()  # a reader's test wants a quiet stderr

# [errors]
from typing import Annotated

from msgspec import Meta

from dragoman.mcp import Server, ToolError

app = Server("errors", version="1.0.0")


@app.tool
async def age(years: Annotated[int, Meta(ge=0)], name: str) -> str:
    if years > 150:
        raise ToolError(f"no one is {years} years old; ask {name} again")
    if years == 150:
        raise ValueError("a secret of ours")
    return f"{name} is {years}"


# [/errors]
# [seen]
import asyncio

from dragoman import RpcError
from dragoman.mcp import Client


async def main() -> None:
    async with Client(app) as client:
        for arguments in ({"years": 151, "name": "Ada"}, {"years": 150, "name": "Ada"}, {"years": -1, "nmae": "Ada"}):
            result = await client.call_tool("age", arguments)
            print(result.is_error, result.content[0].text)  # True ...
        try:
            await client.call_tool("aeg")
        except RpcError as error:
            print(error.code, error.message)  # -32602 ...


asyncio.run(main())
# [/seen]
