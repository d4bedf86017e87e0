"""Fetches what an authorization flow needs, only from hosts that are allowed, and within bounds.

Rules:

- https alone; plain http on loopback, where the operator wrote the URL, or the resource itself is on loopback.
- A host that the operator or user wrote may be private (a company's issuer). A host that a *document* named may not,
  unless the document came from that very origin, or the host is in `allow_private`. Link-local addresses (a cloud's
  metadata), multicast and unspecified ones never.
- Addresses are checked after the name was resolved, *all* of them, and the connection goes to an address that was
  checked, so that a second answer of the DNS changes nothing. Each hop of a redirect is checked anew, as a document's.
- Size, time and redirects are bounded. Cookies and the environment's credentials are not used; its proxies only by
  choice, since behind a proxy the address cannot be checked.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Collection, Mapping
from typing import Any, Literal
from urllib.parse import urlencode, urljoin, urlsplit

import msgspec
from msgspec import Struct

from ..channel import Broken, Options
from ..jsonrpc.errors import BadAnswer, LocalError
from ..net.address_kinds import kind_of
from ..net.scheme import missing_package_error
from ..net.urls import Url, mask_url, parse, printable
from .errors import AuthError
from .metadata import origin_of
from .urls import is_loopback

try:
    from ..transports.http.client.pool import Pool
except ModuleNotFoundError as missing:
    raise missing_package_error("http", missing) from missing

LIMIT = 256 * 1024
"""Bytes of an answer: a JWKS of a hundred keys has 100 KB."""
TIMEOUT = 10.0
"""Seconds for one answer with all its hops: a person may be waiting for it."""
REDIRECTS = 3
"""Redirects that are followed: one to the host with www, one to https, and one more."""
ADDRESSES = 8
"""Addresses of one name that are tried."""

By = Literal["operator", "document"]


class FetchRefused(AuthError):
    """The rules forbid fetching this URL. Nothing was sent."""


class FetchFailed(AuthError):
    """There was no complete answer: there was no connection, or it took too long, or the answer was too large."""

    def __init__(self, text: str, *, sent: bool = False) -> None:
        super().__init__(text)
        self.sent = sent
        """Whether the request may have been received, and carried out."""


class Fetched(Struct, frozen=True):
    """An answer."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    url: str = ""
    """The URL that answered, after redirects."""

    @property
    def json(self) -> Any:
        """The body as JSON, None if it is not JSON."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None


def as_fetched(answer: Any) -> Fetched:
    """Return the answer of any fetcher, a user's too, as a `Fetched`."""
    return answer if isinstance(answer, Fetched) else Fetched(answer.status, answer.headers, answer.body)


