"""One resource under all spellings of its URI: what is read, demanded, subscribed to, kept and counted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.channel import Caller, Identity
from dragoman.jsonrpc.errors import LocalError, RpcError
from dragoman.mcp import Client, Server
from dragoman.mcp.protocol.params import ReadResourceResult
from dragoman.mcp.protocol.revisions import R2025_11, R2026_07, Revision
from dragoman.mcp.server.calling import request
from dragoman.middleware import AuditEntry, audit, name_of, rate_limit, response_cache, timing
from dragoman.rpc.middleware import Call
from tests.behind import behind

from ..calling import calling

both = pytest.mark.parametrize("revision", [R2025_11, R2026_07], ids=lambda one: one.date)
GUEST = Caller(scheme="tcp", identity=Identity(subject="guest"))
EDITOR = Caller(scheme="tcp", identity=Identity(subject="editor", scopes=frozenset({"edit"})))


async def read(server: Server, uri: str, caller: Caller = GUEST) -> str:
    """The text of a resource; of an error "-" and its kind."""
    try:
        found = await request(behind(server), "resources/read", {"uri": uri}, caller, ReadResourceResult)
    except RpcError as error:
        return "- missing" if "not found" in error.message else f"- {error.message.partition(':')[0]}"
    text = found.contents[0].text
    assert isinstance(text, str)
    return text


# -- a folder

TEMPLATES = {
    "notes://{name}": "notes://%s",
    "notes:///{name}": "notes:///%s",
    "notes:///{+name}": "notes:///%s",
    "notes:///all{/name*}": "notes:///all/%s",
    "notes:///all{;name}": "notes:///all;name=%s",
    "notes:///all{?name}": "notes:///all?name=%s",
    "notes:///all?name={name}": "notes:///all?name=%s",
    "notes:///all{#name}": "notes:///all#%s",
}
WAYS_OUT = (
    "%2Fetc%2Fpasswd",
    "%2fetc/passwd",
    "/etc/passwd",
    "..%2Fsecret",
    "../secret",
    "%2e%2e/secret",
    "a%2F..%2F..%2Fsecret",
)


@pytest.mark.parametrize("template", TEMPLATES)
async def test_nothing_outside_of_a_folder_is_read(template: str, tmp_path: Path) -> None:
    """server/resources, Security: "Servers MUST sanitize file paths to prevent directory traversal attacks"."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "rice.txt").write_text("rice")
    (tmp_path / "secret").write_text("secret")
    server = Server("notes")

    @server.resource(template)
    def note(name: str = "") -> str:
        return (folder / name).read_text()

    assert await read(server, TEMPLATES[template] % "rice.txt") == "rice"
    assert await read(server, TEMPLATES[template] % "%72ice%2Etxt") == "rice"
    for way in WAYS_OUT:
        assert await read(server, TEMPLATES[template].replace("%s", way)) == "- missing", way


async def test_any_path_is_an_option() -> None:
    server = Server("files")

    @server.resource("file://{+path}", any_path=True)
    def file(path: str) -> str:
        return path

    @server.resource("fetch:///{?url}", any_path=True)
    def fetch(url: str = "") -> str:
        return url

    assert await read(server, "file:///etc/passwd") == "/etc/passwd"
    assert await read(server, "file:///etc/../passwd") == "- missing"
    assert await read(server, "fetch:///?url=https://h/a%2Fb") == "https://h/a/b"
    with pytest.raises(LocalError, match=r"any_path=True for one anywhere"):
        server.add_resource(file, "file://{+path}", name="other")
    with pytest.raises(LocalError, match="any_path"):
        server.add_resource(file, "x:///{+path}", any_path="yes")  # type: ignore[arg-type]


# -- what is demanded


def library() -> Server:
    server = Server("library", auth=None)

    @server.resource("docs:///{+path}")
    def document(path: str) -> str:
        return f"document {path}"

    @server.resource("docs:///admin/{name}", scopes="edit")
    def plan(name: str) -> str:
        return f"plan {name}"

    @server.resource("docs:///a%2Bb/{name}", scopes="edit")
    def sum(name: str) -> str:
        return f"sum {name}"

    @server.resource("docs:///x@y", scopes="edit")
    def mail() -> str:
        return "mail"

    @server.resource("docs:///c%26d", scopes="edit")
    def both() -> str:
        return "both"

    @server.resource("flat://secret", scopes="edit")
    def secret() -> str:
        return "secret"

    return server


