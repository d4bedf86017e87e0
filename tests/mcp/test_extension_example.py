"""The extension of docs/mcp/extensions.md, as a third party writes it: over each kind of wire, in both eras."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import serve
from dragoman.jsonrpc.errors import RpcError
from dragoman.mcp import Client
from dragoman.mcp.protocol.revisions import R2025_06, R2025_11, R2026_07, Revision
from tests.engines.brokers import name

ROOT = Path(__file__).parents[2]
SOURCE = (ROOT / "docs/snippets/mcp/extension_jobs.py").read_text()
WIRES = ["memory", "tcp", "http", "stdio", "broker"]
SERVED = "\n\nfrom dragoman import serve\nasyncio.run(serve(app, urls='stdio:'))\n"

every = pytest.mark.parametrize("revision", [R2025_06, R2025_11, R2026_07], ids=lambda one: one.date)


def example(tmp_path: Path) -> Any:
    """Return what the page defines, as a module of its own, without running it."""
    path = tmp_path / "extension_jobs.py"
    path.write_text(SOURCE.replace("asyncio.run(main())", ""))
    spec = importlib.util.spec_from_file_location(f"extension_jobs_{id(path)}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@asynccontextmanager
async def client_over(wire: str, tmp_path: Path, one: Any, request: Any, **options: Any) -> AsyncIterator[Client]:
    """Yield a client with the extension, at a server with it."""
    options |= {"on_elicit": lambda question: {"value": "Ada"}}
    if wire == "memory":
        async with Client(one.app, **options) as client:
            yield client
    elif wire == "stdio":
        program = tmp_path / "lab.py"
        program.write_text(SOURCE.partition("# [client]")[0] + SERVED)
        async with Client([sys.executable, str(program)], **options) as client:
            yield client
    else:
        urls = {"tcp": "tcp://127.0.0.1:0", "http": "http://127.0.0.1:0/mcp"}
        url = urls.get(wire) or f"{request.getfixturevalue('mosquitto').url}/{name('jobs')}"
        async with serve(one.app, urls=url) as serving, Client(serving.urls[0], **options) as client:
            yield client


@every
@pytest.mark.parametrize("wire", WIRES)
async def test_a_slow_tool_asks_and_ends_as_a_job(
    wire: str, revision: Revision, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    one = example(tmp_path)
    options: dict[str, Any] = {"extensions": [one.ClientJobs()], "revision": revision}
    async with client_over(wire, tmp_path, one, request, **options) as client:
        assert client.revision is revision
        assert "com.example/jobs" in str(client.capabilities.extensions)
        assert (await client.call_tool("train", {"rows": 3})).text == "Ada of 3 rows"
        with pytest.raises(RpcError):
            await client.request("com.example/job", one.JobParams("another"))


@every
@pytest.mark.parametrize("wire", ["memory", "http"])
async def test_a_client_without_it_gets_the_tool_s_own_result(
    wire: str, revision: Revision, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    one = example(tmp_path)
    async with client_over(wire, tmp_path, one, request, revision=revision) as client:
        assert (await client.call_tool("train", {"rows": 3})).text == "Ada of 3 rows"


@pytest.mark.parametrize("wire", ["memory", "tcp", "http", "broker"])
async def test_a_subscriber_is_notified_of_its_jobs(wire: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    one, jobs, heard = example(tmp_path), list[str](), asyncio.Event()

    def hear(params: Any, client: Any) -> None:
        jobs.append(params["jobId"])
        heard.set()

    class Follows(one.ClientJobs):  # type: ignore[misc,name-defined]
        @property
        def heard(self) -> Any:
            return {"notifications/com.example/job": hear}

    options: dict[str, Any] = {"extensions": [Follows()], "revision": R2026_07}
    async with client_over(wire, tmp_path, one, request, **options) as client:
        assert (await client.call_tool("train", {"rows": 1})).text == "Ada of 1 rows"
        extension = one.app._extending.all[0]
        [id] = extension.work
        async with client.subscribe(topics={"jobIds": [id, "another"]}) as subscription:
            assert subscription.granted_topics == {"jobIds": [id]}
            extension.home.notify("jobs", id, {"jobId": id})
            await asyncio.wait_for(heard.wait(), 10)
        assert jobs == [id]
