"""A channel's ending is raised as a copy, with everything that it says."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from dragoman.channel import Broken, again
from dragoman.jsonrpc.errors import BadAnswer, CallTimeout, RpcError


class Short(RpcError):
    """An error whose `__init__` takes something else than its `args`."""

    code = 1001
    message = "Out of stock"

    def __init__(self, missing: int, *, unit: str) -> None:
        super().__init__(f"{missing} {unit} are missing", {"missing": missing})


@pytest.mark.parametrize(
    "why",
    [
        Broken("lost"),
        BadAnswer("unreadable"),
        CallTimeout("late"),
        RpcError.of(-32601, "none here", [1]),
        Short(3, unit="boxes"),
        OSError(2, "No such file", "/here"),
    ],
    ids=lambda why: type(why).__name__,
)
def test_a_copy_says_what_the_exception_says(why: Exception) -> None:
    copied = again(why)
    assert copied is not why
    assert type(copied) is type(why)
    assert (str(copied), copied.args, vars(copied)) == (str(why), why.args, vars(why))


def test_what_is_raised_is_not_kept_by_the_ending() -> None:
    why = Broken("lost")

    class Held:
        pass

    def fail() -> Any:
        held = Held()
        seen.append(weakref.ref(held))
        raise again(why)

    seen: list[weakref.ref[Held]] = []
    for _ in range(2):
        with pytest.raises(Broken):
            fail()
    gc.collect()
    assert why.__traceback__ is None
    assert [one() for one in seen] == [None, None]
