"""The official conformance suite's leg for authorization servers, against ours."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from dragoman.auth.server import Client
from dragoman.auth.testing import LocalIssuer
from tests.npm import Node
from tests.ports import free_port

PATIENCE = 60.0
EXPECTED = {"authorization-server-metadata", "authorization-server-metadata-cimd", "authorization-code-grant"}


@pytest.mark.slow
@pytest.mark.parametrize("resource", ["", "https://notes.example/mcp"])
def test_every_check_of_the_suite_passes(node: Node, tmp_path: Path, resource: str) -> None:
    known = Client(id="suite", redirect_uris=("http://127.0.0.1/callback",))
    with LocalIssuer(clients=[known]) as issuer:
        process = node.start(
            str(node.modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"),
            *("authorization", "--url", issuer.url, "--client-id", "suite", "--port", str(free_port())),
            *(("--resource", resource) if resource else ()),
            *("-o", str(tmp_path)),
        )
        assert process.stdout is not None
        said = url = ""
        for line in process.stdout:
            said += line
            if line.startswith(issuer.url + "/authorize"):
                url = line.strip()
            elif line.startswith("Callback server started"):
                with urllib.request.urlopen(url, timeout=PATIENCE) as reply:  # as a browser would
                    assert reply.status == 200
        assert process.wait(PATIENCE) == 0, said
    checks = [check for file in tmp_path.rglob("*.json") for check in json.loads(file.read_text())]
    assert {check["id"] for check in checks} >= EXPECTED, said
    assert [check for check in checks if check["status"] not in ("SUCCESS", "INFO")] == []
