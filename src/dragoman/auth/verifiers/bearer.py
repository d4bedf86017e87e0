"""The verifier that most servers use: of signed access tokens of one or more issuers, for one resource."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from ...channel import Handshake, Identity
from ...jsonrpc.errors import LocalError
from ...jsonrpc.options import CALLABLE, FLAG, NAME, NONE, TEXTS, Rule, check, instance, mapping, one_of
from ..claims import Claims
from ..credential import TokenCredential
from ..dpop import Nonces, ProofChecker
from ..errors import NotYet, TokenRefused, UnknownKey
from ..exchange import Exchange, Exchanger
from ..fetching import FETCHER, Fetches, fetcher_of
from ..jose import parse_jws
from ..keys import IssuerKeys
from ..limits import DEFAULTS, AuthLimits
from ..tokens import LEEWAY, ClaimRules, Issuer, TokenBinding
from ..urls import split_issuer, split_web
from .cache import SECONDS, CachingVerifier, TokenCache
from .key import GivenKey, key_maker
from .possession import POLICIES, Policy, Possession

if TYPE_CHECKING:
    from ..proxy.proxy import Proxy
else:
    Proxy = Any  # annotations resolve at run time, to no more than this


class _Source(Struct, frozen=True):
    """All that verifies the tokens of one issuer."""

    rules: ClaimRules
    keys: IssuerKeys
    exchange: Exchanger | None
    algorithms: frozenset[str]


class Bearer(CachingVerifier):
    """Verifies JWT access tokens (RFC 9068) of one or more issuers.

    `issuer`: its URL, a preset such as `entra(...)`, an `Issuer`, or several of them. Its keys are found by its
    metadata and fetched when the first token comes. `resource`: the URL of this server as clients write it, which must
    be a token's audience, unless `audience` names another.

    `public_key`: the PEM text of the one key that the issuer signs with, or `secret`: at least 32 bytes that it shares
    with this server (HS256; 48 for HS384, 64 for HS512); then nothing is fetched, and the issuer is any text.
    `algorithm`: the only one that a token may then have; None: the one of the curve, RS256 for RSA, HS256 for a secret.

    `dpop`: whether tokens that are bound to a key are refused ("off"), accepted ("accepted"), or the only ones that are
    ("required"); `dpop_nonces`: whether proofs need a nonce of ours, or the secret of at least 32 bytes that replicas
    share for them. `implies`: for a scope those that it includes, such as {"notes:admin": ["notes:write"]}. `leeway`:
    seconds by which clocks may differ. `cache_seconds`: for how long a verified token is cached at most. `exchange`:
    this server as a client of the issuer, for `Identity.exchange`. `fetcher`: a `Fetcher` for hosts or proxies of your
    own. `proxy`: a `Proxy` before an issuer at which clients cannot register; then its tokens are accepted, and the
    issuer's are not. Raises LocalError for options that cannot be right.
    """

    issuers: tuple[str, ...]
    """The URLs of the issuers, each once; issuers whose name is no URL are not among them."""

    def __init__(
        self,
        issuer: str | Issuer | Sequence[str | Issuer],
        *,
        resource: str,
        audience: str | Iterable[str] | None = None,
        public_key: str | bytes | None = None,
        secret: str | bytes | None = None,
        algorithm: str | None = None,
        dpop: Policy = "off",
        dpop_nonces: bool | bytes = False,
        implies: Mapping[str, Iterable[str]] | None = None,
        leeway: float = LEEWAY,
        cache_seconds: float = SECONDS,
        exchange: Exchange | None = None,
        fetcher: Fetches | None = None,
        proxy: Proxy | None = None,
        limits: AuthLimits = DEFAULTS,
        now: Callable[[], float] = time.time,
    ) -> None:
        check("Bearer", _RULES, locals())
        check_resource("Bearer", resource)
        self.resource, self.dpop = resource, dpop
        self._limits, self._now = limits, now
        checker = ProofChecker(nonces=_nonces(dpop_nonces, now), limits=limits, now=now)
        super().__init__(TokenCache(seconds=cache_seconds, limits=limits, now=now), Possession(dpop, resource, checker))
        key_of = key_maker(public_key, secret, algorithm)
        if proxy is not None:
            if key_of is not None:
                raise LocalError("Bearer: a proxy signs its tokens itself: leave public_key= and secret= out")
            issuer, fetcher = proxy.before(issuer, resource)
        issuers = [issuer] if isinstance(issuer, str | Issuer) else list(issuer)
        if key_of is not None and len(issuers) > 1:
            raise LocalError(
                "Bearer: a key is that of one issuer; for others give a Bearer each: TokenGuard(Bearer(...), Bearer(...))"
            )
        wanted, fetch = audiences(resource, audience), fetcher_of(fetcher)
        self._sources: dict[str, _Source] = {}
        for one in issuers:
            row, given = _issuer_row(one, key_of)
            rules = ClaimRules(row, audience=row.audience or wanted, resource=wanted, leeway=leeway, implies=implies)
            keys = IssuerKeys(row, fetch, changed=self._cache.clear, limits=limits, given=given.key if given else None)
            exchanger = None if exchange is None else Exchanger(exchange, keys, fetch, now=now)
            source = _Source(rules, keys, exchanger, given.algorithms if given else row.algorithms)
            for name in row.aliases | {row.issuer}:
                if name in self._sources:
                    raise LocalError(f"Bearer: {name} is there twice")
                self._sources[name] = source
        if not self._sources:
            raise LocalError("Bearer: there is no issuer, so that no token would ever be good")
        names = dict.fromkeys(each.rules.issuer.issuer for each in self._sources.values())
        # to a name that is no URL a client cannot go
        self.issuers = tuple(name for name in names if split_web(name) is not None)
        self._algorithms = frozenset[str]().union(*(each.algorithms for each in self._sources.values()))

    def __repr__(self) -> str:
        return f"Bearer({list(self._sources)}, resource={self.resource!r})"

    async def _identify(self, token: str, handshake: Handshake) -> tuple[Identity, TokenBinding | None]:
        raw = token.encode("utf-8", "surrogatepass")
        found = self._cache.find(raw)
        if found is not None:
            return found[1:]
        self._cache.check_refused(raw)
        try:
            identity, bound = await self._verify(token)
        except (UnknownKey, NotYet):
            raise
        except TokenRefused as error:
            self._cache.refuse(raw, error)
            raise
        self._cache.keep(raw, identity, bound)
        return identity, bound

    async def _verify(self, token: str) -> tuple[Identity, TokenBinding | None]:
        parts = parse_jws(token, self._algorithms, limits=self._limits)
        # the issuer that the token names selects the keys; nothing else of it is used before it is verified
        named = parts.claims(self._limits).get("iss")
        source = self._sources.get(named) if isinstance(named, str) else None
        if source is None:
            raise TokenRefused("The token is of an issuer that this server does not take tokens of (iss)")
        if parts.header["alg"] not in source.algorithms:
            raise TokenRefused("The token is signed with an algorithm that its issuer does not use")
        verified = await source.keys.verify_signature(parts)
        credential = TokenCredential(token, source.exchange)
        return source.rules.check_claims(verified, self._now(), claims=Claims(token), credential=credential)


def _issuer_row(issuer: str | Issuer, key_of: Callable[[Issuer], GivenKey] | None) -> tuple[Issuer, GivenKey | None]:
    """Return an issuer as a row, and the key that was given for it. Raises LocalError for what is no issuer."""
    row = Issuer(issuer=issuer) if isinstance(issuer, str) else issuer
    if not isinstance(row, Issuer):
        raise LocalError(f"Bearer: issuer is the URL of one, a preset or an Issuer, not {type(row).__name__}")
    if key_of is None:
        if split_issuer(row.issuer) is None:
            raise LocalError(f"Bearer: an issuer is an https URL without query and fragment, not {row.issuer!r}")
        return row, None
    if not row.issuer:
        raise LocalError("Bearer: issuer is what the tokens have as iss: text that is not empty")
    return row, key_of(row)


def audiences(resource: str, audience: str | Iterable[str] | None) -> frozenset[str]:
    """Return what a token's audience may be: the resource, unless `audience` is given. A URL without a path is the same
    as one with "/" (RFC 3986 section 6.2.3)."""
    if audience is not None:
        return frozenset([audience] if isinstance(audience, str) else audience)
    parts = urlsplit(resource)
    if parts.path in ("", "/") and not parts.query:
        bare = resource.removesuffix("/")
        return frozenset({bare, bare + "/"})
    return frozenset({resource})


def check_resource(where: str, resource: str) -> None:
    """Raise LocalError for text that is no resource. RFC 8707 section 2: it "MUST be an absolute URI ... MUST NOT
    include a fragment component". `where`: the class, for the error."""
    parts = split_web(resource)
    if parts is None or "#" in resource or parts.username is not None:
        raise LocalError(
            f"{where}: resource is this server's URL as clients write it, such as https://mcp.example/mcp, without user "
            f"and fragment, not {resource!r}"
        )


