"""What is typed for an MCP server: arguments by its schemas, servers by the files of hosts, answers to its
questions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from dragoman.cli.exit_status import Usage
from dragoman.cli.fields import Misfit, arguments_of, choices_of, value_of
from dragoman.cli.mcp.asking import Asker
from dragoman.cli.serving.hosts import HostServer, find
from dragoman.mcp.protocol.params import ElicitRequestParams

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "flag": {"type": "boolean"},
        "data": {"type": "object"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "pair": {"type": "array", "items": {"type": "integer"}},
        "unit": {"enum": ["C", "F"]},
        "level": {"$ref": "#/$defs/Level"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "name": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "any": {},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
    },
    "required": ["city"],
    "$defs": {"Level": {"enum": [1, 2, 3]}, "Line": {"type": "object"}},
}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("city=Beijing", "Beijing"),
        ("city=01234", "01234"),
        ("city=42", "42"),
        ("city=", ""),
        ('city="quoted"', '"quoted"'),
        ("count=3", 3),
        ("count=3.0", 3),
        ("count=-3", -3),
        ("share=3", 3),
        ("share=0.5", 0.5),
        ("flag=true", True),
        ("flag=yes", True),
        ("flag=off", False),
        ('data={"a":1}', {"a": 1}),
        ("tags=a,b", ["a", "b"]),
        ('tags=["a","b,c"]', ["a", "b,c"]),
        ("pair=1,2", [1, 2]),
        ("unit=C", "C"),
        ("level=2", 2),
        ("maybe=null", None),
        ("maybe=7", 7),
        ("name=null", None),
        ("name=7", "7"),
        ("any=7", 7),
        ("any=text", "text"),
        ("any=a=b", "a=b"),
    ],
)
def test_words_are_typed_by_the_schema(word: str, value: Any) -> None:
    found = arguments_of([word], SCHEMA, "forecast")
    assert found == {word.partition("=")[0]: value}
    assert msgspec.json.encode([*found.values()]) == msgspec.json.encode([value])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["Beijing"], "write the arguments of forecast by name: city=... count=... share=..."),
        (["city=a", "city=b"], "the argument 'city' is given twice"),
        (["ctiy=a"], "forecast has no argument 'ctiy'; did you mean city?"),
        (["count=many"], "count: it must be an integer, not 'many'"),
        (["share=much"], "share: it must be a number, not 'much'"),
        (["flag=perhaps"], "flag: it must be a boolean, not 'perhaps'"),
        (["unit=K"], "unit: it must be one of C, F, not 'K'"),
        (["maybe=text"], "maybe: it must be an integer or null, not 'text'"),
        (["data=[1]"], "data: it must be an object, not '[1]'"),
        (["pair=1,x"], "pair: it must be an integer, not '1,x'"),
        (["lines=tea"], "lines: it must be an array, not 'tea'"),
    ],
)
def test_mistakes_in_words(words: list[str], sentence: str) -> None:
    with pytest.raises(Usage) as caught:
        arguments_of(words, SCHEMA, "forecast")
    assert sentence in str(caught.value)


def test_schemas_that_say_little() -> None:
    assert arguments_of(["a=1", "b=text"], {}, "raw") == {"a": 1, "b": "text"}
    assert arguments_of(["a=1"], {"type": "object", "additionalProperties": True}, "raw") == {"a": 1}
    loop = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}
    assert value_of("7", loop) == 7
    assert value_of("7", {"$ref": "https://elsewhere.example/schema"}) == 7
    assert value_of("x", {"const": "x"}) == "x"
    with pytest.raises(Usage, match="it takes none"):
        arguments_of(["x"], {"type": "object", "properties": {}}, "ping")


def test_choices_have_titles() -> None:
    titled = {"oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]}
    assert choices_of(titled) == {"Red": "#f00", "Green": "#0f0"}
    assert value_of("Red", titled) == value_of("#f00", titled) == "#f00"
    named = {"enum": ["r", "g"], "enumNames": ["Red", "Green"]}
    assert value_of("Green", named) == "g"
    assert value_of("Red,Green", {"type": "array", "items": {"anyOf": titled["oneOf"]}}) == ["#f00", "#0f0"]
    with pytest.raises(Misfit, match="one of Red, Green"):
        value_of("Blue", titled)


# -- the files of hosts ---------------------------------------------------------------------------

LISTING = """\
{
  // as editors allow it
  "mcpServers": {
    "weather": {"command": "python", "args": ["weather.py", "--key=${KEY}"], "env": {"A": "${env:KEY}", "N": 3}, "cwd": "sub"},
    "remote": {"type": "http", "url": "https://${HOST:-weather.example}/mcp", "headers": {"Authorization": "Bearer ${KEY}"}},
    "here": {"command": "${workspaceFolder}/run", "disabled": true, /* not ours */ "extra": [1]},
    "lacking": {"command": "python", "env": {"A": "${NOT_THERE}"}},
    "asked": {"command": "python", "args": ["${input:KEY}"]},
    "both": {"command": "python", "url": "https://weather.example"},
    "neither": {"args": []},
    "wrong": {"command": 7},
  },
}
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / ".mcp.json").write_text(LISTING)
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode" / "mcp.json").write_text('{"servers": {"editor": {"command": "${workspaceFolder}/run"}}}')
    return tmp_path


