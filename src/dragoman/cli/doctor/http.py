"""The steps over HTTP: one POST, the door of authentication, and its well-known documents."""

from __future__ import annotations

import shlex
import ssl
from collections.abc import Mapping
from contextlib import nullcontext
from urllib.parse import urljoin

from msgspec import Struct

from ...auth.challenge import parse_challenges
from ...auth.metadata import (
    MetadataRefused,
    ProtectedResource,
    check_document_resource,
    decode_document,
    resource_locations,
)
from ...channel import Broken, ChannelError, Options
from ...jsonrpc.codec import decode
from ...jsonrpc.errors import BadAnswer, LocalError
from ...jsonrpc.framing import FramingName
from ...jsonrpc.limits import CLIENT
from ...jsonrpc.messages import Failure, Result
from ...net.replies import excerpt
from ...net.urls import Url, parse, printable
from ...transports.http.client.pool import Pool
from ..advice import speaks_tls, with_tls
from ..auth.on_demand import on_demand
from ..faults import of_call, of_challenge, of_reply, wants_token
from ..options import Access
from .record import Fault, Faulty, Patience, Record
from .sockets import REQUEST, lines_at

ACCEPT = "application/json, text/event-stream"
LONGEST = 1024 * 1024
"""Bytes of a document that are read."""
OFTEN = ("/mcp", "/rpc", "/")
"""Paths at which an endpoint usually is."""
DOUBTFUL = frozenset(("bad_request", "not_found", "no_post", "not_acceptable", "media_type", "empty", "server_error"))
"""Faults of the first POST that a server of an older revision of MCP has too, which wants another beginning."""


async def examine(url: Url, access: Access, record: Record, patience: Patience) -> Fault | None:
    """POST a request. Returns a fault that a server of an older era may have without being faulty. Raises Faulty."""
    options = Options(limits=CLIENT, client_tls=access.tls(), headers=access.headers(), auth=access.auth())
    pool = Pool(url, options, ACCEPT)
    asking = Asking(pool, url, access, patience)
    try:
        with record.step("http") as step:
            await asking.log_in()
            status, headers, body = await _post(asking)
            step.said = f"HTTP {status}"
            fault = of_reply(status, headers, body, url)
            if fault is not None and status not in (401, 403) and fault.kind not in DOUBTFUL:
                raise Faulty(fault)
            if fault is not None and fault.kind in ("not_found", "no_post"):
                fault = await _elsewhere(asking, fault)
            if fault is not None and status not in (401, 403):
                step.said += " to a ping, as some servers of MCP answer before a session begins"
        if status in (401, 403):
            await _door(asking, record, status, headers)
        return fault
    finally:
        await pool.close()


