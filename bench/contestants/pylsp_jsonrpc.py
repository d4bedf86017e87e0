# mypy: ignore-errors
"""python-lsp-jsonrpc over stdio."""

from __future__ import annotations

import sys

from pylsp_jsonrpc.endpoint import Endpoint
from pylsp_jsonrpc.streams import JsonRpcStreamReader, JsonRpcStreamWriter


def subtract(params: list[int]) -> int:
    return params[0] - params[1]


def stdio() -> None:
    writer = JsonRpcStreamWriter(sys.stdout.buffer)
    endpoint = Endpoint({"subtract": subtract}, writer.write)
    JsonRpcStreamReader(sys.stdin.buffer).listen(endpoint.consume)
