"""PURE: the one finder of faults, behind the doctor, the advice after a failed command, and `auth explain`: it names a
fault by what really came, the error of a connection, the first bytes, the head of an HTTP reply.

What other protocols send is recognised where every wire recognises it, in `net.strangers`; why a connection failed is
named by `net.sockets.reason_of`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urljoin

import msgspec
from msgspec import Struct, field

from ..auth.challenge import parse_challenges
from ..channel import ChannelError, Reason
from ..jsonrpc.check import problems
from ..jsonrpc.codec import decode
from ..jsonrpc.errors import PARSE_ERROR, BadAnswer, CallTimeout
from ..jsonrpc.framing import FramingName, framing
from ..jsonrpc.limits import CLIENT
from ..jsonrpc.messages import Batch, Failure, Malformed, Message, Notification, Request, Result
from ..net.replies import excerpt
from ..net.sockets import in_words, reason_of
from ..net.strangers import recognise_stranger
from ..net.urls import Url, printable
from ..system.sockets import LOOKUP
from ..system.words import quote_word


class Diagnosis(Struct, frozen=True):
    """What is wrong, and what to do about it."""

    kind: str
    """The fault in a word, for programs."""
    what: str
    fix: str = field(name="mend")  # the name in `--json`
    answers: bool = True
    """False: there is no connection, or no answer."""


FIXES: Mapping[Reason, str] = {
    "unresolved": "check the spelling of {host}, and whether this machine can resolve names: " + LOOKUP + " {host}",
    "refused": "nothing listens at {address}: start the server there, or check host and port",
    "unreachable": "there is no way to {host} from here: check the network, the VPN and the firewall",
    "late": "no answer from {host}: check that the machine is up, and that no firewall drops what goes to {address}, or wait longer: "
    "--timeout SECONDS",
    "no_socket": "there is no socket {address}: start the server; a relative path begins in the current folder",
    "denied": "the file's permissions keep you out: be its user, or let the server set others",
    "not_tls": "write {plain}:// for {scheme}://, or give the server a certificate",
    "untrusted": "give the certificate of its authority: --ca FILE (or --insecure, which trusts anybody)",
    "wrong_name": "use the name that is in the certificate, or give the server one for {host}",
    "expired": "the server needs a new certificate, or one of the two clocks is wrong",
    "certificate_wanted": "the server asks for a client certificate: give one, --cert FILE",
    "tls": "the two ends agree on no version or cipher of TLS: look into the server's log",
    "reset": "look into the server's log: it dropped the connection",
    "hung_up": "look into the server's log: it closed the connection without an answer",
    "not_websocket": "no WebSocket is at {path}: check the path, let a proxy on the way forward the upgrade, or write {http}:// for "
    "{scheme}://",
    "login": "a person has to log in: dragoman login URL",
    "other": "look into the server's log",
}
BROKERS = ("amqp", "mqtt", "nats", "redis")
_LOOSE: Mapping[str, str] = {
    "the null one must be absent": "leave the null out of its answers (specification 5)",
    "`error.code` must be an integer, not '": "send a number as the code of an error (specification 5.1)",
}
"""What is said of answers that are refused and that `--lenient` accepts, and what their server must do."""
NO_CONNECTION: frozenset[Reason] = frozenset(
    ("unresolved", "refused", "unreachable", "late", "no_socket", "denied", "reset", "hung_up")
)
STATUS: Mapping[int, tuple[str, str]] = {
    400: ("bad_request", "the server cannot read the request: check that it speaks JSON-RPC or MCP at this path"),
    404: ("not_found", "check the path of the URL; MCP is usually at /mcp"),
    405: ("no_post", "this path takes no POST: check the path of the URL; MCP is usually at /mcp"),
    406: ("not_acceptable", "the server must answer application/json, or text/event-stream for MCP"),
    407: ("proxy", "a proxy on the way wants a log-in: go around it, or log in there"),
    408: ("slow", "the server gave up reading: look for a proxy on the way that holds bodies back"),
    411: ("length", "the server or a proxy refuses the body's length: look for what changes requests on the way"),
    413: ("too_large", "the server takes no body of this size: raise its limit"),
    415: ("media_type", "the server must take application/json; check that this path is a JSON-RPC or MCP endpoint"),
    421: ("host", "the server does not know this host name: allow it there (dragoman serve --host-allowed NAME)"),
    426: ("upgrade", "the server wants a WebSocket or another version of HTTP here: try {ws}://{address}{path}"),
    429: ("busy", "too many requests: wait as long as Retry-After says, or raise the server's limit"),
    500: ("server_error", "the server failed: look into its log"),
    501: ("no_post", "this server takes no POST: it is not a JSON-RPC endpoint; check host, port and path"),
    502: (
        "gateway",
        "a proxy answers, and the server behind it does not: start it, or mend the proxy's address for it",
    ),
    503: ("unavailable", "the server takes no calls now (it drains, or is overloaded): try again later"),
    504: ("gateway", "a proxy answers, and the server behind it is silent: look there"),
    505: ("version", "the server does not take HTTP/1.1: put a proxy in front"),
}
"""HTTP status -> the fault in a word, and its fix."""


_LATE = "did not answer within"
"""What a connection says whose answer did not come in time."""
_CUT = (" broke off", "ended before the answer")
"""What a connection says whose answer has begun."""


_NO_LOGIN = re.compile(
    r"(?i)noauth|wrongpass|invalid username|invalid password|authori[sz]ation violation|not authori[sz]ed"
    r"|access[_ ]refused|bad user ?name or password|authentication (?:failed|required|timeout)|user authentication"
)
"""How brokers refuse a login."""
_NO_RIGHT = re.compile(r"(?i)noperm|permissions? violation|no permissions|access to .* refused|does not let this user")
_HTTP = re.compile(r": HTTP (\d{3})\b")
"""How the WebSocket says what came instead of it."""


def log_in_at_broker(url: Url, said: str) -> Diagnosis:
    """The fault of a broker that does not let a user in."""
    name = url.plain.upper()
    fix = (
        f"give the broker's user and password: {url.scheme}://USER:PASSWORD@{url.address}{url.path}, or "
        f"DRAGOMAN_{name}_USER and DRAGOMAN_{name}_PASSWORD"
    )
    return Diagnosis("login", f"{url.shown} does not let us in: {said}", fix)


def _diagnose_broker(said: str, url: Url) -> Diagnosis | None:
    """The fault that a broker reported, if it is a known one."""
    if "no worker serves" in said:
        fix = f"start one there: dragoman serve FILE {url.shown}; or check the name in the URL"
        return Diagnosis("no_worker", said, fix, False)
    if _NO_RIGHT.search(said):
        return Diagnosis("denied", said, "let this user of the broker have the rights that the page of the wire names")
    return log_in_at_broker(url, said) if _NO_LOGIN.search(said) else None


def _diagnose_handshake(said: str, url: Url) -> Diagnosis | None:
    """The fault of an endpoint that answers a WebSocket's handshake with HTTP."""
    if (found := _HTTP.search(said)) is None:
        return None
    status = int(found[1])
    if status in (401, 403):
        fix = "give --user NAME:PASSWORD or --bearer TOKEN; its log says whether host name and origin are allowed"
        return Diagnosis("login", said, fix)
    words = _words(url)
    if status in (407, 413, 421, 429) or (status >= 500 and status != 501):
        word, fix = STATUS.get(status) or STATUS[500]
        return Diagnosis(word, said, fix.format(**words))
    return Diagnosis("not_websocket", said, FIXES["not_websocket"].format(**words))


