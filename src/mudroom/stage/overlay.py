"""The overlay view: a kernel overlay of the fork's upper directory over the project.

Source of every format fact here: Documentation/filesystems/overlayfs.rst. In an upper directory

* a character device 0:0 is a whiteout (the name is gone), as is an empty file with the xattr
  ``user.overlay.whiteout`` in a directory marked ``x``;
* a directory with the xattr ``user.overlay.opaque`` = ``y`` hides everything below it;
* anything else replaces, or merges with (two directories), what lies below.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from mudroom.core.entry import Entry
from mudroom.core.spec import Overlay
from mudroom.stage.beneath import directory, entries, look, open_root
from mudroom.stage.view import Difference

OPAQUE, WHITEOUT = "user.overlay.opaque", "user.overlay.whiteout"


class OverlayView:
    kind = "overlay"

    def __init__(self, project: bytes, place: bytes) -> None:
        self._project = project
        self._upper = place + b"/upper"
        self._works = place + b"/work"
        self._current = b"1"

    @property
    def content(self) -> bytes:
        return self._upper

    def prepare(self, exclude: frozenset[bytes] = frozenset()) -> None:
        """The upper gets the project's own mode: it is what the root of the view shows.

        Every mount has a work directory of its own. A ``volatile`` overlay leaves a marker in it by which it refuses
        to be mounted again, in case the system has crashed; our forks have fingerprints for that.
        """
        del exclude  # an overlay shows everything and copies nothing
        try:
            os.mkdir(self._upper, 0o700)
            os.chmod(self._upper, stat.S_IMODE(os.stat(self._project).st_mode))
        except FileExistsError:
            pass
        os.makedirs(self._works, exist_ok=True)
        used = [int(name) for name in os.listdir(self._works) if name.isdigit()]
        self._current = b"%d" % (max(used, default=0) + 1)
        os.mkdir(self._works + b"/" + self._current, 0o700)

    def tidy(self) -> None:
        """Remove the work directories of earlier mounts. They hold nothing, but it takes a while."""
        for name in os.listdir(self._works):
            if name != self._current:
                remove_tree(self._works + b"/" + name)

    def mount(self) -> Overlay:
        return Overlay((self._project,), self._upper, self._works + b"/" + self._current)

    def differences(self, base: int, known: Mapping[bytes, Entry | None]) -> Iterator[Difference]:
        del known
        upper = open_root(self._upper)
        try:
            with loosened(upper) as enter:
                yield from _walk(upper, base, enter)
        finally:
            os.close(upper)


def remove_tree(path: bytes) -> None:
    """rm -r for a tree of ours in which directories may have lost their permissions. Never follows a link."""
    parent, _slash, name = path.rpartition(b"/")
    at = open_root(parent)
    try:
        _remove(at, name)
    finally:
        os.close(at)


def _remove(at: int, name: bytes) -> None:
    entry = look(at, name)
    if entry is None:
        return
    if entry.kind != "directory":
        os.unlink(name, dir_fd=at)
        return
    if entry.mode & 0o700 != 0o700:
        os.chmod(name, 0o700, dir_fd=at)
    pending = [name]
    while pending:  # depth first without recursion: a tree can be deeper than the interpreter's stack
        path = pending[-1]
        below = _clear_directory(at, path)
        if below:
            pending += below
        else:
            os.rmdir(path, dir_fd=at)
            pending.pop()


def _clear_directory(at: int, path: bytes) -> list[bytes]:
    """Unlink the files of a directory; returns the directories in it, made accessible."""
    below = []
    with directory(at, path) as opened, os.scandir(opened) as scan:
        for item in scan:
            name = os.fsencode(item.name)
            if item.is_dir(follow_symlinks=False):
                os.chmod(name, 0o700, dir_fd=opened)
                below.append(path + b"/" + name)
            else:
                os.unlink(name, dir_fd=opened)
    return below


@contextmanager
def loosened(root: int) -> Iterator[Callable[[bytes, Entry], None]]:
    """Gives a function that makes a directory of ours enterable whatever mode the command gave it.

    The modes are put back at the end of the block; the entries looked at before keep telling the real ones.
    """
    changed: list[tuple[bytes, int]] = []

    def enter(path: bytes, entry: Entry) -> None:
        if entry.mode & 0o700 != 0o700 and os.geteuid() == entry.uid != 0:
            os.chmod(path, entry.mode | 0o700, dir_fd=root)
            changed.append((path, entry.mode))

    try:
        yield enter
    finally:
        for path, mode in reversed(changed):
            os.chmod(path, mode, dir_fd=root)


def _walk(upper: int, base: int, enter: Callable[[bytes, Entry], None]) -> Iterator[Difference]:
    """Both trees side by side, directory by directory. Each pending item: path, whether the base has a directory
    there that shows through."""
    root_base, root_staged = look(base, b"."), look(upper, b".")
    if root_base is not None and root_staged is not None and root_base.mode != root_staged.mode:
        yield Difference(b"", root_base, root_staged)
    pending: list[tuple[bytes, bool]] = [(b"", True)]
    while pending:
        path, merged = pending.pop()
        prefix = path + b"/" if path else b""
        with directory(upper, path) as opened:
            staged = entries(opened)
            opaque = path != b"" and merged and _xattr(opened, OPAQUE) in (b"y", b"x")
            hidden = opaque and _xattr(opened, OPAQUE) == b"y"
            marked = {name for name, entry in staged.items() if opaque and _is_marked(opened, name, entry)}
        below = _base_entries(base, path) if merged else {}
        for name, entry in staged.items():
            at = prefix + name
            original = below.get(name)
            if entry.kind == "device" or name in marked:
                if original is not None:
                    yield from deleted(base, at, original)
            elif entry.kind == "directory":
                if original is None or original.kind != "directory" or original.mode != entry.mode:
                    yield Difference(at, original, entry)
                enter(at, entry)
                pending.append((at, original is not None and original.kind == "directory"))
            else:
                if original is not None and original.kind == "directory":
                    yield from deleted_below(base, at)
                yield Difference(at, original, entry)
        if hidden:
            for name, original in below.items():
                if name not in staged:
                    yield from deleted(base, prefix + name, original)


def _base_entries(base: int, path: bytes) -> dict[bytes, Entry]:
    try:
        with directory(base, path) as opened:
            return entries(opened)
    except (FileNotFoundError, NotADirectoryError):
        return {}  # the user removed it while the command ran


def deleted(base: int, path: bytes, original: Entry) -> Iterator[Difference]:
    """One whiteout as explicit deletions, of everything that the base has there."""
    yield Difference(path, original, None)
    if original.kind == "directory":
        yield from deleted_below(base, path)


def deleted_below(base: int, path: bytes) -> Iterator[Difference]:
    pending = [path]
    while pending:
        path = pending.pop()
        for name, entry in _base_entries(base, path).items():
            at = path + b"/" + name
            yield Difference(at, entry, None)
            if entry.kind == "directory":
                pending.append(at)


def _is_marked(opened: int, name: bytes, entry: Entry) -> bool:
    if entry.kind != "file" or entry.size:
        return False
    try:
        os.getxattr(b"/proc/self/fd/%d/%s" % (opened, name), WHITEOUT, follow_symlinks=False)
    except OSError:
        return False
    return True


def _xattr(opened: int, name: str) -> bytes:
    try:
        return os.getxattr(opened, name)
    except OSError:
        return b""


def private_directories(scratch: bytes) -> tuple[bytes, bytes]:
    """Without a mount namespace, home and /tmp are directories of the fork, fresh for every command."""
    if os.path.isdir(scratch):
        remove_tree(scratch)
    home, tmp = scratch + b"/home", scratch + b"/tmp"
    os.makedirs(home, mode=0o700)
    os.mkdir(tmp, 0o700)
    return home, tmp
