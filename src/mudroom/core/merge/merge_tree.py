"""Merge of a fork's changes into the project as it is now. Pure: the project is read through callables.

The result is a ``Judgement``: changes to apply, each with the project's present entry as its base; changes that the
project already has; protected changes that the user has to name; and conflicts.

Renames are followed on both sides. The project's changes to a file that the fork renamed go to the fork's new path. The
fork's changes to a file that the project renamed go to the project's new path. Either both ends of a rename are applied
or neither: a file must not disappear from its old path while its new path is in conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from mudroom.core.merge.made_directories import left_out
from mudroom.core.merge.merge import Combined, Conflict, Delta, MergeDecision, decide, delta_of
from mudroom.core.tree.change import Change, Verb
from mudroom.core.tree.entry import HELD, Entry, FileHeld, is_untouched
from mudroom.core.tree.flag import git_directory, is_protected
from mudroom.core.tree.path import ancestors, is_below, sort_key
from mudroom.typing import Literal, NamedTuple

RENAMED_AWAY = "the file that it was renamed from was deleted in the project meanwhile"
RENAMED_HELD = "the file that it was renamed from " + HELD
CLOSED = "cannot be read in the project: its permissions, or those of a directory above it, forbid it"
_END = "the other path of the rename is in conflict"
_REPOSITORY = "also changed in the project, and files of a repository are never merged"


class FileSides(NamedTuple):
    """A file's three sides, each with its path, if both sides changed it."""

    base: tuple[bytes, Entry | None]
    ours: tuple[bytes, Entry | None]
    theirs: tuple[bytes, Entry | None]
    path: bytes
    """The merged file's path."""


class ConflictAnswer(NamedTuple):
    """A recorded decision about a conflict."""

    take: Literal["ours", "theirs", "content"]
    content: Combined = Combined(None)
    """For ``content``: the entry that the path will hold; without an entry, the path is deleted."""


class IncomingChange(NamedTuple):
    """A change that is applied with other content than the fork's own."""

    name: str
    """Name under which the content is stored."""
    origin: bytes
    """The change's path in the fork; differs from the project's path if the project has renamed the file."""


def _delta_by_stamp(change: Change, ours: Entry | None) -> Delta:
    if is_untouched(change.base, ours):
        return "same"
    return delta_of(change.base, ours, content=True)


class LiveProject(NamedTuple):
    """Functions that read the present project, path by path. Each may raise PermissionError or FileHeld: the change is
    then a conflict."""

    look: Callable[[bytes], Entry | None]
    same_as_staged: Callable[[Change, Entry], bool]
    """Return whether the live entry has the staged one's shape and content."""
    same_tree: Callable[[bytes, dict[bytes, Entry]], bool]
    """Return whether the live directory holds exactly these entries (paths from the project) with unchanged stat
    stamps."""
    git_moved: Callable[[bytes], bool] = lambda _git: False
    """Return whether the repository at this ``.git`` has new commits, branches or index since the changes were
    collected."""
    delta: Callable[[Change, Entry | None], Delta] = _delta_by_stamp
    """Return the project's change to the base."""
    combine: Callable[[FileSides], Combined] = lambda _sides: Combined(None, reason="it cannot be merged")
    """Merge a file. A result without entry and reason means that the project already holds the merged file."""
    moved: Callable[[Change], bytes] = lambda _change: b""
    """Return the project's new path for a file that is gone from its old path; empty if there is none."""
    staged_directory: Callable[[bytes], Entry | None] = lambda _path: None
    """Return the fork's entry for a directory that the fork has not changed; None if it is not known."""
    answer: Callable[[Change, Entry | None, FileSides | None], ConflictAnswer | None] = lambda _change, _ours, _sides: (
        None
    )
    """Return the recorded decision about a conflict between exactly these versions, or None; for files, the sides are
    given."""
    partial: Collection[bytes] = frozenset()
    """Paths at which only a part is selected. They are always merged."""
    moves_directories: bool = True
    """Whether project directories can be renamed. An overlay (a container's root) cannot rename a directory that is in
    its lower layers: EXDEV (Documentation/filesystems/overlayfs.rst, "renaming directories")."""


