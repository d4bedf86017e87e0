"""The modules of a Python kept in one file, for Windows' stand-in: there a look at a file takes over a millisecond, a
command of dragoman looks at some fifteen hundred to import itself, and the tests start thousands of commands.

python -m tests.kept_imports    has the Python that runs this find the package by itself, and keep what it imports

What is kept is not looked at again: this is run anew after a change.
"""

from __future__ import annotations

import importlib._bootstrap_external
import marshal
import mmap
import os
import sys

TYPE_CHECKING = False  # as that of typing, which takes a while to import
if TYPE_CHECKING:
    from typing import Any

external: Any = importlib._bootstrap_external  # where finders look at files


def keep(file: str, package: str) -> None:
    """Import all modules of a package, and write these, and all that they imported, to a file."""
    from contextlib import suppress  # here, since whoever uses what is kept does without
    from importlib import import_module
    from pkgutil import walk_packages

    for one in walk_packages(import_module(package).__path__, f"{package}."):
        if not one.name.endswith("__main__"):
            with suppress(ImportError):  # of an extra
                import_module(one.name)
    codes, places = bytearray(), {}
    for module in list(sys.modules.values()):
        loader: Any = getattr(getattr(module, "__spec__", None), "loader", None)
        if type(loader) is external.SourceFileLoader:
            code = marshal.dumps(loader.get_code(loader.name))
            places[loader.path] = (len(codes), len(codes) + len(code))
            codes += code
    looked = [*places, *filter(os.path.isdir, sys.path_importer_cache)]
    index = marshal.dumps((places, {path: tuple(os.stat(path))[:10] for path in looked}))
    with open(file, "wb") as opened:
        opened.write(len(index).to_bytes(4) + index + codes)


def use(file: str) -> None:
    """Import what is kept in a file without a look at the files that it came from."""
    with open(file, "rb") as opened:
        kept = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
    codes = kept[4 + int.from_bytes(kept[:4]) :]
    places, looked = marshal.loads(kept[4:])
    stat, get_code = external._path_stat, external.SourceFileLoader.get_code

    def stat_kept(path: str) -> os.stat_result:
        return os.stat_result(looked[path]) if path in looked else stat(path)

    def get_kept_code(loader: Any, name: str) -> object:
        return marshal.loads(codes[slice(*places[loader.path])]) if loader.path in places else get_code(loader, name)

    external._path_stat = stat_kept
    external.SourceFileLoader.get_code = get_kept_code


def install() -> None:
    """Write a `.pth` file, which that Python reads at every start: child processes do not get PYTHONPATH."""
    from pathlib import Path
    from shutil import copy
    from sysconfig import get_path

    packages = Path(get_path("purelib"))
    kept, bytecode = (str(Path(sys.prefix, name)) for name in ("kept", "bytecode"))
    source, root = os.environ["PYTHONPATH"].split(os.pathsep)
    copy(__file__, packages)
    keep(kept, "dragoman")
    lines = [
        source,
        root,
        str(Path(root, ".venv-peers", "webhooks-windows")),
        f"import sys; sys.dont_write_bytecode = False; sys.pycache_prefix = {bytecode!r}",
        f'import sys; "tests.kept_imports" in sys.orig_argv or __import__("kept_imports").use({kept!r})',
    ]
    packages.joinpath("dragoman.pth").write_text("\n".join(lines))


if __name__ == "__main__":
    install()
