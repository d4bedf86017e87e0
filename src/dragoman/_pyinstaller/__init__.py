"""Tells PyInstaller what to take along: wires and engines are imported by their names, which it cannot see."""

from __future__ import annotations

from pathlib import Path


def hook_dirs() -> list[str]:
    """Where the hooks are; PyInstaller finds this function by the entry point `pyinstaller40`."""
    return [str(Path(__file__).parent)]