def diagnose_connection(error: BaseException, url: Url) -> Diagnosis:
    """The fault of a connection that failed."""
    reason = error.reason if isinstance(error, ChannelError) else reason_of(error)
    said = str(error) if isinstance(error, ChannelError) else f"cannot connect to {url.shown}: {in_words(error)}"
    if isinstance(error, ChannelError) and url.plain in BROKERS and (fault := _diagnose_broker(said, url)) is not None:
        return fault
    if isinstance(error, ChannelError) and url.plain == "ws" and (fault := _diagnose_handshake(said, url)) is not None:
        return fault
    fix = _fix(reason, url)
    if reason in ("hung_up", "reset") and url.tls:
        fix += "; if it asks for client certificates, give one: --cert FILE"
    return Diagnosis(reason, said, fix, reason not in NO_CONNECTION)


def _fix(reason: Reason, url: Url) -> str:
    return FIXES[reason].format(**_words(url))


def _words(url: Url) -> dict[str, str]:
    secure = "s" if url.tls else ""
    return {
        "host": url.host or "localhost",
        "address": url.address,
        "scheme": url.scheme,
        "plain": url.plain,
        "path": url.path or "/",
        "http": f"http{secure}",
        "ws": f"ws{secure}",
    }


def diagnose_call(error: Exception, url: Url | None, where: str, seconds: float) -> Diagnosis:
    """The fault of a call that had no answer. `seconds`: how long it could wait."""
    if isinstance(error, CallTimeout) or _LATE in str(error):
        return diagnose_silence(where, seconds)
    if isinstance(error, BadAnswer):
        return diagnose_loose_answer(str(error)) or _split_sentence(
            "bad_answer", str(error), "no JSON-RPC server is there, or a faulty one: look into its log"
        )
    if url is not None and any(sign in str(error) for sign in _CUT):
        fix = "the server, or a proxy on the way, ends an answer before its end: compare Content-Length with the body"
        return Diagnosis("cut", str(error), f"{fix}, and look into both logs")
    if url is not None:
        return diagnose_connection(error, url)
    return Diagnosis("hung_up", str(error), "look into the program's own messages", False)


