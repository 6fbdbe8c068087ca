"""A project's forks: new, checkpoint, rollback, rename, mount, compare, discard; and each fork's users.

Rules in this file:
1. A fork is at rest (``at_rest``) while its lock is held, no command runs in it, and all its changes are recorded.
2. A fork that was made for a command is discarded if the command does not run, unless another user has used it.
3. A fork with background commands is read, frozen and forked through its shared sandbox.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress

from mudroom.core.clock import CommandStart
from mudroom.core.registry import part
from mudroom.core.settings import Settings
from mudroom.core.tree import stack
from mudroom.core.tree.change import Changeset
from mudroom.core.tree.path import show
from mudroom.core.tree.quote import show_words
from mudroom.errors import FULL, ForkExists, ForkGone, MudroomError, SandboxAlive, SecretsUnknown, UsageError
from mudroom.session.exclusive import Exclusive
from mudroom.session.file_tools import LOOK, FileTools
from mudroom.session.secrets import Secrets
from mudroom.session.users import Users, is_shared
from mudroom.stage.stamp import is_settled
from mudroom.typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from mudroom.vault.forks import stacking
from mudroom.vault.forks.collection import (
    KILLED,
    CollectedCommand,
    Progress,
    changed_paths,
    gather,
    mend_sealed,
    note_uncollected,
    prepare_repository,
    recorded_changes,
    set_fork_apart,
    take_snapshot,
    view_of,
)
from mudroom.vault.forks.damage import reason_of, require_layers, require_tree
from mudroom.vault.forks.logins import has_logins, settle_logins
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.forks.ties import Tie, parts_of, renaming, require_first, require_single, ties_of
from mudroom.vault.moment import is_of_earlier_boot
from mudroom.vault.store.fork import PUSHES, Fork, fork_directory, last_holder, mount_note
from mudroom.vault.store.store import OUTSIDE, Vault, at_once
from mudroom.vault.sync import sync_all

if TYPE_CHECKING:
    from mudroom.core.network.push import PushRow
    from mudroom.core.tree.stack import Checkpoint
    from mudroom.session.mounts import Mounts
    from mudroom.session.parts import TiedForks
    from mudroom.session.users import Standing
    from mudroom.stage.buffer.files import Files
    from mudroom.stage.views.mount import Kind
    from mudroom.vault.forks.comparison import Comparison
    from mudroom.vault.forks.review import ForkLook
    from mudroom.vault.record import ForkRecord
    from mudroom.vault.store.mount_note import MountNote

    Around: TypeAlias = Callable[[Fork], AbstractContextManager[object]]

PATIENCE = 2.0
"""Seconds that the vault's exclusive holder waits for a fork's reader, such as a page."""
SESSION_ENDED = "background processes and /tmp of the agent's session in {} have ended"
"""A remark, with the fork's name."""
_REMARKS = 64
"""Maximum number of remarks kept until the next result."""


def cleaning_up(progress: Progress | None) -> Callable[[int, int], None] | None:
    """Return the function for ``Vault.empty_trash`` that reports to ``progress``."""
    return None if progress is None else lambda done, total: progress("cleaning up, files", done, total)


class HeldPushes(Protocol):
    """Shows, sends, takes back and drops held effects (``ext/effects/session.py``)."""

    def rows(self, place: bytes, /) -> list[PushRow]: ...
    def compared(self, fork: Fork, rows: list[PushRow], /) -> list[PushRow]: ...
    def release(self, fork: Fork, place: bytes, names: Collection[str], /) -> tuple[PushRow, ...]: ...
    def undo(self, place: bytes, /) -> tuple[PushRow, ...]: ...
    def ways_back(self, place: bytes, /) -> tuple[PushRow, ...]: ...
    def taken_back(self, place: bytes, /) -> tuple[PushRow, ...]: ...
    def drop(self, fork: Fork, since: int, names: Collection[str] | None, /) -> list[str]: ...


