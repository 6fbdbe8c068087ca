"""A command's own sandbox: plan, run, collect its changes.

Used by the thread that runs the command, which holds the fork's lock and a turn. Combines the command with its limits,
the gate, the terminal and pauses for the vault's other users.
"""

from __future__ import annotations

import functools
import os
import stat
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext

from mudroom.core.confinement.fallback import Mode
from mudroom.core.confinement.limit import (
    LimitReached,
    Reading,
    difference,
    other_reached_limits,
    reached_limits,
    requested,
)
from mudroom.core.confinement.plan import Plan
from mudroom.core.registry import part_or_none
from mudroom.core.tree.change import Changeset
from mudroom.core.tree.path import show
from mudroom.core.tree.stack import LIVE
from mudroom.errors import CommandNotStarted, MudroomError, Unsupported, UsageError
from mudroom.sandbox.client.capture import CapturedOutput, Watch, attend
from mudroom.sandbox.client.invocation import Exit, Invocation, RunOptions
from mudroom.sandbox.client.report import StepFailed
from mudroom.session.confinement.crowd import Slot
from mudroom.session.confinement.standing import CommandPlace
from mudroom.session.forks import Forks, settled_mount
from mudroom.session.machine import Machine, freezes
from mudroom.session.order import CommandEnd, Order, Outcome, Stdio
from mudroom.session.retention import keep_journal
from mudroom.session.users import RunningCommands
from mudroom.stage import disk, safe_open
from mudroom.stage.view import View
from mudroom.stage.views.overlay import OverlayView
from mudroom.stage.views.preflight import foreign
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple
from mudroom.vault.forks import stacking
from mudroom.vault.forks.collection import (
    CollectedCommand,
    gather,
    keep_artifacts,
    prepare_repository,
    set_fork_apart,
    shown_view,
    stand_on_base,
    with_objects,
)
from mudroom.vault.forks.damage import require_files
from mudroom.vault.forks.live_output import LiveOutput
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.moment import StartBound, command_start, start_bound
from mudroom.vault.store.fork import Fork, last_holder
from mudroom.vault.store.store import Vault
from mudroom.vault.turn import LOOK, Quiet

if TYPE_CHECKING:
    from mudroom.core.confinement.spec import Bind, StagedRoot
    from mudroom.core.network.flow import Flow
    from mudroom.core.result import LeftFile
    from mudroom.sandbox.client.client import Client, Running
    from mudroom.sandbox.client.terminal import Relay
    from mudroom.sandbox.limits.cgroup import Leaf
    from mudroom.sandbox.limits.gauge import Gauge
    from mudroom.session.confinement.agent_home import SharedFiles
    from mudroom.session.confinement.command_gate import CommandGate, Equipment
    from mudroom.session.confinement.confinement import Rlimits
    from mudroom.session.confinement.grant import Grant
    from mudroom.vault.store.mount_note import MountNote


def relay_for(stdio: Stdio, console: Callable[..., Any] | None = None) -> Relay | None:
    """Return the relay for a terminal, or None if the command gets the descriptors themselves. ``console``: makes the
    relay on a platform that has its own."""
    if not stdio.terminal:
        return None
    if console is not None:
        relay: Relay | None = console(stdio[:3])
        return relay
    from mudroom.sandbox.client.terminal import Relay

    return Relay((stdio.stdin, stdio.stdout, stdio.stderr), stdio.signs, is_dumb=stdio.is_dumb)


def home_of(
    machine: Machine, fork: Fork, order: Order, mode: Mode, outcome: Outcome
) -> AbstractContextManager[tuple[Grant, SharedFiles | None]]:
    """Return a command's home, held while it runs: its grant with the fork's own parts of an agent's home, and the
    files that it shares with the host. Hold the fork's lock; none of the fork's processes may be alive."""
    if order.actor.card is None:
        return nullcontext((order.grant, None))
    from mudroom.session.confinement.agent_home import agent_homes

    settings = order.actor.settings
    return agent_homes().command_home(machine.confinement, fork, order.grant, mode, settings, outcome.note)


