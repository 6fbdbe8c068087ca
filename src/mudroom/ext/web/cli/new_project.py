"""Choosing a folder to become a project: lists folders below a few roots, and measures the cost of staging.

1. A folder is at or below a root. It is opened by descriptor, component by component (``stage/beneath.py``): a symbolic
   link on the way is never followed, and paths are not merely compared as text.
2. No file is written, and no vault is created.
"""

from __future__ import annotations

import functools
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from mudroom.core.settings import Settings
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import is_below, relpath, show
from mudroom.core.tree.pattern import matches
from mudroom.core.tree.secret import ELSEWHERE, secret_test
from mudroom.errors import Refused, Unsupported, UsageError
from mudroom.session import Session
from mudroom.stage import disk
from mudroom.stage.beneath import directory, open_root
from mudroom.stage.exclude import left_out, megabytes, weight
from mudroom.stage.originals.snapshot import read_patterns
from mudroom.stage.source import DirectorySource, is_secret
from mudroom.stage.views.preflight import check_project
from mudroom.typing import NamedTuple
from mudroom.vault.store.store import Vault

MOST = 500
"""Maximum folders in a listing."""
ENTRIES = 200_000
SECONDS = 1.5
"""Maximum entries that a measurement visits, and maximum seconds that it takes."""
_MARKERS = (
    b".git", b".hg", b".jj", b".mudroom", b"package.json", b"pyproject.toml", b"setup.py", b"Cargo.toml", b"go.mod",
    b"pom.xml", b"build.gradle", b"build.gradle.kts", b"CMakeLists.txt", b"Makefile", b"composer.json", b"Gemfile",
    b"mix.exs", b"deno.json", b"flake.nix",
)  # fmt: skip
"""Names that mark a folder as a project."""


class Folder(NamedTuple):
    path: bytes
    """Absolute."""
    name: bytes
    is_project: bool = False
    problem: str = ""
    """Why it cannot be opened; empty if it can."""


class Listing(NamedTuple):
    folders: tuple[Folder, ...]
    more: int
    """Number of unlisted folders."""


