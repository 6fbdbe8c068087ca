"""What can be done with the forks of a project while nothing runs: make, freeze, roll back, look, mount, apply.

A session (``session.py``) is a workbench that can also run commands.
"""

from __future__ import annotations

import _thread
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mudroom.core.settings import Settings
from mudroom.core.tree.change import Change, Changeset
from mudroom.core.tree.path import is_below, show
from mudroom.core.tree.secret import is_masked
from mudroom.desk import Desk
from mudroom.errors import FULL, ForkMoved, MudroomError, UsageError
from mudroom.stage.views.secret import Finder, make_mask
from mudroom.vault.forks import stacking
from mudroom.vault.forks.collection import CollectedCommand, Progress, gather, take_snapshot, view_of
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

if TYPE_CHECKING:
    from mudroom.core.tree.similar_renames import Move
    from mudroom.core.tree.stack import Checkpoint
    from mudroom.stage.buffer.files import Files
    from mudroom.stage.views.mount import Kind
    from mudroom.vault.apply.transaction import ApplyResult, Recovery
    from mudroom.vault.forks.comparison import Comparison
    from mudroom.vault.forks.mount import MountedFork
    from mudroom.vault.record import ForkRecord

_CLOCK_REALTIME_COARSE = 5
"""The clock that file systems stamp with: linux/time.h, ktime_get_coarse_real_ts64. Python has no name for it."""

PATIENCE = 2.0
"""Seconds that whoever has the vault alone waits for somebody who looks at a fork: a page that shows its conflicts."""

_JOURNAL_EVERY = 64
"""Commands of a session from one look at the journal's size to the next."""


