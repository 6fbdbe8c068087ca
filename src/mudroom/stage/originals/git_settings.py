"""Places in a project that the settings of the user's own repository make git run or read.

``core.hooksPath`` can lead into the work tree, and so can an included file of settings. Only the repository's own
settings are read, without those that they include, and without the user's (``~/.gitconfig``).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from mudroom.core.git.settings_file import GitSetting, hook_directories, included, parse_settings
from mudroom.core.tree.path import is_below, parent

_LIMIT = 1 << 20
_LINK_LIMIT = 1 << 16
_PREFIXES = (b"~", b"%(")  # git-config(1), pathname: the home directory, or git's own


def run_by_git(project: bytes) -> tuple[bytes, ...]:
    """Return the paths in the project, relative to it, at and below which files run with a command of git (hooks), or
    are read as settings. ``project``: absolute. A repository above the project counts, too."""
    root = os.path.realpath(project)
    top, git = _repository_of(root)
    if not git:
        return ()
    common = _common_directory(git)
    paths: dict[bytes, None] = {}
    for config in (common + b"/config", git + b"/config.worktree"):
        settings = _settings(config)
        values = [(top, value) for value in hook_directories(settings)]
        values += [(parent(config), value) for value in included(settings)]
        for start, value in values:
            if not value.startswith(_PREFIXES):
                place = os.path.normpath(os.path.join(start, value))
                paths |= dict.fromkeys(_in_project(candidate, root) for candidate in (place, os.path.realpath(place)))
    return tuple(path for path in paths if path)


def _in_project(place: bytes, root: bytes) -> bytes:
    """Return the path relative to the project; b"" if it is not below it."""
    return os.path.relpath(place, root) if place != root and is_below(place, root) else b""


def _repository_of(root: bytes) -> tuple[bytes, bytes]:
    """Return the work tree that contains a directory, and its repository; empty if there is none."""
    top = root
    while True:
        git = os.path.join(top, b".git")
        if os.path.isdir(git):
            return top, git
        text = _read(git, _LINK_LIMIT)
        if text.startswith(b"gitdir: "):
            return top, os.path.normpath(os.path.join(top, text[8:].rstrip(b"\r\n")))
        if top == b"/":
            return b"", b""
        top = os.path.dirname(top)


def _common_directory(git: bytes) -> bytes:
    text = _read(git + b"/commondir", _LINK_LIMIT).rstrip(b"\r\n")
    return os.path.normpath(os.path.join(git, text)) if text else git


def _settings(path: bytes) -> Sequence[GitSetting]:
    """Return the settings of a file; none if there is no file, or git would refuse it and so run nothing."""
    data = _read(path, _LIMIT)
    if b"hookspath" not in data.lower() and b"include" not in data.lower():
        return ()
    try:
        return parse_settings(data)
    except ValueError:
        return ()


def _read(path: bytes, limit: int) -> bytes:
    """Return the beginning of a regular file; b"" if there is none or it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(limit) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
