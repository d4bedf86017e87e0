"""The doctor has no hint for healthy far ends, and says what they are; its output and exit statuses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trustme

from dragoman import Service, serve
from dragoman.cli.doctor.doctor import run_examination
from dragoman.cli.doctor.record import Examination
from dragoman.cli.options import AccessOptions, LinkOptions, WireOptions
from dragoman.mcp import Server

from ..conftest import Command
from .test_faults import ANSWERS, LSP, far_end, server_tls

LEGACY = """\
import json, sys
SAYS = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}},
    "tools/list": {"tools": []},
    "ping": {},
}
for line in sys.stdin:
    said = json.loads(line)
    if "id" in said:
        known = said["method"] in SAYS
        body = {"result": SAYS[said["method"]]} if known else {"error": {"code": -32601, "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": said["id"]} | body), flush=True)
"""
LOGS = "import sys\nprint('ready', file=sys.stderr, flush=True)\n"


def service() -> Service:
    api = Service("calculator")

    @api.method
    def subtract(a: int, b: int) -> int:
        return a - b

    return api


def server() -> Server:
    app = Server("weather")

    @app.tool
    def forecast(city: str) -> str:
        return city

    return app


def said(record: Examination) -> dict[str, str]:
    """What each step of a healthy examination found."""
    assert record.fault is None, record
    assert all(step.ok for step in record.steps)
    assert all(step.ms >= 0 for step in record.steps)
    return {step.name: step.said for step in record.steps}


@pytest.mark.parametrize("scheme", ["tcp", "tls", "http", "https", "ws", "wss", "unix", "udp", "framing", "json"])
async def test_a_service(scheme: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    tls = server_tls() if scheme in ("tls", "https", "wss") else None
    link = LinkOptions()
    if tls is not None:
        authority.issue_cert("127.0.0.1").configure_cert(tls)
        link = LinkOptions(access=AccessOptions(ca=str(tmp_path / "ca.pem")))
    place = {
        "unix": f"unix:{tmp_path}/calc.sock",
        "framing": "tcp://127.0.0.1:0?framing=content-length",
        "json": "tcp://127.0.0.1:0?framing=json",
    }.get(scheme, f"{scheme}://127.0.0.1:0")
    async with serve(service(), urls=[place], tls=tls) as serving:
        found = said(await run_examination(serving.urls[0], link, WireOptions()))
    assert found["protocol"].startswith("JSON-RPC 2.0, ")


@pytest.mark.parametrize("scheme", ["tcp", "http", "ws", "unix"])
async def test_a_server_of_mcp(scheme: str, tmp_path: Path) -> None:
    place = f"unix:{tmp_path}/app.sock" if scheme == "unix" else f"{scheme}://127.0.0.1:0"
    async with serve(server(), urls=[f"{place}/mcp" if scheme in ("http", "ws") else place]) as serving:
        found = said(await run_examination(serving.urls[0], LinkOptions(), WireOptions()))
    assert found["era"] == "MCP 2026-07-28, stateless"
    assert "tools" in found["capabilities"]
    assert found["call"] == "1 tool"


@pytest.mark.parametrize(
    ("text", "step", "what", "framing"),
    [
        (ANSWERS, "era", "JSON-RPC 2.0, which does not describe itself", None),
        (LOGS + ANSWERS, "stderr", "1 lines", None),
        (LEGACY, "era", "MCP 2025-06-18, with sessions", None),
        (LOGS + LEGACY, "call", "no tools", None),
        (LSP, "framing", "content-length", "content-length"),
    ],
)
async def test_a_foreign_program(text: str, step: str, what: str, framing: str | None, tmp_path: Path) -> None:
    (tmp_path / "far.txt").write_text(text)
    wire = WireOptions(framing=framing)  # type: ignore[arg-type]
    found = said(await run_examination(f"{sys.executable} {tmp_path}/far.txt", LinkOptions(), wire))
    assert found[step] == what


@pytest.mark.parametrize("name", ["calculator.py:api", "weather.py"])
async def test_a_file_of_ours(name: str, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    (command.folder / "weather.py").write_text("from dragoman.mcp import Server\napp = Server('weather')\n")
    monkeypatch.chdir(command.folder)
    found = said(await run_examination(name, LinkOptions(), WireOptions()))
    assert found["spawn"].startswith("process ")


async def test_a_notification_may_come_first() -> None:
    line = b'{"jsonrpc":"2.0","method":"hello"}\n{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}\n'
    async with far_end(line) as url:
        record = await run_examination(url, LinkOptions(), WireOptions())
    assert [(step.name, step.ok) for step in record.steps][:3] == [("dns", True), ("tcp", True), ("answer", True)]


def test_the_command(command: Command) -> None:
    done = command.run("doctor", "calculator.py", "--json")
    assert (done.status, done.err) == (0, "")
    assert done.json["healthy"] is True
    assert done.json["fault"] is None
    assert [step["name"] for step in done.json["steps"]] == ["spawn", "first byte", "framing", "stderr", "protocol"]
    done = command.run("doctor", "calculator.py")
    assert done.status == 0
    assert "JSON-RPC 2.0, 6 methods in rpc.discover" in done.out
    done = command.run("doctor", "nosuchprogram", "--json")
    assert done.status == 3
    assert done.json["fault"]["kind"] == "no_program"
    done = command.run("doctor", "nosuchprogram", env={"COLUMNS": "20"})
    assert len(done.out.splitlines()) == 2  # a step, and what to do
    assert (done.status, done.out.splitlines()[-1][:24]) == (3, "what to do: install nosu")
    (command.folder / "echo.py").write_text("import sys\nfor line in sys.stdin:\n    print(line, end='', flush=True)\n")
    assert command.run("doctor", f"{sys.executable} echo.py").status == 1
    assert command.run("doctor", "127.0.0.1:9000").status == 2
    assert command.run("doctor", "tcp://127.0.0.1").status == 2


BAD = """\
import json, sys
SAYS = {says}
for line in sys.stdin:
    said = json.loads(line)
    if "id" in said:
        body = SAYS.get(said["method"]) or {{"error": {{"code": -32601, "message": "no"}}}}
        print(json.dumps({{"jsonrpc": "2.0", "id": said["id"]}} | body), flush=True)
"""
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}


@pytest.mark.parametrize(
    ("says", "kind", "fix"),
    [
        ({"initialize": {"result": {"ok": True}}}, "handshake", "protocolVersion"),
        ({"initialize": {"result": HELLO | {"protocolVersion": "2030-01-01"}}}, "revision", "upgrade it"),
        ({"initialize": {"result": HELLO}}, "broken_promise", "must answer the lists"),
        ({"initialize": {"result": HELLO}, "tools/list": {"result": {"tools": 1}}}, "bad_result", "--trace -"),
    ],
)
async def test_faults_of_mcp(says: dict[str, object], kind: str, fix: str, tmp_path: Path) -> None:
    (tmp_path / "far.txt").write_text(BAD.format(says=says))
    record = await run_examination(f"{sys.executable} {tmp_path}/far.txt", LinkOptions(), WireOptions())
    assert record.fault is not None, record
    assert record.fault.kind == kind
    assert fix in record.fault.fix


async def test_a_wrong_path_is_told_with_the_right_one() -> None:
    async with serve({"/mcp": server()}, urls=["http://127.0.0.1:0"]) as serving:
        url = serving.urls[0].removesuffix("/mcp")
        record = await run_examination(f"{url}/wrong", LinkOptions(), WireOptions())
    assert record.fault is not None
    assert record.fault.kind == "not_found"
    assert record.fault.fix == f"an endpoint answers at {url}/mcp: write that"
