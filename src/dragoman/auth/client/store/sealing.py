"""Entries as the content of files: sealed by AES-GCM with a key in the operating system's keyring, or plain where there
is no keyring.

The first line names format, sealing and generation. AES-GCM authenticates it, and the file's name, which is the digest
of the entry's key, along with the content. So neither an entry put under another name nor one with another generation
can be opened.
"""

from __future__ import annotations

import os
import threading
from asyncio import get_running_loop, wait_for
from base64 import b64decode, b64encode
from hashlib import sha256

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ....jsonrpc.errors import installing
from .contract import ENTRY_SIZE, EntryKey, Stored, TokenStoreError

FORMAT = b"dragoman-token-1"
SEALED, PLAIN = b"aes-gcm", b"plain"
NONCE = 12
"""Bytes of a nonce (NIST SP 800-38D, section 8.2)."""
SERVICE, USER = "dragoman", "token store"
"""The names under which the keyring has the key."""
KEYRING_WAIT = 60.0
"""Seconds that the keyring may take: a person may have to unlock it."""

_payload = msgspec.msgpack.Decoder(tuple[str, str, str, str, bytes])


class Unreadable(Exception):
    """The content is not an entry: it is cut off, changed, under another name, or sealed with another key."""


class KeyringAway(Exception):
    """There is no keyring, or it is locked; the text says which."""


def name(key: EntryKey) -> str:
    """Return the file's name: it says nothing of the key."""
    return sha256(key.text.encode()).hexdigest()


def seal(key: EntryKey, value: bytes, generation: int, secret: bytes | None) -> bytes:
    """Return an entry's content. `secret`: the key of AES-GCM, None for a plain one. Raises TokenStoreError."""
    try:
        content = msgspec.msgpack.encode((key.issuer, key.resource, key.client, key.account, value))
    except UnicodeEncodeError:
        raise TokenStoreError("the key of an entry has half of a surrogate pair, which no file can hold") from None
    line = b"%b %b %d\n" % (FORMAT, PLAIN if secret is None else SEALED, generation)
    if secret is None:
        return line + content
    nonce = os.urandom(NONCE)
    return line + nonce + AESGCM(secret).encrypt(nonce, content, line + name(key).encode())


def is_sealed(content: bytes) -> bool:
    """Return whether a key is needed to open this content."""
    return content.startswith(b"%b %b " % (FORMAT, SEALED))


def unseal(content: bytes, named: str, secret: bytes | None) -> tuple[EntryKey, Stored]:
    """Return the entry of a file's content. `named`: the file's name. Raises Unreadable."""
    line, newline, body = content.partition(b"\n")
    words = line.split(b" ")
    if not newline or len(words) != 3 or words[0] != FORMAT or not words[2].isdigit() or len(words[2]) > 20:
        raise Unreadable("it does not begin as an entry does")
    if words[1] == SEALED:
        body = _unseal(body, line + b"\n" + named.encode(), secret)
    elif words[1] != PLAIN:
        raise Unreadable("it is sealed in an unknown way")
    try:
        issuer, resource, client, account, value = _payload.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Unreadable("its content is damaged") from None
    key = EntryKey(issuer, resource, client, account)
    if name(key) != named:
        raise Unreadable("it is another key's")
    if len(value) > ENTRY_SIZE:
        raise Unreadable("it is too large")
    return key, Stored(value, int(words[2]))


def _unseal(body: bytes, beside: bytes, secret: bytes | None) -> bytes:
    if secret is None:
        raise Unreadable("it is sealed and there is no key")
    try:
        return AESGCM(secret).decrypt(body[:NONCE], body[NONCE:], beside)
    except (InvalidTag, ValueError):
        raise Unreadable("it was changed, or sealed with another key") from None


# -- the keyring ----------------------------------------------------------------------------------


async def keyring_key() -> bytes:
    """Return the key of AES-GCM from the operating system's keyring, made at the first use. The caller holds a lock, so
    that no two processes make one at once. Raises KeyringAway."""
    loop = get_running_loop()
    future = loop.create_future()

    def ended(result: bytes | None, fault: Exception | None) -> None:
        if not future.done():
            if fault is not None:
                future.set_exception(fault)
            else:
                future.set_result(result)

    def ask() -> None:
        result, fault = None, None
        try:
            result = _key()
        except KeyringAway as away:
            fault = away
        except Exception as error:  # a backend may raise what it likes
            fault = KeyringAway(f"the keyring failed: {type(error).__name__}")
        try:
            loop.call_soon_threadsafe(ended, result, fault)
        except RuntimeError:  # the loop was closed meanwhile
            pass

    # not in the loop's pool, whose end would wait for a keyring that asks a person
    threading.Thread(target=ask, name="dragoman keyring", daemon=True).start()
    try:
        found: bytes = await wait_for(future, KEYRING_WAIT)
    except TimeoutError:
        raise KeyringAway(f"the keyring did not answer within {KEYRING_WAIT:g} s") from None
    return found


def _key() -> bytes:
    try:
        import keyring  # noqa: PLC0415  (an extra, and slow to load)
        from keyring.errors import KeyringError  # noqa: PLC0415  (the same)
    except ImportError:
        raise KeyringAway(f"the package keyring is not installed ({installing('keyring')})") from None
    if keyring.get_keyring().priority <= 0:
        raise KeyringAway("this machine has no keyring that can be used")
    try:
        found = keyring.get_password(SERVICE, USER)
        if found is None:
            keyring.set_password(SERVICE, USER, b64encode(os.urandom(32)).decode())
            found = keyring.get_password(SERVICE, USER)
    except KeyringError as error:
        raise KeyringAway(f"the keyring refused: {type(error).__name__}") from None
    secret = b64decode(found or "")
    if len(secret) != 32:
        raise KeyringAway(f"the keyring's entry {SERVICE!r}, {USER!r} is not a key of 32 bytes; remove it")
    return secret


def unavailable(why: KeyringAway) -> TokenStoreError:
    """Return the error for a sealed entry whose key cannot be had."""
    return TokenStoreError(
        f"the stored tokens are sealed with a key of the keyring, and {why}: unlock the keyring, or log in with another "
        "store"
    )
