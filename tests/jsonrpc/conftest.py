"""hypothesis measures no time here: the machine may be busy with other things."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("dragoman", deadline=None)
settings.load_profile("dragoman")
