"""A fork's changes: diff, review, conflicts, decisions, apply, undo.

These methods write to the project, or decide about writes. The only command that they run verifies an apply's result;
it is passed in (``verification.py``).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

from mudroom.core.result import text
from mudroom.core.text.linediff import is_binary
from mudroom.core.tree.change import Change, Changeset, Remark, counted_changes
from mudroom.core.tree.flag import git_directory, repositories
from mudroom.core.tree.path import is_below, show
from mudroom.core.tree.quote import show_words
from mudroom.errors import ApplyUnwritten, ForkMoved, ForkReplaced, MudroomError, UsageError
from mudroom.session.forks import Forks, await_stamps, set_aside, to_read
from mudroom.session.retention import tidy
from mudroom.stage import safe_open
from mudroom.stage.originals.collection import TEXT_LIMIT
from mudroom.stage.source import OpenSource, RecordedFiles, SourceContent, read_all
from mudroom.typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar
from mudroom.vault.apply.plan_state import list_applies, state_of
from mudroom.vault.forks import review
from mudroom.vault.forks.damage import require_files
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.forks.review import ForkLook, remember
from mudroom.vault.forks.ties import ROOTS, Tie, require_first, tie, ties_of
from mudroom.vault.retention.tombstone import require_kept
from mudroom.vault.store.fork import Fork, mount_note
from mudroom.vault.store.store import Vault, project_of, require_own

if TYPE_CHECKING:
    from mudroom.core.merge.merge import PartialChoice
    from mudroom.core.merge.resolution_words import Take
    from mudroom.core.network.push import PushRow
    from mudroom.core.tree.similar_renames import Move
    from mudroom.vault.apply.applied import ApplyDetail
    from mudroom.vault.apply.conflict import ForkConflict
    from mudroom.vault.apply.given_back import GivenBack
    from mudroom.vault.apply.joint import Joint
    from mudroom.vault.apply.landing import Check, LandingResult, RootLanding
    from mudroom.vault.apply.transaction import ApplyDirectory, ApplyResult, Recovery
    from mudroom.vault.record import ApplyRecord, JointNote

    OnVerify = Callable[[tuple[bytes, ...]], Callable[[bytes], None]]
    Verify = Callable[[OnVerify | None], Check | None]

T = TypeVar("T")


class _Options(NamedTuple):
    """Options of ``Changes.apply``."""

    git: bool
    parts: Mapping[bytes, PartialChoice]
    markers: bool
    backups: bool
    exact: bool
    pushes: Collection[str]
    on_verify: OnVerify | None
    is_empty: bool = False
    """Apply no file of this project."""

    def of_part(self) -> _Options:
        """Return those that hold for parts in other projects, too."""
        return self._replace(parts={}, exact=False, pushes=(), is_empty=False)


class _Unverified(MudroomError):
    """The verify command of another project has failed, so that no part is applied."""

    def __init__(self, landed: LandingResult) -> None:
        super().__init__("the result was not verified")
        self.landed = landed


def _again(applied: ApplyResult) -> dict[str, Any]:
    again: dict[str, Any] = {"again": len(applied.again)} if applied.again else {}
    return again | ({"refs": list(applied.refs)} if applied.refs else {})


class Changes:
    """Thread-safe: its attributes are. ``verify`` is never rebound."""

    def __init__(
        self,
        forks: Forks,
        verify: Verify = lambda _on_verify: None,
        signing: Mapping[bytes, bytes] | None = None,
        *,
        rules: bool = False,
        make_again: Callable[[str], None] = lambda _fork: None,
    ) -> None:
        """``verify``: returns the check that is run on an apply's result before it is written, or None. ``signing``,
        ``rules``: as in ``LandingRequest``. ``make_again``: called before an apply with ``rules``."""
        self._forks, self._vault, self.verify, self._signing = forks, forks.vault, verify, signing
        self._rules, self._make_again = rules, make_again

    # --- held pushes ---

    def pushes(self, name: str) -> list[PushRow]:
        """Return the pushes and publishes in a fork that wait for an apply, oldest first."""
        outbox = self._forks.outbox_of(place := self._vault.fork(name).path)
        return [] if outbox is None else outbox.rows(place)

    def drop_pushes(self, name: str, wanted: Collection[str]) -> None:
        """Drop these held effects of a fork. Raise UsageError if it has not all of them."""
        with self._forks.locked(fork := self._vault.fork(name), "mudroom discard"):
            self._require_pushes(fork, wanted)
            self._forks.drop_pushes(fork, names={word.partition("@")[0] for word in wanted})

    def _require_pushes(self, fork: Fork, wanted: Collection[str]) -> list[PushRow]:
        outbox = self._forks.outbox_of(fork.path)
        rows = {} if outbox is None else {row.name: row for row in outbox.rows(fork.path)}
        for word in wanted:
            name, at, _digest = word.partition("@")
            if name not in rows:
                hint = f"mudroom diff {fork.name} shows its held effects"
                raise UsageError(f"{fork.name} has no {name}", hint)
            if at and word != rows[name].bound:
                raise ForkMoved(name.encode(), name)
        return list(rows.values())

    def _release(self, fork: Fork, landed: LandingResult, wanted: Collection[str]) -> LandingResult:
        """Send the wanted pushes if the files have landed. A remark names those that wait."""
        outbox, applied = self._forks.outbox_of(fork.path), landed.applied
        if outbox is None:
            return landed
        if wanted and applied.name and not applied.conflicts:
            _tell(self._forks, "sending")
            names = {word.partition("@")[0] for word in wanted}
            rows = outbox.release(fork, self._vault.path + b"/applies/" + applied.name.encode(), names)
            applied = _with_pushes(applied, rows)
        told = {row.name for row in applied.pushes}
        left = [row.name for row in outbox.rows(fork.path) if row.name not in told]
        remarks = [Remark(name.encode(), f"is not sent: mudroom apply {fork.name} {name} does") for name in left]
        return landed._replace(applied=applied._replace(remarks=(*applied.remarks, *remarks)))

    # --- review and apply ---

    def of(self, name: str) -> Changeset:
        """Return a fork's changes after its last command. Collect them now if that command was interrupted."""
        return self._forks.changeset(name)

    def diff(
        self,
        name: str,
        paths: Sequence[bytes] = (),
        *,
        without: Callable[[Change], bool] | None = None,
        reviewed: Sequence[Change] | None = None,
    ) -> Iterator[bytes]:
        """Yield the fork's changes as a unified diff, by lines; if ``paths`` are given, only at and below them.
        ``without``: returns whether a change is left out. ``reviewed``: show these changes, as a review has found them.
        Raise ForkMoved if a reviewed file has changed since: the diff would not show the version that the review's
        fingerprint accepts."""
        from mudroom.stage.diff import diff

        changes = self.of(name).changes  # with reviewed changes, too: sets the fork's files apart, again if need be
        changes = changes if reviewed is None else tuple(reviewed)
        chosen = [c for c in changes if not paths or any(is_below(c.path, path) for path in paths)]
        chosen = [change for change in chosen if without is None or not without(change)]
        moves = self.moves(name) if _both_ways(chosen) else ()
        fork = self._vault.fork(name)
        with OpenFork(self._vault, fork) as opened:
            try:
                yield from diff(opened.ground().read_original, _recorded(opened, reviewed), chosen, moves)
            except ForkMoved as error:
                with fork.lock_if_free("mudroom diff") as is_free:
                    is_at_rest = is_free and fork.interrupted is None and mount_note(fork) is None
                    if is_at_rest and self.of(name).changes == changes:
                        raise ForkReplaced(error.path, show(error.path), name) from None
                raise

    def whole_diff(self, name: str, reviewed: Sequence[Change] | None = None, **options: Any) -> Iterator[bytes]:
        """Yield the diff of a fork, and of its parts in other projects, each below a line that names that project.
        ``reviewed``: as for ``diff``, the fork's own."""
        yield from self.diff(name, reviewed=reviewed, **options)
        for tied, session in self.parts(name):
            yield b"# in %s:\n" % tied.label().encode()
            yield from session.changes.diff(tied.name, **options)

    def parts(self, name: str) -> list[tuple[Tie, Any]]:
        """Return the other projects in which a fork has a part, with a session on each. Raise MudroomError if a part is
        missing."""
        fork = self._vault.fork(name)
        return [(tied, self._forks.root(tied)) for tied in ties_of(fork) if tied.fork(fork)]

    def whole_fingerprint(self, name: str, first: str) -> str:
        """Return the fingerprint of a fork and its parts in other projects, which an apply of all of them requires.
        ``first``: the fork's own."""
        return "+".join((first, *(session.changes.fingerprint(tied.name) for tied, session in self.parts(name))))

    def moves(self, name: str) -> tuple[Move, ...]:
        """Return a fork's files that were probably renamed and modified (``core/tree/similar_renames.py``)."""
        from mudroom.vault.forks.both_sides import SideReader
        from mudroom.vault.forks.record_view import view_record

        gist = view_record(self._vault.reading, self._forks.record(name))
        if not _both_ways(gist.changeset.changes):
            return ()
        with SideReader(self._vault, name, gist) as sides:
            return sides.moves(self._forks.secrets.hides)

    def texts(
        self, name: str, paths: Sequence[bytes] = (), *, reviewed: Sequence[Change] | None = None
    ) -> Iterator[tuple[Change, bytes | None, bytes | None]]:
        """Yield a fork's counted changes, each with the original and the staged text. Both are None if the change has
        no hunks to select: binary and large files, links, directories, deletions and changed kinds. ``reviewed``: as
        for ``diff``."""
        changes = self.of(name).changes
        changes = changes if reviewed is None else tuple(reviewed)
        with OpenFork(self._vault, self._vault.fork(name)) as opened:
            ground, staged = opened.ground(), _recorded(opened, reviewed)
            for change in counted_changes(list(changes)):
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

    def ignored(self, changes: Sequence[Change]) -> frozenset[bytes]:
        """Return the paths that the project's ``.gitignore`` files match, as they are now."""
        from mudroom.stage.ignored_paths import ignored_paths

        with OpenSource(self._vault.source) as project:
            return ignored_paths(project, changes, {})

    def look(self, name: str) -> ForkLook:
        """Return a fork's changes after its last command, or as they are now if the fork is in use. Collect them now if
        that command was interrupted."""
        return self._forks.look(name)

    def review(self, name: str, *, at_rest: bool = False) -> ForkLook:
        """Return a fork's changes for a review. The next apply requires its fingerprint, and is refused if this is only
        a look. ``at_rest``: unmount a mounted fork for the review, and mount it again; raise MudroomError if the fork
        is in use, so that the result is never only a look."""
        look = self._review_at_rest(name) if at_rest else self.look(name)
        for tied, session in self.parts(name):
            session.changes.review(tied.name)
        fork = self._vault.fork(name)
        require_files(fork)
        if not remember(fork, look):
            self._forks.remarks.append(
                f"no room to note this review: `mudroom apply --reviewed {look.fingerprint} {name}` applies only what "
                "it shows"
            )
        return look

    def _review_at_rest(self, name: str) -> ForkLook:
        mounted = mount_note(self._vault.fork(name)) is not None
        with self._forks.at_rest(name, set_aside(self._forks)) as fork:
            await_stamps(fork, fork.record)
        if mounted:
            # Only the new mount leads into its layers, and a later store through that gives a file another time. The
            # record is read here, since deep layers are merged at the end of the block.
            return ForkLook(self._vault.fork(name).record)
        look = self.look(name)
        if look.in_use:  # another user took the fork after the block
            raise UsageError(f"{name} {look.in_use}", "try again when it has ended")
        return look

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
        exact: bool = False,
        pushes: Collection[str] = (),
        on_verify: OnVerify | None = None,
        roots: Mapping[bytes, Sequence[bytes]] | None = None,
        root_parts: Mapping[bytes, Mapping[bytes, PartialChoice]] | None = None,
    ) -> LandingResult:
        """Apply a fork to the project, whole or only ``paths``, merged with the project's own changes. Conflicts are in
        the result, never raised. Hold the vault's lock.

        A fork with parts in other projects is applied to all of them, or to none. ``roots``: only these, by path, each
        with its own ``paths``; the fork's own project is then left out unless it has ``paths``, too. ``root_parts``:
        the ``parts`` of these projects, by path; their paths are then ``exact``.

        ``reviewed``: the reviewed changes' fingerprint; default: from the last ``review`` since the last apply, if any.
        Raise ForkMoved if the fork's changes differ from it; the project is untouched then.
        ``git``: bring every repository's commits, too; otherwise only for repositories that a path names.
        ``parts``: apply only these parts of these files.
        ``markers``: write conflict markers into texts that cannot be merged.
        ``backups``: keep a replaced or removed file beside it as ``NAME.bak``.
        ``exact``: apply the ``paths`` themselves, without the paths below them.
        ``pushes``: send these held pushes, by name or by ``PushRow.bound``, after the files have landed without
        conflicts. A push that could not be sent stays in the fork. With ``exact`` and without ``paths`` no file is
        applied.
        ``on_verify``: called with the verification's command when it begins; returns a function that is called with the
        command's output as it is printed.
        """
        options = _Options(git, parts or {}, markers, backups, exact, tuple(pushes), on_verify)
        fork = self._vault.fork(name)
        require_first(fork, "apply")
        ties = ties_of(fork)
        if not ties:
            return self._apply(name, paths, reviewed, options)
        return self._apply_together(fork, paths, reviewed, options, ties, roots, root_parts)

    def _apply_together(
        self,
        fork: Fork,
        paths: Sequence[bytes],
        reviewed: str | None,
        options: _Options,
        ties: Sequence[Tie],
        roots: Mapping[bytes, Sequence[bytes]] | None,
        root_parts: Mapping[bytes, Mapping[bytes, PartialChoice]] | None,
    ) -> LandingResult:
        """Apply a fork with parts in other projects. ``reviewed``: the fingerprints, joined by ``+``."""
        from mudroom.session.roots import together
        from mudroom.vault.apply.joint import Joint
        from mudroom.vault.apply.landing import RootLanding

        name = fork.name
        prints = [None] * (1 + len(ties)) if reviewed is None else reviewed.split("+")
        if len(prints) != 1 + len(ties):
            places = ", ".join(one.label() for one in ties)
            hint = f"mudroom diff {name} shows all, mudroom apply {name} applies it"
            raise UsageError(f"{name} also changes {places}, which this review has not shown", hint)
        rows = self.parts(name)
        landed: list[RootLanding] = []

        def part(tied: Tie, session: Any, expected: str | None) -> Callable[[Joint], None]:
            def perform(joint: Joint) -> None:
                chosen = roots[tied.path] if roots is not None else ()
                there = options.of_part()
                if root_parts is not None:
                    there = there._replace(parts=root_parts.get(tied.path, {}), exact=True)
                done = session.changes._apply(tied.name, chosen, expected, there, joint)
                if done.verified is not None and not done.verified.passed:
                    raise _Unverified(done)
                landed.append(RootLanding(tied, done))

            return perform

        with together(rows, f"mudroom apply {name}"):
            chosen = [
                part(*row, expected)
                for row, expected in zip(rows, prints[1:], strict=True)
                if row[1].forks.changeset(row[0].name).changes and (roots is None or row[0].path in roots)
            ]
            if roots is not None and not paths:
                options = options._replace(is_empty=True)
            try:
                first = self._apply(name, paths, prints[0], options, Joint(chosen))
            except _Unverified as error:
                return error.landed
        return first._replace(roots=tuple(reversed(landed)))

    def _apply(
        self,
        name: str,
        paths: Sequence[bytes],
        reviewed: str | None,
        options: _Options,
        joint: Joint | None = None,
    ) -> LandingResult:
        """Apply a fork to the project. ``joint``: the operation of which that is a part."""
        from mudroom.core.network.push import unmet_effects
        from mudroom.vault.apply.landing import LandingRequest, land

        pushes = options.pushes
        require_own(self._vault)
        if self._rules:
            self._make_again(name)
        mounted = mount_note(self._vault.fork(name)) is not None
        with (
            self._forks.at_rest(name, set_aside(self._forks)) as fork,
            nullcontext() if fork.state.named else self._forks.tools.aside(fork),  # it may be discarded
        ):
            if _holds_repository(fork):
                self._forks.secrets.look()  # commits are checked for masked files
            _require_reviewed(fork, reviewed, mounted=mounted)
            rows = self._require_pushes(fork, pushes)
            if missing := unmet_effects(rows, pushes):
                words = " ".join(missing + [word.partition("@")[0] for word in pushes])
                raise UsageError(
                    f"{missing[0]} waits to the same place, and was held before", f"mudroom apply {fork.name} {words}"
                )
            request = LandingRequest(
                tuple(paths),
                options.parts,
                git=options.git,
                markers=options.markers,
                backups=options.backups,
                exact=options.exact or options.is_empty,
                pushes=bool(pushes) or options.is_empty,
                signing=self._signing,
                rules=self._rules,
            )
            _tell(self._forks, "comparing with the project")
            now, check, report = self._forks.clock(), self.verify(options.on_verify), self._report("applying")
            with _told_as_landed(lambda: _landed_apply(self._vault, name, now), "applied"):
                landed = land(self._vault, fork, request, time=now, check=check, progress=report, joint=joint)
            with _told_as_landed(lambda: landed.applied.name, "applied"):
                landed = self._release(fork, landed, pushes)
        with _told_as_landed(lambda: landed.applied.name, "applied"):
            _tell(self._forks, "recording the apply")
            if landed.verified is not None:
                details = {
                    "command": [text(word) for word in landed.verified.command],
                    "exit_code": landed.verified.exit_code,
                }
                self._forks.journal("verify", name, details)
            more: dict[str, Any] = {"kept": len(landed.kept)} if landed.kept else {}
            moved = [text(ref.target) for result in landed.repositories for ref in result.refs if ref.target]
            more |= {"refs": moved} if moved else {}
            self._journal_applied("apply", name, landed.applied, **more)
            tidy(self._forks, applied=True)
        return landed

    def _report(self, label: str) -> Callable[[int, int], None] | None:
        progress = self._forks.progress
        return None if progress is None else lambda done, total: progress(label, done, total)

    def fingerprint(self, name: str) -> str:
        """Return the fingerprint of a fork's present changes, without marking them as reviewed. While the fork is in
        use, the fingerprint begins with ``look-``, and no apply accepts it."""
        from mudroom.vault.forks.record_view import view_record

        look = self._forks.look(name, live=False)
        return look.sign(view_record(self._vault.reading, look.record).fingerprint)

    def drift(self, name: str) -> list[Remark]:
        """Return the changed paths in the fork that the project has changed since, too. Cheap and without a lock; an
        apply merges them or finds a conflict (``conflicts``)."""
        from mudroom.vault.apply.drift import find_drift

        return find_drift(self._vault, self._vault.fork(name))

    def conflicts(self, name: str, paths: Sequence[bytes] = ()) -> list[ForkConflict]:
        """Return a fork's conflicts with the present project, at and below ``paths`` if given, with all sides. Includes
        decided conflicts."""
        from mudroom.vault.apply.conflict import find_conflicts

        with to_read(self._forks, name) as fork:
            return find_conflicts(self._vault, fork, paths, rules=self._rules) if fork.record is not None else []

    def conflict(self, name: str, path: bytes) -> ForkConflict | None:
        """Return the conflict at ``path``, reading only that file where possible; None if there is none."""
        from mudroom.vault.apply.conflict import find_conflict

        with to_read(self._forks, name) as fork:
            return find_conflict(self._vault, fork, path, rules=self._rules) if fork.record is not None else None

    def each_conflict(self, name: str, make: Callable[[ForkConflict], T]) -> list[T]:
        """Return ``make``'s result for each conflict. Conflicts are read one at a time, because together they may not
        fit into memory."""
        from mudroom.vault.apply.conflict import each_conflict

        with to_read(self._forks, name) as fork:
            return each_conflict(self._vault, fork, make, rules=self._rules) if fork.record is not None else []

    def conflict_paths(self, name: str, paths: Sequence[bytes] = ()) -> dict[bytes, bool]:
        """Return the conflicts' paths, at and below ``paths`` if given, and whether each is decided. No content is
        read."""
        from mudroom.vault.apply.conflict import each_conflict

        with to_read(self._forks, name) as fork:
            if fork.record is None:
                return {}
            return dict(
                each_conflict(
                    self._vault,
                    fork,
                    lambda conflict: (conflict.path, conflict.decided),
                    paths,
                    contents=False,
                    rules=self._rules,
                )
            )

    def not_inert(self, changes: Sequence[Change]) -> list[Change]:
        """Return the changes that are not known to be inert (``core/tree/inert.py``), without those in the project's
        repositories, which an apply leaves out."""
        from mudroom.core.tree.inert import ending_of, is_inert

        left_out = repositories(changes)
        with OpenSource(self._vault.source) as project:

            @cache
            def endings_in(directory: bytes) -> frozenset[bytes]:
                files = (last for last, entry in project.names(directory).items() if entry.kind == "file")
                return frozenset(map(ending_of, files))

            landing = (change for change in changes if git_directory(change.path) not in left_out)
            return [change for change in landing if not is_inert(change, endings_in)]

    def decide(self, name: str, conflict: ForkConflict, take: Take, content: bytes | None = None, **made: Any) -> None:
        """Store a decision about a conflict for the next apply. It is valid while both versions are unchanged.

        ``take``: ours (the project's version), theirs (the fork's), content (the given ``content``), delete.
        ``made``: as in ``vault/apply/conflict.py:decide``, ``edited`` and more.
        """
        from mudroom.vault.apply.conflict import decide

        with self._forks.at_rest(name) as fork:
            decide(self._vault, fork, conflict, take, content, **made)

    def keep_both(self, name: str, conflict: ForkConflict) -> bytes:
        """Decide for the project's file, and put the fork's file beside it as ``NAME.theirs.SUFFIX``. Return that path.
        For files that cannot be merged. Raise UsageError if the path exists."""
        from mudroom.vault.apply.conflict import require_undecided_since
        from mudroom.vault.conflict.resolution import load_resolutions

        stem, suffix = os.path.splitext(conflict.path)
        beside = stem + b".theirs" + suffix
        fork, files = self._vault.fork(name), self._forks.files(name)
        look = self.look(name)
        if files.look(beside) is not None:
            raise UsageError(f"there is a {show(beside)} already", "--mine or --theirs, or rename it")
        with self._forks.at_rest(name) as fork_at_rest:
            require_undecided_since(conflict.path, conflict.decision, load_resolutions(fork_at_rest))
        files.copy(conflict.path, beside)
        self._forks.flush(name)
        self.decide(name, conflict, "ours")
        now = self.look(name)
        before, after = ([one for one in seen.changeset.changes if one.path != beside] for seen in (look, now))
        if before == after and review.reviewed(fork) == look.fingerprint:
            review.remember(fork, now)  # no command has run meanwhile: the requested copy is the only new change
        return beside

    def forget_decision(self, name: str, path: bytes, decision: bytes | None = None) -> bool:
        """Remove a decision and return whether it existed. ``decision``: only if it is this decision
        (``ForkConflict.decision``); None: any."""
        from mudroom.vault.apply.conflict import forget

        with self._forks.at_rest(name) as fork:
            return forget(fork, path, decision)

    # --- applies ---

    def applies(self) -> list[dict[str, str]]:
        """Return all applies to this project, oldest first, with their states in words."""
        return list_applies(self._vault)

    def applied(self, last: int = 100) -> list[ApplyDetail]:
        """Return the ``last`` newest applies, oldest first, with details that are cheap to read."""
        from mudroom.vault.apply.applied import details

        return details(self._vault, [(row["apply"], row["state"]) for row in self.applies()[-last:]])

    def redo(self, name: str | None = None) -> ApplyResult:
        """Redo an undone apply: ``name``, or the last. Hold the vault's lock."""
        return self._turn("redo", name, "applying")

    def ways_back(self, name: str) -> tuple[PushRow, ...]:
        """Return the effects that an apply has sent, with what its undo can do about each as ``why``."""
        outbox = self._forks.outbox_of(place := self._vault.path + b"/applies/" + os.fsencode(name))
        return () if outbox is None else outbox.ways_back(place)

    def undo(self, name: str | None = None) -> ApplyResult:
        """Undo an apply: ``name``, or the last. Hold the vault's lock."""
        return self._turn("undo", name, "taking back")

    def _turn(self, verb: Literal["undo", "redo"], name: str | None, at_work: str) -> ApplyResult:
        from mudroom.vault.apply.turn import find_apply

        require_own(self._vault)
        if name is not None:
            require_kept(self._vault, name)
        _tell(self._forks, "reading the apply")
        place = find_apply(self._vault, name, verb)
        record = place.load() if place.state() is not None else None
        if record is None or record.joint is None:
            return self._turn_part(verb, place.name, at_work)
        return self._turn_together(verb, place, record, record.joint, at_work)

    def _turn_together(
        self, verb: Literal["undo", "redo"], place: ApplyDirectory, record: ApplyRecord, note: JointNote, at_work: str
    ) -> ApplyResult:
        """Undo or redo an apply with parts in other projects."""
        from mudroom.session.roots import together
        from mudroom.vault.apply.joint import Joint, parts_of

        _require_first_part(place.path, note, verb)
        done: list[tuple[str, ApplyResult]] = []

        def part(tied: Tie, session: Any, apply: str) -> Callable[[Joint], None]:
            def perform(joint: Joint) -> None:
                done.append((tied.label(), session.changes._turn_part(verb, apply, at_work, joint)))

            return perform

        rows = [(*self._root_at(one.vault), one.apply) for one in parts_of(place.path, record)]
        with together([row[:2] for row in rows], f"mudroom {verb}"):
            rest = [part(*row) for row in rows if _is_performed(row[1].vault, row[2])]
            applied = self._turn_part(verb, place.name, at_work, Joint(rest))
        return applied._replace(roots=tuple(reversed(done)))

    def _root_at(self, vault: bytes) -> tuple[Tie, Any]:
        """Return another project and a session on it. ``vault``: the name of its vault's directory."""
        place = os.path.dirname(self._vault.path) + b"/" + vault
        tied = Tie(vault, project_of(place))
        if not tied.path:
            raise MudroomError(f"a part of it is in {show(place)}, which is missing", "put that directory back")
        session = self._forks.root(tied)
        return tied._replace(is_home=session.is_home), session

    def _turn_part(
        self, verb: Literal["undo", "redo"], name: str, at_work: str, joint: Joint | None = None
    ) -> ApplyResult:
        from mudroom.vault.apply.turn import turn_apply

        report, at_rest = self._report(at_work), self._forks.at_rest
        applied = turn_apply(self._vault, verb, name, report, at_rest, self._at_rest_masked, joint)
        outbox = self._forks.outbox_of(place := self._vault.path + b"/applies/" + applied.name.encode())
        with _told_as_landed(lambda: applied.name, "undone" if verb == "undo" else "redone"):
            if outbox is not None:
                applied = _with_pushes(applied, outbox.undo(place) if verb == "undo" else outbox.taken_back(place))
            self._journal_applied(verb, "", applied, **_again(applied))
        return applied

    def give_again(self, name: str | None = None) -> tuple[str, bool]:
        """Give the changes of an undone apply (``name``, or the last) to the fork that they came from. If it is gone,
        make it again. Return the fork's name, and whether it is new. What cannot be given is a remark
        (``Forks.unsaid``). Hold the vault's lock."""
        from mudroom.vault.apply.given_back import find_origin, give_back
        from mudroom.vault.apply.turn import undone_apply

        require_own(self._vault)
        record = undone_apply(self._vault, name)
        if record.joint is not None:
            raise UsageError(f"{record.name} is of several projects: it is redone whole", f"mudroom redo {record.name}")
        origin = find_origin(self._vault, record)
        if origin is None:
            origin = self._new_fork(record.fork, f"redo-{record.name}")
            is_new = True
        else:
            is_new = False
        self._fill(origin.name, lambda fork: give_back(self._vault, fork, record, self._forks.clock), is_new=is_new)
        return origin.name, is_new

    def refused_undo(self, name: str | None) -> str:
        """Return the apply whose undo left files to decide about: ``name``, or the last that was undone. Return an
        empty string if it is not undone, or left none."""
        from mudroom.vault.apply.turn import undone_apply

        if name is None and not any(row["state"] == "undone" for row in self.applies()):
            return ""
        if name is not None and {"apply": name, "state": "undone"} not in self.applies():
            return ""
        record = undone_apply(self._vault, name)
        return record.name if record.refused or any(self._refused_parts(record)) else ""

    def _refused_parts(self, record: ApplyRecord) -> Iterator[tuple[Tie, Any, ApplyRecord, bytes]]:
        """Yield the parts of an undone apply in other projects that left something, with records and directories."""
        from mudroom.vault.apply.joint import parts_of
        from mudroom.vault.apply.transaction import ApplyDirectory

        for one in parts_of(self._vault.path + b"/applies/" + record.name.encode(), record):
            tied, session = self._root_at(one.vault)
            place = ApplyDirectory(session.vault.path + b"/applies/" + os.fsencode(one.apply))
            if place.state() is not None and (there := place.load()).refused:
                yield tied, session, there, place.path

    def refused(self, name: str) -> str:
        """Make a fork of what the undo of an apply could not take back, and return its name. Its changes conflict with
        the project where that has changed since the apply. Return the fork that was made before, if it is still there.
        Raise UsageError if nothing was refused. Hold the vault's lock."""
        from mudroom.vault.apply.given_back import stage_refused
        from mudroom.vault.apply.transaction import ApplyDirectory

        require_own(self._vault)
        place = ApplyDirectory(self._vault.path + b"/applies/" + os.fsencode(name))
        made = f"undo-{name}"
        if self._vault.find(made) is not None:
            return made
        record = place.load()
        parts = list(self._refused_parts(record))
        if not (record.refused or parts):
            raise UsageError(f"the undo of {name} left nothing to decide", "mudroom log shows what has happened")
        first, clock = self._forks.new(made, named=False), self._forks.clock
        if record.refused:
            self._fill(made, lambda fork: stage_refused(self._vault, fork, record, place.path, clock), is_new=True)
        for tied, session, there, path in parts:
            from mudroom.session.parts import free_part_name, new_part

            own = free_part_name(session.vault, made)
            part = new_part(session.vault, own, self._vault, first, clock())
            tie(first.path + ROOTS, [*ties_of(first), tied._replace(name=part.name)])
            give = functools.partial(stage_refused, session.vault, record=there, place=path, clock=clock)
            session.changes._fill(part.name, give, is_new=False)
        return made

    def _new_fork(self, *names: str) -> Fork:
        """Return a new fork with the first of these names that is free."""
        name = next((name for name in names if self._vault.find(name) is None), names[-1])
        return self._forks.new(name, named=False)

    def _fill(self, name: str, give: Callable[[Fork], GivenBack], *, is_new: bool) -> None:
        try:
            with self._at_rest_masked(name) as fork:
                given = give(fork)
        except BaseException:
            if is_new:
                self._forks.discard(name)
            raise
        self._forks.remarks.extend(f"{show(remark.path)} {remark.text}" for remark in given.remarks)

    def undone_as(self, fork: str) -> str:
        """Return the name of the newest apply of a fork's changes that was undone, or an empty string."""
        undone = [row for row in self.applied() if row.state == "undone" and row.fork == fork]
        return undone[-1].name if undone else ""

    def _at_rest_masked(self, name: str) -> AbstractContextManager[Fork]:
        """Return a block with a fork at rest, unmounted, and with the project's present secrets known."""
        self._forks.secrets.look()
        return self._forks.at_rest(name, set_aside(self._forks))

    def recover(self) -> list[Recovery]:
        """Finish or revert the applies that a killed process left unfinished. Hold the vault's lock."""
        if not self._vault.has_unfinished():
            return []
        from mudroom.vault.apply.turn import recover_all

        if others := self._unfinished_parts():  # their vaults are recovered before the mark of the first part goes
            from mudroom.session.roots import together

            with together([self._root_at(vault) for vault in others], "mudroom"):
                pass
        recoveries = recover_all(self._vault)
        for outcome in recoveries:
            self._journal_applied("recover", outcome.fork, outcome.applied, outcome=outcome.outcome)
        return recoveries

    def _unfinished_parts(self) -> set[bytes]:
        """Return the names of the vaults with other parts of an unfinished operation whose first part is here."""
        from mudroom.vault.apply.joint import is_first, parts_of
        from mudroom.vault.apply.transaction import ApplyDirectory

        found = set[bytes]()
        for place in map(ApplyDirectory, self._vault.applies()):
            if not (place.has_begun("apply") or place.has_begun("turn")) or place.state() is None:
                continue
            record = place.load()
            if record.joint is not None and is_first(place.path, record.joint):
                fork = self._vault.find(record.fork)
                found |= {one.vault for one in parts_of(place.path, record)}
                found |= {tied.vault for tied in (ties_of(fork) if fork is not None else ())}
        return found

    def _journal_applied(self, kind: str, fork: str, applied: ApplyResult, **more: Any) -> None:
        if not applied.name:
            return
        data = {"apply": applied.name, "written": applied.written, "removed": applied.removed, **more}
        data["conflicts"] = len(applied.conflicts)
        self._forks.journal(kind, fork, data)


