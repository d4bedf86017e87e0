"""The users of the development server, who log in on the consent page itself or agree without a page."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping, Sequence

from ..engine.messages import EndpointResponse, Parameters
from ..engine.model import Approved, Client, Pending, User
from ..engine.pages import field, warning

TRIES = 5
"""Wrong passwords for one user within `PAUSE`."""
PAUSE = 60.0
_NAMES = 1_000
_LENGTH = 200


class LocalUsers:
    """The test users. `automatic`: the name of the one who agrees to everything without a page."""

    def __init__(
        self, users: Sequence[User], automatic: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._users = {one.name: one for one in users}
        self._automatic = automatic
        self._clock = clock
        self._wrong: dict[str, tuple[int, float]] = {}

    def find(self, name: str) -> User | None:
        """Return the user of this name; None if there is none."""
        return self._users.get(name)

    def fields(self) -> str:
        """Return HTML for the name and, where a user has one, the password."""
        first = next(iter(self._users.values()), None)
        names = ", ".join(each.name for each in self._users.values() if not each.password)
        hint = warning(f"Users for trying, without a password: {names}") if names else ""
        fields = field("User", "user", first.name if first is not None and names else "", autocomplete="username")
        if any(each.password for each in self._users.values()):
            made = field("Password", "password", kind="password", autocomplete="current-password")
            fields += made.replace(" required", "") if names else made
        return hint + fields

    def automatic(self) -> Approved | None:
        """Return the user who agrees to everything."""
        user = None if self._automatic is None else self._users.get(self._automatic)
        return None if user is None else Approved(user.name, user.claims)

    async def approve(
        self, pending: Pending, client: Client, form: Parameters, headers: Mapping[str, str]
    ) -> Approved | EndpointResponse | str:
        """Return the user, or what is wrong with name or password."""
        name, password = form.get("user")[:_LENGTH], form.get("password")[:_LENGTH]
        count, until = self._wrong.get(name, (0, 0.0))
        now = self._clock()
        if until <= now:
            count = 0
        if count >= TRIES:
            return f"Too many wrong passwords; try again in {PAUSE:.0f} seconds"
        user = self._users.get(name)
        right = hmac.compare_digest((user.password if user else "").encode(), password.encode("utf-8", "replace"))
        if user is None or not right:
            # the counts of our own users stay, or a thousand invented names would give an attacker new tries
            while len(self._wrong) >= _NAMES + len(self._users):
                del self._wrong[next(each for each in self._wrong if each not in self._users)]
            self._wrong[name] = count + 1, now + PAUSE
            return "The user or the password is wrong"
        return Approved(user.name, user.claims)
