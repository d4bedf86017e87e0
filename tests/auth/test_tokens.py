"""The rules of claims that no single token shows: what they keep, and which scopes include which."""

from __future__ import annotations

import pytest

from dragoman.auth.errors import TokenRefused
from dragoman.auth.jose import VerifiedToken
from dragoman.auth.tokens import ClaimRules, Issuer, close_implications
from tests.auth.issuing import CLAIMS, ISSUER, NOW, RESOURCE


def scopes(rules: ClaimRules, text: str) -> frozenset[str]:
    token = VerifiedToken({"typ": "at+jwt"}, CLAIMS | {"scope": text}, b"")
    return rules.check_claims(token, NOW, claims={}, credential=None)[0].scopes


def test_equal_sets_of_scopes_are_kept_once_and_so_many_of_them() -> None:
    rules = ClaimRules(Issuer(issuer=ISSUER), audience=[RESOURCE])
    first = scopes(rules, "b a")
    assert scopes(rules, "a b") is first
    for each in range(600):
        scopes(rules, f"scope-{each}")
    assert len(rules._scopes._kept) == 512
    assert scopes(rules, "a b") == first
    assert scopes(rules, "a b") is not first


def test_what_a_scope_includes_over_several_steps() -> None:
    implies = {"admin": ["write", "audit"], "write": ["read"], "a": ["b"], "b": ["a"]}
    assert close_implications(implies) == {
        "admin": {"write", "audit", "read"},
        "write": {"read"},
        "a": {"a", "b"},
        "b": {"a", "b"},
    }


def test_a_claim_within_another_shows_an_access_token_too() -> None:
    """As Keycloak's roles are."""
    issuer = Issuer(issuer=ISSUER, types=frozenset({"jwt"}), scopes=(("realm", "scopes"),), client=(), evidence=())
    rules = ClaimRules(issuer, audience=[RESOURCE])
    claims = {name: value for name, value in CLAIMS.items() if name not in ("scope", "client_id")}
    with pytest.raises(TokenRefused, match="not an access token: it has none of realm"):
        rules.check_claims(VerifiedToken({"typ": "JWT"}, claims, b""), NOW, claims={}, credential=None)
    token = VerifiedToken({"typ": "JWT"}, claims | {"realm": {"scopes": ["read"]}}, b"")
    assert rules.check_claims(token, NOW, claims={}, credential=None)[0].scopes == {"read"}
    token = VerifiedToken({"typ": "JWT"}, claims | {"realm": {"scopes": 7}}, b"")
    with pytest.raises(TokenRefused, match="realm is neither a text nor a list"):
        rules.check_claims(token, NOW, claims={}, credential=None)
