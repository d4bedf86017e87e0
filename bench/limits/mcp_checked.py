"""The limit of MCP's `tools/call` with every check that 2026-07-28 asks of a server: one tool, by hand, no framework.
Arguments: `PORT`, then perhaps `uvloop`.

What it checks: Host and Origin; the method, path, `Content-Type` and `Accept` of the request; `Mcp-Method`, `Mcp-Name`
and `MCP-Protocol-Version` against the body; the revision and capabilities that `_meta` names; the tool's arguments.
Whatever fails is one refusal without words: the price of good calls is measured here.
"""

from __future__ import annotations

import sys

import msgspec
from msgspec import Raw, Struct

from bench.limits.http import Front, serve
from bench.limits.loops import run
from bench.limits.mcp import TOOLS, Answer, Result, Text, Value

REVISION = "2026-07-28"
KEY = "io.modelcontextprotocol"


class Implementation(Struct):
    """The caller."""

    name: str
    version: str


class Meta(Struct):
    """`_meta` of a request."""

    revision: str = msgspec.field(name=f"{KEY}/protocolVersion")
    capabilities: dict[str, Raw] = msgspec.field(name=f"{KEY}/clientCapabilities")
    client: Implementation | None = msgspec.field(default=None, name=f"{KEY}/clientInfo")


class Params(Struct):
    """Of `tools/call`."""

    name: str
    meta: Meta = msgspec.field(name="_meta")
    arguments: Raw = Raw(b"{}")


class Envelope(Struct):
    """A request."""

    jsonrpc: str
    method: str
    id: int | str
    params: Params


class Stamped(Result):
    """A result with the name of its server."""

    _meta: Raw = Raw(b'{"%s/serverInfo":{"name":"bench","version":"1.0.0"}}' % KEY.encode())


ENVELOPE = msgspec.json.Decoder(Envelope).decode
ENCODE = msgspec.json.Encoder().encode
REFUSED = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request"}}'


class Checked(Front):
    """One connection whose heads are looked at."""

    def on_message_begin(self) -> None:
        """httptools: a request begins."""
        self.fields: dict[bytes, bytes] = {}

    def on_url(self, url: bytes) -> None:
        """httptools: its target."""
        self.url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools: one field."""
        self.fields[name.lower()] = value

    def on_message_complete(self) -> None:
        """httptools: the request is whole."""
        raw = b"".join(self.body)
        self.body.clear()
        out = self.checked(raw)
        status = b"400 Bad Request" if out is REFUSED else b"200 OK"
        self.transport.write(
            b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (status, len(out), out)
        )

    def usual(self) -> bool:
        """Whether the head is that of a POST for this endpoint, from where it may come."""
        fields = self.fields
        host = fields.get(b"host", b"").rpartition(b":")[0]
        accept = fields.get(b"accept", b"")
        return (
            self.parser.get_method() == b"POST"
            and self.url == b"/mcp"
            and host in (b"127.0.0.1", b"localhost")
            and fields.get(b"origin") is None
            and fields.get(b"content-type") == b"application/json"
            and b"application/json" in accept
            and b"text/event-stream" in accept
        )

    def checked(self, raw: bytes) -> bytes:
        """The answer to one request."""
        fields = self.fields
        if not self.usual():
            return REFUSED
        try:
            envelope = ENVELOPE(raw)
            params = envelope.params
            name = params.name
            if (
                envelope.jsonrpc != "2.0"
                or envelope.method != "tools/call"
                or params.meta.revision != REVISION
                or fields.get(b"mcp-protocol-version") != REVISION.encode()
                or fields.get(b"mcp-method") != b"tools/call"
                or fields.get(b"mcp-name") != name.encode()
            ):
                return REFUSED
            arguments, function = TOOLS[name]
            args = arguments(params.arguments)
        except (msgspec.DecodeError, KeyError, UnicodeDecodeError):
            return REFUSED
        value = function(args.minuend, args.subtrahend)
        id = Raw(ENCODE(envelope.id))
        return ENCODE(Answer(id, Stamped([Text(str(value))], Value(value))))


if __name__ == "__main__":
    run(serve(int(sys.argv[1]), lambda: Checked(lambda raw: raw)), uvloop=sys.argv[2:] == ["uvloop"])