def _nonces(wanted: bool | bytes, now: Callable[[], float]) -> Nonces | None:
    if isinstance(wanted, bytes) and len(wanted) < 32:
        raise LocalError("Bearer: dpop_nonces is a secret of at least 32 bytes, or True")
    return Nonces(wanted if isinstance(wanted, bytes) else None, now=now) if wanted else None


_SECONDS: Final = Rule(
    lambda value: isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 86_400,
    "a number of seconds from 0 to 86400",
)
_RULES: Final = {
    "resource": instance(str, "this server's URL"),
    "audience": NAME | TEXTS | NONE,
    "public_key": instance((str, bytes), "the PEM text of a public key") | NONE,
    "secret": instance((str, bytes), "text or bytes, of the secret that the issuer shares with this server") | NONE,
    "algorithm": NAME | NONE,
    "dpop": one_of(*POLICIES),
    "dpop_nonces": FLAG | instance(bytes, "a secret of at least 32 bytes"),
    "implies": mapping(TEXTS) | NONE,
    "leeway": _SECONDS,
    "cache_seconds": _SECONDS,
    "exchange": instance(Exchange, "an Exchange") | NONE,
    "fetcher": FETCHER,
    "proxy": Rule(lambda value: value is None or callable(getattr(value, "before", None)), "an auth.Proxy"),
    "limits": instance(AuthLimits, "an AuthLimits"),
    "now": CALLABLE,
}
