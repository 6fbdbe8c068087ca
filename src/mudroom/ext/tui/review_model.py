"""The review's session calls. They run in one thread, one after another: the screen never waits for a disk, and two
threads never use a session at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from mudroom.cli.change.agent_settings import changed_settings
from mudroom.cli.project_session import UNDONE
from mudroom.core.journal.event import Event
from mudroom.core.merge.apply_summary import RECOVERY_WORDS
from mudroom.core.registry import part
from mudroom.core.tree.change import Change, Remark, Summary
from mudroom.core.tree.landing_form import LEADS_OUT, OWNER, REDUCED, unusual_mode
from mudroom.core.tree.path import show, show_path
from mudroom.core.tree.stack import Checkpoint
from mudroom.errors import ForkMoved, MudroomError
from mudroom.ext.order.core.risk import FileRisk
from mudroom.ext.order.reader import risks_of
from mudroom.ext.remarks.session import notes_of, sent_paths
from mudroom.ext.review.activity import DroppedChanges, preview, roll_back
from mudroom.ext.review.parts import read_parts
from mudroom.ext.review.roots import ReviewRoot, drift_of, options_of_choice, root_of, roots_of
from mudroom.ext.review.rows import can_conflict, difference, review_fork, stamp_of
from mudroom.ext.tui.choice import Choice, Item, items_of
from mudroom.ext.tui.diffrow import FileRows, FileText
from mudroom.ext.views.lines import view_lines
from mudroom.ext.views.reader import kind_at, view_of

if TYPE_CHECKING:
    from mudroom.core.merge.resolution_words import Take
    from mudroom.core.network.push import PushRow
    from mudroom.ext.commits.git.commit_diff import CommitDiff
    from mudroom.ext.commits.git.log import CommitLog
    from mudroom.ext.commits.session import CommitRequest
    from mudroom.session import ApplyResult, ForkConflict, LandingResult, Session

P = ParamSpec("P")
T = TypeVar("T")


def _commits(what: str) -> Any:
    return part("commits", "session", what)


class Busy(MudroomError):
    """Another process holds the vault or the fork; no action has begun."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"{holder} is at work in this project", "try again when it has ended")
        self.holder = holder


class ForkVanished(MudroomError):
    """The fork no longer exists."""

    def __init__(self) -> None:
        super().__init__("the fork is gone", "it was applied or discarded elsewhere")


class SeenFork(NamedTuple):
    """A fork as it was read for review."""

    fork: str
    fingerprint: str
    changes: tuple[Change, ...]
    items: tuple[Item, ...]
    tags: Mapping[bytes, tuple[str, ...]]
    """By change path: the tags to filter by."""
    remarks: tuple[Remark, ...]
    conflicts: tuple[ForkConflict, ...]
    level: int | None
    credentials: tuple[str, ...]
    in_use: str = ""
    """Why this is a look and not a review, as words to follow the fork's name; empty if it is a review. A look excludes
    a foreground command's changes so far, and its conflicts are unknown."""
    summary: Summary = Summary()
    settings: tuple[str, ...] = ()
    """Changes to the agent's settings in the fork, in words. Only ``mudroom agent settings`` lands them."""
    pushes: tuple[PushRow, ...] = ()
    """Those that wait."""
    labels: Mapping[bytes, str] = {}
    """The names of the other projects in which the fork has changes, by path."""
    risks: Mapping[bytes, FileRisk] = {}
    """By change path."""
    remarked: frozenset[bytes] = frozenset()
    """Paths with open remarks that were sent."""

    @property
    def decided(self) -> dict[bytes, bool]:
        """By conflict path: whether it is decided."""
        return {conflict.path: conflict.decided for conflict in self.conflicts}