class Judgement(NamedTuple):
    taken: list[Change]
    """The changes to apply, in walking order; ``base`` is the project's present entry."""
    coming: dict[bytes, IncomingChange]
    """Taken changes whose content is not the fork's own, by path."""
    conflicts: dict[bytes, Conflict]
    satisfied: list[bytes]
    withheld: set[bytes]
    differing: set[bytes]
    """Taken and satisfied changes (paths in the fork) after which the project's version is not the fork's."""
    dropped: set[bytes]
    """Satisfied changes for which the project's version was chosen: the fork's version is discarded."""
    unmoved: set[bytes]
    """Taken changes that were selected in part and needed no merge."""


def judge(
    changes: Sequence[Change], live: LiveProject, named: Collection[bytes], masked: Collection[bytes] = ()
) -> Judgement:
    """Merge the changes, given in walking order. ``named`` and ``masked`` are those of ``plan_landing``."""
    return _Judge(changes, live, named, masked).judge()


class _Judge:
    def __init__(
        self, changes: Sequence[Change], live: LiveProject, named: Collection[bytes], masked: Collection[bytes]
    ) -> None:
        self._changes, self._live, self._named, self._masked = changes, live, named, frozenset(masked)
        self._judgement = Judgement([], {}, {}, [], set(), set(), set(), set())
        deleted = (change for change in changes if change.staged is None)
        self._removed = {change.path for change in deleted if change.entry.kind == "directory"}
        self._made = left_out(changes, named, self._is_repository)

    def judge(self) -> Judgement:
        withheld = self._judgement.withheld
        withheld |= {change.path for change in self._changes if self._is_withheld(change)}
        withheld |= {change.path for change in self._changes if self._is_end_of_withheld(change)}
        withheld |= self._directories_that_stay({*withheld, *self._masked})
        renames = self._renames()
        paired = {change.path for pair in renames for change in pair}
        absent = b"\0"  # a new directory that the project does not have: paths below it need no look at the project
        for change in self._changes:
            if change.path in withheld or change.path in paired:
                continue
            if change.path.startswith(absent) and change.base is None and change.path not in self._live.partial:
                self._judgement.taken.append(change)
                continue
            try:
                ours = None if change.path.startswith(absent) else self._live.look(change.path)
                self._judge_path(change, ours)
            except (PermissionError, FileHeld) as error:
                self._judgement.conflicts[change.path] = Conflict(
                    change.path, HELD if isinstance(error, FileHeld) else CLOSED
                )
                continue
            if ours is None and change.base is None and change.entry.kind == "directory":
                absent = change.path + b"/"
        for deleted, renamed in renames:
            try:
                self._rename(deleted, renamed)
            except (PermissionError, FileHeld) as error:
                held = isinstance(error, FileHeld)
                self._judgement.conflicts[renamed.path] = Conflict(
                    renamed.path, RENAMED_HELD if held else CLOSED, deleted.path, deleted.path if held else b""
                )
                self._judgement.conflicts[deleted.path] = Conflict(deleted.path, _END)
        if renames or self._judgement.coming:
            self._judgement.taken.sort(key=lambda change: sort_key(change.path))
        return self._judgement

    # --- protected and masked paths ---

    def _is_withheld(self, change: Change) -> bool:
        path = change.path
        if path in self._masked:
            return True
        if path in self._made:
            return self._made[path]
        if b".git" not in path and b".mudroom" not in path and "protected" not in change.flags:
            return False  # most paths end here
        unit = git_directory(path)
        if unit is not None and unit in self._removed and unit in self._named:
            return False  # the whole repository is removed: leftover hooks and settings would be a broken repository
        if is_protected(path) or "protected" in change.flags:
            return not any(lifts(name, path) or _leads_to(change, name) for name in self._named)
        named = (name for name in self._named if name == unit or (is_protected(name) and _leads_to(change, name)))
        return unit is not None and not any(named)  # a directory that leads to a withheld path is withheld, too

    def _is_end_of_withheld(self, change: Change) -> bool:
        """Return whether this renamed file's new path is withheld. The rename was shown as one change, so the old path
        stays, too, unless it is named."""
        return bool(change.moved_to) and change.moved_to in self._judgement.withheld and change.path not in self._named

    def _is_repository(self, top: bytes) -> bool:
        try:
            return self._live.look(top + b"/HEAD") is not None
        except (PermissionError, FileHeld):
            return True

    def _directories_that_stay(self, withheld: Collection[bytes]) -> set[bytes]:
        """Return deleted directories that must stay because they contain a withheld path."""
        staying = {above for path in withheld for above in ancestors(path)}
        return {change.path for change in self._changes if change.path in staying and change.staged is None}

    # --- one path ---

    def _judge_path(self, change: Change, ours: Entry | None) -> None:
        decision = self._decide(change, ours)
        if decision.outcome == "satisfied":
            self._judgement.satisfied.append(change.path)
        elif decision.outcome == "combine" or (decision.outcome == "take" and change.path in self._live.partial):
            self._combine(change, ours, change.path)
            if decision.outcome == "take":
                self._judgement.unmoved.add(change.path)
        elif decision.outcome == "take":
            self._take(change, ours)
        elif ours is None and change.staged is not None and change.original_known:
            self._follow(change, decision.reason)
        else:
            self._refuse(change, ours, decision.reason)

    def _decide(self, change: Change, ours: Entry | None) -> MergeDecision:
        if change.staged is None or ours is None:
            same = change.staged is None and ours is None
        else:
            same = self._live.same_as_staged(change, ours)
        delta: Delta = "same" if same else self._live.delta(change, ours)
        return decide(change, ours, delta, ours_is_theirs=same)

    def _take(self, change: Change, ours: Entry | None) -> None:
        # the project's present entry: its link count may differ from the base's
        self._judgement.taken.append(change if ours is None else change._replace(base=ours))

    def _combine(self, change: Change, ours: Entry | None, at: bytes) -> None:
        """Merge the file with the project's version at ``at``, which also receives the result."""
        if git_directory(change.path) is not None:
            self._refuse(change, ours, _REPOSITORY)
            return
        sides = FileSides((change.path, change.base), (at, ours), (change.path, change.staged), at)
        combined = self._live.combine(sides)
        if combined.reason:
            self._refuse(change, ours, combined.reason, sides)
        elif combined.entry is None:
            self._judgement.satisfied.append(change.path)
            self._judgement.differing.add(change.path)
        else:
            self._take_merged(change, ours, combined, at)

    def _take_merged(self, change: Change, ours: Entry | None, combined: Combined, path: bytes) -> None:
        """Add a change that writes the merged entry to ``path``."""
        self._judgement.differing.add(change.path)
        flags: tuple[str, ...] = ("content",)
        if not combined.name:  # the fork's own file, or the project's with another mode
            flags = ("mode",) if combined.entry is not None and _is_chmod_of(ours, combined.entry) else change.flags
        verb: Verb = "added" if ours is None else "modified"
        self._judgement.taken.append(
            change._replace(path=path, verb=verb, base=ours, staged=combined.entry, flags=flags)
        )
        if combined.name:
            self._judgement.coming[path] = IncomingChange(combined.name, change.path)

    def _follow(self, change: Change, reason: str) -> None:
        """If the project has renamed the file, apply the fork's change at the new path; otherwise refuse it."""
        followed = not {"content", "mode"}.isdisjoint(change.flags) and git_directory(change.path) is None
        new_path = self._live.moved(change) if followed else b""
        ours = self._live.look(new_path) if new_path else None
        if ours is None or any(other.path == new_path for other in self._changes):
            self._refuse(change, None, reason)
        else:
            self._combine(change, ours, new_path)

    def _refuse(self, change: Change, ours: Entry | None, reason: str, sides: FileSides | None = None) -> None:
        """Record a conflict, or apply the recorded decision about it."""
        at = sides.path if sides is not None else change.path
        answer = self._live.answer(change, ours, sides)
        if answer is not None:
            self._apply_answer(change, ours, answer, at)
        else:
            moved = at if at != change.path else b""
            self._judgement.conflicts[change.path] = Conflict(change.path, reason, ours_at=moved)

    def _apply_answer(self, change: Change, ours: Entry | None, answer: ConflictAnswer, path: bytes) -> None:
        resolved_entry = change.staged if answer.take == "theirs" else answer.content.entry
        if answer.take == "ours" or (resolved_entry is None and ours is None):
            self._judgement.satisfied.append(change.path)
            self._judgement.differing.add(change.path)
            self._judgement.dropped.add(change.path)
        elif resolved_entry is None:
            self._take(change._replace(path=path, verb="deleted", staged=None), ours)
        elif answer.take == "theirs":
            self._take(change._replace(verb="added" if ours is None else "modified", base=ours), ours)
        else:
            self._take_merged(change, ours, answer.content, path)

    # --- renames ---

    def _renames(self) -> list[tuple[Change, Change]]:
        """Return the (old path, new path) changes for each rename with neither end withheld."""
        by_path = {change.path: change for change in self._changes if change.path not in self._judgement.withheld}
        ends = ((change, by_path.get(change.moved_to)) for change in by_path.values() if change.moved_to)
        return [
            (deleted, renamed) for deleted, renamed in ends if renamed is not None and renamed.source == deleted.path
        ]

    def _rename(self, deleted: Change, renamed: Change) -> None:
        old, new = self._live.look(deleted.path), self._live.look(renamed.path)
        decision = self._decide(renamed, new)
        delta = "gone" if old is None else self._live.delta(deleted, old)
        if decision.outcome == "satisfied" or (
            delta == "same" and decision.outcome != "conflict" and deleted.original_known
        ):
            self._judge_path(renamed, new)
            self._judge_path(deleted, old)
        elif decision.outcome != "conflict" and delta in ("content", "mode") and deleted.original_known and new is None:
            self._merge_renamed(deleted, renamed, old)
        else:
            reason = decision.reason or decide(deleted, old, delta, ours_is_theirs=False).reason or RENAMED_AWAY
            self._refuse_rename(deleted, renamed, old, new, reason)

    def _merge_renamed(self, deleted: Change, renamed: Change, ours: Entry | None) -> None:
        """Merge the project's changes to a file into the fork's renamed file."""
        if git_directory(renamed.path) is not None:
            self._refuse_rename(deleted, renamed, ours, None, _REPOSITORY)
            return
        sides = FileSides(
            (deleted.path, deleted.base), (deleted.path, ours), (renamed.path, renamed.staged), renamed.path
        )
        combined = self._live.combine(sides)
        if combined.entry is None:
            self._refuse_rename(deleted, renamed, ours, None, combined.reason, sides)
        else:
            self._take_merged(renamed, None, combined, renamed.path)
            self._take(deleted, ours)

    def _refuse_rename(
        self,
        deleted: Change,
        renamed: Change,
        old: Entry | None,
        new: Entry | None,
        reason: str,
        sides: FileSides | None = None,
    ) -> None:
        answer = self._live.answer(renamed, new, sides)
        if answer is None:
            ours_at = deleted.path if new is None else b""
            self._judgement.conflicts[renamed.path] = Conflict(
                renamed.path, reason, base_at=deleted.path, ours_at=ours_at
            )
            self._judgement.conflicts[deleted.path] = Conflict(deleted.path, _END)
            return
        self._apply_answer(renamed, new, answer, renamed.path)
        if old is None or answer.take == "ours":
            self._judgement.satisfied.append(deleted.path)
            if old is not None:
                self._judgement.dropped.add(deleted.path)
        else:
            self._take(deleted, old)


def _is_chmod_of(ours: Entry | None, entry: Entry) -> bool:
    return ours is not None and entry == ours._replace(mode=entry.mode)


_OTHERS = frozenset((b".git", b"hooks", b"config", b".mudroom"))


def lifts(name: bytes, path: bytes) -> bool:
    """Return whether naming ``name`` lifts the protection of ``path``: ``name`` is the path, or hooks or a ``.mudroom``
    directory that contains it. Paths in another repository or project inside that directory have to be named
    themselves."""
    if name == path or not is_below(path, name):
        return name == path
    if b".mudroom" in name.split(b"/"):
        return True
    rest = path[len(name) + 1 :].split(b"/")
    is_hooks = name == b"hooks" or name.endswith(b"/hooks")
    return (is_protected(name) or is_hooks) and not _OTHERS.intersection(rest)


def _leads_to(change: Change, name: bytes) -> bool:
    """Return whether the change creates a directory that ``name`` needs."""
    return change.base is None and change.entry.kind == "directory" and is_below(name, change.path)
