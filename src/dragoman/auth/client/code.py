"""The authorization code flow (OAuth 2.1 section 4.1) with PKCE (RFC 7636) and the check of the issuer that answers
(RFC 9207).

The rules are functions without I/O; `login` calls them in order.
"""

from __future__ import annotations

import hmac
import os
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from ..errors import describe
from ..metadata import ServerMetadata
from ..pkce import s256
from .endpoints import check_secure, need_endpoint
from .errors import LoginFailed
from .tokens import Registration

MOST_ANSWER = 16 * 1024
"""Characters of an answer's query that are read."""


def random_text() -> str:
    """Return a text that cannot be guessed: 256 bits."""
    return urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()


class AuthorizationRequest(Struct, frozen=True, kw_only=True):
    """One authorization request: what its answer is checked against. "the client MUST record the `issuer` value from
    the selected authorization server's validated metadata document and associate it with the same per-request record
    used to store the PKCE code verifier"."""

    issuer: str
    iss_promised: bool
    verifier: str
    state: str
    redirect_uri: str
    url: str

    def __repr__(self) -> str:
        return f"AuthorizationRequest({self.issuer!r})"


def check_pkce(server: ServerMetadata, assume: bool) -> None:
    """Raise LoginFailed unless the server supports PKCE with S256: "If `code_challenge_methods_supported` is absent,
    the authorization server does not support PKCE and MCP clients MUST refuse to proceed." `assume`: accept an absent
    list, because the user knows that the server does S256; a list without S256 is refused all the same."""
    methods = server.code_challenge_methods_supported
    if methods is not None and "S256" in methods:
        return
    if methods is None and assume:
        return
    fault = "does not say that it supports PKCE" if methods is None else f"supports PKCE by {', '.join(methods)} alone"
    hint = ": if you know that it does S256 (Entra and Cognito do), write pkce='assume'" if methods is None else ""
    raise LoginFailed(f"{server.issuer} {fault}: without S256 a code could be stolen, so no login is begun{hint}")


def new_request(
    server: ServerMetadata,
    client: Registration,
    redirect_uri: str,
    *,
    resource: str | None,
    scopes: tuple[str, ...],
    assume_pkce: bool = False,
    extra: Mapping[str, str] | None = None,
) -> AuthorizationRequest:
    """Return a new authorization request. Raises LoginFailed, AuthError."""
    check_pkce(server, assume_pkce)
    endpoint = need_endpoint(server.authorization_endpoint, "authorization_endpoint", server)
    check_secure(endpoint, "authorization_endpoint", server)
    verifier, state = random_text(), random_text()
    fields = {
        **(extra or {}),
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_uri,
        "code_challenge": s256(verifier),
        "code_challenge_method": "S256",
        "state": state,
        **({} if resource is None else {"resource": resource}),
        **({} if not scopes else {"scope": " ".join(scopes)}),
    }
    # RFC 6749 section 3.1: "The endpoint URI MAY include an ... query component, which MUST be retained when adding
    # additional query parameters."
    parts = urlsplit(endpoint)
    taken = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)} & fields.keys()
    if taken:
        raise LoginFailed(f"the authorization_endpoint of {server.issuer} already has {', '.join(sorted(taken))}")
    query = "&".join(filter(None, [parts.query, urlencode(fields, quote_via=quote)]))
    return AuthorizationRequest(
        issuer=server.issuer,
        iss_promised=bool(server.authorization_response_iss_parameter_supported),
        verifier=verifier,
        state=state,
        redirect_uri=redirect_uri,
        url=urlunsplit((parts.scheme, parts.netloc, parts.path, query, "")),
    )


def fields_of(query: str) -> dict[str, str]:
    """Return the parameters of an answer. Raises LoginFailed: "Request and response parameters MUST NOT be included
    more than once" (RFC 6749 section 3.1)."""
    pairs = parse_qsl(query[:MOST_ANSWER], keep_blank_values=True)
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise LoginFailed("the answer of the authorization server has a parameter twice: it is not used")
    return fields


def same_state(ours: str, theirs: str | None) -> bool:
    """Return whether an answer's state is that of our request; compared in constant time."""
    return theirs is not None and hmac.compare_digest(ours.encode(), theirs.encode())


def code_of(request: AuthorizationRequest, query: str) -> str:
    """Return the code in the answer to a request. Raises LoginFailed, with the server's own error code and text only
    if the answer is from the right issuer."""
    fields = fields_of(query)
    # "discard any results that do not include or have a mismatch with the original state"
    if not same_state(request.state, fields.get("state")):
        raise LoginFailed("the answer belongs to another login (its state is not ours): it is not used")
    check_iss(request, fields.get("iss"))
    if "error" in fields:
        text = describe(fields.get("error_description", ""))
        reason = describe(fields["error"]) + (f": {text}" if text else "")
        failed = LoginFailed(f"{request.issuer} does not authorize this client: {reason}")
        failed.error = describe(fields["error"])
        raise failed
    code = fields.get("code")
    if not code:
        raise LoginFailed(f"the answer of {request.issuer} has neither a code nor an error")
    return code


def check_iss(request: AuthorizationRequest, iss: str | None) -> None:
    """Check the issuer that an answer names (RFC 9207 section 2.4), by the table of the MCP specification. An answer
    with an error is checked like one with a code. Raises LoginFailed.

    | promised in metadata | `iss` in the answer | |
    | yes | yes | compare, byte for byte |
    | yes | no | reject |
    | no | yes | compare, byte for byte |
    | no | no | proceed |
    """
    if iss is None:
        if request.iss_promised:
            raise LoginFailed(
                f"{request.issuer} promises to name itself (iss) in its answer, and this one does not: it is not used"
            )
        return
    # "clients MUST NOT apply scheme or host case folding, default-port elision, trailing-slash, or percent-encoding
    # normalization before comparison"
    if iss != request.issuer:
        raise LoginFailed(
            f"the answer is not from {request.issuer}, which was asked: it is not used, nor its words shown"
        )
