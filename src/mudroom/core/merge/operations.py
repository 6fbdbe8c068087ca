"""Plan of an apply: a changeset as an ordered list of operations on the project. Pure: the live project is read through
callables.

Each operation moves data between the project and a numbered *slot*, a path in the apply's own directory:

    op       project           slot before    slot after     taken back by
    -------  ----------------  -------------  -------------  -------------
    place    nothing → new     new            nothing        remove
    swap     old → new         new            old            swap
    remove   old → nothing     nothing        old            place
    mkdir    nothing → dir     -              -              rmdir
    rmdir    dir → nothing     -              -              mkdir
    chmod    old mode → new    -              -              chmod

Old and new can be whole directories. Each move is one ``renameat2`` and so atomic, and leaves the complete old version
in the slot: the operation that replaces also makes the backup. Inode numbers alone tell whether an operation has
happened; recovery after a crash relies on that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from mudroom.core.merge.merge import Conflict
from mudroom.core.merge.merge_tree import Judgement, LiveProject, judge
from mudroom.core.tree.change import Change, Remark
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.flag import git_directory
from mudroom.core.tree.landing_form import landing_entry
from mudroom.core.tree.path import ROOT, ancestors, parent, sort_key
from mudroom.typing import Literal, NamedTuple

OpKind = Literal["place", "swap", "remove", "mkdir", "rmdir", "chmod"]

_DIFFERING = frozenset(("mode", "content", "type", "xattr"))
_DIRECTORY = Entry("directory", 0o755, 0, b"", 0, 0, 1, 0, 0, 0, 0)
_STUCK = "replaces a directory, but not everything below it can be applied"


class Op(NamedTuple):
    kind: OpKind
    path: bytes
    slot: int
    old: Entry | None
    """The entry that the project must hold before the operation."""
    new: Entry | None
    """The entry that the project holds after the operation."""
    whole: bool = False
    """Old or new is a directory that moves together with its contents."""
    copy: bool = False
    """The staged file or directory is copied into its slot, not moved: a file in it shares its inode with a name that
    stays in the fork."""
    merged: str = ""
    """Name under which the new content is stored if it is not the fork's own: merged, resolved, or a selected part."""
    origin: bytes = b""
    """The change's path in the fork, if the project has the file under another name."""
    after: bytes = b""
    """New path of the renamed file whose old name is removed here. The removal waits until the file is at its new
    path."""


class Landing(NamedTuple):
    ops: tuple[Op, ...]
    conflicts: tuple[Conflict, ...] = ()
    withheld: tuple[bytes, ...] = ()
    """Protected paths that the user did not name."""
    satisfied: tuple[bytes, ...] = ()
    """Paths at which the project already holds the fork's version."""
    remarks: tuple[Remark, ...] = ()
    taken: tuple[Change, ...] = ()
    """The changes from which the operations were made; ``base`` is the project's present entry."""
    differing: frozenset[bytes] = frozenset()
    """Paths in the fork that are applied or satisfied, but after which the project's version is not the fork's."""
    dropped: frozenset[bytes] = frozenset()
    """Paths in the fork for which the project's version was chosen: the fork's version is neither applied nor kept."""
    unmoved: frozenset[bytes] = frozenset()
    """Paths that are applied in part and that the project has not changed."""


def plan_landing(
    changes: Sequence[Change],
    live: LiveProject,
    named: Collection[bytes] = (),
    blocked: Collection[bytes] = (),
    masked: Collection[bytes] = (),
) -> Landing:
    """Judge every change and return the operations for those that can be applied. ``changes`` are in walking order.

    ``named``: paths given by the user, whose protection is lifted. A repository (``.git``) is left out as a whole
    unless it is named; its hooks and settings are left out even then, unless they are named themselves.
    ``blocked``: paths in the fork that cannot be applied (sockets); a directory that contains one never moves as a
    whole.
    ``masked``: secrets, whose real contents the fork never saw; its changes to them are left out.
    """
    return _Planner(judge(changes, live, named, masked), changes, live, blocked).plan(changes)