def diagnose_loose_answer(said: str) -> Diagnosis | None:
    """The fault of an answer that is refused, and that `--lenient` accepts; None for any other."""
    found = next((fix for sign, fix in _LOOSE.items() if sign in said), None)
    return None if found is None else Diagnosis("loose", said, f"accept it: --lenient; the server must {found}")


def diagnose_silence(where: str, seconds: float, said: str = "", request: str = "a request") -> Diagnosis:
    """A far end that took a request and has said nothing. `said`: what is known besides."""
    what = f"{where} takes {request} and has not answered within {_seconds(seconds)}{said and '; '}{said}"
    fix = (
        f"if it is slow, give it longer: --timeout {_longer(seconds)}; else check that a JSON-RPC or MCP server is there, "
        "that it is not stuck, and how it separates messages (--framing content-length)"
    )
    return Diagnosis("silent", what, fix, False)


def diagnose_slowness(where: str, seconds: float) -> Diagnosis:
    """A far end whose answer came after the time that it had."""
    what = f"{where} answers, and later than within {_seconds(seconds)}"
    return Diagnosis("slow", what, f"it is slow, not faulty: give it longer, --timeout {_longer(seconds)}", False)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


def _longer(seconds: float) -> str:
    return f"{max(1.0, 3 * seconds):.0f}"


# -- bytes ----------------------------------------------------------------------------------------


class ReplyReader:
    """What a far end sent after one request, as it came."""

    def __init__(self, framing_name: FramingName | None, id: bytes) -> None:
        self.raw: bytes = b""
        self.ended: bool = False
        self._framing = framing(framing_name or "newline", CLIENT)
        self._id = id
        self._lines = framing_name in (None, "newline")
        self.messages: list[bytes | Malformed] = []

    def feed(self, data: bytes) -> None:
        """More bytes."""
        self.raw += data[: 65536 - len(self.raw)]
        self.messages += self._framing.feed(data)

    def end(self) -> None:
        """The far end has finished."""
        self.ended = True
        self.messages += self._framing.end()

    @property
    def answered(self) -> bool:
        """The answer to the request has come, in the framing that is spoken."""
        if self._lines and _HEADER.match(self.raw):
            return False
        return any(self._answers(one) for one in self.messages)

    @property
    def echoed(self) -> bool:
        """The request itself came back."""
        return any(isinstance(message := _read(one), Request) and message.method == "ping" for one in self.messages)

    @property
    def calm(self) -> bool:
        """What came may be followed by the answer: requests, notifications, and the beginning of a message."""
        if self.messages:
            return all(isinstance(_read(one), Request | Notification) for one in self.messages)
        raw = self.raw.lstrip()
        return raw[:1] == b"{" if self._lines else bool(raw)

    @property
    def settled(self) -> bool:
        """Nothing more needs to come."""
        return self.answered or self.echoed

    def _answers(self, one: bytes | Malformed) -> bool:
        message = _read(one)
        return isinstance(message, Result | Failure) and _is(message.id, self._id)

    def noise(self) -> bytes:
        """The first complete text that is not JSON at all; b"" without any."""
        for one in self.messages:
            if isinstance(one, bytes) and one.strip()[:1] not in (b"{", b"["):
                return one
        return b""


