"""`python -m dragoman` is the command."""

from __future__ import annotations

from .cli import main

main()
