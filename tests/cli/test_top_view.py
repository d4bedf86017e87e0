"""What `dragoman top` shows of a look, and what keys change."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from dragoman.cli.exit_status import Usage
from dragoman.cli.probing.keys import parse_keys
from dragoman.cli.probing.top import url_of
from dragoman.cli.probing.top_view import View


def call(id: str, **more: Any) -> dict[str, Any]:
    plain = {"age": 1.25, "service": "slow", "method": "tools/call", "name": "nap\x1b[2J", "wire": "http"}
    return {"id": id, **plain, "known": False, "state": "running", **more}


def method(name: str, **more: Any) -> dict[str, Any]:
    return {"service": "slow", "method": name, "name": "", "count": 5, "errors": 1, "p50": 0.001, "p95": 0.5, **more}


def look(calls: list[dict[str, Any]], methods: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    served = {"service": "slow", "channels": 2, "sessions": 3, "streams": 4, "subscribers": 5, "in_flight": 6}
    return {
        "calls": calls,
        "more": 3,
        "methods": [{"p99": 0.6, **one} for one in methods],
        "services": [served | {"waiting": 7, "wait_p95": 0.0025}],
        "workers": [],
        "figures": {},
        **more,
    }


def text(view: View) -> str:
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(view.screen(keys=True))
    return console.export_text()


def test_what_is_shown() -> None:
    view = View()
    view.take(look([call("7")], [method("wait", count=1)]), 10.0)
    view.take(look([call("7")], [method("wait")]), 12.0)
    shown = text(view)
    for words in ("tools/call nap", "anonymous", "and 3 more", "2.0", "1 ms", "500 ms", "600 ms", "2.5 ms", "sessions"):
        assert words in shown
    assert "\x1b" not in shown
    assert "worker " not in shown


@pytest.mark.parametrize(("running", "words"), [(1, "1 task running"), (12, "12 tasks running")])
def test_tasks_are_counted(running: int, words: str) -> None:
    view = View()
    view.take(look([], [], figures={"dragoman_tasks_running": running}), 0.0)
    assert words in text(view)
    view.take(look([], [], figures={"dragoman_tasks_running": 0}), 1.0)
    assert "running" not in text(view)


def test_workers_are_rows() -> None:
    row = {"number": 1, "pid": 4711, "age": 61.0, "state": "serving", "answers": True, "channels": 1, "sessions": 0}
    row |= {"in_flight": 2, "waiting": 0, "ended": 99}
    view = View()
    view.take(look([], [], workers=[row, row | {"number": 2, "pid": 4712, "answers": False}]), 0.0)
    shown = text(view)
    assert "4711" in shown
    assert "serving, no answer" in shown


@pytest.mark.parametrize(
    ("presses", "first"),
    [("", "often"), ("s", "fast"), ("ss", "bad"), ("sss", "slow"), ("ssss", "a"), ("sssss", "often")],
)
def test_methods_are_sorted(presses: str, first: str) -> None:
    methods = [
        method("often", count=100, p99=0.1),
        method("fast", count=50, p99=0.2),
        method("bad", errors=5, p99=0.3),
        method("slow", p99=15.0),
        method("a", p99=0.1),
    ]
    before = [one | {"count": 5} if one["method"] == "fast" else one for one in methods]
    view = View()
    view.take(look([], before), 0.0)
    view.take(look([], methods), 1.0)
    for key in presses:
        view.press(key)
    rows = text(view).partition("p99")[2].split("\n")
    assert "15 s" in text(view)
    assert rows[1].split()[1] == first


def test_a_call_is_selected_and_killed_after_a_question() -> None:
    view = View()
    view.take(look([call("1"), call("2")], []), 0.0)
    assert view.press("k") is None
    assert "select a call first" in text(view)
    for key, selected in [("down", "1"), ("down", "2"), ("down", "1"), ("up", "2")]:
        assert view.press(key) is None
        assert view.selected == selected
    assert view.press("k") is None
    assert "kill call 2?" in text(view)
    assert view.press("n") is None
    assert view.press("y") is None
    view.press("k")
    assert view.press("y") == "2"


def test_a_call_that_is_over_is_selected_no_more() -> None:
    view = View()
    view.take(look([call("1"), call("2")], []), 0.0)
    view.press("down")
    view.press("k")
    view.take(look([call("2")], []), 1.0)
    assert (view.selected, view.press("y")) == (None, None)


def test_pause_and_quit() -> None:
    view = View()
    view.take(look([], []), 0.0)
    view.press(" ")
    assert view.paused
    assert "paused" in text(view)
    view.press(" ")
    assert not view.paused
    view.press("q")
    assert view.over


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (b"qS", ["q", "s"]),
        (b"\x1b[A\x1b[Bk", ["up", "down", "k"]),
        (b"\x1bOB", ["down"]),
        (b"\x1b[5~", []),
        (b"\x1b", []),
    ],
)
def test_keys_of_a_terminal(given: bytes, found: list[str]) -> None:
    assert parse_keys(given) == found


@pytest.mark.parametrize(
    ("place", "url"),
    [
        ("run/admin.sock", "unix:run/admin.sock"),
        ("unix:/run/a", "unix:/run/a"),
        (":9091", "http://127.0.0.1:9091"),
        ("[::1]:9091", "http://[::1]:9091"),
        ("http://127.0.0.1:9091", "http://127.0.0.1:9091"),
    ],
)
def test_places(place: str, url: str) -> None:
    assert url_of(place) == url


def test_the_url_of_a_service_is_no_place() -> None:
    with pytest.raises(Usage, match=r"http://127\.0\.0\.1:8000/mcp: dragoman top looks at the place of"):
        url_of("http://127.0.0.1:8000/mcp")
