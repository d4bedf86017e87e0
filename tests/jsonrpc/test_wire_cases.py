"""Every wire case, answered by the service itself: with no wire and no loop, and on a loop.

And the loader's own tests: a table that compares too little would prove nothing.
"""

from __future__ import annotations

import pytest

from dragoman.jsonrpc import Leniency
from tests.calculator import calculator
from tests.wire_cases import FOLDER, Case, all_cases, cases, check, parse

CASES = all_cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_answered_without_a_loop(case: Case) -> None:
    check(case, calculator().answer(case.message))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_answered_on_a_loop(case: Case) -> None:
    check(case, await calculator().answer_async(case.message))


@pytest.mark.parametrize("case", cases("lenient"), ids=lambda case: case.name)
async def test_lenient_where_chosen(case: Case) -> None:
    check(case, await calculator(lenient=Leniency(**case.options)).answer_async(case.message))


def test_there_are_cases_enough_and_each_has_a_name_of_its_own() -> None:
    files = {file.stem: cases(file.stem) for file in FOLDER.glob("*.jsonl")}
    assert len(files["specification"]) >= 15
    assert len(files["json_parsing"]) >= 120
    assert {case.name[:2] for case in files["json_parsing"]} == {"y_", "n_", "i_", "d_"}
    for name, found in files.items():
        assert len({case.name for case in found}) == len(found), name
        assert all(case.rule for case in found)
    assert sum(map(len, files.values())) == len(CASES) + len(files["lenient"])


ECHO = Case("c", "r", b"", True, parse('{"jsonrpc":"2.0","result":[1.0,{"a":"b"}],"id":1.0}'))
FAILED = Case(
    "c", "r", b"", True, parse('{"jsonrpc":"2.0","error":{"code":-32602,"data":{"errors":[{"field":"a"}]}},"id":1}')
)
ERROR = b'{"jsonrpc":"2.0","error":{"code":-32602,"message":"m","data":{"errors":[{"field":"a","received":1}],"x":1}},"id":1}'


@pytest.mark.parametrize(
    ("case", "answer"),
    [
        (ECHO, b'{"id":1.0,"result":[1,{"a":"b"}],"jsonrpc":"2.0"}'),
        (FAILED, ERROR),
        (Case("c", "r", b"", False), None),
        (Case("c", "r", b"", True, ECHO.expected, either=True), b'{"jsonrpc":"2.0","error":{"code":-32700},"id":null}'),
    ],
)
def test_check_accepts(case: Case, answer: bytes | None) -> None:
    check(case, answer)


@pytest.mark.parametrize(
    ("case", "answer"),
    [
        (ECHO, None),
        (ECHO, b'{"id":1,"result":[1,{"a":"b"}],"jsonrpc":"2.0"}'),
        (ECHO, b'{"id":"1.0","result":[1,{"a":"b"}],"jsonrpc":"2.0"}'),
        (ECHO, b'{"id":1.0,"result":[2,{"a":"b"}],"jsonrpc":"2.0"}'),
        (ECHO, b'{"id":1.0,"result":[1,{"a":"c"}],"jsonrpc":"2.0"}'),
        (ECHO, b'{"id":1.0,"result":[1,{"a":"b"},3],"jsonrpc":"2.0"}'),
        (ECHO, b'{"id":1.0,"result":[1,{"a":"b","c":1}],"jsonrpc":"2.0"}'),
        (ECHO, b'{"id":1.0,"result":[1,{"a":"b"}],"jsonrpc":"2.0","more":1}'),
        (ECHO, b'{"id":1.0,"result":[1,{"a":"b"}]}'),
        (ECHO, b'[{"id":1.0,"result":[1,{"a":"b"}],"jsonrpc":"2.0"}]'),
        (ECHO, b'{"jsonrpc":"2.0","error":{"code":-32700},"id":null}'),
        (FAILED, ERROR.replace(b"-32602", b"-32603")),
        (FAILED, ERROR.replace(b'"a"', b'"b"')),
        (FAILED, ERROR.replace(b'"id"', b'"more":1,"id"')),
        (Case("c", "r", b"", True, FAILED.expected, exact=True), ERROR),
        (Case("c", "r", b"", False), b"[]"),
        (Case("c", "r", b"", True, ECHO.expected, either=True), b'{"jsonrpc":"2.0","error":{"code":-32600},"id":null}'),
    ],
)
def test_check_refuses(case: Case, answer: bytes | None) -> None:
    with pytest.raises(AssertionError, match=r"^c \(r\): "):
        check(case, answer)
