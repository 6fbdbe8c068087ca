"""Whole trees merged in memory, beside ``git merge-tree``.

git tells of a conflict at the new name of a file that was renamed and changed in one; here such a file is one that went
and one that came, and the conflict is told at the old name.
"""

from __future__ import annotations

import os
import subprocess
from typing import NamedTuple

from model import Node, Tree, derive
from mudroom.core.merge.diff3 import merge3
from mudroom.core.merge.marker import why_not_mergeable
from mudroom.core.merge.merge import Combined, Delta, delta_of, merged_mode
from mudroom.core.merge.merge_tree import FileSides, LiveProject
from mudroom.core.merge.operations import plan_landing
from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry, same_stamp
from mudroom.core.tree.path import ancestors

_ENVIRONMENT = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "LC_ALL": "C"}
_MODES = {"100644": ("file", 0o644), "100755": ("file", 0o755), "120000": ("symlink", 0)}


class Outcome(NamedTuple):
    tree: dict[bytes, tuple[int, bytes]]
    """Files and links, by path: permissions (0 for a link) and content (a link's target)."""
    conflicts: dict[bytes, str]


def merge_trees(base: Tree, ours: Tree, theirs: Tree) -> Outcome:
    """What the project ``ours`` becomes when a fork of ``base`` that holds ``theirs`` is applied to it."""
    merged: dict[str, bytes] = {}
    changes, blocked = derive(base, theirs)

    def look(path: bytes) -> Entry | None:
        return ours[path].entry if path in ours else None

    def same_as_staged(change: Change, _mine: Entry) -> bool:
        a, b = ours[change.path], theirs[change.path]
        return (a.entry.kind, a.entry.mode, a.entry.target, a.content) == (
            b.entry.kind,
            b.entry.mode,
            b.entry.target,
            b.content,
        )

    def delta(change: Change, mine: Entry | None) -> Delta:
        other = mine is not None and change.base is not None and ours[change.path].content != base[change.path].content
        return "same" if same_stamp(change.base, mine) else delta_of(change.base, mine, content=other)

    def combine(sides: FileSides) -> Combined:
        (base_at, before), (ours_at, mine), (theirs_at, yours) = sides[:3]
        assert yours is not None
        if {entry.kind for entry in (before, mine, yours) if entry is not None} != {"file"}:
            return Combined(None, reason="no files")
        mode = yours.mode if mine is None else merged_mode(before.mode if before else None, mine.mode, yours.mode)
        contents = [tree[at].content for tree, at in ((base, base_at), (ours, ours_at), (theirs, theirs_at))]
        if mode is None or (len({*contents}) == 3 and any(why_not_mergeable(content) for content in contents)):
            return Combined(None, reason="cannot be merged")
        found = merge3(*contents)
        if not found.clean:
            return Combined(None, reason="the same lines")
        name = f"{len(merged)}"
        merged[name] = found.content()
        return Combined(yours._replace(mode=mode, inode=len(merged), device=9), name)

    def moved(change: Change) -> bytes:
        alike = [path for path in ours if path not in base and ours[path].content == base[change.path].content]
        return alike[0] if len(alike) == 1 and change.path not in ours else b""

    def same_tree(path: bytes, expected: dict[bytes, Entry]) -> bool:
        found = {one: node.entry for one, node in ours.items() if one.startswith(path + b"/")}
        return found.keys() == expected.keys() and all(same_stamp(found[one], expected[one]) for one in found)

    live = LiveProject(look, same_as_staged, same_tree, lambda _git: False, delta, combine, moved)
    landing = plan_landing(changes, live, named=[b".git"], blocked=blocked)
    result = dict(ours)
    names = {op.path: op.merged for op in landing.ops if op.merged}
    for change in landing.taken:
        if change.staged is None:
            result.pop(change.path, None)
        elif change.path in names:
            result[change.path] = Node(change.staged, merged[names[change.path]])
        else:
            content = theirs[change.path].content if change.path in theirs else ours[change.path].content
            result[change.path] = Node(change.staged, content)
    return Outcome(plain(result), {conflict.path: conflict.reason for conflict in landing.conflicts})


def plain(tree: Tree) -> dict[bytes, tuple[int, bytes]]:
    return {
        path: (node.entry.mode, node.content or node.entry.target)
        for path, node in tree.items()
        if node.entry.kind in ("file", "symlink")
    }


