"""Every change of a fork judged against the project as it is now. Pure: the project is asked through callables.

What comes of it is a ``Judgement``: the changes that go ahead, each against what the project holds at its path now,
those that the project already has, those that nobody may apply without naming them, and the conflicts.

Renames are followed on both sides. A file that the fork renamed takes along what the project has changed in it; what
the fork changed in a file that the project has renamed goes to where that is now. Of a rename either both ends land or
neither: a file must not vanish from its old place while its new place is in conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple

from mudroom.core.merge.merge import Combined, Conflict, Delta, MergeDecision, decide, delta_of
from mudroom.core.tree.change import Change, Verb
from mudroom.core.tree.entry import Entry, same_stamp
from mudroom.core.tree.flag import git_directory, is_protected
from mudroom.core.tree.path import ancestors, is_below, sort_key

RENAMED_AWAY = "the file that it was renamed from was deleted in the project meanwhile"
CLOSED = "the project keeps it from you: its permissions, or those of a directory above it, forbid reading it"
_END = "its other end is in conflict"
_REPOSITORY = "also changed in the project, and files of a repository are never merged"


class FileSides(NamedTuple):
    """One file that both sides changed, wherever each of them has it."""

    base: tuple[bytes, Entry | None]
    ours: tuple[bytes, Entry | None]
    theirs: tuple[bytes, Entry | None]
    path: bytes
    """Where the result goes."""


class ConflictAnswer(NamedTuple):
    """What somebody decided about a conflict."""

    take: Literal["ours", "theirs", "content"]
    content: Combined = Combined(None)
    """Of ``content``: what the path is to hold; no entry: it is to be deleted."""


class IncomingChange(NamedTuple):
    """A change that goes ahead with other content than the fork's own."""

    name: str
    """What the content is kept under."""
    origin: bytes
    """The path of the change in the fork; another one if the project has renamed the file."""


def _delta_by_stamp(change: Change, ours: Entry | None) -> Delta:
    if same_stamp(change.base, ours):
        return "same"
    return delta_of(change.base, ours, content=True)


class LiveProject(NamedTuple):
    """The project as it is now, asked path by path. Each may raise PermissionError: then nobody can tell, and the
    change is a conflict."""

    look: Callable[[bytes], Entry | None]
    same_as_staged: Callable[[Change, Entry], bool]
    """Whether the live entry has the shape and content of the staged one."""
    same_tree: Callable[[bytes, dict[bytes, Entry]], bool]
    """Whether the live directory holds exactly these entries (paths from the project), each with this very stamp."""
    git_moved: Callable[[bytes], bool] = lambda _git: False
    """Whether the repository at this ``.git`` has new commits, branches or index since the changes were collected."""
    delta: Callable[[Change, Entry | None], Delta] = _delta_by_stamp
    """What the project has made of the base of a change."""
    combine: Callable[[FileSides], Combined] = lambda _sides: Combined(None, reason="it cannot be merged")
    """Merge a file. Neither entry nor reason: the project already holds the result."""
    moved: Callable[[Change], bytes] = lambda _change: b""
    """Where the project has a file that is gone from its path; empty if nowhere."""
    staged_directory: Callable[[bytes], Entry | None] = lambda _path: None
    """The fork's entry of a directory that it has not changed; None if it is not known."""
    answer: Callable[[Change, Entry | None, FileSides | None], ConflictAnswer | None] = lambda _change, _ours, _sides: (
        None
    )
    """What was decided about a conflict at this path, between these very versions; of files, with their sides."""
    partial: Collection[bytes] = frozenset()
    """Paths of which only a part is wanted: they are merged, always."""


class Judgement(NamedTuple):
    taken: list[Change]
    """In walking order; ``base`` is what the project holds now."""
    coming: dict[bytes, IncomingChange]
    """By path, for those of the taken that bring other content than the fork's."""
    conflicts: dict[bytes, Conflict]
    satisfied: list[bytes]
    withheld: set[bytes]
    differing: set[bytes]
    """Those of the taken and the satisfied (paths in the fork) that leave the project other than the fork has them."""
    dropped: set[bytes]
    """Those of the satisfied at which somebody decided for what the project has: the fork's version goes nowhere."""
    unmoved: set[bytes]
    """Those of the taken of which a part was wanted, and nothing had to be merged with."""


def judge(
    changes: Sequence[Change], live: LiveProject, named: Collection[bytes], masked: Collection[bytes] = ()
) -> Judgement:
    """``changes`` in walking order. ``named``, ``masked``: as for ``plan_landing``."""
    return _Judge(changes, live, named, masked).judge()


