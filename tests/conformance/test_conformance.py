"""The official conformance suite, both ways, by the script beside the project: `../shared/conformance.sh`.

Strict means what the script calls strict: every check passed, no warning, nothing vacuous, and the client ended as the
suite's own mode demands.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port
from tests.skips import SUITE, missing

ROOT = Path(__file__).parents[2]
ENDED = 2
"""The script's exit status when it could not measure."""
PATIENCE = 280.0

SERVER_SCORE = {"2025-11-25": 30, "2026-07-28": 37}
SERVER_BESIDES = {
    "2025-11-25": ["server-session-lifecycle", "json-schema-2020-12", "server-sse-polling"],
    "2026-07-28": [
        "json-schema-2020-12",
        "http-header-validation",
        "http-custom-header-server-validation",
        "tasks-lifecycle",
        "tasks-capability-negotiation",
        "tasks-wire-fields",
        "tasks-request-state-removal",
        "tasks-mrtr-input",
        "tasks-request-headers",
        "tasks-dispatch-and-envelope",
        "tasks-required-task-error",
        "tasks-mrtr-composition",
    ],
}
"""Scenarios that are in no score, and pass as well."""
CLIENT = {
    "2025-11-25": ["initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"],
    "2026-07-28": [
        "tools_call",
        "request-metadata",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
    ],
}
CLIENT_BESIDES = ["json-schema-2020-12-preservation"]
AUTH = {"2025-11-25": 14, "2026-07-28": 25}
"""How many scenarios of authorization are required."""
AUTH_BESIDES = [
    "auth/client-credentials-jwt",
    "auth/client-credentials-basic",
    "auth/enterprise-managed-authorization",
    "auth/dpop",
    "auth/dpop-nonce",
    "auth/wif-jwt-bearer",
]
AUTH_OLD = ["auth/2025-03-26-oauth-metadata-backcompat", "auth/2025-03-26-oauth-endpoint-fallback"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * PATIENCE)]


def measured(out: Path, *options: str) -> dict[str, Any]:
    """The script's results."""
    if not SUITE.exists():
        pytest.skip("the official suite's script is not beside the project")
    if shutil.which("npm") is None:
        missing("no npm on this machine, so no conformance suite")
    with (Path(tempfile.gettempdir()) / "mcp-conformance.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the script keeps its parts in one folder
        done = subprocess.run(
            [str(SUITE), "--out", str(out), *options],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
            | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    print(done.stdout, done.stderr)
    if done.returncode == ENDED and not (out / "results.json").exists():
        if "no answer at" in done.stderr:
            pytest.fail(done.stderr)
        missing(f"the suite cannot be installed: {done.stderr.strip()[-500:]}")
    found: dict[str, Any] = json.loads((out / "results.json").read_text())
    return found


def rows(found: dict[str, Any], revision: str) -> dict[str, dict[str, Any]]:
    """The scenarios of one revision."""
    return {row["scenario"]: row for row in found["rows"] if row["rev"] == revision}


def faults(row: dict[str, Any]) -> list[str]:
    """Why a scenario did not pass strictly; empty where it did."""
    said = [f"{one['status']} {one['id']}: {one['message']}" for one in row["msgs"]]
    notes = [note for note in row["note"] if not note.startswith("skipped")]
    return [] if row["state"] == "pass" and not said and not notes else [row["state"], *notes, *said]


@pytest.mark.parametrize("revision", SERVER_SCORE)
def test_our_server(revision: str, tmp_path: Path) -> None:
    port = free_port()
    command = f"{sys.executable} -m tests.conformance.server --port {port}"
    url = f"http://127.0.0.1:{port}/mcp"
    found = measured(tmp_path, "--no-extra", "--revisions", revision, "--url", url, "--server-cmd", command)
    ran = rows(found, revision)
    required = [name for name, row in ran.items() if row["required"]]
    assert len(required) == SERVER_SCORE[revision]
    wanted = [*required, *SERVER_BESIDES[revision]]
    assert {name: faults(ran[name]) for name in wanted if faults(ran[name])} == {}
    assert f"strict {len(required)}/{len(required)}" in found["summary"][0]


@pytest.mark.parametrize("revision", CLIENT)
def test_our_client(revision: str, tmp_path: Path) -> None:
    wanted = [*CLIENT[revision], *CLIENT_BESIDES]
    only = f"^({'|'.join(wanted)})$"
    command = f"{sys.executable} -m tests.conformance.client"
    found = measured(tmp_path, "--no-extra", "--revisions", revision, "--only", only, "--client", command)
    ran = rows(found, revision)
    assert set(wanted) == set(ran)
    assert {name: faults(row) for name, row in ran.items() if faults(row)} == {}
    assert f"strict {len(CLIENT[revision])}/{len(CLIENT[revision])}" in found["summary"][0]


@pytest.mark.parametrize("revision", AUTH)
def test_our_client_logs_in(revision: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m tests.conformance.client"
    found = measured(tmp_path, "--revisions", revision, "--only", "^auth/", "--client", command)
    ran = rows(found, revision)
    required = [name for name, row in ran.items() if row["required"]]
    assert len(required) == AUTH[revision]
    assert set(AUTH_BESIDES) <= set(ran)
    assert {name: faults(row) for name, row in ran.items() if faults(row)} == {}
    assert f"strict {len(required)}/{len(required)}" in found["summary"][0]
    old = {row["scenario"]: faults(row) for row in found["rows"] if row["scenario"] in AUTH_OLD}
    assert old == {name: [] for name in AUTH_OLD}
