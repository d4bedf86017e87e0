"""State that a client keeps for a server until it calls again, sealed by the server.

Rules (basic/patterns/mrtr, "Server Requirements"):

- The text comes back from the client, so it is untrusted until its seal (HMAC-SHA256) is verified.
- It contains its owner, its expiry and its request; each is compared when it comes back.
- It may be compressed, so its size is limited before it is sealed, and again while it is decompressed.
- It is sealed, not encrypted: its holder can read it. It contains what the holder itself sent, and no secrets.
- The first key seals, every key opens: put a new key first, and keep the old one until its states have expired.
- Servers that share a load share their keys (`keys=` or DRAGOMAN_SECRET). Without keys a process generates one, and its
  states cannot be opened after it ends.
"""

from __future__ import annotations

import os
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...allowance import Allowance, Owner
from ...jsonrpc.errors import InternalError, InvalidParams, LocalError, needs
from ...secret import read_secrets
from ..protocol.admission import UNREADABLE
from ..protocol.encoding import decode

LIFE = 600.0
"""Seconds for which a state is valid by default."""

Reason: TypeAlias = Literal["tampered", "expired", "foreign", "mismatched", "used"]

_WORDS: dict[Reason, str] = {
    "tampered": "it is not what this server gave out",
    "expired": "it has expired",
    "foreign": "it was given to another caller",
    "mismatched": "it belongs to another request",
    "used": "it was used before, and is good for one use",
}


class SealError(InvalidParams):
    """The state that came back is refused: -32602; `data.reason` is tampered, expired, foreign, mismatched or used."""

    data: dict[str, str]

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"requestState is refused: {_WORDS[reason]}", {"reason": reason})