class _Planner:
    def __init__(
        self, judgement: Judgement, changes: Sequence[Change], live: LiveProject, blocked: Collection[bytes]
    ) -> None:
        self._live = live
        self._judgement = judgement
        self._taken, self._conflicts = judgement.taken, judgement.conflicts
        self._slots = 0
        self._counts = _counts_below({change.path for change in changes}.union(blocked))
        self._directories: dict[bytes, bool] = {}
        self._refused: set[bytes] = set()
        self._added_parents: dict[bytes, Change] = {}

    def plan(self, changes: Sequence[Change]) -> Landing:
        self._spread_conflicts()
        ops = tuple(self._operations())
        conflicts = tuple(self._conflicts[path] for path in sorted(self._conflicts))
        withheld, satisfied = self._judgement.withheld, set(self._judgement.satisfied)
        return Landing(
            ops,
            conflicts,
            tuple(change.path for change in changes if change.path in withheld),
            tuple(change.path for change in changes if change.path in satisfied),
            taken=tuple(self._taken),
            differing=frozenset(self._judgement.differing),
            dropped=frozenset(self._judgement.dropped - self._conflicts.keys()),
            unmoved=frozenset(self._judgement.unmoved),
        )

    def _refuse(self, path: bytes, reason: str) -> None:
        incoming = self._judgement.coming.get(path)
        origin = incoming.origin if incoming is not None else path
        self._conflicts.setdefault(origin, Conflict(origin, reason))
        self._refused.add(path)

    def _spread_conflicts(self) -> None:
        """Extend the conflicts to dependent changes, such as a directory's contents or a repository's other files.
        Repeat until there are no new conflicts."""
        self._add_missing_parents()
        previous_count = -1
        while previous_count != len(self._conflicts):
            previous_count = len(self._conflicts)
            self._refused.clear()
            self._refuse_broken_repositories()
            self._refuse_stranded()
            self._refuse_half_renames()
            self._taken = [change for change in self._taken if change.path not in self._refused]
        if self._added_parents:
            holding = {
                above
                for change in self._taken
                if change.path not in self._added_parents
                for above in ancestors(change.path)
            }
            self._taken = [change for change in self._taken if change.path not in self._added_parents.keys() - holding]

    def _add_missing_parents(self) -> None:
        """Add parent directories for new paths where the project no longer has them."""
        coming = {change.path for change in self._taken}
        for change in self._taken:
            if change.base is not None or change.staged is None or not self._orphaned(change, coming):
                continue
            parents = {above: self._live.look(above) for above in ancestors(change.path)}
            in_the_way = any(entry is not None and entry.kind != "directory" for entry in parents.values())
            refused = not self._conflicts.keys().isdisjoint(parents) or not self._judgement.withheld.isdisjoint(parents)
            if in_the_way or refused or git_directory(change.path) is not None:
                continue
            for above in parents:
                if above in coming or above in self._added_parents or parents[above] is not None:
                    continue
                entry = landing_entry(self._live.staged_directory(above) or _DIRECTORY, None)
                self._added_parents[above] = Change(above, "added", None, entry._replace(mode=entry.mode | 0o700))
        if self._added_parents:
            self._taken += self._added_parents.values()
            self._taken.sort(key=lambda change: sort_key(change.path))

    def _refuse_broken_repositories(self) -> None:
        """Refuse all changes in a repository if one conflicts: half of a commit is a broken repository."""
        units = {git for change in self._taken if (git := git_directory(change.path)) is not None}
        broken = {git_directory(path) for path in self._conflicts} | {git for git in units if self._live.git_moved(git)}
        for change in self._taken:
            if git_directory(change.path) in broken - {None}:
                self._refuse(change.path, "the repository has changed in the project meanwhile")

    def _refuse_stranded(self) -> None:
        """Refuse changes that cannot be placed: their directory does not exist, or it belongs to a directory that
        cannot be replaced."""
        coming = {change.path for change in self._taken}
        for index, change in enumerate(self._taken):
            below = _below(self._taken, index) if _turns(change) else ()
            if self._orphaned(change, coming):
                self._refuse(change.path, "its directory is not in the project any more")
            elif _turns(change) and not (self._goes_whole(change, below) or self._goes_in_parts(change, below)):
                for refused in (change, *below):
                    self._refuse(refused.path, _STUCK)

    def _refuse_half_renames(self) -> None:
        """Refuse to delete a renamed file whose new path is in conflict: the file must not disappear from both
        paths."""
        for change in self._taken:
            if change.moved_to in self._conflicts:
                self._refuse(change.path, "its new path is in conflict")

    def _operations(self) -> Iterator[Op]:
        """Yield the operations in walking order. Directories are removed last, deepest first."""
        late: list[Op] = []
        coming = {change.path for change in self._taken if change.staged is not None}
        shared = _partly_shared(self._taken)
        index = 0
        while index < len(self._taken):
            change = self._taken[index]
            below = _below(self._taken, index)
            index += 1
            if self._goes_in_parts(change, below):
                index += len(below)
                yield from self._parts(change, below, copy=_inode(change) in shared)
                continue
            partly = bool(shared) and any(_inode(inner) in shared for inner in below)
            whole = _turns(change) or (not partly and self._goes_whole(change, below))
            if whole:
                index += len(below)
            for op in self._op(change, whole, copy=_inode(change) in shared or (whole and partly)):
                op = self._from_elsewhere(op)
                if change.moved_to in coming and op.kind == "remove" and not op.whole:
                    op = op._replace(after=change.moved_to)
                if _closes_directory(op) or op.after:
                    late.append(op)
                else:
                    yield op
        yield from reversed(late)

    def _from_elsewhere(self, op: Op) -> Op:
        coming = self._judgement.coming.get(op.path)
        if coming is None or not op.slot:
            return op
        return op._replace(merged=coming.name, origin=coming.origin if coming.origin != op.path else b"", copy=False)

    def _orphaned(self, change: Change, coming: Collection[bytes]) -> bool:
        """Return whether the parent directory is neither in the project nor among the incoming changes."""
        above = parent(change.path)
        return change.staged is not None and above != ROOT and above not in coming and not self._is_directory(above)

    def _is_directory(self, path: bytes) -> bool:
        if path not in self._directories:
            entry = self._live.look(path)
            self._directories[path] = entry is not None and entry.kind == "directory"
        return self._directories[path]

    def _goes_whole(self, change: Change, below: Sequence[Change]) -> bool:
        """Return whether one rename can move this directory with all its contents."""
        if not (_turns(change) or (change.verb != "modified" and change.entry.kind == "directory")):
            return False
        if change.base is not None and change.base.kind == "directory" and not self._live.moves_directories:
            return False
        return self._is_complete(change, below)

    def _goes_in_parts(self, change: Change, below: Sequence[Change]) -> bool:
        """Return whether a directory that becomes a file is removed name by name."""
        if self._live.moves_directories or not _turns(change) or change.base is None:
            return False
        return change.base.kind == "directory" and self._is_complete(change, below)

    def _is_complete(self, change: Change, below: Sequence[Change]) -> bool:
        """Return whether the whole directory is taken, and the project has nothing else in it."""
        if (
            change.path in self._added_parents
            or self._counts[change.path] != len(below)
            or any(inner.path in self._judgement.coming for inner in below)
        ):
            return False
        if change.base is not None and change.base.kind == "directory":
            expected = {inner.path: inner.base for inner in below if inner.base is not None}
            return self._live.same_tree(change.path, expected)
        return True

    def _parts(self, change: Change, below: Sequence[Change], copy: bool) -> Iterator[Op]:
        """Yield the removals of a directory and its contents, then the placing of its replacement."""
        emptied = [(change.path, change.base)]
        for inner in below:
            if inner.base is not None and inner.base.kind == "directory":
                emptied.append((inner.path, inner.base))
            elif inner.base is not None:
                yield Op("remove", inner.path, self._slot(), inner.base, None)
        yield from (Op("rmdir", path, 0, base, None) for path, base in reversed(emptied))
        yield Op("place", change.path, self._slot(), None, change.staged, copy=copy)

    def _op(self, change: Change, whole: bool, copy: bool) -> list[Op]:
        path, base, staged = change.path, change.base, change.staged
        if base is None or staged is None:
            return self._one_sided(change, whole, copy)
        if _is_chmod(change):
            return [Op("chmod", path, 0, base, base._replace(mode=staged.mode))]
        return [Op("swap", path, self._slot(), base, staged, whole, copy)]

    def _one_sided(self, change: Change, whole: bool, copy: bool) -> list[Op]:
        path, base, staged = change.path, change.base, change.staged
        separate = change.entry.kind == "directory" and not whole
        if staged is None:
            return (
                [Op("rmdir", path, 0, base, None)]
                if separate
                else [Op("remove", path, self._slot(), base, None, whole)]
            )
        if not separate:
            return [Op("place", path, self._slot(), None, staged, whole, copy)]
        enterable = staged._replace(mode=staged.mode | 0o700)
        ops = [Op("mkdir", path, 0, None, enterable)]
        return ops if staged == enterable else [*ops, Op("chmod", path, 0, enterable, staged)]

    def _slot(self) -> int:
        self._slots += 1
        return self._slots


