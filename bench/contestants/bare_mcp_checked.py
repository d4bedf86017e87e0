"""MCP's `tools/call` over HTTP with every check that a revision asks of a server: one tool, by hand, no framework. 2026-07-28
(`http`), or a session of 2025-11-25 that is answered in JSON (`sessions`), which begins and never ends.

What is checked: Host and Origin; the method, path, `Content-Type` and `Accept` of the request; `MCP-Protocol-Version`
against the body or the session, `Mcp-Method` and `Mcp-Name` against the body; the revision and capabilities that `_meta`
names, or the session; the envelope and the tool's arguments. Whatever fails is one refusal without words: the price of
good calls is measured here.
"""

from __future__ import annotations

from secrets import token_hex

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from bench.contestants.bare_http import Front, listen
from bench.contestants.bare_mcp import ENCODE, PARAMS, TOOLS, Answer, Result, Text, Value
from bench.messages import KEY, REVISIONS

STATEFUL, STATELESS = REVISIONS.values()
REFUSED = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request"}}'
WRONG = (msgspec.DecodeError, KeyError, UnicodeDecodeError)


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


class Checked(Front):
    """One connection whose heads are looked at."""

    def __init__(self) -> None:
        super().__init__(self.checked)

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
        try:
            out = self.checked(raw) if self.usual() else REFUSED
        except WRONG:
            out = REFUSED
        self.respond(b"400 Bad Request" if out is REFUSED else b"200 OK", out)

    def respond(self, status: bytes, out: bytes, line: bytes = b"") -> None:
        """Write an answer, with another line in its head."""
        self.transport.write(
            b"HTTP/1.1 %b\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b"
            % (status, line, len(out), out)
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
        envelope = ENVELOPE(raw)
        params = envelope.params
        name = params.name
        if (
            envelope.jsonrpc != "2.0"
            or envelope.method != "tools/call"
            or params.meta.revision != STATELESS
            or fields.get(b"mcp-protocol-version") != STATELESS.encode()
            or fields.get(b"mcp-method") != b"tools/call"
            or fields.get(b"mcp-name") != name.encode()
        ):
            return REFUSED
        arguments, function = TOOLS[name]
        args = arguments(params.arguments)
        value = function(args.minuend, args.subtrahend)
        id = Raw(ENCODE(envelope.id))
        return ENCODE(Answer(id, Stamped([Text(str(value))], Value(value))))


# -- 2025-11-25 -----------------------------------------------------------------------------------


class StatefulEnvelope(Struct):
    """A request, or a notification."""

    jsonrpc: str
    method: str
    id: int | str | UnsetType = UNSET
    params: Raw = Raw(b"{}")


class StatefulResult(Struct, rename="camel"):
    """Of `tools/call`."""

    content: list[Text]
    structured_content: Value


class StatefulAnswer(Struct):
    """A response."""

    id: int | str
    result: StatefulResult
    jsonrpc: str = "2.0"


STATEFUL_ENVELOPE = msgspec.json.Decoder(StatefulEnvelope).decode
ABOUT = {
    "protocolVersion": STATEFUL,
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "bench", "version": "1.0.0"},
}
SESSIONS: dict[bytes, bytes] = {}
"""By their ids, the revision of each."""


class InSession(Checked):
    """One connection whose requests belong to sessions."""

    def on_message_complete(self) -> None:
        """httptools: the request is whole."""
        raw = b"".join(self.body)
        self.body.clear()
        status, out, line = b"200 OK", REFUSED, b""
        try:
            envelope = STATEFUL_ENVELOPE(raw)
            session = self.fields.get(b"mcp-session-id")
            if self.usual() and envelope.jsonrpc == "2.0":
                if session is None:
                    session = token_hex(16).encode()
                    SESSIONS[session] = STATEFUL.encode()
                    line = b"Mcp-Session-Id: %b\r\n" % session
                    out = ENCODE({"jsonrpc": "2.0", "id": envelope.id, "result": ABOUT})
                elif self.fields.get(b"mcp-protocol-version") == SESSIONS.get(session):
                    status, out = (b"202 Accepted", b"") if envelope.id is UNSET else (status, called(envelope))
        except WRONG:
            out = REFUSED
        self.respond(b"400 Bad Request" if out is REFUSED else status, out, line)


def called(envelope: StatefulEnvelope) -> bytes:
    """The answer to a call."""
    if envelope.method != "tools/call" or isinstance(envelope.id, UnsetType):
        return REFUSED
    params = PARAMS(envelope.params)
    arguments, function = TOOLS[params.name]
    args = arguments(params.arguments)
    value = function(args.minuend, args.subtrahend)
    return ENCODE(StatefulAnswer(envelope.id, StatefulResult([Text(str(value))], Value(value))))


async def http(port: str) -> None:
    await listen(port, Checked)


async def sessions(port: str) -> None:
    await listen(port, InSession)
