"""Methods that are disabled: unknown in calls of every form, in no document, also where their service is included."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman import LocalError, Service, method
from tests.behind import limited

UNKNOWN = {"code": -32601, "message": "Method not found"}


def counter() -> Service:
    service = Service("counter")
    service.method("open", inline=True)(lambda: "open")
    service.method("erase", inline=True, tags={"admin"})(lambda: "erase")
    service.method("audit", tags={"admin", "slow"})(lambda: "audit")
    return service


def answered(service: Service) -> list[str]:
    """The methods that answer: alone, in a batch, and in the document."""
    names = [f"{before}{name}" for before in ("", "x.") for name in ("open", "erase", "audit", "late")]
    calls = [{"jsonrpc": "2.0", "id": id, "method": name} for id, name in enumerate(names)]
    together: Any = json.loads(service.answer(json.dumps(calls).encode()) or b"")
    alone: Any = [json.loads(service.answer(json.dumps(call).encode()) or b"") for call in calls]
    assert together == alone
    assert all(one["error"]["code"] == -32601 for one in alone if "error" in one)
    found = [name for name, answer in zip(names, alone, strict=True) if "result" in answer]
    document: Any = json.loads(service.answer(b'{"jsonrpc":"2.0","id":1,"method":"rpc.discover"}') or b"")
    assert [one["name"] for one in document["result"]["methods"]] == sorted(found)
    assert set(service.methods) == set(found)
    return [name.removeprefix("x.") for name in found]


@pytest.mark.parametrize("around", [False, True])
def test_a_disabled_method_is_unknown(around: bool) -> None:
    inner, outer = counter(), Service("outer")
    outer.include(inner, namespace="x")
    asked = outer if around else inner
    assert answered(asked) == ["open", "erase", "audit"]
    inner.disable("open")
    assert answered(asked) == ["erase", "audit"]
    inner.disable(tag="admin")
    inner.method("late", tags=["admin"])(lambda: "late")
    assert answered(asked) == []
    inner.enable("erase")
    inner.use(lambda call, next: next(call))
    assert answered(asked) == ["erase"]
    inner.disable(tag="slow")
    inner.enable(tag="admin")
    inner.enable("open")
    assert answered(asked) == ["open", "erase", "late"]
    inner.enable(tag="slow")
    assert answered(asked) == ["open", "erase", "audit", "late"]
    inner.disable("late")
    inner.remove("late")
    assert answered(asked) == ["open", "erase", "audit"]


def test_what_a_service_disabled_no_included_service_enables() -> None:
    inner, outer = counter(), Service("outer")
    outer.disable(tag="admin")
    outer.include(inner, namespace="x", tags={"x"})
    inner.disable("erase")
    inner.enable("erase")
    assert answered(outer) == ["open"]
    outer.enable(tag="admin")
    inner.disable("audit")
    outer.enable("x.audit")
    assert answered(outer) == ["open", "erase"]
    outer.disable(tag="x")
    inner.method("late")(lambda: "late")
    inner.enable("audit")
    assert answered(outer) == []
    outer.enable(tag="x")
    assert answered(outer) == ["open", "erase", "audit", "late"]
    assert answered(inner) == ["open", "erase", "audit", "late"]


def test_a_removed_method_is_switched_no_more() -> None:
    inner, outer = counter(), Service("outer")
    outer.include(inner, namespace="x")
    inner.disable("erase")
    for name in ("erase", "audit"):
        inner.remove(name)
    outer.disable(tag="admin")
    inner.enable(tag="admin")
    assert answered(outer) == ["open"]
    outer.enable(tag="admin")
    inner.method("erase", tags={"admin"})(lambda: "anew")
    assert answered(outer) == ["open", "erase"]


def test_what_was_removed_around_alone_does_not_come_back() -> None:
    inner, outer = counter(), Service("outer")
    outer.include(inner, namespace="x")
    outer.remove("x.open")
    outer.disable("x.erase")
    inner.use(lambda call, next: next(call))
    inner.disable("open")
    inner.enable("open")
    assert answered(outer) == ["audit"]
    outer.enable("x.erase")
    assert answered(outer) == ["erase", "audit"]


def test_what_an_instance_brings_has_tags() -> None:
    class Clerk:
        @method(tags={"slow"})
        def audit(self) -> str:
            return ""

        @method
        def open(self) -> str:
            return ""

    service = Service("clerks")
    service.include(Clerk(), tags=["late"])
    service.disable(tag="slow")
    assert answered(service) == ["open"]
    service.disable(tag="late")
    assert answered(service) == []


def test_the_same_service_under_other_limits_switches_alike() -> None:
    service = counter()
    other = limited(service, service.limits)
    service.disable("erase")
    assert answered(other) == ["open", "audit"]
    service.enable("erase")
    assert answered(other) == ["open", "erase", "audit"]


def test_a_disabled_name_is_still_taken() -> None:
    service = counter()
    service.disable("open")
    with pytest.raises(LocalError, match="has a method 'open' already"):
        service.method("open")(lambda: "")


@pytest.mark.parametrize("given", [{}, {"name": "erase", "tag": "admin"}], ids=repr)
def test_a_switch_names_a_method_or_a_tag(given: dict[str, str]) -> None:
    for call in ("enable", "disable"):
        with pytest.raises(LocalError, match=rf'{call}\("erase"\), or a tag, {call}\(tag="admin"\)'):
            getattr(counter(), call)(**given)


def test_what_is_switched_is_there_and_a_word() -> None:
    with pytest.raises(LocalError, match=r"counter has no method 'eras'.*erase"):
        counter().disable("eras")
    with pytest.raises(LocalError, match="tag"):
        counter().disable(tag=5)  # type: ignore[arg-type]
    with pytest.raises(LocalError, match="tags"):
        counter().method("late", tags="admin")(lambda: "")


CELL = """
@api.method(inline=True)
def erase() -> int:
    return {value}