@contextmanager
def open_folder(roots: Sequence[bytes], path: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the root and a descriptor for a folder at or below one of the roots. Raise UsageError if it is not, and
    OSError if it cannot be opened; ELOOP: a component is a symbolic link."""
    for root in sorted(roots, key=len):
        if not is_below(path, root):
            continue
        rest = path[len(root) :].strip(b"/")
        try:
            below = relpath(rest) if rest else b""
        except ValueError as error:
            raise UsageError(str(error)) from None
        if path != join(root, below):
            raise UsageError(f"{show(path)} is not a normalised path", f"write {show(join(root, below))}")
        top = open_root(root)
        try:
            with directory(top, below) as descriptor:
                yield root, descriptor
        finally:
            os.close(top)
        return
    raise UsageError(f"{show(path)} is not below a folder that may be looked into", "mudroom serve --root DIR")


def join(above: bytes, name: bytes) -> bytes:
    return above.rstrip(b"/") + b"/" + name if name else above


def list_folders(at: bytes, descriptor: int) -> Listing:
    """Return the folders in an open folder, hidden ones last. A symbolic link is listed, but not followed."""
    entries = _directories(descriptor)
    entries.sort(key=lambda entry: (entry[0].startswith(b"."), entry[0].lower(), entry[0]))
    rows = [
        Folder(join(at, name), name, False, "a symbolic link, which is not followed")
        if is_link
        else inspect_folder(join(at, name), name, descriptor)
        for name, is_link in entries[:MOST]
    ]
    return Listing(tuple(rows), len(entries) - len(rows))


def _directories(descriptor: int) -> list[tuple[bytes, bool]]:
    """Return the directories in an open folder, and links to directories: each with its name and whether it is a
    link."""
    if sys.platform == "win32":  # links are not opened there, whatever they lead to
        return [(name, False) for name, is_directory in disk.children(descriptor) if is_directory]
    entries = []
    with os.scandir(descriptor) as scan:
        for item in scan:
            try:
                if item.is_dir(follow_symlinks=False) or (item.is_symlink() and item.is_dir()):
                    entries.append((os.fsencode(item.name), item.is_symlink()))
            except OSError:
                continue  # deleted meanwhile, or a link that leads to itself
    return entries


def inspect_folder(path: bytes, name: bytes, above: int | None) -> Folder:
    """Return a folder's description. ``above``: its parent's descriptor; None: ``path`` is a root."""
    try:
        descriptor = open_root(path) if above is None else _open(name, above)
    except OSError as error:
        return Folder(path, name, False, (error.strerror or str(error)).lower())
    try:
        return describe_folder(path, name, descriptor)
    finally:
        os.close(descriptor)


def describe_folder(path: bytes, name: bytes, descriptor: int) -> Folder:
    """Return an open folder's description."""
    return Folder(path, name, any(_has(descriptor, marker) for marker in _MARKERS))


def _open(name: bytes, above: int) -> int:
    return disk.open_at(above, name, os.O_RDONLY | disk.O_DIRECTORY | disk.O_NOFOLLOW | disk.O_CLOEXEC)


def _has(descriptor: int, name: bytes) -> bool:
    try:
        disk.stat_at(descriptor, name)
        return True
    except OSError:
        return False


def why_no_project(path: bytes, home: bytes, state: bytes) -> str:
    """Return why a folder (a real path) cannot be a project, or an empty string."""
    if is_below(path, state):
        return f"{show(path)} is part of mudroom's own state"
    try:
        check_project(path, home, state)
    except UsageError as error:
        return error.message  # the hint is for the command line
    return ""


# --- cost of staging ---


class Measured(NamedTuple):
    files: int
    size: int
    """Bytes."""
    complete: bool
    """False: some entries were not visited."""
    copied: int
    """Bytes in a staged copy."""
    excluded: tuple[tuple[bytes, str], ...]
    """Paths that a copy would omit, largest first, with their sizes as text."""
    secrets: tuple[bytes, ...]
    unread: int
    """Directories without read permission."""


def measure(root: int, settings: Settings, clock: Callable[[], float] = time.monotonic) -> Measured:
    """Measure a folder. ``root``: its descriptor. Raise UsageError for an invalid pattern in the policy."""
    source = DirectorySource(root)
    items, complete, unread = _walked(source, clock() + SECONDS, clock)
    files = [(path, entry) for path, entry in items.items() if entry.kind != "directory"]
    kept, tops = left_out(
        items,
        functools.partial(read_patterns, source),
        exclude=settings.copy_exclude,
        limit=settings.copy_limit,
        gitignore=settings.copy_gitignore,
    )
    ordered = sorted(tops.items(), key=lambda item: (-item[1], item[0]))
    return Measured(
        len(files),
        weight(items),
        complete,
        weight(kept),
        tuple((path, megabytes(size)) for path, size in ordered),
        tuple(sorted(path for path, entry in files if entry.kind == "file" and _is_masked(source, path, settings))),
        unread,
    )


def _is_masked(source: DirectorySource, path: bytes, settings: Settings) -> bool:
    if not ELSEWHERE.isdisjoint(path.split(b"/")[:-1]) or matches(path, settings.secrets_show):
        return False
    return matches(path, settings.secrets_mask) or is_secret(source, path, secret_test(path))


def _walked(source: DirectorySource, until: float, clock: Callable[[], float]) -> tuple[dict[bytes, Entry], bool, int]:
    """Return the entries, each directory before its contents; whether they are complete; and the number of unreadable
    directories. Other file systems are listed but not entered."""
    top = os.fstat(source.root)
    entries: dict[bytes, Entry] = {}
    pending, unread = [b""], 0
    while pending:
        if len(entries) >= ENTRIES or clock() > until:
            return entries, False, unread
        path = pending.pop()
        try:
            names = source.names(path)
        except PermissionError:
            unread += 1
            continue
        for name, entry in names.items():
            child = path + b"/" + name if path else name
            entries[child] = entry
            if entry.kind == "directory" and entry.device == top.st_dev:
                pending.append(child)
    return entries, True, unread


class Outlook(NamedTuple):
    """The conditions for a command in a folder, if the folder were a project."""

    settings: Settings
    level: int | None
    """None: the command would be refused; ``notes`` say why."""
    view: str
    """``overlay``, ``copy`` …"""
    notes: tuple[str, ...] = ()


def predict_run(project: bytes, settings: Settings, *, home: bytes, environ: Mapping[bytes, bytes]) -> Outlook:
    """Return the conditions, found by asking a session on a nonexistent vault. The session runs no command."""
    with Session(Vault(b"/nonexistent", project), home=home, environ=environ, settings=settings) as session:
        try:
            grant = session.granted()
        except (Refused, Unsupported) as error:
            return Outlook(settings, None, "", (error.message,))
        mode, notes = session.machine.confinement.first_mode(settings, is_copy=False, level=grant.level)
    return Outlook(settings, grant.level, mode, (*grant.notes, *notes))


def is_same(descriptor: int, path: bytes) -> bool:
    """Return whether an open folder is still the one at a path."""
    try:
        opened_stat, path_stat = disk.fstat(descriptor), disk.stat_at(None, path)
    except OSError:
        return False
    same_inode = (opened_stat.st_dev, opened_stat.st_ino) == (path_stat.st_dev, path_stat.st_ino)
    return stat.S_ISDIR(path_stat.st_mode) and same_inode
