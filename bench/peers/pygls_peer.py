# mypy: ignore-errors
"""pygls over stdio."""

from __future__ import annotations

from pygls.lsp.server import LanguageServer

server = LanguageServer("bench", "1")


@server.feature("subtract")
def subtract(params):
    return params[0] - params[1]


if __name__ == "__main__":
    server.start_io()
