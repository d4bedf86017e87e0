"""What the system knows of this process, under the names that Prometheus' own clients use, and which version it runs.

What a system does not report is left out; Linux reports all of it. The numbers of several processes are added up,
except the start, of which the first counts.
"""

from __future__ import annotations

import os
import platform
import sys
from time import time as now
from typing import Final

from .figures import MetricFamily, MetricSample
from .instruments import PREFIX, instrument_of

if sys.platform != "win32":
    import resource

_BEGAN: Final = now()
"""When this was imported; the system may know better when the process began."""
BUILD: Final = "build_info"


def process_families() -> list[MetricFamily]:
    """Return the families of this process, as they are now."""
    version: str = sys.modules["dragoman"].__version__  # the package's door, which imports downwards
    labels = (("version", version), ("python", platform.python_version()))
    build = instrument_of(BUILD)
    used = os.times()
    found = [
        MetricFamily(f"{PREFIX}{BUILD}", build.kind, build.help, [MetricSample(labels, 1)]),
        _counter("process_cpu_seconds_total", "User and system time.", used.user + used.system),
    ]
    began, virtual, resident = _from_proc()
    if resident is not None and virtual is not None:
        found.append(_gauge("process_resident_memory_bytes", "Memory that is resident.", resident))
        found.append(_gauge("process_virtual_memory_bytes", "Memory that is mapped.", virtual))
    found.append(_gauge("process_start_time_seconds", "When it was started, in Unix seconds.", began or _BEGAN))
    if (files := _open_files()) is not None:
        found.append(_gauge("process_open_fds", "File descriptors that are open.", files))
    if (most := _most_files()) is not None:
        found.append(_gauge("process_max_fds", "File descriptors that may be open.", most))
    return found


def _counter(name: str, help: str, value: float) -> MetricFamily:
    return MetricFamily(name, "counter", help, [MetricSample((), value)])


def _gauge(name: str, help: str, value: float) -> MetricFamily:
    return MetricFamily(name, "gauge", help, [MetricSample((), value)])


def _from_proc() -> tuple[float | None, int | None, int | None]:
    """Return when the process was started, its virtual and its resident bytes; None where there is no /proc
    (proc(5))."""
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


def _most_files() -> int | None:
    if sys.platform == "win32":
        return None
    limit: int = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _open_files() -> int | None:
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder)) - 1  # one is that of the folder itself
        except OSError:
            continue
    return None
