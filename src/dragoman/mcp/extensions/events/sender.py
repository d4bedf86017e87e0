"""Posts to the receivers of webhooks, which clients name: only to addresses that are allowed, and within bounds.

Rules (SEP-3415, Webhook Security):

- https alone, to public addresses alone. Networks in `allow_private` may be reached, too, and by plain http.
- A name is looked up for each attempt. All of its addresses are checked, and the connection goes to one that was
  checked, so that another answer of the DNS changes nothing. The certificate is checked for the name.
- Redirects are not followed. Time, connections and bytes of an answer are bounded; what an answer says goes nowhere.
- The environment's proxies and credentials are not used.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ....channel import Broken, Options
from ....events.limits import EventLimits
from ....jsonrpc.errors import BadAnswer, LocalError
from ....net.address_kinds import kind_of
from ....net.scheme import missing_package_error
from ....net.urls import Url, parse
from .model import CallbackReason

try:
    from ....transports.http.client.connection import ClientReply
    from ....transports.http.client.pool import Pool
except ModuleNotFoundError as missing:
    raise missing_package_error("http", missing) from missing

URL_LENGTH: Final = 2_048
"""Characters of a URL: more than any receiver of a host needs, and it is kept for each subscription."""
REST: Final = 1.0
"""Seconds for the rest of an answer that has accepted a post: then its connection is not used again."""
ADDRESSES: Final = 4
"""Addresses of one name that are tried."""
_TLS: Final = frozenset({"not_tls", "untrusted", "wrong_name", "expired", "certificate_wanted", "tls"})

Resolve: TypeAlias = Callable[[str, int], Awaitable[Collection[str]]]
"""(host, port) -> its addresses. Raises OSError."""


class Outcome(Struct, frozen=True):
    """What came of a post. `status`: of HTTP, 0 without an answer; `reason`: why it failed, None if it was accepted."""

    status: int = 0
    reason: CallbackReason | None = None
    body: bytes = b""
    """Of the answer, if it was requested."""
    retry_after: float | None = None
    """Seconds after which the receiver wants to be tried again, if it says so."""


class WebhookSender:
    """Makes connections to receivers. `allow_private`: networks beside the public ones, such as "10.0.0.0/8"; `tls`:
    an `ssl.SSLContext`, None: the system's; `resolve`: looks names up, None: the system's resolver. Raises LocalError
    for text that is no network."""

    def __init__(
        self,
        limits: EventLimits,
        *,
        allow_private: Collection[str] = (),
        tls: ssl.SSLContext | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        self.limits = limits
        self.tls = tls
        self.resolve: Resolve = look_up if resolve is None else resolve
        try:
            self._allowed = tuple(ip_network(one) for one in allow_private)
        except ValueError as error:
            raise LocalError(f"Events: allow_private has networks such as '10.0.0.0/8': {error}") from None

    def read_url(self, text: str) -> Url:
        """Return the URL of a receiver. Raises LocalError for one that may not be posted to, whatever its address."""
        if len(text) > URL_LENGTH:
            raise LocalError(f"a URL of a webhook has {URL_LENGTH} characters at most")
        url = parse(text)
        if url.scheme != "https" and not (url.scheme == "http" and self._allowed):
            raise LocalError("the URL of a webhook begins with https://")
        if not url.host or url.user is not None or not url.port:
            raise LocalError("the URL of a webhook has a host, and neither a user nor a password")
        return url

    def allows(self, address: str, scheme: str) -> bool:
        """Return whether this address may be connected to."""
        ip = ip_address(address.partition("%")[0])
        if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        if any(_holds(network, ip) for network in self._allowed):
            return True
        return scheme == "https" and kind_of(address) == "public"

    def connect(self, url: Url) -> ReceiverConnection:
        """Return the connection to a receiver, which is made when it is used. Close it."""
        return ReceiverConnection(self, url)


class ReceiverConnection:
    """A connection to one receiver, which is used again as long as its name has the same address."""

    def __init__(self, sender: WebhookSender, url: Url) -> None:
        self._sender = sender
        self._url = url
        self._address = ""
        self._pool: Pool | None = None

    async def post(self, body: bytes, headers: Mapping[str, str], *, wants_body: bool = False) -> Outcome:
        """Post a body of JSON. Failures are outcomes, too. Without `wants_body` the head of the answer decides: a
        receiver that has accepted the post is not posted to again because the rest of its answer does not come."""
        limits = self._sender.limits
        reply: ClientReply | None = None
        try:
            async with asyncio.timeout(limits.answer_time):
                found = await self._post(body, headers)
                if isinstance(found, Outcome):
                    return found
                reply = found
                if wants_body:
                    return await self._with_body(reply)
        except TimeoutError:
            await self.close()  # the connection waits for an answer that nobody reads any more
            return Outcome(reason="timeout")
        outcome = _outcome(reply)
        try:
            async with asyncio.timeout(REST):
                await reply.body(limits.answer_size)
        except (TimeoutError, Broken, BadAnswer):
            await self.close()
        return outcome

    async def _with_body(self, reply: ClientReply) -> Outcome:
        try:
            content = await reply.body(self._sender.limits.answer_size)
        except (Broken, BadAnswer):
            await self.close()
            return Outcome(reply.status, "challenge_failed")
        return replace(_outcome(reply), body=content)

    async def _post(self, body: bytes, headers: Mapping[str, str]) -> ClientReply | Outcome:
        """Return the answer, whose body is to come, or why there is none."""
        try:
            addresses = list(await self._sender.resolve(self._url.host, self._url.port))
        except (OSError, UnicodeError):
            return Outcome(reason="connection_refused")
        # one that is forbidden forbids the name: whoever mixes them wants the second try to reach it
        if not addresses or not all(self._sender.allows(one, self._url.scheme) for one in addresses):
            return Outcome(reason="connection_refused")
        if self._address in addresses:
            addresses = [self._address]
        outcome = Outcome(reason="connection_refused")
        for address in addresses[:ADDRESSES]:
            try:
                return await (await self._pool_to(address)).ask("POST", body, headers)
            except Broken as error:
                await self.close()
                outcome = Outcome(reason=_reason_of(error))
                if error.__cause__ is None:  # it was connected: the receiver may have it
                    break
            except BadAnswer:
                await self.close()
                return Outcome(reason="http_5xx")
        return outcome

    async def _pool_to(self, address: str) -> Pool:
        if self._pool is None or self._address != address:
            await self.close()
            self._address = address
            self._pool = Pool(self._url, Options(client_tls=self._sender.tls), "application/json", address=address)
        return self._pool

    async def close(self) -> None:
        """Close it; the next post makes another."""
        pool, self._pool, self._address = self._pool, None, ""
        if pool is not None:
            await pool.close()


def _outcome(reply: ClientReply) -> Outcome:
    return Outcome(reply.status, _category(reply.status), b"", _retry_after(reply.headers.get("retry-after", "")))


def _category(status: int) -> CallbackReason | None:
    if 200 <= status < 300:
        return None
    return "http_5xx" if status >= 500 else "http_4xx"


def _reason_of(error: Broken) -> CallbackReason:
    if error.reason in _TLS:
        return "tls_error"
    return "timeout" if error.reason == "late" else "connection_refused"


def _retry_after(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else None


def _holds(network: IPv4Network | IPv6Network, ip: object) -> bool:
    return ip in network


async def look_up(host: str, port: int) -> list[str]:
    """Return the addresses of a host by the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in found))
