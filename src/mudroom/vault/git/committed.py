"""Files as the fork has committed them, where the project has taken the commit.

After ``git merge mudroom/FORK`` the project has the fork's committed content, and the fork has changes on top of it.
Such a file was not changed by the user: the rest of the fork's change applies without a conflict.
"""

from __future__ import annotations

from mudroom.core.git.blob import blob_ids
from mudroom.core.git.ref_plan import HEAD
from mudroom.errors import MudroomError
from mudroom.stage.source import Source, read_all
from mudroom.vault.git.check import TREE, parse_commit, parse_tree
from mudroom.vault.git.fork_refs import ForkFiles, SideFiles, SideRefs, UnknownOriginal
from mudroom.vault.git.place import find_repository
from mudroom.vault.git.repository import Repository

_LIMIT = 64 << 20
_MOST_COMMITS = 10_000


class CommittedFiles:
    """The files at the fork's HEAD in the project's repository. ``view``: the fork, which must stay open.
    ``original``: the files as they were when the fork began."""

    def __init__(self, project: bytes, view: Source, original: SideFiles) -> None:
        self._project, self._view, self._original = project, view, original
        self._trees: dict[bytes, dict[bytes, tuple[bytes, bytes]]] | None = None
        self._top = b""
        self._id_length = 20

    def is_committed(self, live: Source, path: bytes) -> bool:
        """Return whether the project's file is as the fork has committed it, in a commit that the project's HEAD has.
        False if that cannot be told: the file is then compared with the original alone."""
        try:
            return self._is_committed(live, path)
        except (MudroomError, ValueError, OSError):
            return False

    def _is_committed(self, live: Source, path: bytes) -> bool:
        with Repository(find_repository(self._project, b".git")) as repository:
            if self._trees is None:
                self._trees, self._top = {}, self._reached_tree(repository)
                self._id_length = repository.format.oid_length
            blob = self._blob(repository, path) if self._top else b""
        if not blob:
            return False
        data = read_all(live, path, _LIMIT)
        return data is not None and bytes.fromhex(blob.decode()) in blob_ids(data, self._id_length)

    def _reached_tree(self, repository: Repository) -> bytes:
        """Return the tree of the fork's HEAD, b"" unless the fork made that commit and the project's HEAD has it."""
        length = repository.format.hex_length
        commit = SideRefs(ForkFiles(self._view), b".git", b".git", length).value(HEAD)
        try:
            before = SideRefs(self._original, b".git", b".git", length).value(HEAD)
        except UnknownOriginal:
            return b""
        if not commit or commit == before or _reaches(repository, before, commit):
            return b""
        head = repository.head()
        if head is None or not _reaches(repository, head, commit):
            return b""
        return parse_commit((repository.get(commit) or (b"", b""))[1]).tree

    def _blob(self, repository: Repository, path: bytes) -> bytes:
        """Return the id of a file in that tree, b"" if there is none."""
        tree = self._top
        *directories, name = path.split(b"/")
        for directory in directories:
            mode, tree = self._entries(repository, tree).get(directory, (b"", b""))
            if mode != TREE:
                return b""
        mode, blob = self._entries(repository, tree).get(name, (b"", b""))
        return blob if mode.startswith(b"100") else b""

    def _entries(self, repository: Repository, tree: bytes) -> dict[bytes, tuple[bytes, bytes]]:
        assert self._trees is not None
        if tree not in self._trees:
            kind, data = repository.get(tree) or (b"", b"")
            entries = parse_tree(data, repository.format.oid_length) if kind == b"tree" else {}
            self._trees[tree] = {name: (entry.mode, entry.id) for name, entry in entries.items()}
        return self._trees[tree]


def _reaches(repository: Repository, start: bytes, commit: bytes) -> bool:
    """Return whether a commit is ``start`` or an ancestor of it, among the nearest ``_MOST_COMMITS``."""
    pending, seen = [start] if start else [], {start}
    while pending and len(seen) < _MOST_COMMITS:
        name = pending.pop(0)
        if name == commit:
            return True
        kind, data = repository.get(name) or (b"", b"")
        if kind == b"commit":
            parents = [parent for parent in parse_commit(data).parents if parent not in seen]
            pending += parents
            seen.update(parents)
    return False
