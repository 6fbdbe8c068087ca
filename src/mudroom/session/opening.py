"""Make a shared sandbox for a fork's first background command."""

from __future__ import annotations

import functools
import os
from contextlib import ExitStack

from mudroom.core.confinement.fallback import Mode
from mudroom.errors import UsageError
from mudroom.sandbox.client.held import hold
from mudroom.sandbox.client.invocation import RunOptions
from mudroom.sandbox.client.report import StepFailed
from mudroom.session.forks import Forks
from mudroom.session.machine import Machine, freezes
from mudroom.session.order import Order, Outcome
from mudroom.session.own_sandbox import (
    cache_mode,
    enter_home,
    enter_private_home,
    flows_of,
    home_of,
    settled_vault,
    shown,
)
from mudroom.session.shared_sandbox.tender import Basis, SharedSandbox
from mudroom.stage.view import View
from mudroom.vault.forks.collection import stand_on_base, view_of, with_objects
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.moment import command_start
from mudroom.vault.store.fork import Fork, mount_note
from mudroom.vault.store.store import Vault


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
        try:
            self._vault = self._take()
        except BaseException:
            self.close()
            raise

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
        stored = machine.stored_rules(order.actor.settings, order.grant.level)
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
            forks.remarks.extend, functools.partial(forks.tools.end_live, fork.name),
        )  # fmt: skip
        return SharedSandbox(basis, held, gate, leaf, self._resources, forks.users.over, files)
