"""Documents over HTTP that are the result of a JSON-RPC method: a GET is a call like any other, with middleware."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Raw, Struct

from ...channel import Caller, Document, Servable, exchanged
from ...jsonrpc.codec import AnyAnswer, FailedAnswer
from ...jsonrpc.errors import INTERNAL_ERROR, METHOD_NOT_FOUND
from .messages import Endpoint, HttpRequest, Reply


class _Answer(Struct):
    result: Raw = Raw(b"null")


def document_endpoint(served: Servable, document: Document) -> Endpoint:
    """The endpoint of a document with a `method`: 200 with its result; otherwise the error as JSON, with 404 if there
    is no such method, 503 if calls are refused, 500 if it failed, and 403 if it was denied."""
    call = msgspec.json.encode({"jsonrpc": "2.0", "method": document.method, "id": 1})

    def get(request: HttpRequest, reply: Reply) -> None:
        if request.method not in ("GET", "HEAD"):
            reply.respond(405, (("Allow", "GET, HEAD"),))
            return
        x = _Get(call, request.caller, reply, document.media_type)
        reply.gone = x.left
        exchanged(served, x)

    return get


class _Get:
    """The exchange of one GET."""

    __slots__ = ("_media_type", "_reply", "caller", "gone", "request")

    def __init__(self, request: bytes, caller: Caller, reply: Reply, media_type: str) -> None:
        self.request, self.caller = request, caller
        self._reply, self._media_type = reply, media_type
        self.gone: Callable[[], None] | None = None

    def left(self) -> None:
        if self.gone is not None:
            self.gone()

    def respond(self, answer: AnyAnswer) -> None:
        if type(answer) is FailedAnswer:
            known = {METHOD_NOT_FOUND: 404, INTERNAL_ERROR: 500}
            status = 503 if answer.refusal is not None else known.get(answer.error.code, 403)
            self._reply.respond(status, (("Content-Type", "application/json"),), answer.text or b"")
        else:
            found = msgspec.json.decode(answer or b"{}", type=_Answer)
            self._reply.respond(200, (("Content-Type", self._media_type),), bytes(found.result))

    def stream(self, message: bytes) -> bool:
        return False
