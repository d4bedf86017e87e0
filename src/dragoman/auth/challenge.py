"""The grammar of `WWW-Authenticate` (RFC 9110 section 11.6.1): only this module reads and writes challenges. Pure.

A field may hold several challenges of several schemes. A comma may separate two challenges or two parameters, or stand
for nothing; so a parameter is read as part of *its* challenge, and never searched for in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

MOST = 16
"""Challenges that are read of one answer: a server that offers more than this offers too much to choose from."""
LONGEST = 16 * 1024
"""Characters that are read of one field value."""

TOKEN68 = re.compile(rb"[A-Za-z0-9\-._~+/]+=*")
"""What a token may be that an `Authorization` header carries (RFC 6750 section 2.1, `b64token`)."""

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TOKEN68 = re.compile(r"([A-Za-z0-9\-._~+/]+=*)(?=[ \t]*(?:,|$))")
_EQUALS = re.compile(r"[ \t]*=[ \t]*")
_QUOTED = re.compile(r'"((?:[^"\\\x00-\x08\x0a-\x1f\x7f]|\\[\t\x20-\x7e\x80-\U0010ffff])*)"')
_SPACE = re.compile(r"[ \t]*")
_COMMAS = re.compile(r"[ \t,]*")


class Challenge(Struct, frozen=True):
    """One challenge: `Bearer realm="x", scope="a b"`."""

    scheme: str
    """As it was written; compare it without regard to case (RFC 9110 section 11.1)."""
    params: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case; of a name that occurs twice, the first value."""
    token68: str | None = None
    """The one value of a challenge without parameters, as `Negotiate` has it."""

    def of(self, scheme: str) -> bool:
        """Return whether it is of this scheme."""
        return self.scheme.lower() == scheme.lower()

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes of its `scope` parameter (RFC 6750 section 3), in order, each once."""
        return tuple(dict.fromkeys(self.params.get("scope", "").split()))

    def text(self) -> str:
        """Return the challenge as a field value. Raises ValueError for a scheme, name or value that no field can
        hold."""
        if not _TOKEN.fullmatch(self.scheme) or not all(_TOKEN.fullmatch(name) for name in self.params):
            raise ValueError(f"not the scheme or parameters of a challenge: {self.scheme!r}")
        if self.token68 is not None:
            return f"{self.scheme} {self.token68}"
        if not self.params:
            return self.scheme
        return f"{self.scheme} " + ", ".join(f"{name}={_quote(value)}" for name, value in self.params.items())


def parse_challenges(values: str | Iterable[str]) -> list[Challenge]:
    """Return the challenges of these field values, in order. A value is read up to its first fault: what follows one
    might be read into the wrong challenge."""
    found: list[Challenge] = []
    for value in [values] if isinstance(values, str) else values:
        _read(value[:LONGEST], found)
    return found[:MOST]


def _quote(value: str) -> str:
    if any((ord(c) < 0x20 and c != "\t") or ord(c) == 0x7F for c in value):
        raise ValueError("a parameter of a challenge has no control characters")
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _read(text: str, found: list[Challenge]) -> None:
    at = _after(_COMMAS, text, 0)
    while at < len(text) and len(found) < MOST:
        # challenge = auth-scheme [ 1*SP ( token68 / #auth-param ) ]
        scheme = _TOKEN.match(text, at)
        if scheme is None:
            return
        start = _after(_SPACE, text, scheme.end())
        if start == len(text) or text[start] == ",":
            found.append(Challenge(scheme[0]))
            at = _after(_COMMAS, text, start)
            continue
        if start == scheme.end():
            return
        if (single := _TOKEN68.match(text, start)) is not None:
            found.append(Challenge(scheme[0], {}, single[1]))
            at = _after(_COMMAS, text, single.end())
            continue
        params, at, whole = _params(text, start)
        if params:
            found.append(Challenge(scheme[0], params))
        if not whole or not params:
            return


def _params(text: str, at: int) -> tuple[dict[str, str], int, bool]:
    """Return the parameters from `at` on, where the next challenge begins, and whether the text was in the grammar."""
    params: dict[str, str] = {}
    while at < len(text):
        name = _TOKEN.match(text, at)
        if name is None:
            return params, at, False
        equals = _EQUALS.match(text, name.end())
        if equals is None:
            return params, at, True  # a token without "=": the scheme of the next challenge
        value = _QUOTED.match(text, equals.end()) or _TOKEN.match(text, equals.end())
        if value is None:
            return params, at, False
        plain = re.sub(r"\\(.)", r"\1", value[1]) if value.re is _QUOTED else value[0]
        end = _after(_SPACE, text, value.end())
        if end < len(text) and text[end] != ",":
            return params, at, False
        params.setdefault(name[0].lower(), plain)
        at = _after(_COMMAS, text, end)
    return params, at, True


def _after(space: re.Pattern[str], text: str, at: int) -> int:
    """Return the first position from `at` on that is not of `space`."""
    match = space.match(text, at)
    return at if match is None else match.end()
