"""Bytes to messages and back: `decode` is total and strict, lenient only where asked, and `encode` its inverse."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from msgspec import UNSET, Raw

from dragoman import jsonrpc
from dragoman.jsonrpc import codec
from dragoman.jsonrpc.codec import Leniency, decode, encode, failure, key
from dragoman.jsonrpc.errors import InvalidParams, LocalError, RpcError
from dragoman.jsonrpc.limits import SERVER
from dragoman.jsonrpc.messages import (
    NULL,
    Batch,
    ErrorObject,
    Failure,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
    Result,
)
from tests.jsonrpc.strategies import messages, nearly, plain
from tests.wire_cases import Case, all_cases

V1 = Leniency(accept_v1=True)


def malformed(raw: bytes, lenient: Leniency = codec.STRICT) -> Malformed:
    message = decode(raw, lenient=lenient)
    assert isinstance(message, Malformed)
    return message


# -- laws -----------------------------------------------------------------------------------------


@given(messages)
def test_what_was_encoded_decodes_to_the_same(message: Message) -> None:
    assert plain(decode(encode(message))) == plain(message)


@given(nearly)
@example(b"")
@example(b"[" * 100_000)
def test_decode_never_raises(raw: bytes) -> None:
    for lenient in (codec.STRICT, Leniency(accept_v1=True, null_id="notification", string_codes=True)):
        message = decode(raw, lenient=lenient)
        elements = message.messages if isinstance(message, Batch) else [message]
        assert elements
        for element in elements:
            assert isinstance(element, Request | Notification | Result | Failure | Malformed)
            assert getattr(element, "id", None) is not UNSET
            if not isinstance(element, Malformed):
                encode(element)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""),
        (b"[1,", b"]"),
        (b'{"jsonrpc":"2.0","method":"a","id":1,"params":', b"}"),
        (b'{"jsonrpc":"2.0","method":"a","id":1.0,"params":', b"}"),
        (b'[{"jsonrpc":"2.0","method":"a","id":1.0,"params":', b"}]"),
        (b'{"jsonrpc":"2.0","id":1.0,"result":', b"}"),
        (b'{"jsonrpc":"2.0","id":1.0,"error":{"code":1.0,"message":"","data":', b"}}"),
        (b'[{"jsonrpc":"2.0","id":1.0,"error":{"code":1.0,"message":"","data":', b"}}]"),
    ],
)
def test_at_every_depth_there_is_an_answer(before: bytes, after: bytes) -> None:
    """Where the decoder stops depends on Python's own stack: just below and just above, it is a value too."""
    limit = sys.getrecursionlimit()
    for depth in [*range(100, 130), *range(limit - 150, limit + 20)]:
        message = decode(before + b"[" * depth + b"]" * depth + after)
        if depth < 120:
            assert not (isinstance(message, Malformed) and message.kind == "parse"), depth
    assert malformed(before + b"[" * 100_000 + b"]" * 100_000 + after).kind == "parse"


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_decode_agrees_with_the_wire_cases(case: Case) -> None:
    message = decode(case.message)
    code = case.expected.get("error", {}).get("code") if isinstance(case.expected, dict) else None
    if code is not None and not case.either:
        assert (code.value == -32700) == (isinstance(message, Malformed) and message.kind == "parse")
    if isinstance(message, Malformed) and message.kind == "parse":
        assert (message.id, message.answerable) == (NULL, True)
        assert message.reason.startswith("Parse error: ")


# -- ids and members ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["1", "-1", "0", "1.0", "1e2", "1E+2", "0.10", "-0.0", "9" * 40, "-" + "9" * 40, "null"]
)
def test_an_id_comes_back_as_it_was_sent(text: str) -> None:
    request = decode(f'{{"jsonrpc":"2.0","method":"a","id":{text}}}'.encode())
    assert isinstance(request, Request)
    assert encode(Result(0, request.id)) == f'{{"jsonrpc":"2.0","result":0,"id":{text}}}'.encode()


def test_an_id_does_not_keep_the_message_alive() -> None:
    raw = b'{"jsonrpc":"2.0","method":"a","id":1.0,"params":["' + b"x" * 1000 + b'"]}'
    request = decode(raw)
    assert isinstance(request, Request)
    assert memoryview(request.id).nbytes == 3
    assert isinstance(memoryview(request.id).obj, Raw | bytes)


