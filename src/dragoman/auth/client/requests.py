"""Requests to a token endpoint: how the client authenticates, the DPoP proof (RFC 9449 section 5), and what the answer
means. Flows over a `World`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..authentication import authentication
from ..errors import OAuthError
from ..fetch import By, Fetched
from ..metadata import ServerMetadata
from ..urls import host_of
from .errors import AuthorizationFailed
from .tokens import Registration
from .world import World

if TYPE_CHECKING:
    from ..jose import Key


class Sender:
    """Sends requests to one authorization server as one client, with its secret or `key`, and with proofs by the key
    `dpop`. `by`: who named the server's endpoints; `private`: hosts, in lower case, that the user allows to be in a
    private network, as if the user had named them."""

    def __init__(
        self,
        client: Registration,
        server: ServerMetadata,
        *,
        by: By = "document",
        private: Collection[str] = (),
        key: Key | None = None,
        dpop: Key | None = None,
    ) -> None:
        self.client = client
        self.server = server
        self.by = by
        self.private = private
        self.key = key
        self.dpop = dpop
        self.nonce: str | None = None

    def __repr__(self) -> str:
        return f"Sender({self.client!r})"

    async def post(self, world: World, url: str, form: Mapping[str, str | None], now: float) -> Fetched:
        """POST a form as this client, and again with a nonce if the server demands one (RFC 9449 section 8). Members
        that are None are left out. `now`: Unix time. Raises FetchFailed, FetchRefused, AuthorizationFailed."""
        by: By = "operator" if host_of(url) in self.private else self.by
        for again in (True, False):
            client = self.client
            fields, headers = authentication(
                self.method(), client.client_id, client.client_secret, self.key, self.server.issuer, now
            )
            headers["accept"] = "application/json"  # GitHub answers with a form otherwise
            body = {name: value for name, value in form.items() if value is not None} | fields
            if self.dpop is not None:
                from ..dpop import proof  # noqa: PLC0415  (joserfc, for those who bind their tokens)

                headers["DPoP"] = proof(self.dpop, "POST", url, nonce=self.nonce)
            got = await world.post_form(url, body, headers=headers, by=by)
            nonce = got.headers.get("dpop-nonce")
            if nonce:
                self.nonce = nonce
            if not (again and nonce and self.dpop and got.status in (400, 401) and _error(got) == "use_dpop_nonce"):
                break
        return got

    def method(self) -> str:
        """Return how the client authenticates: as it was registered, if the server accepts that, else the first method
        that it accepts. Raises AuthorizationFailed where none fits."""
        if self.key is not None:
            return "private_key_jwt"
        if self.client.client_secret is None:
            return "none"
        supported = self.server.token_endpoint_auth_methods_supported
        # RFC 8414 section 2: "If omitted, the default is "client_secret_basic""
        if supported is None:
            return self.client.method or "client_secret_basic"
        if self.client.method in supported and self.client.method is not None:
            return self.client.method
        for one in ("client_secret_basic", "client_secret_post", "none"):
            if one in supported:
                return one
        raise AuthorizationFailed(
            f"{self.server.issuer} authenticates clients by {', '.join(supported)} alone, none of which fits a secret"
        )


def _error(got: Fetched) -> str | None:
    answer = got.json
    error = answer.get("error") if isinstance(answer, dict) else None
    return error if isinstance(error, str) else None


def answer_of(got: Fetched, what: str) -> dict[str, Any]:
    """Return the JSON object of a success. Raises OAuthError for an error object, AuthorizationFailed for anything
    else."""
    answer = got.json
    if 200 <= got.status < 300 and isinstance(answer, dict) and "error" not in answer:
        return answer
    raise refusal(got, what)


def refusal(got: Fetched, what: str) -> Exception:
    """Return the error to raise for an answer that is no success."""
    answer = got.json
    error = _error(got)
    if error is not None and isinstance(answer, dict):
        described = answer.get("error_description")
        return OAuthError(error, described if isinstance(described, str) else "", got.status)
    return AuthorizationFailed(f"{what} answers HTTP {got.status}, which is not an answer of OAuth")


class RefreshOutcome(Struct, frozen=True):
    """What the answer to a refresh means for the grant."""

    kind: str
    """"renewed"; "ended": the grant is over; "forgotten": the server no longer knows the client; "kept": it may work
    later; "lost": the answer is missing, and the refresh token may have been spent."""
    why: str = ""
    retry_after: int = 0
    """Seconds that the server asks to wait."""


_TEMPORARY = frozenset(("temporarily_unavailable", "server_error", "slow_down", "authorization_pending"))
_UNKNOWN_CLIENT = frozenset(("invalid_client", "incorrect_client_credentials"))  # the latter is GitHub's


def outcome_of(got: Fetched) -> RefreshOutcome:
    """Return what the answer to a refresh means. Only an error object of OAuth with status 400 or 401 ends a grant, and
    one with a status of success, as GitHub sends it: a firewall's 403, a proxy's page, 404, 429 and 5xx say nothing
    about it."""
    answer, error = got.json, _error(got)
    wait = got.headers.get("retry-after", "")
    pause = int(wait) if wait.isascii() and wait.isdigit() and len(wait) < 6 else 0
    success = 200 <= got.status < 300
    if success and isinstance(answer, dict) and isinstance(answer.get("access_token"), str):
        return RefreshOutcome("renewed")
    if success and error is None:
        return RefreshOutcome("lost", f"HTTP {got.status} without a token")
    shown = f"HTTP {got.status}" + (f", {error}" if error else "")
    if not (success or got.status in (400, 401)) or error is None or error in _TEMPORARY:
        return RefreshOutcome("kept", shown, pause)
    if error in _UNKNOWN_CLIENT:
        return RefreshOutcome("forgotten", shown)
    return RefreshOutcome("ended", shown)
