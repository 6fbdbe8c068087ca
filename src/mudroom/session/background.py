"""Start a background command in a fork; the handle on such a command.

Steps: judge, ask, take the fork, find or open a shared sandbox, checkpoint, journal, start.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

from mudroom.core.background import BackgroundEnd, BackgroundStart
from mudroom.core.confinement.fallback import Mode
from mudroom.core.result import Result, text, verdict_to_json
from mudroom.core.system.closing import ClosedOnError
from mudroom.core.tree.quote import show_words
from mudroom.errors import Unsupported, UsageError
from mudroom.sandbox.client.capture import GRACE
from mudroom.sandbox.client.held import hold
from mudroom.sandbox.client.invocation import RunOptions
from mudroom.sandbox.client.report import StepFailed
from mudroom.session.forks import Forks
from mudroom.session.joined_sandbox import JoinedSandbox
from mudroom.session.machine import Machine, freezes
from mudroom.session.order import Case, Order, Outcome
from mudroom.session.own_sandbox import (
    cache_mode,
    enter_home,
    enter_private_home,
    flows_of,
    home_of,
    settled_vault,
    shown,
)
from mudroom.session.run import Parts, refused
from mudroom.session.sandboxes import Sandboxes
from mudroom.session.shared_sandbox.tender import Basis, SharedSandbox
from mudroom.stage.view import View
from mudroom.typing import TYPE_CHECKING
from mudroom.vault.forks.background import StreamPart, read_part, read_ring
from mudroom.vault.forks.collection import stand_on_base, view_of, with_objects
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.moment import command_start
from mudroom.vault.store.fork import Fork, mount_note
from mudroom.vault.store.store import Vault

if TYPE_CHECKING:
    from mudroom.sandbox.host.processes import ProcessUsage


# --- the shared sandbox for a fork's first background command ---


class Opening:
    """Holds the fork's lock and a turn from ``__init__`` until the sandbox has ended, or until ``close`` if none was
    made. Used by one thread."""

    def __init__(self, machine: Machine, forks: Forks, fork: Fork, order: Order, outcome: Outcome) -> None:
        """Raise UsageError if this thread has the vault alone: a background command would outlive that hold."""
        self._machine, self._forks, self._fork = machine, forks, fork
        self._order, self._outcome = order, outcome
        if order.alone:
            raise UsageError(
                "nothing can be started in the background while the project is changed", "try again when it has ended"
            )
        self._resources = ExitStack()
        with ClosedOnError(self):
            self._vault = self._take()

    def close(self) -> None:
        self._resources.close()

    def _take(self) -> Vault:
        """Return the vault with the command's mask. The fork is idle then, and its file tools are flushed."""
        forks, fork, resources = self._forks, self._fork, self._resources
        resources.enter_context(forks.locked(fork, "commands in the background (mudroom ps)"))
        resources.enter_context(forks.exclusive.turn(alone=False, waiting=forks.waiting))
        return settled_vault(forks, fork, mount_note(fork), self._order, self._outcome, resources, repairs=False)

    def checkpoint_before(self) -> str:
        """Freeze the fork's files before the command and return the checkpoint's name."""
        return self._forks.checkpoint_before(self._fork, self._order.argv, self._order.actor.settings.keep_applies)

    def made(self) -> SharedSandbox:
        """Make and return the sandbox. Call ``SharedSandbox.begin`` once its first command has been started."""
        forks, fork, order, outcome = self._forks, self._fork, self._order, self._outcome
        settings, level = order.actor.settings, order.grant.level
        self._resources.callback(forks.tools.refresh, fork)
        fork.note_credentials(order.grant.credentials)
        mode = self._machine.first_mode(fork, order, outcome)
        outcome.notes += [*order.grant.notes, *self._machine.confinement.missing_credentials(settings)]
        while True:
            if outcome.mounted is None:
                needs = freezes(self._machine, fork, order)
                outcome.notes += stand_on_base(self._vault, fork, mode, settings, forks.progress, freezes=needs)
            try:
                with OpenFork(self._vault, fork) as opened, ExitStack() as attempt:
                    view = view_of(self._vault, fork, opened, mode, forks.progress, level=level)
                    view.prepare()
                    shared = self._held(view, mode, attempt)
            except StepFailed as failure:
                if failure.op == "mounted":
                    from mudroom.session.mounts import not_shown

                    raise not_shown(fork) from failure
                if outcome.mounted is not None and failure.op == "overlay":
                    self._machine.confinement.mode = "copy"  # for its caches: the fork's files are mounted
                    continue
                mode = self._machine.weaker(mode, failure, order, outcome)
                continue
            forks.users.share(shared)
            return shared

    def _held(self, view: View, mode: Mode, attempt: ExitStack) -> SharedSandbox:
        machine, forks, fork, order = self._machine, self._forks, self._fork, self._order
        settings, vault = order.actor.settings, self._vault
        stored = machine.stored_rules(order.actor, order.grant.level)
        equipment = machine.equipment(mode, order, stored)
        gated, port = machine.at_the_gate(fork, mode, order, self._outcome, None, equipment, stored)
        gate = attempt.enter_context(gated)
        rlimits, leaf = attempt.enter_context(machine.limited(mode, order, Outcome()))
        grant, files = attempt.enter_context(home_of(machine, fork, order, mode, self._outcome))
        caches, within = machine.caches(vault, fork, order), cache_mode(machine, self._outcome, mode)
        plan, _environment = machine.confinement.plan(
            view.mount(), mode, vault.project, fork.path + b"/private", with_objects(vault, fork, settings), rlimits,
            grant, port, shown(equipment),
            machine.cache_view(caches, within, order), gate.loopback if gate is not None else (),
        )  # fmt: skip
        if grant.files:
            enter_private_home(plan, fork, files)
        machine.ended.wait_before(fork)
        note = self._outcome.mounted
        started = note.since if note is not None else command_start(vault.path, order.called)
        fork.begin(started)
        try:
            want_gate = gate is not None and gate.is_inside
            client = attempt.enter_context(machine.at_its_place(plan, fork, order))
            held = hold(client, plan, RunOptions(view=True, left=bool(grant.files), gate=want_gate, leaf=leaf))
            for descriptor in enter_home(held.running, plan, machine.confinement.home, files)[0] if grant.files else ():
                os.close(descriptor)
        except BaseException:
            fork.end()
            raise
        if gate is not None:
            gate.began(held.running)
            attempt.callback(flows_of, forks, fork, gate, Outcome())
        forks.tools.go_live(fork.name, held.running, vault.mask.paths)
        forks.tools.resume(fork.name)
        attempt.callback(forks.tools.end_live, fork.name)
        self._resources.push(attempt.pop_all())
        environment = dict(equipment.environment) if equipment is not None else {}
        give_back = functools.partial(caches.give_back, settings.cache_limit)
        basis = Basis(
            vault, fork, mode, started, machine.terms(order), environment, port, forks.clock, give_back,
            forks.remarks.extend, functools.partial(forks.tools.end_live, fork.name), forks.secrets.hides,
        )  # fmt: skip
        return SharedSandbox(basis, held, gate, leaf, self._resources, forks.users.over, files)