def test_params_stay_text() -> None:
    request = decode(b'{"jsonrpc":"2.0","method":"a","params": [1, 2.50 ] ,"id":1}')
    assert request == Request("a", request.params, 1)  # type: ignore[union-attr]
    assert bytes(request.params) == b"[1, 2.50 ]"


def test_names_of_the_protocol_itself() -> None:
    assert Request("rpc.discover", id=1).is_internal
    assert Notification("rpc.x").is_internal
    assert not Request("rpc", id=1).is_internal
    assert not Notification("a.rpc.").is_internal
    assert Notification("a").is_notification
    assert not Request("a", id=1).is_notification


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, Raw(b"1.0"), True),
        (1, "1", False),
        (Raw(b"1.0"), Raw(b"1e0"), True),
        (Raw(b"null"), Raw(b"null"), True),
        (Raw(b"null"), "null", False),
        (Raw(b"true"), 1, False),
        (Raw(b"nonsense"), Raw(b"nonsense"), True),
        (10**40, Raw(b"1" + b"0" * 40), True),
    ],
)
def test_keys_of_ids(one: Any, other: Any, same: bool) -> None:
    assert (key(one) == key(other)) is same
    assert len({key(one), key(other)}) == (1 if same else 2)


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"[]", "Invalid Request: an empty array is no batch"),
        (b"1", "Invalid Request: a request is an object, this is a number"),
        (b'"a"', "Invalid Request: a request is an object, this is a string"),
        (b"null", "Invalid Request: a request is an object, this is null"),
        (b" true ", "Invalid Request: a request is an object, this is a boolean"),
        (b"{}", 'Invalid Request: `jsonrpc` is missing; it must be "2.0"'),
        (b'{"jsonrpc":2.0}', 'Invalid Request: `jsonrpc` must be "2.0", not 2.0'),
        (b'{"jsonrpc":"2.0"}', "Invalid Request: `method` is missing"),
        (b'{"jsonrpc":"2.0","method":1}', "Invalid Request: `method` must be a string, not a number"),
        (
            b'{"jsonrpc":"2.0","method":"a","params":1}',
            "Invalid Request: `params` must be an array or an object, not a number",
        ),
        (
            b'{"jsonrpc":"2.0","method":"a","id":[]}',
            "Invalid Request: `id` must be a string, a number or null, not an array",
        ),
        (
            b'{"jsonrpc":"2.0","result":1,"id":{}}',
            "Invalid response: `id` must be a string, a number or null, not an object",
        ),
        (b'{"jsonrpc":"2.0","result":1}', "Invalid response: `id` is missing"),
        (b'{"result":1,"id":1}', 'Invalid response: `jsonrpc` is missing; it must be "2.0"'),
        (
            b'{"jsonrpc":"2.0","result":1,"error":{"code":1,"message":""},"id":1}',
            "Invalid response: it has both `result` and `error`; exactly one must be there",
        ),
        (b'{"jsonrpc":"2.0","error":1,"id":1}', "Invalid response: `error` must be an object, not a number"),
        (b'{"jsonrpc":"2.0","error":{},"id":1}', "Invalid response: `error.code` is missing"),
        (b'{"jsonrpc":"2.0","error":{"code":1},"id":1}', "Invalid response: `error.message` is missing"),
        (
            b'{"jsonrpc":"2.0","error":{"code":1.5,"message":""},"id":1}',
            "Invalid response: `error.code` must be an integer, not 1.5",
        ),
        (
            b'{"jsonrpc":"2.0","error":{"code":"INVALID_PARAMS","message":""},"id":1}',
            "Invalid response: `error.code` must be an integer, not 'INVALID_PARAMS'",
        ),
    ],
)
def test_what_is_json_but_no_message(raw: bytes, reason: str) -> None:
    message = malformed(raw)
    assert (message.kind, message.reason) == ("invalid", reason)
    assert message.answerable is reason.startswith("Invalid Request")
    in_batch = decode(b"[" + raw + b',{"jsonrpc":"2.0","method":"a"}]')
    assert isinstance(in_batch, Batch)
    if raw != b"[]":
        assert plain(in_batch.messages[0]) == plain(message)
    assert isinstance(in_batch.messages[1], Notification)


