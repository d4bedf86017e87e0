"""Entries in files of a folder that only their owner can open.

Each entry is one file, written under another name and renamed, so that a process that is killed leaves the old one.
Locks are `flock`s, which end with their process. A file that is no entry is logged and counts as absent: a login
replaces it. An entry that cannot be opened because the keyring is locked is an error, for it is good.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from ....private_files import state_folder
from ....system.files import (
    NO_FOLLOW,
    PRIVATE_RIGHTS,
    deny_others,
    is_mine,
    is_private,
    others_may,
    replace,
    sync_folder,
    undisturbed,
)
from ....system.files import lock as lock_file
from .contract import ENTRY_SIZE, LOCK_WAIT, EntryKey, Stored, TokenStoreError
from .locking import acquire
from .sealing import KEYRING_WAIT, KeyringAway, Unreadable, is_sealed, keyring_key, name, seal, unavailable, unseal

logger: logging.Logger = logging.getLogger(__name__)

FILE_SIZE = 2 * ENTRY_SIZE
"""Bytes of a file that are read: an entry, its key and its first line."""

SHORT_WAIT = 30.0
"""Seconds to wait for the locks that are held to replace one file, or to make the keyring's key."""


def default_folder() -> Path:
    """Return the folder `tokens` in the user's folder for state (`private_files.state_folder`). Raises TokenStoreError
    where the user has no home."""
    try:
        return state_folder("tokens")
    except RuntimeError:
        raise TokenStoreError("this user has no home folder: name one for tokens, FileStore(folder)") from None