def test_servers_by_name(here: Path) -> None:
    environment = {"KEY": "secret"}
    assert find("weather", None, here, environment) == HostServer(
        ["python", "weather.py", "--key=secret"], env={"A": "secret", "N": "3"}, cwd=str(here / "sub")
    )
    assert find("remote", None, here, environment) == HostServer(
        "https://weather.example/mcp", headers={"Authorization": "Bearer secret"}
    )
    assert find("remote", None, here, environment | {"HOST": "other.example"}).target == "https://other.example/mcp"
    assert find("here", None, here, environment).target == [f"{here}/run"]
    assert find("editor", None, here, environment).target == [f"{here}/run"]
    assert find("asked", None, here, environment).target == ["python", "secret"]
    assert find("weather", str(here / ".mcp.json"), Path("/"), environment).target


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("wether", "has no server of that name; did you mean weather?"),
        ("xyzzy", "there are weather, remote"),
        ("lacking", "the environment has no NOT_THERE, which ${NOT_THERE} asks for"),
        ("both", "it needs a command or a url, and not both"),
        ("neither", "it needs a command or a url, and not both"),
        ("wrong", "Expected"),
    ],
)
def test_servers_that_cannot_be(here: Path, name: str, sentence: str) -> None:
    with pytest.raises(Usage) as caught:
        find(name, None, here, {})
    assert sentence in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(Usage, match=r"there is no mcp\.json, \.mcp\.json"):
        find("weather", None, tmp_path, {})
    with pytest.raises(Usage, match="No such file"):
        find("weather", str(tmp_path / "none.json"), tmp_path, {})
    (tmp_path / "mcp.json").write_text("[]")
    with pytest.raises(Usage, match="does not list MCP servers"):
        find("weather", None, tmp_path, {})
    (tmp_path / "mcp.json").write_bytes(b"\xff")
    with pytest.raises(Usage, match="not UTF-8"):
        find("weather", None, tmp_path, {})
    (tmp_path / "mcp.json").write_text("{}")
    with pytest.raises(Usage, match="there is none"):
        find("weather", None, tmp_path, {})


# -- questions ------------------------------------------------------------------------------------

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "guests": {"type": "integer", "minimum": 1, "maximum": 12, "description": "How many"},
        "where": {"type": "string", "enum": ["inside", "terrace"], "default": "inside"},
        "dishes": {"type": "array", "items": {"type": "string", "enum": ["soup", "fish"]}, "maxItems": 1},
        "name": {"type": "string", "minLength": 2, "title": "Your name"},
    },
    "required": ["guests"],
}


def typing(*lines: str | None) -> Callable[[str], Awaitable[str | None]]:
    """A user who types these lines; then the input ends."""
    rest = iter(lines)

    async def ask(prompt: str) -> str | None:
        return next(rest, None)

    return ask


async def filled(*lines: str | None, given: tuple[str, ...] = (), schema: dict[str, Any] = FORM) -> tuple[str, Any]:
    asker = Asker("restaurant", given, lambda: None, typing(*lines))
    reply = await asker.reply(ElicitRequestParams(message="A table?", requested_schema=schema))
    return reply.action, None if reply.content is UNSET else reply.content


async def test_a_form_is_filled_field_by_field() -> None:
    """client/elicitation: clients "SHOULD pre-populate form fields with these values" (defaults)."""
    assert await filled("4", "", "", "", "a") == ("accept", {"guests": 4, "where": "inside"})
    assert await filled("4", "terrace", "soup", "Ada", "yes") == (
        "accept",
        {"guests": 4, "where": "terrace", "dishes": ["soup"], "name": "Ada"},
    )


