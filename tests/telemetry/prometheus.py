"""What reads the text format here: Prometheus' own parser in Python, and promtool and Prometheus where they are
installed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from prometheus_client.parser import text_string_to_metric_families

from tests.ports import free_port
from tests.skips import missing

PATIENCE = 300
"""Tries, of a tenth of a second, until Prometheus has an answer."""

Read = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: bytes) -> Read:
    """Every sample by its name and labels; each may be there once."""
    found: Read = {}
    for family in text_string_to_metric_families(text.decode()):
        assert family.type in ("counter", "gauge", "histogram"), family
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    return found


def value(found: Read, name: str, **labels: str) -> float:
    """One sample."""
    return found[name, frozenset(labels.items())]


def _program(name: str) -> str:
    """Where it is. Skipped where it is not installed, unless CI=true."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/bin")
    if found is None:
        missing(f"{name} is not installed (Debian's package prometheus)")
    return found


def promtool(*words: str, given: bytes = b"") -> str:
    """Run promtool; what it says. Skipped where it is not installed, unless CI=true."""
    done = subprocess.run([_program("promtool"), *words], input=given, capture_output=True, check=False, timeout=60)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said


@asynccontextmanager
async def prometheus(url: str, folder: Path) -> AsyncIterator[Callable[[str], Awaitable[list[Any]]]]:
    """Run Prometheus, which scrapes the server at `url`; gives what asks it a query until there is an answer."""
    target = {"targets": [urlsplit(url).netloc]}
    jobs = [{"job_name": "it", "scrape_interval": "200ms", "scrape_timeout": "200ms", "static_configs": [target]}]
    (folder / "prometheus.json").write_text(json.dumps({"scrape_configs": jobs}))
    place = f"127.0.0.1:{free_port()}"
    options = {"config.file": "prometheus.json", "storage.tsdb.path": "data", "web.listen-address": place}
    process = await asyncio.create_subprocess_exec(
        _program("prometheus"),
        *(f"--{name}={value}" for name, value in options.items()),
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def once(query: str) -> list[Any]:
        where = f"http://{place}/api/v1/query?{urlencode({'query': query})}"
        try:
            with urllib.request.urlopen(where, timeout=5) as answer:
                found: list[Any] = json.load(answer)["data"]["result"]
                return found
        except urllib.error.HTTPError as wrong:
            if wrong.code == 503:  # it is starting
                return []
            raise AssertionError(f"{query}: {wrong.read().decode()}") from None
        except (urllib.error.URLError, ConnectionError):
            return []

    async def ask(query: str) -> list[Any]:
        for _ in range(PATIENCE):
            if found := await asyncio.to_thread(once, query):
                return found
            assert process.returncode is None, "Prometheus has ended"
            await asyncio.sleep(0.1)
        raise AssertionError(f"no answer to {query}")

    try:
        yield ask
    finally:
        process.terminate()
        await process.wait()
