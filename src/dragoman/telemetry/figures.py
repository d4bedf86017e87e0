"""Counters, gauges and histograms as values: added up over several processes, and written in Prometheus' text format.

The format is 0.0.4, "Text-based format" of Prometheus' exposition formats: families with HELP and TYPE, label values
escaped, histograms cumulative with `+Inf`, `_sum` and `_count`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values, in the order in which they are written."""


EARLIEST = frozenset(("process_start_time_seconds",))
"""Families of which the least value counts, not the sum."""


class MetricSample(Struct, frozen=True, omit_defaults=True):
    """One value of a family: of a counter or a gauge one number; of a histogram how many fell into each bucket, the
    last of them beyond every bound, `total`, the sum of all, and the `least` and the `most` of them."""

    labels: Labels = ()
    total: float = 0
    buckets: tuple[int, ...] = ()
    least: float = 0
    most: float = 0


class MetricFamily(Struct, frozen=True):
    """A metric with all of its samples. `bounds`: the upper bounds of a histogram's buckets."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: list[MetricSample]
    bounds: tuple[float, ...] = ()


def sum_families(snapshots: Iterable[Sequence[MetricFamily]], *, gauges: bool = True) -> list[MetricFamily]:
    """Return the sum of several processes' families, in the order of their first occurrence. `gauges`: False leaves
    them out, since a process that has ended has nothing in flight."""
    families: dict[str, MetricFamily] = {}
    sums: dict[str, dict[Labels, MetricSample]] = {}
    for snapshot in snapshots:
        for family in snapshot:
            if family.kind == "gauge" and not gauges:
                continue
            families.setdefault(family.name, family)
            found = sums.setdefault(family.name, {})
            for sample in family.samples:
                before = found.get(sample.labels)
                if before is None:
                    found[sample.labels] = sample
                elif family.name in EARLIEST:
                    found[sample.labels] = min(before, sample, key=lambda one: one.total)
                else:
                    found[sample.labels] = _sum(before, sample)
    return [
        MetricFamily(one.name, one.kind, one.help, list(sums[one.name].values()), one.bounds)
        for one in families.values()
    ]


def _sum(one: MetricSample, other: MetricSample) -> MetricSample:
    buckets = tuple(a + b for a, b in zip(one.buckets, other.buckets, strict=True))
    both = [each for each in (one, other) if any(each.buckets)]
    least, most = min((each.least for each in both), default=0), max((each.most for each in both), default=0)
    return MetricSample(one.labels, one.total + other.total, buckets, least, most)


def quantile(bounds: Sequence[float], sample: MetricSample, share: float) -> float:
    """Return the value that this share of a histogram's values does not exceed: interpolated between the bounds of its
    bucket, within the least and the greatest value that was counted. `sample` has at least one value."""
    wanted, below = share * sum(sample.buckets), 0
    found = sample.most
    for at, fell in enumerate(sample.buckets):
        if fell and below + fell >= wanted:
            low = bounds[at - 1] if at else 0.0
            high = bounds[at] if at < len(bounds) else sample.most
            found = low + (high - low) * (wanted - below) / fell
            break
        below += fell
    return min(max(found, sample.least), sample.most)


def exposition(families: Iterable[MetricFamily]) -> bytes:
    """Write the families in the text format."""
    lines: list[str] = []
    for family in families:
        lines += [f"# HELP {family.name} {_help(family.help)}", f"# TYPE {family.name} {family.kind}"]
        for sample in family.samples:
            if family.kind == "histogram":
                lines += _histogram(family, sample)
            else:
                lines.append(f"{family.name}{_braces(sample.labels)} {_number(sample.total)}")
    return ("\n".join(lines) + "\n").encode()


def _histogram(family: MetricFamily, sample: MetricSample) -> list[str]:
    lines, count = [], 0
    for bound, fell in zip((*family.bounds, float("inf")), sample.buckets, strict=True):
        count += fell
        labels = (*sample.labels, ("le", _number(bound)))
        lines.append(f"{family.name}_bucket{_braces(labels)} {count}")
    lines.append(f"{family.name}_sum{_braces(sample.labels)} {_number(sample.total)}")
    lines.append(f"{family.name}_count{_braces(sample.labels)} {count}")
    return lines


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


def _braces(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
