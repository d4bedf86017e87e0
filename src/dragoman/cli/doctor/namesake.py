"""Finds `dragoman-ai`, another project whose package and command have the same names as ours.

Two distributions that install one package write over each other's files: the last one wins, and uninstalling either
breaks what is left.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

NAMESAKE = "dragoman-ai"


def find_namesake() -> str | None:
    """Return what is wrong and how to fix it where the other project is installed in this environment, else None."""
    try:
        found = version(NAMESAKE)
    except PackageNotFoundError:
        return None
    return (
        f"{NAMESAKE} {found}, another project, is installed in this environment: it has a package and a command of the "
        f"same name, and each overwrites files of the other. To keep this one: pip uninstall {NAMESAKE} dragoman, "
        "then install dragoman again"
    )
