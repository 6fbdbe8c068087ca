"""Decide when each change is run automatically later: by its name, by the manifests that name it, or as an executable;
and whether a file is a secret by its content.

The names are in ``data/runs_later.txt``; ``core/tree/manifest.py`` reads manifests: those that the fork changed, and
the project's in each directory above a changed file and directly below the project. No symbolic link is followed.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.flag import BY_GIT, EXECUTES, NEW_REPOSITORY, SECRET, add_flags, git_directory, runs_when
from mudroom.core.tree.manifest import LIMIT, Wanted
from mudroom.core.tree.path import ancestors, is_below, name, parent, show_path
from mudroom.core.tree.runs_later import link_runs_later, manifest_when, runs_later, whole_directory
from mudroom.core.tree.secret import secret_test
from mudroom.stage.source import Source, is_absence, is_secret

_MOST_FILES, _MOST_BYTES = 4096, 32 << 20
"""Most manifests that are read, and their size. If there are more, each changed file may be named by them."""
_MOST_INSIDE = 512
"""Most files that are read in a directory whose files all run later (``.github/workflows/``)."""
_HEAD = 8192
"""Bytes. A file with a NUL in them is a program, not a text."""
_MOST_BESIDE = 64
"""Most directories directly in the project that are searched, other than those above changed files."""
_OURS = "at the next mudroom command, outside of every sandbox: mudroom itself runs from there"


def flag_later(changes: Sequence[Change], staged: Source, base: Source, project: bytes = b"") -> list[Change]:
    """Return the changes with ``Change.runs`` and the flag ``executes-later``. ``staged`` reads the fork's layers
    alone, ``base`` the project. ``project``: its path, b"" if unknown."""
    named = _named_by_manifests(changes, staged, base)
    ours = _own_places(project) if project else ()
    judged = (_with_secrecy(change, staged, base) for change in changes)
    return [_with_reason(change, named, ours) for change in judged]


def _with_secrecy(change: Change, staged: Source, base: Source) -> Change:
    test = secret_test(change.path) if SECRET not in change.flags and change.entry.kind == "file" else ""
    if test != "content" or not is_secret(staged if change.staged is not None else base, change.path, test):
        return change
    return change._replace(flags=add_flags(change.flags, SECRET))


def _own_places(project: bytes) -> tuple[bytes, ...]:
    """Return the places in the project from which this mudroom runs: its package, and its interpreter's environment."""
    paths = _own_paths(sys.prefix)
    return tuple(path[len(project) + 1 :] for path in paths if is_below(path, project) and path != project)


@cache
def _own_paths(prefix: str) -> tuple[bytes, ...]:
    """Return this package's path and its interpreter's environment, as written and with links resolved, with ``/``
    between names."""
    places = (os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), prefix)
    forms = {form for place in places for form in (place, os.path.realpath(place))}
    return tuple(sorted(os.fsencode(form.replace(os.sep, "/")) for form in forms))


def _with_reason(change: Change, named: Mapping[bytes, str], ours: Sequence[bytes]) -> Change:
    if ours and any(is_below(change.path, place) for place in ours):
        return change._replace(runs=_OURS, flags=add_flags(change.flags, EXECUTES))
    if EXECUTES in change.flags:
        runs = runs_when(change.path, is_directory=change.entry.kind == "directory") or change.runs or BY_GIT
        return change if runs == change.runs else change._replace(runs=runs)
    runs = "" if _is_of_git(change) else named.get(change.path) or _by_kind(change)
    if runs:
        return change._replace(runs=runs, flags=add_flags(change.flags, EXECUTES))
    return change._replace(runs="") if change.runs else change


def _is_of_git(change: Change) -> bool:
    """Return whether the repository rules judge the file (``repository_flags.py``)."""
    return NEW_REPOSITORY in change.flags or (b".git" in change.path and git_directory(change.path) is not None)


def _by_kind(change: Change) -> str:
    entry = change.staged
    if entry is not None and entry.kind == "symlink":
        return link_runs_later(change.path)
    is_program = entry is not None and entry.kind == "file" and entry.mode & 0o111
    return "when it is called: it may be executed" if is_program else ""


# --- manifests ---


