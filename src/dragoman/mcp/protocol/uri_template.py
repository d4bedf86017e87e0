"""URI templates (RFC 6570), matched against URIs to get the values of their variables. Pure.

Rules:

- `{a}`, `{+a}`, `{#a}`, `{.a}`, `{/a}`, `{;a}`, `{?a,b}`, `{&a}`, several names, `*` and `:n`.
- Templates and URIs are matched in their normal form (`uri`): `parse` normalises the template's own text.
- `match` returns a text for each name, percent-decoded once. Names in `{?...}` and `{&...}` may be absent or come in
  any order; all others must have a value of at least one character. Where a URI can be cut in several ways, the first
  names get as much as possible.
- A value cannot lead out of its folder ("Servers MUST sanitize file paths to prevent directory traversal attacks",
  resources). The decoded value is checked, since that is what the function gets: it has no backslash and no NUL, no
  segment ".." (nor "." outside of the query), and no drive letter at its beginning.
- `{+a}`, `{#a}` and `{/a*}` are *wide*: their values may have several segments. The "/" between these is "/" in the
  URI, never `%2F`, and a value does not begin with one. No other value has a "/", however it is spelled.
- `any_path`: values of wide names and of the query may be absolute paths, drive letters and URLs.
- Matching takes time proportional to the URI: nothing is tried twice, so no pattern can cause backtracking.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct, structs

from ...jsonrpc.errors import LocalError
from .uri import escape, lowercase, normal, unescaped

LONGEST: Final = 65_536
"""Characters of a URI at most: a longer one matches nothing."""

Way: TypeAlias = Literal["", "+", "#", ".", "/", ";", "?", "&"]

# compiled when first used: a server without templates never needs them
_EXPRESSION = r"\{([^{}]*)\}"
_NAME = r"((?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})(?:\.?(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*)(\*|:[1-9][0-9]{0,3})?"
_BAD_LITERAL = r"[\x00-\x20\x7f\"'<>\\^`{|}]"
_BAD_PERCENT = r"%(?![0-9A-Fa-f]{2})"

_SIMPLE = r"[^/?#\\\x00-\x1f\x7f]"
_IN_QUERY = r"[^&#\\\x00-\x1f\x7f]"
_SEGMENTS = r"[^?#\\\x00-\x1f\x7f]"
_ANY = r"[^\\\x00-\x1f\x7f]"

_STEP = re.compile("[/?#]")

FIRST: Final = {"": "", "+": "", "#": "#", ".": ".", "/": "/", ";": ";", "?": "?", "&": "&"}
BETWEEN: Final = {"": ",", "+": ",", "#": ",", ".": ".", "/": "/", ";": ";", "?": "&", "&": "&"}


class Variable(Struct, frozen=True):
    """One name of an expression. `explode`: `*`; `longest`: the number after `:`, 0 without one."""

    name: str
    explode: bool
    longest: int


class Expression(Struct, frozen=True):
    """An expression in braces."""

    way: Way
    variables: tuple[Variable, ...]
    text: str
    """With its braces."""
    host: bool = False
    """It is in the URI's host, where letters are in lower case."""


class _Piece(Struct, frozen=True):
    """A step of matching: a literal (`name` empty), or a run of characters of `kind` that is a name's value."""

    text: str
    name: str = ""
    kind: str = ""
    longest: int = 0

    @property
    def wide(self) -> bool:
        """Whether the value may have several segments."""
        return self.kind in (_SEGMENTS, _ANY)