def _closes_directory(op: Op) -> bool:
    """Return whether the operation must wait until everything inside the directory is done: it removes the directory,
    or its write permission."""
    if op.kind == "chmod" and op.new is not None and op.new.kind == "directory":
        return op.new.mode & 0o700 != 0o700
    return op.kind == "rmdir"


def _counts_below(paths: Collection[bytes]) -> Counter[bytes]:
    """Return, for each directory, how many paths are below it."""
    counts = Counter(map(parent, paths))
    counts.pop(b"", None)
    for directory in list(counts):
        above = parent(directory)
        while above and above not in counts:
            counts[above] = 0
            above = parent(above)
    for directory in sorted(counts, key=len, reverse=True):  # a directory is longer than the one above it
        if above := parent(directory):
            counts[above] += counts[directory]
    return counts


def _below(changes: Sequence[Change], index: int) -> Sequence[Change]:
    """Return the changes inside the directory of ``changes[index]``. In walking order they follow it directly."""
    prefix = changes[index].path + b"/"
    end = index + 1
    while end < len(changes) and changes[end].path.startswith(prefix):
        end += 1
    return changes[index + 1 : end]


def _turns(change: Change) -> bool:
    """Return whether a directory becomes something else, or the reverse."""
    if change.base is None or change.staged is None:
        return False
    return (change.base.kind == "directory") != (change.staged.kind == "directory")


