"""What to try next when a sandbox cannot be set up as planned. A table; each row says what is lost, in words.

The command has not run when a step fails, so trying again is safe. Nothing is given up that a later row could keep.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Mode = Literal["overlay", "copy", "landlock", "plain", "remote", "seatbelt"]
"""overlay: namespaces and a kernel overlay. copy: namespaces and a staged copy, still at the project's own path.
landlock: no namespaces; a staged copy at a path of its own, confined by Landlock and seccomp. plain: no namespaces but
those of a container, which has the staged copy at the project's own path. remote: the same in a container that only
its engine's command line reaches. seatbelt: as landlock, but on macOS, and
confined by Seatbelt; nothing weaker follows it."""

ELSEWHERE: tuple[Mode, ...] = ("landlock", "seatbelt")
"""Modes without a mount namespace: the copy is at a path of its own, and the host's files are in sight."""


CONTAINERS: tuple[Mode, ...] = ("plain", "remote")
"""Modes in which a container is made for what a command is to see."""


class Next(NamedTuple):
    mode: Mode
    lost: str


_NO_NAMESPACES = (
    "user namespaces are not permitted here: the command works in a copy at another path, confined by Landlock and "
    "seccomp; it can see which files and processes exist, but not read outside its directories or write there"
)

BARE_LOST = (
    "user namespaces are not permitted here: the command works in a copy at another path, and Landlock keeps it from "
    "writing elsewhere; sockets of all that runs on this machine, and its processes, are in sight"
)
"""Instead of that, at level 0."""

AFTER: dict[tuple[Mode, str], Next] = {
    ("overlay", "overlay"): Next("copy", "no kernel overlay can be laid over this project: working in a copy of it"),
    ("overlay", "clone"): Next("landlock", _NO_NAMESPACES),
    ("overlay", "map_ids"): Next("landlock", _NO_NAMESPACES),
    ("overlay", "private"): Next("landlock", _NO_NAMESPACES),
    ("overlay", "root"): Next("landlock", _NO_NAMESPACES),
    ("overlay", "host"): Next("landlock", _NO_NAMESPACES),
    ("overlay", "proc"): Next("landlock", _NO_NAMESPACES),
    ("copy", "clone"): Next("landlock", _NO_NAMESPACES),
    ("copy", "map_ids"): Next("landlock", _NO_NAMESPACES),
    ("copy", "private"): Next("landlock", _NO_NAMESPACES),
    ("copy", "root"): Next("landlock", _NO_NAMESPACES),
    ("copy", "host"): Next("landlock", _NO_NAMESPACES),
    ("copy", "proc"): Next("landlock", _NO_NAMESPACES),
}
"""By mode and the op of the step that failed."""

_ONLY_THE_CONTAINERS = (
    "the container engine permits no user namespaces in its containers: the command works in a copy of the project and "
    "shares a container with what else runs in this fork; programs that heed no proxy have no network"
)
_IN_A_CONTAINER = ("clone", "map_ids", "private", "root", "image", "proc")
AFTER_IN_A_CONTAINER: dict[tuple[Mode, str], Next] = {
    ("overlay", "overlay"): AFTER[("overlay", "overlay")],
    **{("overlay", op): Next("plain", _ONLY_THE_CONTAINERS) for op in _IN_A_CONTAINER},
    **{("copy", op): Next("plain", _ONLY_THE_CONTAINERS) for op in _IN_A_CONTAINER},
}
"""At level 2, instead."""
