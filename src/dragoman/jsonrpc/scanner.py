"""Examines JSON text without decoding it into a message: its depth, numbers that no double holds, halves of
surrogate pairs, the positions of an array's elements. Each check is linear in the length of the text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import accumulate

import msgspec
from msgspec import Raw

elements_of: Callable[[bytes | str], list[Raw]] = msgspec.json.Decoder(list[Raw]).decode
_anything = msgspec.json.Decoder().decode

SPACE = b" \t\r\n"
_BETWEEN = SPACE + b","
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*')  # strings, in order to skip them, and numbers
_SHAPE = bytes.maketrans(
    b"123456789E", b"000000000e"
)  # all digits alike: numbers that may be too big show by their shape
SHORT = 200
"""A shorter text holds no number beyond a double, unless it has an exponent of three digits."""
HOLDABLE = 308
"""A text of no more bytes holds no number beyond a double, unless it has an exponent."""
_LONG_RUN = b"0" * SHORT
_ZERO = ord("0")  # a number: for bytes `in` tries them as a number first, and that fails inside
_QUARTERS = b"0" * 4
_NO_OPENING = bytes(set(range(256)) - set(b"[{"))
_NO_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))
_QUOTED = re.compile(rb'"[^"]*"?')
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_LONG = 64 * 1024
_SHORTEST = 64
"""Brackets of a piece: with a small limit of depth, pieces of a few brackets would take longer than each by itself."""
_LONE_SURROGATE = (
    rb"((?:\\(?:[^u]|u(?![dD][89a-fA-F])|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})[^\\]*+)++)"
    rb"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
"""A run of escapes that are not half of a surrogate pair (group 1), or one half of a pair. Each escape is matched as a
whole, so that the second backslash of `\\\\u` does not begin one. A text, compiled when it is first needed."""


TOO_DEEP = "the text is nested deeper than this interpreter goes"


def odd(raw: bytes, depth: int) -> bool:
    """Whether a text that has the usual shape is not UTF-8, is nested more than `depth` levels, or may hold a number
    beyond a double."""
    try:
        raw.isascii() or raw.decode()
    except UnicodeDecodeError:
        return True
    # a run of SHORT digits has one at a position that is a multiple of SHORT, and four in a row at multiples of a
    # quarter of SHORT: most texts need only the first check, nearly all others only the second
    if (
        _ZERO in raw[SHORT - 1 :: SHORT].translate(_SHAPE)
        and _QUARTERS in raw[:: SHORT // 4].translate(_SHAPE)
        and _LONG_RUN in raw.translate(_SHAPE)
    ):
        return True
    return len(raw) > 2 * depth and too_deep(raw, depth)


def too_deep(raw: bytes, depth: int) -> bool:
    """Whether arrays and objects are nested more than `depth` levels in this JSON text.

    The interpreter's own bound on recursion differs between Python versions; this one does not. A text of at most twice
    as many bytes cannot be too deep, so callers check only longer ones; most of those have few brackets.
    """
    if _openings(raw, depth) <= depth:
        return False
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    text = raw.translate(None, _NO_STRUCTURE).replace(b'""', b"")  # an empty string holds no bracket
    if b'"' in text:
        text = _QUOTED.sub(b"", text)
    level, size = 0, max(depth // 2, _SHORTEST)
    for at in range(0, len(text), size):
        piece = text[at : at + size]
        opened = len(piece.translate(None, b"]}"))
        if level + opened > depth:  # perhaps: only then is each bracket of a piece looked at
            steps = memoryview(piece.translate(_STEPS)).cast("b")
            if max(accumulate(steps, initial=level)) > depth:
                return True
        level += 2 * opened - len(piece)
    return False


def _openings(raw: bytes, depth: int) -> int:
    """How many arrays and objects begin in this text, brackets in strings included; of a long text no more than
    `depth` + 1 are counted, so that a long text with few of them costs next to nothing."""
    if len(raw) <= _LONG:
        return len(raw.translate(None, _NO_OPENING))
    count, find = 0, raw.find
    for opening in b"[{":
        at = find(opening)
        while at >= 0 and count <= depth:
            count += 1
            at = find(opening, at + 1)
    return count


def unholdable(raw: bytes | Raw) -> str | None:
    """Return a sentence about the first number in this JSON text that no double holds; None if there is none."""
    text = bytes(raw)
    shape = text.translate(_SHAPE, b"+")
    if b"0e000" not in shape and _LONG_RUN not in shape:
        return None
    for token in _TOKENS.finditer(text):
        number = token[0]
        if number[0] != ord('"') and math.isinf(_float(number)):
            shown = number.decode() if len(number) <= 40 else f"{number[:37].decode()}..."
            return f"Parse error: the number {shown} is beyond what a double holds"
    return None


def _float(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:  # not a number at all; the decoder describes that better
        return 0.0


def split(raw: bytes) -> list[Raw] | None:
    """Return the elements of an array, undecoded; None where the text as a whole is not JSON.

    The decoder stops at half a surrogate pair, which is grammatical JSON and the fault of one element alone. The
    positions of the elements are therefore read from a copy that has a letter of the same length there."""
    try:
        raw.decode()
        return elements_of(raw)
    except UnicodeDecodeError:
        return None
    except msgspec.DecodeError:
        pass
    try:
        whole = elements_of(harmless(raw))
    except msgspec.DecodeError:
        return None
    elements, at = [], raw.index(b"[") + 1
    for element in whole:
        while raw[at] in _BETWEEN:
            at += 1
        elements.append(Raw(raw[at : at + len(element)]))
        at += len(element)
    return elements


def harmless(raw: bytes) -> bytes:
    """Return the text with an escaped letter, of the same length, in place of each half of a surrogate pair."""
    return re.sub(_LONE_SURROGATE, lambda found: found[1] or rb"\u0041", raw) if b"\\u" in raw else raw


def json_fault(raw: bytes) -> str | None:
    """Return why this is not JSON text, in words; None if it is."""
    if raw.startswith(b"\xef\xbb\xbf"):
        return "the text begins with a byte-order mark; JSON must not (RFC 8259, section 8.1)"
    try:
        raw.decode()
        _anything(raw)
    except UnicodeDecodeError as error:
        return f"byte {error.start} is not UTF-8"
    except RecursionError:
        return TOO_DEEP
    except msgspec.ValidationError as error:
        return f"a number is beyond what a double holds ({error})"
    except msgspec.DecodeError as error:
        return str(error)
    return None
