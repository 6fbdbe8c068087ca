"""Flags that mark a path for the reviewer.

``executes-later``   the file runs when the project is opened, built, installed or entered (``Change.runs``: when)
``secret``           the file is a secret by its name, its place or its content (``core/tree/secret.py``)
``protected``        applied only if the user names the path: the file changes what later commands do on the host
``new-repository``   part of a git repository that the fork made (``core/git/new_repository.py``)
``work-tree``        part of a work tree that the fork added to a project's repository
``submodule``        part of a submodule that the fork added or initialised

The first three follow from the name; ``secret`` also from content, ``executes-later`` also from an executable bit and
from the names in hooks and in manifests (``stage/originals/later_flags.py``). Their patterns match at any depth,
including nested repositories (CVE-2025-53773, CVE-2026-25725).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

from mudroom.core.tree.change import Change
from mudroom.core.tree.git_name import reads_as, spell, spell_path
from mudroom.core.tree.path import is_below
from mudroom.core.tree.runs_later import runs_later
from mudroom.core.tree.secret import secret_test

EXECUTES, SECRET, PROTECTED = _NAMED = ("executes-later", "secret", "protected")
NEW_REPOSITORY, WORK_TREE, SUBMODULE = "new-repository", "work-tree", "submodule"
LINKED = frozenset((WORK_TREE, SUBMODULE))
"""Flags for directories whose ``.git`` is a file that leads to one of the project's repositories."""

_MADE = frozenset((NEW_REPOSITORY, *LINKED))
MADE = "that the fork made"
"""Part of each remark about a repository or linked directory. Such remarks are made anew at each collection."""

# Repository files that choose programs, other directories or other objects: gitrepository-layout(5), gitattributes(5).
# commondir names another directory for settings and hooks; http-alternates and grafts are historic.
_SETTINGS = (
    (b"config",),
    (b"config.worktree",),
    (b"commondir",),
    (b"info", b"attributes"),
    (b"info", b"grafts"),
    (b"objects", b"info", b"alternates"),
    (b"objects", b"info", b"http-alternates"),
)
# An unfinished rebase has commands (git-rebase(1), --exec) that run when it continues.
_SETTING_DIRECTORIES = frozenset((b"hooks", b"rebase-merge", b"rebase-apply", b"sequencer"))
# Each file names a URL: git-fetch(1), "named file in $GIT_DIR/remotes". git makes the directories, empty.
_URL_DIRECTORIES = frozenset((b"branches", b"remotes"))
_SETTING_NAMES = _SETTING_DIRECTORIES | _URL_DIRECTORIES | {parts[-1] for parts in _SETTINGS}
_HALLMARKS = {b"head": b"HEAD", b"objects": b"objects", b"refs": b"refs", b"commondir": b"commondir"}
"""Names that make a directory a git repository, by their spelling."""
_ENDS = frozenset((b".git", *_HALLMARKS))


def flags_of(path: bytes, *, is_directory: bool = False) -> tuple[str, ...]:
    """Return a path's flags, in a fixed order. A directory runs later if all that is in it does."""
    flags = []
    if runs_when(path, is_directory=is_directory):
        flags.append(EXECUTES)
    if secret_test(path) in ("name", "key"):
        flags.append(SECRET)
    if is_protected(path):
        flags.append(PROTECTED)
    return tuple(flags)


BY_GIT = "at the next git command"


def runs_when(path: bytes, *, is_directory: bool = False) -> str:
    """Return when the file at ``path`` runs by itself, as far as its path tells; "" if it does not."""
    path = path + b"/." if is_directory else path
    parts = path.split(b"/")
    if b".git" in parts:
        hook = any(pair == (b".git", b"hooks") for pair in itertools.pairwise(parts))
        if hook or parts[-2:] == [b".git", b"config"]:
            return BY_GIT
    if is_protected(path) and (git_directory(path) is not None or _has_confusable(path)):
        return "" if parts[-2:] == [b"info", b"grafts"] else BY_GIT
    return runs_later(path)


def git_directory(path: bytes) -> bytes | None:
    """Return the outermost ``.git`` directory that is, or contains, ``path``; None if there is none."""
    parts = path.split(b"/") if b".git" in path else []
    if b".git" not in parts:
        return None
    return b"/".join(parts[: parts.index(b".git") + 1])


def is_left_out(change: Change) -> bool:
    """Return whether a remark tells why the change is left out: it is in a directory that the fork made."""
    return PROTECTED in change.flags and not _MADE.isdisjoint(change.flags)


def repositories(changes: Iterable[Change]) -> set[bytes]:
    """Return the project's ``.git`` directories that contain changes. A ``.git`` file is not included: it points to
    another directory whose hooks would run, so the user has to name the file itself. A repository that the fork made is
    not included: it is applied like other files."""
    directories: set[bytes] = set()
    files: set[bytes] = set()
    for change in changes:
        git = git_directory(change.path)
        if git is not None and NEW_REPOSITORY not in change.flags:
            directories.add(git)
        if git == change.path and any(
            entry is not None and entry.kind != "directory" for entry in (change.base, change.staged)
        ):
            files.add(change.path)
    return directories - files


def repository_of_each(changes: Iterable[Change]) -> dict[bytes, bytes]:
    """Return, for each change in a repository that the fork made, the repository's directory: ``x/.git``, or ``x`` if
    it is bare. ``changes`` are in walking order."""
    tops: dict[bytes, bytes] = {}
    top = b""
    for change in changes:
        if NEW_REPOSITORY in change.flags:
            top = top if top and is_below(change.path, top) else change.path
            tops[change.path] = top
    return tops


