"""A login at an issuer that can give no token ends before anything is registered and anybody is sent to log in."""

from __future__ import annotations

import pytest

from dragoman.auth.client.discovery import DiscoveryOptions
from dragoman.auth.client.login import Terms, TokenRequest, login
from dragoman.auth.client.registration import ClientOptions
from dragoman.auth.errors import AuthError

from .scripted import AS, PRM, RESOURCE, Get, ScriptedWorld, resource, server


@pytest.mark.parametrize("device", [False, True])
def test_it_ends_after_the_two_documents(device: bool) -> None:
    world = ScriptedWorld({PRM: resource(), AS: server(token_endpoint=None)})
    asked = TokenRequest(url=RESOURCE, challenge=None, clock=lambda: 0.0)
    with pytest.raises(AuthError, match="has no token_endpoint"):
        world.play(login(world, asked, Terms(wanted=DiscoveryOptions(), client=ClientOptions(), device=device)))
    assert world.steps == [Get(PRM), Get(AS)]
