"""Requests to the endpoints of an authorization server, and its answers, as values. Pure.

Parameters are read once and strictly: a parameter that is given twice is refused (RFC 6749, 3.1 and 3.2), except
`resource` and `audience` (RFC 8707, RFC 8693); one without a value counts as absent (RFC 6749, 3.1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from ...allowance import Owner, owner_at
from ..errors import OAuthError

Lines: TypeAlias = tuple[tuple[str, str], ...]
"""Header fields."""
REPEATED = frozenset({"resource", "audience"})
PARAMETERS = 64
"""Parameters of one request: no request needs a third of them."""
FORM = "application/x-www-form-urlencoded"
NO_STORE = (("Cache-Control", "no-store"), ("Pragma", "no-cache"))
"""RFC 6749, 5.1: both on each answer that has a token."""
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+( [\x21\x23-\x5b\x5d-\x7e]+)*")
"""RFC 6749, 3.3."""


class EndpointRequest(Struct, frozen=True, kw_only=True):
    """One HTTP request. `path` is decoded, `query` is not; header names are in lower case, equal ones joined by
    ", ". `remote`: the caller's address as text, "host:port"."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = {}
    body: bytes = b""
    remote: str = ""

    @property
    def owner(self) -> Owner:
        """The owner to whose share the records of this request count: the caller's address."""
        return owner_at(self.remote)


class EndpointResponse(Struct, frozen=True, kw_only=True):
    """The answer to a request."""

    status: int = 200
    headers: Lines = ()
    body: bytes = b""


class Parameters(Struct, frozen=True):
    """The parameters of a request: those that may be repeated, and the others."""

    one: Mapping[str, str]
    many: Mapping[str, tuple[str, ...]]

    def get(self, name: str) -> str:
        """Return the value; empty where it is absent."""
        return self.one.get(name, "")

    def need(self, name: str) -> str:
        """Return the value. Raises OAuthError where it is absent."""
        found = self.one.get(name, "")
        if not found:
            bad(f"The parameter {name} is missing")
        return found

    def scopes(self) -> tuple[str, ...]:
        """Return the requested scopes. Raises OAuthError for text that is no list of scopes (RFC 6749, 3.3)."""
        text = self.get("scope")
        if text and not _SCOPE.fullmatch(text):
            raise oauth_error("invalid_scope", "scope is a list of tokens with one space between two")
        return tuple(dict.fromkeys(text.split(" "))) if text else ()


class RequestRefused(OAuthError):
    """An error of RFC 6749, 5.2, with the header fields of its answer."""

    def __init__(self, error: str, description: str, status: int = 400, headers: Lines = ()) -> None:
        super().__init__(error, description, status)
        self.headers = headers


def oauth_error(error: str, description: str, status: int = 400, headers: Lines = ()) -> RequestRefused:
    """Return an error to raise, with its status and header fields."""
    return RequestRefused(error, description, status, headers)


def bad(description: str) -> NoReturn:
    """Raise `invalid_request`."""
    raise oauth_error("invalid_request", description)


def of_query(query: str) -> Parameters:
    """Return the parameters in the text of a query or a form. Raises OAuthError."""
    try:
        # RFC 6749, appendix B: the parameters are UTF-8
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=PARAMETERS, errors="strict")
    except (ValueError, UnicodeError):
        bad(f"The parameters are not form-encoded UTF-8, or more than {PARAMETERS}")
    one: dict[str, str] = {}
    many: dict[str, tuple[str, ...]] = {}
    for name, value in pairs:
        if "\0" in value:
            bad(f"The parameter {name[:40]!r} has a NUL in it")
        if name in REPEATED:
            if value:
                many[name] = (*many.get(name, ()), value)
        elif name in one:
            # RFC 6749, 3.1: "Request and response parameters MUST NOT be included more than once."
            bad(f"The parameter {name[:40]!r} is given twice")
        else:
            one[name] = value
    return Parameters({name: value for name, value in one.items() if value}, many)


def of_form(request: EndpointRequest) -> Parameters:
    """Return the parameters of a POST. Raises OAuthError for another media type, and for a secret in the URL."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != FORM:
        bad(f"The body is {FORM}")
    if request.query:
        # RFC 6749, 2.3.1: "The parameters can only be transmitted in the request-body and MUST NOT be included in the
        # request URI."
        bad("The parameters belong into the body, not into the URL")
    try:
        text = request.body.decode("ascii")
    except UnicodeDecodeError:
        bad(f"The body is not {FORM}: it has bytes above 127")
    return of_query(text)


def json(value: Any, status: int = 200, headers: Lines = NO_STORE) -> EndpointResponse:
    """Return a JSON answer."""
    lines = (("Content-Type", "application/json"), *headers)
    return EndpointResponse(status=status, headers=lines, body=msgspec.json.encode(value))


def failure(error: OAuthError) -> EndpointResponse:
    """Return the JSON answer for an error (RFC 6749, 5.2)."""
    body = {"error": error.error, "error_description": error.description}
    more = error.headers if isinstance(error, RequestRefused) else ()
    return json(body, error.status, (*NO_STORE, *more))


def redirect(uri: str, parameters: Mapping[str, str | None], headers: Lines = ()) -> EndpointResponse:
    """Return a redirect with these parameters added. The URI's own query stays (RFC 6749, 3.1.2)."""
    added = urlencode({name: value for name, value in parameters.items() if value is not None})
    parts = urlsplit(uri)
    query = f"{parts.query}&{added}" if parts.query else added
    # 303: the browser comes with GET, and does not send the form again
    location = urlunsplit(parts._replace(query=query))
    return EndpointResponse(
        status=303, headers=(("Location", location), *NO_STORE, ("Referrer-Policy", "no-referrer"), *headers)
    )