class Forks:
    """Thread-safe: each fork's lock guards its data on disk; the other objects have their own locks. ``progress`` is
    replaced as a whole."""

    def __init__(
        self,
        vault: Vault,
        settings: Settings,
        *,
        clock: Callable[[], int],
        new_id: Callable[[], str],
        progress: Progress | None = None,
        waiting: Callable[[str], None] = lambda _holder: None,
        forget: Callable[[str], None] = lambda _name: None,
        let_go: Callable[[str], None] = lambda _name: None,
        outbox: Callable[[Forks], HeldPushes] | None = None,
        root: Callable[[Tie], Any] | None = None,
    ) -> None:
        """``settings``: the session's own actor's. ``waiting``: called with a lock holder's description if it is waited
        for longer than a second. ``forget``: called with a fork's name when it is gone, ``let_go`` before it is
        unmounted. ``outbox``: makes the object that shows, sends and drops held pushes. ``root``: returns a session on
        another project in which forks have parts."""
        self.vault, self.settings, self.clock, self.new_id = vault, settings, clock, new_id
        self.tools = FileTools(vault, clock, self._hides)
        self.secrets = Secrets(vault, settings, self.tools.refresh_all)
        self.exclusive = Exclusive(vault)
        self.users = Users(self.exclusive)
        self.remarks: deque[str] = deque(maxlen=_REMARKS)
        """Notes for the next result. Each append and pop is atomic."""
        self.progress, self.waiting = progress, waiting
        self._forget, self.let_go, self._outbox, self._root = forget, let_go, outbox, root
        self.commands = itertools.count()
        """Counts commands: taking the next number is atomic."""

    def close(self) -> None:
        """Flush file tools into their forks, then release all resources. If a flush fails, the other forks are still
        flushed, and the error is raised at the end."""
        with ExitStack() as closing:
            closing.callback(self.vault.close)
            closing.callback(self.secrets.close)
            for name in self.tools.in_use():
                closing.callback(self.tools.drop, name)
                closing.callback(self.flush, name)

    def tell_progress(self, progress: Progress | None) -> None:
        """Report progress to this function from now on: label, done, total."""
        self.progress = progress

    def unsaid(self) -> list[str]:
        """Return and remove the remarks for the next result."""
        return [self.remarks.popleft() for _remark in range(len(self.remarks))]

    def _hides(self, path: bytes) -> bool:
        return self.secrets.hides(path)

    def journal(self, kind: str, fork: str, data: dict[str, Any]) -> None:
        self.vault.journal.append(kind, fork, data, time=self.clock())

    def outbox_of(self, place: bytes) -> HeldPushes | None:
        """Return the object for held pushes; None if a fork, or an apply, has none. ``place``: its directory."""
        if self._outbox is None or not os.path.isdir(place + PUSHES):
            return None
        return self._outbox(self)

    def drop_pushes(self, fork: Fork, since: int = 0, names: Collection[str] | None = None) -> None:
        """Drop a fork's held effects since a time: those with ``names``, or all if it is None. Hold its lock."""
        outbox = self.outbox_of(fork.path)
        if outbox is not None:
            self.remarks.extend(outbox.drop(fork, since, names))

    def root(self, tied: Tie) -> Any:
        """Return a session on another project in which a fork has a part. It ends with this one."""
        if self._root is None:
            raise MudroomError(f"{tied.label()} cannot be opened here", "mudroom diff and mudroom apply open it")
        return self._root(tied)

    @contextmanager
    def _parts(self, fork: Fork, *, drops: bool = False) -> Iterator[TiedForks]:
        """Yield a fork at rest with its parts in other projects, which are brought to rest. ``drops``: as for
        ``at_rest``."""
        from mudroom.session.parts import Part, TiedForks

        with ExitStack() as held:
            parts = []
            for tied in ties_of(fork):
                session = self.root(tied)
                part = held.enter_context(session.forks.at_rest(tied.fork(fork).name, drops=drops))
                parts.append(Part(session.vault, part, tied))
            yield TiedForks(self.vault, fork, parts)

    # --- locks ---

    @contextmanager
    def locked(self, fork: Fork, holder: str, *, standing: bool = False) -> Iterator[None]:
        """Hold a fork's lock. ``standing``: as for ``Fork.lock``.

        Raise Occupied if a background command runs in the fork, ForkGone if the fork is gone once the lock is free,
        UsageError if this thread has the vault alone and a paused command holds the lock."""
        if not standing:
            self.end_companions(fork)
        self.users.require_free(fork)
        if not self.exclusive.is_ours:
            with fork.lock(holder, self.waiting, standing=standing):
                yield
            return
        # No long wait: the lock's holder may be a command that this thread has paused, which would be a deadlock.
        with fork.lock_if_free(holder, PATIENCE, standing=standing) as free:
            if not free:
                raise UsageError(
                    f"a command is running in the fork {fork.name}, stopped for as long as this one takes",
                    "try again when it has ended",
                )
            yield

    def end_companions(self, fork: Fork) -> bool:
        """End a fork's shared sandbox if it only serves what agents have left there, and wait until it is gone. Return
        whether it was such a sandbox."""
        if not self.users.end_companions(fork):
            return False
        until = time.monotonic() + PATIENCE
        while is_shared(fork) and time.monotonic() < until:  # longer only beside a command, which is not waited for
            time.sleep(LOOK)
        self.remarks.append(SESSION_ENDED.format(fork.name))
        return True

    @contextmanager
    def at_rest(
        self, name: str, around: Around = nullcontext, held: Fork | None = None, *, drops: bool = False
    ) -> Iterator[Fork]:
        """Yield a fork at rest (rule 1), inside ``around``. ``held``: the fork, if the caller has its lock. ``drops``:
        the changes are dropped, so it does not matter if they cannot be collected."""
        fork = held or self.vault.fork(name)
        with self.locked(fork, "mudroom") if held is None else nullcontext(), around(fork):
            settled_mount(self, fork)
            stacking.require_idle(fork)
            if name in self.tools:
                self.secrets.look()
            if not drops:
                self.settle(fork)
                set_fork_apart(self.vault, fork)
            elif uncollected := self.settle_if_possible(fork, set_fork_apart):
                self.remarks.append(uncollected)
            self.remarks.extend(self.tools.flush(fork))
            yield fork
            _merge_layers(self.vault, fork)
            if os.path.isdir(fork.path):
                self.tools.refresh(fork)
            else:
                self.forget(name)

    @contextmanager
    def taken(self, name: str, *, named: bool, make: Callable[[], Fork] | None = None) -> Iterator[tuple[Fork, bool]]:
        """Yield a fork for a command, and whether it is new. If an error ends the block, discard a new unnamed fork
        unless it was used. Raise ForkGone if another process makes the fork meanwhile. ``make``: makes it, if it is
        another project's part."""
        with self.users.lock:
            fork = self.vault.find(name)
            is_new = fork is None
            if fork is None:
                try:
                    fork = self.new(name, named=named) if make is None else make()
                except ForkExists:
                    raise ForkGone(name) from None  # another process has just made it: the caller tries again
            elif make is None:
                require_first(fork, "exec --fork")
            self.users.add(name)
        try:
            yield fork, is_new
        except BaseException:
            if is_new and not named:
                self.take_back(fork)
            raise
        finally:
            self.users.remove(name)

    def take_back(self, fork: Fork, agent: str = "") -> None:
        """Discard a fork that was made for a command, after the command has not run (rule 2). The caller has taken the
        fork. ``agent``: the agent whose workspace it may be."""
        shared = self.users.shared(fork.name)
        if shared is not None and not shared.backgrounds and not self.users.is_shared_out(fork.name):
            shared.wait()  # it ends, since it has no command
        state, is_unused = fork.state_or_none, lambda: not _is_used(self, fork, agent)
        if discarded(self, fork, is_unused, users=1) and state is not None and state.named:
            self.journal("discard", fork.name, {})  # its creation is in the journal

    def is_at_rest(self, name: str) -> bool:
        """Return whether no command is running in the fork; its lock is then soon available."""
        fork = self.vault.fork(name)
        if fork.interrupted is None:
            return True
        with fork.lock_if_free("looking at what runs", standing=True) as free:
            return free

    def discard_unchanged(self, name: str) -> None:
        """Discard a fork whose command has changed nothing, unless another user has used the fork since."""
        fork = self.vault.fork(name)

        def is_unchanged() -> bool:
            record = fork.record
            if fork.interrupted is not None or (record is not None and record.changeset.changes):
                return False
            if fork.has_pushes or ties_of(fork):
                return False
            if not fork.has_home:
                return True

            return not has_logins(fork.path)

        discarded(self, fork, is_unchanged, is_small=True)

    # --- making and changing forks ---

    def new(
        self, name: str, *, parent: str | None = None, at: str | None = None, snapshot: bool = False, named: bool = True
    ) -> Fork:
        """Make a fork of the project, or of a fork ``parent`` as it is now or at a checkpoint (``at``).

        ``snapshot``: on a frozen copy of the project instead of the live project. Raise UsageError if the name is
        taken.
        """
        if parent is None:
            fork = self.vault.new_fork(name, time=self.clock(), named=named)
            if snapshot:
                self.secrets.look()
                self.remarks.extend(prepare_repository(self.vault, fork))
                take_snapshot(self.vault, fork, self.settings._replace(copy_limit=1 << 62), self.progress)
        else:
            fork, at = self._fork_of(parent, name, at, named=named)
        if named:
            self.journal("fork", name, {"parent": parent, "at": at})
        return fork

    def _fork_of(self, parent: str, name: str, at: str | None, *, named: bool) -> tuple[Fork, str | None]:
        """Return the new fork and the parent's checkpoint. A checkpoint is made if background commands run in the
        parent, or if the parent is mounted."""

        def made(above: Fork, point: str | None) -> tuple[Fork, str | None]:
            with self._parts(above) as parts:
                return parts.fork(name, self.clock(), point, named=named, carry=self._carry(above)), point

        fork = self.vault.fork(parent)
        require_first(fork, f"fork new {name} --from")
        with self.users.beside(fork) as standing:
            if standing is not None:
                return made(fork, at or self.checkpoint_beside(standing, parent, (b"fork", name.encode())))
        if at is not None:  # its layers are sealed: later changes in the parent do not matter
            with self.locked(fork, "mudroom"):
                return made(fork, at)
        if mount_note(fork) is not None:
            with self.locked(fork, "mudroom"):
                before = mounting(self).checkpoint(fork, "before-fork", self.settings.keep_applies)
                if before is not None:
                    return made(fork, before.name)
        with self.at_rest(parent) as above:
            return made(above, at)

    def made_of(self, above: Fork, name: str, layers: tuple[str, ...]) -> Fork:
        """Return a new fork with these layers, and with the agents' stores of ``above``, as ``stacking.fork_of`` does.
        Raise UsageError if it has parts in other projects."""
        return stacking.fork_of(self.vault, above, name, self.clock(), layers, carry=self._carry(above))

    def _carry(self, above: Fork) -> Callable[[Fork], None]:
        """Return a function that copies the stores of a fork's agents into another one."""

        def carry(fork: Fork) -> None:
            if above.has_home:
                from mudroom.session.confinement.agent_home import carry_homes

                self.remarks.extend(carry_homes(above.path, fork.path))

        return carry

    def checkpoint(self, name: str, point: str) -> Checkpoint:
        """Freeze a fork's files under a name. Background commands are paused while the files are copied. Raise
        UsageError if the name is taken."""
        checkpoint: Checkpoint | None = None
        require_first(self.vault.fork(name), f"checkpoint {point} --fork")
        with self.users.beside(self.vault.fork(name)) as standing:
            if standing is not None:
                standing.checkpoint(point, self.clock())
                checkpoint = self.vault.fork(name).state.checkpoint(point)
            elif mount_note(self.vault.fork(name)) is not None:
                with self.locked(self.vault.fork(name), "mudroom"):
                    checkpoint = mounting(self).checkpoint(self.vault.fork(name), point)
            if checkpoint is None and standing is None:
                with self.at_rest(name) as fork, self._parts(fork) as parts:
                    checkpoint = parts.checkpoint(point, self.clock())
        if checkpoint is None:
            raise MudroomError(f"the checkpoint {point} was not made", "try again")
        # the files of the layer, which its command did not sync, and all names that lead there
        sync_all(self.vault.path)
        self.journal("checkpoint", name, {"checkpoint": point})
        return checkpoint

    def checkpoint_before(
        self, fork: Fork, argv: Sequence[bytes], keep: int, also: Callable[[str], None] = lambda _name: None
    ) -> str:
        """Freeze the fork's files before a command and return the checkpoint's name. Hold the fork's lock. ``also``:
        freezes its parts in other projects under that name."""
        from mudroom.core.command.checkpoint_name import checkpoint_stem
        from mudroom.core.retention import surplus_checkpoints

        stem = checkpoint_stem(argv, self.vault.secrets())
        point = mounting(self).checkpoint(fork, stem, keep) if mount_note(fork) is not None else None
        if point is None:
            name = stack.free_name(fork.state, stem)
            also(name)
            point = stacking.checkpoint(self.vault, fork, name, self.clock(), automatic=True)
            for old in surplus_checkpoints(fork.state, keep):
                fork.save(stack.without_checkpoint(fork.state, old))
        self.journal("checkpoint", fork.name, {"checkpoint": point.name, "automatic": True})
        return point.name

    def checkpoint_beside(
        self, standing: Standing, name: str, argv: Sequence[bytes], *, keep: int | None = None, terms: str | None = None
    ) -> str:
        """Freeze the files of a fork with a shared sandbox and return the checkpoint's name. ``terms``: the terms of
        the command that will join the sandbox, or None."""
        from mudroom.core.command.checkpoint_name import checkpoint_stem

        kept = self.settings.keep_applies if keep is None else keep
        point = standing.checkpoint(checkpoint_stem(argv, self.vault.secrets()), self.clock(), keep=kept, terms=terms)
        self.journal("checkpoint", name, {"checkpoint": point, "automatic": True})
        return point

    def rollback(
        self,
        name: str,
        point: str | None = None,
        *,
        require: Callable[[], None] = lambda: None,
    ) -> Checkpoint | None:
        """Drop a fork's changes since a checkpoint; ``point`` None: the last, which may be an automatic checkpoint
        before the last command. Return a checkpoint that restores the dropped changes, if any.

        ``require`` is called while the fork is at rest; if it raises, the fork is unchanged.
        """
        require_first(self.vault.fork(name), "rollback --fork")
        point = point or self.last_checkpoint(name)
        with self.at_rest(name, set_aside(self), drops=True) as fork, self._parts(fork, drops=True) as parts:
            require()
            checkpoint = fork.state.checkpoint(point)
            since = checkpoint.time if checkpoint is not None else 0
            before = parts.rollback(point, self.clock())
            self.drop_pushes(fork, since)
        undo = before.name if before is not None else None
        self.journal("rollback", name, {"checkpoint": point, "undo": undo})
        return before

    def last_checkpoint(self, name: str) -> str:
        """Return the newest checkpoint that no rollback has dropped. Raise UsageError if there is none."""
        fork = self.vault.fork(name)
        return stacking.last_checkpoint(fork, parts_of(fork)).name

    def rename(self, name: str, new: str) -> Fork:
        from mudroom.vault.apply.remainder import is_open_elsewhere

        require_first(self.vault.fork(name), "fork rename")
        with self.at_rest(name) as fork, self.tools.aside(fork):
            if is_open_elsewhere(fork):
                raise UsageError(f"file tools of another session work in {name}", "try again when it has ended")
            self.vault.approvals.withdraw((name,), f"its fork is renamed: {new}")
            with renaming(fork, new):
                renamed = stacking.rename(self.vault, fork, new)
        sync_all(self.vault.path)
        self.journal("rename", new, {"was": name})
        return renamed

    def mount(
        self, name: str, place: bytes | None = None, *, writable: bool = True, kind: Kind | None = None
    ) -> MountNote:
        """Mount a fork as a real directory at ``place``, by default in the vault, or return its existing mount. Until
        ``unmount`` the user, commands and file tools work in it together. Raise Unsupported if this ``kind`` of mount
        is impossible here, UsageError if the fork is mounted in another way."""
        require_single(self.vault.fork(name), "mount")
        return mounting(self).mount(self.at_rest, self.vault.fork(name), place, kind, self.progress, writable=writable)

    def unmount(self, name: str, *, lost: bool = False) -> Changeset:
        """Unmount a fork and return its changes. Raise MudroomError if the directory is in use. ``lost``: give up a
        copy whose directory is gone."""
        with self.locked(fork := self.vault.fork(name), "unmount"):
            return mounting(self).unmount(fork, lost=lost)

    def mounts(self) -> dict[str, MountNote]:
        """Return the mounted forks by name, without forks that cannot be read."""
        return mounting(self).listed()

    def compare(self, old: str, new: str) -> Comparison:
        """Return the comparison of two states: ``base``, ``now``, ``FORK`` or ``FORK@CHECKPOINT``. The caller closes
        it."""
        from mudroom.vault.forks.comparison import Comparison

        for side in {old, new} - {"base", "now"}:
            self.changeset(side.partition("@")[0])  # collects the changes of an interrupted command
        return Comparison(self.vault, old, new)

    def discard(self, name: str, reviewed: str | None = None) -> None:
        """Discard a fork. ``reviewed``: the reviewed changes' fingerprint, of a fork with parts in other projects those
        of all, joined by ``+``. Raise ForkMoved if the fork's changes differ from it, UsageError if a command is
        running in the fork, ForkGone if another process discards it."""
        fork = self.vault.fork(name)
        require_first(fork, "discard")
        ties = ties_of(fork)
        if reviewed is not None and ties:
            from mudroom.vault.forks.review import require_seen

            parts = [(fork, self), *((tied.fork(fork), self.root(tied).forks) for tied in ties)]
            prints = reviewed.split("+")
            for at, (part, forks) in enumerate(parts):
                expected = prints[at] if len(prints) == len(parts) else ""
                require_seen(part, forks.changeset(part.name), expected, "discarded")
            reviewed = prints[0]
        for tied in ties:
            with suppress(MudroomError):  # one that is missing is given up with the rest
                tied.fork(fork)
                self.root(tied).forks.discard_part(tied.name)
        self.discard_part(name, reviewed)

    def discard_part(self, name: str, reviewed: str | None = None) -> None:
        """Discard a fork as ``discard`` does, but not its parts in other projects."""
        fork = self.vault.fork(name)
        self.end_companions(fork)
        self.users.require_free(fork)
        mounting(self).settle_if_free(fork)
        stacking.require_idle(fork)
        if reviewed is not None:
            from mudroom.vault.forks.review import require_seen

            require_seen(fork, self.changeset(name), reviewed, "discarded")
        with fork.lock_if_free("mudroom discard", PATIENCE) as free, self.users.lock:
            if not free or self.users.count(name):
                raise UsageError(f"a command is running in the fork {name}", "try again when it has ended")
            self.forget(name)
            self.vault.throw_away(self.vault.path + OUTSIDE + b"/" + fork_directory(name))
            if fork.has_home:
                self.remarks.extend(settle_logins(fork.path, is_discarded=True))
                spoken = part("agents", "conversation", "the conversations of an agent in this fork")
                self.remarks.extend(spoken.keep_conversations(self.vault, fork, self.clock()))
            self.drop_pushes(fork)
            self.vault.discard(fork, durable=True)
        self.vault.empty_trash(cleaning_up(self.progress))
        try:
            self.vault.approvals.withdraw((name,), "its fork is discarded")
            self.journal("discard", name, {})
        except MudroomError as error:
            raise MudroomError(f"{name} is discarded; {error.message}", error.hint) from error

    def forget(self, name: str) -> None:
        """Release a fork's resources; it is gone or about to be removed."""
        self.tools.drop(name)
        self._forget(name)

    # --- a fork's files ---

    def files(self, name: str) -> Files:
        """Return a fork's files for file tools. Writes stay in memory until they are needed on disk. While a command of
        this session runs in the fork, calls use its live mount. Raise UsageError if the fork does not exist.
        """
        from mudroom.stage.buffer.files import Files

        fork = self.vault.fork(name)
        self.secrets.look()
        if fork.state.base != stack.LIVE:
            from mudroom.vault.forks.hidden import require_masked_base

            require_masked_base(self.vault, fork)
        tools = self.tools
        return Files(lambda: tools.tree(name), self.vault.project, lambda: tools.changing(name))

    def flush(self, name: str) -> None:
        """Flush file tools into the fork. Every other reader of the fork does this first."""
        if name in self.tools and not self.tools.is_live(name) and mount_note(self.vault.fork(name)) is None:
            with self.at_rest(name):
                pass

    # --- a fork's changes ---

    def settle(self, fork: Fork) -> None:
        """Collect the changes of a command that was interrupted when mudroom was killed. Hold the fork's lock."""
        _find_losses(self.vault, fork)
        started, noted = fork.interrupted, mount_note(fork)
        note = settled_mount(self, fork) if noted is not None else None
        if started is not None:
            require_layers(fork)
            shown = self.secrets.masked_vault(fork)
            if note is None and not fork.has_copy:
                if fork.has_lost_record and not os.path.isdir(fork.upper):
                    stacking.make_tree(self.vault, fork.state.upper, fork.state.layers)
                set_fork_apart(self.vault, fork)  # its processes may still be dying
                self.secrets.hide_all(fork)
            mend_sealed(shown, fork)
            with OpenFork(shown, fork) as opened:
                view = view_of(shown, fork, opened, "copy" if fork.is_copy else "overlay")
                from mudroom.vault.forks.crash import is_cut_off_by_crash

                is_crash = is_cut_off_by_crash(fork, started)
                started = noted.since if noted is not None else started
                if os.path.isdir(view.staged[0]) and (fork.has_copy or not fork.is_copy):
                    before = recorded_changes(fork)
                    changeset = gather(
                        fork, opened, view, CollectedCommand((), KILLED, self.clock()), started, crashed=is_crash
                    )
                    paths = changed_paths(shown, fork, before, changeset, self.secrets.hides)
                    told = {"outcome": "collected", "changed": len(changeset.changes)}
                    _journal_cut_off(self, fork.name, told | paths)
            if fork.has_home:
                self.remarks.extend(settle_logins(fork.path))
            fork.end()
        if os.path.isdir(fork.path + b"/background"):
            from mudroom.vault.forks.background import Book

            Book(fork).settle(self.clock())

    def settle_if_possible(self, fork: Fork, also: Callable[[Vault, Fork], None] = lambda _vault, _fork: None) -> str:
        """Settle a fork for a command or a rollback that may repair it, then call ``also``. Return why an interrupted
        command's changes cannot be collected, or an empty text. The fork's record says it, too, and the fork still
        counts as interrupted. Hold its lock."""
        try:
            self.settle(fork)
            also(self.vault, fork)
        except (SandboxAlive, SecretsUnknown, UsageError):
            raise
        except (MudroomError, OSError) as error:
            note_uncollected(fork, reason_of(error))
            return f"the earlier changes in {fork.name} could not be collected: {reason_of(error)}"
        return ""

    def look(self, name: str, *, live: bool = True) -> ForkLook:
        """Return a fork's changes: a review if no other process can change its files, otherwise only a look. ``live``:
        with the background commands' changes until now; otherwise as they were recorded last. Collect an interrupted
        command's changes now."""
        from mudroom.vault.forks.review import ForkLook

        fork = self.vault.fork(name)
        with self.users.beside(fork) if live else nullcontext() as standing:
            if standing is not None:
                standing.collect(None)
                return ForkLook(self.vault.fork(name).record, use_of(fork) or IN_USE)
        self.flush(name)
        fork = self.vault.fork(name)
        holder = last_holder(fork) if fork.interrupted is not None else "looking at what is left"
        # Wait for another reader, since without the lock this is no review, but not for a running command.
        with fork.lock_if_free(holder, PATIENCE) as free:
            if free:
                _find_losses(self.vault, fork)
            if free and fork.interrupted is None and fork.record is None and not stacking.tree_is_empty(fork):
                fork.begin(CommandStart(fork.created))  # the record is lost: its name was not on disk
            if free and (fork.interrupted is not None or mount_note(fork) is not None):
                self.settle(fork)
                mounting(self).collect(fork)
            if not free or mount_note(fork) is not None:
                return ForkLook(fork.record, use_of(fork) or IN_USE)
            set_fork_apart(self.vault, fork)
            require_layers(fork)
            record = fork.record
            await_stamps(fork, record)
            return ForkLook(record)

    def changeset(self, name: str) -> Changeset:
        """Return the changes that ``look`` finds."""
        return self.look(name).changeset

    def record(self, name: str) -> ForkRecord | None:
        """Return a fork's last record, or None if it has none."""
        return self.look(name, live=False).record

    def known_record(self, name: str) -> ForkRecord | None:
        """Return a fork's record for a list. Return the previous record if an interrupted command cannot be collected:
        its processes are still alive, the disk is full, or the project's secrets are not known."""
        try:
            return _collected_record(self, name)
        except (SandboxAlive, SecretsUnknown, OSError) as error:
            if isinstance(error, OSError) and error.errno not in FULL:
                raise
            return self.vault.fork(name).record


