"""A batch of calls that run in place: its answers are those that each call would have alone, in their order."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman import Limits, RpcError, Service
from tests.behind import limited

from .test_peer import raw, until

LIMITS = Limits(response_size=100_000, depth=40, id_length=30)


def service() -> Service:
    api = Service("api", limits=LIMITS)

    @api.method(inline=True)
    def double(n: int) -> int:
        return 2 * n

    @api.method(inline=True)
    def text(n: int) -> Any:
        return "x" * n

    @api.method(inline=True)
    def half_a_pair() -> str:
        return "\ud800"

    @api.method(inline=True)
    def nothing() -> None:
        return None

    @api.method(inline=True)
    def refuses() -> None:
        raise RpcError.of(5, "no", ["why"])

    @api.method(inline=True)
    def breaks() -> None:
        raise SystemExit(3)

    @api.method(inline=True)
    def deep(levels: int) -> Any:
        value: Any = 1
        for _ in range(levels):
            value = [value]
        return value

    @api.method(inline=True)
    def declared(n: int) -> list[float]:
        return [float(n)]

    return api


CALLS = (
    '"method":"double","params":[4],"id":1',
    '"method":"double","params":{"n":5.0},"id":"two"',
    '"method":"double","params":["x"],"id":3',
    '"method":"double","params":7,"id":4',
    '"method":"double","params":[1],"id":"' + "i" * 31 + '"',
    '"method":"double","id":-0',
    '"method":"text","params":[5],"id":7',
    '"method":"text","params":[3000],"id":8',
    '"method":"text","params":[100000],"id":9',
    '"method":"half_a_pair","id":10',
    '"method":"nothing","id":11',
    '"method":"refuses","id":12',
    '"method":"breaks","id":13',
    '"method":"deep","params":[38],"id":14',
    '"method":"deep","params":[41],"id":15',
    '"method":"declared","params":[1],"id":16',
    '"method":"unknown","id":17',
    '"method":"double","params":[1]',
)


def without_references(answer: Any) -> Any:
    if "error" in answer and "reference" in (answer["error"].get("data") or ()):
        answer["error"]["data"] = "a reference"
    return answer


def alone(api: Service, calls: list[str]) -> list[Any]:
    answers = [api.answer(b'{"jsonrpc":"2.0",%b}' % call.encode()) for call in calls]
    return [without_references(msgspec.json.decode(answer)) for answer in answers if answer is not None]


def batch(calls: list[str]) -> bytes:
    return b"[" + b",".join(b'{"jsonrpc":"2.0",%b}' % call.encode() for call in calls) + b"]"


@pytest.mark.parametrize("before", [b"", b" "], ids=["plain", "read at leisure"])
@pytest.mark.parametrize("left_out", range(len(CALLS)))
def test_each_call_of_a_batch_has_the_answer_that_it_has_alone(left_out: int, before: bytes) -> None:
    api = service()
    for calls in (
        [CALLS[left_out]] * 20,
        [*CALLS[:left_out], *CALLS[left_out + 1 :]],
        [*[CALLS[0]] * 16, CALLS[left_out], CALLS[0]],
    ):
        answer = api.answer(before + batch(calls))
        expected = alone(api, calls)
        if answer is None:
            assert not expected
        else:
            found = [without_references(one) for one in msgspec.json.decode(answer)]
            assert found == expected


def test_a_batch_whose_answers_are_too_much_together_is_one_error() -> None:
    api = service()
    call = '"method":"text","params":[3000],"id":1'
    size = len(api.answer(b'{"jsonrpc":"2.0",%b}' % call.encode()) or b"") + 1
    most = (100_000 - 1) // size
    assert len(msgspec.json.decode(api.answer(batch([call] * most)) or b"")) == most
    answer = msgspec.json.decode(api.answer(batch([call] * (most + 1))) or b"")
    received = 1 + (most + 1) * size
    assert answer["error"]["data"] == {"limit": "response_size", "allowed": 100_000, "received": received}
    assert answer["id"] is None


def test_a_batch_whose_answers_fill_the_limit_exactly_has_them_all() -> None:
    call = CALLS[0]
    whole = service().answer(batch([call] * 100)) or b""
    assert len(msgspec.json.decode(whole)) == 100
    exact, short = (limited(service(), LIMITS.but(response_size=len(whole) - less)) for less in (0, 1))
    assert exact.answer(batch([call] * 100)) == whole
    answer = msgspec.json.decode(short.answer(batch([call] * 100)) or b"")
    assert answer["error"]["data"]["received"] == len(whole)


async def test_a_batch_beside_a_call_in_flight_runs_in_place_and_repeats_no_id() -> None:
    api = service()
    started: list[int] = []

    @api.method
    async def hold() -> None:
        started.append(1)
        await until(lambda: len(started) > 1)

    async with raw(api) as (far, _):
        far.send('{"jsonrpc":"2.0","method":"hold","id":100}')
        await until(lambda: bool(started))
        far.send(batch(list(CALLS[:2])).decode())
        assert [one["result"] for one in msgspec.json.decode(await far.next())] == [8, 10]
        far.send(batch([CALLS[0], '"method":"double","params":[1],"id":100']).decode())
        first, second = msgspec.json.decode(await far.next())
        assert first["result"] == 8
        assert second["error"]["data"]["reason"] == "a call with this id is in flight"
        started.append(2)
        assert msgspec.json.decode(await far.next())["id"] == 100