def test_an_error_whose_members_have_wrong_types() -> None:
    for error in (b'{"code":true,"message":""}', b'{"code":1,"message":2}', b'{"code":[],"message":""}'):
        message = malformed(b'{"jsonrpc":"2.0","error":%b,"id":1}' % error)
        assert message.reason.startswith("Invalid response: `error`: Expected")
        assert (message.id, message.answerable) == (1, False)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b'{"jsonrpc": "2.0', "truncated"),
        (b"\xef\xbb\xbf{}", "byte-order mark"),
        (b'"\xff"', "byte 1 is not UTF-8"),
        (b"[1e400]", "beyond what a double holds"),
        (b"[" + b"9" * 309 + b"]", "the number " + "9" * 37 + "... is beyond what a double holds"),
        (b"9" * 5_000, "beyond what a double holds"),
        (b'{"jsonrpc":"2.0","method":"a","params":[1e999]}', "the number 1e999 is beyond what a double holds"),
        (b"[" * 100_000, "nested too deep"),
    ],
)
def test_what_is_no_json(raw: bytes, words: str) -> None:
    message = malformed(raw)
    assert (message.kind, message.id, message.answerable) == ("parse", NULL, True)
    assert message.reason.startswith("Parse error: ")
    assert words in message.reason


@pytest.mark.parametrize(
    ("raw", "id", "data"),
    [
        (b'{"jsonrpc":"2.0","method":"abcde","id":7}', 7, ("method_length", 4, 5)),
        (b'{"jsonrpc":"2.0","method":"abcde"}', NULL, ("method_length", 4, 5)),
        (b'{"jsonrpc":"2.0","method":"a","id":"12345"}', NULL, ("id_length", 4, 5)),
        (b'{"jsonrpc":"2.0","method":"a","id":1.234}', NULL, ("id_length", 4, 5)),
        (b"[1,2,3]", NULL, ("batch_length", 2, 3)),
    ],
)
def test_what_is_too_much(raw: bytes, id: Any, data: tuple[str, int, int]) -> None:
    limits = SERVER.but(method_length=4, id_length=4, batch_length=2)
    message = decode(raw, limits=limits)
    assert isinstance(message, Malformed)
    assert (message.kind, message.id) == ("too_large", id)
    assert message.refusal is not None
    assert message.refusal.data == dict(zip(("limit", "allowed", "received"), data, strict=True))


def test_the_id_of_a_response_may_be_long() -> None:
    assert isinstance(decode(b'{"jsonrpc":"2.0","result":1,"id":"12345"}', limits=SERVER.but(id_length=4)), Result)


def test_long_digits_that_a_double_holds() -> None:
    for digits in (b"9" * 300, b"0." + b"3" * 500, b'"' + b"9" * 999 + b'"'):
        assert isinstance(decode(b'{"jsonrpc":"2.0","method":"a","params":[%b],"id":1}' % digits), Request)


def test_at_no_depth_a_number_that_no_double_holds_slips_through() -> None:
    limit = sys.getrecursionlimit()
    for depth in range(limit - 150, limit + 20):
        raw = b'{"jsonrpc":"2.0","method":"a","params":' + b"[" * depth + b"1e400" + b"]" * depth + b"}"
        assert malformed(raw).kind == "parse", depth


def test_looking_for_numbers_passes_over_strings_and_what_is_no_number() -> None:
    assert codec.unholdable(b'["1e400", "\\"1e4000", 1e-4000]') is None
    assert codec.unholdable(b"[1-1e400]") is None
    assert codec.unholdable(Raw(b"[1e40]")) is None


# -- responses ------------------------------------------------------------------------------------


def test_responses() -> None:
    result = decode(b'{"jsonrpc":"2.0","result":[1],"id":"a"}')
    assert isinstance(result, Response)
    assert result == Result(result.result, "a")  # type: ignore[union-attr]
    failed = decode(b'{"jsonrpc":"2.0","error":{"code":-32000,"message":"m","data":null,"more":1},"id":null,"x":1}')
    assert isinstance(failed, Failure)
    assert (failed.id, failed.error.code, failed.error.message, bytes(failed.error.data)) == (
        NULL,
        -32000,
        "m",
        b"null",
    )
    assert isinstance(decode(b'{"jsonrpc":"2.0","result":null,"id":1}'), Result)
    assert decode(b'{"jsonrpc":"2.0","error":{"code":1,"message":""}}') == Failure(ErrorObject(1, ""), NULL)
    integral = decode(b'{"jsonrpc":"2.0","error":{"code":-32600.0,"message":""},"id":1}')
    assert integral == Failure(ErrorObject(-32600, ""), 1)


