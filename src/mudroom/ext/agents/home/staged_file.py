"""Files in a fork's own part of the home: read, copied and removed by descriptor.

Sandboxes write in the directories. No link is followed, no open blocks, and everything is bounded.
"""

from __future__ import annotations

import json
import os
import stat
from _blake2 import blake2b
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from mudroom.core.system.closing import Descriptor
from mudroom.ext.agents.core.home_change import HomeFile
from mudroom.stage import disk, safe_open
from mudroom.stage.beneath import O_PATH, directory, entries, handle, look, open_beneath, open_file
from mudroom.stage.copy import copy_content
from mudroom.stage.layers.layer import remove_at
from mudroom.typing import Any

MOST_FILES, MOST_BYTES, MOST_LEVELS = 8_192, 128 << 20, 32
"""Bounds for one store that is copied or searched."""


def walk(root: int, skip: Callable[[bytes], bool]) -> Iterator[tuple[bytes, HomeFile, int]]:
    """Yield each file and link below a directory, with its size. No link is followed."""
    pending = [(b"", 0)]
    while pending:
        above, level = pending.pop()
        with suppress(PermissionError), directory(root, above) as opened:  # closed to us, and so to every command
            listed = entries(opened)
            for name, entry in sorted(listed.items()):
                path = above + b"/" + name if above else name
                if skip(path):
                    continue
                if entry.kind == "directory" and level < MOST_LEVELS:
                    pending.append((path, level + 1))
                elif entry.kind == "symlink":
                    yield path, HomeFile("link:" + os.fsdecode(entry.target), 0), 0
                elif entry.kind == "file" and entry.size <= MOST_BYTES:
                    try:
                        read = open_file(opened, name)
                    except PermissionError:
                        continue  # closed to us, and so to every command
                    with open(read, "rb") as stream:
                        content = stream.read(MOST_BYTES + 1)
                    yield path, HomeFile(digest_of(content), entry.mode & 0o777), len(content)


def open_own(path: bytes) -> int:
    """Return a descriptor for a directory of the fork's own, which is made if it is missing. If a command has removed
    its permissions, they are restored. Raise MudroomError if it is a link or a file."""
    try:
        return safe_open.make_directory(path)
    except PermissionError:
        with Descriptor(os.open(path, O_PATH | disk.O_DIRECTORY | disk.O_NOFOLLOW | disk.O_CLOEXEC)) as found:
            disk.set_mode_by(handle(found), 0o700)
        return safe_open.open_directory(path)


def digest_of(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


def mode_of(path: bytes) -> int:
    return stat.S_IMODE(os.stat(path, follow_symlinks=False).st_mode) & 0o777


def content_at(at: bytes, inside: bytes) -> bytes | None:
    """Return the content of the file ``at``, or of ``inside`` below it; None if it is missing or not readable."""
    try:
        if not inside:
            return safe_open.read(at)
        with Descriptor(safe_open.open_directory(at)) as root, open(open_file(root, inside), "rb") as stream:
            return stream.read(MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
        return None
    except OSError:
        return None  # a link: it has no content of the store's own


def make_parents(root: int, path: bytes) -> None:
    """Make the directories above a path. An entry in the way is removed, unless it is a directory."""
    parts = path.split(b"/")[:-1]
    for number in range(len(parts)):
        above, name = b"/".join(parts[:number]), parts[number]
        with directory(root, above) as opened:
            entry = look(opened, name)
            if entry is not None and entry.kind != "directory":
                disk.unlink(opened, name)
                entry = None
            if entry is None:
                disk.mkdir(opened, name, 0o700)
            elif entry.mode & stat.S_IRWXU != stat.S_IRWXU:
                with Descriptor(open_beneath(opened, name, O_PATH | disk.O_DIRECTORY)) as made:
                    disk.set_mode_by(handle(made), 0o700)


def copy_file(source: int, root: int, path: bytes, file: HomeFile) -> None:
    make_parents(root, path)
    above, _slash, name = path.rpartition(b"/")
    with directory(root, above) as opened:
        if look(opened, name) is not None:
            remove(opened, name)
        if file.digest.startswith("link:"):
            disk.symlink(opened, name, os.fsencode(file.digest[5:]))
            return
        with (
            Descriptor(open_file(source, path)) as read,
            Descriptor(
                disk.open_at(opened, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_CLOEXEC, 0o600)
            ) as write,
        ):
            copy_content(read, write, os.fstat(read).st_size)
            disk.set_mode_of(write, file.mode)


def remove(root: int, path: bytes) -> None:
    """Remove a file or a tree below a directory. A missing one is no error."""
    above, _slash, name = path.rpartition(b"/")
    with directory(root, above) as opened:
        remove_at(opened, name)


def give(path: bytes, user: int, group: int) -> None:
    """Change the owner of a file, or of a directory with everything in it. No link is followed."""

    def give_one(name: bytes, above: int | None) -> None:
        if disk.stat_at(above, name).st_uid != user:
            disk.set_owner(above, name, user, group)

    give_one(path, None)
    if os.path.isdir(path):
        for _directory, names, files, descriptor in os.fwalk(path):
            for name in (*names, *files):
                give_one(name, descriptor)


def overwrite(path: bytes, content: bytes, mode: int) -> None:
    with Descriptor(safe_open.open_regular(path, os.O_WRONLY)) as descriptor:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, content, 0)
        disk.set_mode_of(descriptor, mode)


# --- records beside the copies ---


def save(path: bytes, value: Any) -> None:
    """Replace a record. No link is followed, and no other file written through."""
    new = path + b".new"
    with open(safe_open.open_regular(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as stream:
        stream.write(json.dumps(value).encode())
    disk.rename_path(new, path)


def save_base(place: bytes, files: Mapping[bytes, HomeFile]) -> None:
    save(place + b"/base", {os.fsdecode(file): files[file] for file in sorted(files)})


def load_base(place: bytes) -> dict[bytes, HomeFile]:
    """Return the files that were copied, by path; empty if none were."""
    try:
        saved = json.loads(safe_open.read(place + b"/base"))
    except FileNotFoundError:
        return {}
    return {os.fsencode(file): HomeFile(digest, mode) for file, (digest, mode) in saved.items()}
