"""Which names of an app are enabled: by name, by tag, by kind, and by the apps that they are included from.

Rules:

- What is named last counts: `enable("tool", "erase")` over a disabled tag, and a tag that is disabled later over that.
- A disabled tag or kind holds for what is registered later too. What has two disabled tags is enabled again when both
  are.
- Each app switches for itself. What an app disabled stays so there, also where an included app enables it; what an
  included app disabled is in no app around it, also where those enable it.
- What is disabled by its name stays so when it is defined again, or taken out of an included app and put there again.
  An app that removes a name of its own forgets it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable

from msgspec import Struct


class Switch(Struct, eq=False):
    """How one name is switched. `given`: whether the app that it is included from has it; True for what is included
    from none."""

    kind: str
    tags: frozenset[str]
    given: bool
    named: bool | None = None
    """Whether it was enabled or disabled by its name; None: neither, or it counts no more."""


class Switches:
    """The switches of one app. `key`: what a name is known by, such as the name of a method."""

    def __init__(self) -> None:
        self._tags: frozenset[str] = frozenset()
        self._kinds: frozenset[str] = frozenset()
        """The kinds that are disabled."""
        self._of: dict[Hashable, Switch] = {}
        self._gone: dict[Hashable, Switch] = {}
        """The switches of names that may be added again: each was disabled by its name."""

    def takes(self, key: Hashable, kind: str, tags: Collection[str]) -> bool:
        """Whether a name of this kind with these tags is enabled when it is added, or added again."""
        return key not in self._gone and self.allows(kind, tags)

    def allows(self, kind: str, tags: Collection[str]) -> bool:
        """Whether a name of this kind with these tags is enabled, of which nothing was said by its name."""
        return kind not in self._kinds and self._tags.isdisjoint(tags)

    def add(self, key: Hashable, kind: str, tags: frozenset[str], given: bool) -> None:
        """Add a name, which may have been removed before."""
        self._of[key] = Switch(kind, tags, given, None if self._gone.pop(key, None) is None else False)

    def remove(self, key: Hashable, *, back: bool = False) -> None:
        """Forget a name; `back`: it may be added again, and is disabled then if it was by its name."""
        one = self._of.pop(key, None)
        if back and one is not None and one.named is False:
            self._gone[key] = one

    def on(self, key: Hashable) -> bool:
        """Whether a name is enabled."""
        one = self._of[key]
        return one.given and (self.allows(one.kind, one.tags) if one.named is None else one.named)

    def give(self, key: Hashable, on: bool) -> None:
        """Follow the app that a name is included from, which has switched it."""
        self._of[key].given = on

    def name(self, keys: Iterable[Hashable], on: bool) -> None:
        """Switch these names."""
        for key in keys:
            self._of[key].named = on

    def turn(self, kind: str | None, tag: str | None, on: bool) -> list[Hashable]:
        """Switch a kind, or a tag. Returns the names that it concerns."""
        kinds, tags = frozenset([kind] if kind else ()), frozenset([tag] if tag else ())
        self._kinds = self._kinds - kinds if on else self._kinds | kinds
        self._tags = self._tags - tags if on else self._tags | tags
        if on:  # what is said last counts, of what is not here too
            gone = self._gone.items()
            self._gone = {key: one for key, one in gone if one.kind != kind and tag not in one.tags}
        found = [key for key, one in self._of.items() if one.kind == kind or tag in one.tags]
        for key in found:
            if self._of[key].named is not on:
                self._of[key].named = None
        return found
