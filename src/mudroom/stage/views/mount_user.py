"""Find the processes that still use an unmounted mount, and the servers behind FUSE mounts.

A mount lives on in copies of the mount namespace in which it was made (mount_namespaces(7)). Sandbox launchers have
such copies and never use them, so a mount may survive its unmount without any user.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

from mudroom.core.tree.path import show
from mudroom.stage.views.released import SandboxProcess


def users_of(device: int) -> list[SandboxProcess]:
    """Return the processes with an open or mapped file, a working directory or a root on a device. Processes that this
    user may not examine are left out: they belong to another user, to whom these mounts are closed."""
    mapped = f" {os.major(device):02x}:{os.minor(device):02x} ".encode()
    return sorted(
        SandboxProcess(pid, show(b" ".join(words)) or "?")
        for pid, words in _processes()
        if _uses(b"/proc/%d" % pid, device, mapped)
    )


def _processes() -> Iterator[tuple[int, list[bytes]]]:
    for name in os.listdir(b"/proc"):
        if name.isdigit():
            try:
                with open(b"/proc/" + name + b"/cmdline", "rb") as stream:
                    words = stream.read(16384).rstrip(b"\0").split(b"\0")
            except OSError:
                continue  # ended meanwhile
            yield int(name), words


def _uses(process: bytes, device: int, mapped: bytes) -> bool:
    try:
        files = [process + b"/fd/" + name for name in os.listdir(process + b"/fd")]
        for path in (process + b"/cwd", process + b"/root", *files):
            try:
                if os.stat(path).st_dev == device:
                    return True
            except OSError:
                continue  # closed meanwhile, or on a FUSE mount whose server has ended
        with open(process + b"/maps", "rb") as stream:
            return mapped in stream.read()
    except OSError:
        return False


def end_server(place: bytes, upper: bytes) -> int | None:
    """Send SIGTERM to the fuse-overlayfs that serves a mounted place. Return its pid, or None if there is none."""
    for pid, words in _processes():
        if words[0].endswith(b"/fuse-overlayfs") and place in words and any(upper in word for word in words):
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                continue
            return pid
    return None
