"""Reads the files in which MCP hosts list their servers: `{"mcpServers": {NAME: {...}}}`, or `{"servers": ...}`.

Rules:

- An entry is a command (`command`, `args`, `env`, `cwd`) or a URL (`url`, `headers`); its other members belong to the
  host and are ignored.
- `${VAR}`, `${env:VAR}` and `${VAR:-default}` are variables of the environment, `${workspaceFolder}` is the folder
  that the file is for, `${userHome}` the home folder; `${input:ID}` is the environment variable ID. A missing variable
  is a mistake, never an empty text.
- Comments and trailing commas are allowed, as editors allow them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from ...system.files import reason_of
from ..exit_status import Usage, suggest_name

FILES = ("mcp.json", ".mcp.json", ".vscode/mcp.json", ".cursor/mcp.json")
"""Where to look, in the current folder: the first file that has the name is used."""

TEXT_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
TEXT_OR_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')
VARIABLE = re.compile(r"\$\{([^}]*)\}")


class HostEntry(Struct, frozen=True):
    """One server as a host's file describes it."""

    command: str | None = None
    args: list[str] = []
    env: dict[str, str | int | float | bool] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}


class Listing(Struct, frozen=True):
    """A file, with either of the usual names of its table."""

    mcp_servers: dict[str, msgspec.Raw] = field(default_factory=dict, name="mcpServers")
    servers: dict[str, msgspec.Raw] = field(default_factory=dict)


class HostServer(Struct, frozen=True):
    """Where a server is: a URL or a command, and what belongs to it."""

    target: str | list[str]
    env: dict[str, str] = {}
    cwd: str | None = None
    headers: dict[str, str] = {}


def find(name: str, file: str | None, here: Path, environment: Mapping[str, str]) -> HostServer:
    """The server `name` of `file`, or of the first of FILES below `here` that has it. Raises Usage."""
    known: list[str] = []
    here = here.resolve()
    paths = [Path(file)] if file is not None else [path for one in FILES if (path := here / one).is_file()]
    if not paths:
        raise Usage(
            f"--config {name}: there is no {', '.join(FILES[:-1])} or {FILES[-1]} here; --config-file names one"
        )
    for path in paths:
        table = _table(path, _short_path(path, here))
        if name in table:
            return _host(name, path, _short_path(path, here), table[name], environment)
        known += table
    there = suggest_name(name, known, f"there {'are ' + ', '.join(known) if known else 'is none'}")
    raise Usage(
        f"--config {name}: {' and '.join(_short_path(path, here) for path in paths)} has no server of that name; {there}"
    )


def _short_path(path: Path, here: Path) -> str:
    """A path in the form in which people write it."""
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _table(path: Path, shown: str) -> dict[str, msgspec.Raw]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as fault:
        raise Usage(f"{shown}: {reason_of(fault) if isinstance(fault, OSError) else 'it is not UTF-8'}") from None
    plain = TEXT_OR_COMMA.sub(r"\1", TEXT_OR_COMMENT.sub(r"\1", text))
    try:
        listing = msgspec.json.decode(plain, type=Listing)
    except msgspec.MsgspecError as fault:
        raise Usage(f'{shown} does not list MCP servers as {{"mcpServers": {{NAME: ...}}}}: {fault}') from None
    return listing.mcp_servers | listing.servers


def _host(name: str, path: Path, shown: str, raw: msgspec.Raw, environment: Mapping[str, str]) -> HostServer:
    where = f"{shown}: {name}"
    folder = path.resolve().parent
    if folder.name in (".vscode", ".cursor"):
        folder = folder.parent
    special = {"workspaceFolder": str(folder), "userHome": str(Path.home()), "/": os.sep, "pathSeparator": os.sep}
    try:
        entry = msgspec.convert(_expand(msgspec.json.decode(raw), where, environment, special), HostEntry)
    except msgspec.ValidationError as fault:
        raise Usage(f"{where}: {fault}") from None
    if (entry.command is None) == (entry.url is None):
        raise Usage(f"{where}: it needs a command or a url, and not both")
    if entry.url is not None:
        return HostServer(entry.url, headers=entry.headers)
    cwd = None if entry.cwd is None else str(folder / entry.cwd)
    env = {key: value if isinstance(value, str) else _word(value) for key, value in entry.env.items()}
    return HostServer([entry.command or "", *entry.args], env=env, cwd=cwd)


def _word(value: object) -> str:
    """A number or a boolean of `env` as the text of a variable."""
    return msgspec.json.encode(value).decode()


def _expand(value: Any, where: str, environment: Mapping[str, str], special: Mapping[str, str]) -> Any:
    """The value with every ${...} in its texts replaced. Raises Usage."""
    if isinstance(value, dict):
        return {key: _expand(member, where, environment, special) for key, member in value.items()}
    if isinstance(value, list):
        return [_expand(member, where, environment, special) for member in value]
    if not isinstance(value, str):
        return value

    def one(found: re.Match[str]) -> str:
        name, dash, default = found[1].partition(":-")
        if name in special:
            return special[name]
        name = name.removeprefix("env:").removeprefix("input:")
        if name in environment:
            return environment[name]
        if not dash:
            raise Usage(f"{where}: the environment has no {name}, which {found[0]} asks for")
        return default

    return VARIABLE.sub(one, value)
