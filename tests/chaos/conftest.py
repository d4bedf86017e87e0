"""The supervisors that the tests of workers use."""

from __future__ import annotations

from tests.workers.conftest import starter

__all__ = ["starter"]
