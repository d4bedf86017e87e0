# mypy: ignore-errors
"""pygls over stdio."""

from __future__ import annotations

from pygls.lsp.server import LanguageServer


def stdio() -> None:
    server = LanguageServer("bench", "1")

    @server.feature("subtract")
    def subtract(params):
        return params[0] - params[1]

    server.start_io()
