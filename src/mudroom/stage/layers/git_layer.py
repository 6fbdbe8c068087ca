"""A layer that hides masked files from git: indexes that skip them, and exclude files that name them.

Commands see a masked file empty. Without this layer git would call a tracked one modified and any other one untracked,
and every ``git commit -a``, ``git add -A`` or ``git stash -u`` would record it as empty. In the layer

* a repository's index marks its tracked masked files with skip-worktree (git-update-index(1)), and is otherwise
  the same, so that it stays valid for the files that git compares by their times;
* ``info/exclude`` has the repository's own lines and a line for each masked file. It also names the tracked ones, for a
  branch that does not have them.

A repository belongs to the nearest directory above a file that has a ``.git``: a directory, or a file that leads to a
directory within the project (gitrepository-layout(5)). No symbolic link is followed, and all reads are bounded: an
apply may have brought a repository that a command made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from mudroom.core.git.blob import id_length_of
from mudroom.core.git.exclude import with_excluded
from mudroom.core.git.index import Index, IndexEntry, encode_index, parse_index, with_skip_worktree
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.path import show
from mudroom.stage import disk
from mudroom.stage.beneath import open_layer
from mudroom.stage.layers.layer import LayerWriter
from mudroom.stage.source import DirectorySource, is_absence, read_all
from mudroom.typing import NamedTuple

INDEX_LIMIT = 128 << 20
"""Bytes. An index with a million files has about 100 MB."""
_LIMIT = 1 << 20
"""Bytes, for any other file."""
_KIND, _REGULAR, _LINK, _MODULE = 0o170000, 0o100000, 0o120000, 0o160000


class GivenFile(NamedTuple):
    path: bytes
    content: bytes
    mode: int
    mtime: int | None
    """For an index, the original's mtime, because git compares it with the files' times."""


Identity = tuple[int, ...]
"""Device and inode of a directory; for any other entry also mtime and ctime."""


class GitPlan(NamedTuple):
    """How secrets inside repositories are handled."""

    known: tuple[bytes, ...] = ()
    """Secrets that git has with the same content: they need no mask. Sorted."""
    files: tuple[GivenFile, ...] = ()
    """The layer's files, for the other secrets."""
    directories: tuple[bytes, ...] = ()
    """Directories that the layer must have, and the project lacks."""
    notes: tuple[str, ...] = ()
    watched: Mapping[bytes, Identity | None] = MappingProxyType({})
    """Identities of the paths from which the plan was made, None for an absent path. While they are unchanged, so is
    the plan. The hashed secrets are not among them."""


class _Unreadable(Exception):
    """The repository cannot be read. ``args[0]``: a noun phrase and the reason."""


class _Repository(NamedTuple):
    root: bytes
    """The work tree's directory; empty: the project's."""
    git: bytes
    common: bytes
    """The directory that a repository's work trees share."""


Ids = Callable[[bytes, int], tuple[bytes, ...]]
"""(path of a secret, id length) → the ids under which git may have its content; empty if it cannot be read."""


def plan_git(source: DirectorySource, project: bytes, secrets: Mapping[bytes, Ids | None]) -> GitPlan:
    """Return the plan for these secrets. ``source``: the project or a copy; ``project``: its path, to which a ``.git``
    file may refer. Each secret's value is a function that hashes it, or None if it is masked in any case."""
    return _Planner(source, project).plan(secrets)


