"""Words of a command line as params, and the options that are more than a word."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from dragoman.cli.arguments import params_of
from dragoman.cli.exit_status import Usage, ending_of, readable
from dragoman.cli.options import AccessOptions, WireOptions, limits_of
from dragoman.cli.progress import read_progress
from dragoman.cli.reach import target_of
from dragoman.cli.terminal import clean, lay_out
from dragoman.jsonrpc.errors import CallTimeout, LocalError, RpcError
from dragoman.jsonrpc.limits import CLIENT, SERVER


@pytest.mark.parametrize(
    ("words", "params"),
    [
        (["42", "23"], "[42,23]"),
        (["-3", "1.0", "1e400"], '[-3,1.0,"1e400"]'),
        (["1234567890123456789012345678901234567890"], "[1234567890123456789012345678901234567890]"),
        (["hello", "two words", "NaN"], '["hello","two words","NaN"]'),
        (["true", "null", '"42"', '[1, {"a": 2}]'], '[true,null,"42",[1, {"a": 2}]]'),
        (["minuend=42", "subtrahend=23"], '{"minuend":42,"subtrahend":23}'),
        (["name=Ada", "tags=[1]", "empty=", "$x.y-z=a=b"], '{"name":"Ada","tags":[1],"empty":"","$x.y-z":"a=b"}'),
        (['"a=b"', "http://h/?a=1"], '["a=b","http://h/?a=1"]'),
        (["über=größer"], '["über=größer"]'),
    ],
)
def test_words_are_params(words: list[str], params: str) -> None:
    found = params_of(words, None)
    assert isinstance(found, msgspec.Raw)
    assert bytes(found).decode() == params


def test_without_words_there_are_no_params() -> None:
    assert params_of([], None) is UNSET


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["1", "b=2"], "use one way for all"),
        (["a=1", "a=2"], "given twice"),
        (["[1,2"], "begins like JSON but is not JSON"),
        (["{a: 1}"], "begins like JSON but is not JSON"),
        (["x={a:1}"], "begins like JSON but is not JSON"),
    ],
)
def test_mistakes_in_words(words: list[str], sentence: str) -> None:
    with pytest.raises(Usage, match=sentence):
        params_of(words, None)


def test_params_whole(tmp_path: Path) -> None:
    file = tmp_path / "params.json"
    file.write_text(' {"a": 1.0}\n')
    assert params_of([], '{"a":1}') == msgspec.Raw(b'{"a":1}')
    assert params_of([], f"@{file}") == msgspec.Raw(b'{"a": 1.0}')
    for wrong in ("7", "nope", "@" + str(tmp_path / "none"), "\udcff"):
        with pytest.raises(Usage):
            params_of([], wrong)
    with pytest.raises(Usage, match="not both"):
        params_of(["1"], "[1]")


def test_limits_by_name() -> None:
    found = limits_of(["message_size=16MiB", "call-timeout=none", "calls=1_000", "drain_timeout=0.5"], SERVER)
    assert found == SERVER.but(message_size=16 * 1024**2, call_timeout=None, calls=1000, drain_timeout=0.5)
    assert WireOptions(limit=["calls=7"]).limits(CLIENT) == CLIENT.but(calls=7)
    assert WireOptions().limits(CLIENT) is None


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("mesage_size=1", "did you mean message_size"),
        ("xyzzy=1", "there are message_size"),
        ("calls", "NAME=NUMBER"),
        ("calls=many", "NAME=NUMBER"),
        ("calls=-1", "not negative"),
        ("calls=1.5", "int"),
        ("calls=none", "int"),
    ],
)
def test_mistakes_in_limits(word: str, sentence: str) -> None:
    with pytest.raises(Usage, match=sentence):
        limits_of([word])


def test_link_options() -> None:
    assert AccessOptions(header=["A: b", "C:d:e"]).headers() == {"A": "b", "C": "d:e"}
    assert AccessOptions(user="ada:se:cret").auth() == ("ada", "se:cret")
    assert AccessOptions(bearer="token").auth() == "token"
    assert AccessOptions(timeout=float("inf")).seconds() is None
    assert AccessOptions(timeout=2).seconds() == 2
    assert AccessOptions().tls() is None
    context = AccessOptions(insecure=True).tls()
    assert context is not None
    assert context.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize(
    "access",
    [
        AccessOptions(header=["no colon"]),
        AccessOptions(user="ada"),
        AccessOptions(user="a:b", bearer="c"),
        AccessOptions(timeout=0),
        AccessOptions(ca="/none"),
    ],
)
def test_mistakes_in_link_options(access: AccessOptions) -> None:
    with pytest.raises(Usage):
        (access.headers(), access.auth(), access.seconds(), access.tls())


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("tcp://127.0.0.1:1", "tcp://127.0.0.1:1"),
        ("unix:calc.sock", "unix:calc.sock"),
        ("python server.py", ["python", "server.py"]),
        ('stdio:python "my server.py" tcp://x:1', ["python", "my server.py", "tcp://x:1"]),
        ("./server", ["./server"]),
        ('python -c "a:b"', ["python", "-c", "a:b"]),
    ],
)
def test_url_or_command(url: str, place: str | list[str]) -> None:
    assert target_of(url) == place


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "localhost:8000/rpc", "[::1]:80", "", " ", "stdio:", 'stdio:a "b'])
def test_mistakes_in_urls(url: str) -> None:
    with pytest.raises(Usage):
        target_of(url)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.25, (0.25, 1.0, "")),
        (12, (12.0, None, "12")),
        ([3, 10], (3.0, 10.0, "")),
        ({"percentage": 40, "message": "half way"}, (40.0, 100.0, "half way")),
        ({"progress": 2, "total": 8}, (2.0, 8.0, "")),
        ({"kind": "begin", "title": "Indexing"}, (None, None, "Indexing")),
        ("words", (None, None, "words")),
        (None, (None, None, "null")),
        (True, (None, None, "true")),
    ],
)
def test_progress_values(value: Any, said: tuple[Any, ...]) -> None:
    found = read_progress(value)
    assert (found.done, found.total, found.text) == said


def test_foreign_text_is_made_safe() -> None:
    assert clean("a\x1b[31mb\u202e\nc") == "a\\x1b[31mb\\u202e\nc"
    assert lay_out('{"a":"\x7f\u202e"}'.encode()) == '{"a": "\\u007f\\u202e"}'
    assert lay_out(b"[1.0,2]") == "[1.0, 2]"
    assert lay_out(b'["' + b"x" * 200 + b'"]').count("\n") == 2


def test_error_data_for_people() -> None:
    faults = {
        "errors": [{"field": "minuend", "message": "Expected int", "received": "x"}, {"field": "b", "message": "m"}]
    }
    assert readable(faults) == 'minuend: Expected int (received "x")\nb: m'
    assert readable({"errors": 1, "more": 2}) == '{"errors": 1, "more": 2}'
    assert readable(msgspec.Raw(b"[1.0]")) == "[1.0]"


def test_endings() -> None:
    assert ending_of(RpcError("no", {"a": 1}, code=7)).as_json() == {
        "error": {"code": 7, "message": "no", "data": {"a": 1}}
    }
    assert ending_of(LocalError("so not")).as_json() == {"error": {"kind": "usage", "message": "so not"}}
    kinds = [RpcError("x"), LocalError("x"), CallTimeout("x"), ConnectionRefusedError(111, "x"), KeyError("x")]
    assert [ending_of(kind).status for kind in kinds] == [1, 2, 3, 3, 70]
