"""Turns the arguments of a command line into the params of a call.

Rules:

- An argument that is JSON is that value, as it is written (`1.0` stays `1.0`, forty digits stay forty); any other
  argument is a string.
- `name=value` gives params by name; either all arguments are named or none.
- An argument that begins like JSON (`{`, `[`, `"`) but is not JSON is a mistake of quoting, not a string.
- A text that looks like something else is quoted as JSON: '"42"', '"a=b"'.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ..jsonrpc.errors import RpcError
from ..system.files import reason_of
from .exit_status import Usage

NAMED = re.compile(r"([A-Za-z_$][\w.$-]*)=(.*)", re.DOTALL)


def params_of(words: Sequence[str], params: str | None, option: str = "--params") -> Raw | UnsetType:
    """The params that `words` or `option` give; UNSET without any. Raises Usage for a mistake."""
    if params is not None:
        if words:
            raise Usage(f"give the arguments singly or by {option}, not both")
        return _whole(params, option)
    if not words:
        return UNSET
    named = [NAMED.fullmatch(word) for word in words]
    if not any(named):
        return Raw(msgspec.json.encode([value_of(word) for word in words]))
    members: dict[str, Raw] = {}
    for word, match in zip(words, named, strict=True):
        if match is None:
            raise Usage(
                f"{word!r} is given by position and another argument by name; use one way for all "
                """(a text with "=" in it is quoted as JSON: '"a=b"')"""
            )
        if match[1] in members:
            raise Usage(f"the argument {match[1]!r} is given twice")
        members[match[1]] = value_of(match[2])
    return Raw(msgspec.json.encode(members))


def about_dotted(error: RpcError, words: Sequence[str]) -> None:
    """Note on an error of arguments that a name with a dot is one name."""
    for word in words:
        match = NAMED.fullmatch(word)
        if match is not None and (inner := dotted(match[1], match[2])):
            error.add_note(inner)


def dotted(name: str, text: str) -> str:
    """What to write for a member of an argument that was named with a dot, `o.a=1`; "" for a name without one."""
    outer, dot, member = name.partition(".")
    if not dot or not outer or not member:
        return ""
    for one in reversed(member.split(".")):
        text = f"{msgspec.json.encode(one).decode()}:{_json(text)}"
        text = f"{{{text}}}"
    return f"{name!r} is one name, not a member of {outer!r}: write that as JSON, {outer}='{text}'"


def _json(text: str) -> str:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return msgspec.json.encode(text).decode()
    return text


def unread(option: str, arguments: Sequence[str]) -> list[str]:
    """What is given for an option, before the command line is read."""
    apart = [after for before, after in pairwise(arguments) if before == option]
    return [*apart, *(one.removeprefix(f"{option}=") for one in arguments if one.startswith(f"{option}="))]


def value_of(word: str) -> Raw:
    """One argument as JSON text. Raises Usage."""
    raw = utf8(word, f"the argument {word!r}")
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as fault:
        if word[:1] in ("{", "[", '"'):
            if "truncated" in str(fault):
                ends = {"{": "}", "[": "]", '"': '"'}[word[:1]]
                raise Usage(
                    f"{word!r} begins like JSON but is not JSON: it is cut off; close it with {ends}, and if the shell "
                    "cut it at a space, put the whole in single quotes"
                ) from None
            raise Usage(
                f"{word!r} begins like JSON but is not JSON ({fault}); put it in single quotes for the shell, "
                "and quote it as a JSON string if it is meant as text"
            ) from None
        return Raw(msgspec.json.encode(word))
    return Raw(raw)


def address_of(word: str) -> tuple[str, int] | None:
    """Host and port of `HOST:PORT`, as a URL has them: an IPv6 address in brackets, loopback where there is no host.
    None for another word."""
    host, colon, port = word.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or len(port) > 6 or "/" in host:
        return None
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    return f"[{host}]" if ":" in host else host, int(port)


def utf8(word: str, what: str) -> bytes:
    """A word of the command line in UTF-8. Raises Usage for bytes that are not, which Python keeps as surrogates."""
    try:
        return word.encode()
    except UnicodeEncodeError:
        raise Usage(f"{what} is not UTF-8") from None


def _whole(params: str, option: str) -> Raw:
    """The value of `option`: JSON, `@file`, or `-` for stdin."""
    if params == "-":
        raw, source = sys.stdin.buffer.read(), "stdin"
    elif params.startswith("@"):
        try:
            raw, source = Path(params[1:]).read_bytes(), params[1:]
        except OSError as fault:
            raise Usage(f"{option} {params}: {reason_of(fault)}") from None
    else:
        raw, source = params.encode("utf-8", "surrogateescape"), option
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise Usage(f"{source} is not JSON: {fault}") from None
    if not isinstance(value, (list, dict)):
        raise Usage(f"{source}: params are an array or an object, not {raw.strip()[:40].decode('utf-8', 'replace')!r}")
    return Raw(raw.strip())
