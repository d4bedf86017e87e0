"""Presets: how common issuers write their tokens, as data. Each has a page in docs/auth/issuers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import door

if TYPE_CHECKING:
    from .opaque import github, google
    from .signed import auth0, cognito, entra, keycloak, okta, workos
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "opaque": "github google",
            "signed": "auth0 cognito entra keycloak okta workos",
        },
    )

__all__ = ["auth0", "cognito", "entra", "github", "google", "keycloak", "okta", "workos"]