class NoncesHere:
    """Remembers which single-use states were used in this process: `most` of them, in fair shares (`Allowance`). Beyond
    that it refuses new ones rather than forget one. `life`: seconds for which a state is valid."""

    def __init__(self, most: int = 100_000, *, life: float = LIFE, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._allowance = Allowance(most, life)
        self._taken: OrderedDict[str, float] = OrderedDict()
        self._lock = Lock()

    def take(self, nonce: str, until: float, owner: Owner) -> bool:
        """Remember a nonce until then (seconds since the epoch); return False if it was already used. Safe in any
        thread. Raises InternalError where there is no room for this owner."""
        with self._lock:
            now = self._clock()
            while self._taken and next(iter(self._taken.values())) <= now:
                self._taken.popitem(last=False)
            if nonce in self._taken:
                return False
            self._allow(owner, now)
            self._taken[nonce] = until
            return True

    def allow(self, owner: Owner) -> None:
        """Count a state that is remembered elsewhere, by all replicas together. Safe in any thread. Raises
        InternalError where there is no room for this owner."""
        with self._lock:
            self._allow(owner, self._clock())

    def _allow(self, owner: Owner, now: float) -> None:
        if not self._allowance.take(owner, now):
            why = "Busy: too many single-use states of this caller are remembered"
            raise InternalError(why, {"retry_after": self._allowance.after(now)})


class KnownAnswer(Struct, frozen=True, array_like=True):
    """An answer from an earlier round, and a digest of its question."""

    digest: str
    answer: Raw


class State(Struct, frozen=True, array_like=True):
    """The content of a sealed state. `request`: a digest of the method and its parameters; `expires`: seconds since the
    epoch; `digests`: the digest of each open question, by its key; `known`: the answers so far, in their order."""

    request: str
    principal: str | None
    expires: float
    nonce: str
    once: bool
    digests: dict[str, str]
    known: dict[str, KnownAnswer]


def digest_of(method: str, params: Raw | UnsetType) -> str:
    """Return a digest of a request's content, independent of the order of members; members that differ between tries
    are left out. Raises InvalidParams for params that cannot be read, such as a number that no double can hold."""
    try:
        given = {} if params is UNSET else decode(params, dict[str, Raw])
        members = {name: msgspec.json.decode(value) for name, value in given.items() if name not in _MEMBERS_OF_A_TRY}
    except UNREADABLE as error:
        raise InvalidParams(f"Invalid params: {error}") from None
    return digest(method.encode() + b"\0" + _canonical(members))


_MEMBERS_OF_A_TRY = ("_meta", "inputResponses", "requestState")
_canonical = msgspec.json.Encoder(order="sorted").encode


def digest(text: bytes) -> str:
    """Return 16 bytes of a text's SHA-256, as hexadecimal digits."""
    from hashlib import sha256  # noqa: PLC0415  (start-up: sealed states alone need it)

    return sha256(text).hexdigest()[:32]


class StateSeal:
    """Seals states and opens them.

    `keys`: secrets of at least 16 bytes, the first one seals; None: DRAGOMAN_SECRET, else a random one. `life`: seconds
    for which a state is valid. `audience`: the server's name; another server's states are refused even under the same
    keys. `size`: the longest open state in bytes, and the longest sealed text in characters. `clock`: seconds since the
    epoch.

    Needs itsdangerous; LocalError where it is missing, and for keys that are too short.
    """

    def __init__(
        self,
        keys: Sequence[str | bytes] | str | bytes | None = None,
        life: float = LIFE,
        *,
        audience: str = "",
        size: int = 262_144,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if life <= 0:
            raise LocalError(f"the life of a sealed state is a number of seconds above 0, not {life!r}")
        self.keys: list[bytes] = read_secrets(keys)
        """The keys that other processes may have, too; empty if `own`."""
        self.own: bool = not self.keys
        """Whether the key was generated here, so that no other process can open the states."""
        self._keys = self.keys or [os.urandom(32)]
        self.life = life
        self.size = size
        self.clock = clock
        self.nonces: NoncesHere = NoncesHere(life=life, clock=clock)
        self._audience = audience
        self._box: Any = None

    def seal(
        self,
        request: str,
        principal: str | None,
        *,
        digests: Mapping[str, str],
        known: Mapping[str, KnownAnswer],
        once: bool = False,
    ) -> str:
        """Return a state for the request with this digest (see `digest_of`), as text; no two are equal.

        Raises LocalError when the state is longer than `size`.
        """
        expires = self.clock() + self.life
        state = State(request, principal, expires, os.urandom(9).hex(), once, dict(digests), dict(known))
        box = self._open_box()
        raw = msgspec.json.encode(state)
        text: str = box.dumps(raw).decode() if len(raw) <= self.size else ""
        if not text or len(text) > self.size:
            raise LocalError(
                f"the answers so far make a state of {max(len(raw), len(text))} bytes, and {self.size} are allowed: "
                "ask for less, or keep what is long on the server"
            )
        return text

    def open(self, text: str, request: str, principal: str | None) -> State:
        """Return the state in a text that came with a request. `request`: the request's digest. Raises SealError if the
        state is not valid for it."""
        box = self._open_box()
        if len(text) > self.size:
            raise SealError("tampered")
        try:
            state: State = box.loads(text)
            tail = text.rpartition(".")[2].encode()
            # a change in ignored parts (spare bits, characters outside base64) is a change too
            if urlsafe_b64encode(urlsafe_b64decode(tail + b"=")).rstrip(b"=") != tail:
                raise ValueError
        except Exception:  # with any fault the state is not valid
            raise SealError("tampered") from None
        if state.expires <= self.clock():
            raise SealError("expired")
        if state.principal != principal:
            raise SealError("foreign")
        if state.request != request:
            raise SealError("mismatched")
        return state

    def use(self, state: State, owner: Owner) -> None:
        """Mark a single-use state as used by its owner. Raises SealError the second time, InternalError where too many
        of this owner's states are remembered."""
        # "MUST enforce that invariant server-side" (basic/patterns/mrtr)
        if state.once and not self.nonces.take(state.nonce, state.expires, owner):
            raise SealError("used")

    def _open_box(self) -> Any:
        if self._box is None:
            from hashlib import sha256  # noqa: PLC0415  (start-up: sealed states alone need it)

            self._box = _serializer(self.size)(
                list(reversed(self._keys)),  # the library signs with the last key
                salt=b"dragoman.state\0" + self._audience.encode(),
                serializer=_Text,
                signer_kwargs={"key_derivation": "hmac", "digest_method": sha256},
            )
        return self._box


def _serializer(size: int) -> Any:
    """Return itsdangerous' serializer with a limit: it opens no state of more than `size` bytes, since a valid
    signature does not say how long a compressed text becomes. Raises LocalError where the library is missing."""
    import zlib  # noqa: PLC0415  (start-up: sealed states alone need it)

    try:
        from itsdangerous import BadPayload, URLSafeSerializer  # noqa: PLC0415  (an optional extra)
        from itsdangerous.encoding import base64_decode  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise needs("sealed state", "itsdangerous", "mcp") from missing

    class Bounded(URLSafeSerializer):
        def load_payload(self, payload: bytes, *args: Any, **more: Any) -> State:
            compressed = payload.startswith(b".")
            raw = base64_decode(payload[compressed:])
            if compressed:
                inflate = zlib.decompressobj()
                raw = inflate.decompress(raw, size)
                if not inflate.eof:
                    raise BadPayload("it is longer than a state may be")
            return _Text.loads(raw)

    return Bounded


class _Text:
    """How the box writes and reads a state's JSON text; it compresses the text where that helps."""

    @staticmethod
    def dumps(value: bytes) -> bytes:
        return value

    @staticmethod
    def loads(text: bytes) -> State:
        return msgspec.json.decode(text, type=State)