class FileStore:
    """A `TokenStore` in files (mode 0600) of a folder (mode 0700), shared by processes. `folder`: by default that of
    `default_folder`. `keyring`: seal entries with a key in the operating system's keyring; without a keyring (or with
    False) they are not sealed, and `protection` says so. `lock_wait`: seconds to wait for an entry's lock. Raises
    TokenStoreError for a folder of another user."""

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, *, keyring: bool = True, lock_wait: float = LOCK_WAIT
    ) -> None:
        self.folder: Path = Path(folder) if folder is not None else default_folder()
        self._keyring = keyring
        self._lock_wait = lock_wait
        self._secret: bytes | None = None
        self._away: KeyringAway | None = None if keyring else KeyringAway("the keyring is not to be used")

    def __repr__(self) -> str:
        return f"FileStore({str(self.folder)!r})"

    async def read(self, key: EntryKey) -> Stored | None:
        """Return the entry, or None. Raises TokenStoreError if it is sealed and the keyring cannot be used."""
        content = await asyncio.to_thread(self._content, name(key))
        found = await self._open(content, name(key))
        return None if found is None else found[1]

    async def write(self, key: EntryKey, value: bytes, after: int | None) -> bool:
        """Replace the entry if its generation is still `after`. Raises TokenStoreError, and then the old one stays."""
        if len(value) > ENTRY_SIZE:
            raise TokenStoreError(f"an entry of {len(value)} bytes; at most {ENTRY_SIZE} are kept")
        secret = await self._key()
        async with self._hold(f"{name(key)}.swap", SHORT_WAIT):
            found = await self.read(key)
            if (None if found is None else found.generation) != after:
                return False
            # the clock, so that it rises over a removal, too
            content = seal(key, value, max((after or 0) + 1, time.time_ns()), secret)
            await asyncio.to_thread(self._replace, name(key), content)
            return True

    async def remove(self, key: EntryKey, after: int) -> bool:
        """Remove the entry if its generation is still `after`."""
        async with self._hold(f"{name(key)}.swap", SHORT_WAIT):
            found = await self.read(key)
            if found is None or found.generation != after:
                return False
            with _as_store_error("remove"):
                path = self.folder / f"{name(key)}.token"
                await asyncio.to_thread(undisturbed, lambda: os.unlink(path))
            return True

    async def keys(self) -> Sequence[EntryKey]:
        """Return the keys of all entries that can be read."""
        with _as_store_error("list"):
            files = sorted(self._ensure_folder().glob("*.token"))
        found = [await self._open(await asyncio.to_thread(self._content, one.stem), one.stem) for one in files]
        return [one[0] for one in found if one is not None]

    @asynccontextmanager
    async def locked(
        self, key: EntryKey, *, wait: float | None = None, held: Callable[[], object] | None = None
    ) -> AsyncIterator[None]:
        """Hold the entry's lock, against other processes, too. Raises LockHeld after `wait` seconds, by default
        `lock_wait`, and TokenStoreError."""
        async with self._hold(f"{name(key)}.lock", self._lock_wait if wait is None else wait, held):
            yield

    async def protection(self) -> str:
        """Return how entries are protected."""
        await self._key()
        if self._secret is not None:
            return f"in {self.folder}, sealed with a key of the operating system's keyring"
        return f"in {self.folder}, {PRIVATE_RIGHTS}, not sealed: {self._away}"

    # -- sealing ----------------------------------------------------------------------------------

    async def _key(self) -> bytes | None:
        """Return the key of AES-GCM, None without a keyring."""
        if self._secret is None and self._away is None:
            async with self._hold("keyring.lock", SHORT_WAIT + KEYRING_WAIT):
                try:
                    self._secret = await keyring_key()
                except KeyringAway as away:
                    self._away = away
        return self._secret

    async def _open(self, content: bytes | None, named: str) -> tuple[EntryKey, Stored] | None:
        if content is None:
            return None
        secret = await self._key() if is_sealed(content) else None
        if secret is None and self._away is not None and is_sealed(content):
            away, self._away = self._away, None if self._keyring else self._away  # tried again next time
            raise unavailable(away)
        try:
            return unseal(content, named, secret)
        except Unreadable as why:
            logger.warning("a stored token cannot be read and is taken for none (%s): %s", named[:12], why)
            return None

    # -- files ------------------------------------------------------------------------------------

    def _ensure_folder(self) -> Path:
        """Return the folder, made if need be. Raises TokenStoreError if it belongs to another user."""
        with _as_store_error("open"):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = os.stat(self.folder)
            if not is_mine(found):
                raise TokenStoreError(f"{self.folder} belongs to another user: name a folder of yours")
            if others_may(found):
                os.chmod(self.folder, 0o700)
        return self.folder

    def _content(self, named: str) -> bytes | None:
        with _as_store_error("read"):
            try:
                path = self._ensure_folder() / f"{named}.token"
                file = undisturbed(lambda: os.open(path, os.O_RDONLY | NO_FOLLOW))
            except FileNotFoundError:
                return None
            with open(file, "rb") as stream:
                if not is_private(os.fstat(stream.fileno())):
                    raise TokenStoreError(
                        f"{self.folder / named}.token could be read or changed by others: remove it and log in again"
                    )
                return stream.read(FILE_SIZE)

    def _replace(self, named: str, content: bytes) -> None:
        """Write a new file and rename it. The caller holds the lock of this name, so nobody else writes that file."""
        beside = self.folder / f"{named}.new"
        with _as_store_error("write"):
            file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | NO_FOLLOW, 0o600)
            try:
                with open(file, "wb") as stream:
                    deny_others(stream.fileno())  # with any umask
                    stream.write(content)
                    stream.flush()
                    os.fsync(stream.fileno())
                replace(beside, self.folder / f"{named}.token")
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(beside)
                raise
            sync_folder(self.folder)  # the new name, too, is on the disk

    @asynccontextmanager
    async def _hold(self, file: str, wait: float, held: Callable[[], object] | None = None) -> AsyncIterator[None]:
        with _as_store_error("lock"):
            lock = os.open(self._ensure_folder() / file, os.O_RDWR | os.O_CREAT | NO_FOLLOW, 0o600)

        def attempt() -> bool:
            with _as_store_error("lock"):
                return lock_file(lock)

        try:
            await acquire(attempt, wait, f"the lock {self.folder / file}", held)
            yield
        finally:
            os.close(lock)


@contextlib.contextmanager
def _as_store_error(doing: str) -> Iterator[None]:
    """Raise TokenStoreError for what the operating system refuses."""
    try:
        yield
    except OSError as error:
        raise TokenStoreError(f"cannot {doing} stored tokens: {error.strerror or error} ({error.filename})") from error
