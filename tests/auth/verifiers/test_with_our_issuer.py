"""Verifiers with our own authorization server, over HTTP, with the fetcher that users have."""

from __future__ import annotations

import pytest

from dragoman.auth import Bearer, Exchange, Introspection, IssuerAway, TokenRefused
from dragoman.auth.testing import LocalIssuer
from tests.auth.issuing import PLAIN, RESOURCE


async def test_a_token_from_issue_to_identity() -> None:
    with LocalIssuer(resources=[RESOURCE]) as issuer:
        verifier = Bearer(issuer.url, resource=RESOURCE)
        text = issuer.token("ada", scopes="notes:read", resource=RESOURCE, client="app")
        who = await verifier.verify(text, PLAIN)
        assert (who.subject, who.client_id, who.issuer, who.scopes) == ("ada", "app", issuer.url, {"notes:read"})  # type: ignore[comparison-overlap]
        for wrong, words in (
            (issuer.expired("ada", resource=RESOURCE), "expired"),
            (issuer.token("ada", resource="https://other.example/mcp"), "another service"),
        ):
            with pytest.raises(TokenRefused, match=words):
                await verifier.verify(wrong, PLAIN)
        issuer.rotate_keys()
        again = issuer.token("bob", resource=RESOURCE)
        assert (await verifier.verify(again, PLAIN)).subject == "bob"
        assert verifier.known(text.encode()) is who
    assert verifier.known(text.encode()) is who  # it is gone, and what it issued is good


async def test_an_issuer_with_a_path() -> None:
    with LocalIssuer(path="/tenant", resources=[RESOURCE]) as issuer:
        verifier = Bearer(issuer.url, resource=RESOURCE)
        assert (await verifier.verify(issuer.token("ada", resource=RESOURCE), PLAIN)).subject == "ada"


async def test_an_issuer_that_is_gone() -> None:
    with LocalIssuer(resources=[RESOURCE]) as issuer:
        text = issuer.token("ada", resource=RESOURCE)
    with pytest.raises(IssuerAway):
        await Bearer(issuer.url, resource=RESOURCE).verify(text, PLAIN)


async def test_introspection() -> None:
    with LocalIssuer(resources=[RESOURCE]) as issuer:
        issuer.client("notes-server", "canary-7f3a-of-the-server")
        verifier = Introspection(
            issuer.url + "/introspect",
            issuer=issuer.url,
            resource=RESOURCE,
            client_id="notes-server",
            secret="canary-7f3a-of-the-server",
        )
        who = await verifier.verify(issuer.token("ada", scopes="notes:read", resource=RESOURCE, client="app"), PLAIN)
        assert (who.subject, who.client_id) == ("ada", "app")
        with pytest.raises(TokenRefused, match="not active"):
            await verifier.verify(issuer.expired("ada", resource=RESOURCE), PLAIN)
        with pytest.raises(TokenRefused, match="not active"):
            await verifier.verify("no-token", PLAIN)


async def test_exchange() -> None:
    further = "https://further.example/api"
    with LocalIssuer(resources=[RESOURCE, further]) as issuer:
        grant = "urn:ietf:params:oauth:grant-type:token-exchange"
        issuer.client("notes-server", "canary-7f3a-of-the-server", grants=(grant,))
        client = Exchange(client_id="notes-server", secret="canary-7f3a-of-the-server")
        verifier = Bearer(issuer.url, resource=RESOURCE, exchange=client)
        who = await verifier.verify(issuer.token("ada", scopes="notes:read", resource=RESOURCE), PLAIN)
        text = await who.exchange(resource=further, scopes=["notes:read"])
        there = await Bearer(issuer.url, resource=further).verify(text, PLAIN)
        assert there.subject == "ada"
        with pytest.raises(TokenRefused, match="another service"):
            await verifier.verify(text, PLAIN)
        assert await who.exchange(resource=further, scopes=["notes:read"]) == text