def _is_chmod(change: Change) -> bool:
    """Return whether only the mode of the project's own file or directory changes. False for a file with several hard
    links, because their mode would change, too."""
    if change.base is None or change.staged is None:
        return False
    if change.base.kind == change.staged.kind == "directory":
        return True
    return change.base.links == 1 and _DIFFERING & set(change.flags) == {"mode"}


def _inode(change: Change) -> tuple[int, int]:
    return (change.staged.device, change.staged.inode) if change.staged is not None else (0, 0)


def _partly_shared(changes: Sequence[Change]) -> set[tuple[int, int]]:
    """Return the inodes of staged hard-linked files that are not moved under all their names: another name stays in the
    fork, or only its mode is applied. Moving such a file would make project and fork share an inode."""
    names: dict[tuple[int, int], int] = {}
    links: dict[tuple[int, int], int] = {}
    for change in changes:
        if change.staged is None or change.staged.kind != "file" or _is_chmod(change):
            continue
        if change.staged.links > 1:
            names[_inode(change)] = names.get(_inode(change), 0) + 1
            links[_inode(change)] = change.staged.links
    return {inode for inode, count in names.items() if count < links[inode]}


def inverse(op: Op) -> Op:
    """Return the operation that reverts ``op``. The slot holds the data it needs, by the table above."""
    kinds: dict[OpKind, OpKind] = {
        "place": "remove",
        "remove": "place",
        "swap": "swap",
        "mkdir": "rmdir",
        "rmdir": "mkdir",
        "chmod": "chmod",
    }
    return op._replace(kind=kinds[op.kind], old=op.new, new=op.old, copy=False, after=b"")


def expand(op: Op, tree: dict[bytes, Entry], first_slot: int) -> list[Op]:
    """Split a whole directory's removal into removals of its entries, if other files were added to the directory.

    ``tree`` lists the entries that apply created, relative to the directory; other entries stay.
    """
    assert op.kind == "remove" and op.old is not None
    ops: list[Op] = []
    directories = [Op("rmdir", op.path, 0, op.old, None)]
    for path in sorted(tree, key=sort_key):
        full_path = op.path + b"/" + path
        if tree[path].kind == "directory":
            directories.append(Op("rmdir", full_path, 0, tree[path], None))
        else:
            ops.append(Op("remove", full_path, first_slot + len(ops), tree[path], None))
    return ops + directories[::-1]