def test_a_batch_may_hold_everything() -> None:
    batch = decode(
        b'[{"jsonrpc":"2.0","method":"a","id":1},{"jsonrpc":"2.0","method":"b"},{"jsonrpc":"2.0","result":1,"id":2},'
        b'{"jsonrpc":"2.0","error":{"code":1,"message":""},"id":3},4]'
    )
    assert isinstance(batch, Batch)
    assert [type(message) for message in batch.messages] == [Request, Notification, Result, Failure, Malformed]


def test_a_method_with_a_result_is_a_request() -> None:
    assert decode(b'{"jsonrpc":"2.0","method":"a","result":1,"id":1}') == Request("a", UNSET, 1)


# -- lenience -------------------------------------------------------------------------------------


def test_nothing_lenient_unless_chosen() -> None:
    assert malformed(b'{"method":"a","params":[],"id":1}').kind == "invalid"
    assert isinstance(decode(b'{"jsonrpc":"2.0","method":"a","id":null}'), Request)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b'{"method":"a","params":[],"id":1}', Request("a", Raw(b"[]"), 1, "1.0")),
        (b'{"method":"a","params":[],"id":null}', Notification("a", Raw(b"[]"), "1.0")),
        (b'{"method":"a"}', Notification("a", UNSET, "1.0")),
        (b'{"method":"a","params":[],"id":{"any":1}}', Request("a", Raw(b"[]"), Raw(b'{"any":1}'), "1.0")),
        (b'{"result":3,"error":null,"id":1}', Result(Raw(b"3"), 1, "1.0")),
        (b'{"result":null,"error":null,"id":1}', Result(Raw(b"null"), 1, "1.0")),
        (b'{"result":3,"id":1}', Result(Raw(b"3"), 1, "1.0")),
        (
            b'{"result":null,"error":{"code":-8,"message":"m","data":1},"id":1}',
            Failure(ErrorObject(-8, "m", Raw(b"1")), 1, "1.0"),
        ),
        (b'{"result":null,"error":{"code":-8},"id":1}', Failure(ErrorObject(-8, "Server error"), 1, "1.0")),
        (
            b'{"result":null,"error":{"message":"m"},"id":1}',
            Failure(ErrorObject(-32000, "m", Raw(b'{"message":"m"}')), 1, "1.0"),
        ),
        (b'{"result":null,"error":{},"id":1}', Failure(ErrorObject(-32000, "Server error", Raw(b"{}")), 1, "1.0")),
        (b'{"result":null,"error":"no","id":1}', Failure(ErrorObject(-32000, "no", Raw(b'"no"')), 1, "1.0")),
        (b'{"result":null,"error":7,"id":1}', Failure(ErrorObject(-32000, "Server error", Raw(b"7")), 1, "1.0")),
        (b'{"jsonrpc":"2.0","method":"a","id":null}', Request("a", UNSET, NULL, "2.0")),
        (b'{"jsonrpc":"2.0","method":"a","params":{},"id":1}', Request("a", Raw(b"{}"), 1, "2.0")),
    ],
)
def test_version_1(raw: bytes, message: Message) -> None:
    """As Bitcoin Core and many devices speak."""
    assert plain(decode(raw, lenient=V1)) == plain(message)


@pytest.mark.parametrize(
    ("raw", "reason", "answerable"),
    [
        (b'{"method":"a","params":{},"id":1}', "`params` of JSON-RPC 1.0 must be an array, not an object", True),
        (b'{"method":1,"params":[],"id":1}', "`method` must be a string, not a number", True),
        (b'{"error":null,"id":1}', "`result` is missing", False),
        (b'{"result":1}', "`id` is missing", False),
        (b'{"result":1,"error":null}', "`id` is missing", False),
        (b'{"jsonrpc":"1.0","method":"a","id":1}', '`jsonrpc` must be "2.0", not "1.0"', True),
    ],
)
def test_what_is_no_version_1_either(raw: bytes, reason: str, answerable: bool) -> None:
    message = malformed(raw, V1)
    assert message.reason.endswith(reason)
    assert message.answerable is answerable


