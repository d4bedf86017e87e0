"""`problems` finds every fault, says where it is, and never raises."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dragoman.jsonrpc.check import Problem, problems
from dragoman.jsonrpc.codec import decode, encode
from dragoman.jsonrpc.leniency import Leniency
from dragoman.jsonrpc.limits import SERVER
from dragoman.jsonrpc.messages import Batch, Malformed, Message
from tests.jsonrpc.strategies import messages, nearly
from tests.wire_cases import Case, all_cases

GOOD = '{"jsonrpc":"2.0","method":"a","params":[1],"id":1}'


def errors(message: bytes | str) -> list[tuple[str, str]]:
    return [(problem.path, problem.message) for problem in problems(message) if problem.severity == "error"]


def warnings(message: bytes | str) -> list[tuple[str, str]]:
    found = problems(message)
    assert all(problem.severity == "warning" for problem in found), found
    return [(problem.path, problem.message) for problem in found]


# -- laws -----------------------------------------------------------------------------------------


@given(messages)
def test_what_was_encoded_has_no_errors(message: Message) -> None:
    assert errors(encode(message)) == []


@given(nearly)
@example(b"[" * 100_000)
@example(b'{"a":' * 100_000)
def test_what_decode_refuses_has_an_error(raw: bytes) -> None:
    found = problems(raw)
    for problem in found:
        assert problem.path.startswith("$")
        assert problem.message
        f"{problem.path} {problem.message}".encode()  # it can be printed
    decoded = decode(raw)
    elements = decoded.messages if isinstance(decoded, Batch) else [decoded]
    if any(isinstance(element, Malformed) and element.kind != "too_large" for element in elements):
        assert any(problem.severity == "error" for problem in found)
    elif any(isinstance(element, Malformed) for element in elements):
        assert found


@given(st.text() | st.text(st.characters(categories=["Cs", "Po", "Nd"])))
def test_any_text_is_survived(text: str) -> None:
    assert isinstance(problems(text), list)


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_problems_agrees_with_the_wire_cases(case: Case) -> None:
    decoded = decode(case.message)
    found = problems(case.message)
    if isinstance(decoded, Malformed):
        assert found
        if decoded.kind != "too_large":
            assert any(problem.severity == "error" for problem in found)


@pytest.mark.parametrize(
    "message",
    [
        GOOD,
        GOOD.encode(),
        f" {GOOD}\n",
        '{"jsonrpc":"2.0","method":"a"}',
        '{"jsonrpc":"2.0","method":"rpc.discover","params":{},"id":"x"}',
        '{"jsonrpc":"2.0","result":null,"id":-1}',
        '{"jsonrpc":"2.0","error":{"code":-32000,"message":"m","data":[]},"id":null}',
        '{"jsonrpc":"2.0","error":{"code":-32601,"message":"m"},"id":"1"}',
        '[{"jsonrpc":"2.0","method":"a","id":1},{"jsonrpc":"2.0","method":"a","id":"1"},{"jsonrpc":"2.0","method":"a"}]',
        '[{"jsonrpc":"2.0","method":"a","id":1},{"jsonrpc":"2.0","result":1,"id":1}]',
        '[{"jsonrpc":"2.0","error":{"code":1,"message":""},"id":null},{"jsonrpc":"2.0","error":{"code":1,"message":""},"id":null}]',
    ],
)
def test_what_is_right_has_no_problems(message: bytes | str) -> None:
    assert problems(message) == []


def test_every_fault_of_one_message() -> None:
    text = (
        '[{"jsonrpc":2.0,"Method":"a","params":7,"id":[],"extra":1},'
        '{"jsonrpc":"2.0","error":{"code":"INVALID_PARAMS","data":1e400,"why":0},"result":NaN},'
        '[],3,{"jsonrpc":"2.0","method":"rpc.x","id":1.5,"params":{"a b":[{"q":1,"q":2}]}}]'
    )
    assert [(problem.severity, problem.path) for problem in problems(text)] == [
        ("error", "$[0].jsonrpc"),
        ("error", "$[0].params"),
        ("error", "$[0].id"),
        ("error", "$[0].Method"),
        ("warning", "$[0].extra"),
        ("error", "$[1].error.data"),
        ("error", "$[1].result"),
        ("error", "$[1]"),
        ("error", "$[1].id"),
        ("error", "$[1].error.code"),
        ("error", "$[1].error.message"),
        ("warning", "$[1].error.why"),
        ("error", "$[2]"),
        ("error", "$[3]"),
        ("error", '$[4].params["a b"][0].q'),
        ("warning", "$[4].method"),
        ("warning", "$[4].id"),
    ]


# -- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"", ["there is no message: the text is empty"]),
        (" \n", ["there is no message: the text is empty"]),
        (b"\xef\xbb\xbf" + GOOD.encode(), ["the text begins with a byte-order mark: leave it out"]),
        ("\ufeff" + GOOD, ["the text begins with a byte-order mark: leave it out"]),
        (GOOD.replace('"a"', '"\u00e9"').encode("latin-1"), ["byte 27 (0xe9) is not UTF-8: JSON is sent in UTF-8"]),
        (
            GOOD.encode("utf-16"),
            ["byte 0 (0xff) is not UTF-8: it looks like UTF-16; JSON is sent in UTF-8"],
        ),
        (
            GOOD.replace('"a"', '"\ud800"'),
            [
                "character 27 is half of a surrogate pair: no UTF-8 can say it",
                "the string has an unpaired surrogate, \\ud800: no text holds half a character",
            ],
        ),
        (
            GOOD + GOOD,
            [
                "not one JSON value: at line 1 column 51 more text follows the first; send one message at a time, or a batch"
            ],
        ),
        (
            '{"a":1,}',
            [
                (
                    'not JSON: expecting property name enclosed in double quotes (line 1 column 8, at "}"); '
                    "no comma stands after the last one"
                )
            ],
        ),
        ("[1,]", ['not JSON: expecting value (line 1 column 4, at "]"); no comma stands after the last one']),
        (
            "{'a':1}",
            [
                (
                    "not JSON: expecting property name enclosed in double quotes (line 1 column 2, at \"'a':1}\"); "
                    "strings and names stand in double quotes"
                )
            ],
        ),
        ("[1, // one\n2]", ['not JSON: expecting value (line 1 column 5, at "// one\\n2]"); JSON has no comments']),
        ("[# one\n2]", ['not JSON: expecting value (line 1 column 2, at "# one\\n2]"); JSON has no comments']),
        ('{"a":', ["not JSON: expecting value (line 1 column 6, where the text ends)"]),
        (
            '["a\tb"]',
            [
                (
                    'not JSON: invalid control character at (line 1 column 4, at "\\tb\\"]"); '
                    "control characters in strings are written \\n, \\t or \\u0000"
                )
            ],
        ),
        ("[" * 100_000, ["nested too deep for any decoder: flatten it"]),
    ],
)
def test_faults_of_the_text(message: bytes | str, expected: list[str]) -> None:
    if sys.version_info >= (3, 13) and isinstance(message, str) and message.endswith((",}", ",]")):
        pytest.skip("Python 3.13 has words of its own for trailing commas")
    assert errors(message) == ([("$.method", text) if "the string" in text else ("$", text) for text in expected])


def test_bad_text_does_not_hide_what_else_is_wrong() -> None:
    assert [path for path, _ in errors(b'{"jsonrpc":2,"method":"\xff","id":true}')] == ["$", "$.jsonrpc", "$.id"]


@pytest.mark.parametrize(
    ("value", "path", "words"),
    [
        ("NaN", "$.params[0]", "NaN is not JSON: send null, a string or a finite number"),
        ("-Infinity", "$.params[0]", "-Infinity is not JSON: send null, a string or a finite number"),
        ("1e400", "$.params[0]", "the number 1e400 is larger than a double holds (1.8e308)"),
        (
            "9" * 309,
            "$.params[0]",
            "the number 99999999999999999999... (309 characters) is larger than a double holds (1.8e308)",
        ),
        (r'"\ud800"', "$.params[0]", "the string has an unpaired surrogate, \\ud800: no text holds half a character"),
        (
            r'{"\udfff":1}',
            r'$.params[0]["\udfff"]',
            "the name has an unpaired surrogate, \\udfff: no text holds half a character",
        ),
        (
            '{"a":1,"b":{},"a":"x","a":null,"a":[]}',
            "$.params[0].a",
            (
                'the member "a" stands 4 times, as the number 1 and the string "x" and null ...: '
                "peers differ in which they take (dragoman the last)"
            ),
        ),
        (
            '{"a":true,"\\u0061":NaN}',
            "$.params[0].a",
            'the member "a" stands 2 times, as true and NaN: peers differ in which they take (dragoman the last)',
        ),
    ],
)
def test_faults_of_values(value: str, path: str, words: str) -> None:
    found = errors(f'{{"jsonrpc":"2.0","method":"a","params":[{value}],"id":1}}')
    assert (path, words) in found
    assert len(found) == (2 if "NaN}" in value else 1)


def test_nesting() -> None:
    def nested(depth: int) -> str:
        return '{"jsonrpc":"2.0","method":"a","params":' + "[" * (depth - 1) + "]" * (depth - 1) + "}"

    assert problems(nested(128)) == []
    ((path, words),) = warnings(nested(129))
    assert path == "$.params" + "[0]" * 127
    assert words == "nested more than 128 levels deep, which not every peer takes"
    assert len(warnings(nested(400))) == 1
    assert len(warnings(f"[{nested(128)}]")) == 1


def test_nesting_beyond_the_limit() -> None:
    """The limit `depth`, whatever this Python's own is."""
    text = '{"jsonrpc":"2.0","method":"a","params":' + "[" * 511 + "%s" + "]" * 511 + "}"
    assert errors(text % "1") == []
    deeper = "nested more than 512 levels deep: flatten it; a dragoman server takes 512 unless depth is set"
    assert errors(text % "[1]") == [("$", deeper)]
    assert errors(text % ("[" * 300 + "NaN" + "]" * 300))[0] == ("$", deeper)


