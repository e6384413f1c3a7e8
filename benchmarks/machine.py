"""Where a measurement was made: one pinned processor, and the versions of everything that took part."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import tidegate


def pin() -> int | None:
    """Run on one processor from now on, the last one allowed; its number, or None if that cannot be done."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    last = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {last})
    return last


def description(distributions: Iterator[str] | list[str]) -> str:
    """Machine, interpreter and versions, a line each."""
    lines = [
        f"{platform.system()} {platform.machine()}, {_processor()}, {os.cpu_count()} processors",
        f"{platform.python_implementation()} {platform.python_version()}, {_build()}",
        f"tidegate {tidegate.__version__} ({tidegate.__impl__})",
    ]
    for name in distributions:
        with contextlib.suppress(metadata.PackageNotFoundError):
            lines.append(f"{name} {metadata.version(name)}")
    with contextlib.suppress(OSError):
        lines.append("load average at the start: " + " ".join(f"{load:.2f}" for load in os.getloadavg()))
    return "\n".join(lines)


def resident_bytes() -> int | None:
    """The memory that this process holds; None where the system does not say."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return None
    return int(statm.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "processor unknown"


def _build() -> str:
    import sysconfig

    options = sysconfig.get_config_var("CONFIG_ARGS") or ""
    optimised = "--enable-optimizations" in options
    return f"{'with' if optimised else 'without'} profile-guided optimisation, {sys.api_version} API"