class _Judge:
    def __init__(
        self, changes: Sequence[Change], live: LiveProject, named: Collection[bytes], masked: Collection[bytes]
    ) -> None:
        self._changes, self._live, self._named, self._masked = changes, live, named, frozenset(masked)
        self._found = Judgement([], {}, {}, [], set(), set(), set(), set())
        gone = (change for change in changes if change.staged is None)
        self._removed = {change.path for change in gone if change.entry.kind == "directory"}

    def judge(self) -> Judgement:
        withheld = self._found.withheld
        withheld |= {change.path for change in self._changes if self._is_withheld(change)}
        withheld |= self._kept_for({*withheld, *self._masked})
        renames = self._renames()
        paired = {change.path for pair in renames for change in pair}
        absent = b"\0"  # a new directory that the project does not have: nothing below it needs to be looked at
        for change in self._changes:
            if change.path in withheld or change.path in paired:
                continue
            if change.path.startswith(absent) and change.base is None and change.path not in self._live.partial:
                self._found.taken.append(change)
                continue
            try:
                ours = None if change.path.startswith(absent) else self._live.look(change.path)
                self._one(change, ours)
            except PermissionError:
                self._found.conflicts[change.path] = Conflict(change.path, CLOSED)
                continue
            if ours is None and change.base is None and change.entry.kind == "directory":
                absent = change.path + b"/"
        for gone, come in renames:
            try:
                self._rename(gone, come)
            except PermissionError:
                self._found.conflicts[come.path] = Conflict(come.path, CLOSED, base_at=gone.path)
                self._found.conflicts[gone.path] = Conflict(gone.path, _END)
        if renames or self._found.coming:
            self._found.taken.sort(key=lambda change: sort_key(change.path))
        return self._found

    # --- what nobody has asked for ---

    def _is_withheld(self, change: Change) -> bool:
        path = change.path
        if path in self._masked:
            return True
        if b".git" not in path and b".mudroom" not in path and "protected" not in change.flags:
            return False  # nearly all
        unit = git_directory(path)
        if unit is not None and unit in self._removed and unit in self._named:
            return False  # all of it goes: hooks and settings that stayed alone would be a broken repository
        if is_protected(path) or "protected" in change.flags:
            return not any(lifts(name, path) or _leads_to(change, name) for name in self._named)
        named = (name for name in self._named if name == unit or (is_protected(name) and _leads_to(change, name)))
        return unit is not None and not any(named)  # a directory on the way to what is left out itself is, too

    def _kept_for(self, withheld: Collection[bytes]) -> set[bytes]:
        """Directories that cannot go because something in them stays."""
        staying = {above for path in withheld for above in ancestors(path)}
        return {change.path for change in self._changes if change.path in staying and change.staged is None}

    # --- one path ---

    def _one(self, change: Change, ours: Entry | None) -> None:
        decision = self._decided(change, ours)
        if decision.outcome == "satisfied":
            self._found.satisfied.append(change.path)
        elif decision.outcome == "combine" or (decision.outcome == "take" and change.path in self._live.partial):
            self._combine(change, ours, change.path)
            if decision.outcome == "take":
                self._found.unmoved.add(change.path)
        elif decision.outcome == "take":
            self._take(change, ours)
        elif ours is None and change.staged is not None and change.original_known:
            self._follow(change, decision.reason)
        else:
            self._refuse(change, ours, decision.reason)

    def _decided(self, change: Change, ours: Entry | None) -> MergeDecision:
        if change.staged is None or ours is None:
            same = change.staged is None and ours is None
        else:
            same = self._live.same_as_staged(change, ours)
        delta: Delta = "same" if same else self._live.delta(change, ours)
        return decide(change, ours, delta, ours_is_theirs=same)

    def _take(self, change: Change, ours: Entry | None) -> None:
        self._found.taken.append(change if ours is None else change._replace(base=ours))  # its links may be others now

    def _combine(self, change: Change, ours: Entry | None, at: bytes) -> None:
        """``at``: where the project has the file, and is to have the result."""
        if git_directory(change.path) is not None:
            self._refuse(change, ours, _REPOSITORY)
            return
        sides = FileSides((change.path, change.base), (at, ours), (change.path, change.staged), at)
        found = self._live.combine(sides)
        if found.reason:
            self._refuse(change, ours, found.reason, sides)
        elif found.entry is None:
            self._found.satisfied.append(change.path)
            self._found.differing.add(change.path)
        else:
            self._bring(change, ours, found, at)

    def _bring(self, change: Change, ours: Entry | None, found: Combined, path: bytes) -> None:
        """Have ``path`` hold what was merged."""
        self._found.differing.add(change.path)
        flags: tuple[str, ...] = ("content",)
        if not found.name:  # the fork's own file, or the project's with another mode
            flags = ("mode",) if found.entry is not None and _same_inode(found.entry, ours) else change.flags
        verb: Verb = "added" if ours is None else "modified"
        self._found.taken.append(change._replace(path=path, verb=verb, base=ours, staged=found.entry, flags=flags))
        if found.name:
            self._found.coming[path] = IncomingChange(found.name, change.path)

    def _follow(self, change: Change, reason: str) -> None:
        """A file that the fork changed and the project no longer has there: it may have another name now."""
        followed = not {"content", "mode"}.isdisjoint(change.flags) and git_directory(change.path) is None
        at = self._live.moved(change) if followed else b""
        ours = self._live.look(at) if at else None
        if ours is None or any(one.path == at for one in self._changes):
            self._refuse(change, None, reason)
        else:
            self._combine(change, ours, at)

    def _refuse(self, change: Change, ours: Entry | None, reason: str, sides: FileSides | None = None) -> None:
        """A conflict, unless somebody has decided it."""
        at = sides.path if sides is not None else change.path
        answer = self._live.answer(change, ours, sides)
        if answer is not None:
            self._answered(change, ours, answer, at)
        else:
            moved = at if at != change.path else b""
            self._found.conflicts[change.path] = Conflict(change.path, reason, ours_at=moved)

    def _answered(self, change: Change, ours: Entry | None, answer: ConflictAnswer, path: bytes) -> None:
        wanted = change.staged if answer.take == "theirs" else answer.content.entry
        if answer.take == "ours" or (wanted is None and ours is None):
            self._found.satisfied.append(change.path)
            self._found.differing.add(change.path)
            self._found.dropped.add(change.path)
        elif wanted is None:
            self._take(change._replace(path=path, verb="deleted", staged=None), ours)
        elif answer.take == "theirs":
            self._take(change._replace(verb="added" if ours is None else "modified", base=ours), ours)
        else:
            self._bring(change, ours, answer.content, path)

    # --- renames ---

    def _renames(self) -> list[tuple[Change, Change]]:
        """The two ends of each rename of which both are to land: the old path, the new one."""
        here = {change.path: change for change in self._changes if change.path not in self._found.withheld}
        ends = ((change, here.get(change.moved_to)) for change in here.values() if change.moved_to)
        return [(gone, come) for gone, come in ends if come is not None and come.source == gone.path]

    def _rename(self, gone: Change, come: Change) -> None:
        old, new = self._live.look(gone.path), self._live.look(come.path)
        there = self._decided(come, new)
        delta = "gone" if old is None else self._live.delta(gone, old)
        if there.outcome == "satisfied" or (delta == "same" and there.outcome != "conflict" and gone.original_known):
            self._one(come, new)
            self._one(gone, old)
        elif there.outcome != "conflict" and delta in ("content", "mode") and gone.original_known and new is None:
            self._carry(gone, come, old)
        else:
            reason = there.reason or decide(gone, old, delta, ours_is_theirs=False).reason or RENAMED_AWAY
            self._refuse_rename(gone, come, old, new, reason)

    def _carry(self, gone: Change, come: Change, ours: Entry | None) -> None:
        """What the project has changed in a file goes along to where the fork has renamed it."""
        if git_directory(come.path) is not None:
            self._refuse_rename(gone, come, ours, None, _REPOSITORY)
            return
        sides = FileSides((gone.path, gone.base), (gone.path, ours), (come.path, come.staged), come.path)
        found = self._live.combine(sides)
        if found.entry is None:
            self._refuse_rename(gone, come, ours, None, found.reason, sides)
        else:
            self._bring(come, None, found, come.path)
            self._take(gone, ours)

    def _refuse_rename(
        self,
        gone: Change,
        come: Change,
        old: Entry | None,
        new: Entry | None,
        reason: str,
        sides: FileSides | None = None,
    ) -> None:
        answer = self._live.answer(come, new, sides)
        if answer is None:
            moved = gone.path if new is None else b""
            self._found.conflicts[come.path] = Conflict(come.path, reason, base_at=gone.path, ours_at=moved)
            self._found.conflicts[gone.path] = Conflict(gone.path, _END)
            return
        self._answered(come, new, answer, come.path)
        if old is None or answer.take == "ours":
            self._found.satisfied.append(gone.path)
            if old is not None:
                self._found.dropped.add(gone.path)
        else:
            self._take(gone, old)


def _same_inode(a: Entry, b: Entry | None) -> bool:
    return b is not None and (a.device, a.inode) == (b.device, b.inode)


_OTHERS = frozenset((b".git", b"hooks", b"config", b".mudroom"))


def lifts(name: bytes, path: bytes) -> bool:
    """Whether naming ``name`` lifts the protection of ``path``: it is that path, or hooks or a ``.mudroom`` with the
    path in it. What belongs to yet another repository or project in there has to be named itself."""
    if name == path or not is_below(path, name):
        return name == path
    if b".mudroom" in name.split(b"/"):
        return True
    rest = path[len(name) + 1 :].split(b"/")
    is_hooks = name == b"hooks" or name.endswith(b"/hooks")
    return (is_protected(name) or is_hooks) and not _OTHERS.intersection(rest)


def _leads_to(change: Change, name: bytes) -> bool:
    """Whether it is a new directory, without which ``name`` has nowhere to go."""
    return change.base is None and change.entry.kind == "directory" and is_below(name, change.path)