# -- requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("{}", ["$.jsonrpc", "$"]),
        ('{"jsonrpc":"2.0"}', ["$"]),
        ('{"method":"a","id":1}', ["$.jsonrpc"]),
        ('{"jsonrpc":"1.0","method":"a"}', ["$.jsonrpc"]),
        ('{"jsonrpc":"2.0","method":null}', ["$.method"]),
        ('{"jsonrpc":"2.0","method":"a","params":null}', ["$.params"]),
        ('{"jsonrpc":"2.0","method":"a","params":"x"}', ["$.params"]),
        ('{"jsonrpc":"2.0","method":"a","id":false}', ["$.id"]),
        ('{"jsonrpc":"2.0","method":"a","id":{"a":1}}', ["$.id"]),
        ('{"jsonrpc":"2.0","method":"a","id":NaN}', ["$.id"]),
        ('{"jsonrpc":"2.0","method":"a","result":1,"id":1}', ["$"]),
        ('{"jsonrpc":"2.0","method":"a","result":1,"error":{"code":1,"message":""},"id":1}', ["$", "$"]),
        ('{"json-rpc":"2.0","METHOD":"a","Params":[],"Id":1}', ["$.json-rpc", "$.METHOD", "$.Params", "$.Id"]),
        ('{"jsonrpc":"2.0","method":"a","ID":1}', ["$.ID"]),
        ("3", ["$"]),
        ('"x"', ["$"]),
        ("[]", ["$"]),
        ("[[]]", ["$[0]"]),
        ("[[NaN]]", ["$[0]", "$[0][0]"]),
        ("[null]", ["$[0]"]),
    ],
)
def test_errors_of_requests(message: str, expected: list[str]) -> None:
    found = [path.replace('["json-rpc"]', ".json-rpc") for path, _ in errors(message)]
    assert found == expected


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ('{"method":"a","params":[],"id":1}', "JSON-RPC 1.0 has none: the option accept_v1 takes it"),
        ('{"jsonrpc":2.0,"method":"a"}', 'jsonrpc must be the string "2.0", not the number 2.0'),
        ('{"jsonrpc":"2.0","Method":"a"}', 'did you mean "method", not "Method"?'),
        ('{"jsonrpc":"2.0","method":"a","params":null}', "leave it out when there are none"),
        ('{"jsonrpc":"2.0","method":"a","params":1}', "put a single argument into an array"),
        ('{"jsonrpc":"2.0","method":{}}', "method must be a string, not an object"),
        ('{"jsonrpc":"2.0","id":1}', 'a request needs "method", a response one of the others'),
        ("[]", "an empty array is not a batch"),
        ("7", "a message is an object or an array of objects, not the number 7"),
        ("[7]", "an element of a batch is an object, not the number 7"),
    ],
)
def test_words_say_what_would_be_right(message: str, words: str) -> None:
    assert any(words in text for _, text in errors(message))


