"""The figures as aligned text for the terminal, as Markdown for `docs/figures.md`, and as plain values."""

from __future__ import annotations

import os
import platform
import sys
from datetime import date
from pathlib import Path
from typing import Any

from bench.environments import versions
from bench.figures import Figure, Row, ratio

HEADER = ("row", "dragoman", "limit", "ratio", "peers (their cost : ours)", "must reach", "verdict")


def cost(figure: Figure, unit: str) -> str:
    """A median with its spread, or why there is none."""
    if not figure.samples:
        return "not measured"
    return f"{figure.median:.3g} {unit} ±{figure.spread:.0%}"


def beside(ours: Figure, other: Figure, unit: str) -> str:
    """Another figure with how many times ours it costs."""
    if not other.samples:
        return f"{other.name}: not measured"
    times = ratio(other, ours)
    return f"{other.name} {other.median:.3g} {unit}" + (f" ({times:.2f}x)" if times is not None else "")


def cells(row: Row) -> tuple[list[str], list[list[str]]]:
    """A row's first line, and further lines of single cells (peers, goals)."""
    limit = "" if row.limit is None else f"{row.limit.name} {cost(row.limit, row.unit)}"
    times = ratio(row.ours, row.limit)
    peers = [beside(row.ours, peer, row.unit) for peer in row.peers]
    goals = [(goal.text, verdict(goal.met, goal.measured)) for goal in row.goals]
    lines = []
    for i in range(max(1, len(peers), len(goals))):
        goal = goals[i] if i < len(goals) else ("", "")
        lines.append(["", "", "", "", peers[i] if i < len(peers) else "", *goal])
    lines[0][:4] = [row.title, cost(row.ours, row.unit), limit, "" if times is None else f"{times:.2f}x"]
    return lines[0], lines[1:]


def verdict(met: bool | None, measured: str) -> str:
    """met, missed, or neither, with the number."""
    return "not measured" if met is None else f"{'met' if met else 'MISSED'} ({measured})"


def text(rows: list[Row]) -> str:
    """The table for a terminal."""
    lines: list[list[str]] = [list(HEADER)]
    for row in rows:
        first, rest = cells(row)
        lines += [first, *rest]
        lines += [["  " + beside(row.ours, extra, row.unit)] for extra in row.also]
    tall = [line for line in lines if len(line) > 1]
    widths = [max(len(line[i]) for line in tall) for i in range(len(HEADER))]
    out = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)).rstrip() for line in lines]
    out.insert(1, "  ".join("-" * width for width in widths))
    out += ["", *reasons(rows)] if reasons(rows) else []
    return "\n".join(out)


def reasons(rows: list[Row]) -> list[str]:
    """Why what was not measured was not."""
    missing = [(row.key, one) for row in rows for one in row.every if one.missing]
    return [f"not measured: {key}: {one.name}: {one.missing}" for key, one in missing]


def machine() -> dict[str, str]:
    """What the figures hold for."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    seen = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "date": date.today().isoformat(),
        "machine": f"{model}, {seen} cores",
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def plain(rows: list[Row]) -> dict[str, Any]:
    """Everything, for JSON."""

    def figure(one: Figure) -> dict[str, Any]:
        known = {"median": one.median, "spread": one.spread, "samples": one.samples} if one.samples else {}
        return {"name": one.name, **known, **({"missing": one.missing} if one.missing else {})}

    listed = [
        {
            "row": row.key,
            "title": row.title,
            "unit": row.unit,
            "ours": figure(row.ours),
            "limit": figure(row.limit) if row.limit else None,
            "ratio": ratio(row.ours, row.limit),
            "peers": [figure(peer) for peer in row.peers],
            "also": [figure(extra) for extra in row.also],
            "goals": [{"text": goal.text, "measured": goal.measured, "met": goal.met} for goal in row.goals],
        }
        for row in rows
    ]
    return {**machine(), "peers": versions(), "rows": listed}


def markdown(rows: list[Row]) -> str:
    """The page `docs/figures.md`."""
    about = machine()
    known = ", ".join(f"{name} {version}" for name, version in versions().items())
    out = [
        "# Figures",
        "",
        "<!-- written by `python -m bench --write`; do not edit -->",
        "",
        f"Measured on {about['date']}: {about['machine']}, {about['system']}, {about['python']}.",
        f"Peers: {known or 'none'}; node where they need it.",
        "",
        "Figures are medians of interleaved rounds: CPU time for one call (user and system, all threads of the server,",
        "which has a core to itself while the load has another). `±` is half the distance between the quarters. A ratio",
        "is the median of the rounds' own ratios. What a peer's figure has in brackets is how many times ours it costs.",
        "`make bench` makes them anew.",
        "",
        "| " + " | ".join(HEADER) + " |",
        "|" + "---|" * len(HEADER),
    ]
    for row in rows:
        first, rest = cells(row)
        joined = [("<br>".join(line[i] for line in [first, *rest] if line[i])).replace("|", "\\|") for i in range(7)]
        out.append("| " + " | ".join(joined) + " |")
    out += ["", "## Beside them", "", "| row | further figure |", "|---|---|"]
    for row in rows:
        out += [f"| {row.title} | {beside(row.ours, extra, row.unit)} |" for extra in row.also]
    if missing := reasons(rows):
        out += ["", *[f"- {line}" for line in missing]]
    return "\n".join(out) + "\n"


SHORT = {  # the rows of the READMEs
    "dispatch": ("a call in process, bytes to bytes", "进程内的一次调用，字节到字节"),
    "http32": ("a call over HTTP, 32 connections", "HTTP 上的一次调用，32 个连接"),
    "stdio": ("a call over stdio, as language servers make it", "标准输入输出上的一次调用，语言服务器的方式"),
    "mcp-http": ("an MCP tool over HTTP", "HTTP 上的一次 MCP 工具调用"),
    "mcp-stdio": ("an MCP tool over stdio", "标准输入输出上的一次 MCP 工具调用"),
}
HEADS = (
    ("CPU time of the server", "dragoman", "the limit here", "others (times ours)"),
    ("服务端的 CPU 时间", "dragoman", "本机极限", "其他实现（是这里的几倍）"),
)


def short(rows: list[Row], language: int) -> str:
    """The table of a README: 0 English, 1 Chinese."""
    about = machine()
    intro = (
        f"Medians, {about['python']} on two noisy cores ({about['date']}):",
        f"中位数，{about['python']}，两个有干扰的核心（{about['date']}）：",
    )
    out = [intro[language], "", "| " + " | ".join(HEADS[language]) + " |", "|---|---|---|---|"]
    for row in rows:
        if row.key in SHORT and row.ours.samples:
            peers = [(peer.name, ratio(peer, row.ours)) for peer in row.peers]
            beat = ", ".join(
                f"{name} {times:.{3 if times >= 100 else 2}g}x" for name, times in peers if times is not None
            )
            limit = "" if row.limit is None or not row.limit.samples else f"{row.limit.median:.3g} {row.unit}"
            out.append(f"| {SHORT[row.key][language]} | {row.ours.median:.3g} {row.unit} | {limit} | {beat} |")
    return "\n".join(out)


def filled(page: str, table: str) -> str:
    """A README with its table of figures in its place."""
    before, _, rest = page.partition("<!-- figures -->\n")
    _, _, after = rest.partition("<!-- /figures -->")
    return f"{before}<!-- figures -->\n{table}\n<!-- /figures -->{after}"


def progress(words: str) -> None:
    """One line to stderr, so that a waiting person sees what is measured."""
    print(words, file=sys.stderr, flush=True)
