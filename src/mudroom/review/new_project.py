"""Which folder becomes a project: looking around below a few roots, and what staging one would take.

1. A folder is what lies at or below a root, found by descriptor, component by component (``stage/beneath.py``): a
   symbolic link on the way is never followed, and no text is compared in its place.
2. Nothing is written, and no vault is made.
"""

from __future__ import annotations

import functools
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from mudroom.core.settings import Settings
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import is_below, relpath, show
from mudroom.core.tree.secret import ELSEWHERE, is_secret, matches
from mudroom.errors import Refused, Unsupported, UsageError
from mudroom.session import Session
from mudroom.stage.beneath import directory, open_root
from mudroom.stage.exclude import left_out, megabytes, weight
from mudroom.stage.originals.snapshot import read_patterns
from mudroom.stage.source import DirectorySource
from mudroom.stage.views.preflight import check_project
from mudroom.vault.store.store import Vault

MOST = 500
"""Folders that are listed."""
ENTRIES = 200_000
SECONDS = 1.5
"""A measure looks at no more, and takes no longer."""
_MARKERS = (
    b".git", b".hg", b".jj", b".mudroom", b"package.json", b"pyproject.toml", b"setup.py", b"Cargo.toml", b"go.mod",
    b"pom.xml", b"build.gradle", b"build.gradle.kts", b"CMakeLists.txt", b"Makefile", b"composer.json", b"Gemfile",
    b"mix.exs", b"deno.json", b"flake.nix",
)  # fmt: skip
"""By what is in it: somebody works there."""


class Folder(NamedTuple):
    path: bytes
    """Absolute."""
    name: bytes
    is_project: bool = False
    problem: str = ""
    """Why it cannot be looked into; empty: it can."""


class Listing(NamedTuple):
    folders: tuple[Folder, ...]
    more: int
    """Folders beyond those."""


@contextmanager
def opened(roots: Sequence[bytes], path: bytes) -> Iterator[tuple[bytes, int]]:
    """A folder at or below one of the roots: the root, and a descriptor of the folder. Raises UsageError if it is not,
    OSError if it cannot be opened; ELOOP: there is a symbolic link on the way."""
    for root in sorted(roots, key=len):
        if not is_below(path, root):
            continue
        rest = path[len(root) :].strip(b"/")
        try:
            below = relpath(rest) if rest else b""
        except ValueError as error:
            raise UsageError(str(error)) from None
        if path != join(root, below):
            raise UsageError(f"{show(path)} is not written as a folder's path is")
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


def listing(at: bytes, descriptor: int) -> Listing:
    """The folders in an open one, hidden ones last. A symbolic link to one is named, and not followed."""
    found = []
    with os.scandir(descriptor) as scan:
        for item in scan:
            try:
                if item.is_dir(follow_symlinks=False) or (item.is_symlink() and item.is_dir()):
                    found.append((os.fsencode(item.name), item.is_symlink()))
            except OSError:
                continue  # gone since, or a link that leads to itself
    found.sort(key=lambda one: (one[0].startswith(b"."), one[0].lower(), one[0]))
    rows = [
        Folder(join(at, name), name, False, "a symbolic link, which is not followed")
        if is_link
        else looked_at(join(at, name), name, descriptor)
        for name, is_link in found[:MOST]
    ]
    return Listing(tuple(rows), len(found) - len(rows))


def looked_at(path: bytes, name: bytes, above: int | None) -> Folder:
    """``above``: a descriptor of the folder that it is in; None: ``path`` is a root."""
    try:
        descriptor = open_root(path) if above is None else _open(name, above)
    except OSError as error:
        return Folder(path, name, False, (error.strerror or str(error)).lower())
    try:
        return described(path, name, descriptor)
    finally:
        os.close(descriptor)


def described(path: bytes, name: bytes, descriptor: int) -> Folder:
    """The same of one that is open."""
    return Folder(path, name, any(_has(descriptor, marker) for marker in _MARKERS))


def _open(name: bytes, above: int) -> int:
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)


def _has(descriptor: int, name: bytes) -> bool:
    try:
        os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        return True
    except OSError:
        return False


def why_not(path: bytes, home: bytes, state: bytes) -> str:
    """Why a folder (a real path) cannot be a project, in words; empty if it can."""
    if is_below(path, state):
        return f"{show(path)} is part of mudroom's own state"
    try:
        check_project(path, home, state)
    except UsageError as error:
        return error.message  # its hint is for who types commands
    return ""


# --- what staging it would take ---


class Measured(NamedTuple):
    files: int
    size: int
    """Bytes."""
    complete: bool
    """False: there is more, which was not looked at."""
    copied: int
    """Bytes of a staged copy."""
    excluded: tuple[tuple[bytes, str], ...]
    """What a copy would leave out, the largest first, and its size in words."""
    secrets: tuple[bytes, ...]
    unread: int
    """Directories that we may not read."""


def measure(root: int, settings: Settings, clock: Callable[[], float] = time.monotonic) -> Measured:
    """``root``: a descriptor of the folder. Raises UsageError for a pattern of the policy that means nothing."""
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
        tuple(sorted(path for path, entry in files if entry.kind == "file" and _is_secret(path, settings))),
        unread,
    )


def _is_secret(path: bytes, settings: Settings) -> bool:
    *above, name = path.split(b"/")
    if any(one in ELSEWHERE for one in above) or matches(path, settings.secrets_show):
        return False
    return is_secret(name) or matches(name, settings.secrets_mask)


def _walked(source: DirectorySource, until: float, clock: Callable[[], float]) -> tuple[dict[bytes, Entry], bool, int]:
    """Entries, a directory before what is in it; whether these are all; directories that cannot be read. Other file
    systems are named, not entered, as a copy does."""
    top = os.fstat(source.root)
    found: dict[bytes, Entry] = {}
    pending, unread = [b""], 0
    while pending:
        if len(found) >= ENTRIES or clock() > until:
            return found, False, unread
        path = pending.pop()
        try:
            names = source.names(path)
        except PermissionError:
            unread += 1
            continue
        for name, entry in names.items():
            at = path + b"/" + name if path else name
            found[at] = entry
            if entry.kind == "directory" and entry.device == top.st_dev:
                pending.append(at)
    return found, True, unread


class Outlook(NamedTuple):
    """What a command would get in a folder, were it a project."""

    settings: Settings
    level: int | None
    """None: it would be refused; ``notes`` say why."""
    view: str
    """``overlay``, ``copy`` …"""
    notes: tuple[str, ...] = ()


def outlook(project: bytes, settings: Settings, *, home: bytes, environ: Mapping[bytes, bytes]) -> Outlook:
    """By a session on a vault that there is none of: nothing is asked of it but what it would do."""
    with Session(Vault(b"/nonexistent", project), home=home, environ=environ, settings=settings) as session:
        try:
            grant = session.granted()
        except (Refused, Unsupported) as error:
            return Outlook(settings, None, "", (error.message,))
        mode, notes = session.machine.confinement.first_mode(settings, is_copy=False, level=grant.level)
    return Outlook(settings, grant.level, mode, (*grant.notes, *notes))


def is_same(descriptor: int, path: bytes) -> bool:
    """Whether an open folder is what is at a path now."""
    try:
        one, other = os.fstat(descriptor), os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(other.st_mode) and (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
