"""A project and a fork of it in memory: enough of a file system to try a landing on, and to break it in every way.

A ``Tree`` is a dict from path to ``Node``; a path is there only if its directory is. Who changes a name gives it a new
inode, as an editor that writes aside and renames does. Nothing here reads a clock or a disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from itertools import count
from typing import NamedTuple

from hypothesis import strategies as st

from mudroom.core.merge.merge_tree import LiveProject
from mudroom.core.merge.operations import Landing, Op, inverse
from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry, Kind, same_shape, same_stamp
from mudroom.core.tree.path import ROOT, ancestors, is_below, parent, sort_key
from mudroom.core.tree.rename import pair_renames

PROJECT, FORK, SLOTS, LATER = 1, 2, 3, 4
"""Device numbers: who made the inode."""


class Node(NamedTuple):
    entry: Entry
    content: bytes = b""

    @property
    def inode(self) -> tuple[int, int]:
        return self.entry.device, self.entry.inode


Tree = dict[bytes, Node]


class Edit(NamedTuple):
    verb: str
    path: bytes
    other: bytes = b""
    mode: int = 0o644
    content: bytes = b""


class World:
    """Gives out inodes and times, none twice."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def node(self, device: int, kind: Kind, mode: int, content: bytes = b"", target: bytes = b"") -> Node:
        number = next(self._numbers)
        size = len(content) if kind == "file" else 0
        return Node(Entry(kind, mode, size, target, device, number, 1, 1000, 1000, number, number), content)

    def again(self, node: Node, device: int) -> Node:
        """The same thing under another inode: a copy."""
        entry = node.entry
        return self.node(device, entry.kind, entry.mode, node.content, entry.target)

    def edit(self, tree: Tree, edits: Iterable[Edit], device: int) -> Tree:
        """Somebody's work on a tree; what cannot be done is not done."""
        tree = dict(tree)
        for edit in edits:
            if edit.path in tree or all(is_directory(tree, above) for above in ancestors(edit.path)):
                getattr(self, "_" + edit.verb)(tree, edit, device)
        names = Counter(node.inode for node in tree.values())
        return {p: n._replace(entry=n.entry._replace(links=names[n.inode])) for p, n in tree.items()}

    def _write(self, tree: Tree, edit: Edit, device: int) -> None:
        self._put(tree, edit.path, self.node(device, "file", edit.mode, edit.content))

    def _symlink(self, tree: Tree, edit: Edit, device: int) -> None:
        self._put(tree, edit.path, self.node(device, "symlink", 0, target=edit.content))

    def _fifo(self, tree: Tree, edit: Edit, device: int) -> None:
        self._put(tree, edit.path, self.node(device, "fifo", edit.mode))

    def _socket(self, tree: Tree, edit: Edit, device: int) -> None:
        self._put(tree, edit.path, self.node(device, "socket", edit.mode))

    def _mkdir(self, tree: Tree, edit: Edit, device: int) -> None:
        if not is_directory(tree, edit.path):
            self._put(tree, edit.path, self.node(device, "directory", edit.mode | 0o700))

    def _remove(self, tree: Tree, edit: Edit, _device: int) -> None:
        take(tree, edit.path)

    def _chmod(self, tree: Tree, edit: Edit, device: int) -> None:
        node = tree.get(edit.path)
        if node is not None and node.entry.kind != "symlink" and device == FORK:
            node = self._copy_up(tree, edit.path)
        if node is not None and node.entry.kind != "symlink":
            mode = edit.mode | 0o100 if node.entry.kind == "directory" else edit.mode
            self._everywhere(tree, node, node._replace(entry=node.entry._replace(mode=mode)))

    def _rename(self, tree: Tree, edit: Edit, device: int) -> None:
        """As ``mv`` does it across file systems, which is what an overlay is to it."""
        if edit.path not in tree or is_below(edit.other, edit.path) or not is_directory(tree, parent(edit.other)):
            return
        moved = take(tree, edit.path)
        take(tree, edit.other)
        for path, node in moved.items():
            tree[edit.other + path] = self.again(node, device)

    def _link(self, tree: Tree, edit: Edit, device: int) -> None:
        if edit.path not in tree or edit.other in tree or not is_directory(tree, parent(edit.other)):
            return
        if tree[edit.path].entry.kind == "file":
            tree[edit.other] = self._copy_up(tree, edit.path) if device == FORK else tree[edit.path]

    def _touch(self, tree: Tree, edit: Edit, device: int) -> None:
        if edit.path in tree and tree[edit.path].entry.kind == "file":
            tree[edit.path] = self.again(tree[edit.path], device)

    def _put(self, tree: Tree, path: bytes, node: Node) -> None:
        take(tree, path)
        tree[path] = node

    def _copy_up(self, tree: Tree, path: bytes) -> Node:
        node = tree[path]
        if node.entry.device != FORK:
            tree[path] = node = self.again(node, FORK)
        return node

    def _everywhere(self, tree: Tree, old: Node, new: Node) -> None:
        """A change of an inode is seen under all its names."""
        for path in [path for path, node in tree.items() if node.inode == old.inode]:
            tree[path] = new


