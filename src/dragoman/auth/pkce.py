"""Proof Key for Code Exchange (RFC 7636): what client, authorization server and proxy all compute. Pure."""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Final

VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}")
"""The grammar of a code_verifier (RFC 7636 section 4.1)."""


def s256(verifier: str) -> str:
    """Return the code_challenge of a verifier by the method S256 (RFC 7636 section 4.2)."""
    return urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
