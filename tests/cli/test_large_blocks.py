"""What was large and is free is the system's again, although what is small and was made beside it stays."""

from __future__ import annotations

import subprocess
import sys

import pytest

MIB = 1 << 20
PROGRAM = """
import resource
from dragoman.cli.serving.large_blocks import return_large_blocks

def memory():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

return_large_blocks()
large = bytearray(30 << 20)
del large  # from here on glibc would take blocks up to this size from among the small ones
before = memory()
blocks, stay = [], []
for number in range(100):
    blocks.append(bytearray(2 << 20))
    stay.append(bytearray(100 << 10))
del blocks
print(memory() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's alone")
def test_large_blocks_are_given_back() -> None:
    grown = int(subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, timeout=60).stdout)
    assert grown < 60 * MIB, "10 MiB of small ones stay, and 200 MiB of large ones do not"