class Repository:
    """A git repository to read from, with one ``cat-file`` for all of it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._objects = subprocess.Popen(
            ["git", "-C", path, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_ENVIRONMENT
        )

    def close(self) -> None:
        self._objects.communicate()

    def git(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(["git", "-C", self.path, *words], capture_output=True, env=_ENVIRONMENT, check=False)
        if done.returncode not in codes:
            raise RuntimeError(done.stderr.decode("utf-8", "replace"))
        return done.stdout.decode("utf-8", "surrogateescape")

    def blob(self, name: str) -> bytes:
        assert self._objects.stdin is not None and self._objects.stdout is not None
        self._objects.stdin.write(name.encode() + b"\n")
        self._objects.stdin.flush()
        told = self._objects.stdout.readline().split()
        return self._objects.stdout.read(int(told[2]) + 1)[:-1]

    def names(self, commit: str) -> dict[str, tuple[str, str]]:
        rows = self.git("ls-tree", "-r", "-z", commit).split("\0")
        return {row.partition("\t")[2]: tuple(row.split(None, 3)[:3:2]) for row in rows if row}  # type: ignore[misc]

    def tree(self, names: dict[str, tuple[str, str]], wanted: set[str]) -> Tree:
        found: Tree = {}
        for path, (mode, name) in names.items():
            if path not in wanted or mode not in _MODES:
                continue
            kind, bits = _MODES[mode]
            content = self.blob(name)
            target = content if kind == "symlink" else b""
            size = len(content) if kind == "file" else 0
            raw = os.fsencode(path)
            entry = Entry(kind, bits, size, target, 1, int(name[:12], 16), 1, 0, 0, 1, 1)  # type: ignore[arg-type]
            found[raw] = Node(entry, b"" if target else content)
            for above in ancestors(raw):
                found.setdefault(above, Node(Entry("directory", 0o755, 0, b"", 1, hash(above), 1, 0, 0, 1, 1)))
        return found

    def merge_tree(self, ours: str, theirs: str) -> tuple[dict[str, tuple[str, str]], set[str]]:
        """What git makes of it: the tree, and the paths in conflict."""
        told = self.git("merge-tree", "--write-tree", "--name-only", "-z", ours, theirs, codes=(0, 1))
        tree, *rest = told.split("\0")
        refused = rest[: rest.index("")] if "" in rest else rest
        return self.names(tree), {path.partition("~")[0] for path in refused}  # "a~branch": a directory took its name


def compare(repository: Repository, triple: tuple[str, str, str]) -> tuple[str, str]:
    """A category, and what there is to say about it."""
    base, ours, theirs = (repository.names(commit) for commit in triple)
    git, conflicted = repository.merge_tree(triple[1], triple[2])
    every = {*base, *ours, *theirs, *git}
    wanted = {path for path in every if len({tree.get(path) for tree in (base, ours, theirs, git)}) > 1}
    trees = [repository.tree(names, wanted) for names in (base, ours, theirs)]
    found = merge_trees(*trees)
    refused = {os.fsdecode(path) for path in found.conflicts}
    expected = plain(repository.tree(git, wanted))
    expected = {path: one for path, one in expected.items() if os.fsdecode(path) not in refused | conflicted}
    expected = {path: one for path, one in expected.items() if b"~" not in path}  # put aside in a conflict
    mine = {path: one for path, one in found.tree.items() if os.fsdecode(path) not in refused | conflicted}
    differing = sorted(path for path in {*mine, *expected} if mine.get(path) != expected.get(path))
    conflicted = {path for path in conflicted if not any(_related(path, one) for one in refused)} | (
        conflicted & refused
    )
    if conflicted - refused and {os.path.basename(path) for path in conflicted - refused} <= {
        os.path.basename(path) for path in refused
    }:
        return "both conflict, at another name", repr(sorted(conflicted - refused)[:3])
    if conflicted - refused:
        return "git alone conflicts", repr(sorted(conflicted - refused)[:3])
    if differing:
        return "other result", repr(differing[:3])
    if refused - conflicted:
        return "we alone conflict", repr({p: r for p, r in found.conflicts.items() if os.fsdecode(p) not in conflicted})
    return ("both conflict" if conflicted else "the same"), ""


def _related(path: str, other: str) -> bool:
    """Whether one lies in the other: where a file meets a directory, git tells of the one, we of the other."""
    return path.startswith(other + "/") or other.startswith(path + "/")
