"""The normal form of a URI (RFC 3986, section 6.2.2). Pure.

A URI has many spellings: `Config://App`, `config://%61pp`, `config://app`. Each that comes in, from a peer or from the
server's own code, is normalised once, and only its normal form is matched, compared, stored and shown. So a URI that is
refused in one spelling is refused in all of them.

Rules:

- Scheme and host are in lower case; a user in front of the host ("user@") keeps its case, and so does everything after.
- Percent-encoded letters, digits, "-", ".", "_" and "~" are decoded; other encoded octets stay, with digits in upper
  case. So `%2F` is never a "/".
- Characters that a URI cannot have (non-ASCII ones as UTF-8, spaces, backslashes, a "%" without two digits) are
  encoded.
- The normal form of a normal form is itself. Every text has one, whether it is a URI or not.
- Segments "." and ".." stay: a template matches no such path (`uri_template`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Final

UNRESERVED: Final = r"A-Za-z0-9\-._~"
_RESERVED: Final = r":/?#\[\]@!$&'()*+,;="
_AUTHORITY: Final = r"a-z0-9\-._~!$&'()*+,;=:@\[\]"

# the patterns are texts, compiled when first used, so that a server without resources never compiles them
_NORMAL: Final = (
    rf"[a-z][a-z0-9+.\-]*:(?://[{_AUTHORITY}]*(?=[/?#]|\Z)|(?!//))"
    rf"[{UNRESERVED}{_RESERVED}]*+(?:%(?:[01][0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[BCDE]|60|7[BCDF]|[89A-F][0-9A-F])"
    rf"[{UNRESERVED}{_RESERVED}]*+)*+"
)
"""Matches most texts that are in their normal form, so that these cost little; not all of them."""
_ODD: Final = rf"%[0-9A-Fa-f]{{2}}|[^{UNRESERVED}{_RESERVED}]"
_BEGINNING: Final = r"([A-Za-z][A-Za-z0-9+.\-]*:)(?://((?:[^/?#]*@)?)([^/?#]*))?"
_CASED: Final = r"%[0-9A-F]{2}|[A-Z]+"
_DELIMITER: Final = r"%(?:2[146789ABC]|3[ABD]|40|5[BD])"
_PATH: Final = r"[^?#]*"


@functools.cache
def _looks_normal() -> Callable[[str], Any]:
    return re.compile(_NORMAL).fullmatch


def normal(uri: str) -> str:
    """Return the normal form of a URI; the same object if it is in normal form."""
    return uri if _looks_normal()(uri) else _with_case(escape(uri))


def escape(text: str) -> str:
    """Return a part of a URI with its percent-encoding in normal form; letters keep their case."""
    return re.sub(_ODD, _octets, text)


def lowercase(text: str) -> str:
    """Return a part of a URI in lower case; the digits of percent-encoded octets stay as they are."""
    return re.sub(_CASED, lambda found: found[0] if found[0][0] == "%" else found[0].lower(), text)


def _octets(found: re.Match[str]) -> str:
    text = found[0]
    if len(text) == 1:
        return "".join(f"%{octet:02X}" for octet in text.encode("utf-8", "surrogatepass"))
    character = chr(int(text[1:], 16))
    return character if character.isascii() and (character.isalnum() or character in "-._~") else text.upper()


def _with_case(uri: str) -> str:
    begins = re.match(_BEGINNING, uri)
    if begins is None:
        return uri
    scheme, user, host = begins[1].lower(), begins[2], begins[3]
    if host is None:
        return scheme + uri[begins.end() :]
    return f"{scheme}//{user}{lowercase(host)}{uri[begins.end() :]}"


def unescaped(uri: str) -> str:
    """Return a normal URI, or template, with the percent-encoded delimiters of its path decoded.

    RFC 3986 distinguishes `a%2Bb` and `a+b`, but a function that gets decoded values cannot.
    """
    if "%" not in uri:
        return uri
    path = re.match(_PATH, uri)
    assert path is not None
    return re.sub(_DELIMITER, lambda found: chr(int(found[0][1:], 16)), path[0]) + uri[path.end() :]


def plain(uri: str) -> str:
    """Return a normal URI as a function that makes a file's path of its values might read it: `unescaped`, without
    empty segments and without a "/" at the end of the path. The same object if nothing changes."""
    start = uri.find(":") + 1
    if uri.startswith("//", start):
        start += 2
    if "%" not in uri and uri.find("//", start) < 0 and uri[-1:] != "/" and "/?" not in uri and "/#" not in uri:
        return uri
    ends = re.search("[?#]", uri)
    end = len(uri) if ends is None else ends.start()
    path = re.sub("/{2,}", "/", uri[start:end])
    if len(path) > 1:
        path = path.removesuffix("/")
    return unescaped(uri[:start] + path + uri[end:])


def without_query(uri: str) -> str:
    """Return a URI without its query and its fragment."""
    path = re.match(_PATH, uri)
    assert path is not None
    return path[0]