@pytest.mark.parametrize(
    ("message", "path", "words"),
    [
        ('{"jsonrpc":"2.0","method":"a","id":null}', "$.id", "an id of null is discouraged"),
        ('{"jsonrpc":"2.0","method":"a","id":1.5}', "$.id", "the id 1.5 is written as a fraction"),
        ('{"jsonrpc":"2.0","method":"a","id":1e2}', "$.id", "the id 1e2 is written as a fraction"),
        ('{"jsonrpc":"2.0","method":"rpc.a"}', "$.method", '"rpc.a": names that begin with rpc. are reserved'),
        ('{"jsonrpc":"2.0","method":""}', "$.method", "empty string"),
        (
            f'{{"jsonrpc":"2.0","method":"{"m" * 257}"}}',
            "$.method",
            "257 characters; a dragoman server takes 256 unless",
        ),
        (
            f'{{"jsonrpc":"2.0","method":"a","id":"{"i" * 1025}"}}',
            "$.id",
            "1025 characters; a dragoman server takes 1024",
        ),
        ('{"jsonrpc":"2.0","method":"a","meta":1}', "$.meta", 'a request has no member "meta"; it is ignored'),
        ('{"jsonrpc":"2.0","method":"a","":1}', '$[""]', 'a request has no member ""; it is ignored'),
        (
            '{"jsonrpc":"2.0","result":1,"id":1,"params":[]}',
            "$.params",
            'a response has no member "params"; it is ignored',
        ),
        ('{"jsonrpc":"2.0","result":1,"id":null}', "$.id", "a result with id null belongs to no call"),
        (
            '{"jsonrpc":"2.0","error":{"code":-32768,"message":""},"id":1}',
            "$.error.code",
            "code -32768 is reserved by the specification",
        ),
    ],
)
def test_warnings(message: str, path: str, words: str) -> None:
    ((found, text),) = warnings(message)
    assert found == path
    assert words in text