def git_runs(change: Change, exists: Callable[[bytes], bool], in_project: Callable[[bytes], bool]) -> bool:
    """Return whether git would execute something that this change brings, in the cases that ``is_protected`` cannot see
    by path: a ``.git`` that is not a directory and so points to another repository; settings and hooks in a bare
    repository; or a file that turns a directory with hooks or settings into a repository. ``exists`` tells whether the
    fork or the project has a path, ``in_project`` whether the project has it; the path's last name counts in any
    spelling."""
    spelled = spell_path(change.path)
    lengths = _setting_of(spelled)
    if not lengths and spelled[-1] not in _ENDS:
        return False  # most paths end here
    parts = change.path.split(b"/")
    if parts[-1] == b".git":
        return any(entry is not None and entry.kind != "directory" for entry in (change.base, change.staged))
    if any(is_repository(parts[:length], exists) for length in lengths):
        return True
    top = parts[:-1]
    if spelled[-1] not in _HALLMARKS or not any(in_project(_in(top, name)) for name in _SETTING_PATHS):
        return False
    return is_repository(top, exists) and not is_repository(top, in_project)


def hallmark(name: bytes) -> bytes | None:
    """Return the name that git reads for this name in a repository, if a file system treats the two as the same: HEAD,
    objects, refs or commondir; None for another name."""
    return _HALLMARKS.get(spell(name))


_SETTING_PATHS = (*(b"/".join(parts) for parts in _SETTINGS), *sorted(_SETTING_DIRECTORIES))


def is_repository(top: list[bytes], exists: Callable[[bytes], bool]) -> bool:
    """Return whether git takes ``top`` for a repository: it has HEAD, and either commondir or both objects and refs.
    Sources: gitrepository-layout(5); is_git_directory in git's setup.c."""
    if not exists(_in(top, b"HEAD")):
        return False
    return exists(_in(top, b"commondir")) or (exists(_in(top, b"objects")) and exists(_in(top, b"refs")))


def _in(top: list[bytes], name: bytes) -> bytes:
    return b"/".join((*top, name))


def add_flags(flags: tuple[str, ...], *more: str) -> tuple[str, ...]:
    """Return ``flags`` with ``more`` added, in the fixed order."""
    present = dict.fromkeys((*flags, *more))
    leading = tuple(flag for flag in _NAMED if flag in present)
    return (*leading, *(flag for flag in present if flag not in leading))


def protect(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``flags`` with ``executes-later`` and ``protected`` added, in the fixed order."""
    return add_flags(flags, EXECUTES, PROTECTED)


def is_protected(path: bytes) -> bool:
    """Return whether apply leaves out ``path`` unless the user names it: anything in a ``.mudroom``, git's hooks and
    settings, and names that a file system takes for ``.git`` or ``.mudroom`` (``.GIT``). A ``.mudroom`` in any
    directory makes that directory a separate project, in which this project's policy does not hold."""
    if b".mudroom" in path and b".mudroom" in path.split(b"/"):
        return True
    if b".git" in path and any(is_setting(within) for within in _within_repositories(path)):
        return True
    return _has_confusable(path) or _has_own_confusable(path)


def _has_confusable(path: bytes) -> bool:
    lower = path.lower()
    if b".git" not in lower and b"git~1" not in lower and path.isascii():
        return False  # most paths end here
    return any(part != b".git" and reads_as(part, b".git") for part in path.split(b"/"))


def _has_own_confusable(path: bytes) -> bool:
    if b"mudroo" not in path.lower() and path.isascii():
        return False  # most paths end here
    return any(reads_as(part, b".mudroom") for part in path.split(b"/"))


def _within_repositories(path: bytes) -> Iterator[list[bytes]]:
    """Yield the components of ``path`` below each ``.git`` directory in it; repositories can be nested."""
    parts = path.split(b"/")
    for index, part in enumerate(parts[:-1]):
        if part == b".git":
            yield parts[index + 1 :]


def is_setting(within: Sequence[bytes]) -> bool:
    """Return whether a path in a repository, given by its components below ``.git``, is a hook or setting for the
    repository, its submodules or its work trees."""
    spelled = [spell(part) for part in within]
    lengths = _setting_of(spelled)
    if spelled[0] in (b"modules", b"worktrees"):
        return any(_is_setting_of_inner(spelled, length) for length in lengths)
    return 0 in lengths


def _is_setting_of_inner(within: Sequence[bytes], length: int) -> bool:
    if within[length] in _URL_DIRECTORIES:
        return length > 1 and within[length - 1] != b"refs"
    return length > 1 or within[length] not in _SETTING_DIRECTORIES  # a submodule can have the name hooks


def _setting_of(parts: Sequence[bytes]) -> list[int]:
    """Return each number of leading components that name a directory for which ``parts`` is a hook or setting, if that
    directory is a repository. ``parts``: as ``spell`` returns them."""
    if _SETTING_NAMES.isdisjoint(parts):
        return []
    lengths = [len(parts) - len(names) for names in _SETTINGS if tuple(parts[-len(names) :]) == names]
    for index, part in enumerate(parts):
        if part in _SETTING_DIRECTORIES or (part in _URL_DIRECTORIES and index + 1 < len(parts)):
            lengths.append(index)
    return lengths
