"""npm's oidc-provider, a certified issuer that is not ours, as the issuer of the tokens that we verify."""

from __future__ import annotations

import base64
import json
import time
import urllib.request
from typing import Any
from urllib.parse import urlencode

import pytest

from dragoman.auth import Bearer, Introspection, TokenRefused
from dragoman.auth.dpop import proof
from dragoman.auth.jose import Key, new_key
from dragoman.channel import Handshake
from tests.npm import Node

RESOURCE = "https://notes.example/mcp"
BASIC = "Basic " + base64.b64encode(b"job:canary-7f3a-of-the-tests").decode()

pytestmark = pytest.mark.slow


@pytest.fixture
def issuer(node: Node) -> str:
    """Its URL."""
    return f"http://127.0.0.1:{node.listen('oidc.cjs')}"


def token(issuer: str, key: Key | None = None, **form: str) -> Any:
    """The answer of its token endpoint."""
    fields = {"grant_type": "client_credentials", "scope": "notes:read", "resource": RESOURCE} | form
    headers = {"Authorization": BASIC} | ({} if key is None else {"DPoP": proof(key, "POST", issuer + "/token")})
    request = urllib.request.Request(issuer + "/token", urlencode(fields).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)


def handshake(scheme: str, text: str, **more: str) -> Handshake:
    """A call with a token."""
    pairs = [(b"authorization", f"{scheme} {text}".encode()), *((n.encode(), v.encode()) for n, v in more.items())]
    return Handshake(scheme="https", method="POST", url=RESOURCE, headers=pairs)


async def test_its_tokens_are_verified(issuer: str) -> None:
    text = token(issuer)["access_token"]
    found = await Bearer(issuer, resource=RESOURCE).verify(text, handshake("Bearer", text))
    assert (found.issuer, found.client_id, found.scopes) == (issuer, "job", frozenset({"notes:read"}))
    assert found.expires_at is not None
    assert found.expires_at > time.time()


async def test_a_token_for_another_resource_is_refused(issuer: str) -> None:
    text = token(issuer, resource="https://other.example/mcp")["access_token"]
    with pytest.raises(TokenRefused):
        await Bearer(issuer, resource=RESOURCE).verify(text, handshake("Bearer", text))


async def test_a_bound_token_needs_its_proof(issuer: str) -> None:
    key = new_key("ES256")
    given = token(issuer, key)
    text = given["access_token"]
    assert given["token_type"] == "DPoP"
    bearer = Bearer(issuer, resource=RESOURCE, dpop="accepted")
    sent = proof(key, "POST", RESOURCE, token=text)
    assert (await bearer.verify(text, handshake("DPoP", text, dpop=sent))).client_id == "job"
    for wrong in (handshake("Bearer", text), handshake("DPoP", text, dpop=proof(new_key("ES256"), "POST", RESOURCE))):
        with pytest.raises(TokenRefused):
            await bearer.verify(text, wrong)


async def test_its_opaque_tokens_are_introspected(issuer: str) -> None:
    text = token(issuer, resource=RESOURCE + "/opaque")["access_token"]
    assert text.count(".") != 2
    verifier = Introspection(
        issuer + "/token/introspection",
        issuer=issuer,
        resource=RESOURCE,
        audience=RESOURCE + "/opaque",
        client_id="job",
        secret="canary-7f3a-of-the-tests",
    )
    found = await verifier.verify(text, handshake("Bearer", text))
    assert (found.client_id, found.scopes) == ("job", frozenset({"notes:read"}))
    with pytest.raises(TokenRefused):
        await verifier.verify("made up", handshake("Bearer", "made up"))