def _named_by_manifests(changes: Sequence[Change], staged: Source, base: Source) -> dict[bytes, str]:
    """Return, by path, when a change runs because a manifest names it."""
    candidates = [change for change in changes if _may_be_named(change)]
    if not candidates:
        return {}
    links = [
        each.path for each in candidates if each.entry.kind == "symlink" or (each.base or each.entry).kind != "file"
    ]
    wanted = Wanted([change.path for change in candidates], links)
    named: dict[bytes, str] = {}
    files, size = 0, 0
    for path, when, source in _manifests(changes, wanted.paths, staged, base):
        data = _read(path, source)
        files, size = files + 1, size + len(data or b"")
        if files > _MOST_FILES or size > _MOST_BYTES:
            return dict.fromkeys(wanted.paths, "there are too many files that may name it") | named
        if data is None:  # unreadable or too large
            found = {each for each in wanted.paths if is_below(each, parent(path))}
        else:
            found = wanted.named_by(path, data)
        for each in found:
            named.setdefault(each, f"{when}: {show_path(path)} names it")
    return named


def _may_be_named(change: Change) -> bool:
    return EXECUTES not in change.flags and change.entry.kind in ("file", "symlink") and not _is_of_git(change)


def _manifests(
    changes: Sequence[Change], wanted: Iterable[bytes], staged: Source, base: Source
) -> Iterator[tuple[bytes, str, Source]]:
    """Yield each manifest's path, when the files run that it names, and where it is read: the fork's, then the
    project's versions of them and of others, innermost first."""
    for change in changes:
        is_file = change.staged is not None and change.staged.kind == "file"
        if is_file and (when := manifest_when(change.path)) and not whole_directory(change.path):
            yield change.path, when, staged
    added = {change.path for change in changes if change.verb == "added"}
    directories = {above for path in wanted for above in ancestors(path)} - added
    for directory in sorted(directories, key=lambda path: -path.count(b"/")):
        yield from _in_directory(base, directory)
    yield from _in_directory(base, b"")
    inner = (path for path, entry in _names(base, b"").items() if entry.kind == "directory")
    beside = (path for path in inner if path not in directories and not runs_later(path + b"/x"))
    for directory in itertools.islice(beside, _MOST_BESIDE):
        yield from _in_directory(base, directory)


def _in_directory(base: Source, directory: bytes) -> Iterator[tuple[bytes, str, Source]]:
    """Yield the manifests directly in a directory, and those in its directories whose files all run later."""
    pending, inside = [directory], 0
    while pending:
        at = pending.pop(0)
        for last, entry in sorted(_names(base, at).items()):
            path = at + b"/" + last if at else last
            if entry.kind == "file" and (when := manifest_when(path)):
                inside += at != directory
                if inside <= _MOST_INSIDE:
                    yield path, when, base
            elif entry.kind == "directory" and inside <= _MOST_INSIDE and _is_searched(path, base):
                pending.append(path)


def _is_searched(path: bytes, base: Source) -> bool:
    """Return whether all files of a directory may be manifests. A project of its own (``.claude/worktrees/x``) and
    packages have none for this project."""
    is_other = not runs_later(path + b"/x") or whole_directory(path) or name(path) == b".git"
    return not is_other and b".git" not in _names(base, path)


def _names(source: Source, directory: bytes) -> dict[bytes, Entry]:
    """Return a directory's entries, none if it is unreadable: a database's files may belong to another user."""
    try:
        return source.names(directory)
    except OSError:
        return {}


def _read(path: bytes, source: Source) -> bytes | None:
    """Return a manifest's text, None if it is too large or unreadable. A program has none. Of a file that is only in a
    directory whose files run later (``.claude/``), the beginning is read."""
    try:
        descriptor = source.open(path)
    except OSError as error:
        return b"" if is_absence(error) else None
    with os.fdopen(descriptor, "rb") as stream:
        data = stream.read(LIMIT + 1)
    if len(data) > LIMIT and runs_later(name(path)):
        return None
    is_text = b"\0" not in data[:_HEAD] or data.startswith((b"\xff\xfe", b"\xfe\xff"))
    return data[:LIMIT] if is_text else b""
