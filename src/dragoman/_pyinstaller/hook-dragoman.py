"""All modules but those of the command; of what belongs to an extra that is not installed, none can be imported."""

from PyInstaller.utils.hooks import collect_data_files, collect_submodules


def _wanted(name: str) -> bool:
    return not name.startswith(("dragoman.cli", "dragoman.testing", "dragoman._pyinstaller"))


hiddenimports = collect_submodules("dragoman", filter=_wanted, on_error="ignore")
datas = collect_data_files("dragoman.web")  # the files of the page