def test_warnings_of_size() -> None:
    ((path, text),) = warnings(GOOD + " " * SERVER.message_size)
    assert (path, text) == (
        "$",
        f"the message has {SERVER.message_size + len(GOOD)} bytes; a dragoman server takes 4194304 unless message_size is set",
    )
    ((path, text),) = warnings("[" + ",".join(['{"jsonrpc":"2.0","method":"a"}'] * 1001) + "]")
    assert (path, text) == ("$", "the batch has 1001 elements; a dragoman server takes 1000 unless batch_length is set")
    fraction = f"1.{'1' * 1100}"
    found = problems(f'{{"jsonrpc":"2.0","method":"a","id":{fraction}}}')
    assert [problem.severity for problem in found] == ["warning", "warning"]


# -- responses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('{"jsonrpc":"2.0","result":1}', ["$.id"]),
        ('{"jsonrpc":"2.0","result":1,"Id":1}', ["$.Id"]),
        ('{"jsonrpc":"2.0","Result":1,"id":1}', ["$.Result"]),
        ('{"jsonrpc":"2.0","result":1,"id":[]}', ["$.id"]),
        ('{"jsonrpc":"2.0","result":1,"error":{"code":1,"message":""},"id":1}', ["$"]),
        ('{"result":1,"error":null,"id":1}', ["$.jsonrpc", "$"]),
        ('{"jsonrpc":"2.0","error":null,"id":1}', ["$.error"]),
        ('{"jsonrpc":"2.0","error":"no","id":1}', ["$.error"]),
        ('{"jsonrpc":"2.0","error":[],"id":1}', ["$.error"]),
        ('{"jsonrpc":"2.0","error":{},"id":1}', ["$.error.code", "$.error.message"]),
        ('{"jsonrpc":"2.0","error":{"Code":1,"Message":""},"id":1}', ["$.error.Code", "$.error.Message"]),
        ('{"jsonrpc":"2.0","error":{"code":1.0,"message":7},"id":1}', ["$.error.code", "$.error.message"]),
        ('{"jsonrpc":"2.0","error":{"code":true,"message":""},"id":1}', ["$.error.code"]),
        ('{"jsonrpc":"2.0","error":{"code":99999999999999999999,"message":""},"id":1}', ["$.error.code"]),
        ('{"jsonrpc":"2.0","error":{"code":"X","message":""},"id":1}', ["$.error.code"]),
    ],
)
def test_errors_of_responses(message: str, expected: list[str]) -> None:
    assert [path for path, _ in errors(message)] == expected