def enter_private_home(plan: Plan, fork: Fork, files: SharedFiles | None) -> None:
    """Do as ``enter_home`` for a command without a mount namespace, before it starts: it could put a link there."""
    if files is not None and not _dropped(plan):
        files.enter(safe_open.open_directory(fork.path + b"/private/home"))


def enter_home(running: Running, plan: Plan, home: bytes, files: SharedFiles | None) -> tuple[list[int], list[int]]:
    """Let files that a command shares with the host be copied in its home. Return its own directories, as
    ``Running.own_directories`` does; the caller closes them."""
    own = running.own_directories() if _dropped(plan) else ([], [])
    if files is not None and own[0]:
        files.enter(os.dup(own[0][_dropped(plan).index(home[1:])]))
    return own


def shown(equipment: Equipment | None) -> tuple[Bind, ...]:
    return equipment.binds if equipment is not None else ()


def settled_vault(
    forks: Forks, fork: Fork, noted: MountNote | None, order: Order, outcome: Outcome, held: ExitStack, repairs: bool
) -> Vault:
    """Make the fork idle, flush its file tools, and return the vault with the command's mask. Set ``outcome.mounted``.
    ``noted``: the fork's mount, read under the fork's lock, which is still held. Other threads' file tools wait until
    the command has started, or ``held`` is closed. ``repairs``: set ``outcome.uncollected`` if an interrupted
    command's changes cannot be collected, instead of raising an error."""
    note = outcome.mounted = settled_mount(forks, fork) if noted is not None else None
    outcome.notes += forks.unsaid()
    if note is not None:
        if not note.writable:
            stacking.require_idle(fork)
        return _mounted_vault(forks, fork, order, outcome)
    require_files(fork)
    mask, notes = forks.secrets.look(order.actor.settings)
    vault = forks.vault.masked(mask)
    if not repairs:
        forks.settle(fork)
    elif reason := forks.settle_if_possible(fork):
        outcome.uncollected = reason
        outcome.notes.append(reason)
    held.callback(forks.tools.resume, fork.name)
    forks.tools.pause(fork.name)
    outcome.notes += [*notes, *forks.tools.flush(fork)]
    if fork.state.base != LIVE:
        from mudroom.vault.forks.hidden import require_masked_base

        require_masked_base(vault, fork)
    if mask.has_secrets:
        from mudroom.vault.forks.hidden import begin, not_in_snapshot

        begin(vault, fork)
        outcome.notes += not_in_snapshot(vault, fork)
    outcome.notes += prepare_repository(vault, fork)
    return vault


def _mounted_vault(forks: Forks, fork: Fork, order: Order, outcome: Outcome) -> Vault:
    """Return the vault for a command in a mounted fork. File tools need not wait, since they work in the mount, too.
    Raise Unsupported at level 2, because no container shows the mount."""
    if order.grant.level == 2:
        raise Unsupported(
            "a container in a mounted fork", "level 1", "level 2", f"mudroom unmount {fork.name}, or --level 1"
        )
    from mudroom.vault.forks.mount import require_masked

    mask, notes = forks.secrets.look(order.actor.settings)
    empty = require_masked(fork, mask.paths) & mask.shown
    if empty:
        notes = [*notes, f"{show(min(empty))} is shown empty where {fork.name} is mounted"]
    vault = forks.vault.masked(mask)
    forks.settle(fork)
    outcome.notes += [*notes, *forks.tools.flush(fork)]
    return vault


def cache_mode(machine: Machine, outcome: Outcome, mode: Mode) -> Mode:
    """Return the mode for a command's caches. In a mounted fork they are mounted as in any other fork."""
    return (
        "overlay" if mode == "copy" and outcome.mounted is not None and machine.confinement.mode == "overlay" else mode
    )


def may_stand(fork: Fork, order: Order) -> bool:
    """Return whether a command may run in the fork's standing sandbox (``session/confinement/standing.py``): not if an
    interrupted command's changes have to be collected, or a private repository has to be brought up to date. Hold the
    fork's lock; the fork is not mounted."""
    is_usual = fork.state.repository is None and not fork.is_copy
    return order.grant.level == 1 and is_usual and fork.interrupted is None


