"""The changes of a fork: looked at, chosen from, merged and tried, applied, taken back.

All of it writes to the project or decides what will be written. The one command that is run is the one that verifies
the result of an apply, and that is handed in (``verification.py``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from mudroom.core.result import text
from mudroom.core.tree.change import Changeset
from mudroom.core.tree.path import is_below, show
from mudroom.errors import UsageError
from mudroom.session.forks import Forks
from mudroom.session.retention import tidy
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork

if TYPE_CHECKING:
    from mudroom.core.merge.merge import PartialChoice
    from mudroom.core.merge.resolution_words import Take
    from mudroom.core.tree.change import Change, Remark
    from mudroom.core.tree.similar_renames import Move
    from mudroom.vault.apply.applied import ApplyDetail
    from mudroom.vault.apply.conflict import ForkConflict
    from mudroom.vault.apply.landing import Check, LandingResult
    from mudroom.vault.apply.transaction import ApplyResult, Recovery
    from mudroom.vault.git.commits import Commits

    OnVerify = Callable[[tuple[bytes, ...]], Callable[[bytes], None]]
    Verify = Callable[[OnVerify | None], Check | None]

T = TypeVar("T")


def _again(applied: ApplyResult) -> dict[str, int]:
    return {"again": len(applied.again)} if applied.again else {}


class Changes:
    """Thread-safe: it holds what is thread-safe itself. ``verify`` is fixed when it is made."""

    def __init__(self, forks: Forks, verify: Verify = lambda _on_verify: None) -> None:
        """``verify``: returns what tries the result of an apply before it is written, or None."""
        self._forks, self._vault, self.verify = forks, forks.vault, verify

    # --- looking and choosing ---

    def of(self, name: str) -> Changeset:
        """Return what a fork holds, as of its last command. One that was cut off in the middle is looked at now."""
        return self._forks.changeset(name)

    def diff(self, name: str, paths: Sequence[bytes] = ()) -> Iterator[bytes]:
        """Return what a fork would change as unified diff, by lines; only at and below ``paths`` if any are given."""
        from mudroom.stage.diff import diff

        changes = self.of(name).changes
        chosen = [c for c in changes if not paths or any(is_below(c.path, path) for path in paths)]
        moves = self.moves(name) if _both_ways(chosen) else ()
        with OpenFork(self._vault, self._vault.fork(name)) as opened:
            yield from diff(opened.ground().read_original, opened.staged(), chosen, moves)

    def moves(self, name: str) -> tuple[Move, ...]:
        """Files of a fork that were moved and changed in one go, as far as that can be told
        (``core/tree/similar_renames.py``)."""
        from mudroom.vault.forks.both_sides import SideReader
        from mudroom.vault.forks.record_view import view_record

        gist = view_record(self._vault.reading, self._forks.record(name))
        if not _both_ways(gist.changeset.changes):
            return ()
        with SideReader(self._vault, name, gist) as sides:
            return sides.moves(self._forks.secrets.hides)

    def texts(self, name: str, paths: Sequence[bytes] = ()) -> Iterator[tuple[Change, bytes | None, bytes | None]]:
        """The changes of a fork that a person counts, each with the original and the staged text; both None where it
        has no hunks to choose from: binary and large files, links, directories, what is deleted or turns into
        something else."""
        from mudroom.core.text.linediff import is_binary
        from mudroom.core.tree.change import listed
        from mudroom.stage.originals.collection import TEXT_LIMIT
        from mudroom.stage.source import read_all

        changes = self.of(name).changes
        with OpenFork(self._vault, self._vault.fork(name)) as opened:
            ground, staged = opened.ground(), opened.staged()
            for change in listed(list(changes)):
                if paths and not any(is_below(change.path, path) for path in paths):
                    continue
                old = new = None
                kinds = {entry.kind for entry in (change.base, change.staged) if entry is not None}
                if change.staged is not None and kinds == {"file"} and not change.source:
                    new = read_all(staged, change.path, TEXT_LIMIT)
                    old = ground.read_original(change.path, change.base, TEXT_LIMIT) if change.base is not None else b""
                if old is None or new is None or is_binary(old) or is_binary(new):
                    old = new = None
                yield change, old, new

    def review(self, name: str) -> tuple[Changeset, str]:
        """What a fork holds, for somebody to look at, and its fingerprint: an apply is held to it from here on."""
        from mudroom.vault.forks.review import remember

        changes = self.of(name)
        return changes, remember(self._vault.fork(name), changes)

    def apply(
        self,
        name: str,
        paths: Sequence[bytes] = (),
        *,
        reviewed: str | None = None,
        git: bool = False,
        parts: Mapping[bytes, PartialChoice] | None = None,
        markers: bool = False,
        backups: bool = False,
        verify_fork: bool = True,
        exact: bool = False,
        on_verify: OnVerify | None = None,
    ) -> LandingResult:
        """Apply a fork to the project, whole or only ``paths``, merged with what has been changed there meanwhile.
        Conflicts are in what it returns, never raised.

        Hold the vault's lock. ``reviewed``: the fingerprint of what was looked at; without it, that of the last look
        (``review``), if there was one since the last apply. Raise ForkMoved if the fork holds something else now;
        nothing has happened then. ``git``: repositories, too, each as a whole; they are left out else, unless a path
        names one. ``parts``: of these files only this. ``markers``: write conflict markers into texts that cannot be
        merged. ``backups``: leave what is replaced or removed beside it as ``NAME.bak``. ``verify_fork``: False only
        if the lock has been held since the changes were collected. ``exact``: of the ``paths`` only what is at them,
        nothing below. ``on_verify``: called with the command that verifies the result when that begins; what it gives
        is called with all that the command prints, as it is printed.
        """
        from mudroom.vault.apply.landing import LandingRequest, land

        with self._forks.at_rest(name) as fork:
            record = None if verify_fork else fork.record
            self._require_reviewed(fork, reviewed)
            wanted = LandingRequest(tuple(paths), parts or {}, git=git, markers=markers, backups=backups, exact=exact)
            now, check, report = self._forks.clock(), self.verify(on_verify), self._report("applying")
            landed = land(self._vault, fork, wanted, time=now, record=record, check=check, progress=report)
        if landed.verified is not None:
            told = {"command": [text(word) for word in landed.verified.command], "exit_code": landed.verified.exit_code}
            self._forks.journal("verify", name, told)
        more = {"kept": len(landed.kept)} if landed.kept else {}
        self._journal_applied("apply", name, landed.applied, **more)
        tidy(self._forks, applied=True)
        return landed

    def bring_commits(self, name: str, *, branch: str | None = None, repository: bytes = b".git") -> Commits:
        """Bring the commits of a fork into the project's repository as a branch (default: ``mudroom/<fork>``); its
        files, index and HEAD stay as they are. Hold the vault's lock. Raise UsageError if there are none, or they
        cannot be brought; no branch has changed then."""
        from mudroom.vault.git.commits import bring_commits

        with self._forks.at_rest(name) as fork, OpenFork(self._vault, fork) as opened:
            found = bring_commits(self._vault.project, repository, opened.merged(), branch=branch, fork=name)
        data = {"branch": found.branch, "head": found.head, "commits": len(found.commits), "before": found.before}
        self._forks.journal("commits", name, data)
        return found

    def _require_reviewed(self, fork: Fork, expected: str | None) -> None:
        from mudroom.vault.forks import review

        expected = expected or review.reviewed(fork)
        if expected is not None:
            record = fork.record
            review.require(fork, record.changeset if record is not None else Changeset(), expected)

    def _report(self, label: str) -> Callable[[int, int], None] | None:
        progress = self._forks.progress
        return None if progress is None else lambda done, total: progress(label, done, total)

    def fingerprint(self, name: str) -> str:
        """Of what a fork holds now; unlike ``review``, this is no look at it."""
        from mudroom.vault.forks.record_view import view_record

        return view_record(self._vault.reading, self._forks.record(name)).fingerprint

    def drift(self, name: str) -> list[Remark]:
        """What the project has changed itself, since, where the fork has changes. Cheap, and holds no lock: an apply
        merges it, or finds a conflict (``conflicts``)."""
        from mudroom.vault.apply.drift import find_drift

        return find_drift(self._vault, self._vault.fork(name))

    def conflicts(self, name: str, paths: Sequence[bytes] = ()) -> list[ForkConflict]:
        """Where a fork, or what is below ``paths`` in it, conflicts with the project as it is now: all sides of each,
        those that are decided, too."""
        from mudroom.vault.apply.conflict import find_conflicts

        with self._forks.at_rest(name) as fork:
            return find_conflicts(self._vault, fork, paths) if fork.record is not None else []

    def conflict(self, name: str, path: bytes) -> ForkConflict | None:
        """Return the conflict at ``path``, reading only that file where possible; None if there is none."""
        from mudroom.vault.apply.conflict import find_conflict

        with self._forks.at_rest(name) as fork:
            return find_conflict(self._vault, fork, path) if fork.record is not None else None

    def each_conflict(self, name: str, make: Callable[[ForkConflict], T]) -> list[T]:
        """What is made of each of them, one after the other: all of them together may not fit into memory."""
        from mudroom.vault.apply.conflict import each_conflict

        with self._forks.at_rest(name) as fork:
            return each_conflict(self._vault, fork, make) if fork.record is not None else []

    def conflict_paths(self, name: str, paths: Sequence[bytes] = ()) -> dict[bytes, bool]:
        """Of all of them, or of those below ``paths``: whether it is decided. No content is kept."""
        from mudroom.vault.apply.conflict import each_conflict

        with self._forks.at_rest(name) as fork:
            if fork.record is None:
                return {}
            return dict(each_conflict(self._vault, fork, lambda one: (one.path, one.decided), paths, contents=False))

    def decide(
        self, name: str, conflict: ForkConflict, take: Take, content: bytes | None = None, *, edited: bool = False
    ) -> None:
        """Keep a decision about a conflict for the next apply; it holds as long as both versions stay what they are.

        ``take``: ours (what the project has), theirs (what the fork has), content (which is given), delete.
        ``edited``: the content came of what is decided, and has the permissions of that.
        """
        from mudroom.vault.apply.conflict import decide

        with self._forks.at_rest(name) as fork:
            decide(self._vault, fork, conflict, take, content, edited=edited)

    def keep_both(self, name: str, conflict: ForkConflict) -> bytes:
        """Decide for the project's file, and have the fork's beside it, as ``NAME.theirs.SUFFIX``: its path. For files
        that cannot be merged. Raise UsageError if something is there."""
        from mudroom.vault.apply.conflict import require_undecided_since
        from mudroom.vault.conflict.resolution import load_resolutions
        from mudroom.vault.forks import review

        stem, suffix = os.path.splitext(conflict.path)
        beside = stem + b".theirs" + suffix
        fork, files = self._vault.fork(name), self._forks.files(name)
        looked_at = review.reviewed(fork) == review.fingerprint(self.of(name))
        if files.look(beside) is not None:
            raise UsageError(f"there is a {show(beside)} already", "--mine or --theirs, or rename it")
        with self._forks.at_rest(name) as fork_at_rest:
            require_undecided_since(conflict.path, conflict.decision, load_resolutions(fork_at_rest))
        files.copy(conflict.path, beside)
        self._forks.flush(name)
        self.decide(name, conflict, "ours")
        if looked_at:  # what has come since is what was asked for
            self.review(name)
        return beside

    def forget_decision(self, name: str, path: bytes, decision: bytes | None = None) -> bool:
        """Take a decision back: the one that was looked at (``ForkConflict.decision``; None: whatever it is). Whether
        there was one."""
        from mudroom.vault.apply.conflict import forget

        with self._forks.at_rest(name) as fork:
            return forget(fork, path, decision)

    # --- applies ---

    def applies(self) -> list[dict[str, str]]:
        """Every apply of this project, oldest first, with its state in words."""
        from mudroom.vault.apply.transaction import ApplyDirectory

        words = {"prepare": "deferred", "ready": "interrupted", "undoing": "interrupted", "done": "applied"}
        words["redoing"] = "interrupted"
        found = []
        for path in self._vault.applies():
            place = ApplyDirectory(path)
            state = place.state()
            if state is not None:
                found.append({"apply": place.name, "state": words.get(state, state)})
        return found

    def applied(self, last: int = 100) -> list[ApplyDetail]:
        """The newest applies, oldest first, with what is known of each without much ado."""
        from mudroom.vault.apply.applied import details

        return details(self._vault, [(one["apply"], one["state"]) for one in self.applies()[-last:]])

    def redo(self, name: str | None = None) -> ApplyResult:
        """Apply once more what was undone: the one named, or the last. Hold the vault's lock."""
        from mudroom.vault.apply.landing import redo_apply
        from mudroom.vault.retention.tombstone import require_kept

        if name is not None:
            require_kept(self._vault, name)
        applied = redo_apply(self._vault, name, self._report("applying"), self._forks.at_rest)
        self._journal_applied("redo", "", applied, **_again(applied))
        return applied

    def undo(self, name: str | None = None) -> ApplyResult:
        """Take an apply back: the one named, or the last. Hold the vault's lock."""
        from mudroom.vault.apply.landing import undo_apply
        from mudroom.vault.retention.tombstone import require_kept

        if name is not None:
            require_kept(self._vault, name)
        applied = undo_apply(self._vault, name, self._report("taking back"), self._forks.at_rest)
        self._journal_applied("undo", "", applied, **_again(applied))
        return applied

    def recover(self) -> list[Recovery]:
        """Deal with what a killed mudroom left unfinished. Hold the vault's lock."""
        if not self._vault.has_unfinished():
            return []
        from mudroom.vault.apply.landing import recover_all

        found = recover_all(self._vault)
        for outcome in found:
            self._journal_applied("recover", outcome.fork, outcome.applied, outcome=outcome.outcome)
        return found

    def _journal_applied(self, kind: str, fork: str, applied: ApplyResult, **more: Any) -> None:
        if not applied.name:
            return
        data = {"apply": applied.name, "written": applied.written, "removed": applied.removed, **more}
        data["conflicts"] = len(applied.conflicts)
        self._forks.journal(kind, fork, data)


def _both_ways(changes: Iterable[Change]) -> bool:
    """Whether something came and something went."""
    return {"added", "deleted"} <= {change.verb for change in changes}
