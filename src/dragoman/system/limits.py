"""What the system lets this process have, and what it has."""

from __future__ import annotations

import os
import sys

if sys.platform == "win32":

    def most_files() -> int | None:
        """Return how many files this process may have open; None where that is not limited, or not known."""
        return None

else:
    import resource

    def most_files() -> int | None:
        """Return how many files this process may have open; None where that is not limited, or not known."""
        limit: int = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return None if limit == resource.RLIM_INFINITY else limit


def open_files() -> int | None:
    """Return how many files this process has open; None where the system does not say."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder)) - 1  # one is that of the folder itself
        except OSError:
            continue
    return None


def process_memory() -> tuple[float | None, int | None, int | None]:
    """Return when this process was started, in Unix seconds, its virtual and its resident bytes; None where there is no
    /proc (proc(5))."""
    if sys.platform != "linux":
        return None, None, None
    try:
        with open("/proc/self/stat", "rb") as file:
            # the name of the program is in parentheses and may have any in it
            fields = file.read().rpartition(b")")[2].split()
        with open("/proc/stat", "rb") as file:
            booted = next(float(line.split()[1]) for line in file if line.startswith(b"btime "))
        began = booted + int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return began, int(fields[20]), int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, StopIteration):
        return None, None, None


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
