"""What a run leaves out is said, and is a failure where CI=true."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import interpreters, skips

pytest_plugins = ["pytester"]

SKIPPING = """
import pytest

@pytest.mark.parametrize("x", [1, 2])
def test_it(x):
    pytest.skip("no broker,\\n anywhere")

@pytest.mark.skipif(True, reason="no such machine")
def test_that():
    pass
"""


@pytest.mark.parametrize("processes", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_runs_note_what_they_left_out(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, processes: tuple[str, ...]
) -> None:
    found = pytester.path / "skipped"
    monkeypatch.setenv(skips.VARIABLE, str(found))
    monkeypatch.setenv("PYTHONPATH", str(Path(skips.__file__).parents[1]))
    pytester.makeconftest("from tests.conftest import pytest_terminal_summary")
    pytester.makepyfile(SKIPPING)
    pytester.runpytest_subprocess(*processes).assert_outcomes(skipped=3)
    assert skips.said(found.read_text().splitlines()) == (
        "skipped: 3\n"
        "     2  no broker, anywhere (test_runs_note_what_they_left_out.py)\n"
        "     1  no such machine (test_runs_note_what_they_left_out.py)"
    )


def test_nothing_left_out() -> None:
    assert skips.said([]) == "skipped: none"


@pytest.mark.parametrize(("ci", "end"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_what_is_missing_fails_a_complete_run(
    monkeypatch: pytest.MonkeyPatch, ci: str, end: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(end, match="no nginx"):
        skips.missing("no nginx")


def test_the_interpreters_are_those_of_the_classifiers() -> None:
    assert interpreters.OWN in interpreters.versions()
    assert interpreters.interpreter(interpreters.OWN) is not None
    assert interpreters.interpreter("3.1") is None


@pytest.mark.skipif(not skips.BESIDE.is_dir(), reason="nothing lies beside the project")
@pytest.mark.parametrize("path", [skips.SCHEMAS, skips.SUITE], ids=lambda path: path.name)
def test_where_something_lies_beside_the_project_all_of_it_does(path: Path) -> None:
    assert path.exists()
