"""Checks, before its files are applied, that a repository made in a fork records no masked file as empty.

Commands see masked files empty, so ``git add -A`` in a new repository stages them so; the user's next ``git checkout``
or ``git stash`` would empty the real file. The repository is read as data. The check protects against accidents: it
looks only at masked files' paths, in the index and in each ref's latest commits.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator

from mudroom.core.git.index import parse_index
from mudroom.core.git.repository_state import parse_packed_refs
from mudroom.core.git.settings_file import parse_settings
from mudroom.core.tree.path import is_below, name, parent, show, show_path
from mudroom.errors import UsageError
from mudroom.ext.commits.core.emptied import EMPTY_BLOBS
from mudroom.ext.commits.git.check import TREE, is_id, parse_commit, parse_tree, tag_target
from mudroom.ext.commits.git.objects import ForkObjects
from mudroom.ext.commits.git.read import read_small, refusal
from mudroom.stage.source import Source, walk

COMMIT_LIMIT = 100_000
"""Commits that are read, the latest first."""
_REFS_LIMIT = 200_000
_SMALL, _LARGE = 1 << 20, 256 << 20
_STASH_LOG = b"/logs/refs/stash"
_ALTERNATES = b"/objects/info/alternates"


def require_unemptied(view: Source, top: bytes, masked: Iterable[bytes]) -> None:
    """Raise UsageError with the path if a new repository's index, commits or stashes hold a masked file as empty, or
    cannot be read.

    ``view``: the whole fork; no command may be running in it. ``top``: the ``.git`` directory, or a bare repository.
    ``masked``: paths in the project.
    """
    paths = _paths_in(top, masked)
    if not paths:
        return
    id_length = _id_length(view, top)
    for path in _in_index(view, top, id_length):
        if path in paths:
            raise _refused(top, path, "index")
    algorithm = "sha1" if id_length == 20 else "sha256"
    with ForkObjects(view, top + b"/objects", algorithm) as objects:
        commits = _Commits(objects, id_length)
        for commit, tree in commits.latest(_tips(view, top, id_length)):
            for path in sorted(paths):
                if commits.is_empty(tree, path):
                    raise _refused(top, path, f"commit {commit[:12].decode()}")


def _paths_in(top: bytes, masked: Iterable[bytes]) -> set[bytes]:
    """Return the masked files' paths in a repository: in its work tree, and at the same paths as in the project,
    because it may be a clone."""
    paths = {*masked}
    work = parent(top)
    if name(top) == b".git" and work:
        paths |= {path[len(work) + 1 :] for path in paths if is_below(path, work) and path != work}
    return paths


def _refused(top: bytes, path: bytes, place: str) -> UsageError:
    return UsageError(
        f"{show_path(path)} is masked, and the {place} of {show_path(top)}, which the fork made, holds it as an empty"
        " file",
        f"in the fork: git rm --cached {show_path(path)}, and commit anew; or apply without it: name other paths",
    )


def _id_length(view: Source, top: bytes) -> int:
    """Return an object id's length in bytes. Raise UsageError if the repository's kind is unknown."""
    try:
        settings = parse_settings(read_small(view, top + b"/config", _SMALL) or b"")
    except ValueError as error:
        raise refusal(f"the settings in {show(top)}/config are not valid: {error}") from None
    extensions = {
        setting.key: (setting.value or b"").lower() for setting in settings if setting.section == b"extensions"
    }
    if extensions.get(b"refstorage", b"files") != b"files":
        raise refusal(f"the refs of {show(top)} are not files, so it cannot be checked for masked files", "")
    if read_small(view, top + _ALTERNATES, _SMALL) is not None:
        raise refusal(f"{show(top)} borrows objects, so it cannot be checked for masked files", "git repack -a -d")
    return 32 if extensions.get(b"objectformat") == b"sha256" else 20


def _in_index(view: Source, top: bytes, id_length: int) -> Iterator[bytes]:
    """Yield the paths at which the index holds an empty file."""
    data = read_small(view, top + b"/index", _LARGE)
    if data is None:
        return
    try:
        index = parse_index(data, id_length)
    except ValueError as error:
        raise refusal(f"{show(top)}/index: {error}") from None
    if index.required:
        raise refusal(f"{show(top)}/index is split or sparse, so it cannot be checked for masked files", "")
    for entry in index.entries:
        if entry.item.id == EMPTY_BLOBS[id_length] and not entry.intent_to_add:
            yield entry.path


def _tips(view: Source, top: bytes, id_length: int) -> set[bytes]:
    """Return the objects named by HEAD, the refs and the stashes."""
    texts = [read_small(view, top + b"/HEAD", _SMALL) or b""]
    packed = parse_packed_refs(read_small(view, top + b"/packed-refs", _LARGE) or b"")
    for path, entry in walk(view, top + b"/refs"):
        if entry.kind == "file":
            texts.append(read_small(view, path, _SMALL) or b"")
        if len(texts) > _REFS_LIMIT:
            raise refusal(f"{show(top)} has more than {_REFS_LIMIT:,} refs", "git pack-refs --all")
    log = read_small(view, top + _STASH_LOG, _LARGE) or b""
    stashes = [line.split(b" ", 2)[1] for line in log.split(b"\n") if line.count(b" ") > 1]
    ids = (*(text.strip() for text in texts), *packed.values(), *stashes)
    return {text for text in ids if is_id(text) and len(text) == 2 * id_length}


class _Commits:
    """A new repository's commits. Missing objects are not followed: a shallow clone's history ends early."""

    def __init__(self, objects: ForkObjects, id_length: int) -> None:
        self._objects, self._id_length = objects, id_length
        self._empty = EMPTY_BLOBS[id_length].hex().encode()
        self._known: dict[tuple[bytes, bytes], bool] = {}

    def latest(self, tips: Collection[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the commits that the tips reach, latest first, each with its tree."""
        heap: list[tuple[int, bytes, bytes, tuple[bytes, ...]]] = []
        seen: set[bytes] = set()

        def add(tip: bytes) -> None:
            commit = self._peeled(tip) if tip not in seen else None
            seen.add(tip)
            if commit is not None:
                heapq.heappush(heap, commit)

        for tip in tips:
            add(tip)
        for _number in range(COMMIT_LIMIT):
            if not heap:
                return
            _time, found, tree, parents = heapq.heappop(heap)
            yield found, tree
            for above in parents:
                add(above)

    def _peeled(self, tip: bytes) -> tuple[int, bytes, bytes, tuple[bytes, ...]] | None:
        """Return a commit, or the commit that a tag names, with its time for a heap. Return None for another object."""
        try:
            for _step in range(5):
                kind, data = self._objects.get(tip) or (b"", b"")
                if kind == b"commit":
                    commit = parse_commit(data)
                    return -commit.time, tip, commit.tree, commit.parents
                if kind != b"tag":
                    break
                tip, _kind = tag_target(data)
        except ValueError as error:
            raise refusal(f"the object {tip.decode()} {error}") from None
        return None

    def is_empty(self, tree: bytes, path: bytes) -> bool:
        """Return whether a tree has an empty file at a path."""
        key = (tree, path)
        if key not in self._known:
            first, _slash, rest = path.partition(b"/")
            kind, data = self._objects.get(tree) or (b"", b"")
            try:
                entry = parse_tree(data, self._id_length).get(first) if kind == b"tree" else None
            except ValueError as error:
                raise refusal(f"the tree {tree.decode()} {error}") from None
            if entry is None or not rest:
                self._known[key] = entry is not None and entry.id == self._empty
            else:
                self._known[key] = entry.mode == TREE and self.is_empty(entry.id, rest)
        return self._known[key]
