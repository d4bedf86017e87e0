"""Who may call what `dragoman serve` serves: a verifier from the options --auth-..., and the secret that goes with it.

A secret is in a file or in the environment, and never on the command line, which every user of the machine can read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ...jsonrpc.errors import LocalError
from ...net.urls import printable
from ...system.files import reason_of
from ..exit_status import Usage

if TYPE_CHECKING:
    from ...access import Verifiers

SECRET: Final = "DRAGOMAN_CLIENT_SECRET"
"""The variable with a client's secret, as for `dragoman login`."""
_LONGEST: Final = 4096
"""Bytes of a secret or a key: what is longer is another file."""


def by_signature(issuers: Sequence[str], resource: str, public_key: str | None) -> Verifiers:
    """What verifies the signed tokens of these issuers; `public_key`: the path of that of one issuer. Raises Usage."""
    from ...auth import Bearer  # noqa: PLC0415  (an optional extra)

    options, pem = "--auth-issuer, --auth-resource", None
    if public_key is not None:
        where = f"--auth-public-key {printable(public_key)}"
        options, pem = f"{options}, {where}", _content(where, public_key)
    try:
        return Bearer(issuers, resource=resource, public_key=pem)
    except (LocalError, ImportError) as fault:
        raise Usage(f"{options}: {fault}") from None


def by_introspection(
    url: str, issuers: Sequence[str], resource: str, client_id: str | None, secret_file: str | None
) -> Verifiers:
    """What asks an issuer's introspection endpoint about each token. Raises Usage."""
    if len(issuers) != 1:
        raise Usage(f"--auth-introspection asks one issuer: give one --auth-issuer, not {len(issuers)}")
    if client_id is None:
        raise Usage("--auth-introspection needs --auth-client-id: which client of the issuer this server is")
    secret = secret_of(secret_file)
    from ...auth import Introspection  # noqa: PLC0415  (an optional extra)

    try:
        return Introspection(url, issuer=issuers[0], resource=resource, client_id=client_id, secret=secret)
    except (LocalError, ImportError) as fault:
        raise Usage(f"--auth-introspection: {fault}") from None


def secret_of(path: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """The client's secret: the file's text without the line break at its end, else that of the environment. Raises
    Usage, without anything of the file."""
    if path is None:
        found = environment.get(SECRET, "")
        if not found:
            # RFC 7662 section 2.1: "the endpoint MUST also require some form of authorization to access this endpoint"
            raise Usage(f"--auth-introspection needs a secret: --auth-client-secret-file FILE, or {SECRET} is set")
        return found
    where = f"--auth-client-secret-file {printable(path)}"
    raw = _content(where, path)
    try:
        found = raw.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise Usage(f"{where}: the secret is not UTF-8") from None
    if not found or len(raw) > _LONGEST or not found.isprintable():
        raise Usage(f"{where}: a secret is one line of 1 to {_LONGEST} bytes")
    return found


def _content(where: str, path: str) -> bytes:
    """The content of a file, cut behind what is taken. Raises Usage, which begins with `where`."""
    try:
        with open(path, "rb") as file:
            return file.read(_LONGEST + 1)
    except OSError as why:
        raise Usage(f"{where}: {reason_of(why)}") from None