class _Said(_thread._local):
    """By thread: several may run commands of one session at a time."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.unwritten: MudroomError | None = None
        """Why the flows of the command could not be journalled: said when its changes are safe."""
        self.stays = False
        """Whether the command that is judged is to stay in the background."""


class Workbench:
    def __init__(self, vault: Vault, settings: Settings, clock: Callable[[], int], progress: Progress | None) -> None:
        self.vault = vault
        self.project = vault.project
        self.settings = settings
        self.policy: Settings | None = None
        """What the policy files say, if a command line has added to that in ``settings``."""
        self._clock = clock
        self._progress = progress
        self._said = _Said()
        self._desk = Desk(vault, clock)
        self._finder: Finder | None = None
        self._looked_at_journal = 0
        self._alone = False
        """Whether no agent runs in any fork of the vault."""

    def close(self) -> None:
        """What file tools have written is brought into its forks; then everything is let go."""
        for name in self._desk.in_use():
            self.flush(name)
            self._desk.drop(name)
        self.vault.close()

    def tell_progress(self, progress: Progress | None) -> None:
        """From here on, tell this of what takes long: a label, what is done of it, how much there is."""
        self._progress = progress

    @contextmanager
    def alone(
        self, what: str, waiting: Callable[[str], None] = lambda _who: None, stopping: Callable[[], None] = lambda: None
    ) -> Iterator[list[Recovery]]:
        """Have the vault alone, for a user's command, an apply or an undo: other users' commands are waited for, the
        agents' are stopped and go on afterwards. Gives what a crash had left unfinished and was dealt with first.

        ``waiting`` is told for whom, ``stopping`` is called if agents have to be stopped.
        """
        self.vault.lock.acquire(what, waiting)
        try:
            self.vault.turn.take(stopping)
            self._alone = True
            try:
                yield self.recover()
                self.tidy()
            finally:
                self._alone = False
                self.vault.turn.give()
        finally:
            self.vault.lock.release()

    @contextmanager
    def _locked(self, fork: Fork, what: str) -> Iterator[None]:
        """Hold a fork's lock. Whoever has the vault alone must not wait for one: its holder has been stopped."""
        self._require_free(fork)
        if not self._alone:
            with fork.lock(what):
                yield
            return
        with fork.lock_if_free(what, PATIENCE) as free:
            if not free:
                raise UsageError(
                    f"a command is running in the fork {fork.name}, stopped for as long as this one takes",
                    "try again when it has ended",
                )
            yield

    def _require_free(self, fork: Fork) -> None:
        """A workbench has nothing in the background."""

    def look_for_secrets(self) -> list[str]:
        """See what commands and file tools are to see empty from here on. Returns what there is to say about it."""
        if self._finder is None:
            self._finder = Finder(self.project, self.vault.path + b"/secrets", time.monotonic)
        paths, complete = self._finder.find(self.settings.secrets_mask, self.settings.secrets_show)
        mask = make_mask(self.project, self.vault.path + b"/masks", paths, complete)
        changed, self.vault.mask = mask != self.vault.mask, mask
        if changed:
            self._desk.refresh_all()
        notes = []
        if mask.paths:
            names = ", ".join(show(path) for path in sorted(mask.paths)[:4]) + (", …" if len(mask.paths) > 4 else "")
            count = "1 secret is" if len(mask.paths) == 1 else f"{len(mask.paths):,} secrets are"
            notes.append(f"{count} shown empty: {names} (--show PATH, or secrets.show in the policy)")
        if not complete:
            notes.append("the project has so many directories that not all were searched for secrets")
        return notes

    @property
    def _notes(self) -> list[str]:
        """What there is to say about the command of this thread."""
        return self._said.notes

    @_notes.setter
    def _notes(self, notes: list[str]) -> None:
        self._said.notes = notes

    # --- lines of work ---

    def new_fork(
        self, name: str, *, parent: str | None = None, at: str | None = None, snapshot: bool = False, named: bool = True
    ) -> Fork:
        """A fork of the project, or of what another fork holds now, or held at a checkpoint (``at``).

        ``snapshot``: on a frozen copy of the project instead of the live one. Raises UsageError if the name is taken.
        """
        if parent is None:
            fork = self.vault.new_fork(name, time=self._clock(), named=named)
            if snapshot:
                take_snapshot(self.vault, fork, self.settings._replace(copy_limit=1 << 62), self._progress)
        else:
            with self.at_rest(parent) as above:
                fork = stacking.fork_of(self.vault, above, name, self._clock(), at)
        if named:
            self.vault.journal.append("fork", name, {"parent": parent, "at": at}, time=self._clock())
        return fork

    def checkpoint(self, name: str, point: str) -> Checkpoint:
        """Freeze what a fork holds under a name. Raises UsageError if the name is taken."""
        with self.at_rest(name) as fork:
            made = stacking.checkpoint(self.vault, fork, point, self._clock())
        self.vault.journal.append("checkpoint", name, {"checkpoint": point}, time=self._clock())
        return made

    def rollback(
        self, name: str, point: str | None = None, *, require: Callable[[], None] = lambda: None
    ) -> Checkpoint | None:
        """Drop what a fork has changed since a checkpoint; None: the last one, which after a command that got one of
        its own is what was there before it. Returns the checkpoint by which that can be had back.

        ``require`` is called when nothing can change the fork any more; what it raises ends this, and nothing is done.
        """
        point = point or self.last_checkpoint(name)
        with self.at_rest(name) as fork:
            require()
            before = stacking.rollback(self.vault, fork, point, self._clock())
        undo = before.name if before is not None else None
        self.vault.journal.append("rollback", name, {"checkpoint": point, "undo": undo}, time=self._clock())
        return before

    def last_checkpoint(self, name: str) -> str:
        """The newest that no rollback has left. Raises UsageError if there is none."""
        return stacking.last_checkpoint(self.vault.fork(name)).name

    def rename_fork(self, name: str, new: str) -> Fork:
        with self.at_rest(name) as fork:
            renamed = stacking.rename(self.vault, fork, new)
        self.vault.journal.append("rename", new, {"was": name}, time=self._clock())
        return renamed

    @contextmanager
    def at_rest(self, name: str) -> Iterator[Fork]:
        """A fork with its lock held, nothing running in it, and all it holds written down."""
        fork = self.vault.fork(name)
        with self._locked(fork, "mudroom"):
            stacking.require_idle(fork)
            if fork.interrupted is not None or name in self._desk:
                self.look_for_secrets()
            self._settle(fork)
            self._notes += self._desk.flush(fork)
            yield fork
        if os.path.isdir(fork.path):
            self._desk.refresh(fork)
        else:
            self._forget(name)

    def mount(
        self, name: str, place: bytes | None = None, *, writable: bool = True, kind: Kind | None = None
    ) -> MountedFork:
        """A fork as a real directory: at ``place``, or one in the vault. Until ``unmount`` that is the one truth
        about it, and everything else refuses. Raises Unsupported if this ``kind`` cannot be had here."""
        from mudroom.vault.forks.mount import mount

        default = self.vault.path + b"/mounts/" + name.encode()
        with self.at_rest(name) as fork:
            found = mount(self.vault, fork, place or default, writable=writable, now=self._start_time(), kind=kind)
        self.vault.journal.append("mount", name, {"kind": found.kind, "writable": writable}, time=self._clock())
        return found

    def unmount(self, name: str) -> Changeset:
        """Take the directory away. Returns what the fork holds. Raises MudroomError if it is in use."""
        from mudroom.vault.forks.mount import give_back

        fork = self.vault.fork(name)
        with self._locked(fork, "unmount"):
            changeset = give_back(self.vault, fork, self._clock())
        self._desk.refresh(fork)
        self.vault.journal.append("unmount", name, {"changed": len(changeset.changes)}, time=self._clock())
        return changeset

    def mounts(self) -> dict[str, MountedFork]:
        """What is mounted, by fork."""
        from mudroom.vault.forks.mount import mounted

        found = {fork.name: mounted(fork) for fork in self.vault.forks()}
        return {name: one for name, one in found.items() if one is not None}

    def compare(self, old: str, new: str) -> Comparison:
        """Two states side by side: ``base``, ``now``, ``FORK`` or ``FORK@CHECKPOINT``. To be closed."""
        from mudroom.vault.forks.comparison import Comparison

        for side in {old, new} - {"base", "now"}:
            self.changes(side.partition("@")[0])  # one that was cut off is looked at now
        return Comparison(self.vault, old, new)

    # --- its files ---

    def files(self, name: str) -> Files:
        """The files of a fork for file tools: to read and to write, in memory until something needs them on disk.

        While a command of this session runs in the fork, the same calls go through its live mount. Raises UsageError
        if there is no such fork.
        """
        from mudroom.stage.buffer.files import Files

        self.vault.fork(name)
        self.look_for_secrets()
        return Files(lambda: self._desk.tree(name))

    def flush(self, name: str) -> None:
        """Bring what file tools have written into the fork. Everything else that looks at a fork does this first."""
        if name in self._desk and not self._desk.is_live(name):
            with self.at_rest(name):
                pass

    # --- what forks hold ---

    def _settle(self, fork: Fork) -> None:
        """What a command that was cut off with mudroom itself has left behind is looked at now."""
        started = fork.interrupted
        if started is None:
            return
        with OpenFork(self.vault, fork) as opened:
            view = view_of(self.vault, fork, opened, "copy" if fork.is_copy else "overlay")
            if os.path.isdir(view.staged[0]) and (fork.has_copy or not fork.is_copy):
                found = gather(fork, opened, view, CollectedCommand((), 9, self._clock()), started)
                self._journal_cut_off(fork.name, {"outcome": "collected", "changed": len(found.changes)})
        fork.end()

    def _journal_cut_off(self, name: str, data: dict[str, Any]) -> None:
        """A command ran of which the journal says nothing: mudroom was killed, or had no room. That is said now; if it
        cannot be, its changes can be looked at all the same."""
        try:
            self.vault.journal.append("recover", name, data, time=self._clock())
        except MudroomError as error:
            self._notes.append(error.message)

    def changes(self, name: str) -> Changeset:
        """What a fork holds, as of its last command. One that was cut off in the middle of it is looked at now."""
        record = self.record(name)
        return record.changeset if record is not None else Changeset()

    def record(self, name: str) -> ForkRecord | None:
        """What is written down of a fork; None if nothing is."""
        fork = self.vault.fork(name)
        self.flush(name)
        if fork.interrupted is not None:
            with fork.lock_if_free("looking at what is left") as free:
                if free:
                    self._settle(fork)
        return fork.record

    def known_record(self, name: str) -> ForkRecord | None:
        """The same for a list: where there is no room to write down what a command has left that was cut off, what is
        known without that."""
        try:
            return self.record(name)
        except OSError as error:
            if error.errno not in FULL:
                raise
            return self.vault.fork(name).record

    def opened_credentials(self, name: str) -> tuple[str, ...]:
        """The credential stores that were open to any command of a fork, by the names that cards have for them."""
        return self.vault.fork(name).credentials

    def applies(self) -> list[dict[str, str]]:
        """Every apply of this project, oldest first, with its state in words."""
        from mudroom.vault.apply.transaction import ApplyDirectory

        words = {"prepare": "deferred", "ready": "interrupted", "undoing": "interrupted", "done": "applied"}
        words["redoing"] = "interrupted"
        found = []
        for path in self.vault.applies():
            place = ApplyDirectory(path)
            state = place.state()
            if state is not None:
                found.append({"apply": place.name, "state": words.get(state, state)})
        return found

    def diff(self, name: str, paths: Sequence[bytes] = ()) -> Iterator[bytes]:
        """What a fork would change as unified diff, line by line; only at and below ``paths`` if any are given."""
        from mudroom.stage.diff import diff

        changes = self.changes(name).changes
        chosen = [c for c in changes if not paths or any(is_below(c.path, path) for path in paths)]
        moves = self.moves(name) if _both_ways(chosen) else ()
        with OpenFork(self.vault, self.vault.fork(name)) as opened:
            yield from diff(opened.ground().read_original, opened.staged(), chosen, moves)

    def moves(self, name: str) -> tuple[Move, ...]:
        """Files of a fork that were moved and changed in one go, as far as that can be told
        (``core/tree/similar_renames.py``)."""
        from mudroom.vault.forks.both_sides import SideReader
        from mudroom.vault.forks.record_view import gist_of

        gist = gist_of(self.vault.reading, self.record(name))
        if not _both_ways(gist.changeset.changes):
            return ()
        with SideReader(self.vault, name, gist) as sides:
            return sides.moves(self.hides)

    def hides(self, path: bytes) -> bool:
        """Whether a file of that name is shown to nobody: a secret of the project."""
        return is_masked(path, self.settings.secrets_mask, self.settings.secrets_show)

    # --- keeping house ---

    def tidy(self, *, applied: bool = False) -> None:
        """Remove what retention (``keep:`` in the policy) does not keep, if it is time for that. Hold the vault's lock.

        What could not be removed is no reason to fail; it is in the notes of the next result.
        """
        from mudroom.vault.retention.tidy import tidy

        swept = tidy(self.vault, self.settings, self._clock(), applied=applied)
        if swept is None:
            return
        self._notes += swept.remarks
        if swept.size:
            data = {"applies": [one.name for one in swept.applies], "layers": len(swept.layers), "bytes": swept.size}
            self.vault.journal.append("gc", "", data, time=self._clock())

    def _keep_journal(self) -> None:
        """Older events move to an archive if the journal has become large: looked at now and then."""
        self._looked_at_journal += 1
        if self._looked_at_journal % _JOURNAL_EVERY != 1:
            return
        settings = self.settings
        try:
            self.vault.journal.keep_within(settings.keep_journal, settings.keep_journal_age, self._clock())
        except (MudroomError, OSError) as error:
            self._notes.append(f"older events of the journal could not be archived: {error}")

    def recover(self) -> list[Recovery]:
        """Deal with what a killed mudroom left unfinished. Hold the vault's lock."""
        if not self.vault.has_unfinished():
            return []
        from mudroom.vault.apply.landing import recover_all

        found = recover_all(self.vault)
        for outcome in found:
            self._journal_applied("recover", outcome.fork, outcome.applied, outcome=outcome.outcome)
        return found

    def discard(self, name: str, reviewed: str | None = None) -> None:
        """``reviewed``: what somebody has looked at (``fingerprint``). Raises ForkMoved if the fork holds something
        else."""
        stacking.require_idle(self.vault.fork(name))
        if reviewed is not None:
            from mudroom.vault.forks.review import fingerprint

            if fingerprint(self.changes(name)) != reviewed:
                raise ForkMoved(b"", f"what {name} holds now", "discarded")
        self._forget(name)
        self.vault.discard(self.vault.fork(name))
        self.vault.journal.append("discard", name, {}, time=self._clock())

    def _forget(self, name: str) -> None:
        """Let go of what is held for a fork that is gone, or about to go."""
        self._desk.drop(name)

    def _journal_applied(self, kind: str, fork: str, applied: ApplyResult, **more: Any) -> None:
        if not applied.name:
            return
        data = {"apply": applied.name, "written": applied.written, "removed": applied.removed, **more}
        data["conflicts"] = len(applied.conflicts)
        self.vault.journal.append(kind, fork, data, time=self._clock())

    def _start_time(self) -> int:
        """Now, by the clock of the file systems, and later than the last apply: what that wrote is no edit of the
        user's. Right after one, wait for the next tick of that clock (at most 4 ms)."""
        applied = os.stat(self.vault.path + b"/applies").st_mtime_ns
        while (now := time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)) <= applied:
            pass
        return now


def _both_ways(changes: Iterable[Change]) -> bool:
    """Whether something came and something went."""
    return {"added", "deleted"} <= {change.verb for change in changes}
