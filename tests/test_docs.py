"""The documentation is true: what it shows is a file that runs, its links lead somewhere, its tables agree with the
code."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from msgspec import Struct

import dragoman
from dragoman import Limits, connect, http_app, mcp, serve, sync
from dragoman.channel import Options
from dragoman.cli.commands import COMMANDS
from dragoman.jsonrpc import errors
from dragoman.jsonrpc.limits import CLIENT, KIB, MIB
from dragoman.mcp.client.options import VersionedOptions
from dragoman.net.scheme import SCHEMES
from tests import pictures, rooms, screens
from tests.pages import FENCE, LANGUAGES, PLAIN, Mark, anchors, links, listed, marks, pages, refreshed
from tests.snippets import (
    EXAMPLES,
    ROOT,
    SNIPPETS,
    Session,
    brokers,
    environment,
    run_python,
    steps,
    without_samples,
)
from tests.terminal import text_of

PAGES = pages()
DOCS = ROOT / "docs"
FILES = sorted(path for path in SNIPPETS.rglob("*") if path.suffix in LANGUAGES and path.name != "ruff.toml")


def named(path: Path) -> str:
    """How a test calls it."""
    return str(path.relative_to(ROOT))


def every_word() -> str:
    return "\n".join(page.read_text() for page in PAGES)


# -- what is shown --------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_what_a_page_shows_is_what_the_file_says(page: Path) -> None:
    text = page.read_text()
    assert refreshed(text) == text, f"run python -m tests.pages: {named(page)} is behind its snippets"
    for mark in marks(text):
        assert mark.text.strip(), f"{mark} shows nothing"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_fence_is_a_snippet(page: Path) -> None:
    text = page.read_text()
    shown = [mark.text for mark in marks(text)]
    for language, body in FENCE.findall(text):
        assert language in PLAIN or body in shown, f"{named(page)} has a fence that nothing runs:\n{body}"
        if language == "make":
            assert_targets(body)


def assert_targets(body: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for line in body.splitlines():
        assert re.search(rf"^{line.removeprefix('make ')}:", makefile, re.MULTILINE), f"no target for {line!r}"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_every_snippet_is_shown(path: Path) -> None:
    shown = {mark.path for page in PAGES for mark in marks(page.read_text())}
    assert named(path) in shown


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".py"], ids=named)
def test_a_snippet_runs(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    run_python(path, tmp_path, engines=started(path, request))


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".console"], ids=named)
def test_a_session_prints_what_it_shows(path: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    Session(path, tmp_path, started(path, request)).run()


def started(path: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    """The real ports of the brokers that a file speaks of."""
    found = brokers(path.read_text())
    return {port: str(request.getfixturevalue(fixture).address[1]) for port, fixture in found.items()}


def test_both_readmes_show_and_offer_the_same() -> None:
    english, chinese = ((ROOT / name).read_text() for name in ("README.md", "README.zh-CN.md"))
    assert marks(english) == marks(chinese)
    assert len(marks(english)) >= 4

    def rows(text: str) -> list[str]:
        return re.findall(r"^\| (`.*?`)", text, re.MULTILINE)

    assert [len(re.findall("`[^`]+`", row)) for row in rows(english)] == [
        len(re.findall("`[^`]+`", row)) for row in rows(chinese)
    ]
    assert text_links(english) - {"README.zh-CN.md"} == text_links(chinese) - {"README.md"}


def text_links(text: str) -> set[str]:
    """What a README links to, but its own headings; a Chinese page counts as the English one."""
    return {target.replace("docs/zh/", "docs/") for target in re.findall(r"\]\(([^)#][^)]*)\)", text)}


@pytest.mark.parametrize("page", sorted((DOCS / "zh").rglob("*.md")), ids=named)
def test_a_chinese_page_is_in_step_with_the_english_one(page: Path) -> None:
    """The same parts in the same order, with the same snippets, and links to the same pages."""
    english = DOCS / page.relative_to(DOCS / "zh")
    mine, theirs = page.read_text(), english.read_text()
    assert [level for level, _ in headings(mine)] == [level for level, _ in headings(theirs)]
    assert marks(mine) == marks(theirs)
    translated = {DOCS / one.relative_to(DOCS / "zh"): one for one in (DOCS / "zh").rglob("*.md")}

    def targets(path: Path) -> set[tuple[Path | None, str]]:
        return {(place, anchor) for _, place, anchor in links(path)}

    assert targets(page) == {(translated.get(place, place) if place else None, a) for place, a in targets(english)}


def headings(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^(#+) (.+)$", FENCE.sub("", text), re.MULTILINE)


def test_each_start_and_tutorial_has_a_chinese_page() -> None:
    taught = [DOCS / "start.md", *(DOCS / "tutorials").glob("*.md")]
    assert all((DOCS / "zh" / page.relative_to(DOCS)).exists() for page in taught)


def test_the_examples_are_as_short_as_the_readme_says() -> None:
    """Ten lines for a server, six for a client."""
    for name, most in (("calculator.py", 10), ("client.py", 6), ("weather.py", 10), ("mcp_client.py", 6)):
        lines = [line for line in (EXAMPLES / name).read_text().splitlines() if line.strip()]
        assert len(lines) <= most, f"{name} has {len(lines)} lines"
        assert Mark(f"examples/{name}", None) in marks((ROOT / "README.md").read_text())


# -- what the READMEs say ------------------------------------------------------------------------

READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]


@pytest.mark.parametrize("page", READMES, ids=named)
def test_the_figures_of_a_readme_are_those_of_the_page(page: Path) -> None:
    """Five rows; each figure and each ratio is in the row of docs/figures.md that it is taken from."""
    table = page.read_text().partition("<!-- figures -->")[2].partition("<!-- /figures -->")[0]
    rows = [row.strip("| ").split(" | ") for row in table.splitlines() if re.search(r"\d us \|", row)]
    assert len(rows) == 5
    measured = (DOCS / "figures.md").read_text().splitlines()
    for _, ours, limit, others in rows:
        (row,) = [row for row in measured if f" | {ours} ±" in row and f" {limit} ±" in row]
        for name, times in re.findall(r"([^,].*?) ([\d.]+)x(?:, |$)", others):
            found = re.search(rf"{re.escape(name.strip())} [\d.]+ us \(([\d.]+)x\)", row)
            assert found is not None
            assert float(found[1]) == pytest.approx(float(times), rel=0.05), name


@pytest.mark.parametrize("page", READMES, ids=named)
def test_the_wires_of_a_readme_are_all_there_are(page: Path) -> None:
    rows = re.findall(r"^\| (`[a-z+]+:.*?) \|", page.read_text(), re.MULTILINE)
    assert len(rows) == 12
    shown = {name for row in rows for name in re.findall(r"`([a-z+]+):", row)}
    assert shown == set(SCHEMES)


@pytest.mark.parametrize("page", READMES, ids=named)
def test_what_a_readme_installs_is_there(page: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = page.read_text()
    assert f"dist/dragoman-{dragoman.__version__}-py3-none-any.whl[all]" in text
    extras = set(re.findall(r"dragoman\[(\w+)\]", text)) | set(re.findall(r"\.\[(\w+)\]", text))
    assert "all" in extras
    assert extras <= set(project["optional-dependencies"])
    assert f"Python {project['requires-python'].removeprefix('>=')}" in text
    assert [one.partition(">")[0] for one in project["dependencies"]] == ["msgspec"]


def test_the_readme_is_read_in_three_minutes() -> None:
    text = re.sub(r"^\|.*$|<[^>]*>", "", FENCE.sub("", READMES[0].read_text()), flags=re.MULTILINE)
    assert len(text.split()) <= 3 * 250


# -- architecture ---------------------------------------------------------------------------------


def test_the_rooms_are_as_the_files_say() -> None:
    """`python -m tests.rooms` writes them."""
    text = rooms.PAGE.read_text(encoding="utf-8")
    assert text == rooms.written(text)


# -- pictures -------------------------------------------------------------------------------------


def test_the_pictures_are_as_they_are_drawn() -> None:
    """`python -m tests.pictures` draws them."""
    assert {path.stem for path in pictures.PLACE.iterdir()} == set(pictures.PICTURES)
    for name, drawing in pictures.PICTURES.items():
        assert (pictures.PLACE / f"{name}.svg").read_text() == drawing.svg(), name


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_is_well_formed_says_what_it_shows_and_is_on_a_page(name: str) -> None:
    root = ElementTree.fromstring(pictures.PICTURES[name].svg())
    wide, high = (float(number) for number in root.attrib["viewBox"].split()[2:])
    assert root.findtext("{http://www.w3.org/2000/svg}title")
    for one in root.iter("{http://www.w3.org/2000/svg}text"):
        assert 0 < float(one.attrib["x"]) < wide
        assert 0 < float(one.attrib["y"]) < high
    assert f"pictures/{name}.svg" in every_word()


SHOWN = re.compile(r'(?:src|srcset)="([^"]+)"|!\[[^\]]*\]\(([^)#\s]+)(?:#[\w-]+)?\)')
"""The pictures of a page, in HTML or Markdown."""


def shown_pictures(page: Path) -> set[Path]:
    return {(page.parent / (html or plain)).resolve() for html, plain in SHOWN.findall(page.read_text())}


def test_pictures_are_there_and_each_screenshot_is_on_a_page() -> None:
    """`python -m tests.screens` takes the screenshots."""
    found = {picture for page in PAGES for picture in shown_pictures(page)}
    assert not [picture for picture in found if not picture.exists()]
    assert set(screens.SCREENS.iterdir()) <= found


HEADING = re.compile(r"^[A-Z][a-z ]+\s{2}\d+\s*$", re.MULTILINE)
"""The heading of a list, which is shown on terminals alone."""


@pytest.mark.parametrize("name", screens.SESSIONS)
def test_a_picture_of_a_terminal_shows_what_its_session_prints(name: str) -> None:
    """The session itself is run by `test_a_session_prints_what_it_shows`."""
    svg = (screens.SCREENS / f"{name}.svg").read_text()
    assert "url(http" not in svg
    session, most = screens.SESSIONS[name]
    path = SNIPPETS / session
    number = samples(path.read_text())
    expected = [
        line for command, out in steps(without_samples(path.read_text()))[:most] for line in ("$ " + command, *out)
    ]

    def bare(text: str) -> str:
        return re.sub(r"\s", "", number.sub("#", text))

    assert bare(HEADING.sub("", text_of(svg))) == bare("\n".join(expected)), (
        f"run python -m tests.screens sessions: {name} is behind"
    )


def samples(text: str) -> re.Pattern[str]:
    """What stands for any number in a session: numbers before ms, where it lists some."""
    return re.compile(r"[\d.]+(?= +ms)") if text.startswith("# samples") else re.compile(r"(?!)")


# -- links ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    for target, place, anchor in links(page):
        if place is None:
            continue
        assert place.exists(), f"{named(page)} links to {target}, which is not there"
        if anchor:
            assert anchor in anchors(place.read_text()), f"{named(page)} links to {target}, where nothing has that name"


def test_all_pages_are_listed_as_they_stand_in_the_navigation() -> None:
    """`python -m tests.pages` writes the list."""
    assert (DOCS / "pages.md").read_text() == listed()


def test_every_page_is_reached_from_the_index() -> None:
    reached, waiting = set(), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        waiting += [p for _, p, _ in links(page) if p is not None and p in PAGES and p not in reached]
    assert {page for page in PAGES if page.is_relative_to(DOCS)} <= reached


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["dragoman", "dragoman.jsonrpc", "dragoman.mcp", "dragoman.sync"])
def test_public_names_are_documented(module: str) -> None:
    words = every_word()
    found = importlib.import_module(module)
    for name in found.__all__:
        value = getattr(found, name)
        if module != "dragoman.sync" or name == "connect":
            assert re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", words), f"no page mentions `{name}` of {module}"
        if isinstance(value, type) or (callable(value) and not isinstance(value, Struct)):
            assert (value.__doc__ or "").strip(), f"{module}.{name} has no docstring"


def options(function: Callable[..., object]) -> list[str]:
    """The names of its keyword-only parameters."""
    parameters = inspect.signature(function).parameters.values()
    return [one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY]


def test_options_are_documented() -> None:
    peers, services = ((DOCS / name).read_text() for name in ("peers.md", "services.md"))
    wires = "".join(path.read_text() for path in (DOCS / "wires").glob("*.md"))
    for name in options(connect):
        assert re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", peers), f"peers.md says nothing of connect({name}=)"
    for name in {*options(serve), *options(http_app)} - {"urls"}:
        assert f"`{name}`" in services, f"services.md says nothing of serve({name}=)"
    for name in set(Options.__struct_fields__) - {"limits"}:
        assert re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", wires), f"no wire's page says anything of the option {name}"
    assert sync.connect.__doc__


def test_options_of_methods_and_services_are_documented() -> None:
    text = (DOCS / "services.md").read_text()
    for name in [*options(dragoman.Service), *options(dragoman.Service.method)]:
        assert re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", text), f"services.md says nothing of {name}"


def test_the_context_is_documented() -> None:
    text = (DOCS / "services.md").read_text()
    for name in vars(dragoman.Context):
        if not name.startswith("_") and name != "where":
            assert re.search(rf"^\| `{name}\b", text, re.MULTILINE), f"services.md says nothing of Context.{name}"


def says(page: str, names: Iterable[str]) -> list[str]:
    """The names of which a page of docs/mcp/ says nothing."""
    text = (DOCS / "mcp" / page).read_text()
    return [name for name in names if not re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", text)]


def test_the_faces_of_mcp_are_documented() -> None:
    assert not says("running.md", [*options(mcp.Server), *mcp.HttpOptions.__struct_fields__])
    assert not says("tools.md", options(mcp.Server.add_tool))
    assert not says("resources.md", options(mcp.Server.add_resource))
    assert not says("prompts.md", options(mcp.Server.add_prompt))
    assert not says(
        "client.md", [*options(mcp.Client), *VersionedOptions.__annotations__, *options(mcp.Client.subscribe)]
    )
    methods = [name for name, value in vars(mcp.Client).items() if callable(value) and not name.startswith("_")]
    assert not says("client.md", {*methods} - {"close"})
    inside = {"admitted", "server"}
    assert not says("context.md", {name for name in dir(mcp.Context) if not name.startswith("_")} - inside)
    text = (DOCS / "mcp" / "running.md").read_text()
    http = mcp.HttpOptions()
    defaults = {name: one.default for name, one in inspect.signature(mcp.Server).parameters.items()}
    for name, default in {**defaults, **{name: getattr(http, name) for name in http.__struct_fields__}}.items():
        if isinstance(default, int | float | str):
            row = re.search(rf"^\| .*`{name}`.* \| (.*) \|$", text, re.MULTILINE)
            assert row is not None, name
            shown = {f'`"{default}"`'}
            if not isinstance(default, str):
                shown = {str(default), f"{default:,}", f"{default:g} s", f"{default / MIB:g} MiB"}
            assert shown & {row[1], *row[1].split(", ")}, (name, row[1])


def test_the_revisions_are_those_of_the_code() -> None:
    text = (DOCS / "mcp" / "index.md").read_text()
    heads = re.search(r"^\| \| (\d{4}-.*) \|$", text, re.MULTILINE)
    assert heads is not None
    assert heads[1].split(" | ") == list(mcp.REVISIONS)
    rows = {row[0]: row[1:] for row in (line.strip("| ").split(" | ") for line in text.splitlines()) if len(row) == 6}
    for number, revision in enumerate(mcp.REVISIONS.values()):
        said = {name: cells[number] for name, cells in rows.items()}
        assert (said["batches"] == "yes") is revision.batches
        assert (said["begins with"] == "`initialize`") is revision.stateful
        assert (said["sampling, roots, elicitation travel as"] == "calls") is revision.server_calls
        assert (
            said['wrong arguments of a tool, with [`argument_errors="revision"`](errors.md)'] == "`isError`"
        ) is revision.argument_results
        assert said["a broken answer is resumed"].startswith("yes") is revision.resumable
        assert (said["structured content, output schemas, titles, resource links"] == "yes") is revision.structured


# -- the command ----------------------------------------------------------------------------------


FAMILIES = {path: path.read_text() for path in sorted((DOCS / "command").glob("*.md"))}
"""The pages of the command, one for each family."""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_on_the_page_of_its_family(name: str) -> None:
    index = (DOCS / "command.md").read_text()
    (page,) = [path for path, text in FAMILIES.items() if f"## dragoman {name}\n" in text]
    assert re.search(rf"\(command/{page.name}\):[^-]*`{name}`", index), f"command.md does not list {name}"
    text = index + "".join(FAMILIES.values())  # the options of many commands stand in one place
    command = [sys.executable, "-m", "dragoman", name, "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=30, check=True).stdout
    for option in set(re.findall(r"^  (--[a-z][a-z-]+)", shown, re.MULTILINE)):
        assert f"`{option}" in text, f"no page of the command says anything of {option} of {name}"


# -- numbers and texts ----------------------------------------------------------------------------


def test_limits_are_those_of_the_code() -> None:
    text = (DOCS / "limits.md").read_text()
    rows = {
        name: (default, reason)
        for name, default, reason in re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    }
    source = (ROOT / "src/dragoman/jsonrpc/limits.py").read_text()
    found = re.findall(r'^    (\w+): [^\n]*\n    """(.*?)"""$', source, re.MULTILINE | re.DOTALL)
    reasons = {name: " ".join(reason.split()) for name, reason in found}
    assert list(rows) == list(Limits.__struct_fields__)
    for name in Limits.__struct_fields__:
        default, reason = rows[name]
        assert default == in_words(name, getattr(Limits(), name)), name
        assert reason == reasons[name], name
    assert f"A client's `message_size` is {in_words('message_size', CLIENT.message_size)}." in text
    assert msgspec.structs.replace(CLIENT, message_size=Limits().message_size) == Limits()


def in_words(name: str, value: float) -> str:
    """A default as the page shows it."""
    if name.endswith(("_timeout", "_life", "_over", "_grace")):
        return f"{value:g} s"
    if name.endswith(("_size", "_bytes")) or name in ("send_queue", "store_total"):
        return f"{value / MIB:g} MiB" if value >= MIB else f"{value / KIB:g} KiB"
    return f"{value:,}"


def test_errors_are_keyed_by_texts_that_the_code_has() -> None:
    """Every text in a first column is, but for its `{...}`, part of a text in the source."""
    known = source_texts()
    text = (DOCS / "errors.md").read_text()
    keys = [one or other for one, other in re.findall(r"^\| (?:`` (.+?) ``|`(.+?)`) \|", text, re.MULTILINE)]
    assert len(keys) > 100
    wrong = [key for key in keys if not any(fits(key, one) for one in known)]
    assert not wrong, "the source has no such texts:\n" + "\n".join(wrong)


def fits(key: str, source: str) -> bool:
    return re.sub(r"\{[^{}' ]*\}", "{}", key) in source


def source_texts() -> set[str]:
    """Every text in the source; what is put into it is `{}`."""
    found: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            elif isinstance(node, ast.JoinedStr):
                found.add("".join(v.value if isinstance(v, ast.Constant) else "{}" for v in node.values))  # type: ignore[misc]
    return found


def test_every_code_of_ours_is_documented() -> None:
    text = (DOCS / "errors.md").read_text()
    for code in [-32700, -32600, -32601, -32602, -32603, *errors.PLAIN.codes.values()]:
        assert re.search(rf"\| {code}\b", text), f"errors.md says nothing of {code}"


def test_pages_keep_their_lines_short() -> None:
    for page in PAGES:
        for line in FENCE.sub("", page.read_text()).splitlines():
            assert len(line) <= 120 or line.startswith("|"), f"{named(page)}: {line}"
