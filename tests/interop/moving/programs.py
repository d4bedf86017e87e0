"""The programs of docs/moving/, run: what each answers, in the words of the pages' tables."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tests import skips
from tests.interop.mcp.environments import Missing, program, variables
from tests.interop.mcp.running import listening
from tests.ports import free_port

from .messages import OPEN, PLAIN, Side, message

FOLDER = Path(__file__).parent / "programs"
PORT = "5000"
"""The port in the programs; each run gets a free one in its place."""
NOTHING = "nothing"
BEGINNING: dict[str, Any] = {"processId": None, "rootUri": None, "capabilities": {}}
OPENED: dict[str, Any] = {"textDocument": {**OPEN, "languageId": "text", "version": 1, "text": "one two"}}


def interpreter(peer: str) -> str:
    """The interpreter of other libraries' programs, or ours (""); skips the test where it cannot be made."""
    if not peer:
        return sys.executable
    try:
        return program(peer)[0]
    except Missing as missing:
        skips.missing(f"{peer}: {missing}")


def command(name: str, peer: str, folder: Path, port: int = 0) -> list[str]:
    """The command that runs a program at a port."""
    copy = folder / f"{name}.py"
    copy.write_text((FOLDER / copy.name).read_text(encoding="utf-8").replace(PORT, str(port)), encoding="utf-8")
    return [interpreter(peer), str(copy)]


@contextmanager
def serving(side: Side, folder: Path) -> Iterator[int]:
    """A program that serves HTTP, at this port."""
    port = free_port()
    with listening(command(side.program, side.peer, folder, port), port, {}):
        yield port


def post(port: int, path: str, body: str, **headers: str) -> tuple[int, str]:
    """The status and the body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"} | headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def in_words(answer: Any) -> str:
    """One answer: "a result", its error's code, or those of a batch."""
    if isinstance(answer, list):
        return "[" + ", ".join(map(in_words, answer)) + "]"
    if "method" in answer:
        return f"`{answer['method']}`"
    return str(answer["error"]["code"]) if answer.get("error") else "a result"


def posted(side: Side, folder: Path, messages: dict[str, str]) -> dict[str, str]:
    """What a program answers to each message over HTTP: with its status, where that is not 200."""
    found: dict[str, str] = {}
    with serving(side, folder) as port:
        for name, body in messages.items():
            headers = {"Content-Type": "text/plain"} if name == PLAIN else {}
            status, text = post(port, side.path, body, **headers)
            try:
                words = in_words(json.loads(text)) if text else NOTHING
            except ValueError:
                words = ""
            found[name] = words if status == 200 and text else f"{status} {words}".strip()
    return found


def said(side: Side, folder: Path, messages: dict[str, str]) -> dict[str, str]:
    """What a language server answers to each message before it answers the call that comes after it."""
    words = command(side.program, side.peer, folder)
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=variables()
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        answers = framed(child.stdout)

        def answered(*bodies: str) -> list[Any]:
            """What comes before the answer to a call that is sent last."""
            for text in (*bodies, message("words/count", params=OPEN, id="last")):
                child.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(text.encode()), text.encode()))  # type: ignore[union-attr]
            child.stdin.flush()  # type: ignore[union-attr]
            found: list[Any] = []
            for answer in answers:
                if isinstance(answer, dict) and answer.get("id") == "last":
                    return found
                if not isinstance(answer, dict) or answer.get("method") != "textDocument/publishDiagnostics":
                    found.append(answer)
            raise AssertionError(f"{side.program} has ended after {bodies}")

        answered(message("initialize", params=BEGINNING, id="first"), message("textDocument/didOpen", params=OPENED))
        found = {name: " and ".join(map(in_words, answered(body))) or NOTHING for name, body in messages.items()}
        child.kill()
    return found


def framed(stream: IO[bytes]) -> Iterator[Any]:
    """The messages behind their headers, until the end of the stream."""
    size = 0
    while line := stream.readline():
        if line.startswith(b"Content-Length:"):
            size = int(line.partition(b":")[2])
        elif line == b"\r\n":
            yield json.loads(stream.read(size))
