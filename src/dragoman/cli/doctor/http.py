"""The steps over HTTP: one POST, the door of authentication, and its well-known documents."""

from __future__ import annotations

from collections.abc import Mapping

from ...auth.challenge import parsed
from ...auth.metadata import MetadataRefused, ProtectedResource, decoded, resource_locations
from ...channel import Broken, Options
from ...jsonrpc.codec import decode
from ...jsonrpc.errors import BadAnswer
from ...jsonrpc.limits import CLIENT
from ...jsonrpc.messages import Failure, Result
from ...net.urls import Url, parse
from ...transports.http.client.pool import Pool
from ..advice import speaks_tls, with_tls
from ..options import Access
from .naming import of_call, of_reply
from .record import Fault, Faulty, Record
from .sockets import REQUEST, patience

ACCEPT = "application/json, text/event-stream"
LONGEST = 1024 * 1024
"""Bytes of a document that are read."""
OFTEN = ("/mcp", "/rpc", "/")
"""Paths at which an endpoint usually is."""
DOUBTFUL = frozenset(("bad_request", "not_found", "no_post", "not_acceptable", "media_type", "empty", "server_error"))
"""Faults of the first POST that a server of an older revision of MCP has too, which wants another beginning."""


async def examine(url: Url, access: Access, record: Record) -> Fault | None:
    """POST a request. Returns a fault that a server of an older era may have without being faulty. Raises Faulty."""
    options = Options(limits=CLIENT, client_tls=access.tls(), headers=access.headers(), auth=access.auth())
    pool = Pool(url, options, ACCEPT)
    try:
        with record.step("http") as step:
            status, headers, body = await _post(pool, url, access)
            step.said = f"HTTP {status}"
            fault = of_reply(status, headers, body, url)
            if fault is not None and status not in (401, 403) and fault.kind not in DOUBTFUL:
                raise Faulty(fault)
            if fault is not None and fault.kind in ("not_found", "no_post"):
                fault = await _elsewhere(pool, url, access, fault)
        if status in (401, 403):
            await _door(pool, url, access, record, status, headers)
        return fault
    finally:
        await pool.close()


async def _post(pool: Pool, url: Url, access: Access) -> tuple[int, Mapping[str, str], bytes]:
    try:
        return await _asked(pool, "POST", REQUEST, access)
    except (Broken, BadAnswer) as error:
        if isinstance(error, Broken) and not url.tls and error.reason == "hung_up" and await speaks_tls(url):
            mend = f"write {with_tls(url.scheme)}:// for {url.scheme}://"
            raise Faulty(Fault("other_protocol", f"{url.address} speaks TLS", mend)) from None
        if "did not answer within" in str(error):
            mend = "check that the server is not stuck, and that no proxy on the way holds the answer back"
            raise Faulty(Fault("silent", f"{url.shown} takes a request and does not answer", mend, False)) from None
        raise Faulty(of_call(error, url, url.shown)) from None


async def _asked(
    pool: Pool, method: str, body: bytes | None, access: Access, target: str | None = None
) -> tuple[int, Mapping[str, str], bytes]:
    reply = await pool.ask(method, body, target=target, timeout=patience(access))
    try:
        if reply.kind == "text/event-stream":
            return reply.status, reply.headers, b""
        return reply.status, reply.headers, await reply.body(LONGEST)
    finally:
        reply.close()


async def _elsewhere(pool: Pool, url: Url, access: Access, fault: Fault) -> Fault:
    """The fault of a wrong path, with the path at which an endpoint answers."""
    for path in OFTEN:
        if path == url.path:
            continue
        try:
            _, _, body = await _asked(pool, "POST", REQUEST, access, path)
        except (Broken, BadAnswer):
            break
        if isinstance(decode(body), Result | Failure):
            there = f"{url.scheme}://{url.address}{path if path != '/' else ''}"
            return Fault(fault.kind, fault.what, f"an endpoint answers at {there}: write that", fault.answers)
    return fault


# -- the door -------------------------------------------------------------------------------------