class Template(Struct, frozen=True):
    """A template that was read by `parse`."""

    text: str
    names: tuple[str, ...]
    """The names of its variables, in order, each once."""
    optional: frozenset[str]
    """Those that a URI may lack."""
    rank: tuple[int, ...]
    """Sorts the more specific template first, where two match one URI."""
    pieces: tuple[_Piece, ...]
    query: tuple[Variable, ...]
    """The variables of the query."""
    marked: bool
    """Whether the query begins with "?"; if not, it continues one, with "&"."""
    lead: str
    """The prefix of every URI of the template."""
    any_path: bool = False
    """Values of wide names and of the query may be any path."""

    def plain(self) -> Template:
        """Return the template that matches URIs in the form of `uri.plain`: itself, unless a delimiter of its path is
        percent-encoded."""
        text = unescaped(self.text)
        return self if text == self.text else parse(text, any_path=self.any_path)

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the value of each name in a normal URI, or None when it does not match."""
        if not uri.startswith(self.lead) or len(uri) > LONGEST:
            return None
        found: dict[str, str] = {}
        if self.query:
            uri, mark, query = uri.partition("?" if self.marked else "&")
            if mark and not self._query(query, found):
                return None
        cut = _cut(self.pieces, uri)
        if cut is None:
            return None
        for piece, value in cut:
            wide = piece.wide
            text = _decode(value, wide, piece.kind == _IN_QUERY, self.any_path and (wide or piece.kind == _IN_QUERY))
            if not _take(found, piece.name, text, piece.longest):
                return None
        return found

    def _query(self, query: str, found: dict[str, str]) -> bool:
        known = {variable.name: variable for variable in self.query}
        if _run(_ANY).fullmatch(query) is None or "#" in query:
            return False
        for pair in query.split("&"):
            name, _, value = pair.partition("=")
            variable = known.pop(name, None)
            if variable is None or not _take(found, name, _decode(value, False, True, self.any_path), variable.longest):
                return False
        return True


@functools.cache
def _run(kind: str) -> re.Pattern[str]:
    """Return the pattern of one or more characters of a kind."""
    return re.compile(kind + "+")


# -- reading --------------------------------------------------------------------------------------


def parse(text: str, *, any_path: bool = False) -> Template:
    """Parse a template. Raises LocalError with the reason for what RFC 6570 does not allow or nothing can match.

    `any_path`: values of wide names and of the query may be absolute paths, drive letters and URLs.
    """
    parts: list[str | Expression] = []
    end = 0
    for found in re.finditer(_EXPRESSION, text):
        parts += [text[end : found.start()], _expression(found[1], text)]
        end = found.end()
    parts.append(text[end:])
    parts = [part for part in parts if part != ""]
    for part in parts:
        if isinstance(part, str) and (re.search(_BAD_LITERAL, part) or re.search(_BAD_PERCENT, part)):
            raise LocalError(f"{text!r} is not a URI template: {part!r} cannot stand in a URI")
    parts = _normal(parts, text)
    text = "".join(part if isinstance(part, str) else part.text for part in parts)
    tail = next((i for i, p in enumerate(parts) if isinstance(p, Expression) and p.way in "?&" and p.way), len(parts))
    if any(isinstance(part, str) or part.way not in ("?", "&") for part in parts[tail:]):
        raise LocalError(f"{text!r}: {{?...}} and {{&...}} come last, since their names come in any order")
    query = tuple(v for part in parts[tail:] if isinstance(part, Expression) for v in part.variables)
    pieces = tuple(_pieces(parts[:tail]))
    if not any_path and len(pieces) > 1 and pieces[0].text == "file://" and pieces[1].wide:
        raise LocalError(
            f"{text!r}: each of its values would begin with a slash, so nothing matches: write "
            f"file:///{{+{pieces[1].name}}} for a path below a folder, or any_path=True for one anywhere"
        )
    names = [piece.name for piece in pieces if piece.name] + [variable.name for variable in query]
    first = parts[tail] if query else None
    lead = pieces[0].text if pieces and not pieces[0].name else ""
    return Template(
        text,
        tuple(dict.fromkeys(names)),
        frozenset(variable.name for variable in query) - {piece.name for piece in pieces},
        _rank(pieces, query),
        pieces,
        query,
        isinstance(first, Expression) and first.way == "?",
        lead,
        any_path,
    )


def _normal(parts: list[str | Expression], text: str) -> list[str | Expression]:
    """Return the parts in normal form. Raises LocalError for an upper-case letter that may be in the host of some URIs
    and in the path of others."""
    found: list[str | Expression] = []
    hosts: list[int] = []  # the literals of the authority: the host comes after an "@"
    where: Literal["scheme", "host", "path"] = "scheme"
    unsure = False  # a value with "/" may have ended the host
    for part in parts:
        if isinstance(part, Expression):
            found.append(structs.replace(part, host=True) if where == "host" else part)
            if part.way in ("/", "?", "#", "&") and where == "host":
                where = "path"
            unsure = unsure or (part.way == "+" and where != "path")
            continue
        part = escape(part)
        if where == "scheme":
            scheme, colon, part = part.partition(":")
            found.append(scheme.lower() + colon)
            if not colon:
                continue
            where = "path"
            if part.startswith("//"):
                found.append("//")
                where, part = "host", part[2:]
        if where == "host":
            ends = re.search(_STEP, part)
            host = part if ends is None else part[: ends.start()]
            if unsure and host != lowercase(host):
                raise LocalError(f"{text!r}: {host!r} may be in the host of a URI, so write it in lower case")
            hosts.append(len(found))
            found.append(host)
            part = part[len(host) :]
            where = "host" if ends is None else "path"
        found.append(part)
    after = max((at for at in hosts if "@" in str(found[at])), default=-1)
    for at in hosts:
        user, mark, host = str(found[at]).rpartition("@")
        if at >= after:
            found[at] = user + mark + lowercase(host)
    return _join_literals(found)


def _join_literals(parts: list[str | Expression]) -> list[str | Expression]:
    """Return the parts, with adjacent literals joined."""
    found: list[str | Expression] = []
    for part in parts:
        last = found[-1] if found else None
        if isinstance(part, str) and isinstance(last, str):
            found[-1] = last + part
        elif part != "":
            found.append(part)
    return found


def is_template(text: str) -> bool:
    """Return whether a text has a brace, and so should be a template."""
    return "{" in text or "}" in text


def normal_reference(text: str) -> str:
    """Return the normal form of a URI or a template of URIs; of a text that is neither, the text with its characters
    escaped."""
    if not is_template(text):
        return normal(text)
    try:
        return parse(text, any_path=True).text
    except LocalError:
        return escape(text)


def _expression(inner: str, text: str) -> Expression:
    way: Any = inner[:1] if inner[:1] in tuple("+#./;?&") else ""
    variables = []
    for spec in inner[len(way) :].split(","):
        match = re.fullmatch(_NAME, spec)
        if match is None:
            raise LocalError(f"{text!r} is not a URI template: {{{inner}}} names no variable that RFC 6570 knows")
        rest = match[2] or ""
        variables.append(Variable(match[1], rest == "*", int(rest[1:]) if rest[:1] == ":" else 0))
    return Expression(way, tuple(variables), f"{{{inner}}}")


def _pieces(parts: list[str | Expression]) -> list[_Piece]:
    pieces: list[_Piece] = []
    text = ""  # the literal before the next value

    def value(variable: Variable, kind: str) -> None:
        nonlocal text
        if text:
            pieces.append(_Piece(text))
        pieces.append(_Piece("", variable.name, kind, variable.longest))
        text = ""

    for part in parts:
        if isinstance(part, str):
            text += part
            continue
        for index, variable in enumerate(part.variables):
            text += BETWEEN[part.way] if index else FIRST[part.way]
            if part.way == ";":
                text += f"{variable.name.lower() if part.host else variable.name}="
            value(variable, _kind(part.way, variable, any("?" in piece.text for piece in pieces) or "?" in text))
    return [*pieces, _Piece(text)] if text else pieces


def _kind(way: Way, variable: Variable, asking: bool) -> str:
    if way == "#":
        return _ANY
    if way == "+":
        return _SEGMENTS
    if way == "/" and variable.explode:
        return _SEGMENTS
    return _IN_QUERY if asking else _SIMPLE


def _rank(pieces: tuple[_Piece, ...], query: tuple[Variable, ...]) -> tuple[int, ...]:
    wide = sum(piece.wide for piece in pieces)
    names = sum(bool(piece.name) for piece in pieces)
    return wide, min(names, 1), -sum(len(piece.text) for piece in pieces), names, len(query)


# -- matching -------------------------------------------------------------------------------------


def _cut(pieces: tuple[_Piece, ...], uri: str) -> list[tuple[_Piece, str]] | None:
    """Return the URI cut into the values of these pieces; None when it cannot be."""
    if not pieces:
        return None if uri else []
    begin, end = 0, len(uri)
    first, last = 0, len(pieces)
    if not pieces[0].name:
        if not uri.startswith(pieces[0].text):
            return None
        begin, first = len(pieces[0].text), 1
    if last > first and not pieces[-1].name:
        if not uri.endswith(pieces[-1].text) or end - len(pieces[-1].text) < begin:
            return None
        end, last = end - len(pieces[-1].text), last - 1
    if last == first:
        return [] if begin == end else None
    if last - first == 1:  # the usual one: a value between two literals
        fits = _run(pieces[first].kind).fullmatch(uri, begin, end)
        return [(pieces[first], uri[begin:end])] if fits else None
    return _cut_several(pieces[first:last], uri[begin:end])


def _cut_several(pieces: tuple[_Piece, ...], uri: str) -> list[tuple[_Piece, str]] | None:
    """Cut a URI into the values of several pieces; None when it cannot be. First the positions at which each rest can
    match are found, from the end; then each value is made as long as possible, from the front."""
    reachable = [bytearray(len(uri) + 1) for _ in range(len(pieces) + 1)]
    reachable[-1][len(uri)] = 1
    for index in range(len(pieces) - 1, -1, -1):
        piece, after, here = pieces[index], reachable[index + 1], reachable[index]
        if not piece.name:
            at = uri.find(piece.text)
            while at >= 0:
                here[at] = after[at + len(piece.text)]
                at = uri.find(piece.text, at + 1)
            continue
        for run in _run(piece.kind).finditer(uri):
            last = after.rfind(1, run.start() + 1, run.end() + 1)
            if last > run.start():
                here[run.start() : last] = b"\x01" * (last - run.start())
    if not reachable[0][0]:
        return None
    cut: list[tuple[_Piece, str]] = []
    at = 0
    for piece, after in zip(pieces, reachable[1:], strict=True):
        if not piece.name:
            at += len(piece.text)
            continue
        run_end = _run(piece.kind).match(uri, at)
        assert run_end is not None
        until = after.rfind(1, at + 1, run_end.end() + 1)
        cut.append((piece, uri[at:until]))
        at = until
    return cut


def _decode(text: str, wide: bool, query: bool, any_path: bool) -> str | None:
    """Return a value decoded; None for one that would lead out of its folder, or is not text. `wide`: it may have
    several segments; `query`: it is in the query."""
    value = text
    if "%" in text:
        if wide and "%2F" in text:
            return None
        from urllib.parse import unquote_to_bytes  # noqa: PLC0415  (start-up: for such a value)

        try:
            value = unquote_to_bytes(text).decode()
        except UnicodeDecodeError:
            return None
        if "\\" in value or "\0" in value:
            return None
    if not any_path and (value[1:2] == ":" and value[0].isascii() and value[0].isalpha()):
        return None  # "C:" leads out of every folder (Windows)
    if "/" in value and not any_path and (not wide or value[0] == "/"):
        return None
    if "." in value and any(_leads_out(segment.strip(), query) for segment in value.split("/")):
        return None
    return value


def _leads_out(segment: str, query: bool) -> bool:
    return segment == ".." or (segment == "." and not query)


def _take(found: dict[str, str], name: str, value: str | None, longest: int) -> bool:
    """Store a value; False if it is invalid, too long, or another one has that name."""
    return value is not None and not (longest and len(value) > longest) and found.setdefault(name, value) == value


def above(uri: str) -> Iterator[str]:
    """Return the URI and its ancestors: `x://a` and `x://a/` for `x://a/b`, `x://a` for `x://a?b` and `x://a#b`.

    A subscriber of one of them is notified: "This might be a sub-resource of the one that the client actually
    subscribed to" (`ResourceUpdatedNotificationParams`).
    """
    yield uri
    start = uri.find("://") + 3 if "://" in uri else 1
    for found in _STEP.finditer(uri, start, len(uri)):
        if found[0] == "/" and found.end() < len(uri):
            yield uri[: found.end()]
        yield uri[: found.start()]
