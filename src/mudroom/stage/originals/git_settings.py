"""Project paths that git runs or reads because of settings in the user's own repository.

``core.hooksPath`` can lead into the work tree, and so can an included settings file, a link in place of a hook or the
hooks directory, and a command in a setting or hook (``filter.x.clean = tools/clean``, ``exec scripts/check.sh``). The
repository's own settings and hooks are read, with included settings, but not the user's (``~/.gitconfig``). A hooksPath
that is the project itself stands for the hook names in it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence

from mudroom.core.git.settings_file import GitSetting, hook_directories, included, parse_settings
from mudroom.core.text.regex import regex
from mudroom.core.tree.manifest import words_of
from mudroom.core.tree.path import is_below, parent
from mudroom.stage import disk
from mudroom.typing import NamedTuple

# --- Commands in a repository's settings. Pure ---
# The keys that hold a command: git-config(1), gitattributes(5).


_COMMAND_KEYS = frozenset({
    b"fsmonitor", b"sshcommand", b"editor", b"pager", b"askpass", b"gitproxy", b"alternaterefscommand", b"program",
    b"defaultkeycommand", b"helper", b"clean", b"smudge", b"process", b"external", b"command", b"textconv",
    b"driver", b"cmd", b"difffilter", b"uploadpack", b"receivepack", b"packobjectshook", b"tunnel", b"sendmailcmd",
    b"tocmd", b"cccmd", b"headercmd",
})  # fmt: skip
"""Keys in any section whose value git runs: core.fsmonitor, filter.*.clean, diff.*.textconv, merge.*.driver."""
_PATHS_OF_PROGRAMS = frozenset((b"mergetool", b"difftool", b"man", b"browser"))
"""Sections in which ``path`` is a program's path."""
_NAMING = (b"hookspath", b"include", b"path", b"alias", b"pager", b"update", *sorted(_COMMAND_KEYS))


def may_name(data: bytes) -> bool:
    """Return whether a settings file may name a program or place in the project. In most repositories it does not, and
    is not parsed."""
    lower = data.lower()
    return any(word in lower for word in _NAMING)


def commands(settings: Iterable[GitSetting]) -> Iterator[bytes]:
    """Yield the values that git runs as commands."""
    for setting in settings:
        value = setting.value or b""
        is_command = setting.key in _COMMAND_KEYS or setting.section == b"pager"
        is_program = setting.key == b"path" and setting.section in _PATHS_OF_PROGRAMS
        if is_command or is_program or (value.startswith(b"!") and setting.section in (b"alias", b"submodule")):
            yield value


_LIMIT = 1 << 20
_LINK_LIMIT = 1 << 16
_HOOK_LIMIT = 1 << 16
_MOST_HOOKS = 64
_MOST_INCLUDED = 4
"""Longest chain of files that include each other."""
HOOKS = (
    b"applypatch-msg", b"pre-applypatch", b"post-applypatch", b"pre-commit", b"pre-merge-commit",
    b"prepare-commit-msg", b"commit-msg", b"post-commit", b"pre-rebase", b"post-checkout", b"post-merge",
    b"pre-push", b"pre-receive", b"update", b"proc-receive", b"post-receive", b"post-update",
    b"reference-transaction", b"push-to-checkout", b"pre-auto-gc", b"post-rewrite", b"sendemail-validate",
    b"fsmonitor-watchman", b"p4-changelist", b"p4-prepare-changelist", b"p4-post-changelist", b"p4-pre-submit",
    b"post-index-change",
)  # fmt: skip
"""Hook names: githooks(5)."""
_TOKEN = regex(rb"""[^\s\0'";&|<>]+|'[^'\n\0]*'|"[^"\n\0]*\"""")
"""A word of a shell, for paths with blanks or unusual characters."""
_PREFIXES = (b"~", b"%(")  # git-config(1), pathname: the home directory, or git's installation prefix


class GitPlaces(NamedTuple):
    """Paths in the project, relative to it."""

    trees: tuple[bytes, ...] = ()
    """At and below these paths, git runs files (hooks) or reads them as settings."""
    files: tuple[bytes, ...] = ()
    """Programs that a repository setting or hook names, and link targets of hooks."""


