"""Talk to a language server (pylsp) over Content-Length framing on its stdin and stdout.

python examples/lsp_client.py              needs python-lsp-server
"""

import asyncio
import sys

from msgspec import Struct

from dragoman import connect

TEXT = "import math\nmath.sqrt(2)\n"
URI = "file:///tmp/example.py"


class Markup(Struct):
    value: str


class Hover(Struct):
    contents: Markup


async def main() -> None:
    async with connect([sys.executable, "-m", "pylsp"], framing="content-length") as server:
        told = await server.call("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
        print(told["serverInfo"]["name"])  # pylsp
        await server.notify("initialized", {})
        document = {"uri": URI, "languageId": "python", "version": 1, "text": TEXT}
        await server.notify("textDocument/didOpen", {"textDocument": document})
        place = {"textDocument": {"uri": URI}, "position": {"line": 1, "character": 6}}
        hover = await server.call("textDocument/hover", place, result=Hover)
        print(hover.contents.value.splitlines()[1])  # sqrt(...
        print(await server.call("shutdown"))  # None
        await server.notify("exit")


if __name__ == "__main__":
    asyncio.run(main())