# A URI; what a guest gets, what an editor gets.
FORBIDDEN, MISSING = "- Forbidden", "- missing"
SPELLINGS = [
    ("docs:///public/a", "document public/a", "document public/a"),
    ("docs:///public//a/", "document public//a/", "document public//a/"),
    ("docs:///admin", "document admin", "document admin"),
    ("docs:///admin/plan.txt", FORBIDDEN, "plan plan.txt"),
    ("docs:///%61dmin/plan.txt", FORBIDDEN, "plan plan.txt"),
    ("docs:///%61%64min/pl%61n%2Etxt", FORBIDDEN, "plan plan.txt"),
    ("DOCS:///admin/plan.txt", FORBIDDEN, "plan plan.txt"),
    ("docs:///%%36%31dmin/plan.txt", "document %61dmin/plan.txt", "document %61dmin/plan.txt"),
    ("docs:///admin%2Fplan.txt", MISSING, MISSING),
    ("docs:///admin%2fplan.txt", MISSING, MISSING),
    ("docs:///admin%5Cplan.txt", MISSING, MISSING),
    ("docs:///admin\\plan.txt", MISSING, MISSING),
    ("docs:///./admin/plan.txt", MISSING, MISSING),
    ("docs:///%2e/admin/plan.txt", MISSING, MISSING),
    ("docs:///x/../admin/plan.txt", MISSING, MISSING),
    ("docs:///admin//plan.txt", MISSING, MISSING),
    ("docs:////admin/plan.txt", MISSING, MISSING),
    ("docs:///admin/plan.txt/", MISSING, MISSING),
    ("docs:///admin///plan.txt//", MISSING, MISSING),
    ("docs:///a%2Bb/x", FORBIDDEN, "sum x"),
    ("docs:///a%2bb/x", FORBIDDEN, "sum x"),
    ("docs:///a+b/x", MISSING, MISSING),
    ("docs:///%61+b//x", MISSING, MISSING),
    ("docs:///x@y", FORBIDDEN, "mail"),
    ("docs:///x%40y", MISSING, MISSING),
    ("docs:///x@y/", MISSING, MISSING),
    ("docs:///c%26d", FORBIDDEN, "both"),
    ("docs:///c&d", MISSING, MISSING),
    ("docs:///c&d/", MISSING, MISSING),
    ("flat://secret", FORBIDDEN, "secret"),
    ("flat://%73ecret", FORBIDDEN, "secret"),
    ("Flat://SECRET", FORBIDDEN, "secret"),
    ("flat://secret/", MISSING, MISSING),
]


@pytest.mark.parametrize(("uri", "guest", "editor"), SPELLINGS)
async def test_no_spelling_goes_around_a_demand(uri: str, guest: str, editor: str) -> None:
    server = library()
    assert await read(server, uri) == guest
    assert await read(server, uri, EDITOR) == editor


# A URI; what a guest gets, what an editor gets.
ASKING = [
    ("docs:///admin/plan", FORBIDDEN, "plan plan"),
    ("docs:///admin/plan?lines=1", MISSING, MISSING),
    ("docs:///admin//plan?lines=1", MISSING, MISSING),
    ("docs:///%61dmin/plan/?lines=1", MISSING, MISSING),
    ("docs:///secret?lines=1", MISSING, MISSING),
    ("docs:///x%40y?lines=1", MISSING, MISSING),
    ("docs:///open?lines=1", "1 of open", "1 of open"),
    ("docs:///other?lines=1", "1 of other", "1 of other"),
    ("parts:///secret#a", MISSING, MISSING),
    ("parts:///other#a", "a of other", "a of other"),
    ("all:///", FORBIDDEN, "all"),
    ("all:///?id=1", "1", "1"),
]


