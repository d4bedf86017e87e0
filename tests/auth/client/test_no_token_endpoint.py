"""A login at an issuer that can give no token ends before anything is registered and anybody is sent to log in."""

from __future__ import annotations

import json

import pytest

from dragoman.auth.client.discovery import Wanted
from dragoman.auth.client.login import Asked, Terms, login
from dragoman.auth.client.registration import Client
from dragoman.auth.client.steps import Get
from dragoman.auth.errors import AuthError
from dragoman.auth.fetch import Fetched

URL = "https://mcp.example.org/mcp"
RESOURCE = {"resource": URL, "authorization_servers": ["https://login.example"]}
ISSUER = {
    "issuer": "https://login.example",
    "authorization_endpoint": "https://login.example/authorize",
    "registration_endpoint": "https://login.example/register",
    "code_challenge_methods_supported": ["S256"],
}


@pytest.mark.parametrize("device", [False, True])
def test_it_ends_after_the_two_documents(device: bool) -> None:
    flow = login(
        Asked(url=URL, challenge=None, clock=lambda: 0.0), Terms(wanted=Wanted(), client=Client(), device=device)
    )
    step = next(flow)
    for document in (RESOURCE, ISSUER):
        assert isinstance(step, Get)
        if document is ISSUER:
            with pytest.raises(AuthError, match="has no token_endpoint"):
                flow.send(Fetched(200, {}, json.dumps(document).encode()))
        else:
            step = flow.send(Fetched(200, {}, json.dumps(document).encode()))