# --- the command ---

LATER = 0.05
"""Seconds between two reads of the rows that another process writes."""


class Background:
    """A background command in a fork. It ends with its session."""

    def __init__(self, sandboxes: Sandboxes, started: BackgroundStart, refused: Result | None = None) -> None:
        self._sandboxes, self.started, self.refused = sandboxes, started, refused
        """``refused``: the result of a command that was refused; None: it was started."""
        self.id, self.fork, self.argv = started.id, started.fork, started.command

    @classmethod
    def none(cls, sandboxes: Sandboxes, refused: Result) -> Background:
        """Return the handle for a refused command, without an id and with the reason (``refused``)."""
        return cls(sandboxes, BackgroundStart("", refused.fork, refused.command, b"", 0, 0), refused)

    def __repr__(self) -> str:
        return f"Background({self.id!r}, {show_words(self.argv)!r})"

    def usage(self) -> ProcessUsage | None:
        """Return its processes' present resource use, and their pids outside and inside; None if none runs."""
        return self._sandboxes.usages().get(self.id)

    def poll(self) -> BackgroundEnd | None:
        """Return how it has ended; None while it runs. If the process that held it was killed, settle its end first."""
        rows = self._sandboxes.backgrounds(self.fork)
        return next((ended for started, ended in rows if started.id == self.id), None)

    def wait(self, timeout: float | None = None) -> BackgroundEnd | None:
        """Block until it has ended and its changes are collected. Return None after ``timeout`` seconds."""
        return self._sandboxes.waited(self.started, timeout, lambda: self._poll_until(timeout))

    def _poll_until(self, timeout: float | None) -> BackgroundEnd | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (ended := self.poll()) is None and (deadline is None or time.monotonic() < deadline):
            time.sleep(LATER)
        return ended

    def end(self, grace: float = GRACE) -> BackgroundEnd | None:
        """Send SIGTERM, then SIGKILL after ``grace`` seconds. Block until it is gone."""
        self._sandboxes.end(self.fork, [self.id], grace)
        return self.wait()

    def output(self) -> tuple[bytes, bytes]:
        """Return its stdout and stderr so far: the end of each, at least a mebibyte."""
        place = self._sandboxes.place(self.started)
        return read_ring(place + b"/stdout"), read_ring(place + b"/stderr")

    def printed(self, marks: Sequence[str] = ("", ""), limit: int = 1 << 16) -> tuple[StreamPart, StreamPart]:
        """Return its stdout and stderr since an earlier answer's ``marks``, or the end of each: at most ``limit`` bytes
        each, however fast it writes."""
        place = self._sandboxes.place(self.started)
        out, err = marks
        return read_part(place + b"/stdout", out, limit), read_part(place + b"/stderr", err, limit)


