# [program]
import asyncio
from typing import Any

from msgspec import Struct

from dragoman import Context, Peer, RpcError, Service, serve

api = Service("words", version="1.0")
texts: dict[str, str] = {}
tasks: set[asyncio.Task[None]] = set()


class Document(Struct):
    uri: str
    text: str = ""


@api.method(inline=True)
def initialize(**params: Any) -> dict[str, Any]:
    return {"capabilities": {"hoverProvider": True, "textDocumentSync": 1}}


@api.method("textDocument/didOpen", inline=True)
def did_open(textDocument: Document, context: Context) -> None:
    texts[textDocument.uri] = textDocument.text  # at once: what comes after this message sees the text
    task = asyncio.ensure_future(publish(context.peer, textDocument.uri))
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def publish(editor: Peer | None, uri: str) -> None:
    if editor is not None:
        await editor.notify("textDocument/publishDiagnostics", {"uri": uri, "diagnostics": []})


@api.method("words/count", inline=True)
def count(uri: str) -> int:
    if uri not in texts:
        raise RpcError(f"{uri} is not open", code=1001)
    return len(texts[uri].split())


@api.method("textDocument/hover")
async def hover(textDocument: Document, position: dict[str, int], context: Context) -> dict[str, str]:
    [unit] = await context.call("workspace/configuration", {"items": [{"section": "words.unit"}]}, result=list[str])
    return {"contents": f"{count(textDocument.uri)} {unit}"}


@api.method(inline=True)
def shutdown() -> None: ...


if __name__ == "__main__":
    asyncio.run(serve(api, urls="stdio:", framing="content-length"))
# [/program]
