"""python-lsp-server, as an editor starts it: Content-Length on standard input and output."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec import Struct

from dragoman import RpcError, Service, connect
from dragoman.channel import Ended

PATIENCE = 120.0
"""Seconds; the first hover reads half of the standard library."""

SOURCE = '''\
import os


def twice(number: int) -> int:
    """Give back `number` two times over."""
    return 2 * number


twice(os.getpid())
'''


class Markup(Struct):
    """LSP's MarkupContent."""

    kind: str
    value: str


class Hover(Struct):
    """LSP's Hover."""

    contents: Markup


class Editor:
    """What the server tells and asks its editor."""

    def __init__(self) -> None:
        self.diagnosed = asyncio.Event()
        self.service = Service("editor")
        self.service.method("textDocument/publishDiagnostics", inline=True)(self.diagnostics)
        self.service.method("window/workDoneProgress/create", inline=True)(self.create)
        self.service.method("client/registerCapability", inline=True)(self.register)

    def diagnostics(self, **params: Any) -> None:
        """Problems found in a document."""
        self.diagnosed.set()

    def create(self, token: Any) -> None:
        """A progress begins."""

    def register(self, registrations: list[Any]) -> None:
        """The server offers more."""


@pytest.mark.slow
async def test_a_whole_life(tmp_path: Path) -> None:
    document = tmp_path / "doubling.py"
    document.write_text(SOURCE)
    editor = Editor()
    errors: list[str] = []
    others = set(psutil.Process().children())
    async with connect(
        [sys.executable, "-m", "pylsp"],
        service=editor.service,
        framing="content-length",
        timeout=PATIENCE,
        cwd=str(tmp_path),
        stderr=errors.append,
    ) as peer:
        hello = await peer.call(
            "initialize",
            {
                "processId": None,
                "rootUri": tmp_path.as_uri(),
                "capabilities": {"textDocument": {"hover": {"contentFormat": ["markdown", "plaintext"]}}},
            },
        )
        assert hello["serverInfo"]["name"] == "pylsp"
        assert hello["capabilities"]["hoverProvider"]
        await peer.notify("initialized", {})
        item = {"uri": document.as_uri(), "languageId": "python", "version": 1, "text": SOURCE}
        await peer.notify("textDocument/didOpen", {"textDocument": item})
        place = {"textDocument": {"uri": document.as_uri()}, "position": {"line": 8, "character": 2}}
        hover = await peer.call("textDocument/hover", place, result=Hover)
        assert "two times over" in hover.contents.value
        async with asyncio.timeout(PATIENCE):
            await editor.diagnosed.wait()
        with pytest.raises(RpcError) as unknown:
            await peer.call("textDocument/none", place)
        assert unknown.value.code == -32601
        assert await peer.call("shutdown") is None
        children = set(psutil.Process().children()) - others
        over = peer.notifications("never")
        await peer.notify("exit")
        with pytest.raises(Ended, match="exit status 0"):
            async with asyncio.timeout(PATIENCE):
                await anext(over)
    assert children
    assert not any(child.is_running() for child in children), "the server is left over"