def is_directory(tree: Tree, path: bytes) -> bool:
    return path == ROOT or (path in tree and tree[path].entry.kind == "directory")


def below(tree: Tree, path: bytes) -> list[bytes]:
    return [one for one in tree if one != path and is_below(one, path)]


def take(tree: Tree, path: bytes) -> Tree:
    """Remove a name and all in it; returns them by what follows the path."""
    return {one[len(path) :]: tree.pop(one) for one in [*below(tree, path), path] if one in tree}


def visible(tree: Tree) -> dict[bytes, tuple[Kind, int, bytes, bytes]]:
    """What a reader sees of it."""
    return {p: (n.entry.kind, n.entry.mode, n.entry.target, n.content) for p, n in tree.items()}


def derive(base: Tree, fork: Tree, unknown: Collection[bytes] = ()) -> tuple[list[Change], set[bytes]]:
    """The changes of a fork, and the paths in it that cannot be applied."""
    changes = []
    blocked = {path for path, node in fork.items() if node.entry.kind == "socket"}
    for path in sorted({*base, *fork}, key=sort_key):
        old, new = base.get(path), None if path in blocked else fork.get(path)
        if old is None and new is None:
            continue
        flags = _differing(old, new)
        if old is not None and new is not None and not flags:
            continue
        verb = "added" if old is None else "deleted" if new is None else "modified"
        known = old is None or old.entry.kind == "directory" or path not in unknown
        entries = (old.entry if old else None, new.entry if new else None)
        changes.append(Change(path, verb, *entries, flags=flags, original_known=known))  # type: ignore[arg-type]

    def digest(change: Change) -> bytes:
        return (fork if change.staged is not None else base)[change.path].content

    return pair_renames(changes, digest), blocked


def _differing(old: Node | None, new: Node | None) -> tuple[str, ...]:
    if old is None or new is None:
        return ()
    if old.entry.kind != new.entry.kind:
        return ("type",)
    flags = [] if old.entry.mode == new.entry.mode else ["mode"]
    if (old.content, old.entry.target) != (new.content, new.entry.target):
        flags.append("content")
    return tuple(flags)


def live(project: Tree, fork: Tree, *, renames: bool = True, git_moved: Collection[bytes] = ()) -> LiveProject:
    """``renames``: False for a file system that cannot rename the directories of the project."""

    def look(path: bytes) -> Entry | None:
        return project[path].entry if path in project else None

    def same_as_staged(change: Change, ours: Entry) -> bool:
        return same_shape(change.staged, ours) and project[change.path].content == fork[change.path].content

    def same_tree(path: bytes, expected: dict[bytes, Entry]) -> bool:
        found = {one: project[one].entry for one in below(project, path)}
        return renames and found.keys() == expected.keys() and all(same_stamp(expected[p], found[p]) for p in found)

    return LiveProject(look, same_as_staged, same_tree, lambda git: git in git_moved)


