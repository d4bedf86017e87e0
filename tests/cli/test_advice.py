"""What a failed command advises: never in the place of the error itself, and by the same finder as the doctor."""

from __future__ import annotations

import asyncio
import sys

import pytest
from msgspec import Raw

from dragoman import Service, serve
from dragoman.channel import ChannelError
from dragoman.cli.calls.call import _call
from dragoman.cli.options import LinkOptions, WireOptions
from dragoman.jsonrpc.errors import MethodNotFound, RpcError

from .conftest import Command
from .doctor.test_faults import listening


@pytest.mark.parametrize("v1", [False, True])
@pytest.mark.parametrize("describes", [False, True])
async def test_the_servers_error_is_told_whatever_the_look_for_advice_meets(v1: bool, describes: bool) -> None:
    api = Service("calculator", discover=describes, accept_v1=True)
    async with serve(api, urls=["tcp://127.0.0.1:0"]) as serving:
        with pytest.raises(RpcError) as caught:
            await _call(serving.urls[0], "nosuch", Raw(b"[]"), LinkOptions(v1=v1), WireOptions())
    assert isinstance(caught.value, MethodNotFound)
    assert any("there is no method 'nosuch'" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    ("challenge", "advice"),
    [
        ('Basic realm="node"', "--user NAME:PASSWORD, or set DRAGOMAN_USER"),
        ("Digest realm=x, nonce=y", "let the server take Basic or Bearer"),
        ("Negotiate", "--header 'Authorization: Negotiate ...'"),
    ],
)
async def test_each_scheme_has_its_own_advice(challenge: str, advice: str) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 No\r\nWWW-Authenticate: %b\r\nContent-Length: 0\r\n\r\n" % challenge.encode())
        await reader.read()

    async with listening(talk) as port:
        with pytest.raises(ChannelError, match="HTTP 401") as caught:
            await _call(f"http://127.0.0.1:{port}", "echo", Raw(b"[]"), LinkOptions(), WireOptions())
    assert not any("dragoman login" in note for note in caught.value.__notes__)
    assert any(advice in note for note in caught.value.__notes__)


LOOSE = """\
import json, sys

FOUND = {{"content": [{{"type": "text", "text": "fine"}}], "contents": [], "messages": [], "resources": [], "prompts": [],
         "tools": [{{"name": "t", "inputSchema": {{"type": "object"}}}}]}}
for line in sys.stdin:
    asked = json.loads(line)
    answer = {{"jsonrpc": "2.0", "id": asked.get("id")}}
    if asked["method"] == "initialize":
        able = {{"tools": {{}}, "prompts": {{}}, "resources": {{}}}}
        answer["result"] = {{"protocolVersion": "2025-06-18", "capabilities": able, "serverInfo":
                            {{"name": "loose", "version": "1"}}}}
    elif asked["method"] == "server/discover":
        answer["error"] = {{"code": -32601, "message": "Method not found"}}
    else:
        answer |= {found}
    if "id" in asked:
        print(json.dumps(answer), flush=True)
"""
"""A server of MCP, and of any JSON-RPC method, whose answers keep to the letter only in the handshake."""
NULL = '{"result": FOUND, "error": None}'
WORD = '{"error": {"code": "INVALID_PARAMS", "message": "no city"}}'
BOTH = '{"result": FOUND, "error": {"code": 1, "message": "m"}}'
OLD = '{"jsonrpc": "1.0", "result": FOUND, "error": None}'
COMMANDS = (("tools",), ("tool", "t"), ("read", "x:y"), ("prompt", "p"), ("call", "m"))


def loose(command: Command, found: str) -> str:
    (command.folder / "loose.py").write_text(LOOSE.format(found=found))
    return f"{sys.executable} {command.folder / 'loose.py'}"


@pytest.mark.parametrize("words", COMMANDS, ids=[words[0] for words in COMMANDS])
@pytest.mark.parametrize(("found", "says"), [(NULL, "leave the null out"), (WORD, "send a number")])
def test_a_command_names_lenient_where_it_would_have_helped(
    command: Command, words: tuple[str, ...], found: str, says: str
) -> None:
    verb, *rest = words
    server = loose(command, found)
    strict = command.run(verb, server, *rest)
    assert strict.status == 3
    assert "what to do: accept it: --lenient" in strict.err
    assert says in strict.err
    lenient = command.run(verb, server, *rest, "--lenient")
    assert lenient.status == (0 if found == NULL else 1), lenient
    assert "--lenient" not in lenient.err


@pytest.mark.parametrize("words", [("tool", "t"), ("call", "m")], ids=["tool", "call"])
def test_it_does_not_where_it_would_not(command: Command, words: tuple[str, ...]) -> None:
    verb, *rest = words
    assert "--lenient" not in command.run(verb, loose(command, BOTH), *rest).err
    old = command.run(verb, loose(command, OLD), *rest)
    assert old.status == 3
    assert ("--v1, or --lenient" in old.err) is (verb == "call")
    assert command.run(verb, loose(command, OLD), *rest, "--lenient").status == (0 if verb == "call" else 3)


def test_the_doctor_names_it_too(command: Command) -> None:
    server = loose(command, NULL).replace("loose.py", "early.py")
    (command.folder / "early.py").write_text(LOOSE.format(found=NULL).replace('"initialize"', '"never"'))
    assert "accept it: --lenient" in command.run("doctor", server).out
