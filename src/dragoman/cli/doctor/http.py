"""The steps over HTTP: one POST, the door of authentication, and its well-known documents."""

from __future__ import annotations

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
from ...system.words import quote_word
from ...transports.http.client.pool import Pool
from ..advice import speaks_tls, with_tls
from ..auth.on_demand import on_demand
from ..faults import diagnose_call, diagnose_challenge, diagnose_reply, wants_token
from ..options import AccessOptions
from .record import Diagnosis, Examination, FaultFound, Patience
from .sockets import REQUEST, find_framing

ACCEPT = "application/json, text/event-stream"
LONGEST = 1024 * 1024
"""Bytes of a document that are read."""
OFTEN = ("/mcp", "/rpc", "/")
"""Paths at which an endpoint usually is."""
DOUBTFUL = frozenset(("bad_request", "not_found", "no_post", "not_acceptable", "media_type", "empty", "server_error"))
"""Faults of the first POST that a server of an older revision of MCP has too, which wants another beginning."""


async def examine(url: Url, access: AccessOptions, record: Examination, patience: Patience) -> Diagnosis | None:
    """POST a request. Returns a fault that a server of an older era may have without being faulty. Raises
    FaultFound."""
    options = Options(limits=CLIENT, client_tls=access.tls(), headers=access.headers(), auth=access.auth())
    pool = Pool(url, options, ACCEPT)
    probe = HttpProbe(pool, url, access, patience)
    try:
        with record.step("http") as step:
            await probe.log_in()
            status, headers, body = await _post(probe)
            step.said = f"HTTP {status}"
            fault = diagnose_reply(status, headers, body, url)
            if fault is not None and status not in (401, 403) and fault.kind not in DOUBTFUL:
                raise FaultFound(fault)
            if fault is not None and fault.kind in ("not_found", "no_post"):
                fault = await _other_path(probe, fault)
            if fault is not None and status not in (401, 403):
                step.said += " to a ping, as some servers of MCP answer before a session begins"
        if status in (401, 403):
            await _examine_login(probe, record, status, headers)
        return fault
    finally:
        await pool.close()


class HttpProbe(Struct):
    """Requests to one server."""

    pool: Pool
    url: Url
    access: AccessOptions
    patience: Patience
    token: dict[str, str] = {}
    """The fields of the login that `dragoman login` has stored."""

    async def log_in(self) -> None:
        """Use a stored login, if there is one and the user gave nothing else. Raises FaultFound."""
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
            fix = f"log in again: dragoman login {quote_word(self.url.bare)}"
            raise FaultFound(Diagnosis("login", f"the stored login cannot be used: {error}", fix)) from None

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


async def _post(probe: HttpProbe) -> tuple[int, Mapping[str, str], bytes]:
    url, patience = probe.url, probe.patience
    try:
        return await probe.ask("POST", REQUEST)
    except (Broken, BadAnswer) as error:
        fault = diagnose_call(error, url, url.shown, patience.total)
        if fault.kind == "hung_up" and not url.tls and await speaks_tls(url, patience.look):
            fix = f"write {with_tls(url.scheme)}:// for {url.scheme}://"
            raise FaultFound(Diagnosis("other_protocol", f"{url.address} speaks TLS", fix)) from None
        if fault.kind in ("hung_up", "silent") and (way := await _lines(probe)) is not None:
            fix = f"write {'tls' if url.tls else 'tcp'}:// for {url.scheme}://"
            more = " and give --framing content-length" if way == "content-length" else ""
            raise FaultFound(Diagnosis("other_protocol", f"{url.address} answers without HTTP", fix + more)) from None
        if fault.kind == "silent":
            fix = f"if a proxy is on the way, see whether it holds the answer back; {fault.fix.partition(' (--fr')[0]}"
            fault = Diagnosis("silent", fault.what, fix, False)
        raise FaultFound(fault) from None


async def _lines(probe: HttpProbe) -> FramingName | None:
    tls = (probe.access.tls() or ssl.create_default_context()) if probe.url.tls else None
    return await find_framing(probe.url, tls, probe.patience)


async def _other_path(probe: HttpProbe, fault: Diagnosis) -> Diagnosis:
    """The fault of a wrong path, with the path at which an endpoint answers."""
    url = probe.url
    for path in OFTEN:
        if path == url.path:
            continue
        try:
            _, _, body = await probe.ask("POST", REQUEST, path)
        except (Broken, BadAnswer):
            break
        if isinstance(decode(body), Result | Failure):
            there = f"{url.scheme}://{url.address}{path if path != '/' else ''}"
            return Diagnosis(fault.kind, fault.what, f"an endpoint answers at {there}: write that", fault.answers)
    return fault


