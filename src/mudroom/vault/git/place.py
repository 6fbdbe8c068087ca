"""Location of a user's repository: the directories that a ``.git`` leads to.

A ``.git`` file or link is project data, and the project may be a stranger's archive. It is followed outside the project
only if the repository at its end names this work tree, as git records it for work trees and submodules
(gitrepository-layout(5), ``gitdir``; git-config(1), core.worktree). Otherwise an archive could show its commands the
objects in any of the user's repositories. The repository may be part of the same archive, so neither symbolic links in
it nor the paths in ``objects/info/alternates`` are followed.

This file imports nothing heavy: commands in a linked work tree load it.
"""

from __future__ import annotations

import os
import stat

from mudroom.core.git.settings_file import GitSetting, parse_settings
from mudroom.core.tree.path import is_below, show
from mudroom.errors import UsageError
from mudroom.stage import disk
from mudroom.stage.beneath import open_file, open_root
from mudroom.stage.source import is_absence
from mudroom.typing import NamedTuple

LINE_LIMIT = 1 << 16
SETTINGS_LIMIT = 4 << 20


class RepositoryPlace(NamedTuple):
    """Location of a repository. Both paths are absolute and without symbolic links."""

    git: bytes
    """Directory with HEAD. A linked work tree and a submodule have their own."""
    common: bytes
    """Directory with objects and branches."""


def find_repository(project: bytes, repository: bytes) -> RepositoryPlace:
    """Return the location that a project's ``.git`` leads to. Raise UsageError if there is no repository."""
    shown = show(repository)
    at = disk.real_path(os.path.join(project, repository))
    if os.path.isfile(at):
        with open(at, "rb") as stream:
            text = stream.read(LINE_LIMIT)
        if not text.startswith(b"gitdir: "):
            raise UsageError(f"{shown} is not a git repository", "its file .git begins with gitdir: and names one")
        at = disk.real_path(os.path.join(os.path.dirname(at), text[8:].rstrip(b"\r\n")))
    common = at
    if os.path.isfile(at + b"/commondir"):
        with open(at + b"/commondir", "rb") as stream:
            common = disk.real_path(os.path.join(at, stream.read(LINE_LIMIT).rstrip(b"\r\n")))
    if not os.path.lexists(at + b"/HEAD") or not os.path.isdir(common + b"/objects"):
        raise UsageError(f"there is no git repository at {shown}", "its commits are made in a project that has one")
    return RepositoryPlace(at, common)


def is_outside(project: bytes, place: RepositoryPlace) -> bool:
    """Return whether a part of the repository lies outside the project."""
    root = disk.real_path(project)
    return not (is_below(place.git, root) and is_below(place.common, root))


def names_work_tree(place: RepositoryPlace, directory: bytes) -> bool:
    """Return whether the repository names ``directory`` as its work tree. Raise ValueError if its settings cannot be
    parsed."""
    if place.git != place.common and not is_below(place.git, place.common + b"/worktrees"):
        return False  # HEAD's directory names its common directory, but not the reverse
    directory = disk.real_path(directory)
    back = read_file(place.git, b"gitdir", LINE_LIMIT)
    if back is not None:
        above, name = os.path.split(os.path.join(place.git, back.rstrip(b"\r\n")))
        if name == b".git" and disk.real_path(above) == directory:
            return True
    named = [s.value for s in settings_of(place) if s[:3] == (b"core", None, b"worktree") and s.value]
    return any(disk.real_path(os.path.join(place.git, value)) == directory for value in named if value)


def settings_of(place: RepositoryPlace) -> tuple[GitSetting, ...]:
    """Return the settings for the repository and this work tree, without included files. Raise ValueError if they
    cannot be parsed."""
    settings = parse_settings(read_file(place.common, b"config", SETTINGS_LIMIT) or b"")
    if any(setting[:3] == (b"extensions", None, b"worktreeconfig") and is_true(setting) for setting in settings):
        settings += parse_settings(read_file(place.git, b"config.worktree", SETTINGS_LIMIT) or b"")
    return settings


def is_true(setting: GitSetting) -> bool:
    """Return the value as git-config(1), "boolean", defines it; all numbers except 0 are true."""
    return setting.value is None or setting.value.lower() not in (b"false", b"no", b"off", b"0", b"")


def object_directories(place: RepositoryPlace) -> tuple[bytes, ...]:
    """Return the existing directories with the repository's own and git-lfs objects. No component is a symbolic
    link."""
    directories = [place.common + name for name in (b"/objects", b"/lfs/objects")]
    return tuple(path for path in directories if os.path.isdir(path) and disk.real_path(path) == path)


def alternates(place: RepositoryPlace) -> tuple[bytes, ...]:
    """Return the other directories that hold the repository's objects: gitrepository-layout(5). Raise ValueError if the
    list is too long."""
    text = read_file(place.common, b"objects/info/alternates", LINE_LIMIT) or b""
    lines = [line for line in text.split(b"\n") if line and not line.startswith(b"#")]
    return tuple(os.path.normpath(os.path.join(place.common + b"/objects", line)) for line in lines)


def read_file(directory: bytes, path: bytes, limit: int) -> bytes | None:
    """Return the content of a regular file below a directory, or None if it does not exist. Raise ValueError if it is
    larger than ``limit`` bytes."""
    descriptor = open_if_file(directory, path)
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"{show(path)} has more than {limit:,} bytes")
    return data


def open_if_file(directory: bytes, path: bytes) -> int | None:
    """Return a descriptor for a regular file below a directory, or None if it does not exist, it cannot be read, or a
    symbolic link is on the way."""
    try:
        root = open_root(directory)
    except OSError as error:
        if is_absence(error) or isinstance(error, PermissionError):
            return None
        raise
    try:
        descriptor = open_file(root, path)
    except OSError as error:
        if is_absence(error) or isinstance(error, PermissionError):
            return None
        raise
    finally:
        os.close(root)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return descriptor
