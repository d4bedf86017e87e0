# [fixture]
from collections.abc import Iterator

import pytest

from dragoman.auth.testing import LocalIssuer


@pytest.fixture(scope="session")
def issuer() -> Iterator[LocalIssuer]:
    with LocalIssuer(resources=["https://notes.example/mcp"]) as running:
        yield running


def test_a_stale_token_is_stale(issuer: LocalIssuer) -> None:
    stale = issuer.claims(issuer.expired("alice"))
    assert stale["exp"] < issuer.claims(issuer.token("alice"))["iat"]


# [/fixture]
