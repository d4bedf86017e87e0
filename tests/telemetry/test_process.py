"""The numbers of the process, and what is read off a histogram."""

from __future__ import annotations

import os
import sys
from random import Random

import psutil
import pytest

from dragoman import __version__
from dragoman.telemetry import Metrics
from dragoman.telemetry.figures import MetricFamily, MetricSample, exposition, quantile, sum_families
from dragoman.telemetry.metrics import BOUNDS
from dragoman.telemetry.process import process_families

from .prometheus import parsed, promtool
from .test_metrics import observation

NAMES = {
    "process_cpu_seconds_total": "counter",
    "process_resident_memory_bytes": "gauge",
    "process_virtual_memory_bytes": "gauge",
    "process_start_time_seconds": "gauge",
    "process_open_fds": "gauge",
    "process_max_fds": "gauge",
}


def values() -> dict[str, float]:
    return {one.name: one.samples[0].total for one in process_families()}


@pytest.mark.skipif(sys.platform != "linux", reason="what other systems tell is less")
def test_the_process_is_told_as_prometheus_clients_tell_it() -> None:
    found = {one.name: one.kind for one in process_families()}
    assert found.pop("dragoman_build_info") == "gauge"
    assert found == NAMES
    before = values()
    ends = os.pipe()
    try:
        after = values()
        assert after["process_open_fds"] == before["process_open_fds"] + 2
    finally:
        for end in ends:
            os.close(end)
    assert after["process_cpu_seconds_total"] >= before["process_cpu_seconds_total"] > 0
    assert 1 << 20 < after["process_resident_memory_bytes"] < after["process_virtual_memory_bytes"]
    assert after["process_start_time_seconds"] == before["process_start_time_seconds"]
    assert abs(after["process_start_time_seconds"] - psutil.Process().create_time()) < 1


def test_they_are_on_the_page() -> None:
    text = Metrics().text()
    found = parsed(text)
    assert {name for name, _ in found} >= {*NAMES, "dragoman_build_info"}
    (labels,) = [dict(labels) for name, labels in found if name == "dragoman_build_info"]
    assert labels["version"] == __version__
    promtool("check", "metrics", given=text)


def test_of_several_processes_the_first_start_counts() -> None:
    each = [
        [
            MetricFamily("process_start_time_seconds", "gauge", "", [MetricSample((), began)]),
            MetricFamily("process_open_fds", "gauge", "", [MetricSample((), 3)]),
            MetricFamily("dragoman_build_info", "gauge", "", [MetricSample((("version", version),), 1)]),
        ]
        for began, version in ((7.0, "1"), (5.0, "2"), (6.0, "2"))
    ]
    assert exposition(sum_families(each)).splitlines() == [
        b"# HELP process_start_time_seconds ",
        b"# TYPE process_start_time_seconds gauge",
        b"process_start_time_seconds 5",
        b"# HELP process_open_fds ",
        b"# TYPE process_open_fds gauge",
        b"process_open_fds 9",
        b"# HELP dragoman_build_info ",
        b"# TYPE dragoman_build_info gauge",
        b'dragoman_build_info{version="1"} 1',
        b'dragoman_build_info{version="2"} 2',
    ]


def counted(*seconds: float) -> MetricSample:
    """The histogram of calls that took so long."""
    metrics = Metrics()
    for each in seconds:
        seen = observation("m")
        seen.began = seen.started = 0.0
        seen.ended = each
        metrics.ended(seen)
    (family,) = [one for one in metrics.snapshot() if one.name == "dragoman_call_duration_seconds"]
    (sample,) = family.samples
    return sample


@pytest.mark.parametrize(
    ("seconds", "share", "found"),
    [
        ([15.0], 0.5, 15.0),
        ([15.0], 0.99, 15.0),
        ([0.000003], 0.5, 0.000003),
        ([300.0], 0.5, 300.0),
        ([29.0, 29.5], 0.5, 29.0),
        ([100.0, 500.0], 0.99, 495.6),
        ([0.02] * 99 + [15.0], 0.5, 0.02),
        ([0.02] * 99 + [15.0], 0.999, 15.0),
    ],
)
def test_a_share_is_never_beyond_what_there_was(seconds: list[float], share: float, found: float) -> None:
    sample = counted(*seconds)
    assert (sample.least, sample.most) == (min(seconds), max(seconds))
    assert quantile(BOUNDS, sample, share) == pytest.approx(found, rel=0.01)


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_a_share_of_many_is_within_its_bucket(share: float) -> None:
    drawn = Random(5)
    seconds = sorted(drawn.lognormvariate(-4, 1.5) for _ in range(2_000))
    exact = seconds[int(share * len(seconds)) - 1]
    low = max(bound for bound in (0.0, *BOUNDS) if bound < exact)
    high = min(bound for bound in BOUNDS if bound >= exact)
    assert low <= quantile(BOUNDS, counted(*seconds), share) <= high


def test_sums_keep_the_least_and_the_most() -> None:
    family = MetricFamily("x", "histogram", "", [counted(2.0, 3.0)], BOUNDS)
    other = MetricFamily("x", "histogram", "", [counted(1.0)], BOUNDS)
    empty = MetricFamily("x", "histogram", "", [MetricSample(counted(1.0).labels, 0, (0,) * (len(BOUNDS) + 1))], BOUNDS)
    (sample,) = sum_families([[empty], [family], [other]])[0].samples
    assert (sample.least, sample.most, sample.total) == (1.0, 3.0, 6.0)
