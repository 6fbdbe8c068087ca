"""Places in a project that the settings of the user's own repository make git run or read.

``core.hooksPath`` can lead into the work tree, and so can an included file of settings. The repository's own settings
are read, and those that they include, without the user's (``~/.gitconfig``). A hooksPath that is the project
itself stands for the names of hooks in it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence

from mudroom.core.git.settings_file import GitSetting, hook_directories, included, parse_settings
from mudroom.core.tree.path import is_below, parent
from mudroom.stage import disk

_LIMIT = 1 << 20
_LINK_LIMIT = 1 << 16
_MOST_INCLUDED = 4
"""Files that include each other, at most."""
HOOKS = tuple(
    b"""applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit prepare-commit-msg commit-msg
    post-commit pre-rebase post-checkout post-merge pre-push pre-receive update proc-receive post-receive
    post-update reference-transaction push-to-checkout pre-auto-gc post-rewrite sendemail-validate
    fsmonitor-watchman p4-changelist p4-prepare-changelist p4-post-changelist p4-pre-submit post-index-change""".split()
)
"""Names of hooks: githooks(5)."""
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
        for place in _places(config, top, _MOST_INCLUDED):
            paths |= dict.fromkeys(_within(place, root))
    return tuple(path for path in paths if path)


def _places(config: bytes, top: bytes, depth: int) -> Iterator[bytes]:
    """Yield the places that a file of settings names: directories of hooks, and files that it includes, with theirs."""
    settings = _settings(config)
    for value in hook_directories(settings):
        yield from _place(top, value)
    for value in included(settings) if depth else ():
        for place in _place(parent(config), value):
            yield place
            yield from _places(place, top, depth - 1)


def _place(start: bytes, value: bytes) -> Iterator[bytes]:
    if not value.startswith(_PREFIXES):
        yield os.path.normpath(os.path.join(start, value))


def _within(place: bytes, root: bytes) -> Iterator[bytes]:
    for candidate in (place, os.path.realpath(place)):
        if candidate == root:
            yield from HOOKS
        else:
            yield _in_project(candidate, root)


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
        if top == os.path.dirname(top):  # / or C:/
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
        descriptor = disk.open_path(path, os.O_RDONLY | disk.O_NONBLOCK | disk.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(limit) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
