"""Table of fallbacks for a sandbox that cannot be set up as planned. Each row has a text that tells the user which
protection is lost.

A setup step fails before the command runs, so another attempt is safe. Each row gives up only what no later row could
keep.
"""

from __future__ import annotations

from mudroom.typing import Literal, NamedTuple

Mode = Literal["overlay", "copy", "landlock", "plain", "remote", "seatbelt", "job"]
"""overlay: namespaces and a kernel overlay. copy: namespaces and a staged copy, at the project's own path. landlock: no
namespaces; a staged copy at another path, confined by Landlock and seccomp. plain: only a container's namespaces, with
the staged copy at the project's own path. remote: like plain, in a container that is reached only through its engine's
command line. seatbelt: like landlock, but on macOS and confined by Seatbelt; no weaker mode follows. job: likewise on
Windows, confined by an AppContainer, at level 0 by a restricted token, in a job."""

ELSEWHERE: tuple[Mode, ...] = ("landlock", "seatbelt", "job")
"""Modes without a mount namespace: the copy is at another path, and the host's files are visible."""


CONTAINERS: tuple[Mode, ...] = ("plain", "remote")
"""Modes in which the container is created with the command's mounts."""


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
"""Replaces ``_NO_NAMESPACES`` at level 0."""

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
"""The next mode, by mode and by the op of the step that failed."""

_ONLY_THE_CONTAINERS = (
    "the container engine permits no user namespaces in its containers: the command works in a copy of the project and "
    "shares a container with what else runs in this fork; programs that ignore proxy settings have no network"
)
_IN_A_CONTAINER = ("clone", "map_ids", "program", "private", "root", "image", "proc")
AFTER_IN_A_CONTAINER: dict[tuple[Mode, str], Next] = {
    ("overlay", "overlay"): AFTER[("overlay", "overlay")],
    **{("overlay", op): Next("plain", _ONLY_THE_CONTAINERS) for op in _IN_A_CONTAINER},
    **{("copy", op): Next("plain", _ONLY_THE_CONTAINERS) for op in _IN_A_CONTAINER},
}
"""Replaces ``AFTER`` at level 2."""