_HEADER = re.compile(rb"\s*content-length:", re.I)


def _is(id: object, text: bytes) -> bool:
    return msgspec.json.encode(id) == text


def _read(one: bytes | Malformed) -> Message:
    return one if isinstance(one, Malformed) else decode(one)


def is_whole(raw: bytes) -> bool:
    """Whether a text is a whole message."""
    return not problems(raw)


def diagnose_bytes(reply: ReplyReader, scheme: str, where: str, content_length: bool) -> Diagnosis | None:
    """The fault in what came instead of the answer; None where nothing came but silence or the end."""
    raw = reply.raw.lstrip()
    if not raw:
        return None
    if content_length and raw[:1] in b"{[":
        what = f"{where} sends JSON without Content-Length headers"
        return Diagnosis("framing", what, "leave --framing content-length out: it separates messages by lines")
    if not content_length and (words := recognise_stranger(raw, scheme)) is not None:
        return diagnose_stranger(words, where)
    if reply.echoed:
        fix = "this is not a server: it must send answers, not what it gets"
        return Diagnosis("echo", f"{where} sends the request back", fix)
    if reply.messages and raw[:1] in b"{[" and raw.count(b"\n") > 1 and not problems(raw):
        fix = "each message must stand on one line; else give --framing json"
        return Diagnosis("framing", f"{where} sends a message over several lines", fix)
    for one in reply.messages:
        if (fault := _diagnose_one(one, where)) is not None:
            return fault
    if raw[:1] in b"{[" and not reply.messages and not problems(raw):
        fix = "each message must end with a newline; else give --framing json"
        return Diagnosis("framing", f"{where} answers without the newline that ends a message", fix)
    if reply.messages and all(isinstance(_read(one), Request | Notification) for one in reply.messages):
        fix = "it calls instead of answering: check that it is a server, and that it answers each request (specification 5)"
        return Diagnosis("no_answer", f"{where} sends what answers nothing: {excerpt(raw)}", fix)
    return _diagnose_no_json(raw, where)


def diagnose_stranger(words: str, where: str) -> Diagnosis:
    """The fault of bytes that were recognised."""
    framed = "Content-Length" in words or "as its end" in words
    encoded = any(sign in words for sign in ("byte order", "UTF-16", "gzip"))
    kind = "framing" if framed else "encoding" if encoded else "other_protocol"
    return _split_sentence(kind, f"{where}: {words}", "check the address")


def _diagnose_one(one: bytes | Malformed, where: str) -> Diagnosis | None:
    """What is wrong with one message that is not the answer; None for a request or a notification."""
    message = _read(one)
    if isinstance(message, Failure) and _is(message.id, b"null"):
        return _diagnose_unread(message, where)
    if isinstance(message, Batch):
        return _diagnose_batch(where)
    if isinstance(message, Result | Failure):
        fix = "the server must answer with the id of the request, a number as a number (specification 5)"
        return Diagnosis("wrong_id", f"{where} answers with another id than that of the request", fix)
    if not isinstance(message, Malformed):
        return None
    if not isinstance(one, bytes):
        return Diagnosis(
            "malformed", f"{where}: {message.reason}", "look how the server separates messages (--framing)"
        )
    return diagnose_message(one, where)


def _diagnose_unread(message: Failure, where: str) -> Diagnosis:
    what = f"{where} cannot read the request: {message.error.message} ({message.error.code})"
    return Diagnosis("unread", what, "it may separate messages otherwise (--framing), or speak JSON-RPC 1.0 (--v1)")