async def test_what_does_not_fit_is_asked_again(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["", "many", "0", "13", "4", "roof", "terrace", "soup,fish", "fish", "A", "Ada", "what?", "a"]
    assert await filled(*words) == ("accept", {"guests": 4, "where": "terrace", "dishes": ["fish"], "name": "Ada"})
    shown = capfd.readouterr().err
    for said in ("required", "an integer", "from 1 to 12", "one of inside, terrace", "to 1", "its length"):
        assert said in shown


async def test_a_form_may_be_changed_before_it_is_sent() -> None:
    """client/elicitation: "allow users to review and modify their responses before sending"."""
    assert await filled("4", "", "", "", "e", "5", "", "", "Bob", "a") == (
        "accept",
        {"guests": 5, "where": "inside", "name": "Bob"},
    )


@pytest.mark.parametrize(
    ("lines", "action"),
    [
        (["!d"], "decline"),
        (["4", "!c"], "cancel"),
        (["4", "", "", "", "d"], "decline"),
        (["4", "", "", "", "c"], "cancel"),
        (["4", "", "", ""], "cancel"),
        ([], "cancel"),
    ],
)
async def test_every_form_can_be_declined_and_cancelled(lines: list[str], action: str) -> None:
    assert await filled(*lines) == (action, None)


async def test_answers_given_beforehand_are_not_asked_for() -> None:
    assert await filled("", "", "", "a", given=("guests=3",)) == ("accept", {"guests": 3, "where": "inside"})
    with pytest.raises(Usage, match="--answer guests: it must be an integer"):
        await filled(given=("guests=x",))
    with pytest.raises(Usage, match="write NAME=VALUE"):
        await filled(given=("guests",))


async def test_a_form_without_fields_is_a_yes_or_no() -> None:
    assert await filled("a", schema={"type": "object", "properties": {}}) == ("accept", {})
    assert await filled("e", "d", schema={}) == ("decline", None)


async def test_without_a_terminal_a_question_is_declined(capfd: pytest.CaptureFixture[str]) -> None:
    async def told(*given: str) -> tuple[str, Any]:
        asker = Asker("restaurant", given, lambda: None, None)
        reply = await asker.reply(ElicitRequestParams(message="A table?", requested_schema=FORM))
        return reply.action, None if reply.content is UNSET else reply.content

    assert await told() == ("decline", None)
    assert "there is no terminal to ask at" in capfd.readouterr().err
    assert await told("guests=2") == ("accept", {"guests": 2, "where": "inside"})
    assert await told("name=Ada") == ("decline", None)
    assert "--answer lacks guests" in capfd.readouterr().err
    asker = Asker("restaurant", (), lambda: None, None)
    asked = ElicitRequestParams(message="Pay", mode="url", url="https://pay.example/7")
    assert (await asker.reply(asked)).action == "decline"


@pytest.mark.parametrize(
    ("url", "beware"),
    [
        ("https://bank.example/7", False),
        ("https://xn--bnk-5cd.example/7", True),
        ("https://b\u0430nk.example/7", True),
        ("https://bank.example@evil.example/7", True),
        ("https://bank.example/mail@home", False),
    ],
)
async def test_a_suspicious_url_is_warned_of(url: str, beware: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """client/elicitation: "SHOULD have warnings for ambiguous/suspicious URIs (i.e., containing Punycode)"."""
    asker = Asker("bank", (), lambda: None, typing("d"))
    await asker.reply(ElicitRequestParams(message="Pay", mode="url", url=url))
    assert ("beware" in capfd.readouterr().err) is beware


async def test_a_url_is_shown_with_its_host_and_never_opened(capfd: pytest.CaptureFixture[str]) -> None:
    """client/elicitation: "clearly display the target domain/host and gather user consent before navigation"."""
    for lines, action in ((["e", "a"], "accept"), (["d"], "decline"), (["c"], "cancel"), ([], "cancel")):
        asker = Asker("bank\x1b[31m", (), lambda: None, typing(*lines))
        asked = ElicitRequestParams(message="Pay", mode="url", url="https://bank.example@evil.example/7")
        reply = await asker.reply(asked)
        assert (reply.action, reply.content) == (action, UNSET)
        shown = capfd.readouterr().err
        assert "at the host evil.example" in shown
        assert "\x1b[31m" not in shown