def _require_first_part(place: bytes, note: JointNote, verb: str) -> None:
    """Raise UsageError if an apply is a part of another project's apply that still exists: ``verb`` is for all parts.
    Raise MudroomError if that project's vault is missing."""
    from mudroom.vault.apply.joint import first_place, is_first

    if is_first(place, note) or not os.path.isdir(first := first_place(place, note)):
        return
    project = project_of(os.path.dirname(os.path.dirname(first)))
    raise UsageError(
        f"{os.path.basename(place).decode()} is a part of {note.apply} of {show(project)}",
        f"cd {show_words((project,))} && mudroom {verb} {note.apply}",
    )


def _is_performed(vault: Vault, name: str) -> bool:
    """Return whether a part of a joint apply has changed anything. Raise UsageError if it is not kept any more."""
    path = vault.path + b"/applies/" + os.fsencode(name)
    if not os.path.isdir(path):
        raise UsageError(f"{name} of {show(vault.project)} is not kept any more", "mudroom log shows what has happened")
    return state_of(path) is not None


def _require_reviewed(fork: Fork, expected: str | None, *, mounted: bool) -> None:
    expected = expected or review.reviewed(fork)
    if expected is not None:
        record = fork.record
        review.require(fork, record.changeset if record is not None else Changeset(), expected, mounted=mounted)


