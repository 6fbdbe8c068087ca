"""Decide when each change is run automatically later: by its name, by the manifests that name it, and by its content;
and whether a file is a secret by its content.

The names are in ``data/runs_later.txt``, manifests in ``core/tree/manifest.py``. This reads a few bytes of new and
changed executables, and the manifests in directories above changed programs or scripts, in the fork's version and in
the project's. No symbolic link is followed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from mudroom.core.tree.change import Change
from mudroom.core.tree.flag import BY_GIT, EXECUTES, NEW_REPOSITORY, SECRET, add_flags, git_directory, runs_when
from mudroom.core.tree.manifest import LIMIT, MANIFESTS, SUBDIRECTORIES, named_paths
from mudroom.core.tree.path import is_below, parent
from mudroom.core.tree.runs_later import link_runs_later
from mudroom.core.tree.secret import secret_test
from mudroom.stage.source import Source, is_absence, is_secret

_SCRIPTS = tuple(
    b""".sh .bash .zsh .fish .nu .py .js .mjs .cjs .jsx .ts .mts .cts .tsx .rb .pl .pm .php .lua .ps1 .psm1 .bat .cmd
    .awk .tcl .r .jl .ex .exs .groovy .kts .clj .lisp .scm .el .vim .json .yml .yaml .toml .mk .rs .go""".split()
)
"""Suffixes of files that a manifest may name as code."""
_HEAD = 4
_PROGRAMS: Mapping[bytes, str] = {
    b"\x7fELF": "a program",
    b"\xfe\xed\xfa\xce": "a program",
    b"\xfe\xed\xfa\xcf": "a program",
    b"\xce\xfa\xed\xfe": "a program",
    b"\xcf\xfa\xed\xfe": "a program",
    b"\xca\xfe\xba\xbe": "a program",
    b"MZ": "a program",
    b"#!": "a script",
    b"\0asm": "a program",
}
"""Magic numbers of executables: elf(5), mach-o/loader.h, PE/COFF, execve(2)."""


_OURS = "at the next mudroom command, outside of every sandbox: mudroom itself runs from there"


def flag_later(changes: Sequence[Change], staged: Source, base: Source, project: bytes = b"") -> list[Change]:
    """Return the changes with ``Change.runs`` and the flag ``executes-later``. ``staged`` reads the fork's layers
    alone, ``base`` the project. ``project``: its path, b"" if unknown."""
    named = _named_by_manifests(changes, staged, base)
    ours = _own_places(project) if project else ()
    judged = (_with_secrecy(change, staged, base) for change in changes)
    return [_with_reason(change, staged, named, ours) for change in judged]


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


def _with_reason(change: Change, staged: Source, named: Mapping[bytes, str], ours: Sequence[bytes]) -> Change:
    if ours and any(is_below(change.path, place) for place in ours):
        return change._replace(runs=_OURS, flags=add_flags(change.flags, EXECUTES))
    if EXECUTES in change.flags:
        runs = runs_when(change.path) or named.get(change.path) or change.runs or BY_GIT
        return change if runs == change.runs else change._replace(runs=runs)
    runs = "" if _is_of_git(change) else named.get(change.path) or _by_link(change) or _by_content(change, staged)
    if runs:
        return change._replace(runs=runs, flags=add_flags(change.flags, EXECUTES))
    return change._replace(runs="") if change.runs else change


def _is_of_git(change: Change) -> bool:
    """Return whether the repository rules judge the file (``repository_flags.py``)."""
    return NEW_REPOSITORY in change.flags or (b".git" in change.path and git_directory(change.path) is not None)


def _by_link(change: Change) -> str:
    return link_runs_later(change.path) if change.staged is not None and change.staged.kind == "symlink" else ""


# --- content ---


def _by_content(change: Change, staged: Source) -> str:
    entry = change.staged
    if change.verb == "renamed":
        return ""  # the project already has this file
    if entry is None or entry.kind != "file" or not entry.mode & 0o111 or not entry.size:
        return ""
    try:
        descriptor = staged.open(change.path)
    except OSError as error:
        return "" if is_absence(error) else "when it is called: an executable that cannot be read"
    try:
        head = os.read(descriptor, _HEAD)
    finally:
        os.close(descriptor)
    kind = _PROGRAMS.get(head) or _PROGRAMS.get(head[:2])
    return f"when it is called: {kind} that may be executed" if kind else ""


# --- place ---


def _named_by_manifests(changes: Sequence[Change], staged: Source, base: Source) -> dict[bytes, str]:
    """Return, by path, when a change runs because a manifest names it."""
    wanted = {change.path for change in changes if _may_be_named(change)}
    if not wanted:
        return {}
    by_path = {change.path: change for change in changes}
    named: dict[bytes, str] = {}
    for directory, below in _by_directory(wanted).items():
        for name, runner in (*MANIFESTS.items(), *SUBDIRECTORIES.items()):
            path = directory + b"/" + name if directory else name
            found = _named_by(path, below, by_path, staged, base)
            for inner in found:
                full = directory + b"/" + inner if directory else inner
                named.setdefault(full, f"with {runner}: {name.decode()} names it")
    return named


def _may_be_named(change: Change) -> bool:
    if EXECUTES in change.flags or change.entry.kind not in ("file", "symlink") or _is_of_git(change):
        return False
    name = change.path.rpartition(b"/")[2].lower()
    return b"." not in name or name.endswith(_SCRIPTS) or bool(change.entry.mode & 0o111)


def _by_directory(paths: Iterable[bytes]) -> dict[bytes, set[bytes]]:
    """Return each directory above the paths, with the paths below it, relative to it."""
    directories: dict[bytes, set[bytes]] = {}
    for path in paths:
        at = path
        while at:
            at = parent(at)
            directories.setdefault(at, set()).add(path[len(at) + 1 :] if at else path)
    return directories


def _named_by(
    path: bytes, wanted: set[bytes], changes: Mapping[bytes, Change], staged: Source, base: Source
) -> set[bytes]:
    change = changes.get(path)
    manifest = path.rpartition(b"/")[2]
    found: set[bytes] = set()
    if change is not None and change.staged is not None and change.staged.kind == "file":
        found |= _read_names(manifest, path, wanted, staged)
    if change is not None:
        has_base = change.base is not None and change.base.kind == "file"
    else:
        above = changes.get(parent(path)) if parent(path) else None
        has_base = above is None or above.verb != "added"
    return found | (_read_names(manifest, path, wanted, base) if has_base else set())


def _read_names(manifest: bytes, path: bytes, wanted: set[bytes], source: Source) -> set[bytes]:
    """Return the wanted paths that a manifest names: all if it is too large or unreadable, none if it is missing."""
    entry = source.look(path)
    if entry is None or entry.kind != "file":
        return set()
    if entry.size > LIMIT:
        return set(wanted)
    try:
        descriptor = source.open(path)
    except OSError as error:
        return set() if is_absence(error) else set(wanted)
    with os.fdopen(descriptor, "rb") as stream:
        return named_paths(manifest, stream.read(LIMIT), wanted)
