"""A calculator as an MCP tool: an enum, an error that the model can read, and arguments that do not fit.

dragoman serve mcp_calculator.py
dragoman tool http://127.0.0.1:8000/mcp calculate operation=divide a=1 b=8
"""

import asyncio
from typing import Annotated, Literal

from msgspec import Meta

from dragoman.mcp import Client, Server, TextContent, ToolAnnotations, ToolError

app = Server("calculator", version="1.0.0", instructions="Use calculate for all arithmetic.")


@app.tool(title="Calculator", annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True), inline=True)
def calculate(
    operation: Annotated[Literal["add", "subtract", "multiply", "divide"], Meta(description="What to do")],
    a: Annotated[float, Meta(description="The first number")],
    b: Annotated[float, Meta(description="The second number")],
) -> float:
    "Do one step of arithmetic."
    match operation:
        case "add":
            return a + b
        case "subtract":
            return a - b
        case "multiply":
            return a * b
        case "divide":
            if b == 0:
                raise ToolError("b is 0, and nothing can be divided by 0; ask for another b")
            return a / b


async def main() -> None:
    async with Client(app) as client:
        print(await client.call_tool("calculate", {"operation": "divide", "a": 1, "b": 8}, result=float))  # 0.125

        for arguments in ({"operation": "divide", "a": 1, "b": 0}, {"operation": "power", "a": "two"}):
            failed = await client.call_tool("calculate", arguments)
            [block] = failed.content
            if isinstance(block, TextContent):
                print(failed.is_error, block.text)  # True ...


if __name__ == "__main__":
    asyncio.run(main())