async def _door(pool: Pool, url: Url, access: Access, record: Record, status: int, headers: Mapping[str, str]) -> None:
    """The step that finds out what a caller needs to be let in. Raises Faulty."""
    challenge = headers.get("www-authenticate", "")
    challenges = parsed(challenge)
    asked = next((one for one in challenges if one.of("bearer")), challenges[0] if challenges else None)
    params = {} if asked is None else asked.params
    with record.step("authentication") as step:
        step.said = challenge or "no challenge"
        if status == 403:
            raise Faulty(_forbidden(url, params))
        if access.auth() is not None or any(name.lower() == "authorization" for name in access.headers()):
            why = params.get("error_description") or params.get("error") or "it does not say why"
            mend = "check user, password or token, and whether it has expired; get a new one"
            raise Faulty(Fault("refused_login", f"{url.shown} refuses these credentials: {why}", mend))
        if not challenge:
            mend = "try --bearer TOKEN or --user; the server should say which, by WWW-Authenticate (RFC 9110, 11.6.1)"
            raise Faulty(Fault("no_challenge", f"{url.shown} wants a log-in and does not say which", mend))
        if asked is not None and asked.of("basic"):
            mend = "give --user NAME:PASSWORD, or set DRAGOMAN_USER"
            raise Faulty(Fault("login", f"{url.shown} wants a user and a password", mend))
    issuer = await _issuer(pool, url, access, record, params.get("resource_metadata"))
    mend = f"give a token{f' of {issuer}' if issuer else ''}: --bearer TOKEN, or set DRAGOMAN_BEARER"
    record.steps[-1].ok = False
    record.fault = Fault("login", f"{url.shown} wants a token", mend)
    raise Faulty(record.fault)


def _forbidden(url: Url, params: Mapping[str, str]) -> Fault:
    if params.get("error") == "insufficient_scope":
        mend = f"get a token with the scope {params.get('scope') or 'that the server names'}"
        return Fault("scope", f"{url.shown}: the token's scopes do not suffice", mend)
    mend = "the server lets this caller in nowhere: check host name, origin and rights (its log says which)"
    return Fault("forbidden", f"{url.shown} answers HTTP 403", mend)


async def _issuer(pool: Pool, url: Url, access: Access, record: Record, named: str | None) -> str:
    """The authorization server of the well-known document; "" if there is no document and none was named."""
    places = [_target(place, url) for place in (resource_locations(url.bare) if named is None else [named])]
    with record.step("well-known") as step:
        for place in places:
            if place is None:
                step.said = f"{named} is at another origin, which is not asked"
                return ""
            try:
                status, _, body = await _asked(pool, "GET", None, access, place)
            except (Broken, BadAnswer) as error:
                raise Faulty(of_call(error, url, url.shown)) from None
            if status == 200:
                step.said = place
                return _read(body, place, url)
        if named is None:
            step.said = "none"
            return ""
        mend = "serve the metadata of the protected resource there (RFC 9728), or correct resource_metadata"
        raise Faulty(Fault("no_metadata", f"WWW-Authenticate names {named}, where nothing is", mend))


def _target(named: str, url: Url) -> str | None:
    there = parse(named)
    return there.target if (there.scheme, there.host, there.port) == (url.scheme, url.host, url.port) else None


def _read(body: bytes, place: str, url: Url) -> str:
    """The first authorization server. Raises Faulty for a document that a client cannot use."""
    try:
        found = decoded(body, ProtectedResource, place)
    except MetadataRefused as error:
        mend = "it must be a JSON object with resource and authorization_servers (RFC 9728, section 2)"
        raise Faulty(Fault("bad_metadata", str(error), mend)) from None
    if not url.bare.startswith(found.resource.rstrip("/")):
        mend = f"let it name this one: {url.bare} (RFC 9728, section 3.3)"
        raise Faulty(Fault("other_resource", f"{place} is about another resource, {found.resource}", mend))
    if not found.authorization_servers:
        mend = "let it list authorization_servers, or clients cannot find out where to log in"
        raise Faulty(Fault("bad_metadata", f"{place} names no authorization server", mend))
    return found.authorization_servers[0]
