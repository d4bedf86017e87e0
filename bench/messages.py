"""What is asked, as text: JSON-RPC's `subtract`; MCP's `tools/call` and its like, and the heads of their POSTs. Standard
library only, since peers' interpreters read it too."""

from __future__ import annotations

import functools
import json
import time
from base64 import urlsafe_b64encode
from hashlib import sha256
from hmac import digest

FIRST_ID = 100_000
"""Ids are of one width from here on."""
ABOUT = '{"name":"bench","version":"1.0.0"}'
KEY = "io.modelcontextprotocol"
REVISIONS = {"2025": "2025-11-25", "2026": "2026-07-28"}
META = f'"_meta":{{"{KEY}/protocolVersion":"2026-07-28","{KEY}/clientInfo":{ABOUT},"{KEY}/clientCapabilities":{{}}}}'
INITIALIZE = (
    '{"jsonrpc":"2.0","id":1,"method":"initialize",'
    f'"params":{{"protocolVersion":"2025-11-25","capabilities":{{}},"clientInfo":{ABOUT}}}}}'
)
INITIALIZED = '{"jsonrpc":"2.0","method":"notifications/initialized"}'
ISSUER, RESOURCE = "https://as.example", "https://mcp.example/mcp"
CLAIMS = {"iss": ISSUER, "aud": RESOURCE, "sub": "user-19", "client_id": "app", "scope": "notes:read notes:write"}
SECRET = "what issuer and server share in the benchmarks"


def call(method: str, number: int, params: str = "[42,23]") -> str:
    """One request of JSON-RPC."""
    return f'{{"jsonrpc":"2.0","method":"{method}","params":{params},"id":{number}}}'


SINGLE = call("subtract", 1).encode()
BATCH = f"[{','.join(call('subtract', number) for number in range(100))}]".encode()


def body(era: str, method: str, tool: str, number: int, padding: int = 0) -> str:
    """One request of MCP."""
    parts = [META] if era == "2026" else []
    if method == "tools/call":
        space = " " * padding
        parts.append(f'"name":"{tool}","arguments":{{"minuend":42,"subtrahend":23{space}}}')
    elif method == "subscriptions/listen":
        parts.append('"notifications":{"toolsListChanged":true}')
    return f'{{"jsonrpc":"2.0","id":{number},"method":"{method}","params":{{{",".join(parts)}}}}}'


def big() -> str:
    """A call of `echo` in 2026-07-28 with 2 MB of text."""
    text = "19 words of which some are longer " * 60_000
    return (
        '{"jsonrpc":"2.0","id":1,"method":"tools/call",'
        f'"params":{{{META},"name":"echo","arguments":{{"text":"{text}"}}}}}}'
    )


def head(port: int, era: str, method: str, tool: str, session: str) -> str:
    """The lines of the head of MCP's POST that its body's length does not change."""
    lines = [
        "POST /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"MCP-Protocol-Version: {REVISIONS.get(era, '2025-11-25')}",
    ]
    if era == "2026":
        lines += [f"Mcp-Method: {method}", *([f"Mcp-Name: {tool}"] if method == "tools/call" else [])]
    if session:
        lines.append(f"Mcp-Session-Id: {session}")
    return "\r\n".join(lines)


def post(lines: str, text: str) -> bytes:
    """A POST."""
    return f"{lines}\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


@functools.cache
def signed_token() -> str:
    """An access token of this hour, signed with the secret: the same all the time."""

    def part(value: bytes) -> str:
        return urlsafe_b64encode(value).rstrip(b"=").decode()

    now = int(time.time())
    claims = CLAIMS | {"iat": now, "exp": now + 3600, "jti": "1"}
    text = ".".join(part(json.dumps(one).encode()) for one in ({"alg": "HS256", "typ": "at+jwt"}, claims))
    return f"{text}.{part(digest(SECRET.encode(), text.encode(), sha256))}"
