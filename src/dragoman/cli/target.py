"""Imports the TARGET of `serve`: `module:attribute`, `file.py:attribute`, or one of the two parts alone.

Rules: modules are imported from the current folder and from the folder of a named file; the attribute may be left out
if the module has exactly one object to serve; it may be a function that makes one, and is called without arguments; a
mistake is one sentence that lists what there is.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TypeAlias, TypeGuard

from ..channel import Servable, Serves, servable
from ..jsonrpc.options import nearest_name
from ..rpc.service import Service
from .exit_status import Usage, suggest_name
from .programs import suggest_file

Target: TypeAlias = Service | Servable | Serves


def load(target: str) -> Target:
    """Import what `target` names. Raises Usage, with the reason, when there is nothing to serve."""
    source, colon, attribute = _split(target)
    if not source or (colon and not attribute):
        raise Usage(f"{target!r} is not a target; write module:attribute, as in calculator:api")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _module(source)
    return _attribute(module, source, attribute) if attribute else _find_service(module, source)


def folder_of(target: str) -> Path:
    """The folder to watch for changes of `target`."""
    source, _, _ = _split(target)
    return Path(source).resolve().parent if _is_file(source) else Path.cwd()


def _split(target: str) -> tuple[str, str, str]:
    source, colon, attribute = target.rpartition(":")
    if len(source) == 1 and attribute.startswith(("\\", "/")):  # a drive, as in C:\\calculator.py
        return target, "", ""
    return (source, colon, attribute) if colon else (target, "", "")


def _is_file(source: str) -> bool:
    return source.endswith(".py") or "/" in source or "\\" in source


def _module(source: str) -> ModuleType:
    if _is_file(source):
        path = Path(source).resolve()
        if not path.is_file():
            raise Usage(f"there is no file {source}{suggest_file(path)}")
        sys.path.insert(0, str(path.parent))
        source = path.stem
        if (known := sys.modules.get(source)) is not None and getattr(known, "__file__", None) != str(path):
            raise Usage(f"{path.name} has the name of a module that Python needs itself; rename the file")
    try:
        return importlib.import_module(source)
    except ModuleNotFoundError as fault:
        if fault.name is not None and (source == fault.name or source.startswith(fault.name + ".")):
            raise Usage(_unknown_module(source)) from None
        raise Usage(f"{source} could not be imported: {fault}{_line(fault)}") from fault
    except SystemExit as fault:
        raise Usage(
            f'importing {source} ended the program; put what it runs under if __name__ == "__main__":'
        ) from fault
    except Exception as fault:
        raise Usage(f"{source} could not be imported: {type(fault).__name__}: {fault}{_line(fault)}") from fault


def _unknown_module(source: str) -> str:
    found = sorted(path.stem for path in Path.cwd().glob("*.py") if not path.stem.startswith("_"))
    there = f"in this folder there {_are(found)}" if found else "in this folder there is no Python file"
    return f"there is no module {source!r}; {suggest_name(source, found, there)}"


def _line(fault: BaseException) -> str:
    """The line of the user's own file where it happened."""
    if isinstance(fault, SyntaxError):
        return ""
    frames = [frame for frame in traceback.extract_tb(fault.__traceback__) if "importlib" not in frame.filename]
    package = str(Path(__file__).parent.parent)
    own = [
        frame for frame in frames if "site-packages" not in frame.filename and not frame.filename.startswith(package)
    ]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""


def _attribute(module: ModuleType, source: str, attribute: str) -> Target:
    value: object = module
    for name in attribute.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            raise Usage(_unknown_attribute(module, source, attribute)) from None
    if isinstance(value, FunctionType) and _needs_nothing(value):
        value = _call_factory(value, f"{source}:{attribute}")
    if not _is_servable(value):
        kind = "class" if isinstance(value, type) else type(value).__name__
        what = f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
        more = ", or a function without arguments that makes one" if isinstance(value, FunctionType) else ""
        if isinstance(value, type):
            more = f"; what is served is an instance: app = {value.__name__}(...)"
        raise Usage(f"{source}:{attribute} is {what} and cannot be served; {_list_services(module, source)}{more}")
    return value


def _needs_nothing(function: FunctionType) -> bool:
    """Whether it can be called without arguments, as one that makes a service is."""
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    return True


def _call_factory(factory: FunctionType, name: str) -> Target:
    """What a function makes that is named as a target. Raises Usage."""
    try:
        made = factory()
    except Exception as fault:
        raise Usage(f"{name}() failed: {type(fault).__name__}: {fault}{_line(fault)}") from fault
    if inspect.iscoroutine(made):
        made.close()
        raise Usage(f"{name} is a coroutine function; a function that makes a service is a plain one")
    if not _is_servable(made):
        raise Usage(f"{name}() returned {made!r:.60}, which cannot be served; it must return a Service or a Server")
    return made


def _unknown_attribute(module: ModuleType, source: str, attribute: str) -> str:
    public = [name for name in vars(module) if not name.startswith("_")]
    near = nearest_name(attribute, _services(module)) or nearest_name(attribute, public)
    if near:
        return f"{source} has no {attribute!r}; did you mean {source}:{near}?"
    return f"{source} has no {attribute!r}; {_list_services(module, source)}"


def _find_service(module: ModuleType, source: str) -> Target:
    services = _services(module)
    inner = {id(part) for service in services.values() for part in getattr(_core(service), "_included", ())}
    outer = [service for service in services.values() if id(_core(service)) not in inner]
    if len({id(service) for service in outer}) == 1:
        return outer[0]
    if not services:
        raise Usage(
            f"{source} has nothing to serve; write api = Service({Path(source).stem!r}) in it, for MCP app = Server(...)"
        )
    raise Usage(
        f"{source} has more than one service; say which: {' or '.join(f'{source}:{name}' for name in services)}"
    )


def _core(served: Target) -> object:
    """What is behind an object to serve, as what includes it knows it."""
    return served if isinstance(served, Service) else servable(served)


def _services(module: ModuleType) -> dict[str, Target]:
    return {name: value for name, value in vars(module).items() if _is_servable(value)}


def _is_servable(value: object) -> TypeGuard[Target]:
    return isinstance(value, (Service, Servable, Serves)) and not isinstance(value, type)


def _list_services(module: ModuleType, source: str) -> str:
    services = list(_services(module))
    if services:
        return f"there {_are(f'{source}:{name}' for name in services)} to serve"
    return f"there is nothing to serve in {source}"


def _are(names: Iterable[str]) -> str:
    listed = list(names)
    shown = ", ".join(listed[:10]) + (", ..." if len(listed) > 10 else "")
    return f"{'is' if len(listed) == 1 else 'are'} {shown}"