def test_answers_in_version_1() -> None:
    """Answers carry `result`, `error` and `id`, all three."""
    assert encode(Result([1], 1, "1.0")) == b'{"result":[1],"error":null,"id":1}'
    error = ErrorObject(-1, "m", {"a": 1})
    assert (
        encode(Failure(error, 1, "1.0")) == b'{"result":null,"error":{"code":-1,"message":"m","data":{"a":1}},"id":1}'
    )
    assert encode(Request("a", [1], 1, "1.0")) == b'{"method":"a","params":[1],"id":1}'
    assert encode(Request("a", UNSET, 1, "1.0")) == b'{"method":"a","params":[],"id":1}'
    assert encode(Notification("a", UNSET, "1.0")) == b'{"method":"a","params":[],"id":null}'
    assert codec.result(1, 2, "1.0") == b'{"result":2,"error":null,"id":1}'
    with pytest.raises(LocalError, match="positional"):
        encode(Request("a", {"b": 1}, 1, "1.0"))


def test_an_id_of_null_as_a_notification() -> None:
    """Some clients of 2.0 mean it so."""
    lenient = Leniency(null_id="notification")
    assert decode(b'{"jsonrpc":"2.0","method":"a","id":null}', lenient=lenient) == Notification("a")
    assert decode(b'{"jsonrpc":"2.0","method":"a","id":1.0}', lenient=lenient) == Request("a", id=Raw(b"1.0"))
    batch = decode(b'[{"jsonrpc":"2.0","method":"a","id":null}]', lenient=lenient)
    assert batch == Batch((Notification("a"),))


@pytest.mark.parametrize(
    ("word", "number"),
    [
        ("PARSE_ERROR", -32700),
        ("INVALID_REQUEST", -32600),
        ("METHOD_NOT_FOUND", -32601),
        ("INVALID_PARAMS", -32602),
        ("INTERNAL_ERROR", -32603),
        ("TOOL_NOT_FOUND", -32602),
        ("RESOURCE_NOT_FOUND", -32602),
        ("SOMETHING_ELSE", -32000),
    ],
)
def test_words_for_codes(word: str, number: int) -> None:
    raw = f'{{"jsonrpc":"2.0","error":{{"code":"{word}","message":"m"}},"id":1}}'.encode()
    assert malformed(raw).answerable is False
    assert decode(raw, lenient=Leniency(string_codes=True)) == Failure(ErrorObject(number, "m", UNSET, word), 1)


# -- out ------------------------------------------------------------------------------------------


def test_the_text_of_messages() -> None:
    assert encode(Request("a", [1], 1)) == b'{"jsonrpc":"2.0","method":"a","params":[1],"id":1}'
    assert encode(Request("a", Raw(b"[ 1 ]"), NULL)) == b'{"jsonrpc":"2.0","method":"a","params":[ 1 ],"id":null}'
    assert encode(Notification("a")) == b'{"jsonrpc":"2.0","method":"a"}'
    assert encode(Result(None, "1")) == b'{"jsonrpc":"2.0","result":null,"id":"1"}'
    assert encode(Failure(ErrorObject(1, "m"))) == b'{"jsonrpc":"2.0","error":{"code":1,"message":"m"},"id":null}'
    assert encode(Batch((Notification("a"), Result(1, 2)))) == (
        b'[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","result":1,"id":2}]'
    )
    assert codec.result(1, Raw(b"[1]")) == b'{"jsonrpc":"2.0","result":[1],"id":1}'
    assert failure(1, InvalidParams(data={"errors": []})) == (
        b'{"jsonrpc":"2.0","error":{"code":-32602,"message":"Invalid params","data":{"errors":[]}},"id":1}'
    )
    assert failure(None, RpcError("m", code=5), "1.0") == (
        b'{"result":null,"error":{"code":5,"message":"m"},"id":null}'
    )
    assert codec.join([b"1", b"2"]) == b"[1,2]"


def test_what_cannot_be_sent() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    for value in (object(), "\ud800", nested, {1.5: object()}):
        with pytest.raises(LocalError, match="this cannot be written as JSON"):
            encode(Request("a", [value], 1))
    with pytest.raises(LocalError, match="not a message to send"):
        encode(malformed(b"{}"))


def test_numbers_that_json_has_not_become_null() -> None:
    assert encode(Result([float("nan"), float("inf")], 1)) == b'{"jsonrpc":"2.0","result":[null,null],"id":1}'


def test_what_is_public() -> None:
    assert set(jsonrpc.__all__) <= set(dir(jsonrpc))
    for name in ("decode", "encode", "Request", "Notification", "Response", "Batch"):
        assert name in jsonrpc.__all__
    assert msgspec.json.decode(jsonrpc.encode(jsonrpc.Result(1, 1))) == {"jsonrpc": "2.0", "result": 1, "id": 1}