IN_USE = "is in use"
_LONGEST_TICK = 3.0
"""Seconds: longer than the tick of any clock that stamps files (``stage/stamp.py``)."""


def use_of(fork: Fork) -> str:
    """Return how a fork is in use, as words after its name: "is running (npm run dev)", "is mounted at /x". Empty if it
    is not in use."""
    note = mount_note(fork)
    if note is not None:
        return f"is mounted at {show(note.place)}"
    if os.path.isdir(fork.path + b"/background"):
        from mudroom.vault.forks.background import Book

        rows = [show_words(started.command) for started, ended in Book(fork).rows() if ended is None]
        if rows:
            return f"is running ({', '.join(rows[:3])}{', …' if len(rows) > 3 else ''})"
    holder = last_holder(fork)
    if fork.interrupted is not None:
        return f"is running ({holder})" if holder else "is running"
    return f"is in use ({holder})" if holder else ""


def await_stamps(fork: Fork, record: ForkRecord | None) -> None:
    """Wait until any later change to a recorded file is certain to give it another ctime: at most 20 ms after the
    command, or some seconds where the file system stamps seconds. Otherwise a command that begins after a review could
    write a file of the same size within the same tick, and the fingerprint would be equal."""
    if record is None or time.time_ns() - os.stat(fork.record_path).st_mtime_ns > _LONGEST_TICK * 1e9:
        return  # the record was written after all times in it
    newest = max((change.staged.ctime for change in record.changeset.changes if change.staged is not None), default=0)
    until = time.monotonic() + _LONGEST_TICK  # a clock that was set back does not reach that time soon
    while not is_settled(newest, time.time_ns()) and time.monotonic() < until:
        time.sleep(LOOK)


