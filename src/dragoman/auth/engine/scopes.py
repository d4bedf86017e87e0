"""Which scopes and resources a request gets. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..urls import split
from .messages import Parameters, oauth_error
from .model import Client, Settings

RESOURCES = 8
"""Resources that one request may name."""


def scopes_of(
    requested: Sequence[str], client: Client, settings: Settings, within: Collection[str] | None = None
) -> tuple[str, ...]:
    """Return the scopes that a request gets. `within`: those of the grant it uses; None: it begins one. Raises
    OAuthError (`invalid_scope`)."""
    if within is not None:
        # RFC 6749, 6: "MUST NOT include any scope not originally granted by the resource owner, and if omitted is
        # treated as equal to the scope originally granted"
        if beyond := [each for each in requested if each not in within]:
            raise oauth_error("invalid_scope", f"The grant has not {' '.join(beyond)[:200]}")
        return tuple(requested or within)
    found = tuple(requested) or tuple(
        each for each in settings.default_scopes if client.scopes is None or each in client.scopes
    )
    for each in found:
        if (settings.scopes is not None and each not in settings.scopes) or (
            client.scopes is not None and each not in client.scopes
        ):
            raise oauth_error("invalid_scope", f"There is no scope {each[:100]} for this client")
    return found


def resources_of(
    parameters: Parameters, client: Client, settings: Settings, within: Collection[str] | None = None
) -> tuple[str, ...]:
    """Return the resources that a request names, or else those of its grant. `within`: those of the grant it uses;
    None: it begins one. Raises OAuthError (`invalid_target`, RFC 8707, 2)."""
    named = tuple(dict.fromkeys(parameters.many.get("resource", ())))
    if len(named) > RESOURCES:
        raise oauth_error("invalid_target", f"More than {RESOURCES} resources are named")
    for each in named:
        if not is_resource(each):
            # "Its value MUST be an absolute URI ... The URI MUST NOT include a fragment component."
            raise oauth_error("invalid_target", "A resource is an absolute URI without fragment")
        if within:
            allowed = each in within
        else:
            allowed = (not settings.resources or each in settings.resources) and (
                client.resources is None or each in client.resources
            )
        if not allowed:
            raise oauth_error("invalid_target", "No tokens are issued for this resource")
    return named or tuple(within or ())


def audience_of(resources: Sequence[str], settings: Settings) -> tuple[str, ...]:
    """Return the audience of a token (RFC 9068, 3: a default resource where none was named)."""
    return tuple(resources) or settings.resources[:1] or (settings.issuer,)


def is_resource(text: str) -> bool:
    """Return whether this is an absolute URI without fragment."""
    if len(text) > 2_000 or "#" in text or not text.isascii() or not text.isprintable() or " " in text:
        return False
    parts = split(text)
    return parts is not None and bool(parts.scheme and (parts.netloc or parts.path))