def _diagnose_batch(where: str) -> Diagnosis:
    fix = "the server must answer a single request with a single object (specification 6)"
    return Diagnosis("batch", f"{where} answers one request with a batch", fix)


def diagnose_message(raw: bytes, where: str) -> Diagnosis:
    """The fault of text that should be a JSON-RPC message."""
    if isinstance(message := decode(raw), Batch):
        return _diagnose_batch(where)
    if isinstance(message, Result | Failure):
        return _diagnose_one(raw, where) or _diagnose_no_json(raw, where)
    if (words := recognise_stranger(raw, "")) is not None:
        return diagnose_stranger(words, where)
    if raw.strip()[:1] not in (b"{", b"["):
        return _diagnose_no_json(raw, where)
    if isinstance(message, Malformed) and (loose := diagnose_loose_answer(message.reason)) is not None:
        return loose
    found = next((one for one in problems(raw) if one.severity == "error"), None)
    if found is None:
        return Diagnosis(
            "no_answer", f"{where} sends what answers nothing: {excerpt(raw)}", "look into the server's log"
        )
    if b'"jsonrpc"' not in raw and b'"id"' in raw and (b'"result"' in raw or b'"error"' in raw):
        return Diagnosis("version_1", f"{where} answers as JSON-RPC 1.0: {excerpt(raw)}", "speak it: --v1")
    fix = "the server must send JSON-RPC 2.0; dragoman check lists every fault of its messages"
    return Diagnosis("not_jsonrpc", f"{where} sends what is not JSON-RPC: {found.path}: {found.message}", fix)


def _diagnose_no_json(raw: bytes, where: str) -> Diagnosis:
    fix = "check the address: this is not a JSON-RPC server, or it prints what belongs into a log"
    return Diagnosis("not_json", f"{where} sends what is not JSON: {excerpt(raw)}", fix)


def _split_sentence(kind: str, words: str, otherwise: str) -> Diagnosis:
    """A fault of a sentence whose fix stands after the last colon with what to write."""
    for sign in (": write ", ": give ", ": check ", "; write ", "; use "):
        what, mark, fix = words.partition(sign)
        if mark:
            return Diagnosis(kind, what, sign[2:] + fix)
    return Diagnosis(kind, words, otherwise)


# -- HTTP -----------------------------------------------------------------------------------------