class Asking(Struct):
    """Requests to one server."""

    pool: Pool
    url: Url
    access: Access
    patience: Patience
    token: dict[str, str] = {}
    """The fields of the login that `dragoman login` has stored."""

    async def log_in(self) -> None:
        """Use a stored login, if there is one and the user gave nothing else. Raises Faulty."""
        whole = f"{self.url.scheme}://{self.url.address}{self.url.target}"
        stored = (
            None
            if self.access.auth() is not None
            else on_demand(whole, self.access.headers(), self.access.account, False)
        )
        if stored is None:
            return
        try:
            attempt = stored.authorizing(whole, self.access.tls()).begin("doctor", nullcontext)
            self.token = dict(await attempt.fields("POST", whole))
        except ChannelError as error:
            mend = f"log in again: dragoman login {shlex.quote(self.url.bare)}"
            raise Faulty(Fault("login", f"the stored login cannot be used: {error}", mend)) from None

    async def ask(
        self, method: str, body: bytes | None, target: str | None = None, accept: str | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, header fields and body of a reply. Raises Broken, BadAnswer."""
        fields = self.token | ({"accept": accept} if accept is not None else {})
        reply = await self.pool.ask(method, body, fields, target=target, timeout=self.patience.left)
        try:
            if reply.kind == "text/event-stream":
                return reply.status, reply.headers, b""
            return reply.status, reply.headers, await reply.body(LONGEST)
        finally:
            reply.close()

    @property
    def authorized(self) -> bool:
        """Whether requests carry credentials."""
        given = any(name.lower() == "authorization" for name in self.access.headers())
        return given or self.access.auth() is not None or bool(self.token)


async def _post(asking: Asking) -> tuple[int, Mapping[str, str], bytes]:
    url, patience = asking.url, asking.patience
    try:
        return await asking.ask("POST", REQUEST)
    except (Broken, BadAnswer) as error:
        fault = of_call(error, url, url.shown, patience.total)
        if fault.kind == "hung_up" and not url.tls and await speaks_tls(url, patience.look):
            mend = f"write {with_tls(url.scheme)}:// for {url.scheme}://"
            raise Faulty(Fault("other_protocol", f"{url.address} speaks TLS", mend)) from None
        if fault.kind in ("hung_up", "silent") and (way := await _lines(asking)) is not None:
            mend = f"write {'tls' if url.tls else 'tcp'}:// for {url.scheme}://"
            more = " and give --framing content-length" if way == "content-length" else ""
            raise Faulty(Fault("other_protocol", f"{url.address} answers without HTTP", mend + more)) from None
        if fault.kind == "silent":
            mend = (
                f"if a proxy is on the way, see whether it holds the answer back; {fault.mend.partition(' (--fr')[0]}"
            )
            fault = Fault("silent", fault.what, mend, False)
        raise Faulty(fault) from None


async def _lines(asking: Asking) -> FramingName | None:
    tls = (asking.access.tls() or ssl.create_default_context()) if asking.url.tls else None
    return await lines_at(asking.url, tls, asking.patience)


async def _elsewhere(asking: Asking, fault: Fault) -> Fault:
    """The fault of a wrong path, with the path at which an endpoint answers."""
    url = asking.url
    for path in OFTEN:
        if path == url.path:
            continue
        try:
            _, _, body = await asking.ask("POST", REQUEST, path)
        except (Broken, BadAnswer):
            break
        if isinstance(decode(body), Result | Failure):
            there = f"{url.scheme}://{url.address}{path if path != '/' else ''}"
            return Fault(fault.kind, fault.what, f"an endpoint answers at {there}: write that", fault.answers)
    return fault


async def without_a_session(url: Url, access: Access, doubt: Fault, patience: Patience) -> Fault:
    """The fault of an endpoint at which no session could be begun, by what a GET gives: HTTP+SSE of 2024-11-05 begins
    by one, and many such servers have one client for ever."""
    if doubt.kind not in ("not_found", "no_post", "bad_request", "server_error"):
        return doubt
    pool = Pool(
        url, Options(limits=CLIENT, client_tls=access.tls(), headers=access.headers(), auth=access.auth()), ACCEPT
    )
    try:
        asking = Asking(pool, url, access, patience)
        await asking.log_in()
        status, headers, body = await asking.ask("GET", None, accept="text/event-stream")
    except (Broken, BadAnswer, Faulty):
        return doubt
    finally:
        await pool.close()
    if headers.get("content-type", "").startswith("text/event-stream"):
        what = f"{url.shown} is an endpoint of HTTP+SSE, the oldest wire of MCP, and begins no session with us"
    elif url.path.endswith("/sse") and status not in (404, 405):
        said = f": {excerpt(body)}" if body.strip() else ""
        what = f"{url.shown} answers HTTP {status} to the GET that begins a session of HTTP+SSE{said}"
    elif url.path.endswith("/sse"):
        what = f"{url.shown} answers HTTP {status} to GET, too"
    else:
        return doubt
    mend = (
        "it may serve one client only, and have one: end that, or start the server again; see whether it has /mcp, too"
    )
    return Fault("sse", what, mend)


# -- the door -------------------------------------------------------------------------------------


async def _door(asking: Asking, record: Record, status: int, headers: Mapping[str, str]) -> None:
    """The step that finds out what a caller needs to be let in. Raises Faulty."""
    url = asking.url
    challenge = headers.get("www-authenticate", "")
    challenges = parse_challenges(challenge)
    asked = next((one for one in challenges if one.of("bearer") or one.of("dpop")), None)
    params = {} if asked is None else asked.params
    with record.step("authentication") as step:
        step.said = challenge or "no challenge"
        fault = of_challenge(status, challenge, url, asking.authorized, stored=bool(asking.token))
        if fault is not None:
            raise Faulty(fault)
    issuer = await _issuer(asking, record, params.get("resource_metadata"))
    record.fail(wants_token(url, issuer))
    assert record.fault is not None
    raise Faulty(record.fault)


async def _issuer(asking: Asking, record: Record, named: str | None) -> str:
    """The authorization server of the well-known document; "" if there is no document and none was named."""
    url = asking.url
    with record.step("well-known") as step:
        places = resource_locations(url.bare) if named is None else [_joined(url, named)]
        for place in places:
            target = _target(place, url)
            if target is None:
                step.said = f"{named} is at another origin, which is not asked"
                return ""
            try:
                status, _, body = await asking.ask("GET", None, target)
            except (Broken, BadAnswer) as error:
                raise Faulty(of_call(error, url, url.shown, asking.patience.total)) from None
            if status == 200:
                step.said = place
                return _read(body, place, url)
        if named is None:
            step.said = "none"
            return ""
        mend = "serve the metadata of the protected resource there (RFC 9728), or correct resource_metadata"
        raise Faulty(Fault("no_metadata", f"WWW-Authenticate names {named}, where nothing is", mend))


def _joined(url: Url, named: str) -> str:
    """Where the metadata is; clients join a relative URL with that of the resource. Raises Faulty."""
    try:
        there = urljoin(url.bare, named)
        parse(there)
    except (LocalError, ValueError):
        mend = "let resource_metadata be the whole URL of the document (RFC 9728, section 5.1)"
        what = f"WWW-Authenticate names {printable(named)} as resource_metadata, which is no URL"
        raise Faulty(Fault("no_metadata", what, mend)) from None
    return there


def _target(named: str, url: Url) -> str | None:
    there = parse(named)
    return there.target if (there.scheme, there.host, there.port) == (url.scheme, url.host, url.port) else None


def _read(body: bytes, place: str, url: Url) -> str:
    """The first authorization server, by the checks of a login. Raises Faulty for what a client cannot use."""
    try:
        found = decode_document(body, ProtectedResource, place)
    except MetadataRefused as error:
        mend = "it must be a JSON object with resource and authorization_servers (RFC 9728, section 2)"
        raise Faulty(Fault("bad_metadata", str(error), mend)) from None
    try:
        check_document_resource(found, url.bare)
    except MetadataRefused as error:
        mend = f"let it name this one: {url.bare} (RFC 9728, section 3.3)"
        raise Faulty(Fault("other_resource", f"{place} is about another resource: {error}", mend)) from None
    if not found.authorization_servers:
        mend = "let it list authorization_servers, or clients cannot find out where to log in"
        raise Faulty(Fault("bad_metadata", f"{place} names no authorization server", mend))
    return found.authorization_servers[0]