async def without_a_session(url: Url, access: AccessOptions, doubt: Diagnosis, patience: Patience) -> Diagnosis:
    """The fault of an endpoint at which no session could be begun, by what a GET gives: HTTP+SSE of 2024-11-05 begins
    by one, and many such servers have one client for ever."""
    if doubt.kind not in ("not_found", "no_post", "bad_request", "server_error"):
        return doubt
    pool = Pool(
        url, Options(limits=CLIENT, client_tls=access.tls(), headers=access.headers(), auth=access.auth()), ACCEPT
    )
    try:
        probe = HttpProbe(pool, url, access, patience)
        await probe.log_in()
        status, headers, body = await probe.ask("GET", None, accept="text/event-stream")
    except (Broken, BadAnswer, FaultFound):
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
    fix = (
        "it may serve one client only, and have one: end that, or start the server again; see whether it has /mcp, too"
    )
    return Diagnosis("sse", what, fix)


# -- the door -------------------------------------------------------------------------------------


async def _examine_login(probe: HttpProbe, record: Examination, status: int, headers: Mapping[str, str]) -> None:
    """The step that finds out what a caller needs to be let in. Raises FaultFound."""
    url = probe.url
    challenge = headers.get("www-authenticate", "")
    challenges = parse_challenges(challenge)
    bearer = next((one for one in challenges if one.of("bearer") or one.of("dpop")), None)
    params = {} if bearer is None else bearer.params
    with record.step("authentication") as step:
        step.said = challenge or "no challenge"
        fault = diagnose_challenge(status, challenge, url, probe.authorized, stored=bool(probe.token))
        if fault is not None:
            raise FaultFound(fault)
    issuer = await _issuer(probe, record, params.get("resource_metadata"))
    record.fail(wants_token(url, issuer))
    assert record.fault is not None
    raise FaultFound(record.fault)


async def _issuer(probe: HttpProbe, record: Examination, named: str | None) -> str:
    """The authorization server of the well-known document; "" if there is no document and none was named."""
    url = probe.url
    with record.step("well-known") as step:
        urls = resource_locations(url.bare) if named is None else [_join(url, named)]
        for where in urls:
            target = _target(where, url)
            if target is None:
                step.said = f"{named} is at another origin, which is not asked"
                return ""
            try:
                status, _, body = await probe.ask("GET", None, target)
            except (Broken, BadAnswer) as error:
                raise FaultFound(diagnose_call(error, url, url.shown, probe.patience.total)) from None
            if status == 200:
                step.said = where
                return _read(body, where, url)
        if named is None:
            step.said = "none"
            return ""
        fix = "serve the metadata of the protected resource there (RFC 9728), or correct resource_metadata"
        raise FaultFound(Diagnosis("no_metadata", f"WWW-Authenticate names {named}, where nothing is", fix))


def _join(url: Url, named: str) -> str:
    """Where the metadata is; clients join a relative URL with that of the resource. Raises FaultFound."""
    try:
        there = urljoin(url.bare, named)
        parse(there)
    except (LocalError, ValueError):
        fix = "let resource_metadata be the whole URL of the document (RFC 9728, section 5.1)"
        what = f"WWW-Authenticate names {printable(named)} as resource_metadata, which is no URL"
        raise FaultFound(Diagnosis("no_metadata", what, fix)) from None
    return there


def _target(named: str, url: Url) -> str | None:
    there = parse(named)
    return there.target if (there.scheme, there.host, there.port) == (url.scheme, url.host, url.port) else None


def _read(body: bytes, where: str, url: Url) -> str:
    """The first authorization server, by the checks of a login. Raises FaultFound for what a client cannot use."""
    try:
        found = decode_document(body, ProtectedResource, where)
    except MetadataRefused as error:
        fix = "it must be a JSON object with resource and authorization_servers (RFC 9728, section 2)"
        raise FaultFound(Diagnosis("bad_metadata", str(error), fix)) from None
    try:
        check_document_resource(found, url.bare)
    except MetadataRefused as error:
        fix = f"let it name this one: {url.bare} (RFC 9728, section 3.3)"
        raise FaultFound(Diagnosis("other_resource", f"{where} is about another resource: {error}", fix)) from None
    if not found.authorization_servers:
        fix = "let it list authorization_servers, or clients cannot find out where to log in"
        raise FaultFound(Diagnosis("bad_metadata", f"{where} names no authorization server", fix))
    return found.authorization_servers[0]
