"""What the console shows of what is kept: filters, rows, and what is masked. Pure.

A filter is words with spaces between them, and all must fit: `method:x status:error ms:>500 principal:ada`. A word
without a colon fits where the method, the target or the text holds it. Upper and lower case are the same. It is the
same for all kinds of rows, which differ in their members: a filter knows those that its rows have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from ..events.board import EventCounts, EventSubscription
from ..jsonrpc.errors import LocalError
from ..rpc.tracing import SECRETS
from .rows import FAILED, EndedCall, MessageRow, MethodRow, MethodSeconds, SubscriptionRows, TaskRow, TaskRows
from .series import percentile

LONGEST: Final = 500
"""Characters of a filter."""
TERMS: Final = 20
"""Words of a filter: each is tried with every row."""
NUMBERS: Final = {"ms": "ms", "wait": "wait", "in": "received", "out": "sent", "code": "code", "size": "size"}
"""What a filter compares as a number, and the row's members."""
NAMES: Final = {
    "method": ("method", "target"),
    "target": ("target",),
    "service": ("service",),
    "kind": ("kind",),
    "direction": ("direction",),
    "wire": ("wire",),
    "remote": ("remote",),
    "session": ("session",),
    "principal": ("principal",),
    "text": ("text",),
    "about": ("about",),
    "id": ("id",),
    "parent": ("parent",),
}
"""What a filter compares as text, and the row's members, of which one must hold it."""
_WHOLE: Final = frozenset({"id", "parent", "kind", "direction", "wire"})
"""Members that must be equal, not only hold the text."""
_COMPARISON = re.compile(r"(<=|>=|<|>|=)?(-?[0-9]{1,15}(?:\.[0-9]{1,6})?)\Z")
_secret = re.compile("|".join("[-_]*".join(word) for word in SECRETS), re.IGNORECASE)

Fits: TypeAlias = Callable[[Any], bool]
T = TypeVar("T")
H = TypeVar("H", TaskRow, EventSubscription)


def mask(text: str) -> str:
    """Return a text that ends with the first word which names a secret, as the lines of a trace do."""
    found = _secret.search(text)
    return text if found is None else f"{text[: found.end()]}***"


def parse_filter(text: str, rows: type[Struct] = EndedCall) -> Fits:
    """Return the function that decides whether a row fits. `rows`: what the rows are. Raises LocalError for what is no
    filter of theirs."""
    if len(text) > LONGEST:
        raise LocalError(f"a filter has at most {LONGEST} characters, and this has {len(text)}")
    words = text.split()
    if len(words) > TERMS:
        raise LocalError(f"a filter has at most {TERMS} words, and this has {len(words)}")
    terms = [_term(word, frozenset(rows.__struct_fields__)) for word in words]
    return lambda row: all(fits(row) for fits in terms)


def pick_messages(rows: Iterable[MessageRow], filter: str, limit: int, before: float | None = None) -> list[MessageRow]:
    """Return the first messages that fit, `limit` at most. `before`: only what passed before this time. Raises
    LocalError for what is no filter."""
    return _pick(rows, parse_filter(filter, MessageRow), limit, lambda one: before is None or one.time < before)


def pick_calls(rows: Iterable[EndedCall], filter: str, limit: int, before: float | None = None) -> list[EndedCall]:
    """Return the first ended calls that fit, `limit` at most. `before`: only what ended before this time. Raises
    LocalError for what is no filter."""
    return _pick(rows, parse_filter(filter), limit, lambda one: before is None or one.ended < before)


def _pick(rows: Iterable[T], fits: Fits, limit: int, in_time: Fits) -> list[T]:
    return list(islice((one for one in rows if in_time(one) and fits(one)), max(0, limit)))


def _term(word: str, members: frozenset[str]) -> Fits:
    name, colon, value = word.partition(":")
    if not colon or not name:
        wanted = word.lower()
        return lambda row: any(wanted in text.lower() for text in (row.method, row.target, row.text))
    if not value:
        raise LocalError(f"{word} says nothing after the colon; write it as in method:add")
    if name == "status":
        return _status(value.lower())
    if NUMBERS.get(name) in members:
        return _number(NUMBERS[name], word, value)
    looked_at = NAMES.get(name, ())
    if not looked_at or not members.issuperset(looked_at):
        numbers = [known for known, member in NUMBERS.items() if member in members]
        texts = [known for known, those in NAMES.items() if members.issuperset(those)]
        known = ", ".join(sorted([*texts, *numbers, "status"]))
        raise LocalError(f"{name[:50]} is nothing that a filter knows; it knows {known}")
    wanted = value.lower()
    if name in _WHOLE:
        return lambda row: any(wanted == getattr(row, member).lower() for member in looked_at)
    return lambda row: any(wanted in getattr(row, member).lower() for member in looked_at)


def _status(wanted: str) -> Fits:
    if wanted == "error":
        return lambda row: row.outcome in FAILED
    if wanted == "ok":
        return lambda row: row.outcome != "" and row.outcome not in FAILED
    return lambda row: row.outcome == wanted


