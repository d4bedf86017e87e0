"""The wire cases: messages and the answers they must get, as data that every wire's tests share.

`tests/cases/*.jsonl` has one case a line:

    {"name": "an id of 1.0 stays 1.0", "rule": "the specification's section, or the bug it pins",
     "in": "the message's text", "out": the answer's JSON value, or null for no answer}

- Instead of `in`: `in_hex` (bytes that are not text), or `in_runs` ([[text, times], ...], for what is long).
- Instead of `out`: `out_runs`, likewise, the text of the answer.
- `"exact": true`: error objects must be equal to the last member. Otherwise of an expected `error` only the
  members that stand in the case are compared (inside `data` too), so that `{"code": -32602}` is enough.
- `"options"`: the lenient options (`jsonrpc.Leniency`) that the service must be made with for this case.
- `"either": true`: the message may be refused as no JSON as well (where it cannot be said what is right).

The answers are the calculator's (`tests/calculator.py`). They are compared by JSON value, but numbers as ids by their
exact text.

`cases/json_parsing.jsonl` has JSON texts instead: `name` begins with y_ (to be accepted), n_ (to be refused with
-32700), i_ (either) or d_ (refused as deeper than the limit `depth`); `json`, `hex` or `runs` stands as the one
argument in a call of `echo`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec import Struct

FOLDER = Path(__file__).parent / "cases"


class Number(Struct, frozen=True):
    """A JSON number by its text."""

    text: str

    @property
    def value(self) -> int | float:
        return int(self.text) if self.text.lstrip("-").isdigit() else float(self.text)


class Case(Struct, frozen=True):
    """A message, and the answer it must get. `expected`: a parsed JSON value; unused where `answered` is False."""

    name: str
    rule: str
    message: bytes
    answered: bool
    expected: Any = None
    exact: bool = False
    either: bool = False
    options: dict[str, Any] = {}

    @property
    def one_line(self) -> bool:
        """Can the message travel as it is on a wire where lines are messages and blank ones are ignored?"""
        return not set(b"\r\n") & set(self.message) and bool(self.message.strip(b" \t"))


def parse(text: str | bytes) -> Any:
    """A JSON value whose numbers keep their text."""
    return json.loads(text, parse_int=Number, parse_float=Number)


def cases(name: str) -> list[Case]:
    """The cases of one file, e.g. `cases("specification")`."""
    lines = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")
    read = _parsing_case if name == "json_parsing" else _case
    return [read(parse(line)) for line in lines if line]


def all_cases() -> list[Case]:
    """Every case for a service without options, from every file, for wires that want them all."""
    return [case for file in sorted(FOLDER.glob("*.jsonl")) for case in cases(file.stem) if not case.options]


def check(case: Case, answer: bytes | None) -> None:
    """AssertionError unless `answer` is what the case asks for."""
    where = f"{case.name} ({case.rule})"
    if not case.answered:
        assert answer is None, f"{where}: nothing is owed, but there came {answer!r}"
        return
    assert answer is not None, f"{where}: there came no answer"
    got = parse(answer)
    if case.either and isinstance(got, dict) and _code(got) == -32700:
        return
    fault = _difference(case.expected, got, "$", case.exact)
    assert fault is None, f"{where}: {fault}; the whole answer: {answer[:500]!r}"


def _runs(runs: list[list[Any]]) -> str:
    return "".join(text * times.value for text, times in runs)


def _case(line: dict[str, Any]) -> Case:
    if "in_hex" in line:
        message = bytes.fromhex(line["in_hex"])
    else:
        message = (_runs(line["in_runs"]) if "in_runs" in line else line["in"]).encode()
    expected = parse(_runs(line["out_runs"])) if "out_runs" in line else line["out"]
    exact, either, options = line.get("exact", False), line.get("either", False), line.get("options", {})
    return Case(line["name"], line["rule"], message, expected is not None, expected, exact, either, options)


def _parsing_case(line: dict[str, Any]) -> Case:
    kind = line["name"][:2]
    if "hex" in line:
        text = bytes.fromhex(line["hex"])
    else:
        text = (_runs(line["runs"]) if "runs" in line else line["json"]).encode()
    message = b'{"jsonrpc":"2.0","method":"echo","params":[%b],"id":1}' % text
    expected: Any = {"jsonrpc": "2.0", "error": {"code": Number("-32700")}, "id": None}
    if kind == "d_":
        error = {"code": Number("-32003"), "data": {"limit": "depth", "allowed": Number("512")}}
        expected = {"jsonrpc": "2.0", "error": error, "id": Number("1")}
    elif kind != "n_":
        expected = {"jsonrpc": "2.0", "result": [parse(text)], "id": Number("1")}
    return Case(line["name"], line["rule"], message, True, expected, either=kind == "i_")


def _code(answer: dict[str, Any]) -> int | float | None:
    error = answer.get("error")
    return error["code"].value if isinstance(error, dict) else None


def _difference(expected: Any, got: Any, path: str, exact: bool) -> str | None:
    """What is not as expected, in words, or None."""
    if type(expected) is not type(got):
        return f"{path} should be {_shown(expected)}, is {_shown(got)}"
    if isinstance(expected, dict):
        within_error = not exact and (path.endswith(".error") or ".error." in path)
        if missing := expected.keys() - got.keys():
            return f"{path} lacks {sorted(missing)}"
        if not within_error and (surplus := got.keys() - expected.keys()):
            return f"{path} has {sorted(surplus)} as well"
        for name, value in expected.items():
            if (fault := _difference(value, got[name], f"{path}.{name}", exact)) is not None:
                return fault
        return None
    if isinstance(expected, list):
        if len(expected) != len(got):
            return f"{path} should have {len(expected)} elements, has {len(got)}: {_shown(got)}"
        for index, value in enumerate(expected):
            if (fault := _difference(value, got[index], f"{path}[{index}]", exact)) is not None:
                return fault
        return None
    if isinstance(expected, Number) and not path.endswith(".id"):
        return None if expected.value == got.value else f"{path} should be {expected.text}, is {got.text}"
    return None if expected == got else f"{path} should be {_shown(expected)}, is {_shown(got)}"


def _shown(value: Any) -> str:
    text = repr(value.text if isinstance(value, Number) else value)
    return text if len(text) <= 200 else text[:197] + "..."