@contextmanager
def _told_as_landed(landed: Callable[[], str], done: str) -> Iterator[None]:
    """Replace an error in the block by ApplyUnwritten if an apply has landed by then, because the project has changed.
    ``landed``: returns the apply's name, or an empty string if there is none."""
    try:
        yield
    except (MudroomError, OSError, MemoryError, ImportError, SystemError) as error:
        try:
            name = landed()
        except (MudroomError, OSError, MemoryError):
            name = ""  # the record cannot be read: report the first failure
        if not name:
            raise
        if isinstance(error, MudroomError):
            raise ApplyUnwritten(name, done, error.message, error.hint) from error
        if isinstance(error, OSError):
            raise ApplyUnwritten(name, done, error.strerror or str(error)) from error
        raise ApplyUnwritten(name, done, "out of memory", "permit more of it: ulimit -v unlimited") from error


def _landed_apply(vault: Vault, fork: str, started: int) -> str:
    """Return the name of the fork's apply that started at ``started``, if it is complete; otherwise an empty
    string."""
    from mudroom.vault.apply.transaction import ApplyDirectory

    for place in map(ApplyDirectory, vault.applies()[-1:]):
        if place.state() == "done" and (record := place.load()).fork == fork and record.started == started:
            return place.name
    return ""


def _holds_repository(fork: Fork) -> bool:
    """Return whether the fork may have changed or made a git repository. The record is not decoded, as it may be
    large."""
    try:
        return b".git" in safe_open.read(fork.record_path)
    except FileNotFoundError:
        return False


def _recorded(opened: OpenFork, reviewed: Iterable[Change] | None) -> SourceContent:
    """Return a fork's recorded files. At the paths of reviewed changes only the reviewed version is opened."""
    return RecordedFiles(opened.recorded(), {change.path: change.staged for change in reviewed or ()})


def _both_ways(changes: Iterable[Change]) -> bool:
    """Return whether the changes include both additions and deletions."""
    return {"added", "deleted"} <= {change.verb for change in changes}


def _with_pushes(applied: ApplyResult, rows: tuple[PushRow, ...]) -> ApplyResult:
    from mudroom.core.network.push import push_remarks

    return applied._replace(pushes=rows, remarks=(*applied.remarks, *push_remarks(rows)))


def _tell(forks: Forks, step: str) -> None:
    """Report a step of a long operation, without counts."""
    if forks.progress is not None:
        forks.progress(step, 0, 0)
