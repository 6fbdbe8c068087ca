"""Test whether any process can still reach an overlay whose command has ended (``src/native/launcher/probe.c``), and
find it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from mudroom.core.system.launcher import LAUNCHER, PROTOCOL
from mudroom.core.tree.path import show
from mudroom.stage.layers.layer import remove_tree
from mudroom.typing import NamedTuple

PATIENCE = 0.5
"""Seconds to wait until a mount is gone. The kernel ends it a few milliseconds after a sandbox's last process, later if
a killed sandbox's processes have much memory to free."""


class SandboxProcess(NamedTuple):
    pid: int
    command: str


def released(uppers: Sequence[bytes], scratch: bytes) -> list[bool]:
    """Return, for each overlay upper directory, whether it is proven that no process can reach its files through a
    mount. False also if this cannot be determined. ``scratch``: a new directory on the same mount, removed at the
    end."""
    if sys.platform != "linux":
        return [False] * len(uppers)
    os.mkdir(scratch, 0o700)
    read, write = os.pipe()
    try:
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, write, 1),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        try:
            words: list[str | bytes] = [PROTOCOL, "probe", str(PATIENCE), scratch, *uppers]
            pid = os.posix_spawn(LAUNCHER, words, {}, file_actions=actions)
        except OSError:
            return [False] * len(uppers)  # no process can be started, or the program at that path is gone
        os.close(write)
        write = -1
        answer = b""
        while part := os.read(read, 4096):
            answer += part
        os.waitpid(pid, 0)
    finally:
        for descriptor in (read, write):
            if descriptor >= 0:
                os.close(descriptor)
        remove_tree(scratch)
    if len(answer) != len(uppers):
        return [False] * len(uppers)
    return [letter == ord("0") for letter in answer]


def processes_in(upper: bytes, project: bytes) -> list[SandboxProcess]:
    """Return the living processes whose root shows the overlay with this upper directory as the project. Processes that
    this user may not examine are left out.

    An overlay's root directory has its upper directory's inode number, but another device.
    """
    top = os.stat(upper)
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            seen = os.stat(os.fsencode(f"/proc/{name}/root") + project)
            if (seen.st_ino, seen.st_dev == top.st_dev) != (top.st_ino, False):
                continue
            with open(f"/proc/{name}/cmdline", "rb") as stream:
                words = stream.read(256).rstrip(b"\0").replace(b"\0", b" ")
        except OSError:
            continue  # ended meanwhile, or another user's
        found.append(SandboxProcess(int(name), show(words) or "?"))
    return sorted(found)
