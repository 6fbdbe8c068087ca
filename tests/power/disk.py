"""A model of a disk that loses power: every state in which a file system may be found afterwards.

``record`` runs work in a child that the kernel stops at each call that changes something (``faults.py``), and compares
the whole tree before and after each call. So the model needs no knowledge of calls but of three: fsync, fdatasync and
syncfs. ``Recording.crashes`` yields the states, and ``Disk.restore`` makes one of them on the disk, with the very
inodes that it had: records of mudroom name inodes.

The rules, from the weakest to what every journaling file system adds (docs/FORMAT.md, "Power loss"):

1. The changes of names by one call are one act: a rename moves, replaces or exchanges wholly or not at all.
2. A change of names is durable after fsync(2) of one of its directories, or syncfs(2). Before, it may be lost or kept,
   in any order, except that changes of one name keep their order.
3. The content and the attributes of a file are durable after fsync(2) or fdatasync(2) of the file, or syncfs(2).
   Before, each file is found as at any moment since its last sync, or empty, or with zeros, or torn in the middle.
4. ``ordered`` (ext4 and XFS; btrfs is between): each fsync makes all earlier changes of names durable, and those that
   are lost are the last ones.

A store into a shared mapping is no call. SQLite's ``-shm`` is one: it is made anew at the first opening.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from faults import ASK_AGAIN, Call, Outcome, watched
from mudroom.core.tree.entry import Entry

SYNCS = ("fsync", "fdatasync", "syncfs", "sync")
REMOVALS = ("unlink", "unlinkat", "rmdir", "rename", "renameat", "renameat2")
_NAMELESS = re.compile(r"/#(\d+) \(deleted\)$")
ALL = -1
"""In place of an inode: everything was synced."""


class Node(NamedTuple):
    """The content and the attributes of one inode."""

    mode: int
    content: bytes
    """Of a file; the target of a link."""
    mtime: int
    ctime: int
    xattrs: tuple[tuple[str, bytes], ...]


class Tree(NamedTuple):
    names: dict[tuple[int, str], int]
    """By the inode of the directory and the name: the inode."""
    nodes: dict[int, Node]


class Step(NamedTuple):
    """One call."""

    call: str
    names: dict[tuple[int, str], int | None]
    """What each changed name stands for now; None: nothing."""
    nodes: dict[int, Node]
    synced: int
    """The inode that is durable now, or ALL; 0 if nothing is."""


class Crash(NamedTuple):
    """A state in which the disk may be found."""

    cut: int
    """Number of calls that were made."""
    kind: str
    tree: Tree
    finished: bool
    """Whether the work had reported its end."""

    def digest(self, roots: tuple[int, ...]) -> bytes:
        """Return a digest of all that can be reached; ctimes do not count."""
        found = hashlib.sha256(b"%d" % self.finished)
        below: dict[int, list[tuple[str, int]]] = {}
        for (directory, name), inode in self.tree.names.items():
            below.setdefault(directory, []).append((name, inode))
        queue = list(roots)
        while queue:
            directory = queue.pop()
            for name, inode in sorted(below.get(directory, ())):
                found.update(f"{directory} {name} {inode} {self.tree.nodes[inode]._replace(ctime=0)}".encode())
                queue.append(inode)
        return found.digest()


class Disk:
    """The directories of one world, all on one file system, and a place beside them that keeps every inode alive."""

    def __init__(self, keep: Path, *roots: Path) -> None:
        keep.mkdir()
        self._keep, self.roots = keep, roots
        self.inodes = tuple(root.stat().st_ino for root in roots)
        self.known: set[int] = set()
        """Every inode of the recording; they are kept through all its crashes."""

    # --- reading ---

    def scan(self, known: Tree | None = None, changed: str = "") -> Tree:
        """Return the present tree. Contents are read of new files, and of those whose path is in ``changed``."""
        names: dict[tuple[int, str], int] = {}
        nodes: dict[int, Node] = {}
        for root, inode in zip(self.roots, self.inodes, strict=True):
            nodes[inode] = self._node(str(root), root.lstat(), known, changed)
            queue = [(str(root), inode)]
            while queue:
                directory, number = queue.pop()
                with os.scandir(directory) as entries:
                    for entry in entries:
                        info = entry.stat(follow_symlinks=False)
                        names[number, entry.name] = info.st_ino
                        if info.st_ino not in nodes:
                            nodes[info.st_ino] = self._node(entry.path, info, known, changed)
                        if stat.S_ISDIR(info.st_mode):
                            queue.append((entry.path, info.st_ino))
        return Tree(names, nodes)

    def _node(self, path: str, info: os.stat_result, known: Tree | None, changed: str) -> Node:
        before = known.nodes.get(info.st_ino) if known is not None else None
        times = info.st_mtime_ns, info.st_ctime_ns
        if before is not None and (before.mode, before.mtime, before.ctime) == (info.st_mode, *times):
            is_grown = stat.S_ISREG(info.st_mode) and len(before.content) != info.st_size
            if path not in changed and not is_grown:
                return before
        content = b""
        if stat.S_ISLNK(info.st_mode):
            content = os.fsencode(os.readlink(path))
        elif stat.S_ISREG(info.st_mode) and info.st_size:  # an empty one may be the kernel's, closed to its owner
            content = Path(path).read_bytes()
        xattrs = ((name, os.getxattr(path, name, follow_symlinks=False)) for name in _xattrs(path))
        return Node(info.st_mode, content, *times, tuple(sorted(xattrs)))

    # --- writing ---

    def protect(self, call: Call) -> None:
        """Before a call that removes a name: keep the inode."""
        if call.name not in REMOVALS:
            return
        path = call.what.split(" ")[-1]
        try:
            info = os.lstat(path)
        except OSError:
            return
        kept = self._keep / str(info.st_ino)
        if os.path.lexists(kept) or not any(Path(path).is_relative_to(root) for root in self.roots):
            return
        if not stat.S_ISDIR(info.st_mode):
            os.link(path, kept, follow_symlinks=False)
        elif "rename" not in call.name and not os.listdir(path):
            os.rename(path, kept)  # a directory has one name: the call removes another one
            os.mkdir(path)

    def restore(self, tree: Tree) -> dict[tuple[int, int], int]:
        """Make this tree on the disk. Return, by inode and ctime as they are now, the ctime as it was."""
        for root in self.roots:
            self._clear(root)
        below: dict[int, list[tuple[str, int]]] = {}
        for (directory, name), inode in tree.names.items():
            below.setdefault(directory, []).append((name, inode))
        placed: dict[int, Path] = {}
        queue = list(zip(self.roots, self.inodes, strict=True))
        for path, directory in queue:
            placed[directory] = path
            for name, inode in below.get(directory, ()):
                if inode in placed:
                    assert not stat.S_ISDIR(tree.nodes[inode].mode), f"{path / name} is a second name of a directory"
                    os.link(placed[inode], path / name, follow_symlinks=False)
                    continue
                placed[inode] = path / name
                os.rename(self._keep / str(inode), path / name)
                if stat.S_ISDIR(tree.nodes[inode].mode):
                    queue.append((path / name, inode))
        return {_fit(path, tree.nodes[inode]): tree.nodes[inode].ctime for inode, path in reversed(placed.items())}

    def _clear(self, directory: Path) -> None:
        directory.chmod(0o700)
        for entry in list(os.scandir(directory)):
            inode, path = entry.inode(), Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                self._clear(path)
                if inode in self.known:
                    path.rename(self._keep / str(inode))
                else:
                    path.rmdir()
            elif inode in self.known and not os.path.lexists(self._keep / str(inode)):
                path.rename(self._keep / str(inode))
            else:
                path.unlink()


def _fit(path: Path, node: Node) -> tuple[int, int]:
    """Give a file the content and the attributes of ``node``. Return its inode and ctime."""
    if stat.S_ISREG(node.mode):
        path.chmod(0o600)
        if path.read_bytes() != node.content:
            path.write_bytes(node.content)
    if not stat.S_ISLNK(node.mode):
        for name in _xattrs(str(path)):
            os.removexattr(path, name)
        for name, value in node.xattrs:
            os.setxattr(path, name, value)
        path.chmod(stat.S_IMODE(node.mode))
    os.utime(path, ns=(node.mtime, node.mtime), follow_symlinks=False)
    info = path.lstat()
    return info.st_ino, info.st_ctime_ns


def _xattrs(path: str) -> list[str]:
    return [name for name in os.listxattr(path, follow_symlinks=False) if name.startswith("user.")]


class Recording(NamedTuple):
    start: Tree
    """Before the first call; all of it is durable but the content of ``loose`` files."""
    steps: list[Step]
    loose: frozenset[int]
    outcome: Outcome

    def crashes(self, roots: tuple[int, ...], cuts: Iterable[int] | None = None) -> Iterator[Crash]:
        """Yield the states in which the disk may be found if the power fails, each once. ``cuts``: after so many calls;
        None: at any moment."""
        seen = set()
        for cut in range(len(self.steps) + 1) if cuts is None else cuts:
            for kind, tree in _found_at(self.start, self.steps[:cut], self.loose):
                crash = Crash(cut, kind, tree, cut == len(self.steps))
                digest = crash.digest(roots)
                if digest not in seen:
                    seen.add(digest)
                    yield crash


def record(disk: Disk, work: Callable[[], Any], loose: Callable[[str], bool] = lambda _path: False) -> Recording:
    """Run ``work`` in a child and record what it does to the disk. ``loose``: by path, the files that were written
    before and not synced."""
    start = last = disk.scan()
    inodes = frozenset(path.lstat().st_ino for root in disk.roots for path in root.rglob("*") if loose(str(path)))
    steps: list[Step] = []
    call = [Call(0, "", "")]
    synced = [0]

    def decide(now: Call) -> int:
        nonlocal last
        if not now.has_ended:
            disk.protect(now)
            call[0], synced[0] = now, _synced(now)
            return ASK_AGAIN
        tree = disk.scan(last, call[0].what)
        keys = {*tree.names, *last.names}
        names = {key: tree.names.get(key) for key in keys if tree.names.get(key) != last.names.get(key)}
        nodes = {inode: node for inode, node in tree.nodes.items() if last.nodes.get(inode) != node}
        if names or nodes or synced[0]:
            steps.append(Step(f"{call[0].name} {call[0].what}", names, nodes, synced[0]))
        last = tree
        return 0

    outcome = watched(work, decide)
    assert not outcome.unknown, f"faults.c does not know the calls {outcome.unknown}"
    disk.known |= {*start.nodes, *(inode for step in steps for inode in step.nodes)}
    return Recording(start, steps, inodes, outcome)


def _synced(call: Call) -> int:
    if call.name in ("sync", "syncfs"):
        return ALL
    if call.name not in SYNCS:
        return 0
    nameless = _NAMELESS.search(call.what)
    return int(nameless[1]) if nameless else os.lstat(call.what).st_ino


# --- the states after a crash ---


class _Volatile(NamedTuple):
    """What is not durable at one moment."""

    steps: list[Step]
    names: list[int]
    """The steps whose changes of names may be lost."""
    certain: list[int]
    """The steps whose changes of names are durable."""
    ordered: list[int]
    """Those of ``names`` that may be lost on a file system with one journal."""
    versions: dict[int, list[Node]]
    """By inode: what it may be found as, from the durable version to the last."""


def _volatile(start: Tree, steps: list[Step], loose: frozenset[int]) -> _Volatile:
    synced_at: dict[int, int] = {}
    last_sync = -1
    for number, step in enumerate(steps):
        if step.synced:
            synced_at[step.synced] = last_sync = number
    everything = synced_at.get(ALL, -1)
    changing = [number for number, step in enumerate(steps) if step.names]
    certain = set()
    for number in reversed(changing):
        directories = {directory for directory, _name in steps[number].names}
        is_synced = any(synced_at.get(directory, -1) > number for directory in directories) or everything > number
        if is_synced or any(later in certain for later in _dependent(steps, number)):
            certain.add(number)
    versions: dict[int, list[Node]] = {}
    for inode in loose:
        node = start.nodes[inode]
        if max(synced_at.get(inode, -1), everything) < 0 and stat.S_ISREG(node.mode):
            versions[inode] = [node._replace(content=b""), node]
    for number, step in enumerate(steps):
        for inode, node in step.nodes.items():
            if inode not in versions:
                first = start.nodes.get(inode)
                versions[inode] = [first if first is not None else node._replace(content=_unwritten(node))]
            durable = max(synced_at.get(inode, -1), everything) > number
            versions[inode] = [node] if durable else [*versions[inode], node]
    names = [number for number in changing if number not in certain]
    ordered = [number for number in names if number > last_sync]
    return _Volatile(steps, names, sorted(certain), ordered, versions)


def _unwritten(node: Node) -> bytes:
    return node.content if stat.S_ISLNK(node.mode) else b""


def _dependent(steps: list[Step], number: int) -> list[int]:
    """Return the later steps that change one of the names that this one changes."""
    keys = steps[number].names.keys()
    return [later for later in range(number + 1, len(steps)) if keys & steps[later].names.keys()]


def _found_at(start: Tree, steps: list[Step], loose: frozenset[int]) -> Iterator[tuple[str, Tree]]:
    volatile = _volatile(start, steps, loose)
    names, build = volatile.names, functools.partial(_build, start, volatile)
    last = {inode: nodes[-1] for inode, nodes in volatile.versions.items()}
    first = {inode: nodes[0] for inode, nodes in volatile.versions.items()}
    torn = {inode: _torn(nodes[0], nodes[-1]) for inode, nodes in volatile.versions.items()}
    zeros = {inode: _zeros(nodes[0], nodes[-1]) for inode, nodes in volatile.versions.items()}
    yield "all kept", build(names, last)
    yield "all lost", build([], first)
    yield "names kept, contents lost", build(names, first)
    yield "names kept, contents torn", build(names, torn)
    yield "names kept, contents zero", build(names, last | zeros)
    yield "names lost, contents kept", build([], last)
    for at in range(len(volatile.ordered)):
        kept = [number for number in names if number < volatile.ordered[at]]
        yield f"names kept up to {at} of {len(volatile.ordered)}, contents lost", build(kept, first)
        yield f"names kept up to {at} of {len(volatile.ordered)}", build(kept, last)
    for number in names:
        label = steps[number].call
        lost = {number, *_closure(steps, number, _dependent)}
        yield f"lost: {label}", build([other for other in names if other not in lost], last)
        kept_alone = {number, *_closure(steps, number, _needed)} & {*names}
        yield f"kept alone: {label}", build(sorted(kept_alone), last)
        yield f"kept alone: {label}, contents lost", build(sorted(kept_alone), first)
    for inode, nodes in volatile.versions.items():
        for which, node in enumerate(nodes[:-1]):
            yield f"version {which} of {len(nodes)} of inode {inode}", build(names, last | {inode: node})


def _needed(steps: list[Step], number: int) -> list[int]:
    keys = steps[number].names.keys()
    return [earlier for earlier in range(number) if keys & steps[earlier].names.keys()]


def _closure(steps: list[Step], number: int, nearest: Callable[[list[Step], int], list[int]]) -> set[int]:
    found: set[int] = set()
    queue = [number]
    while queue:
        for other in nearest(steps, queue.pop()):
            if other not in found:
                found.add(other)
                queue.append(other)
    return found


def _build(start: Tree, volatile: _Volatile, kept: list[int], contents: dict[int, Node]) -> Tree:
    names = dict(start.names)
    for number in sorted({*volatile.certain, *kept}):
        for key, inode in volatile.steps[number].names.items():
            if inode is None:
                names.pop(key, None)
            else:
                names[key] = inode
    return Tree(names, start.nodes | contents)


def _torn(old: Node, new: Node) -> Node:
    half = len(new.content) // 2
    return new._replace(content=new.content[:half] + old.content[half:]) if stat.S_ISREG(new.mode) else new


def _zeros(old: Node, new: Node) -> Node:
    """Return the new length with the old content: what was to be written beyond is zero."""
    return new._replace(content=(old.content + bytes(len(new.content)))[: len(new.content)])


# --- a look at such a state ---


def examined(disk: Disk, crash: Crash, check: Callable[[], Any]) -> Outcome:
    """Make the state on the disk and run ``check`` on it in a child, as the next mudroom would find it."""
    ctimes = disk.restore(crash.tree)

    def work() -> Any:
        _show_old_ctimes(ctimes)
        return check()

    def decide(call: Call) -> int:
        disk.protect(call)
        return 0

    return watched(work, decide)


def _show_old_ctimes(ctimes: dict[tuple[int, int], int]) -> None:
    """In a child: files have the ctime that they had. Only the kernel sets it, and ``restore`` has moved them."""
    entry = sys.modules["mudroom.core.tree.entry"]
    original: Callable[..., Entry] = entry.__dict__["from_stat"]

    def from_stat(info: Any, target: bytes = b"") -> Entry:
        found = original(info, target)
        return found._replace(ctime=ctimes.get((found.inode, found.ctime), found.ctime))

    for module in list(sys.modules.values()):
        if getattr(module, "from_stat", None) is original:
            module.from_stat = from_stat  # type: ignore[attr-defined]