def run_by_git(project: bytes) -> GitPlaces:
    """Return the places in the project that git runs or reads. ``project``: absolute. A repository above the project
    counts, too."""
    root = os.path.realpath(project)
    top, git = _repository_of(root)
    if not git:
        return GitPlaces()
    common = _common_directory(git)
    hooks = common + b"/hooks"
    trees: dict[bytes, None] = {}
    files: dict[bytes, None] = {}
    if os.path.islink(hooks):
        trees |= dict.fromkeys(_within(os.path.realpath(hooks), root))
    directories = {hooks: None}
    for config in (common + b"/config", git + b"/config.worktree"):
        found = _places(config, top, _MOST_INCLUDED)
        for place in found.trees:
            trees |= dict.fromkeys(_within(place, root))
            directories[place] = None
        files |= dict.fromkeys(path for place in found.files for path in _file_within(place, root))
    for directory in directories:
        files |= dict.fromkeys(_files_of_hooks(directory, top, root))
    return GitPlaces(tuple(filter(None, trees)), tuple(filter(None, files)))


def _places(config: bytes, top: bytes, depth: int) -> GitPlaces:
    """Return the absolute paths that a settings file names: hook directories, programs, and included files with
    theirs."""
    settings = _settings(config)
    trees = [place for value in hook_directories(settings) for place in _place(top, value)]
    files = list(_places_of(b"\n".join(commands(settings)), top))
    for value in included(settings) if depth else ():
        for place in _place(parent(config), value):
            below = _places(place, top, depth - 1)
            trees += (place, *below.trees)
            files += below.files
    return GitPlaces(tuple(trees), tuple(files))


def _files_of_hooks(hooks: bytes, top: bytes, root: bytes) -> Iterator[bytes]:
    """Yield the project files that hooks link to or name. In the project itself only the hooks are read, elsewhere also
    what lies beside them."""
    try:
        names = [name for name in os.listdir(hooks) if not name.endswith(b".sample")]
    except OSError:
        return
    beside = [] if is_below(top, hooks) else [name for name in names if name not in HOOKS]
    texts: dict[bytes, None] = {}  # once each: tools that install hooks write the same text into every hook
    for name in (*(name for name in HOOKS if name in names), *beside[:_MOST_HOOKS]):
        path = hooks + b"/" + name
        if os.path.islink(path):
            yield _in_project(os.path.realpath(path), root)
        texts[_read(path, _HOOK_LIMIT)] = None
    for place in _places_of(b"\n".join(texts), top, hooks):
        yield from _file_within(place, root)


def _places_of(text: bytes, *starts: bytes) -> set[bytes]:
    """Return the places that a word of a command or hook may be, from each start or as an absolute path."""
    words = words_of(text) | {token.strip(b"'\"") for token in _TOKEN.findall(text)}
    return {os.path.normpath(os.path.join(start, word)) for word in words for start in (*starts, b"/")}


def _file_within(place: bytes, root: bytes) -> Iterator[bytes]:
    inside = _in_project(place, root)
    yield inside
    if b"/" in inside or not inside or os.path.islink(place):
        yield _in_project(os.path.realpath(place), root)


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
            return top, os.path.normpath(os.path.join(top, _line(text[8:])))
        if top == os.path.dirname(top):  # / or C:/
            return b"", b""
        top = os.path.dirname(top)


def _common_directory(git: bytes) -> bytes:
    text = _line(_read(git + b"/commondir", _LINK_LIMIT))
    return os.path.normpath(os.path.join(git, text)) if text else git


def _line(text: bytes) -> bytes:
    """Return the path in a one-line file. git reads it up to a NUL, which no path holds."""
    return text.partition(b"\0")[0].rstrip(b"\r\n")


def _settings(path: bytes) -> Sequence[GitSetting]:
    """Return a file's settings; none if it is missing, or if git would refuse it and so run no program from it."""
    data = _read(path, _LIMIT)
    if not may_name(data):
        return ()
    try:
        return parse_settings(data)
    except ValueError:
        return ()


def _read(path: bytes, limit: int) -> bytes:
    """Return up to ``limit`` bytes from the start of a regular file; b"" if it is missing or unreadable."""
    try:
        descriptor = disk.open_path(path, os.O_RDONLY | disk.O_NONBLOCK | disk.O_CLOEXEC)
    except OSError:
        return b""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            return stream.read(limit)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
