"""The note about a fork that is mounted for the user's own tools.

    forks/<name>/mount           kind, "rw" or "ro", when it was mounted (nanoseconds) and the time of that boot, device
                                 and inode of the mounted directory (0 until it is mounted), the directory
    forks/<name>/mount-masked    the paths that are shown empty in it
    forks/<name>/mount-alive     locked by fuse-overlayfs as long as it runs

The note is written before the mount and removed after it, so every mount has a note.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from mudroom.core.clock import CommandStart
from mudroom.errors import MudroomError
from mudroom.stage import safe_open
from mudroom.typing import TYPE_CHECKING, NamedTuple, cast
from mudroom.vault.sync import sync_directory

if TYPE_CHECKING:
    from mudroom.stage.views.mount import Kind

NOTE, MASKED, ALIVE = b"/mount", b"/mount-masked", b"/mount-alive"


class MountNote(NamedTuple):
    kind: Kind
    writable: bool
    since: CommandStart
    identity: tuple[int, int]
    """Device and inode of the mounted directory; zeros: it was not mounted yet when this was written."""
    place: bytes

    @property
    def is_content(self) -> bool:
        """Whether the fork's files must be read from the mounted directory, because its layers are incomplete or have
        another format."""
        return self.writable and self.kind != "overlay"


def read_note(fork: bytes) -> MountNote | None:
    """Return the note in a fork's directory, or None. Raise MudroomError if it is damaged."""
    try:
        with open(fork + NOTE, "rb", buffering=0) as stream:
            words = stream.read().split(b" ", 6)
    except FileNotFoundError:
        return None
    try:
        kind, mode, since, boot, device, inode, place = words
        note = MountNote(
            cast("Kind", kind.decode()),
            mode == b"rw",
            CommandStart(int(since), int(boot)),
            (int(device), int(inode)),
            place,
        )
        if note.kind not in ("overlay", "fuse", "copy") or not place.startswith(b"/"):
            raise ValueError
    except ValueError:
        name = os.fsdecode(fork.rpartition(b"/")[2])
        hint = f"remove {os.fsdecode(fork + NOTE)}"
        raise MudroomError(f"the note of the mount of {name} is damaged", hint) from None
    return note


def write_note(fork: bytes, note: MountNote) -> None:
    """Replace the note, durably: without it, a layer with fuse-overlayfs's marks would be taken for a kernel overlay's
    layer."""
    mode = b"rw" if note.writable else b"ro"
    numbers = b"%d %d %d %d" % (*note.since, *note.identity)
    safe_open.replace(fork + NOTE, b" ".join((note.kind.encode(), mode, numbers, note.place)))
    sync_directory(fork)


def remove_note(fork: bytes) -> None:
    for name in (NOTE, MASKED, ALIVE):
        with suppress(FileNotFoundError):
            os.unlink(fork + name)


def write_masked(fork: bytes, paths: Iterable[bytes]) -> None:
    safe_open.replace(fork + MASKED, b"\0".join(sorted(paths)))


def read_masked(fork: bytes) -> frozenset[bytes]:
    try:
        with open(fork + MASKED, "rb") as stream:
            return frozenset(stream.read().split(b"\0")) - {b""}
    except FileNotFoundError:
        return frozenset()
