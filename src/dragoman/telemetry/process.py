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

from ..system.limits import most_files, open_files, process_memory
from .figures import MetricFamily, MetricSample
from .instruments import PREFIX, instrument_of

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
    began, virtual, resident = process_memory()
    if resident is not None and virtual is not None:
        found.append(_gauge("process_resident_memory_bytes", "Memory that is resident.", resident))
        found.append(_gauge("process_virtual_memory_bytes", "Memory that is mapped.", virtual))
    found.append(_gauge("process_start_time_seconds", "When it was started, in Unix seconds.", began or _BEGAN))
    if (files := open_files()) is not None:
        found.append(_gauge("process_open_fds", "File descriptors that are open.", files))
    if (most := most_files()) is not None:
        found.append(_gauge("process_max_fds", "File descriptors that may be open.", most))
    return found


def _counter(name: str, help: str, value: float) -> MetricFamily:
    return MetricFamily(name, "counter", help, [MetricSample((), value)])


def _gauge(name: str, help: str, value: float) -> MetricFamily:
    return MetricFamily(name, "gauge", help, [MetricSample((), value)])