# --- starting ---


def start(parts: Parts, order: Order) -> Background:
    """Start a background command in its order's fork, which is made if it does not exist. If the command is refused,
    return a handle with the reason (``Background.refused``). Raise Unsupported on Windows."""
    if sys.platform == "win32":
        raise Unsupported("a command in the background", "namespaces that others can join", "a job")
    name = f"run-{parts.forks.new_id()}" if order.fork is None else order.fork
    case = parts.approval.asked(order, parts.approval.judge(order), name)
    if not case.allowed:
        return Background.none(parts.sandboxes, refused(parts, order, case))
    with parts.forks.taken(name, named=order.fork is not None) as (fork, is_new):
        with parts.forks.users.opening(fork.name):
            background = _started(parts, fork, order, case)
        if background is not None:
            return background
        if is_new:
            parts.forks.take_back(fork)
        return Background.none(parts.sandboxes, refused(parts, order, case.changed()))


def _started(parts: Parts, fork: Fork, order: Order, case: Case) -> Background | None:
    """Return None if the command has changed since its approval."""
    outcome = Outcome()
    with parts.sandboxes.joined(fork, order, outcome) as place:
        if place is not None:
            if not parts.approval.holds(order, case, fork):
                return None
            point = place.checkpoint_before() if case.wants_checkpoint else None
            return _begun(parts, fork, order, case, place, point)
    opening = Opening(parts.machine, parts.forks, fork, order, outcome)
    with ClosedOnError(opening):
        if not parts.approval.holds(order, case, fork):
            opening.close()
            return None
        point = opening.checkpoint_before() if case.wants_checkpoint else None
        shared = opening.made()
    try:
        return _begun(parts, fork, order, case, parts.sandboxes.place_in(shared, fork, order, outcome), point)
    finally:
        shared.begin()


def _begun(parts: Parts, fork: Fork, order: Order, case: Case, place: JoinedSandbox, point: str | None) -> Background:
    _environment, inside = place.inside()
    started = BackgroundStart(
        parts.forks.new_id(),
        fork.name,
        order.argv,
        inside,
        parts.forks.clock(),
        os.getpid(),
        order.grant.level,
        order.actor.agent or "",
        order.timeout,
        order.companion,
    )
    _journal(parts, order, started, case, point)  # first: a command that cannot be journalled is not started
    place.start(started)
    return Background(parts.sandboxes, started)


def _journal(parts: Parts, order: Order, started: BackgroundStart, case: Case, point: str | None) -> None:
    data = {
        "id": started.id,
        "command": [text(word) for word in started.command],
        "cwd": text(order.cwd),
        "agent": order.actor.agent,
        "verdict": verdict_to_json(case.final),
        "checkpoint": point,
        "level": started.level,
        "timeout": started.timeout,
    }
    parts.forks.vault.journal.append("background", started.fork, data, time=started.time)