"""


def cell(api: Service, value: int) -> None:
    exec(compile(CELL.format(value=value), "shop.py", "exec"), {"api": api, "__name__": "shop"})


def result(api: Service, name: str) -> Any:
    answer: Any = json.loads(api.answer(json.dumps({"jsonrpc": "2.0", "id": 1, "method": name}).encode()) or b"")
    return answer.get("result", answer.get("error", {}).get("code"))


def test_what_is_disabled_by_its_name_stays_so_when_it_is_defined_again() -> None:
    inner, outer = Service("inner"), Service("outer")
    outer.include(inner, prefix="x.")
    cell(inner, 1)
    outer.disable("x.erase")
    cell(inner, 2)
    assert (result(inner, "erase"), result(outer, "x.erase")) == (2, -32601)
    inner.disable("erase")
    cell(inner, 3)
    assert (result(inner, "erase"), result(outer, "x.erase")) == (-32601, -32601)
    inner.enable("erase")
    outer.enable("x.erase")
    cell(inner, 4)
    assert (result(inner, "erase"), result(outer, "x.erase")) == (4, 4)


def test_what_an_included_service_takes_out_and_puts_back_stays_disabled_around_it() -> None:
    inner, outer = Service("inner"), Service("outer")
    outer.include(inner, prefix="x.")
    cell(inner, 1)
    outer.disable("x.erase")
    inner.remove("erase")
    cell(inner, 2)
    assert (result(inner, "erase"), result(outer, "x.erase")) == (2, -32601)
    inner.disable("erase")
    inner.remove("erase")  # its own word goes with its own name
    cell(inner, 3)
    assert result(inner, "erase") == 3


def test_a_tag_that_is_enabled_later_is_the_last_word_of_what_is_gone_too() -> None:
    inner, outer = Service("inner"), Service("outer")
    outer.include(inner)
    inner.method("erase", inline=True, tags={"admin"})(lambda: 1)
    outer.disable("erase")
    inner.remove("erase")
    outer.enable(tag="admin")
    inner.method("erase", inline=True, tags={"admin"})(lambda: 2)
    assert result(outer, "erase") == 2