class SessionCalls:
    """Runs a session's calls in one thread, one after another."""

    def __init__(self, session: Session) -> None:
        self.session, self.project = session, session.project
        self._thread = ThreadPoolExecutor(1, "mudroom-review")
        self._last_request = 0

    async def ask(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a session call in its thread and return the result."""
        return await asyncio.wrap_future(self._thread.submit(function, *args, **kwargs))

    def close(self) -> None:
        """Wait for the running call; start no others."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def ask_last(self, function: Callable[[], T]) -> T | None:
        """Run a session call as ``ask`` does; return None if another was asked for in this way meanwhile."""
        self._last_request += 1
        number = self._last_request
        return await self.ask(lambda: function() if number == self._last_request else None)


class ReviewModel(SessionCalls):
    def __init__(self, session: Session, fork: str) -> None:
        super().__init__(session)
        self.fork = fork
        self.recovered: list[str] = []
        """Messages about applies that a crash had cut off and that were recovered here."""
        self.is_applying = False
        """Whether this process holds the vault: the project may be written to."""

    # --- reading ---

    def see(self) -> SeenFork:
        """Read the fork. Later applies are bound to this state by its fingerprint."""
        self._require_exists()
        reviewed = review_fork(self.session, self.fork)
        record = self.session.forks.record(self.fork)
        conflicts: Sequence[ForkConflict] = ()
        running = not self._is_at_rest()
        if not running and can_conflict(reviewed.changes, drift_of(self.session, self.fork)):
            conflicts = self._conflicts()
        return SeenFork(
            self.fork,
            reviewed.fingerprint,
            reviewed.changes,
            items_of(reviewed.changes),
            reviewed.tags,
            reviewed.remarks,
            tuple(conflicts),
            record.level if record is not None else None,
            self.session.vault.fork(self.fork).credentials,
            reviewed.in_use,
            reviewed.summary,
            tuple(changed_settings(self.session, self.fork)),
            tuple(self.session.held_effects(self.fork)),
            reviewed.labels,
            risks_of(self.session, self.fork),
            sent_paths(self.session, self.fork),
        )

    def _conflicts(self) -> list[ForkConflict]:
        return [
            root.conflict(conflict)
            for root in roots_of(self.session, self.fork)
            for conflict in root.session.changes.conflicts(root.fork)
        ]

    def fingerprint(self) -> str | None:
        """Return the fork's present fingerprint, or None if the fork is gone."""
        return (
            review_fork(self.session, self.fork).fingerprint if self.session.vault.find(self.fork) is not None else None
        )

    def _is_at_rest(self) -> bool:
        """Return whether no command holds the fork. Do not wait for its end, which may be far off."""
        with self.session.vault.fork(self.fork).lock_if_free("mudroom review", standing=True) as free:
            return free

    def _require_at_rest(self) -> None:
        self._require_exists()
        if not self._is_at_rest():
            raise Busy(f"a command in {self.fork}")

    def _require_exists(self) -> None:
        if self.session.vault.find(self.fork) is None:
            raise ForkVanished

    def stamp(self) -> tuple[object, ...] | None:
        """Return a value that changes with the fork, or None if the fork is gone. It costs a few stat calls; any thread
        may call it."""
        place = self.session.vault.path + b"/forks/" + self.fork.encode()
        try:
            os.stat(place)
        except OSError:
            return None
        return tuple(map(stamp_of, (place, place + b"/record", place + b"/state", place + b"/running")))

    async def show(self, item: Item, seen: SeenFork | None = None, *, turned: bool = False) -> FileRows | None:
        """Return a change for display, or None if another has been requested meanwhile. ``seen``: the list. ``turned``:
        not what is shown first of its parts and its text. Raise ForkMoved if the list is a review and its change
        differs from the present one."""
        return await self.ask_last(lambda: self._show(item, seen, turned=turned))

    def _show(self, item: Item, seen: SeenFork | None, *, turned: bool) -> FileRows:
        self._require_exists()
        change = item.change
        if item.is_repository:
            return FileRows((f"a repository, as a whole: {len(item.inside):,} changes in it",))
        shown = difference(self.session, self.fork, change.path)
        if not (seen and seen.in_use) and shown.change != change:  # an apply accepts the listed changes
            raise ForkMoved(change.path, show(change.path))
        mode = change.modes
        divisible = shown.is_divisible
        notes = [*_notes_of(change), *KIND_NOTES.get(shown.kind, ()), *notes_of(self.session, self.fork, change.path)]
        if mode is not None and not divisible:
            notes.append(f"permissions {mode[0]:04o} → {mode[1]:04o}")
        text = FileText(*shown.texts.sides, shown.texts.blocks) if shown.texts is not None else None
        risk = seen.risks.get(change.path) if seen is not None else None
        blocks = risk.blocks if risk is not None and text is not None else ()
        if risk is not None and not blocks and shown.moved is None:
            notes += [reason for reason in risk.reasons if not change.runs or change.runs not in reason]
        risks = blocks if text is not None and len(blocks) == len(text.blocks) else ()
        rows = FileRows(tuple(notes), mode if divisible else None, text, divisible, shown.moved, risks)
        return self._by_parts(rows, change.path, shown.kind, turned=turned)

    def _by_parts(self, rows: FileRows, path: bytes, difference_kind: str, *, turned: bool) -> FileRows:
        """Return a file's rows, by its parts if it has some and they are wanted."""
        kind = kind_at(self.session, self.fork, path, difference_kind)
        if kind is None:
            return rows
        if kind.is_first == turned:
            return rows._replace(notes=(*rows.notes, f"V shows its {kind.parts}"))
        view = view_of(self.session, self.fork, path)
        if view is None or view.problem:
            return rows._replace(notes=(*rows.notes, f"no {kind.parts}: {view.problem}" if view is not None else ""))
        told = "V shows its text" if rows.text is not None else "V shows it without them"
        return rows._replace(text=None, risks=(), notes=(*rows.notes, told), parts=tuple(view_lines(view)))

    # --- writing ---

    def alone(self, what: str, do: Callable[[], T]) -> T:
        """Call ``do`` while holding the vault. Raise Busy at once if another process holds it."""

        def waiting(other: str) -> None:
            raise Busy(show(other.encode()))

        holder = f"{what} (mudroom review, process {os.getpid()})"
        with self.session.alone(holder, waiting, forks=(self.fork,)) as recovered:
            self.recovered += [
                f"apply {recovery.name} of {show(recovery.fork.encode())} {RECOVERY_WORDS[recovery.outcome]}"
                for recovery in recovered
            ]
            self.is_applying = True
            try:
                return do()
            finally:
                self.is_applying = False

    def can_commit(self) -> bool:
        """Return whether the project is a git repository."""
        return os.path.lexists(self.project + b"/.git")

    def apply(
        self,
        seen: SeenFork,
        choice: Choice,
        on_verify: Callable[[tuple[bytes, ...]], Callable[[bytes], None]],
        commit: CommitRequest | None = None,
        pushes: Sequence[str] = (),
    ) -> LandingResult:
        """Apply the choice, then send these pushes. ``commit``: as one commit. ``on_verify``: see ``Changes.apply``.
        Raise ForkMoved if the fork has changed since it was read, or Busy. Raise UsageError, with no changes applied,
        if no commit could be made."""
        self._require_exists()

        def land() -> LandingResult:
            parts = read_parts(self.session, self.fork, seen.changes, choice.picks)
            paths = tuple(path for path in choice.paths if path not in parts.left)
            options: dict[str, Any] = {
                "pushes": pushes,
                "git": choice.git,
                "reviewed": seen.fingerprint,
                "on_verify": on_verify,
            }
            if choice.paths or not choice.items:
                options |= options_of_choice(self.session, self.fork, paths, parts.chosen)
            if commit is None:
                return self.session.changes.apply(self.fork, **options)
            landed: LandingResult = _commits("a commit of an apply").apply_as_commit(
                self.session, self.fork, commit, **options
            )
            return landed

        return self.alone(f"applying {self.fork}", land)

    def drop_effect(self, effect: PushRow) -> None:
        """Drop a held effect. Raise ForkMoved if it is not the one that was shown."""
        self._require_at_rest()
        self.session.changes.drop_pushes(self.fork, (effect.bound,))

    def undo(self, name: str) -> ApplyResult:
        return self.alone("undo", lambda: self.session.changes.undo(name))

    def why_empty(self) -> str:
        """Return the words for a fork without changes."""
        undone = self.session.changes.undone_as(self.fork)
        return UNDONE.format(apply=undone) if undone else "the fork holds no changes"

    def last_apply(self) -> str:
        """Return the apply that an undo would reverse, or an empty string."""
        applied = [one["apply"] for one in self.session.changes.applies() if one["state"] == "applied"]
        return applied[-1] if applied else ""

    def discard(self, seen: SeenFork) -> None:
        """Discard the fork. Raise ForkMoved if it has changed since it was read, or Busy."""
        self._require_exists()
        self.alone(f"discarding {self.fork}", lambda: self.session.forks.discard(self.fork, seen.fingerprint))

    # --- checkpoints and journal ---

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        self._require_exists()
        return self.session.vault.fork(self.fork).state.checkpoints

    def dropped(self, point: str) -> DroppedChanges:
        """Return the changes that a rollback would drop. Their fingerprint binds the rollback to them."""
        self._require_at_rest()
        return preview(self.session, self.fork, point)

    def roll_back(self, point: str, dropped: DroppedChanges) -> str:
        """Roll back, and return the checkpoint that holds the dropped changes, or an empty string. Raise ForkMoved if
        it would drop other changes."""
        self._require_at_rest()
        before = roll_back(self.session, self.fork, point, dropped.fingerprint)
        return before.name if before is not None else ""

    # --- commits ---

    def commits(self) -> CommitLog:
        self._require_exists()
        log: CommitLog = _commits("the list of a fork's commits").list_commits(self.session, self.fork)
        return log

    def commit(self, commit: str) -> CommitDiff:
        self._require_exists()
        diff: CommitDiff = _commits("the list of a fork's commits").commit_diff(self.session, self.fork, commit)
        return diff

    def events(self, last: int) -> list[Event]:
        """Return the journal's last events, newest first."""
        return list(self.session.vault.journal.events(last=last))[::-1]

    # --- conflicts ---

    def conflicts(self) -> list[ForkConflict]:
        self._require_at_rest()
        return self._conflicts()

    def own_of(self, conflict: ForkConflict) -> tuple[ReviewRoot, ForkConflict]:
        """Return the project of a conflict, and the conflict with that project's path."""
        root = root_of(self.session, self.fork, conflict.path)
        return root, conflict._replace(path=root.inner(conflict.path)) if root.path else conflict

    def is_masked(self, conflict: ForkConflict) -> bool:
        """Return whether a conflict's content is always hidden. Any thread may call it."""
        root, own = self.own_of(conflict)
        return root.session.forks.secrets.hides_conflict(own)

    def decide(self, conflict: ForkConflict, take: Take, content: bytes | None = None, how: str = "") -> None:
        self._require_at_rest()
        root, own = self.own_of(conflict)
        root.session.changes.decide(root.fork, own, take, content, how=how)

    def keep_both(self, conflict: ForkConflict) -> None:
        """Put the fork's version beside the project's. This changes the fork, and with it the state under review."""
        self._require_at_rest()
        root, own = self.own_of(conflict)
        root.session.changes.keep_both(root.fork, own)

    def undecide(self, conflict: ForkConflict) -> bool:
        self._require_at_rest()
        root, own = self.own_of(conflict)
        return root.session.changes.forget_decision(root.fork, own.path, own.decision)


KIND_NOTES = {
    "large": ("a text that is too large to be shown",),
    "masked": ("a secret: it is not shown",),
    "unknown": ("its original is not known any more",),
    "image": ("a picture: mudroom serve shows it",),
}


def _notes_of_form(change: Change) -> list[str]:
    """Return notes about attributes that land besides the content: mode, owner, and where a link leads."""
    staged, notes = change.staged, []
    if staged is None:
        return []
    if staged.mode & 0o6000:
        notes.append(f"runs with the rights of its owner or group: {staged.mode:04o}")
    elif change.base is None and unusual_mode(staged):
        notes.append(f"executable ({staged.mode:04o})" if staged.executable else unusual_mode(staged))
    if REDUCED in change.flags:
        notes.append("set-ID and sticky bits, and write permission for others, are not applied")
    if LEADS_OUT in change.flags:
        notes.append("the link leads out of the project")
    if OWNER in change.flags:
        notes.append(f"owner {staged.uid}:{staged.gid}")
    return notes


def _notes_of(change: Change) -> list[str]:
    """Return notes about a change that its lines do not show."""
    notes = [f"runs by itself later: {change.runs}"] if change.runs else []
    base, staged = change.base, change.staged
    if change.source:
        notes.append(f"renamed from {show_path(change.source)}")
    if change.verb == "added":
        notes.append("new" if change.entry.kind == "file" else f"new {change.entry.kind}")
    if change.verb == "deleted":
        notes.append("deleted")
    if base is not None and staged is not None and base.kind != staged.kind:
        notes.append(f"{base.kind} becomes {staged.kind}")
    for side, entry in (("was a link to", base), ("link to", staged)):
        if entry is not None and entry.kind == "symlink":
            notes.append(f"{side} {show_path(entry.target)}")
    if change.link_to:
        notes.append(f"another name of {show_path(change.link_to)}")
    if change.binary and staged is not None:
        notes.append(f"binary, {staged.size:,} bytes")
    notes += _notes_of_form(change)
    if not change.original_known:
        notes.append("edited in the project while the command ran: what it was is not known")
    return notes
