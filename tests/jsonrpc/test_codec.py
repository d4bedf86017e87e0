"""Bytes to messages and back: `decode` is total and strict, lenient only where asked, and `encode` its inverse."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from dragoman import jsonrpc
from dragoman.jsonrpc import codec
from dragoman.jsonrpc.codec import decode, encode, failure, key, read
from dragoman.jsonrpc.errors import InvalidParams, LocalError, RpcError
from dragoman.jsonrpc.leniency import STRICT, Leniency
from dragoman.jsonrpc.limits import SERVER, Limits
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
from dragoman.jsonrpc.scanner import harmless, unholdable
from tests.jsonrpc.strategies import messages, nearly, plain
from tests.wire_cases import Case, all_cases

V1 = Leniency(accept_v1=True)


def malformed(raw: bytes, lenient: Leniency = STRICT) -> Malformed:
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
@example(b'{"jsonrpc":"2.0","method":"%s"}' % (b"i" * 1_100))
def test_decode_never_raises(raw: bytes) -> None:
    for lenient in (STRICT, Leniency(accept_v1=True, null_id="notification", string_codes=True)):
        message = decode(raw, lenient=lenient)
        elements = message.messages if isinstance(message, Batch) else [message]
        assert elements
        for element in elements:
            assert isinstance(element, Request | Notification | Result | Failure | Malformed)
            refused_notification = isinstance(element, Malformed) and not element.answerable
            assert refused_notification or getattr(element, "id", None) is not UNSET
            if not isinstance(element, Malformed):
                encode(element)


@given(nearly | messages.map(encode))
@example(b'{"jsonrpc":"2.0","method":"a","id":-0}')
@example(b'{"jsonrpc":"2.0","method":"a","params":"%s","id":1}' % (b"x" * 100_000))
def test_what_was_decoded_already_is_the_same_message(raw: bytes) -> None:
    try:
        wire = codec.plain(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    assert read(raw, SERVER, STRICT, wire) == read(raw, SERVER, STRICT)


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
def test_depth_is_a_limit_of_ours_and_the_same_on_every_python(before: bytes, after: bytes) -> None:
    taken = SERVER.depth - before.count(b"[") - before.count(b"{")
    taken += (before or b"[").startswith(b"[")  # the array of a batch does not count
    for depth in range(taken - 3, taken + 1):
        message = decode(before + b"[" * depth + b"]" * depth + after)
        assert not (isinstance(message, Malformed) and message.kind != "invalid"), depth
    for depth in (taken + 1, taken + 2, 2 * taken, 100_000):
        message = malformed(before + b"[" * depth + b"]" * depth + after)
        assert message.kind == "too_large", depth
        assert message.refusal is not None
        assert message.refusal.data == {"limit": "depth", "allowed": SERVER.depth}


@pytest.mark.parametrize("opening", [b"[", b'{"":'])
@pytest.mark.parametrize("padding", [b'" "', b'"[{"', b'"' + b"[{" * 40_000 + b'"', b'"' + b"x" * 70_000 + b'"'])
def test_depth_is_the_same_in_a_long_text(opening: bytes, padding: bytes) -> None:
    """Of a text above 64 KiB the brackets are counted in another way."""
    closing = b"]" if opening == b"[" else b"}"
    for depth, fits in ((SERVER.depth - 2, True), (SERVER.depth - 1, False)):
        deep = opening * depth + b"1" + closing * depth
        for params in (b"[%b,%b]" % (padding, deep), b"[%b,%b]" % (deep, padding)):
            found = decode(b'{"jsonrpc":"2.0","method":"a","params":%b,"id":1}' % params)
            assert isinstance(found, Request) == fits, (depth, params[:10])


@pytest.mark.parametrize("length", [308, 309, 310, 400, 1_000])
def test_a_long_number_is_found_wherever_it_stands(length: int) -> None:
    for before in range(0, 420, 7):
        raw = b'{"jsonrpc":"2.0","method":"a","params":["%b",%b,2],"id":1}' % (b"x" * before, b"9" * length)
        for text in (raw, raw.replace(b",2]", b',"' + b"12 words " * 9_000 + b'"]')):
            assert isinstance(read(text, SERVER, STRICT), Malformed) == (length > 308), before


@pytest.mark.parametrize("depth", [1, 3, 40, 99, 512])
def test_any_depth_can_be_chosen(depth: int) -> None:
    limits = SERVER.but(depth=depth + 1)
    for text in (b"[" * depth + b"]" * depth, b'{"":' * depth + b"1" + b"}" * depth):
        assert isinstance(decode(b'{"jsonrpc":"2.0","method":"a","params":%b,"id":1}' % text, limits=limits), Request)
        assert isinstance(decode(b'{"jsonrpc":"2.0","result":%b,"id":1}' % text, limits=limits), Result)
    for text in (b"[" * depth + b"[]" + b"]" * depth, b'{"":' * depth + b"[]" + b"}" * depth):
        for message in (b'{"jsonrpc":"2.0","method":"a","params":%b,"id":7}', b'{"jsonrpc":"2.0","result":%b,"id":7}'):
            found = decode(message % text, limits=limits)
            assert isinstance(found, Malformed)
            assert (found.kind, found.id, found.answerable) == ("too_large", 7, b"method" in message)


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
        (b"[]", "Invalid Request: an empty array is not a batch"),
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
        (
            b'{"jsonrpc":"2.0","result":1,"error":null,"id":1}',
            "Invalid response: it has both `result` and `error`; exactly one must be there, the null one must be absent",
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
        (b"1e400", "beyond what a double holds"),
        (b"9" * 309, "beyond what a double holds"),
        (b"9" * 5_000, "beyond what a double holds"),
        (b'{"jsonrpc":"2.0","method":"a","params":[1e999]}', "beyond what a double holds"),
    ],
)
def test_what_is_not_json(raw: bytes, words: str) -> None:
    message = malformed(raw)
    assert (message.kind, message.id, message.answerable) == ("parse", NULL, True)
    assert message.reason.startswith("Parse error: ")
    assert words in message.reason


@pytest.mark.parametrize(
    ("raw", "id", "data"),
    [
        (b'{"jsonrpc":"2.0","method":"abcde","id":7}', 7, ("method_length", 4, 5)),
        (b'{"jsonrpc":"2.0","method":"abcde"}', UNSET, ("method_length", 4, 5)),
        (b'{"jsonrpc":"2.0","method":"a","id":"12345"}', NULL, ("id_length", 4, 5)),
        (b'{"jsonrpc":"2.0","method":"a","id":1.234}', NULL, ("id_length", 4, 5)),
        (b"[1,2,3]", NULL, ("batch_length", 2, 3)),
    ],
)
def test_what_is_too_much(raw: bytes, id: Any, data: tuple[str, int, int]) -> None:
    limits = SERVER.but(method_length=4, id_length=4, batch_length=2)
    message = decode(raw, limits=limits)
    assert isinstance(message, Malformed)
    assert (message.kind, message.id, message.answerable) == ("too_large", id, id is not UNSET)
    assert message.refusal is not None
    assert message.refusal.data == dict(zip(("limit", "allowed", "received"), data, strict=True))


def test_a_name_is_as_long_as_it_may_be_whichever_way_it_is_read() -> None:
    for id in (b"7", b"7.0", b"-0"):  # the two ways of reading
        message = decode(b'{"jsonrpc":"2.0","method":"abcd","id":%b}' % id, limits=SERVER.but(method_length=4))
        assert isinstance(message, Request)


def test_the_id_of_a_response_may_be_long() -> None:
    assert isinstance(decode(b'{"jsonrpc":"2.0","result":1,"id":"12345"}', limits=SERVER.but(id_length=4)), Result)


def test_long_digits_that_a_double_holds() -> None:
    for digits in (b"9" * 300, b"0." + b"3" * 500, b'"' + b"9" * 999 + b'"'):
        assert isinstance(decode(b'{"jsonrpc":"2.0","method":"a","params":[%b],"id":1}' % digits), Request)


def test_at_no_depth_a_number_that_no_double_holds_slips_through() -> None:
    for depth in range(1, SERVER.depth):
        raw = b'{"jsonrpc":"2.0","method":"a","params":' + b"[" * depth + b"1e400" + b"]" * depth + b"}"
        assert malformed(raw).kind == "parse", depth


def test_what_cannot_be_held_is_the_fault_of_its_element_alone() -> None:
    good = b'{"jsonrpc":"2.0","method":"a","id":1}'
    for bad in (b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\\\\\ud800"', b"1e400", b"9" * 309):
        one = b'{"jsonrpc":"2.0","method":"a","params":[%b],"id":2}' % bad
        for text in (b"[%b,%b]", b" [ %b , %b ] ", b"[%b\n,\t%b]"):
            found = decode(text % (good, one))
            assert isinstance(found, Batch), bad
            assert isinstance(found.messages[0], Request)
            (wrong,) = found.messages[1:]
            assert isinstance(wrong, Malformed)
            assert (wrong.kind, wrong.id, wrong.answerable) == ("parse", NULL, True)
            assert malformed(b"[%b,%b" % (good, one)).kind == "parse"  # it is not JSON as a whole
        answer = b'{"jsonrpc":"2.0","result":[%b],"id":3}' % bad
        found = decode(b"[%b,%b]" % (answer, good))
        assert isinstance(found, Batch)
        assert isinstance(found.messages[0], Malformed)
        assert found.messages[0].spoils == 3


def test_a_surrogate_pair_is_not_a_fault() -> None:
    raw = b'[{"jsonrpc":"2.0","method":"a","params":["\\ud83d\\ude00","\\\\ud800"],"id":1},{"id":"\\ud800"}]'
    found = decode(raw)
    assert isinstance(found, Batch)
    request, wrong = found.messages
    assert isinstance(request, Request)
    assert bytes(request.params) == b'["\\ud83d\\ude00","\\\\ud800"]'
    assert isinstance(wrong, Malformed)


def halves(text: str) -> str:
    """As `harmless`, escape by escape."""
    out, at = "", 0
    while at < len(text):
        size = 1 if text[at] != "\\" else 6 if text[at + 1 : at + 2] == "u" else 2
        one, code = text[at : at + size], int(text[at + 2 : at + 6], 16) if size == 6 else 0
        after = int(text[at + 8 : at + 12], 16) if text[at + 6 : at + 8] == "\\u" else 0
        if 0xD800 <= code < 0xDC00 and 0xDC00 <= after < 0xE000:
            one = text[at : at + 12]
        elif 0xD800 <= code < 0xE000:
            one = "\\u0041"
        out, at = out + one, at + len(one)
    return out


@given(st.lists(st.sampled_from(["\\\\", "\\n", "\\u0041", "\\ud83d", "\\ude00", "\\uD83D", "\\uDE00", "ud83d", "x"])))
def test_half_a_pair_is_found_by_whole_escapes(parts: list[str]) -> None:
    text = "".join(parts)
    assert harmless(text.encode()).decode() == halves(text)


@pytest.mark.parametrize("halved", ["\\\\ud83d\\ude00", "\\\\\\ud83d", "\\ud83d\\\\ude00", "\\ude00\\ud83d"])
def test_half_a_pair_is_the_fault_of_its_element_alone(halved: str) -> None:
    found = decode(b'[{"jsonrpc":"2.0","method":"%s","id":1},{"jsonrpc":"2.0","method":"a","id":2}]' % halved.encode())
    assert isinstance(found, Batch)
    assert isinstance(found.messages[0], Malformed)
    assert isinstance(found.messages[1], Request)


def test_looking_for_numbers_passes_over_strings_and_what_is_not_a_number() -> None:
    assert unholdable(b'["1e400", "\\"1e4000", 1e-4000]') is None
    assert unholdable(b"[1-1e400]") is None
    assert unholdable(Raw(b"[1e40]")) is None


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
        (b'{"jsonrpc":"1.1","method":"a","id":1}', '`jsonrpc` must be "2.0", not "1.1"', True),
    ],
)
def test_what_is_not_version_1_either(raw: bytes, reason: str, answerable: bool) -> None:
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
    endless: list[Any] = []
    endless.append(endless)
    for value in (object(), "\ud800", endless, {1.5: object()}):
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


@pytest.mark.parametrize("id", ["-0", "-0.0", "0", "-1", "1.0"])
def test_an_id_of_a_batch_comes_back_as_it_was_sent(id: str) -> None:
    found = decode(b'[{"jsonrpc":"2.0","method":"a","id":%b},{"jsonrpc":"2.0","method":"a","id":1}]' % id.encode())
    assert isinstance(found, Batch)
    request = found.messages[0]
    assert isinstance(request, Request)
    assert id in encode(Result(1, request.id)).decode()
    assert msgspec.json.encode(request.id).decode() == id


def test_a_numeric_id_may_be_as_long_as_the_limit_and_no_longer() -> None:
    limits = SERVER.but(id_length=5)
    for id, fits in ((b"1.234", True), (b"1.2345", False), (b"-1e10", True), (b"-1e100", False)):
        message = decode(b'{"jsonrpc":"2.0","method":"a","id":%b}' % id, limits=limits)
        assert isinstance(message, Request) is fits, id


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="there the interpreter goes as deep as its stack")
@pytest.mark.parametrize(("begin", "end"), [(b"[", b"]"), (b'{"a":', b"}")], ids=["arrays", "objects"])
def test_where_the_depth_that_is_allowed_is_more_than_the_interpreters(begin: bytes, end: bytes) -> None:
    deep = 100_000
    found = decode(begin * deep + b"{}" + end * deep, limits=Limits(depth=2 * deep))
    assert isinstance(found, Malformed)
    assert found.reason == "Parse error: the text is nested deeper than this interpreter goes"


def test_what_a_text_asks_is_told_without_judging_it() -> None:
    batch = b'[1,{"jsonrpc":"2.0","method":"a","id":1},{"method":5,"id":2},{"method":"n"},{"result":1,"id":3}]'
    assert codec.requests(batch) == (True, [Request("a", UNSET, 1)])
    assert codec.requests(b'{"method":"b","id":"x"}') == (False, [Request("b", UNSET, "x")])
    for unreadable in (b"{", b"\xff", b"", b"7"):
        assert codec.requests(unreadable) == (False, [])


def test_of_what_is_too_long_the_members_before_an_unreadable_name_are_read() -> None:
    limits = Limits(depth=4)
    head = b'{"jsonrpc":"2.0","id":7,"method":"a","\\ud800":1,"result":'
    found = decode(head + b"[" * 9 + b"]" * 9 + b"}", limits=limits)
    assert isinstance(found, Malformed)
    assert (found.kind, found.id, found.answerable) == ("too_large", 7, True)