def diagnose_reply(status: int, headers: Mapping[str, str], body: bytes, url: Url) -> Diagnosis | None:
    """The fault in an HTTP reply to a POST with a request; None if it carries a JSON-RPC answer, or an event stream."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    where = url.shown
    if 300 <= status < 400:
        return _diagnose_redirect(status, headers.get("location", ""), url)
    if isinstance(answer := decode(body), Failure) and answer.error.code == PARSE_ERROR and _is(answer.id, b"null"):
        return _diagnose_unread(answer, where)
    if isinstance(answer, Failure) or (isinstance(answer, Result) and _is(answer.id, b"1")):
        return None
    if not 200 <= status < 300:
        word, fix = STATUS.get(status) or STATUS[400 if status < 500 else 500]
        said = f": {excerpt(body)}" if body.strip() and b"<" not in body[:20] else ""
        return Diagnosis(word, f"{where} answers HTTP {status}{said}", fix.format(**_words(url)))
    if kind == "text/event-stream":
        return None
    if kind == "text/html" or body.lstrip()[:9].lower() in (b"<!doctype", b"<html>"):
        return Diagnosis("web_page", f"{where} is a web page", "check the path of the URL; MCP is usually at /mcp")
    if (coding := headers.get("content-encoding", "").lower()) not in ("", "identity", "gzip", "deflate"):
        fix = "the server, or a proxy before it, must keep to the request's Accept-Encoding"
        return Diagnosis("encoding", f"{where} sends its answer as {coding}, which was not asked for", fix)
    if not body.strip():
        what = f"{where} answers a call with HTTP {status} and no body"
        return Diagnosis("empty", what, "the server must answer each request that has an id (specification 4)")
    return diagnose_message(body, where)


def diagnose_challenge(
    status: int, challenge: str, url: Url, authorized: bool = False, *, stored: bool = False
) -> Diagnosis | None:
    """The fault of a caller that is not let in; None where a token is required, and none was sent. `authorized`: it
    gave credentials; `stored`: those of `dragoman login`."""
    where = url.shown
    found = {one.scheme.lower(): one.params for one in parse_challenges(challenge)}
    params = found.get("bearer") or found.get("dpop") or {}
    login = f"dragoman login {quote_word(url.bare)}"
    if status == 403 and params.get("error") == "insufficient_scope":
        scopes = params.get("scope", "").split()
        more = "".join(f" --scope {quote_word(printable(one))}" for one in scopes)
        fix = f"get a token with the scope {printable(' '.join(scopes)) or 'that the server names'}: {login}{more}"
        return Diagnosis("scope", f"{where}: the token's scopes do not suffice", fix)
    if status == 403:
        fix = "the server lets this caller in nowhere: check host name, origin and rights (its log says which)"
        return Diagnosis("forbidden", f"{where} answers HTTP 403", fix)
    if authorized:
        why = params.get("error_description") or params.get("error") or "it does not say why"
        fix = "check user, password or token, and whether it has expired; get a new one"
        fix = f"log in again: {login}" if stored else fix
        return Diagnosis("refused_login", f"{where} refuses these credentials (HTTP {status}): {why}", fix)
    if "bearer" in found or "dpop" in found:
        return None
    if "basic" in found or "digest" in found:
        fix = "give --user NAME:PASSWORD, or set DRAGOMAN_USER"
        if "basic" not in found:
            fix = "let the server take Basic or Bearer: Digest is not spoken here"
        return Diagnosis("login", f"{where} answers HTTP {status} and wants a user and a password", fix)
    if found:
        names = ", ".join(found)
        fix = f"give what it wants yourself: --header 'Authorization: {next(iter(found)).title()} ...'"
        return Diagnosis("login", f"{where} answers HTTP {status} and wants a log-in by {printable(names)}", fix)
    fix = "try --bearer TOKEN or --user; the server should say which, by WWW-Authenticate (RFC 9110, 11.6.1)"
    return Diagnosis("no_challenge", f"{where} wants a log-in (HTTP {status}) and does not say which", fix)


def diagnose_failure(error: Exception, url: Url, seconds: float, authorized: bool) -> Diagnosis:
    """The fault of a call or a connection that failed, by the exception that it raised. `authorized`: credentials went
    with it; `seconds`: how long it could wait."""
    status, headers = getattr(error, "status", None), getattr(error, "headers", {})
    if status in (401, 403):
        challenge = getattr(error, "challenge", "") or headers.get("www-authenticate", "")
        return diagnose_challenge(status, challenge, url, authorized) or wants_token(url)
    if isinstance(error, ChannelError) and error.reason == "login":
        return wants_token(url)
    if (
        isinstance(status, int)
        and (found := diagnose_reply(status, headers, getattr(error, "body", b""), url)) is not None
    ):
        return found
    return diagnose_call(error, url, url.shown, seconds)


def wants_token(url: Url, issuer: str = "") -> Diagnosis:
    """The fault of a caller without a token."""
    fix = f"log in{f' at {issuer}' if issuer else ''}: dragoman login {quote_word(url.bare)}"
    return Diagnosis(
        "login", f"{url.shown} wants a token", f"{fix}; or give one: --bearer TOKEN, or set DRAGOMAN_BEARER"
    )


def _diagnose_redirect(status: int, location: str, url: Url) -> Diagnosis:
    """The fault of a redirection: redirections are not followed, because a POST may become a GET, and keys leak."""
    if not location:
        fix = "the server must name another place by Location, or answer here"
        return Diagnosis("redirect", f"{url.shown} redirects to nowhere (HTTP {status} without Location)", fix)
    there = urljoin(url.shown, location)
    if there == url.shown or (url.path in ("", "/") and there == f"{url.shown}/"):
        fix = "the server must answer there instead: look for a proxy's rule about slashes, https or host names"
        return Diagnosis("redirect", f"{url.shown} redirects to itself (HTTP {status})", fix)
    return Diagnosis("redirect", f"{url.shown} redirects to {there} (HTTP {status})", f"write {there} for {url.shown}")