def mounting(forks: Forks) -> Mounts:
    """Return the object that mounts forks. Its module is loaded only when it is needed."""
    from mudroom.session.mounts import Mounts

    return Mounts(forks.vault, forks.settings, forks.tools, forks.secrets, forks.clock, forks.remarks, forks.let_go)


def set_aside(forks: Forks) -> Around:
    """Return the ``around`` for ``at_rest`` that unmounts a fork, and mounts it again afterwards."""
    return lambda fork: mounting(forks).aside(fork) if mount_note(fork) is not None else nullcontext()


def to_read(forks: Forks, name: str) -> AbstractContextManager[Fork]:
    """Yield a fork with its changes recorded. It is at rest, or mounted; only the user changes a mounted fork
    meanwhile."""
    fork = forks.vault.fork(name)
    if mount_note(fork) is None:
        return forks.at_rest(name)
    return mounting(forks).to_read(forks.locked, forks.at_rest, fork)


def settled_mount(forks: Forks, fork: Fork) -> MountNote | None:
    """Return the fork's mount, or None if there is none or it has ended. Hold the fork's lock."""
    return mounting(forks).settled(fork) if mount_note(fork) is not None else None


def _find_losses(vault: Vault, fork: Fork) -> None:
    """Find the files that a crash of the machine has cut off. Costs a stat(2) but once after each boot.

    The state of a fork may be on disk, and the writable layer that it names not: then nothing was in it.
    """
    is_earlier, upper = is_of_earlier_boot(fork.record_path), fork.state.upper
    if is_earlier is False:
        return
    if fork.state.layers and not os.path.isdir(fork.layer(upper)):
        from mudroom.vault.forks.crash import add_empty

        require_layers(fork)
        require_tree(fork)
        stacking.make_tree(vault, upper, fork.state.layers)
        add_empty(fork, ())
        fork.begin(CommandStart(fork.created))
    if is_earlier:
        from mudroom.vault.forks.crash import find_losses

        find_losses(fork)