class _Planner:
    def __init__(self, source: DirectorySource, project: bytes) -> None:
        self._source, self._project = source, project
        self._watched: dict[bytes, Identity | None] = {}
        self._nearest: dict[bytes, _Repository | None] = {}
        self._notes: list[str] = []

    def plan(self, secrets: Mapping[bytes, Ids | None]) -> GitPlan:
        by_repository: dict[_Repository, list[bytes]] = {}
        for path in sorted(secrets):
            repository = self._repository_above(path)
            if repository is not None:
                by_repository.setdefault(repository, []).append(path)
        known: list[bytes] = []
        files: list[GivenFile] = []
        excluded: dict[bytes, list[bytes]] = {}
        for repository, paths in by_repository.items():
            has, index = self._of_repository(repository, {path: secrets[path] for path in paths})
            known += has
            files += index
            masked = [_inside(repository, path) for path in paths if path not in has]
            if masked:
                excluded.setdefault(repository.common, []).extend(masked)
        directories: list[bytes] = []
        for common, paths in excluded.items():
            self._exclude(common, paths, files, directories)
        return GitPlan(tuple(sorted(known)), tuple(files), tuple(directories), tuple(self._notes), self._watched)

    # --- which repository ---

    def _repository_above(self, path: bytes) -> _Repository | None:
        """Return the nearest repository above a file."""
        passed: list[bytes] = []
        directory, repository = path, None
        while directory:  # not recursive: a tree can be deeper than the stack
            directory = directory.rpartition(b"/")[0]
            if directory in self._nearest:
                repository = self._nearest[directory]
                break
            passed.append(directory)
            repository, goes_on = self._repository_at(directory)
            if not goes_on:
                break
        self._nearest.update(dict.fromkeys(passed, repository))
        return repository

    def _repository_at(self, root: bytes) -> tuple[_Repository | None, bool]:
        """Return this directory's repository, and whether to look above it: git does so if there is none."""
        at = _join(root, b".git")
        self._watch(at)
        kind = self._look(at)
        if kind in (None, "directory") and self._look(at + b"/HEAD") is None:
            self._watch(at + b"/HEAD")
            return None, True
        if kind not in ("directory", "file"):
            return None, False  # git would follow a symbolic link, which may lead anywhere
        try:
            git = at if kind == "directory" else self._led_to(root, self._read(at, _LIMIT) or b"", b"gitdir: ")
            if git is None or self._look(git + b"/HEAD") is None:
                return None, False
            common: bytes | None = git
            if self._look(git + b"/commondir") is not None:
                self._watch(git + b"/commondir")
                common = self._led_to(git, self._read(git + b"/commondir", _LIMIT) or b"", b"")
        except _Unreadable as error:
            self._notes.append(f"{error.args[0]}: git may take secrets for changed in the fork")
            return None, False
        return (None if common is None else _Repository(root, git, common)), False

    def _led_to(self, base: bytes, text: bytes, word: bytes) -> bytes | None:
        """Return the path within the project to which a ``.git`` or ``commondir`` file leads, or None."""
        target = text[len(word) :].rstrip(b"\r\n")
        if not text.startswith(word) or not target or b"\0" in target:
            return None
        full = os.path.normpath(os.path.join(self._project, base, target))
        return full[len(self._project) + 1 :] if full.startswith(self._project + b"/") else None

    # --- whether it has the secrets ---

    def _of_repository(
        self, repository: _Repository, secrets: Mapping[bytes, Ids | None]
    ) -> tuple[frozenset[bytes], list[GivenFile]]:
        """Return the secrets that git has, and the changed index for the others, if they need one."""
        try:
            index, length = self._index(repository)
        except _Unreadable as error:
            names = "a secret" if len(secrets) == 1 else f"{len(secrets):,} secrets"
            self._notes.append(f"{error.args[0]}: git may take {names} for changed in the fork")
            return frozenset(), []
        tracked = {entry.path: entry for entry in index.entries if not entry.stage}
        known = frozenset(
            path for path, ids in secrets.items() if _has(tracked.get(_inside(repository, path)), ids, path, length)
        )
        inside = [_inside(repository, path) for path in secrets if path not in known]
        marked = [path for path in inside if path in tracked and not tracked[path].skip_worktree]
        if not marked:
            return known, []
        if index.required:
            names = ", ".join(show(_join(repository.root, path)) for path in marked[:4])
            more = ", …" if len(marked) > 4 else ""
            self._notes.append(
                f"{show(repository.git)}/index is split or sparse, so git takes the secrets in it for changed in the "
                f"fork: {names}{more}"
            )
            return known, []
        path = repository.git + b"/index"
        entry = self._source.look(path)
        if entry is None:
            return known, []  # just removed; the next command will see that
        content = encode_index(with_skip_worktree(index.entries, marked), length)
        return known, [GivenFile(path, content, entry.mode, entry.mtime)]

    def _index(self, repository: _Repository) -> tuple[Index, int]:
        """Return the index, empty if there is none, and its id length."""
        path = repository.git + b"/index"
        self._watch(path)
        try:
            length = id_length_of(self._read(repository.common + b"/config", _LIMIT) or b"")
            data = self._read(path, INDEX_LIMIT)
            return (parse_index(data, length) if data is not None else Index(())), length
        except ValueError as error:
            raise _Unreadable(f"{show(path)} cannot be read ({error})") from None

    def _exclude(self, common: bytes, paths: Iterable[bytes], files: list[GivenFile], directories: list[bytes]) -> None:
        above, path = common + b"/info", common + b"/info/exclude"
        self._watch(path)
        kind, entry = self._look(above), self._source.look(path)
        if kind not in (None, "directory") or (entry is not None and entry.kind != "file"):
            self._notes.append(f"{show(path)} is not a regular file: git may take secrets for new files in the fork")
            return
        try:
            content = (self._read(path, _LIMIT) or b"") if entry is not None else b""
        except _Unreadable as error:
            self._notes.append(f"{error.args[0]}: git may take secrets for new files in the fork")
            return
        if kind is None:
            directories.append(above)
        mode = entry.mode if entry is not None else 0o644
        files.append(GivenFile(path, with_excluded(content, paths), mode, None))

    # --- reading ---

    def _watch(self, path: bytes) -> None:
        """Record the path's identity. Call it before the path is read."""
        entry = self._source.look(path)
        if entry is None:
            self._watched[path] = None
        else:
            times = () if entry.kind == "directory" else (entry.mtime, entry.ctime)
            self._watched[path] = (entry.device, entry.inode, *times)

    def _look(self, path: bytes) -> str | None:
        entry = self._source.look(path)
        return None if entry is None else entry.kind

    def _read(self, path: bytes, limit: int) -> bytes | None:
        """Return a regular file's content, or None if it is absent. Raise _Unreadable if it may not be read, or exceeds
        ``limit`` bytes."""
        try:
            entry = self._source.look(path)
            if entry is None:
                return None
            data = read_all(self._source, path, limit) if entry.kind == "file" else None
        except OSError as error:
            if is_absence(error):
                return None
            if isinstance(error, PermissionError):
                raise _Unreadable(f"{show(path)} cannot be read ({error.strerror})") from None
            raise
        if data is None:
            reason = f"it is larger than {limit >> 20} MiB" if entry.kind == "file" else f"it is a {entry.kind}"
            raise _Unreadable(f"{show(path)} cannot be read ({reason})")
        return data


def _has(entry: IndexEntry | None, ids: Ids | None, path: bytes, length: int) -> bool:
    if entry is None or ids is None or entry.intent_to_add or entry.item.mode & _KIND != _REGULAR:
        return False
    return entry.item.id in ids(path, length)


def _inside(repository: _Repository, path: bytes) -> bytes:
    return path[len(repository.root) + 1 :] if repository.root else path


def _join(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name


def write_git_layer(layer: bytes, source: DirectorySource, plan: GitPlan) -> None:
    """Write the plan's files into the new directory ``layer``. ``source``: the tree below."""
    os.mkdir(layer, 0o700)
    with Descriptor(open_layer(layer)) as root:
        writer = LayerWriter(root, source)
        for path in plan.directories:
            above = source.look(path.rpartition(b"/")[0])
            writer.directory(path, above.mode if above is not None else 0o755)
        for file in plan.files:
            writer.data(file.path, file.content, mode=file.mode, mtime=file.mtime)
        writer.finish()
        top = source.look(b"")
        disk.set_mode(root, b".", top.mode if top is not None else 0o755)