def _number(member: str, word: str, value: str) -> Fits:
    found = _COMPARISON.match(value)
    if found is None:
        raise LocalError(f"{word} needs a number, as in ms:>500, ms:<=20 or code:-32601")
    sign, number = found[1] or "=", float(found[2])
    compare: Callable[[float], bool] = {
        "<": lambda given: given < number,
        "<=": lambda given: given <= number,
        ">": lambda given: given > number,
        ">=": lambda given: given >= number,
        "=": lambda given: given == number,
    }[sign]
    return lambda row: (given := getattr(row, member)) is not None and compare(given)


def sum_methods(processes: Iterable[Iterable[MethodSeconds]]) -> list[MethodSeconds]:
    """Return the series of several processes as those of one."""
    found: dict[tuple[str, str, str], MethodSeconds] = {}
    for methods in processes:
        for one in methods:
            key = one.service, one.method, one.target
            before = found.get(key)
            found[key] = one if before is None else _sum(before, one)
    return list(found.values())


def _sum(one: MethodSeconds, other: MethodSeconds) -> MethodSeconds:
    return MethodSeconds(
        service=one.service,
        method=one.method,
        target=one.target,
        counts=_add(one.counts, other.counts),
        errors=_add(one.errors, other.errors),
        bytes=_add(one.bytes, other.bytes),
        buckets=_add(one.buckets, other.buckets),
    )


def _add(one: Sequence[int], other: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip(one, other, strict=True)]


def method_rows(methods: Iterable[MethodSeconds]) -> list[MethodRow]:
    """Return a row for each method, the most called first."""
    rows = [
        MethodRow(
            service=one.service,
            method=one.method,
            target=one.target,
            count=sum(one.counts),
            failed=sum(one.errors),
            bytes=sum(one.bytes),
            p50=round(percentile(one.buckets, 0.5) * 1000, 3),
            p95=round(percentile(one.buckets, 0.95) * 1000, 3),
            p99=round(percentile(one.buckets, 0.99) * 1000, 3),
            counts=one.counts,
            errors=one.errors,
        )
        for one in methods
    ]
    return sorted(rows, key=lambda row: (-row.count, row.service, row.method, row.target))


def _merge(
    rows: Iterable[H], ends: Iterable[Any], limit: int, place: Callable[[H], Any], same: Callable[[H], object]
) -> tuple[list[H], Any]:
    """Return the rows of one page out of those of several, in the order of their places, and the place of its end where
    others follow. `ends`: those of the pages that others follow; what is behind one of them is left out: it would stand
    before those. `same`: what is equal of rows that are the same: of these the one of its own process is taken. Rows at
    the place of the end are on the page, also those above the limit: the next page begins behind it."""
    end = min(ends, default=None)
    found: dict[object, H] = {}
    for row in rows:
        known = found.get(name := same(row))
        if (end is None or place(row) <= end) and (known is None or (row.here and not known.here)):
            found[name] = row
    merged = sorted(found.values(), key=place)
    if len(merged) > limit:
        end = place(merged[limit - 1])
        merged = [row for row in merged if place(row) <= end]
    return merged, end


def _own(id: str) -> str:
    """Return the id that something has in its process."""
    return id.rpartition(":")[2]


def merge_tasks(pages: Iterable[TaskRows], limit: int) -> TaskRows:
    """Return one page of several: a task that is in more than one is listed once, as the process that runs it does."""
    pages = list(pages)
    rows, end = _merge(
        (row for one in pages for row in one.tasks),
        (-one.before for one in pages if one.before is not None),
        limit,
        lambda row: -row.created,
        lambda row: _own(row.id),
    )
    away = sorted({name for one in pages for name in one.away})
    return TaskRows(tasks=rows, before=None if end is None else -end, away=away)


def merge_subscriptions(pages: Iterable[SubscriptionRows], limit: int) -> SubscriptionRows:
    """Return one page of several: a subscription that is in more than one, since they share a store, is listed once, as
    the process that delivers its events does."""
    pages = list(pages)
    rows, end = _merge(
        (row for one in pages for row in one.subscriptions),
        (tuple(one.after.rsplit(" ", 1)) for one in pages if one.after is not None),
        limit,
        lambda row: (row.name, _own(row.id)),
        lambda row: (row.store, _own(row.id)),
    )
    counts = [asdict(one.counts) for one in pages]
    return SubscriptionRows(
        subscriptions=rows,
        after=None if end is None else " ".join(end),
        away=sorted({name for one in pages for name in one.away}),
        kept={store: kept for one in pages for store, kept in one.kept.items()},
        counts=EventCounts(**{name: sum(one[name] for one in counts) for name in EventCounts.__struct_fields__}),
    )


def encode(value: object) -> bytes:
    """Return a value as JSON. Half of a surrogate pair, which UTF-8 cannot hold and a far end may send, is "?"."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(value), separators=(",", ":"), ensure_ascii=False)
        return text.encode("utf-8", "replace")
