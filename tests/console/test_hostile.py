"""Texts of far ends: they come out as strings of JSON and nothing else, and one log line each."""

from __future__ import annotations

import logging

import msgspec
import pytest

from dragoman import Service
from dragoman.channel import Caller
from dragoman.console.recorder import Recorder
from dragoman.console.rows import KeptError
from dragoman.console.views import encode
from dragoman.observer import Rejection
from dragoman.web import CONTENT_SECURITY_POLICY

from .ends import with_console

TEXTS = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "\u2028\u2029\x00\x1b[31m\r\nX-Forged: 1",
    "\u202egnp.exe",
    "x" * 250,
    "é" * 200,
    "😀" * 60,
]


@pytest.mark.parametrize("text", TEXTS)
async def test_names_of_methods(text: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with with_console(Service("s"), "http://127.0.0.1:0") as ends:
        raw = msgspec.json.encode({"jsonrpc": "2.0", "method": text, "id": text, "params": [text]})
        (served,) = ends.serving.served.values()
        await served.service.answer_async(raw)  # type: ignore[attr-defined]
        for path in ("timeline", "errors", "now", "methods", "timeline?q=status:error"):
            answer = await ends.send(ends.request(f"/api/{path}"))
            assert answer.status == 200
            assert answer.headers["content-type"] == ["application/json"]
            assert answer.headers["content-security-policy"] == [CONTENT_SECURITY_POLICY]
            assert answer.headers["x-content-type-options"] == ["nosniff"]
            assert "x-forged" not in answer.headers
            msgspec.json.decode(answer.body)
        (row,) = (await ends.get("/api/timeline"))["rows"]
        assert row["method"] == text[:100]
        assert await ends.post("/api/stop", text) != {}
        assert "\n" not in "".join(one.getMessage() for one in caplog.records if one.name == "dragoman.audit")


def test_half_of_a_surrogate_pair() -> None:
    row = KeptError(time=1.0, outcome="error", text="\ud800é")
    assert msgspec.json.decode(encode({"rows": [row]})) == {"rows": [{"time": 1.0, "outcome": "error", "text": "?é"}]}


def test_what_a_wire_turns_away() -> None:
    recorder = Recorder()
    caller = Caller(scheme="http", remote="127.0.0.1:5")
    for number in range(2_000):
        recorder.rejected(
            Rejection(kind="denied", reason=f"token=abc {number}" + "x" * 1000, place="/", caller=caller, status=401)
        )
    found = list(recorder.errors.newest())
    assert len(found) == 1_000
    assert {(one.outcome, one.code, one.text) for one in found} == {("rejected: denied", 401, "token***")}