class CommandAttempt(NamedTuple):
    """An attempt to run the command, with its open resources. If a step fails, another attempt follows."""

    view: View
    mode: Mode
    equipment: Equipment | None
    relay: Relay | None
    gate: CommandGate | None
    port: int
    """The gate's port on the host's loopback; 0: none."""
    grant: Grant
    """With the fork's own parts of the home."""
    files: SharedFiles | None
    """Files that the command shares with the host."""
    rlimits: Rlimits
    leaf: Leaf | None
    output: CapturedOutput
    attend: Callable[..., tuple[Exit, bool]]


class OwnSandbox:
    """Used by one thread."""

    def __init__(
        self,
        machine: Machine,
        forks: Forks,
        fork: Fork,
        vault: Vault,
        order: Order,
        outcome: Outcome,
        running: RunningCommands,
        standing: CommandPlace,
        slot: Slot,
    ) -> None:
        """``vault``: with the order's mask. ``running``: the command is registered there while it runs."""
        self._standing, self._slot = standing, slot
        self._machine, self._forks, self._fork, self._vault = machine, forks, fork, vault
        self._order, self._outcome, self._running = order, outcome, running
        self._open = ExitStack()
        """Resources that are open from the command's start until its changes are collected."""
        self._opened: OpenFork | None = None
        self._view: View | None = None
        self._output: CapturedOutput | None = None
        self._caches = machine.caches(vault, fork, order)
        self._roots: tuple[StagedRoot, ...] = ()
        self._follows = self._cleared = False
        """Whether this session has run a command in the fork before, and whether the launcher removes this command's
        work directories."""

    def close(self) -> None:
        self._running.remove(self._outcome)
        self._open.close()

    def checkpoint_before(self) -> str | None:
        """Freeze the fork's files before the command and return the checkpoint's name. Return None if it holds changes
        that could not be collected: they can be collected only where they are."""
        self._standing.forbid()
        if self._outcome.uncollected:
            self._outcome.notes.append("no checkpoint was made before the command")
            return None
        keep, roots = self._order.actor.settings.keep_applies, self._outcome.roots
        also = (roots.checkpoint,) if roots is not None else ()
        return self._forks.checkpoint_before(self._fork, self._order.argv, keep, *also)

    def run(self, order: Order, outcome: Outcome) -> CommandEnd:
        """Run the command. If a step of its plan fails on this machine, fall back to the next weaker mode, with a
        note."""
        machine, fork, settings = self._machine, self._fork, order.actor.settings
        mode = self._machine.first_mode(fork, order, outcome)
        outcome.notes += [*order.grant.notes, *self._machine.confinement.missing_credentials(settings)]
        fork.note_credentials(order.grant.credentials)
        while True:
            needs = freezes(machine, fork, order)
            if mode != "overlay" or needs or order.roots:
                self._standing.forbid()
            if order.roots and mode != "overlay":
                from mudroom.session.roots import overlay_needed

                raise overlay_needed(f"mode {mode}")
            if outcome.mounted is None:
                outcome.notes += stand_on_base(self._vault, fork, mode, settings, self._forks.progress, freezes=needs)
            with ExitStack() as attempt:
                opened = attempt.enter_context(OpenFork(self._vault, fork))
                view = shown_view(
                    self._vault, fork, opened, mode, outcome.mounted, self._forks.progress, level=order.grant.level
                )
                if isinstance(view, OverlayView):
                    view.prepare(self._standing.works[0])
                else:
                    view.prepare()
                self._roots = outcome.roots.prepare() if outcome.roots is not None else ()
                try:
                    end = self._attempt(view, mode)
                except StepFailed as failure:
                    if self._standing.failed(failure.op):
                        continue
                    if failure.op == "mounted":
                        from mudroom.session.mounts import not_shown

                        raise not_shown(fork) from failure
                    if outcome.mounted is not None and failure.op == "overlay":
                        machine.confinement.mode = "copy"  # for its caches: the fork's files are mounted
                        continue
                    mode = self._machine.weaker(mode, failure, order, outcome)
                    continue
                finally:
                    if outcome.running is not None:
                        self._machine.ended.add(fork, outcome.running)
                        outcome.running = None
                self._opened, self._view, self._output, outcome.mode = opened, view, end.output, mode
                self._open = attempt.pop_all()
                self._running.remove(outcome)
                return end

    def collect(self, command: CollectedCommand) -> Changeset:
        """Record the fork's changes after the command, and release it."""
        assert self._opened is not None and self._view is not None and self._output is not None
        fork, outcome, standing = self._fork, self._outcome, self._standing
        upper, settle = self._view.staged[0], True
        if standing.sandbox is not None and self._opened.shown_paths:
            from mudroom.vault.forks.hidden import touched

            if touched(fork, self._opened):
                standing.give_up()  # their files are moved out of the layer, which must not be mounted then
        if standing.sandbox is not None:
            from mudroom.vault.forks.repository_pin import shows_git_below

            if outcome.merged is not None or self._caches.has_new or not _is_open(upper):
                standing.give_up()  # the layer stack changes, or directories that the next init has open
            elif shows_git_below(upper):
                settle = False
            elif os.path.lexists(upper + b"/.git"):
                standing.outdated()
        changeset = gather(fork, self._opened, self._view, command, outcome.started, settle=settle)
        if isinstance(self._view, OverlayView) and self._view.has_tidied:
            standing.outdated()
        if isinstance(self._view, OverlayView) and not self._cleared:
            self._view.unmounted()
        has_copy = fork.has_copy
        if has_copy:
            argv = self._opened.shown(command.argv)
            keep_artifacts(fork, argv, {stream.name: stream.data for stream in self._output.streams})
        if standing.sandbox is None:  # otherwise there are no new entries
            outcome.notes += self._caches.give_back(self._order.actor.settings.cache_limit, cleared=self._cleared)
        fork.end()
        if has_copy and (outcome.mounted is None or sys.platform != "linux"):
            # a file that another program has open is replaced now, before the changes are shown, not by the apply
            set_fork_apart(self._forks.vault, fork)
            changeset = fork.record.changeset if fork.record is not None else changeset
        self._open.close()
        if outcome.merged is not None:
            from mudroom.vault.forks.flatten import use_merged_layer

            use_merged_layer(fork, outcome.merged)
        self._forks.tools.refresh(fork)
        standing.keep()
        return changeset

    # --- one attempt ---

    def _attempt(self, view: View, mode: Mode) -> CommandEnd:
        """Run the command in a view. Raise StepFailed if a plan step fails."""
        machine, fork, order, outcome = self._machine, self._fork, self._order, self._outcome
        stored = machine.stored_rules(order.actor, order.grant.level)
        equipment = machine.equipment(mode, order, stored)
        platform = machine.confinement.platform
        relay = relay_for(order.stdio, platform.console)
        captured, attended = platform.streams() if platform.streams is not None else (CapturedOutput, attend)
        stdio = relay.descriptors if relay is not None else order.stdio[:3]
        own, most = relay.own if relay is not None else (), order.actor.settings.output_limit
        gated, port = machine.at_the_gate(fork, mode, order, outcome, relay, equipment, stored)
        with (
            home_of(machine, fork, order, mode, outcome) as (grant, files),
            gated as gate,
            machine.limited(mode, order, outcome) as (rlimits, leaf),
            LiveOutput(fork.path, order.stdio.on_output) as heard,
            captured(*stdio, most, heard, own) as output,
        ):
            attempt = CommandAttempt(
                view, mode, equipment, relay, gate, port, grant, files, rlimits, leaf, output, attended
            )
            try:
                end = self._perform(attempt)
                outcome.flows = flows_of(self._forks, fork, gate, outcome)
                note_failures(output, outcome)
                return end._replace(flows=outcome.flows)
            except (StepFailed, CommandNotStarted) as error:
                fork.end()
                if outcome.roots is not None:
                    outcome.roots.end()
                if order.grant.image and isinstance(error, CommandNotStarted) and error.hint:
                    error.hint = f"there is only what the image {order.grant.image} holds"
                raise
            finally:
                self._forks.tools.end_live(fork.name)
                if relay is not None:
                    relay.close()
                self._running.failed(outcome)

    def _perform(self, attempt: CommandAttempt) -> CommandEnd:
        """Start the command and attend to it until it ends."""
        fork, outcome, standing, view = self._fork, self._outcome, self._standing, attempt.view
        plan, env = self._plan(attempt)
        if attempt.grant.files:
            enter_private_home(plan, fork, attempt.files)
        with self._machine.at_its_place(plan, fork, self._order) as client:
            bound = self._note_start(client)
            self._stand(client, plan, view)
            quiet = self._quiet()
            try:
                running = self._begin(client, plan, env, attempt, bound)
                home = self._machine.confinement.home
                own = enter_home(running, plan, home, attempt.files) if attempt.grant.files else None
                meanwhile = functools.partial(self._meanwhile, view)
                watch = self._watch(running, attempt.gate, attempt.files, quiet)
                self._slot.give()
                ended, timed_out = attempt.attend(
                    running, attempt.output, self._order.timeout, meanwhile, watch, attempt.gate
                )
            finally:
                if quiet is not None:
                    quiet.close()
            self._slot.take()
            if standing.sandbox is not None:
                self._cleared = True  # they are removed with the sandbox
            elif isinstance(view, OverlayView):
                roots = outcome.roots.works if outcome.roots is not None else ()
                self._cleared = client.clear((view.work, *self._caches.works, *roots))
            if bound is not None and ended.started and standing.is_as_seen:
                outcome.started = bound.start(ended.started)
            if own is not None and attempt.files is not None:
                outcome.note(*attempt.files.close())  # before what is left is listed, and kept
            left = self._left(own or running.own_directories(), plan, env[b"HOME"])
            if left:
                from mudroom.core.result import left_sentence

                outcome.note(*filter(None, (left_sentence(left, env[b"HOME"], fork.name),)))
            group = attempt.leaf or client.traits.gauge
            done, use = self._reached(group, ended, timed_out=timed_out, output=attempt.output)
        return CommandEnd(ended, timed_out, attempt.output, done, use, left=left)

    def _left(self, own: tuple[list[int], list[int]], plan: Plan, home: bytes) -> tuple[LeftFile, ...]:
        """Return the files that the command has left in its own directories, and close these."""
        descriptors, before = own
        try:
            if not descriptors:
                return ()
            from mudroom.stage.left import is_untouched, left_files

            places = [(b"/" + path, fd) for path, fd in zip(_dropped(plan), descriptors, strict=True)]
            placed = {b"/" + step[1]: step[2] for step in plan.steps if step[0] == "file"}
            if is_untouched(places, placed, before):
                return ()
            placed |= {b"/" + step[2]: b"" for step in plan.steps if step[0] in ("bind", "inside")}
            left = left_files(places, placed)
            store = part_or_none("outside", "store") if left else None
            if store is not None:
                left = store.keep(self._vault, self._fork.name, left, places, home, self._forks.clock())
            return left
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _plan(self, attempt: CommandAttempt) -> tuple[Plan, dict[bytes, bytes]]:
        machine, fork, order, view = self._machine, self._fork, self._order, attempt.view
        within = attempt.gate.loopback if attempt.gate is not None else ()

        def planned() -> tuple[Plan, dict[bytes, bytes]]:
            return machine.confinement.plan(
                view.mount(), attempt.mode, order.cwd, fork.path + b"/private",
                with_objects(self._vault, fork, order.actor.settings), attempt.rlimits, attempt.grant, attempt.port,
                shown(attempt.equipment),
                machine.cache_view(self._caches, cache_mode(machine, self._outcome, attempt.mode), order,
                                   self._standing.works[1]), within, self._roots,
            )  # fmt: skip

        plan, env = planned()
        # a process that has given up its privileges enters no control group
        if not self._standing.suits(plan, self._caches.stamps, is_usual=attempt.leaf is None):
            assert isinstance(view, OverlayView)
            view.prepare()  # another work directory: a volatile overlay takes none twice
            plan, env = planned()
        if attempt.equipment is not None:
            env |= dict(attempt.equipment.environment)
        return plan, env

    def _note_start(self, client: Client) -> StartBound | None:
        """Record that the command begins. Return a bound for its start, which the launcher later reports exactly; None
        if the launcher does not, or the command works in a mount."""
        outcome, vault, called = self._outcome, self._vault, self._order.called
        bound = start_bound(vault.path, called) if client.traits.awaits_tick else None
        outcome.started = bound.now if bound is not None else command_start(vault.path, called)
        earlier = self._fork.interrupted if outcome.uncollected else None
        if earlier is not None:  # its changes are collected with this command's
            outcome.started, bound = min(earlier, outcome.started), None
        self._fork.begin(outcome.started)
        if outcome.roots is not None:
            outcome.roots.begin(called)
        if outcome.mounted is not None:  # the mount's cached project data are as old as the mount
            outcome.started, bound = outcome.mounted.since, None
        return bound

    def _stand(self, client: Client, plan: Plan, view: View) -> None:
        """Make a standing sandbox if it is due."""
        wanted = self._standing.wants_one(plan)
        if wanted is None or not isinstance(view, OverlayView):
            return
        self._follows = self._machine.ended.wait_before(self._fork)
        works = (view.work[1], self._caches.works[0][1] if self._caches.works else b"")
        self._standing.make(client, wanted, self._caches.stamps, works, (view.work, *self._caches.works))

    def _begin(
        self,
        client: Client,
        plan: Plan,
        env: dict[bytes, bytes],
        attempt: CommandAttempt,
        bound: StartBound | None,
    ) -> Running:
        """Start the command once the previous command's mount is gone. File tools in use go through the new mount from
        now on."""
        fork, tools, standing = self._fork, self._forks.tools, self._standing.taken()
        relay, gate = attempt.relay, attempt.gate
        self._follows = standing is not None or self._machine.ended.wait_before(fork)
        edited = fork.name in tools
        numbers = relay.numbers if relay is not None else ()
        want_gate = gate is not None and gate.is_inside
        after = 0
        if bound is not None:
            after = bound.after_apply if self._standing.is_quiet else bound.after
        invocation = Invocation(self._order.argv, env, attempt.output.descriptors, numbers)
        options = RunOptions(
            view=edited, left=bool(_dropped(plan)), gate=want_gate, leaf=attempt.leaf, after=after, standing=standing
        )
        begin = functools.partial(client.run, plan, invocation, options)
        try:
            running = self._running.start(self._outcome, fork, begin)
        except (Unsupported, UsageError):
            fork.end()  # Windows: the plan was refused, and nothing has started
            raise
        self._outcome.running = running
        self._outcome.note(*running.notes)
        if gate is not None:
            gate.began(running)
        if relay is not None:
            relay.start(running)
        if edited:
            tools.go_live(fork.name, running, self._vault.mask.paths)
        tools.resume(fork.name)
        return running

    def _quiet(self) -> Quiet | None:
        """Return the wish that agents pause for this command, or None. The lock's text is the fork's lock's."""
        seconds = self._order.quiet
        if self._order.alone or not seconds:
            return None
        return Quiet(self._vault.path, last_holder(self._fork), seconds)

    def _watch(
        self, running: Running, gate: CommandGate | None, files: SharedFiles | None, quiet: Quiet | None
    ) -> Watch | None:
        """Return the periodic checks: whether others wait for their turn, and whether the gate's rules or a file shared
        with the host have changed. None if none is needed."""
        alone, turn = self._order.alone, self._vault.turn
        if alone and gate is None and files is None:
            return None

        def look() -> float:
            if gate is not None:
                gate.look()
            if files is not None:
                files.look()
            if quiet is not None:
                quiet.look()
            is_users = self._order.quiet is not None
            beside = self._outcome.roots.turns if self._outcome.roots is not None else ()
            turns = () if alone else (turn, *beside)
            return sum((one.stand_aside(running.pause, running.resume, is_users=is_users) for one in turns), 0.0)

        return Watch(LOOK, look)

    def _meanwhile(self, view: View) -> None:
        """Work while the command runs: load modules for the journal, clean up after an earlier session, merge layers if
        there are many, and look for files that the overlay cannot change."""
        import mudroom.vault.journal.journal  # noqa: F401 - loaded for later

        fork = self._fork
        self._outcome.notes += keep_journal(self._forks, self._order.actor.settings)
        if isinstance(view, OverlayView) and not self._follows:
            view.tidy()
            self._caches.tidy()
        if len(fork.state.layers) > 1 and self._outcome.mounted is None:
            from mudroom.vault.forks.flatten import is_deep, merge_lowest

            self._outcome.merged = merge_lowest(self._vault, fork) if is_deep(fork) else None
        if disk.user() and isinstance(view, OverlayView) and self._machine.looks_first():
            path = next(foreign(self._vault.source, disk.user(), [disk.group()]), None)
            if path is not None:
                self._outcome.notes.append(
                    f"{show(path)} belongs to another user or group, for which an overlay has no id: the command "
                    "cannot change it (--view copy can)"
                )

    def _reached(
        self, group: Leaf | Gauge | None, ended: Exit, *, timed_out: bool, output: CapturedOutput
    ) -> tuple[tuple[LimitReached, ...], Reading | None]:
        limits, signal = requested(self._order.actor.settings.limits), ended.status & 0x7F
        others = other_reached_limits(limits, signal, *_of_output(self._order, timed_out=timed_out, output=output))
        use = group.reading() if group is not None else None
        if group is None or use is None:
            return others, None
        before, now = group.totals()
        limits = group.completed(limits)
        return (*reached_limits(limits, use, difference(now, before)), *others), use