@pytest.mark.parametrize(("uri", "guest", "editor"), ASKING)
async def test_no_query_goes_around_a_demand(uri: str, guest: str, editor: str) -> None:
    """A template of more with a query of its own names the file of another resource beside it."""
    server = Server("library", auth=None)

    @server.resource("docs:///{+path}{?lines}")
    def document(path: str, lines: int = 9) -> str:
        return f"{lines} of {path}"

    @server.resource("docs:///admin/{+name}", scopes="edit")
    def plan(name: str) -> str:
        return f"plan {name}"

    @server.resource("docs:///open")
    def public() -> str:
        return "open"

    @server.resource("parts:///{+path}{#part}")
    def part(path: str, part: str) -> str:
        return f"{part} of {path}"

    @server.resource("all:///{?id}")
    def one(id: str = "") -> str:
        return id

    for guarded in ("docs:///secret", "docs:///x@y", "parts:///secret", "all:///"):
        server.add_resource(lambda: "all", guarded, name=guarded, scopes="edit")
    assert await read(server, uri) == guest
    assert await read(server, uri, EDITOR) == editor


async def test_what_goes_takes_its_demand_along() -> None:
    server = library()
    for uri in ("docs:///a%2bb/{name}", "docs:///c%26d"):
        server.remove_resource(uri)
    assert await read(server, "docs:///a+b/x") == "document a+b/x"
    assert await read(server, "docs:///c&d") == "document c&d"


# -- what is registered

REGISTERED = [
    # as it is registered, as it is listed, as it may be asked for
    ("Config://App", "config://app", ["config://app", "CONFIG://APP", "config://%61pp"]),
    ("file:///docs/café", "file:///docs/caf%C3%A9", ["file:///docs/café", "file:///docs/caf%c3%a9"]),
    ("urn:ISBN:%7e1", "urn:ISBN:~1", ["URN:ISBN:~1", "urn:ISBN:%7E1"]),
]


@both
@pytest.mark.parametrize(("uri", "listed", "spellings"), REGISTERED)
async def test_a_resource(revision: Revision, uri: str, listed: str, spellings: list[str]) -> None:
    server = Server("spelled")
    seen = []

    @server.resource(uri, name="one")
    def one(uri: str) -> str:
        seen.append(uri)
        return "one"

    async with calling(server, revision) as calls:
        assert [each["uri"] for each in (await calls.result("resources/list"))["resources"]] == [listed]
        for spelling in (uri, listed, *spellings):
            [content] = (await calls.result("resources/read", uri=spelling))["contents"]
            assert content["uri"] == listed
        assert set(seen) == {listed}
        with pytest.raises(LocalError, match="already"):
            server.add_resource(one, spellings[0], name="two")
        server.disable("resource", spellings[0])
        assert (await calls.error("resources/read", uri=listed))["data"] == {"uri": listed}
        server.enable("resource", uri)
        server.remove_resource(spellings[-1])
        assert (await calls.result("resources/list"))["resources"] == []


@both
async def test_a_template(revision: Revision) -> None:
    server = Server("spelled")

    @server.resource("File:///docs/café/{Name}")
    def one(Name: str) -> str:
        return Name

    @server.completion("file:///docs/caf%c3%a9/{Name}", "Name")
    def names(typed: str) -> list[str]:
        return [typed.upper()]

    async with calling(server, revision) as calls:
        [listed] = (await calls.result("resources/templates/list"))["resourceTemplates"]
        assert listed["uriTemplate"] == "file:///docs/caf%C3%A9/{Name}"
        for folder in ("café", "caf%C3%A9", "c%61f%c3%A9"):
            [content] = (await calls.result("resources/read", uri=f"file:///docs/{folder}/Tea"))["contents"]
            assert (content["uri"], content["text"]) == ("file:///docs/caf%C3%A9/Tea", "Tea")
            for ref in (f"file:///docs/{folder}/{{Name}}", f"file:///docs/{folder}/Tea"):
                found = await calls.result(
                    "completion/complete",
                    ref={"type": "ref/resource", "uri": ref},
                    argument={"name": "Name", "value": "te"},
                )
                assert found["completion"]["values"] == ["TE"]


