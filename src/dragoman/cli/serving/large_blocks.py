"""Has the C library give large blocks back to the system as soon as they are free.

Each large answer is such a block, several times while it is made. glibc asks the system for a block of its
own above a size, and moves that size up to 32 MiB once such a block was freed; from then on large blocks lie between
small ones, and a server that has sent many large answers keeps several times what it holds.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Final

SIZE: Final = 128 * 1024
"""Bytes from which on a block is the system's: glibc's own value until a larger block is freed."""
_M_MMAP_THRESHOLD: Final = -3


def return_large_blocks() -> None:
    """Fix that size for this process; no effect with another library than glibc."""
    if sys.platform == "linux":
        try:
            ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, SIZE)
        except (OSError, AttributeError):  # musl, an allocator of one's own
            return
