"""What is sent to programs of other libraries and to ours: the first column of the tables in docs/moving/.

A program answers `count` and `take` over HTTP, or `words/count` on stdio.
"""

from __future__ import annotations

import json
from typing import Any, Final

from msgspec import Struct

DIFFERENT: Final = "What is answered differently"
"""The heading above these tables."""


def message(method: str, **members: Any) -> str:
    """A message of JSON-RPC 2.0."""
    return json.dumps({"jsonrpc": "2.0", "method": method, **members})


def several(*messages: str) -> str:
    """A batch."""
    return "[" + ",".join(messages) + "]"


def common(method: str, right: dict[str, Any]) -> dict[str, str]:
    """What is sent on every wire. `method`: takes `right`, one argument."""
    call = message(method, params=right, id=1)
    [value] = right.values()
    return {
        "a call by name": call,
        "a call by position": message(method, params=[value], id=1),
        "a method that is not there": message("none", params={}, id=1),
        "an argument too many": message(method, params={**right, "x": 1}, id=1),
        "an argument too few": message(method, params={}, id=1),
        "a notification": message(method, params=right),
        "`id` is null": message(method, params=right, id=None),
        "`id` is true": message(method, params=right, id=True),
        "`id` is 1.5": message(method, params=right, id=1.5),
        "`params` is null": message(method, params=None, id=1),
        "`params` is a text": message(method, params="tea", id=1),
        "no member `jsonrpc`, by name": json.dumps({"method": method, "params": right, "id": 1}),
        "a member that JSON-RPC does not have": message(method, params=right, id=1, trace="x"),
        "text that is not JSON": "{",
        "NaN in `params`": message(method, params={name: float("nan") for name in right}, id=1),
        "an empty batch": "[]",
        "a batch of two calls": several(call, message(method, params=right, id=2)),
    }


def over_http(*, nested: bool) -> dict[str, str]:
    """What is posted. `nested`: `take` has one argument, an order."""
    order: dict[str, Any] = {"item": "tea", "amount": "1"}
    tea = {"item": "tea"}
    call = message("count", params=tea, id=1)
    return common("count", tea) | {
        "no member `jsonrpc`, by position": json.dumps({"method": "count", "params": ["tea"], "id": 1}),
        "a batch with `1` in it": several(call, "1"),
        "a batch with one id twice": several(call, call),
        "a batch of notifications": several(message("count", params=tea)),
        "an exception in the function": message("count", params={"item": "gold"}, id=1),
        "a number as a text": message("take", params={"order": order} if nested else order, id=1),
        PLAIN: call,
    }


PLAIN: Final = "a body declared as `text/plain`"
OPEN: Final = {"uri": "file:///a"}


def on_stdio() -> dict[str, str]:
    """What is sent to a language server that has one text open."""
    return common("words/count", OPEN) | {
        "an argument of another type": message("words/count", params={"uri": []}, id=1),
        "a method that is not there, without `params`": message("none", id=1),
        "a notification that fails": message("words/count", params={"uri": []}),
        "a notification that is not there": message("none", params={}),
    }


class Side(Struct, frozen=True):
    """A program, and where it is asked: a path of HTTP, or stdio."""

    program: str
    path: str = ""

    @property
    def peer(self) -> str:
        """Whose interpreter runs it."""
        return "" if self.program.endswith("_after") else "moving"


class Page(Struct, frozen=True):
    """A page of docs/moving/: the programs in the columns of its table, ours last, and what is sent to them."""

    sides: tuple[Side, ...]
    messages: dict[str, str]


PAGES: Final = {
    "json-rpc": Page((Side("json_rpc_before", "/"), Side("json_rpc_after", "/")), over_http(nested=False)),
    "jsonrpcserver": Page(
        (Side("jsonrpcserver_before", "/"), Side("ajsonrpc_before", "/"), Side("jsonrpcserver_after", "/")),
        over_http(nested=False),
    ),
    "fastapi-jsonrpc": Page(
        (Side("fastapi_jsonrpc_before", "/rpc"), Side("pjrpc_before", "/rpc"), Side("fastapi_jsonrpc_after", "/rpc")),
        over_http(nested=True),
    ),
    "language-servers": Page(
        (Side("pylsp_jsonrpc_before"), Side("pygls_before"), Side("language_server_after")), on_stdio()
    ),
}
