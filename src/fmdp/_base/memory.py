"""Available memory, and readable sizes and counts."""

from __future__ import annotations

import math
import os
from pathlib import Path


def available_memory() -> int:
    """Return the bytes available without swapping, within the limits of container and process."""
    limits = (_meminfo(), _cgroup(), _process())
    known = [value for value in limits if value is not None]
    if known:
        return min(known)
    try:
        return int(os.sysconf("SC_PHYS_PAGES")) * int(os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        return 4 << 30


def _meminfo() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _cgroup() -> int | None:
    """Return what is left under a control group's limit (version 2), or None."""
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
        return None if limit == "max" else max(0, int(limit) - int(used))
    except (OSError, ValueError):
        return None


def _process() -> int | None:
    """Return what is left under the limits of this process (ulimit -v, -d), or None."""
    try:
        import resource

        pages = [int(word) for word in Path("/proc/self/statm").read_text().split()]
        left = []
        for limit, used in ((resource.RLIMIT_AS, pages[0]), (resource.RLIMIT_DATA, pages[5])):
            most, _ = resource.getrlimit(limit)
            if most != resource.RLIM_INFINITY:
                left.append(max(0, most - used * resource.getpagesize()))
        return min(left, default=None)
    except (ImportError, OSError, ValueError, IndexError):
        return None


def describe_bytes(value: int) -> str:
    """Return 1.5 GB rather than 1610612736; powers of 1024, exact below one kilobyte."""
    if value >= 1 << 60:  # a predicted size may exceed the range of floats
        return f"{describe_count(value >> 40)} TB"
    size = float(value)
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if size < 1024 or unit == "TB":
            return f"{value} bytes" if unit == "bytes" else f"{size:.3g} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def describe_count(value: int) -> str:
    """Return an exact count below 10^15, else its magnitude, for integers of any length."""
    return f"{value:,}" if value < 10**15 else f"about 10^{math.floor(math.log10(value))}"
