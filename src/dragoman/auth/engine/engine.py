"""The engine of an authorization server: a request in, its answer out, without a socket or a clock of its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import structs

from ...jsonrpc.errors import LocalError
from ...repeats import Repeats
from ...store.contract import Engine as StoreEngine
from ...store.contract import StoreFull, StoreLost
from ...store.memory import InMemoryStore
from ..dpop import Nonces, ProofChecker
from ..errors import OAuthError
from ..jose import Key
from ..urls import REDIRECT_LOOPBACK, split_issuer
from .assertions import Assertions
from .authorize import Approver, Authorization
from .clients import Clients
from .device import Devices
from .families import Families
from .grants import Grants, Renew
from .inspection import Inspection
from .messages import NO_STORE, EndpointRequest, EndpointResponse, failure, json, oauth_error
from .metadata import document, metadata_paths
from .minting import Mint, SigningKeys
from .model import ALGORITHMS, Client, Settings
from .pages import error_page
from .published import Fetch, PublishedDocuments
from .records import OWNERS, TOTAL, Records, Sealer
from .seals import Signer

log: logging.Logger = logging.getLogger("dragoman.auth.server")
repeats: Repeats = Repeats(log)

_Answer = Callable[[EndpointRequest], Awaitable[EndpointResponse]]
PUBLIC = (("Cache-Control", "public, max-age=300"),)
"""Metadata and keys: a change is seen after five minutes."""


def check_issuer(issuer: str) -> None:
    """Raise LocalError for text that cannot be an issuer (RFC 8414, 2: https, no query, no fragment), and for plain
    HTTP off loopback."""
    parts = split_issuer(issuer)
    if parts is None:
        raise LocalError(f"the issuer {issuer!r} is not a URL such as https://as.example, without query and fragment")
    if issuer.endswith("/"):
        raise LocalError(f"the issuer {issuer!r} ends in a slash, which clients lose: write {issuer.rstrip('/')!r}")
    if parts.scheme == "http" and parts.hostname not in REDIRECT_LOOPBACK:
        raise LocalError(f"the issuer {issuer!r} is plain HTTP off loopback: tokens need https, http is for 127.0.0.1")


class AuthorizationEngine:
    """Answers the requests to all endpoints of one issuer.

    `store`: keeps grants, codes and registrations; None: the memory of this process. `secret`: 32 bytes or more that
    sign refresh tokens, pages and client ids; None: new ones, so that all of these end with the process. `keys`:
    private keys for tokens, the first one signs. `sealer`: encrypts what is stored. `renew`: see `grants.Renew`.
    `fetch`: gets clients' documents and key sets; None: none are fetched. `clock`: Unix time in seconds.
    """

    def __init__(
        self,
        settings: Settings,
        approver: Approver,
        *,
        clients: Iterable[Client] = (),
        keys: Sequence[Key] = (),
        store: StoreEngine | None = None,
        secret: bytes | Sequence[bytes] | None = None,
        sealer: Sealer | None = None,
        fetch: Fetch | None = None,
        renew: Renew | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_issuer(settings.issuer)
        self.settings: Settings = settings
        self.clock = clock
        self.keys: SigningKeys = SigningKeys(keys)
        self.signer: Signer = Signer(secret)
        kept = InMemoryStore(OWNERS, TOTAL, clock) if store is None else store
        self.records: Records = Records(kept, clock=clock, sealer=sealer)
        self.mint: Mint = Mint(self.keys, lambda: self.settings.issuer, clock)
        self.families: Families = Families(self.records, self.signer)
        self.published: PublishedDocuments = PublishedDocuments(fetch)
        assertions = Assertions(lambda: self.settings, self.records, self.published)
        self.clients: Clients = Clients(
            clients, lambda: self.settings, self.records, self.signer, self.published, assertions
        )
        self.authorization: Authorization = Authorization(
            lambda: self.settings, self.clients, self.records, self.signer, approver, self.at
        )
        devices = Devices(lambda: self.settings, self.clients, self.records, self.authorization, self.at)
        nonces = Nonces(self.signer.derive("nonces"), now=clock) if settings.dpop_nonce else None
        proofs = ProofChecker(nonces=nonces, algorithms=ALGORITHMS, now=clock)
        parts = (
            lambda: self.settings,
            self.clients,
            self.records,
            self.families,
            devices,
            assertions,
            self.mint,
            proofs,
        )
        grants = Grants(*parts, lambda: self.at("/token"), renew)
        inspection = Inspection(self.clients, self.records, self.families, self.mint, lambda: self.at("/token"))
        self._endpoints: dict[str, Mapping[str, _Answer]] = {
            "/authorize": {"GET": self.authorization.begin},
            "/consent": {"POST": self.authorization.consent},
            "/token": {"POST": grants.token},
            "/revoke": {"POST": inspection.revoke},
            "/introspect": {"POST": inspection.introspect},
            "/device_authorization": {"POST": devices.begin},
            "/device": {"GET": devices.show, "POST": devices.choose},
            "/register": {"POST": self.clients.register},
            "/jwks.json": {"GET": self._keys},
        }
        self._paths: Mapping[str, Mapping[str, _Answer]] | None = None

    def at(self, path: str) -> str:
        """Return the URL of an endpoint."""
        return self.settings.issuer + path

    def move_to(self, issuer: str) -> None:
        """Change the issuer, for a server that knows its port only once it listens. Raises LocalError."""
        check_issuer(issuer)
        self.settings = structs.replace(self.settings, issuer=issuer)
        self._paths = None

    def add(self, path: str, methods: Mapping[str, _Answer]) -> None:
        """Add an endpoint at a path below the issuer. `methods`: its functions by HTTP method."""
        self._endpoints[path] = methods
        self._paths = None

    def paths(self) -> Mapping[str, Mapping[str, _Answer]]:
        """Return the functions that answer, by path and HTTP method."""
        if self._paths is None:
            below = urlsplit(self.settings.issuer).path
            found = {below + path: one for path, one in self._endpoints.items()}
            self._paths = found | {path: {"GET": self._metadata} for path in metadata_paths(self.settings.issuer)}
        return self._paths

    async def answer(self, request: EndpointRequest) -> EndpointResponse:
        """Answer one request. Raises nothing."""
        methods = self.paths().get(request.path)
        if methods is None:
            return json({"error": "not_found"}, 404)
        found = methods.get("GET" if request.method == "HEAD" else request.method)
        if found is None:
            return json({"error": "invalid_request"}, 405, (("Allow", ", ".join(methods)), *NO_STORE))
        try:
            return await found(request)
        except OAuthError as error:
            return failure(error)
        except (StoreFull, StoreLost) as error:
            repeats.warning("%s cannot keep anything: %s", self.settings.issuer, error)
            busy = oauth_error(
                "temporarily_unavailable", "Nothing can be kept now; try again", 503, (("Retry-After", "5"),)
            )
            is_page = request.path.endswith(("/authorize", "/consent", "/device"))
            return error_page(busy.description, status=503) if is_page else failure(busy)
        except Exception:
            repeats.error("%s: %s failed", self.settings.issuer, request.path, exc_info=True)
            return failure(oauth_error("server_error", "This server failed", 500))

    async def _metadata(self, request: EndpointRequest) -> EndpointResponse:
        return json(document(self.settings, self.at, self.keys.algorithms), 200, PUBLIC)

    async def _keys(self, request: EndpointRequest) -> EndpointResponse:
        return json(self.keys.public, 200, PUBLIC)
