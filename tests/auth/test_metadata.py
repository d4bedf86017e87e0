from __future__ import annotations

import pytest

from dragoman import LocalError, auth
from dragoman.auth import server
from dragoman.auth.client.endpoints import check_endpoint
from dragoman.auth.metadata import (
    MetadataRefused,
    ProtectedResource,
    ServerMetadata,
    canonical,
    check_document_issuer,
    check_document_resource,
    decode_document,
    origin_of,
    resource_locations,
    server_locations,
)

AS = "/.well-known/oauth-authorization-server"
OIDC = "/.well-known/openid-configuration"
PRM = "/.well-known/oauth-protected-resource"


@pytest.mark.parametrize(
    ("issuer", "places"),
    [
        ("https://as.example", [AS, OIDC]),
        ("https://as.example/", [AS, OIDC]),
        ("https://as.example/t1", [f"{AS}/t1", f"{OIDC}/t1", f"/t1{OIDC}"]),
        ("https://as.example/t1/", [f"{AS}/t1", f"{OIDC}/t1", f"/t1{OIDC}"]),
    ],
)
def test_where_the_metadata_of_an_issuer_may_be(issuer: str, places: list[str]) -> None:
    assert server_locations(issuer) == [f"https://as.example{place}" for place in places]


NONE = ["https://[", "https://a]/", "https://a:99999/", "https://a:bad/"]
"""Text that begins as a URL and is none."""


@pytest.mark.parametrize(
    "issuer", ["", "as.example", "ftp://as.example", "https://", "https://a/?q", "https://a/#f", *NONE]
)
def test_what_is_no_issuer(issuer: str) -> None:
    with pytest.raises(MetadataRefused):
        server_locations(issuer.replace("?q", "?q=1"))


@pytest.mark.parametrize("url", NONE)
def test_what_is_no_url_is_refused_wherever_a_document_has_it(url: str) -> None:
    with pytest.raises(MetadataRefused):
        check_document_resource(ProtectedResource(resource=url), "https://h/mcp")
    with pytest.raises(MetadataRefused):
        resource_locations(url)
    with pytest.raises(MetadataRefused):
        check_endpoint(url, "token_endpoint")
    with pytest.raises(LocalError):
        auth.Bearer(url, resource="https://h/mcp")
    with pytest.raises(LocalError):
        auth.Bearer("https://as.example", resource=url)
    with pytest.raises(LocalError):
        server.AuthorizationServer(url)


@pytest.mark.parametrize(
    ("url", "places"),
    [
        ("https://h/mcp", [f"{PRM}/mcp", PRM]),
        ("https://h/a/mcp?x=1", [f"{PRM}/a/mcp", PRM]),
        ("https://h", [PRM]),
        ("https://h/", [PRM]),
    ],
)
def test_where_the_metadata_of_a_resource_may_be(url: str, places: list[str]) -> None:
    assert resource_locations(url) == [f"https://h{place}" for place in places]


@pytest.mark.parametrize(
    ("url", "right"),
    [
        ("HTTPS://Example.COM/Mcp", "https://example.com/Mcp"),
        ("https://h/", "https://h"),
        ("https://h:443/mcp/", "https://h/mcp/"),
        ("http://h:80", "http://h"),
        ("https://u:p@h:8443/mcp#f", "https://h:8443/mcp"),
    ],
)
def test_canonical(url: str, right: str) -> None:
    assert canonical(url) == right


def test_origin() -> None:
    assert origin_of("https://h:8443/mcp?x=1") == "https://h:8443"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"issuer":1}', b'{"issuer":"\xff"}', b"[" * 100_000])
def test_what_is_no_document(body: bytes) -> None:
    with pytest.raises(MetadataRefused, match=r"https://as\.example/x"):
        decode_document(body, ServerMetadata, "https://as.example/x")


@pytest.mark.parametrize(
    "named", ["https://as.example/", "https://AS.example", "https://as.example:443", "https://evil"]
)
def test_an_issuer_is_compared_byte_for_byte(named: str) -> None:
    with pytest.raises(MetadataRefused, match="issuer="):
        check_document_issuer(ServerMetadata(issuer=named), "https://as.example")
    check_document_issuer(ServerMetadata(issuer=named), named)


@pytest.mark.parametrize(
    ("named", "ours", "good"),
    [
        ("https://h/mcp", "https://h/mcp", True),
        ("https://h/mcp", "https://H:443/mcp?key=1", True),
        ("https://h", "https://h/mcp", True),
        ("https://h/", "https://h/mcp", True),
        ("https://h/mcp2", "https://h/mcp", False),
        ("https://h/m", "https://h/mcp", False),
        ("https://h/mcp/", "https://h/mcp", False),
        ("http://h/mcp", "https://h/mcp", False),
        ("https://evil.example.com/mcp", "https://h/mcp", False),
        ("https://h:8443", "https://h/mcp", False),
    ],
)
def test_whose_metadata_a_document_is(named: str, ours: str, good: bool) -> None:
    document = ProtectedResource(resource=named)
    if good:
        check_document_resource(document, ours)
    else:
        with pytest.raises(MetadataRefused, match="resource="):
            check_document_resource(document, ours)
