"""Every option of leniency against what it accepts, what it refuses all the same, and what others accept.

The rows are messages that strict decoding refuses, each with the options that accept it; what a service answers then is
in `tests/cases/lenient.jsonl`.
"""

from __future__ import annotations

from typing import Any

import pytest

from dragoman import LocalError, Service
from dragoman.jsonrpc import (
    LENIENT,
    STRICT,
    Failure,
    Leniency,
    Malformed,
    Notification,
    Request,
    Result,
    decode,
    encode,
)
from dragoman.jsonrpc.leniency import chosen
from dragoman.mcp import Server

EACH: dict[str, Leniency] = {
    "accept_v1": Leniency(accept_v1=True),
    "null_id": Leniency(null_id="notification"),
    "null_params": Leniency(null_params=True),
    "null_error": Leniency(null_error=True),
    "string_codes": Leniency(string_codes=True),
    "text_arguments": Leniency(text_arguments=True),
    "unknown_arguments": Leniency(unknown_arguments=True),
    "any_media_type": Leniency(any_media_type=True),
}

ACCEPTED: list[tuple[bytes, set[str], Any]] = [
    (b'{"jsonrpc":"1.0","method":"a","params":[1],"id":1}', {"accept_v1"}, Request),
    (b'{"method":"a","params":[1],"id":1}', {"accept_v1"}, Request),
    (b'{"jsonrpc":"1.0","result":834404,"error":null,"id":1}', {"accept_v1"}, Result),
    (b'{"jsonrpc":"1.0","result":null,"error":{"code":-8,"message":"m"},"id":1}', {"accept_v1"}, Failure),
    (b'{"jsonrpc":"2.0","method":"a","params":null,"id":1}', {"null_params", "null_id"}, Request),
    (b'{"jsonrpc":"2.0","method":"a","params": null }', {"null_params", "null_id"}, Notification),
    (b'{"jsonrpc":"2.0","result":1,"error":null,"id":1}', {"null_error"}, Result),
    (b'{"jsonrpc":"2.0","result":null,"error":null,"id":1}', {"null_error"}, Result),
    (b'{"jsonrpc":"2.0","result":null,"error":{"code":1,"message":"m"},"id":1}', {"null_error"}, Failure),
    (b'{"jsonrpc":"2.0","error":{"code":"INVALID_PARAMS","message":"m"},"id":1}', {"string_codes"}, Failure),
]
"""A message, the options of which each accepts it, and what it is then."""

REFUSED: list[bytes] = [
    b'{"jsonrpc":"1.1","method":"a","params":[1],"id":1}',
    b'{"jsonrpc":null,"method":"a","params":[1],"id":1}',
    b'{"jsonrpc":["1.0"],"method":"a","params":[1],"id":1}',
    b'{"foo":"boo"}',
    b'{"jsonrpc":"2.0","method":"a","params":"null","id":1}',
    b'{"jsonrpc":"2.0","method":"a","params":false,"id":1}',
    b'{"jsonrpc":"2.0","method":null,"params":null,"id":1}',
    b'{"jsonrpc":"2.0","result":1,"error":{"code":1,"message":"m"},"id":1}',
    b'{"jsonrpc":"2.0","error":null,"id":1}',
    b'{"jsonrpc":"2.0","result":1,"error":null}',
    b'{"jsonrpc":"2.0","result":1,"error":null,"id":{}}',
    b'{"jsonrpc":"2.0","result":1,"error":0,"id":1}',
    b'{"jsonrpc":"2.0","error":{"code":["INVALID_PARAMS"],"message":"m"},"id":1}',
    b'{"jsonrpc":"2.0","method":"a","params":null,"id":1',
    b'{"jsonrpc":"2.0","method":"a","params":nul,"id":1}',
]
"""Messages that no option accepts."""


def test_the_table_has_every_option() -> None:
    assert tuple(EACH) == Leniency.__struct_fields__
    for name, option in EACH.items():
        others = [one for one in Leniency.__struct_fields__ if getattr(option, one) != getattr(STRICT, one)]
        assert others == [name]


@pytest.mark.parametrize("option", EACH)
@pytest.mark.parametrize(("raw", "accepting", "kind"), ACCEPTED, ids=[str(raw)[:50] for raw, _, _ in ACCEPTED])
def test_an_option_accepts_its_own_messages_and_changes_nothing_else(
    raw: bytes, accepting: set[str], kind: Any, option: str
) -> None:
    strict = decode(raw)
    assert isinstance(strict, Malformed)
    found = decode(raw, lenient=EACH[option])
    if option in accepting:
        assert type(found) is kind
        again = decode(encode(found), lenient=EACH[option])
        assert encode(again) == encode(found)
    elif option == "accept_v1":  # its answer is written in 1.0 where the message is
        assert isinstance(found, Malformed)
    else:
        assert found == strict


@pytest.mark.parametrize("option", [*EACH, "all"])
@pytest.mark.parametrize("raw", REFUSED)
def test_what_is_wrong_is_refused_whatever_is_accepted(raw: bytes, option: str) -> None:
    everything = Leniency(
        accept_v1=True, null_id="notification", null_params=True, null_error=True, string_codes=True,
        text_arguments=True, unknown_arguments=True, any_media_type=True,
    )  # fmt: skip
    assert isinstance(decode(raw, lenient=everything if option == "all" else EACH[option]), Malformed)


@pytest.mark.parametrize(
    ("raw", "version"),
    [
        (b'{"foo":"boo"}', "2.0"),
        (b'{"jsonrpc":"1.0","foo":"boo"}', "1.0"),
        (b'{"method":1,"id":1}', "1.0"),
        (b'{"jsonrpc":"2.0","method":1,"id":1}', "2.0"),
        (b"[]", "2.0"),
        (b"{", "2.0"),
    ],
)
def test_a_fault_is_told_in_the_version_of_the_message(raw: bytes, version: str) -> None:
    found = decode(raw, lenient=EACH["accept_v1"])
    assert isinstance(found, Malformed)
    assert found.version == version


def test_a_response_with_neither_result_nor_error_is_told_as_that() -> None:
    found = decode(b'{"jsonrpc":"2.0","id":1}')
    assert isinstance(found, Malformed)
    assert found.reason == "Invalid Request: `method` is missing; as a response it lacks `result` and `error`"


def test_options_by_their_own_names_join_the_value() -> None:
    assert chosen(False) is STRICT
    assert chosen(True) == LENIENT
    assert chosen(Leniency()) is STRICT
    assert chosen(Leniency(null_params=True), accept_v1=True) == Leniency(null_params=True, accept_v1=True)
    assert chosen(Leniency(accept_v1=True)) == Leniency(accept_v1=True)
    assert chosen(True, null_id="notification").null_id == "notification"


def test_a_service_takes_the_value_and_the_short_form() -> None:
    raw = b'{"jsonrpc":"2.0","method":"a","params":null,"id":1}'
    for lenient, answered in ((True, True), (Leniency(null_params=True), True), (False, False), (STRICT, False)):
        service = Service("s", lenient=lenient)
        service.method("a", inline=True)(lambda: 1)
        assert (service.answer(raw) == b'{"jsonrpc":"2.0","result":1,"id":1}') is answered


def test_a_wrong_value_is_told() -> None:
    with pytest.raises(LocalError, match=r"Service 's': lenient is True or False, or a Leniency, not 'yes'"):
        Service("s", lenient="yes")  # type: ignore[arg-type]
    with pytest.raises(LocalError, match=r"MCP is JSON-RPC 2\.0 alone"):
        Server("s", lenient=Leniency(accept_v1=True))