def test_hints_at_options() -> None:
    ((_, version), (_, both)) = errors('{"result":1,"error":null,"id":1}')
    assert "accept_v1" in version
    assert "accept_v1" in both
    ((_, both),) = errors('{"jsonrpc":"2.0","result":1,"error":{"code":1,"message":""},"id":1}')
    assert "accept_v1" not in both
    ((_, word),) = errors('{"jsonrpc":"2.0","error":{"code":"TOOL_NOT_FOUND","message":""},"id":1}')
    assert word.endswith("(-32602 is meant; the option string_codes takes it)")
    ((_, word),) = errors('{"jsonrpc":"2.0","error":{"code":"ENOENT","message":""},"id":1}')
    assert word == 'code must be an integer, not the string "ENOENT"'


# -- batches --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        ("1", "1", True),
        ("1", "1.0", True),
        ('"1"', '"1"', True),
        ('"1"', "1", False),
        ("null", "null", True),
        ("1", "2", False),
        ("1234567890123456789", "1234567890123456788", False),
        ("1234567890123456789", "1234567890123456789", True),
        ("[]", "[]", False),
    ],
)
def test_ids_within_a_batch(one: str, other: str, clash: bool) -> None:
    calls = [f'{{"jsonrpc":"2.0","method":"a","id":{id}}}' for id in (one, "77", other)]
    found = [(path, text) for path, text in errors(f"[{','.join(calls)}]") if "same id" in text]
    words = "the same id as in $[0], so their answers cannot be told apart: give each its own"
    assert found == ([("$[2].id", words)] if clash else [])


def test_a_long_list_of_faults_is_found_in_linear_time() -> None:
    members = ",".join(f'"n{i}":1,"n{i}":2' for i in range(20_000))
    assert len(errors('{"jsonrpc":"2.0","method":"a","params":{' + members + "}}")) == 20_000
    assert len(errors("[" + "1," * 50_000 + "1]")) == 50_001


@pytest.mark.parametrize(
    ("raw", "lenient"),
    [
        ('{"method":"a","params":[],"id":1}', Leniency(accept_v1=True)),
        ('{"result":1,"error":null,"id":1}', Leniency(accept_v1=True)),
        ('{"jsonrpc":"2.0","error":{"code":"INVALID_PARAMS","message":""},"id":1}', Leniency(string_codes=True)),
    ],
)
def test_the_options_named_in_hints_do_take_it(raw: str, lenient: Any) -> None:
    assert isinstance(decode(raw.encode()), Malformed)
    assert not isinstance(decode(raw.encode(), lenient=lenient), Malformed)


def test_a_problem_is_a_value() -> None:
    assert Problem("$", "m") == Problem("$", "m", "error")


def test_the_size_is_counted_in_bytes_and_may_be_the_limit() -> None:
    def sized(size: int, letter: str) -> str:
        frame = '{"jsonrpc":"2.0","method":"a","params":["%s"]}'
        return frame % (letter * ((size - len(frame) + 2) // len(letter.encode())))

    for letter in ("x", "\u00e4"):
        text = sized(SERVER.message_size, letter)
        for message in (text, text.encode()):
            assert problems(message) == []
        longer = text.replace('"a"', '"aa"').replace('"jsonrpc"', ' "jsonrpc"')
        for message in (longer, longer.encode()):
            ((path, words),) = warnings(message)
            assert path == "$"
            size = len(longer.encode())
            assert f"the message has {size} bytes" in words
            assert f"takes {SERVER.message_size} unless message_size is set" in words


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('{"jsonrpc":"2.0","method":"a","params":[1,]}', True),
        ('{"jsonrpc":"2.0","method":"a",}', True),
        ('{"jsonrpc":"2.0","method":"a","params":[1}', False),
        ('{"jsonrpc":"2.0","method":"a","params":]}', False),
    ],
)
def test_the_hint_about_a_comma_stands_where_there_is_one(text: str, hint: bool) -> None:
    ((_, words),) = errors(text)
    assert ("no comma stands after the last one" in words) is hint


@pytest.mark.parametrize("more", [0, 1])
def test_an_id_is_as_long_as_a_server_takes_it(more: int) -> None:
    text = '{"jsonrpc":"2.0","method":"m","id":"%s"}' % ("i" * (SERVER.id_length + more))
    assert ["id_length" in problem.message for problem in problems(text)] == [True] * more
