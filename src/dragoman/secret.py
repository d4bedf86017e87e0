"""The secrets that are shared by processes which serve together: what one of them seals, all of them can open.

The first secret seals, every one opens: put a new one first, and keep the old one as long as anything that it sealed is
needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

from .jsonrpc.errors import LocalError

SECRET = "DRAGOMAN_SECRET"
"""The environment variable with the secrets, several separated by white space or commas."""
RUN_SECRET = "DRAGOMAN_RUN_SECRET"
"""The environment variable with a secret that a supervisor has made for its workers where `SECRET` is not set: another
one at each start, so nothing is sealed with it that outlives them."""
SHORTEST = 16
"""Bytes a secret must have."""

C = TypeVar("C", bound=type)


def holds_secret(cls: C) -> C:
    """Decorate a class whose values hold a secret and do not change: they cannot be pickled, since a pickle is not
    treated as a secret, and a copy is the value itself."""

    def not_pickled(self: Any) -> NoReturn:
        raise LocalError(f"{type(self).__name__} is not pickled: it holds a secret; make it anew where it is needed")

    made: Any = cls
    made.__reduce__ = not_pickled
    made.__copy__ = lambda self: self
    made.__deepcopy__ = lambda self, memo: self
    return cls


def read_secrets(given: Sequence[str | bytes] | str | bytes | None = None, *, lasting: bool = False) -> list[bytes]:
    """Return the secrets in an option, or for None those in the environment, if any. `lasting`: for what is still read
    after the next start, such as a file. Raises LocalError for an option without a secret, and for one that is shorter
    than `SHORTEST`."""
    if given is None:
        given = os.environ.get(SECRET) or ("" if lasting else os.environ.get(RUN_SECRET))
        if not given:
            return []
    if isinstance(given, str):
        given = [key for key in re.split(r"[\s,]+", given) if key]
    elif isinstance(given, bytes):
        given = [given]
    keys = [key.encode() if isinstance(key, str) else key for key in given]
    if not keys:
        raise LocalError(f"keys for sealed state: give at least one, in keys= or {SECRET}")
    if any(len(key) < SHORTEST for key in keys):
        raise LocalError(
            f"a key for sealed state has at least {SHORTEST} bytes; "
            "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return keys