class Disk:
    """A project, a fork and the slots between them, on which operations are performed as strictly as can be: whatever
    an operation does not find as it expects fails."""

    def __init__(self, project: Tree, fork: Tree, world: World) -> None:
        self.project, self.fork = dict(project), dict(fork)
        self._world = world
        self._slots: dict[int, Tree] = {}
        self._done: list[Op] = []
        self.left_standing: set[bytes] = set()
        """Directories that were to go but hold something unknown."""

    def land(self, landing: Landing) -> None:
        for op in [self._filled(op) for op in landing.ops]:
            getattr(self, "_" + op.kind)(op)
            self._done.append(op)

    def undo(self) -> None:
        for op in reversed(self._done):
            back = inverse(op)
            getattr(self, "_" + back.kind)(back)

    def _filled(self, op: Op) -> Op:
        """What comes is brought into its slot first, out of the fork."""
        if op.new is None or not op.slot:
            return op
        assert same_stamp(op.new, self.fork[op.path].entry), "the fork holds what was reviewed"
        assert op.whole or op.new.kind != "directory"
        assert op.slot not in self._slots
        if op.copy:
            whole = {ROOT: self.fork[op.path], **{p[len(op.path) :]: self.fork[p] for p in below(self.fork, op.path)}}
            self._slots[op.slot] = {path: self._world.again(node, SLOTS) for path, node in whole.items()}
        else:
            self._slots[op.slot] = take(self.fork, op.path)
        return op._replace(new=self._slots[op.slot][ROOT].entry)

    def _into_project(self, op: Op) -> None:
        assert op.path not in self.project
        assert is_directory(self.project, parent(op.path)), "its directory is there"
        for path, node in self._slots.pop(op.slot).items():
            self.project[op.path + path] = node

    def _out_of_project(self, op: Op) -> Tree:
        assert op.old is not None
        assert same_stamp(op.old, self.project[op.path].entry)
        assert op.whole or not below(self.project, op.path), "nothing goes along unseen"
        return take(self.project, op.path)

    def _place(self, op: Op) -> None:
        assert op.new is not None
        assert same_stamp(op.new, self._slots[op.slot][ROOT].entry)
        self._into_project(op)

    def _remove(self, op: Op) -> None:
        assert op.slot not in self._slots
        self._slots[op.slot] = self._out_of_project(op)

    def _swap(self, op: Op) -> None:
        leaving = self._out_of_project(op)
        self._place(op)
        self._slots[op.slot] = leaving

    def _mkdir(self, op: Op) -> None:
        assert op.new is not None
        if op.path in self.left_standing:
            return
        assert op.path not in self.project
        assert is_directory(self.project, parent(op.path)), "its directory is there"
        self.project[op.path] = self._world.node(PROJECT, "directory", op.new.mode)

    def _rmdir(self, op: Op) -> None:
        assert is_directory(self.project, op.path)
        if below(self.project, op.path):
            self.left_standing.add(op.path)
        else:
            del self.project[op.path]

    def _chmod(self, op: Op) -> None:
        assert op.old is not None
        assert op.new is not None
        node = self.project[op.path]
        assert (node.entry.kind, node.entry.mode) == (op.old.kind, op.old.mode)
        changed = node._replace(entry=node.entry._replace(mode=op.new.mode))
        for path in [path for path, one in self.project.items() if one.inode == node.inode]:
            self.project[path] = changed


# --- what happens to a tree ---------------------------------------------------------------------------------------

PATHS = b"a b a-b d d/a d/b d/e d/e/a d/e/b e e/a e/b/a".split()
GIT_PATHS = b"""
a .git .git/HEAD .git/index .git/config .git/hooks .git/hooks/a .git/refs .git/refs/a .git/refs/b
d d/a d/.git d/.git/HEAD d/.git/config d/.git/hooks/a .mudroom .mudroom/policy.yaml
""".split()
CONTENTS = [b"", b"x", b"y", b"longer"]
MODES = [0o644, 0o755, 0o600, 0o700, 0o500]


def edits(paths: list[bytes] = PATHS, verbs: Collection[str] = (), most: int = 10) -> st.SearchStrategy[list[Edit]]:
    """Few paths, so that the edits meet."""
    verb = st.sampled_from(
        ["write", "write", "mkdir", "remove", "rename", "symlink", "chmod", "touch", "link", "link", "fifo", *verbs]
    )
    path = st.sampled_from(paths)
    edit = st.builds(Edit, verb, path, path, st.sampled_from(MODES), st.sampled_from(CONTENTS))
    return st.lists(edit, max_size=most)


def grown(world: World, chosen: Iterable[Edit]) -> Tree:
    """A project to start from: what the edits make of nothing, their directories made as needed."""
    made: list[Edit] = []
    for edit in chosen:
        made += [Edit("mkdir", above, mode=0o755) for above in ancestors(edit.path)]
        made.append(edit)
    return world.edit({}, made, PROJECT)
