"""`dragoman-ai` has our names: the doctor says so where it is installed."""

from __future__ import annotations

from ..conftest import Command


def test_another_project_of_the_same_name_is_named_where_it_is_installed(command: Command) -> None:
    metadata = "Metadata-Version: 2.1\nName: dragoman-ai\nVersion: 0.6.2\n"
    (command.folder / "dragoman_ai-0.6.2.dist-info").mkdir()
    (command.folder / "dragoman_ai-0.6.2.dist-info" / "METADATA").write_text(metadata)
    _, (url,) = command.serve("tcp://127.0.0.1:0")
    done = command.run("doctor", url, "--json", env={"PYTHONPATH": str(command.folder)})
    assert (done.status, done.json["healthy"]) == (0, True)
    assert "dragoman-ai 0.6.2, another project, is installed in this environment" in done.err
    assert "pip uninstall dragoman-ai dragoman" in done.err


def test_nothing_is_said_where_it_is_not(command: Command) -> None:
    _, (url,) = command.serve("tcp://127.0.0.1:0")
    assert command.run("doctor", url).err == ""
