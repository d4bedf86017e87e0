"""The command, whose subcommands are imported by their names."""

from PyInstaller.utils.hooks import collect_submodules

hiddenimports = collect_submodules("dragoman.cli", on_error="ignore")
