"""Flags that need more than a file's name: files that git runs, and repositories and linked directories that a fork
made.

Called when all the fork's changes are known. The rules are in ``core/tree/flag.py`` and ``core/git/new_repository.py``;
the fork's files are read here, and a few settings in the project's repository.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence

from mudroom.core.git.new_repository import (
    LinkedDirectory,
    examine,
    is_git_setting,
    link_target,
    linked_directory,
    linked_remark,
    new_tops,
    repository_remark,
)
from mudroom.core.tree.change import Change, Remark
from mudroom.core.tree.flag import (
    EXECUTES,
    LINKED,
    NEW_REPOSITORY,
    PROTECTED,
    add_flags,
    flags_of,
    git_runs,
    protect,
)
from mudroom.core.tree.git_name import spell
from mudroom.core.tree.path import ancestors, is_below, name, parent, sort_key
from mudroom.stage.originals.git_settings import run_by_git
from mudroom.stage.source import Source, read_all

_CONFIG_LIMIT = 1 << 20
_LINK_LIMIT = 1 << 16
_MADE_HERE = frozenset((EXECUTES, PROTECTED, NEW_REPOSITORY, *LINKED))


def flag_repositories(
    changes: Sequence[Change], staged: Source, base: Source, project: bytes
) -> tuple[list[Change], list[Remark]]:
    """Return the changes with their flags, and remarks about directories that are left out.

    ``changes`` are in walking order. ``staged`` reads the fork's layers alone, ``base`` the project. ``project``: the
    project's path, whose settings are read; b"" if unknown.
    """
    flags = _RepositoryFlags(changes, staged, base)
    flags.flag_made()
    if project:
        flags.flag_run_by_git(project)
    return flags.changes, flags.remarks


class _RepositoryFlags:
    def __init__(self, changes: Sequence[Change], staged: Source, base: Source) -> None:
        self._staged, self._base = staged, base
        self._spellings: dict[tuple[int, bytes], frozenset[bytes]] = {}
        """By source and directory, the names in it as ``spell`` returns them."""
        self._keys = [sort_key(change.path) for change in changes]
        self.changes = [self._protected(_without_stale(change)) for change in changes]
        self.remarks: list[Remark] = []

    def flag_made(self) -> None:
        tops = new_tops(self.changes)
        harmless = {top for top in tops if self._flag_repository(top)}
        self._flag_linked(tops, harmless)

    # --- one file ---

    def _protected(self, change: Change) -> Change:
        """Add the flag ``protected`` where git would run the file. The files around it show whether it is in a
        repository."""
        if PROTECTED in change.flags or not git_runs(change, self._exists, self._is_in_base):
            return change
        return change._replace(flags=protect(change.flags))

    def _exists(self, path: bytes) -> bool:
        return self._is_in(self._staged, path) or self._is_in_base(path)

    def _is_in_base(self, path: bytes) -> bool:
        return self._is_in(self._base, path)

    def _is_in(self, source: Source, path: bytes) -> bool:
        """Return whether the source has the path, or one whose last name is the same to some file system."""
        if source.look(path) is not None:
            return True
        key = (id(source), parent(path))
        if key not in self._spellings:
            self._spellings[key] = frozenset(map(spell, source.names(parent(path))))
        return spell(name(path)) in self._spellings[key]

    def _read(self, path: bytes, limit: int = _CONFIG_LIMIT) -> bytes | None:
        try:
            return read_all(self._staged, path, limit)
        except OSError:
            return None

    def _range(self, top: bytes) -> range:
        """Return the indexes of the changes at and below a path."""
        key = sort_key(top)
        return range(bisect_left(self._keys, key), bisect_left(self._keys, key + b"\1"))

    # --- repositories ---

    def _flag_repository(self, top: bytes) -> bool:
        """Flag all changes in a new repository alike, so that it is applied whole or not. Return whether it is
        harmless."""
        indexes = self._range(top)
        repository = examine(top, (self.changes[index] for index in indexes), self._exists, self._read)
        for index in indexes:
            change = self.changes[index]
            flags = tuple(flag for flag in change.flags if flag not in _MADE_HERE)
            if repository.reason:
                within = change.path[len(top) + 1 :]
                executes = bool(within) and is_git_setting(change, within, self._exists)
                flags = add_flags(flags, PROTECTED, *((EXECUTES,) if executes else ()))
            self.changes[index] = change._replace(flags=add_flags(flags, NEW_REPOSITORY))
        if repository.reason:
            self.remarks.append(Remark(top, repository_remark(repository)))
        return not repository.reason

    # --- directories that belong to a repository elsewhere ---

    def _flag_linked(self, tops: Sequence[bytes], harmless: Collection[bytes]) -> None:
        links = [change for change in self.changes if name(change.path) == b".git" and _is_new_file(change)]
        for change in links:
            content = self._read(change.path, _LINK_LIMIT) or b""
            target = link_target(change.path, content, self._exists)
            linked = linked_directory(change.path, target) if target is not None else None
            if linked is None:
                continue
            new = next((top for top in tops if is_below(linked.target, top)), None)
            if new is None:
                self._leave_out(linked)
            elif new in harmless and is_below(linked.path, parent(new)) and not content.startswith(b"gitdir: /"):
                self._join(change)

    def _leave_out(self, linked: LinkedDirectory) -> None:
        for index in self._range(linked.path):
            # git expects a submodule's directory to exist, empty
            stays = linked.kind == "work-tree" or self.changes[index].path != linked.path
            self._add(index, linked.kind, *((PROTECTED,) if stays else ()))
        for index in self._range(linked.target):
            self._add(index, linked.kind)
        head = self._read(linked.target + b"/HEAD", _LINK_LIMIT)
        self.remarks.append(Remark(linked.path, linked_remark(linked, head)))

    def _join(self, link: Change) -> None:
        """Apply the ``.git`` file of a submodule together with its new repository."""
        (index,) = self._range(link.path)
        flags = tuple(flag for flag in link.flags if flag not in _MADE_HERE)
        self.changes[index] = link._replace(flags=add_flags(flags, NEW_REPOSITORY))

    # --- places that the project's settings name ---

    def flag_run_by_git(self, project: bytes) -> None:
        places = run_by_git(project)
        for path in places.files:
            for index in self._range(path)[:1]:
                if self.changes[index].path == path and self.changes[index].entry.kind != "directory":
                    self._add(index, EXECUTES)
        for place in places.trees:
            for index in self._range(place):
                self._add(index, EXECUTES)
            for above in ancestors(place):
                for index in self._range(above)[:1]:
                    change = self.changes[index]
                    if change.path == above and change.entry.kind != "directory":  # may lead elsewhere
                        self._add(index, EXECUTES)

    def _add(self, index: int, *flags: str) -> None:
        change = self.changes[index]
        self.changes[index] = change._replace(flags=add_flags(change.flags, *flags))


def _without_stale(change: Change) -> Change:
    """Return the change without flags that this file set and a checkpoint has recorded: they may no longer hold."""
    if NEW_REPOSITORY not in change.flags and LINKED.isdisjoint(change.flags):
        return change
    kept = tuple(flag for flag in change.flags if flag not in _MADE_HERE)
    named = flags_of(change.path, is_directory=change.entry.kind == "directory")
    return change._replace(flags=add_flags(tuple(flag for flag in kept if flag not in named), *named))


def _is_new_file(change: Change) -> bool:
    return change.base is None and change.staged is not None and change.staged.kind == "file"