def _dropped(plan: Plan) -> tuple[bytes, ...]:
    """Return the command's directories that end with it, relative to the root."""
    return next((step[1] for step in plan.steps if step[0] == "left"), ())


def _is_open(directory: bytes) -> bool:
    """Return whether the owner has all permissions on a directory."""
    return stat.S_IMODE(os.stat(directory).st_mode) & stat.S_IRWXU == stat.S_IRWXU


def note_failures(output: CapturedOutput, outcome: Outcome) -> None:
    """Store the first failure on the caller's own descriptors, to be raised once the changes are collected."""
    if output.failures and outcome.unwritten is None:
        message = f"a stream of the command could not be passed on: {output.failures[0]}"
        outcome.unwritten = MudroomError(message, "run it again with another place for its output")


def _of_output(order: Order, *, timed_out: bool, output: CapturedOutput) -> tuple[float | None, int | None]:
    """Return the time limit and the output limit that a command has reached, each None if not reached."""
    cut = order.actor.settings.output_limit if any(stream.truncated for stream in output.streams) else None
    return order.timeout if timed_out else None, cut


def reached_beside(order: Order, ended: Exit, *, timed_out: bool, output: CapturedOutput) -> tuple[LimitReached, ...]:
    """Return the limits that a command in a shared sandbox has reached."""
    signal = ended.status & 0x7F
    return other_reached_limits(
        requested(order.actor.settings.limits), signal, *_of_output(order, timed_out=timed_out, output=output)
    )


def flows_of(forks: Forks, fork: Fork, gate: CommandGate | None, outcome: Outcome) -> tuple[Flow, ...]:
    """Close the gate, journal the command's flows, and return them."""
    if gate is None:
        return ()
    gate.close()
    outcome.notes += gate.notes
    flows = gate.flows()
    if not flows:
        return ()
    from mudroom.core.network.flow import flow_to_json

    events = [("flow", fork.name, flow_to_json(flow)) for flow in flows]
    try:
        forks.vault.journal.append_all(events, time=forks.clock())
    except MudroomError as error:
        outcome.unwritten = error
    return tuple(flows)
