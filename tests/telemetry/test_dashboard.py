"""The Grafana dashboard: each query is one that Prometheus takes, and each metric in it is one that there is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from dragoman import serve
from dragoman.bus.memory import MemoryBus
from dragoman.channel import Caller
from dragoman.mcp import Server
from dragoman.observer import Rejection
from dragoman.telemetry import Metrics, MetricsPage
from dragoman.telemetry.instruments import INSTRUMENTS, PREFIX
from tests.engines.brokers import name as fresh

from .prometheus import prometheus, promtool
from .test_metrics import observation

PLACE = Path(__file__).parents[2] / "examples" / "grafana" / "dragoman.json"
DASHBOARD: dict[str, Any] = json.loads(PLACE.read_text(encoding="utf-8"))
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
NAME = re.compile(r"dragoman_[a-z_]+")


def names() -> set[str]:
    """Every name of a metric, with those that a histogram has."""
    found: set[str] = set()
    for name, one in INSTRUMENTS.items():
        ends = ("_bucket", "_sum", "_count") if one.kind == "histogram" else ("",)
        found |= {f"{PREFIX}{name}{end}" for end in ends}
    return found


def test_every_metric_of_it_exists() -> None:
    there = names()
    asked = {name for query in QUERIES for name in NAME.findall(query)}
    assert asked <= there
    assert {"dragoman_calls_total", "dragoman_call_duration_seconds_bucket", "dragoman_workers"} <= asked
    (service,) = [one for one in DASHBOARD["templating"]["list"] if one["name"] == "service"]
    assert set(NAME.findall(service["query"])) <= there


def test_prometheus_takes_its_queries(tmp_path: Path) -> None:
    """As expressions of recording rules, which promtool checks without a server."""
    rules = [
        {
            "record": f"dashboard:query{number}",
            "expr": query.replace("$__rate_interval", "1m").replace("$service", ".*"),
        }
        for number, query in enumerate(QUERIES)
    ]
    file = tmp_path / "rules.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(QUERIES)} rules found" in promtool("check", "rules", str(file))


async def test_prometheus_has_an_answer_to_each(tmp_path: Path) -> None:
    """It scrapes a server with everything; then there is a value for each query, though it may be 0."""
    metrics = Metrics()
    server = Server("notes", keys="a-secret-of-many-characters")
    metrics.ended(observation("m", code=1))
    metrics.ended(out := observation("m"))
    out.direction = "out"
    metrics.ended(out)
    metrics.rejected(Rejection(kind="busy", reason="", place="", caller=Caller(scheme="http")))
    metrics.read_measures(lambda: {"workers": 1, "worker_starts_total": 1, "worker_failures_total": 0})
    urls = ["http://127.0.0.1:0/mcp", f"memory+broker:{fresh()}"]
    async with (
        serve(server, urls=urls, observers=[metrics], bus=MemoryBus(fresh())),
        serve(MetricsPage(metrics.text), urls="http://127.0.0.1:0") as page,
        prometheus(page.urls[0], tmp_path) as ask,
    ):
        assert QUERIES
        for query in QUERIES:
            await ask(query.replace("$__rate_interval", "1m").replace("$service", ".*"))


def test_the_page_has_the_table_of_all_metrics() -> None:
    text = (PLACE.parents[2] / "docs" / "telemetry.md").read_text(encoding="utf-8")
    told: dict[str, tuple[str, ...]] = {}
    for names, labels in re.findall(r"^\| (`dragoman_[^|]*) \| ([a-z, ]*?) *\|", text, re.MULTILINE):
        told |= {name: tuple(re.findall("[a-z]+", labels)) for name in re.findall(r"`dragoman_([a-z_]+)`", names)}
    assert told == {name: one.labels for name, one in INSTRUMENTS.items()}
