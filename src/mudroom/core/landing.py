"""How a changeset lands in a project, as a list of operations. Pure: the live project is asked through a callable.

Every operation moves between the project and a numbered *slot*, a place in the apply's own directory:

    op       project           slot before    slot after     taken back by
    -------  ----------------  -------------  -------------  -------------
    place    nothing → new     new            nothing        remove
    swap     old → new         new            old            swap
    remove   old → nothing     nothing        old            place
    mkdir    nothing → dir     -              -              rmdir
    rmdir    dir → nothing     -              -              mkdir
    chmod    old mode → new    -              -              chmod

Old and new may be whole directories. Each is one ``renameat2``, so each is atomic, and what was replaced lies complete
in the slot: the backup is made by the very act that replaces. Whether an operation has happened can be told from
inode numbers alone, which is what recovery after a crash does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal, NamedTuple

from mudroom.core.change import Change, Remark
from mudroom.core.entry import Entry
from mudroom.core.flag import git_directory, is_protected
from mudroom.core.merge import Conflict, decide
from mudroom.core.path import ROOT, ancestors, is_below, parent, sort_key

OpKind = Literal["place", "swap", "remove", "mkdir", "rmdir", "chmod"]

_DIFFERING = frozenset(("mode", "content", "type", "xattr"))
_STUCK = "turns a directory into something else, but not all of it can go along"


class Op(NamedTuple):
    kind: OpKind
    path: bytes
    slot: int
    old: Entry | None
    """What the project must hold for the operation to go ahead."""
    new: Entry | None
    """What it holds afterwards."""
    whole: bool = False
    """Old or new is a directory that goes with all that is in it."""
    copy: bool = False
    """What is staged is copied into its slot, not moved: a file in it shares its inode with a name that stays in the
    fork."""


class Landing(NamedTuple):
    ops: tuple[Op, ...]
    conflicts: tuple[Conflict, ...] = ()
    withheld: tuple[bytes, ...] = ()
    """Protected paths that nobody named."""
    satisfied: tuple[bytes, ...] = ()
    """The project already is as the fork wants it."""
    remarks: tuple[Remark, ...] = ()


class Live(NamedTuple):
    """The project as it is now, asked path by path."""

    look: Callable[[bytes], Entry | None]
    same_as_staged: Callable[[Change, Entry], bool]
    """Whether the live entry has the shape and content of the staged one."""
    same_tree: Callable[[bytes, dict[bytes, Entry]], bool]
    """Whether the live directory holds exactly these entries (paths from the project), each with this very stamp."""
    git_moved: Callable[[bytes], bool] = lambda _git: False
    """Whether the repository at this ``.git`` has new commits, branches or index since the changes were collected."""


def plan_landing(
    changes: Sequence[Change],
    live: Live,
    named: Collection[bytes] = (),
    blocked: Collection[bytes] = (),
    masked: Collection[bytes] = (),
) -> Landing:
    """Decide every change and put the survivors in order. ``changes`` are in walking order.

    ``named``: paths given by the user, which lifts the protection of those. A repository (``.git``) is left out as a
    whole unless it is named; its hooks and settings are left out even then, unless they are named themselves.
    ``blocked``: paths in the fork that cannot be applied (sockets); no directory that holds one moves as a whole.
    ``masked``: paths that the fork never saw as they are (secrets): whatever it has done there is left out.
    """
    return _Planner(changes, live, named, blocked, masked).plan()


class _Planner:
    def __init__(
        self,
        changes: Sequence[Change],
        live: Live,
        named: Collection[bytes],
        blocked: Collection[bytes],
        masked: Collection[bytes],
    ) -> None:
        self._changes, self._live, self._named, self._masked = changes, live, named, frozenset(masked)
        self._conflicts: dict[bytes, str] = {}
        self._satisfied: list[bytes] = []
        self._remarks: list[Remark] = []
        self._taken: list[Change] = []
        self._slots = 0
        self._counts = _counts_below({change.path for change in changes}.union(blocked))
        self._directories: dict[bytes, bool] = {}
        gone = (change for change in changes if change.staged is None)
        self._removed = {change.path for change in gone if change.entry.kind == "directory"}

    def plan(self) -> Landing:
        withheld = {change.path for change in self._changes if self._is_withheld(change)}
        withheld |= self._kept_for({*withheld, *self._masked})
        absent = b"\0"  # a new directory that the project does not have: nothing below it needs to be looked at
        for change in self._changes:
            if change.path in withheld:
                continue
            ours = None if change.path.startswith(absent) else self._live.look(change.path)
            self._decide(change, ours)
            if ours is None and change.base is None and change.entry.kind == "directory":
                absent = absent if change.path.startswith(absent) else change.path + b"/"
        self._settle()
        ops = tuple(self._operations())
        conflicts = tuple(Conflict(path, reason) for path, reason in sorted(self._conflicts.items()))
        left_out = tuple(change.path for change in self._changes if change.path in withheld)
        return Landing(ops, conflicts, left_out, tuple(self._satisfied), tuple(self._remarks))

    def _is_withheld(self, change: Change) -> bool:
        path = change.path
        if path in self._masked:
            return True
        unit = git_directory(path)
        if unit is not None and unit in self._removed and unit in self._named:
            return False  # all of it goes: hooks and settings that stayed alone would be a broken repository
        if is_protected(path) or "protected" in change.flags:
            return not any(_lifts(name, path) or _leads_to(change, name) for name in self._named)
        return unit is not None and not any(name == unit or _leads_to(change, name) for name in self._named)

    def _kept_for(self, withheld: Collection[bytes]) -> set[bytes]:
        """Directories that cannot go because something in them stays."""
        staying = {above for path in withheld for above in ancestors(path)}
        return {change.path for change in self._changes if change.path in staying and change.staged is None}

    def _decide(self, change: Change, ours: Entry | None) -> None:
        same = ours is None if change.staged is None else ours is not None and self._live.same_as_staged(change, ours)
        decision = decide(change, ours, ours_is_theirs=same)
        if decision.outcome == "conflict":
            self._conflicts[change.path] = decision.reason
        elif decision.outcome == "satisfied":
            self._satisfied.append(change.path)
        else:
            self._taken.append(change if ours is None else change._replace(base=ours))  # its links may be others now

    def _settle(self) -> None:
        """A conflict takes others along: what lies in it, the rest of its repository. Until no more are found."""
        found = -1
        while found != len(self._conflicts):
            found = len(self._conflicts)
            self._git_as_one_unit()
            self._strand()
            self._taken = [change for change in self._taken if change.path not in self._conflicts]

    def _git_as_one_unit(self) -> None:
        """A repository lands whole or not at all: half of a commit is a broken repository."""
        units = {git for change in self._taken if (git := git_directory(change.path)) is not None}
        broken = {git_directory(path) for path in self._conflicts} | {git for git in units if self._live.git_moved(git)}
        for change in self._taken:
            if git_directory(change.path) in broken - {None}:
                self._conflicts.setdefault(change.path, "the repository moved on in the project meanwhile")

    def _strand(self) -> None:
        """What has nowhere to go: its directory is not there, or is part of what cannot turn into something else."""
        coming = {change.path for change in self._taken}
        for index, change in enumerate(self._taken):
            below = _below(self._taken, index) if _turns(change) else ()
            if self._orphaned(change, coming):
                self._conflicts.setdefault(change.path, "its directory is not in the project any more")
            elif _turns(change) and not self._goes_whole(change, below):
                for one in (change, *below):
                    self._conflicts.setdefault(one.path, _STUCK)

    def _operations(self) -> Iterator[Op]:
        """In walking order; directories to be removed come last, deepest first."""
        late: list[Op] = []
        shared = _partly_shared(self._taken)
        index = 0
        while index < len(self._taken):
            change = self._taken[index]
            below = _below(self._taken, index)
            index += 1
            partly = bool(shared) and any(_inode(one) in shared for one in below)
            whole = _turns(change) or (not partly and self._goes_whole(change, below))
            if whole:
                index += len(below)
            for op in self._op(change, whole, copy=_inode(change) in shared or (whole and partly)):
                if _closes_directory(op):
                    late.append(op)
                else:
                    yield op
        yield from reversed(late)

    def _orphaned(self, change: Change, coming: Collection[bytes]) -> bool:
        """Whether it is to be in a directory that neither comes along nor is there."""
        above = parent(change.path)
        return change.staged is not None and above != ROOT and above not in coming and not self._is_directory(above)

    def _is_directory(self, path: bytes) -> bool:
        if path not in self._directories:
            entry = self._live.look(path)
            self._directories[path] = entry is not None and entry.kind == "directory"
        return self._directories[path]

    def _goes_whole(self, change: Change, below: Sequence[Change]) -> bool:
        """Whether one rename can move this directory and everything in it."""
        if not (_turns(change) or (change.verb != "modified" and change.entry.kind == "directory")):
            return False
        if self._counts[change.path] != len(below):
            return False
        if change.base is not None and change.base.kind == "directory":
            expected = {c.path: c.base for c in below if c.base is not None}
            return self._live.same_tree(change.path, expected)
        return True

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
    """Whether it must wait until all inside the directory is done: its removal, or the loss of write permission."""
    if op.kind == "chmod" and op.new is not None and op.new.kind == "directory":
        return op.new.mode & 0o700 != 0o700
    return op.kind == "rmdir"


def _counts_below(paths: Collection[bytes]) -> Counter[bytes]:
    """How many of the paths each directory has below it."""
    return Counter(above for path in paths for above in ancestors(path))


def _below(changes: Sequence[Change], index: int) -> Sequence[Change]:
    """The changes inside the directory of ``changes[index]``: in walking order they follow it directly."""
    prefix = changes[index].path + b"/"
    end = index + 1
    while end < len(changes) and changes[end].path.startswith(prefix):
        end += 1
    return changes[index + 1 : end]


def _turns(change: Change) -> bool:
    """Whether a directory turns into something else, or the other way round."""
    if change.base is None or change.staged is None:
        return False
    return (change.base.kind == "directory") != (change.staged.kind == "directory")


def _is_chmod(change: Change) -> bool:
    """Whether the project's own file or directory stays, with another mode. Not if it has other names, which are the
    same file: they would change, too."""
    if change.base is None or change.staged is None:
        return False
    if change.base.kind == change.staged.kind == "directory":
        return True
    return change.base.links == 1 and _DIFFERING & set(change.flags) == {"mode"}


def _lifts(name: bytes, path: bytes) -> bool:
    """Whether naming ``name`` lifts the protection of ``path``: it is that path, or hooks or mudroom's own directory
    with the path in it. What belongs to yet another repository in there has to be named itself."""
    if name == path or not is_below(path, name):
        return name == path
    if name.split(b"/", 1)[0] == b".mudroom":
        return True
    rest = path[len(name) + 1 :].split(b"/")
    is_hooks = name == b"hooks" or name.endswith(b"/hooks")
    return (is_protected(name) or is_hooks) and not {b".git", b"hooks", b"config"}.intersection(rest)


def _leads_to(change: Change, name: bytes) -> bool:
    """Whether it is a new directory, without which ``name`` has nowhere to go."""
    return change.base is None and change.entry.kind == "directory" and is_below(name, change.path)


def _inode(change: Change) -> tuple[int, int]:
    return (change.staged.device, change.staged.inode) if change.staged is not None else (0, 0)


def _partly_shared(changes: Sequence[Change]) -> set[tuple[int, int]]:
    """Inodes of staged files that also have a name which stays in the fork: it does not land, or only its mode does.
    Moving one would tie project and fork."""
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
    """The operation that takes ``op`` back. Its slot holds what it needs, by the table above."""
    kinds: dict[OpKind, OpKind] = {
        "place": "remove",
        "remove": "place",
        "swap": "swap",
        "mkdir": "rmdir",
        "rmdir": "mkdir",
        "chmod": "chmod",
    }
    return op._replace(kind=kinds[op.kind], old=op.new, new=op.old, copy=False)


def expand(op: Op, tree: dict[bytes, Entry], first_slot: int) -> list[Op]:
    """The removal of a whole directory as the removal of each thing in it, for when it has come to hold more.

    ``tree`` names what we put there, relative to the directory; anything else in it stays.
    """
    assert op.kind == "remove" and op.old is not None
    ops: list[Op] = []
    directories = [Op("rmdir", op.path, 0, op.old, None)]
    for path in sorted(tree, key=sort_key):
        at = op.path + b"/" + path
        if tree[path].kind == "directory":
            directories.append(Op("rmdir", at, 0, tree[path], None))
        else:
            ops.append(Op("remove", at, first_slot + len(ops), tree[path], None))
    return ops + directories[::-1]
