"""What an accomplice does to files that are reviewed, applied, undone or sealed, through descriptors that it was
given: between the review and the apply, again and again while it is applied, and after it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from typing import NamedTuple

TOP = "land"
"""The directory of the giver's project that lands. It has one directory for each attempt."""
PLANTED = b"PLANTED"
WHEN = ("before", "during", "after")


class Landing(NamedTuple):
    name: str
    tries: str
    given: str
    """A key of ``OPENED``."""
    act: Callable[[int, mmap.mmap | None], None]
    when: str


OPENED: dict[str, int] = {
    "written": os.O_RDWR, "read": os.O_RDONLY, "path": os.O_PATH, "directory": os.O_RDONLY | os.O_DIRECTORY,
}  # fmt: skip


def reviewed(name: str) -> bytes:
    return f"reviewed {name} ".encode() * 8 + b"\n"


def rewrite(descriptor: int, _area: mmap.mmap | None) -> None:
    os.pwrite(descriptor, PLANTED, 0)


def grow(descriptor: int, _area: mmap.mmap | None) -> None:
    os.pwrite(descriptor, PLANTED, 4096)


def empty(descriptor: int, _area: mmap.mmap | None) -> None:
    os.ftruncate(descriptor, 0)


def store(_descriptor: int, area: mmap.mmap | None) -> None:
    """A store into a shared page that is dirty already changes neither ctime nor mtime."""
    assert area is not None
    area[: len(PLANTED)] = PLANTED


def reopen(descriptor: int, _area: mmap.mmap | None) -> None:
    again = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY)
    os.pwrite(again, PLANTED, 0)
    os.close(again)


def permit(descriptor: int, _area: mmap.mmap | None) -> None:
    os.fchmod(descriptor, 0o4777)


def attribute(descriptor: int, _area: mmap.mmap | None) -> None:
    os.setxattr(descriptor, "user.planted", PLANTED)


def stamp(descriptor: int, _area: mmap.mmap | None) -> None:
    os.utime(descriptor, (1, 1))


def plant(descriptor: int, _area: mmap.mmap | None) -> None:
    os.close(os.open("conftest.py", os.O_WRONLY | os.O_CREAT, 0o755, dir_fd=descriptor))


def replace(descriptor: int, _area: mmap.mmap | None) -> None:
    new = os.open("new", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=descriptor)
    os.write(new, PLANTED)
    os.close(new)
    os.rename("new", "file", src_dir_fd=descriptor, dst_dir_fd=descriptor)


def remove(descriptor: int, _area: mmap.mmap | None) -> None:
    os.unlink("file", dir_fd=descriptor)


def link(descriptor: int, _area: mmap.mmap | None) -> None:
    os.symlink("/etc", "linked", dir_fd=descriptor)


def climb(descriptor: int, _area: mmap.mmap | None) -> None:
    """The giver opened ``deep``: above it is its attempt's own directory, wherever that lies now."""
    os.close(os.open("../climbed", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=descriptor))


_ACTS: tuple[tuple[str, str, str, Callable[[int, mmap.mmap | None], None]], ...] = (
    ("rewrite", "a file is written through its descriptor", "written", rewrite),
    ("grow", "a file grows", "written", grow),
    ("truncate", "a file is emptied", "written", empty),
    ("mapped", "a dirty page of a file is changed in shared memory", "written", store),
    ("reopened", "a file is written through a descriptor without rights, opened again", "path", reopen),
    ("readonly", "a file is written through a read-only descriptor, opened again", "read", reopen),
    ("mode", "a file becomes set-user-ID and writable by everybody", "written", permit),
    ("attribute", "a file gets an extended attribute", "written", attribute),
    ("stamp", "a file gets another time", "written", stamp),
    ("plant", "a file is planted through a directory", "directory", plant),
    ("replace", "a file is replaced through its directory", "directory", replace),
    ("remove", "a file is removed through its directory", "directory", remove),
    ("link", "a link out is planted through a directory", "directory", link),
    ("climb", "a file is planted above a directory", "directory", climb),
)
LANDINGS: dict[str, Landing] = {
    f"{name}_{when}": Landing(f"{name}_{when}", tries, given, act, when)
    for name, tries, given, act in _ACTS
    for when in WHEN
}


def make(names: list[str]) -> dict[str, int]:
    """Make the files of attempts in the giver's project, and return their descriptors."""
    held = {}
    for name in names:
        landing = LANDINGS[name]
        place = f"{TOP}/{name}"
        os.makedirs(f"{place}/deep")
        with open(f"{place}/file", "wb") as stream:
            stream.write(reviewed(name))
        with open(f"{place}/deep/file", "wb") as stream:
            stream.write(reviewed(name))
        opened = place if landing.given == "directory" else f"{place}/file"
        opened += "/deep" if name.startswith("climb") else ""
        held[name] = os.open(opened, OPENED[landing.given] | os.O_CLOEXEC)
    return held


def mapped(descriptor: int) -> mmap.mmap:
    """Return a shared mapping of a file whose first page is dirty, with the content unchanged."""
    area = mmap.mmap(descriptor, 0)
    area[0:1] = area[0:1]
    return area
