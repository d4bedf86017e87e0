"""Codes, errors that cross the wire, and our own refusals in each dialect."""

from __future__ import annotations

import copy
import pickle
from typing import Any, cast

import pytest
from msgspec import Raw

from dragoman.jsonrpc.codec import decode, failure
from dragoman.jsonrpc.errors import (
    DIALECTS,
    LSP,
    MESSAGES,
    PLAIN,
    RESERVED,
    SERVER_RANGE,
    CallRefused,
    CallTimeout,
    InternalError,
    InvalidParams,
    InvalidRequest,
    LocalError,
    MethodNotFound,
    ParseError,
    Refusal,
    RpcError,
    too_large,
)
from dragoman.jsonrpc.messages import Failure
from dragoman.rpc.declared import UNDECLARED


class OutOfStock(RpcError):
    """An error as a user declares it."""

    code = 1001
    message = "Out of stock"
    data: dict[str, int]


def test_the_five_standard_errors() -> None:
    """Specification 5.1, the table."""
    assert {
        kind.code: kind.message for kind in (ParseError, InvalidRequest, MethodNotFound, InvalidParams, InternalError)
    } == {
        -32700: "Parse error",
        -32600: "Invalid Request",
        -32601: "Method not found",
        -32602: "Invalid params",
        -32603: "Internal error",
    }
    assert set(RpcError.kinds) == set(MESSAGES)


def test_reserved_codes() -> None:
    """Specification 5.1: -32768 to -32000 inclusive, of which -32099 to -32000 are the implementation's."""
    assert (RESERVED[0], RESERVED[-1]) == (-32768, -32000)
    assert (SERVER_RANGE[0], SERVER_RANGE[-1]) == (-32099, -32000)


def test_an_error_as_it_is_raised() -> None:
    error = OutOfStock(data={"left": 0})
    assert (error.code, error.message, error.data, error.name, error.remote) == (
        1001,
        "Out of stock",
        {"left": 0},
        None,
        False,
    )
    assert str(error) == "Out of stock (1001): {'left': 0}"
    assert str(OutOfStock("No apples")) == "No apples (1001)"
    assert error.args == ("Out of stock",)
    plain = RpcError("m", code=7)
    assert (plain.code, plain.message, plain.data) == (7, "m", None)
    assert RpcError().message == "Internal error"
    assert RpcError(code=-32601).message == "Method not found"
    assert RpcError(code=-32050).message == "Server error"
    assert RpcError.code == -32603


@pytest.mark.parametrize(
    ("data", "sent"),
    [(None, None), (0, b"0"), ({}, b"{}"), ("", b'""'), (False, b"false"), (Raw(b"null"), b"null")],
)
def test_data_is_sent_unless_it_is_none(data: Any, sent: bytes | None) -> None:
    member = b"" if sent is None else b',"data":' + sent
    assert failure(1, RpcError("m", data, code=7)) == (
        b'{"jsonrpc":"2.0","error":{"code":7,"message":"m"' + member + b'},"id":1}'
    )


@pytest.mark.parametrize("member", ["", ', "data": null'])
def test_data_that_is_absent_is_none(member: str) -> None:
    """A user's `error.data or ...` needs no type of a library."""
    answer = f'{{"jsonrpc": "2.0", "error": {{"code": 7, "message": "m"{member}}}, "id": 1}}'.encode()
    found = decode(answer)
    assert isinstance(found, Failure)
    error = UNDECLARED.raised_by(found)
    assert isinstance(error, RpcError)
    assert (error.data, str(error)) == (None, "m (7)")


def test_text_of_long_data_is_short() -> None:
    assert len(str(RpcError("m", "x" * 1_000))) < 330
    assert str(RpcError("m", Raw(b'{"a":1}'))) == 'm (-32603): {"a":1}'
    assert str(RpcError("m", "x" * 1_000)).endswith("...")


@pytest.mark.parametrize("code", [-32768, -32100, -32604, -32599, -32500, -31999 - 2])
def test_codes_that_the_specification_keeps(code: int) -> None:
    if code in SERVER_RANGE:
        assert RpcError(code=code).code == code
        return
    with pytest.raises(LocalError, match=f"RpcError: code {code} is reserved by the specification"):
        RpcError(code=code)
    with pytest.raises(LocalError, match=f"Bad: code {code} is reserved"):
        type("Bad", (RpcError,), {"code": code, "__module__": __name__})