class Fetcher:
    """Fetches documents and posts forms by the rules above.

    `allow_private`: host names that may have private addresses, no matter who names them. `trusted_hosts`: if not
    empty, a document may name these hosts alone. `environment_proxies`: use HTTPS_PROXY and its like. `tls`: an
    `ssl.SSLContext`; None: the system's. `timeout`: seconds; `limit`: bytes of a body.
    """

    def __init__(
        self,
        *,
        allow_private: Collection[str] = (),
        trusted_hosts: Collection[str] = (),
        environment_proxies: bool = False,
        tls: ssl.SSLContext | None = None,
        timeout: float = TIMEOUT,
        limit: int = LIMIT,
    ) -> None:
        self._private = frozenset(host.lower() for host in allow_private)
        self._trusted = frozenset(host.lower() for host in trusted_hosts)
        self._proxies = environment_proxies
        self._tls = tls
        self._timeout = timeout
        self._limit = limit

    def __repr__(self) -> str:
        return f"Fetcher(allow_private={sorted(self._private)}, trusted_hosts={sorted(self._trusted)})"

    async def get(
        self,
        url: str,
        *,
        by: By = "document",
        origin: str | None = None,
        headers: Mapping[str, str] | None = None,
        redirects: int = REDIRECTS,
        limit: int | None = None,
    ) -> Fetched:
        """GET `url`. `by`: who wrote it; `origin`: the URL of the document that named it, or of the resource that it
        is fetched for; `limit`: bytes of the body; None: the fetcher's own. Raises FetchRefused, FetchFailed."""
        try:
            async with asyncio.timeout(self._timeout):
                for _ in range(redirects + 1):
                    got = await self._request("GET", url, by, origin, {"accept": "application/json", **(headers or {})})
                    target = got.headers.get("location")
                    if got.status not in (301, 302, 303, 307, 308) or not target or not redirects:
                        return got
                    url, by, headers = _redirect_target(url, target), "document", None
        except TimeoutError:
            raise FetchFailed(f"{_shown(url)} did not answer within {self._timeout:g} s", sent=True) from None
        raise FetchFailed(f"{_shown(url)}: more than {redirects} redirects")

    async def post_form(
        self,
        url: str,
        form: Mapping[str, str],
        *,
        by: By = "document",
        origin: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Fetched:
        """POST a form to `url`; redirects are not followed. Raises FetchRefused, FetchFailed."""
        kind = {"content-type": "application/x-www-form-urlencoded"}
        return await self._post(url, urlencode(form).encode(), by, origin, kind | dict(headers or {}))

    async def post_json(
        self,
        url: str,
        content: Any,
        *,
        by: By = "document",
        origin: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Fetched:
        """POST `content` as JSON to `url`; redirects are not followed. Raises FetchRefused, FetchFailed."""
        kind = {"content-type": "application/json"}
        return await self._post(url, msgspec.json.encode(content), by, origin, kind | dict(headers or {}))

    async def _post(self, url: str, body: bytes, by: By, origin: str | None, headers: dict[str, str]) -> Fetched:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._request("POST", url, by, origin, {"accept": "application/json", **headers}, body)
        except TimeoutError:
            raise FetchFailed(f"{_shown(url)} did not answer within {self._timeout:g} s", sent=True) from None

    # -- one request

    async def _request(
        self, method: str, url: str, by: By, origin: str | None, headers: dict[str, str], body: bytes | None = None
    ) -> Fetched:
        target = self._parse(url, by, origin)
        through = _proxy_of(target) if self._proxies else None
        try:
            addresses = await _resolve(target)
        except FetchFailed:
            if through is None:
                raise
            addresses = []  # a network whose names the proxy alone can resolve
        for address in addresses:
            self._check_address(target, address, by, origin)
        if through is not None:
            how = self._tls, self._timeout, self._limit
            return await asyncio.to_thread(_fetch_through, through, method, url, headers, body, *how)
        why: Exception = FetchFailed(f"{target}: its name has no address")
        for address in addresses[:ADDRESSES]:
            try:
                return await self._send(target, address, method, url, headers, body)
            except Broken as error:
                if error.__cause__ is None:  # it was connected: the request may have run
                    raise FetchFailed(f"{_shown(url)}: {error}", sent=True) from error
                why = error
        raise FetchFailed(f"{_shown(url)}: {why}") from why

    async def _send(
        self, target: Url, address: str, method: str, url: str, headers: dict[str, str], body: bytes | None
    ) -> Fetched:
        pool = Pool(target, Options(client_tls=self._tls), "application/json", address=address)
        try:
            reply = await pool.ask(method, body, headers)
            try:
                content = await reply.body(self._limit)
            except Broken as error:
                raise FetchFailed(f"{_shown(url)}: {error}", sent=True) from error
            return Fetched(reply.status, dict(reply.headers), content, url)
        except BadAnswer as error:
            raise FetchFailed(f"{_shown(url)}: {error}", sent=True) from error
        finally:
            await pool.close()

    # -- the rules

    def _parse(self, url: str, by: By, origin: str | None) -> Url:
        """Return the URL, if its text is allowed. Raises FetchRefused."""
        try:
            target = parse(url)
        except (LocalError, ValueError) as error:
            raise FetchRefused(f"{_shown(url)} is not fetched: {error}") from None
        if target.scheme not in ("https", "http") or not target.host:
            raise FetchRefused(f"{_shown(url)} is not fetched: only https URLs are")
        if target.user is not None:
            raise FetchRefused(f"{_shown(url)} is not fetched: it has a user or password in it")
        if by == "document" and self._trusted and target.host.lower() not in self._trusted:
            raise FetchRefused(f"{_shown(url)} is not fetched: {target.host} is not among the trusted hosts")
        # "All authorization server endpoints MUST be served over HTTPS"
        if target.scheme == "http" and not is_loopback(target.host):
            raise FetchRefused(f"{_shown(url)} is not fetched: plain http is for loopback alone; write https")
        return target

    def _check_address(self, target: Url, address: str, by: By, origin: str | None) -> None:
        """Raise FetchRefused for an address to which no connection may be made."""
        kind = kind_of(address)
        shown = f"{target} is not fetched: its address {address} is {kind}"
        if kind == "forbidden":
            raise FetchRefused(shown)
        if target.scheme == "http" and kind != "loopback":
            raise FetchRefused(f"{shown}, and plain http is for loopback alone")
        if kind == "public" or by == "operator" or target.host.lower() in self._private:
            return
        if origin is not None:
            if origin_of(origin) == f"{target.scheme}://{_netloc(target)}":
                return
            if kind == "loopback" and is_loopback(urlsplit(origin).hostname or ""):
                return
        raise FetchRefused(
            f"{shown}, and a document named it, not you. If you trust it, put {target.host!r} in allow_private= of "
            "the login, or of the Fetcher that is given as fetcher="
        )


def _redirect_target(url: str, target: str) -> str:
    """Return the URL to which a redirect leads. Raises FetchRefused for text that is no URL."""
    try:
        return urljoin(url, target)
    except ValueError:
        raise FetchRefused(f"{_shown(url)} redirects to what is not a URL") from None


async def _resolve(target: Url) -> list[str]:
    """Return the addresses of a host. Raises FetchFailed."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise FetchFailed(f"{target}: no address of {printable(target.host)}: {error}") from error
    return list(dict.fromkeys(str(info[4][0]) for info in found))


def _netloc(target: Url) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host.lower()
    return host if target.port == {"https": 443, "http": 80}[target.scheme] else f"{host}:{target.port}"


def _shown(url: str) -> str:
    """Return a URL for an error, without its query, which may contain a secret."""
    return mask_url(url.partition("#")[0])


# -- through a proxy


def _proxy_of(target: Url) -> str | None:
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415  (10 ms, for those who chose proxies)

    return None if proxy_bypass(target.host) else getproxies().get(target.scheme)


def _fetch_through(
    proxy: str,
    method: str,
    url: str,
    headers: dict[str, str],
    body: bytes | None,
    tls: ssl.SSLContext | None,
    timeout: float,
    limit: int,
) -> Fetched:
    from http.client import HTTPException  # noqa: PLC0415  (as urllib)
    from urllib import error, request  # noqa: PLC0415  (10 ms, for those who chose proxies)

    class Stay(request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    secure = request.HTTPSHandler(context=tls)
    opener = request.build_opener(request.ProxyHandler({urlsplit(url).scheme: proxy}), secure, Stay)
    try:
        try:
            reply = opener.open(request.Request(url, body, headers, method=method), timeout=timeout)
        except error.HTTPError as refused:
            reply = refused
        with reply:
            status, got, content = reply.status, reply.headers, reply.read(limit + 1)
    except (OSError, HTTPException) as gone:
        raise FetchFailed(f"{_shown(url)} by way of the proxy: {printable(str(gone))}", sent=True) from gone
    if len(content) > limit:
        raise FetchFailed(f"{_shown(url)}: more than {limit} bytes", sent=True)
    return Fetched(status, {name.lower(): value for name, value in got.items()}, content, url)