async def test_within_a_namespace() -> None:
    inner, outer, top = Server("inner"), Server("outer"), Server("top")

    @inner.resource("Notes://Today", name="today")
    def today(uri: str) -> str:
        return uri

    outer.include(inner, namespace="X")
    top.include(outer, namespace="y")
    async with Client(top) as client:
        assert [one.uri for one in await client.list_resources()] == ["notes://y/x/today"]
    assert await read(top, "NOTES://Y/%78/today") == "notes://today"
    inner.remove_resource("notes://TODAY")
    assert await read(top, "notes://y/x/today") == MISSING


# -- who is told


@both
async def test_subscriptions(revision: Revision) -> None:
    server = Server("told")

    @server.resource("Config://App", name="one")
    def one() -> str:
        return "one"

    async with Client(server, revision=revision) as client, client.subscribe(["config://%41pp"]) as changes:
        async with client.subscribe(["CONFIG://app"]):
            pass
        server.notify_resource_updated("config://APP")
        assert (await anext(changes)).uri == "config://app"


async def test_a_session_unsubscribes_by_another_spelling() -> None:
    server = Server("told")

    @server.resource("config://app", name="one")
    def one() -> str:
        return "one"

    async with calling(server, R2025_11) as calls:
        await calls.result("resources/subscribe", uri="Config://App")
        assert len(behind(server).subscriptions._by_uri) == 1
        await calls.result("resources/unsubscribe", uri="config://%61pp")
        assert not behind(server).subscriptions._by_uri


@both
async def test_the_clients_cache(revision: Revision) -> None:
    """A change ends what is kept under any spelling; and a spelling gets what it was answered with itself."""
    server, ran = Server("kept", ttl=60), []

    @server.resource("config://app", name="one")
    def one() -> str:
        ran.append(1)
        return "one"

    async with Client(server, revision=revision) as client, client.subscribe(["CONFIG://App"]) as changes:
        for _ in range(2):
            await client.read_resource("Config://App")
        kept = 2 if revision.stateful else 1
        assert len(ran) == kept
        server.notify_resource_updated("config://app")
        await anext(changes)
        await client.read_resource("Config://App")
        assert len(ran) == kept + 1


# -- what is kept and counted


@st.composite
def spelled(draw: st.DrawFn) -> str:
    """A spelling of the URI of `counted`."""

    def each(text: str, cased: bool) -> str:
        found = ""
        for letter in text:
            way = draw(st.integers(0, 3))
            if way == 1:
                octets = "".join(f"%{octet:02x}" for octet in letter.encode())
                found += octets.upper() if draw(st.booleans()) else octets
            elif way == 2 and cased:
                found += letter.upper()
            else:
                found += letter
        return found

    scheme = "".join(draw(st.sampled_from([letter, letter.upper()])) for letter in "docs")
    return f"{scheme}://{each('host.example', True)}/{each('café', False)}/{each('plan-1', False)}"


async def counted(uris: list[str]) -> None:
    timed: list[str] = []
    entries: list[AuditEntry] = []
    limited: list[str] = []
    ran: list[str] = []

    def by(call: Call) -> str:
        limited.append(name_of(call))
        return limited[-1]

    form = "docs://host.example/caf%C3%A9/plan-1"
    server = Server(
        "counted",
        middleware=[
            audit(entries.append),
            timing(lambda name, seconds: timed.append(name)),
            rate_limit(1000, by=by),
            response_cache([form], ttl=60),
        ],
    )

    @server.resource("docs://host.example/café/{name}", scopes="edit")
    def one(name: str) -> str:
        ran.append(name)
        return name

    @server.resource("docs://{+path}")
    def other(path: str) -> str:
        return "other"

    for uri in uris:
        assert await read(server, uri) == FORBIDDEN
        assert await read(server, uri, EDITOR) == "plan-1"
    assert ran == ["plan-1"]
    assert {one.name for one in entries} == set(timed) == set(limited) == {form}
    async with calling(server, R2025_11) as calls:
        for uri in uris:
            await calls.result("resources/subscribe", uri=uri)
        [kept] = behind(server).subscriptions._by_uri
        assert kept == form


@settings(max_examples=40, deadline=None)
@given(st.lists(spelled(), min_size=2, max_size=4))
def test_all_spellings_are_one(uris: list[str]) -> None:
    asyncio.run(counted(uris))