@pytest.mark.parametrize("code", ["1", 1.5, True, None])
def test_codes_that_are_not_integers(code: Any) -> None:
    with pytest.raises(LocalError, match="Bad: an error code is an integer, not "):
        type("Bad", (RpcError,), {"code": code, "__module__": __name__})


@pytest.mark.parametrize("code", [-32769, -31999, -32000, -32099, 0, 1, -1, 2**40, -32603])
def test_codes_that_are_free(code: int) -> None:
    assert type("Good", (RpcError,), {"code": code, "__module__": __name__})().code == code
    assert type("Inherits", (OutOfStock,), {"__module__": __name__})().code == 1001


def test_the_exception_for_what_a_far_end_answered() -> None:
    error = RpcError.of(-32601, "no such thing", {"a": 1})
    assert type(error) is MethodNotFound
    assert (error.code, error.message, error.data, error.remote) == (-32601, "no such thing", {"a": 1}, True)
    assert error.args == ("no such thing",)
    assert type(RpcError.of(1001, "m")) is RpcError
    declared = RpcError.of(1001, "m", kinds={1001: OutOfStock})
    assert isinstance(declared, OutOfStock)
    assert declared.message == "m"
    assert cast(Any, declared.data) is None
    reserved = RpcError.of(-32768, "m")  # what others send is not ours to forbid
    assert reserved.code == -32768
    named = RpcError.of(-32602, "m")
    named.name = "TOOL_NOT_FOUND"
    assert str(named) == "m (TOOL_NOT_FOUND)"


def test_local_errors_never_cross_the_wire() -> None:
    assert not issubclass(LocalError, RpcError)
    assert issubclass(CallTimeout, TimeoutError)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)
def test_every_refusal_has_a_code(dialect: Any) -> None:
    codes = {kind: dialect.error(Refusal(kind, "why", {"n": 1})).code for kind in dialect.codes}
    known = {"busy": -32000, "draining": -32001, "timed_out": -32002, "too_large": -32003, "cancelled": -32800}
    assert codes == known | {"rate_limited": -32000, "forbidden": -32004}


def test_dialects() -> None:
    assert {"plain": PLAIN, "lsp": LSP} == DIALECTS
    assert (PLAIN.cancel, PLAIN.progress) == (None, None)
    assert (LSP.cancel, LSP.progress) == ("$/cancelRequest", "$/progress")
    error = LSP.error(Refusal("cancelled", "Cancelled"))
    assert (error.code, error.message, error.data) == (-32800, "Cancelled", None)


def test_too_large_names_the_limit_the_allowed_and_the_received() -> None:
    refusal = too_large("message_size", 4, 5)
    assert refusal == Refusal(
        "too_large",
        "Too large: message_size allows 4 bytes, received 5",
        {"limit": "message_size", "allowed": 4, "received": 5},
    )
    unknown = too_large("batch_length", 4, None, "elements")
    assert unknown.reason == "Too large: batch_length allows 4 elements, received more"
    assert unknown.data == {"limit": "batch_length", "allowed": 4}
    assert cast(Any, PLAIN.error(refusal)).data == refusal.data


def test_a_refusal_is_raised_with_the_code_of_plain_json_rpc() -> None:
    error = CallRefused(Refusal("busy", "Busy: later", {"retry_after": 1}))
    assert (error.code, error.message, error.data) == (-32000, "Busy: later", {"retry_after": 1})
    assert CallRefused(Refusal("draining", "Draining")).data is None


class Throttled(RpcError):
    code = 1007
    message = "Slow down"
    data: Any = {"retry": 5}  # noqa: RUF012  (as a user may write it)


def test_a_class_may_have_data_as_it_has_a_code_and_a_message() -> None:
    assert Throttled().data == {"retry": 5}
    assert "retry" in str(Throttled())
    assert "retry" in repr(Throttled())
    assert b'"data":{"retry":5}' in failure(1, Throttled())
    assert Throttled(data=0).data == 0
    assert pickle.loads(pickle.dumps(Throttled())).data == copy.copy(Throttled()).data == {"retry": 5}
    far = RpcError.of(1007, "Slow down", kinds={1007: Throttled})
    assert type(far) is Throttled
    assert far.data is None  # the far end gave none


@pytest.mark.parametrize("data", [0, "", [], {}, False])
def test_data_that_is_empty_is_kept_by_copies(data: Any) -> None:
    error = RpcError("x", data, code=7)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert (other.data, other.code, other.message) == (data, 7, "x")
        assert type(other.data) is type(data)
