"""A server on python-lsp-jsonrpc, over standard input and output: `python -m tests.interop.pylsp_peer`."""

from __future__ import annotations

import sys
from typing import Any

from pylsp_jsonrpc.endpoint import Endpoint  # type: ignore[import-untyped]
from pylsp_jsonrpc.streams import JsonRpcStreamReader, JsonRpcStreamWriter  # type: ignore[import-untyped]


def main() -> None:
    reader, writer = JsonRpcStreamReader(sys.stdin.buffer), JsonRpcStreamWriter(sys.stdout.buffer)
    heard: list[Any] = []

    def ask(params: dict[str, int]) -> Any:
        """One more than what the caller's `double` makes of it; asked from a thread of its pool."""
        return lambda: 1 + endpoint.request("double", {"number": params["number"]}).result(30)

    endpoint = Endpoint(
        {
            "subtract": lambda params: params["minuend"] - params["subtrahend"],
            "echo": lambda params: {"was": params},
            "fail": lambda params: 1 // 0,
            "note": heard.append,
            "heard": lambda params: heard,
            "ask": ask,
        },
        writer.write,
    )
    reader.listen(endpoint.consume)
    endpoint.shutdown()


if __name__ == "__main__":
    main()
