"""Every wrong use of the command gets a message that says what was wrong, where, and what would be right."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from dragoman.cli.app import run

from .conftest import SERVICE, Command
from .wrong_uses import USES

WEATHER = """\
from dragoman.mcp import Server

app = Server("weather")


@app.tool
def forecast(city: str, days: int = 1) -> str:
    return f"sunny in {city}"


@app.resource("config://app")
def config() -> str:
    return "dark"


@app.prompt
def review(language: str) -> str:
    return f"Review this {language}"
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Real servers on several wires, and the folder with what the uses name."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "calculator.py").write_text(SERVICE)
    (folder / "weather.py").write_text(WEATHER)
    (folder / "empty.py").write_text("x = 1\n")
    (folder / "broken.py").write_text("import nosuchmodule\n")
    (folder / "messages.jsonl").write_text("{}\n")
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "own.pem"))
    command = Command(folder, patience=900)
    urls = ["http://127.0.0.1:0", "tcp://127.0.0.1:0", "https://127.0.0.1:0", "tls://127.0.0.1:0"]
    urls.append("tcp://127.0.0.1:0?framing=content-length")
    _, found = command.serve(*urls, options=("--tls-cert", "own.pem"))
    process = command.start("serve", "weather:app", "http://127.0.0.1:0/mcp", "--json")
    assert process.stdout is not None
    found.append(process.stdout.readline().partition("http://")[2].partition("/")[0])
    named = zip(("http", "tcp", "https", "tls", "lsp", "mcp"), found, strict=True)
    yield {name: url.rpartition("//")[2].partition("?")[0].rstrip("/") for name, url in named} | {
        "folder": str(folder),
        "file": str(folder / "weather.py"),
    }
    command.end()


@pytest.mark.parametrize(("words", "what", "where", "right"), USES, ids=[use[0] for use in USES])
def test_a_message_has_three_parts(
    places: dict[str, str],
    words: str,
    what: str,
    where: str,
    right: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(places["folder"])
    monkeypatch.setenv("COLUMNS", "400")
    for name in [name for name in os.environ if name.startswith("DRAGOMAN_")]:
        monkeypatch.delenv(name)
    assert run(words.format(**places).split()) in (1, 2, 3)
    said = capfd.readouterr().err
    for part in (what, where, right):
        assert part.format(**places) in said, said
    assert said.startswith(("dragoman: ", "error "))
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["call", "http://127.0.0.1:1", "echo", "\udcff"], "the argument '\\udcff'"),
        (["call", "http://127.0.0.1:1", "echo", "--user", "ada:\udcff"], "--user"),
        (["read", "http://127.0.0.1:1", "\udcff"], "the argument '\\udcff'"),
    ],
    ids=["argument", "user", "uri"],
)
def test_what_is_not_utf_8(words: list[str], where: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    assert capfd.readouterr().err == f"dragoman: {where} is not UTF-8\n"


@pytest.mark.parametrize(
    "words",
    [
        "call calculator.py subtract --params @.",
        "call calculator.py subtract --trace .",
        "call https://127.0.0.1:1 subtract --ca .",
        "call https://127.0.0.1:1 subtract --cert .",
        "check .",
        "serve calculator.py --config .",
        "serve calculator.py https://127.0.0.1:0 --tls-cert .",
        "tools --config weather --config-file .",
    ],
)
def test_a_folder_in_place_of_a_file(command: Command, words: str) -> None:
    *_, option, place = words.split()
    named = f"{option} {place}" if option not in ("check", "--params", "--config-file") else place
    assert command.run(*words.split()).err.endswith(f"{named}: Is a directory\n")


def test_an_import_error_is_said_once(command: Command) -> None:
    Path(command.folder / "broken.py").write_text("import nosuchmodule\n")
    done = command.run("tools", "broken.py")
    assert (done.status, done.err.count("nosuchmodule"), done.err.count("\n")) == (2, 1, 1)


def test_programs_are_named_as_for_serve(command: Command) -> None:
    assert command.run("call", "calculator.py:api", "subtract", "5", "3").out == "2\n"
    assert command.run("call", "calculator:api", "subtract", "5", "3").out == "2\n"


def test_a_misspelt_variable_is_told(command: Command) -> None:
    done = command.run("call", "calculator.py", "subtract", "5", "3", env={"DRAGOMAN_BEARR": "secret"})
    assert (done.out, done.err) == (
        "2\n",
        "the environment's DRAGOMAN_BEARR is not read; did you mean DRAGOMAN_BEARER?\n",
    )


@pytest.mark.parametrize("name", ["DRAGOMAN_SECRET", "DRAGOMAN_BUS", "DRAGOMAN_USER"])
def test_a_variable_that_is_read_is_not_told(command: Command, name: str) -> None:
    assert "is not read" not in command.run("methods", "tcp://127.0.0.1:1", env={name: "x:y"}).err


def test_advice_is_part_of_the_json(command: Command) -> None:
    done = command.run("call", "calculator.py", "subtrac", "5", "3", "--json")
    assert done.json["error"]["code"] == -32601
    assert "did you mean subtract?" in done.json["advice"][0]


def test_what_is_empty_is_said_and_lists_have_no_trailing_tab(command: Command) -> None:
    (command.folder / "bare.py").write_text(
        "from dragoman.mcp import Server\napp = Server('bare')\n@app.tool\ndef go() -> str:\n    return 'x'\n"
    )
    assert command.run("resources", "bare.py").err == "the server has no resources\n"
    assert command.run("prompts", "bare.py").err == "the server has no prompts\n"
    assert command.run("tools", "bare.py").out == "go()\n"
    assert all(line == line.rstrip() for line in command.run("methods", "calculator.py").out.splitlines())


def test_check_takes_a_message_laid_out(command: Command) -> None:
    for text, line in (('{\n "jsonrpc": "2.0",\n "method": 1\n}\n', 1), ('\n[\n {"method": 1}\n]\n', 2)):
        done = command.run("check", "-", input=text)
        assert done.out.startswith(f"-:{line}  error")
        assert "1 message," in done.err
    done = command.run("check", "-", input='{"jsonrpc": \n{"jsonrpc": "2.0", "method": "m"}\n')
    assert "2 messages, 1 error" in done.err


def test_a_client_certificate(command: Command) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(command.folder / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(command.folder / "own.pem"))
    authority.issue_cert("ada@example.org").private_key_and_cert_chain_pem.write_to_path(
        str(command.folder / "ada.pem")
    )
    (command.folder / "mutual.py").write_text(MUTUAL)
    process = command.start_python("mutual.py")
    assert process.stdout is not None
    for url in process.stdout.readline().split():
        done = command.run("call", url, "subtract", "5", "3", "--ca", "ca.pem", "--cert", "ada.pem")
        assert (done.status, done.out) == (0, "2\n"), done.err
        done = command.run("call", url, "subtract", "5", "3", "--ca", "ca.pem")
        assert done.status == 3
        assert "if the server asks for client certificates" in done.err
        assert "--cert FILE" in done.err


MUTUAL = """\
import asyncio
import ssl

from calculator import api
from dragoman import serve


async def main():
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile="ca.pem")
    context.load_cert_chain("own.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    async with serve(api, urls=["tls://127.0.0.1:0", "https://127.0.0.1:0"], tls=context) as serving:
        print(*serving.urls, flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
"""
