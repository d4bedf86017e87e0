"""An MCP server over stdio, for a bridge that keeps one child for many clients."""

from dragoman.mcp import Server

app = Server("bridged", version="1.0.0")


@app.tool
async def add(a: int, b: int) -> int:
    return a + b


if __name__ == "__main__":
    app.run()