def _collected_record(forks: Forks, name: str) -> ForkRecord | None:
    fork = forks.vault.fork(name)
    forks.flush(name)
    if fork.interrupted is not None or mount_note(fork) is not None:
        with fork.lock_if_free(last_holder(fork)) as free:
            if free:
                forks.settle(fork)
                mounting(forks).collect(fork)
    return fork.record


def _merge_layers(vault: Vault, fork: Fork) -> None:
    """Merge a resting fork's lowest layers if there are many and the fork still exists. Hold its lock."""
    if os.path.isdir(fork.path) and len(fork.state.layers) > 1:
        from mudroom.vault.forks.flatten import merge_if_deep

        merge_if_deep(vault, fork)


def discarded(forks: Forks, fork: Fork, may: Callable[[], bool], *, users: int = 0, is_small: bool = False) -> bool:
    """Discard a fork and return whether it was discarded here. Discard it only if its lock is free, at most ``users``
    of this session's commands have taken it, and ``may``, called under its lock, returns True. ``is_small``: it has no
    files whose removal has to be waited for, so the trash is emptied later."""
    is_last = is_small and forks.vault.later is not at_once
    with forks.users.lock, suppress(ForkGone):
        if forks.users.count(fork.name) > users or mount_note(fork) is not None:
            return False
        with fork.lock_if_free("mudroom") as free:
            if not free or not may():
                return False
            if not is_last:
                forks.forget(fork.name)
            forks.vault.discard(fork, spares=True)
    empty, progress = forks.vault.empty_trash, cleaning_up(forks.progress)
    forks.vault.later(forks.vault.path, empty) if is_small else empty(progress)
    if is_last:  # the kernel may still be removing its mounts: no process is in them, and they are not mounted again
        forks.vault.later(forks.vault.path, lambda: forks.forget(fork.name))
    return True


def _is_used(forks: Forks, fork: Fork, agent: str) -> bool:
    """Return whether a fork has been used since it was made. Hold its lock."""
    state, record = fork.state_or_none, fork.record
    if state is None or state.layers or fork.interrupted is not None:
        return True
    if any(not point.automatic for point in state.checkpoints):  # an automatic one is our own command's, and empty
        return True
    if record is not None and (record.command or record.changeset.changes):
        return True
    # file tools' unflushed writes, background commands, a mount
    places = (b"/spill", b"/background/sandbox", b"/mount")
    if fork.has_pushes or any(os.path.exists(fork.path + place) for place in places):
        return True
    return fork.agent not in ("", agent) or not stacking.is_unchanged(forks.secrets.masked_vault(fork), fork)


def _journal_cut_off(forks: Forks, name: str, data: dict[str, Any]) -> None:
    """Journal the recovery of a command whose run is not in the journal: mudroom was killed, or the disk was full. A
    failure is only a remark, since the changes have been collected."""
    try:
        forks.journal("recover", name, data)
    except MudroomError as error:
        forks.remarks.append(error.message)
