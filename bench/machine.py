"""What the numbers were measured on."""

from __future__ import annotations

import os
import platform
import pwd

import mudroom
from mudroom.stage.views.preflight import filesystem, mounts


def facts(directory: bytes) -> dict[str, str]:
    return {
        "mudroom": mudroom.__version__,
        "kernel": platform.release(),
        "processors": f"{os.cpu_count()} x {_processor()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "file system": filesystem(os.path.realpath(directory), mounts()) or "unknown",
        "python": platform.python_version(),
        "user": f"{_user()} (uid {os.geteuid()})",
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as stream:
            named = [line.partition(":")[2].strip() for line in stream if line.startswith("model name")]
    except OSError:
        named = []
    return named[0] if named else platform.machine()


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return "?"
