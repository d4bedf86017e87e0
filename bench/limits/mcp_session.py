"""The limit of MCP's `tools/call` in a session of 2025-11-25, answered in JSON, with the checks of that revision: one
tool, by hand, no framework. Arguments: `PORT`.

What it checks: Host and Origin; the method, path, `Content-Type` and `Accept` of the request; that its session exists,
and `MCP-Protocol-Version` against it; the envelope and the tool's arguments. Sessions begin and never end. Whatever
fails is one refusal without words: the price of good calls is measured here.
"""

from __future__ import annotations

import sys
from secrets import token_hex

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from bench.limits.http import serve
from bench.limits.loops import run
from bench.limits.mcp import PARAMS, TOOLS, Text, Value
from bench.limits.mcp_checked import ENCODE, REFUSED, Checked

REVISION = "2025-11-25"
ABOUT = {
    "protocolVersion": REVISION,
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "bench", "version": "1.0.0"},
}
SESSIONS: dict[bytes, bytes] = {}
"""By their ids, the revision of each."""


class Envelope(Struct):
    """A request, or a notification."""

    jsonrpc: str
    method: str
    id: int | str | UnsetType = UNSET
    params: Raw = Raw(b"{}")


class Result(Struct, rename="camel"):
    """Of `tools/call`."""

    content: list[Text]
    structured_content: Value


class Answer(Struct):
    """A response."""

    id: int | str
    result: Result
    jsonrpc: str = "2.0"


ENVELOPE = msgspec.json.Decoder(Envelope).decode


class InSession(Checked):
    """One connection whose requests belong to sessions."""

    def on_message_complete(self) -> None:
        """httptools: the request is whole."""
        raw = b"".join(self.body)
        self.body.clear()
        status, line = b"200 OK", b""
        try:
            envelope = ENVELOPE(raw)
            session = self.fields.get(b"mcp-session-id")
            if not self.usual() or envelope.jsonrpc != "2.0":
                out = REFUSED
            elif session is None:
                session = token_hex(16).encode()
                SESSIONS[session] = REVISION.encode()
                line = b"Mcp-Session-Id: %b\r\n" % session
                out = ENCODE({"jsonrpc": "2.0", "id": envelope.id, "result": ABOUT})
            elif self.fields.get(b"mcp-protocol-version") != SESSIONS.get(session):
                out = REFUSED
            elif envelope.id is UNSET:
                status, out = b"202 Accepted", b""
            else:
                out = called(envelope)
        except (msgspec.DecodeError, KeyError, UnicodeDecodeError):
            out = REFUSED
        self.transport.write(
            b"HTTP/1.1 %b\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b"
            % (b"400 Bad Request" if out is REFUSED else status, line, len(out), out)
        )


def called(envelope: Envelope) -> bytes:
    """The answer to a call."""
    if envelope.method != "tools/call" or isinstance(envelope.id, UnsetType):
        return REFUSED
    params = PARAMS(envelope.params)
    arguments, function = TOOLS[params.name]
    args = arguments(params.arguments)
    value = function(args.minuend, args.subtrahend)
    return ENCODE(Answer(envelope.id, Result([Text(str(value))], Value(value))))


if __name__ == "__main__":
    run(serve(int(sys.argv[1]), lambda: InSession(lambda raw: raw)), uvloop=False)
