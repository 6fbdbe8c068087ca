"""What the numbers were measured on."""

from __future__ import annotations

import os
import platform
import pwd
import subprocess
import time

import mudroom
from mudroom.stage.views.preflight import filesystem, mounts


def facts(directory: bytes) -> dict[str, str]:
    return {
        "mudroom": mudroom.__version__,
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "kernel": platform.release(),
        "processors": f"{os.cpu_count()} x {_processor()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "file system": _filesystem(os.path.realpath(directory)),
        "python": platform.python_version(),
        "user": f"{_user()} (uid {os.geteuid()})",
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


def _filesystem(directory: bytes) -> str:
    """Return the kind. ext4 without a journal, as on images of virtual machines, takes longer to make files where many
    were removed a moment ago (fs/ext4/ialloc.c, recently_deleted), and less to sync."""
    kind = filesystem(directory, mounts()) or "unknown"
    device = os.stat(directory).st_dev
    name = os.path.basename(os.path.realpath(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"))
    if kind != "ext4" or not os.path.exists(f"/sys/fs/ext4/{name}"):
        return kind
    journals = os.listdir("/proc/fs/jbd2") if os.path.isdir("/proc/fs/jbd2") else []
    return kind if any(journal.startswith(name + "-") for journal in journals) else f"{kind} without a journal"


def commit() -> str:
    """Return the commit of this checkout, with a + if files differ from it; "unknown" without git."""
    here = os.path.dirname(os.path.abspath(__file__))
    git = ["git", "-c", f"safe.directory={os.path.dirname(here)}", "-C", here]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+" if changed.stdout else "")


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
