"""The sandbox of a fork in whose background something runs: made, found, and refused to who cannot be in it."""

from __future__ import annotations

import os
from _blake2 import blake2b
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from mudroom.core.confinement.fallback import Mode
from mudroom.core.tree.path import show
from mudroom.deciding import Case, Deciding
from mudroom.errors import UsageError
from mudroom.sandbox.client.client import StepFailed
from mudroom.starting import shown
from mudroom.vault.forks import stacking
from mudroom.vault.forks.collection import stand_on_copy, view_of
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork

if TYPE_CHECKING:
    from mudroom.stage.view import View
    from mudroom.tending import Tended
    from mudroom.visits import Visit


def nothing() -> None:
    """The sandbox stands aside by itself: whoever is in it only lets go of the turn."""


class Holding(Deciding):
    """The part of a session that has such sandboxes; what runs in them is another's (``joining.py``)."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._tended: dict[str, Tended] = {}
        """By fork: the sandboxes that this session holds."""

    @contextmanager
    def _beside(self, fork: Fork) -> Iterator[Tended | Visit | None]:
        """The sandbox that this fork has now, and keeps for as long as the block runs; None if it has none."""
        tended = self._tended.get(fork.name)
        if tended is not None:
            with tended.guest() as welcome:
                if welcome:
                    yield tended
                    return
            tended.wait()
        visit = None if self._alone else self._visit(fork)  # who holds it stands aside then, and hears nobody
        if visit is None:
            yield None
            return
        with visit:
            yield visit

    def _visit(self, fork: Fork) -> Visit | None:
        if not os.path.exists(fork.path + b"/background/sandbox"):
            return None
        from mudroom.visits import visit

        return visit(fork)

    def _require_free(self, fork: Fork) -> None:
        """Raises UsageError if something runs in the background of a fork: nobody else can have it."""
        if not os.path.exists(fork.path + b"/background/sandbox"):
            return
        from mudroom.vault.forks.background import Book

        rows = [started for started, ended in Book(fork).rows() if ended is None]
        with fork.lock_if_free("looking at what is left") as free:
            if free or not rows:  # whoever held them has been killed, or is about to let go
                return
        what = ", ".join(f"{one.id}: {show(b' '.join(one.command))}" for one in rows)
        raise UsageError(
            f"a command is running in the background of the fork {fork.name} ({what})",
            f"mudroom ps --end {rows[0].id} ends it",
        )

    def _open(self, fork: Fork, case: Case, argv: Sequence[bytes]) -> tuple[Tended, str | None] | None:
        """Make the sandbox for a command. The fork's lock and our turn are held from here on, until it is over. What is
        returned beside is the checkpoint before the command, if there is to be one. None, and nothing is held: now
        that the fork is ours, the command is not what was approved."""
        if self._alone:
            raise UsageError("nothing can be started in the background while the project is changed")
        resources = ExitStack()
        try:
            resources.enter_context(self._locked(fork, "commands in the background (mudroom ps)"))
            resources.enter_context(self._turn())
            stacking.require_idle(fork)
            self._notes += self.look_for_secrets()
            self._settle(fork)
            self._notes += self._desk.flush(fork)
            if not self._is_unchanged(case, fork):
                resources.close()
                return None
            resources.callback(self._desk.refresh, fork)
            point = self._checkpoint_before(fork, argv) if case.verdict.action != "allow" else None
            fork.note_credentials(self._grant.credentials)
            mode, notes = self._first_mode(fork)
            self._notes += [*self._grant.notes, *notes, *self.confinement.missing_credentials(self.settings)]
            while True:
                if mode != "overlay":
                    self._notes += stand_on_copy(self.vault, fork, self.settings, self._progress)
                try:
                    with OpenFork(self.vault, fork) as opened, ExitStack() as attempt:
                        view = view_of(self.vault, fork, opened, mode, self._progress, level=self._grant.level)
                        view.prepare()
                        tended = self._hold(fork, view, mode, attempt, resources)
                        break
                except StepFailed as failure:
                    mode = self._weaker(mode, failure)
        except BaseException:
            resources.close()
            raise
        self._tended[fork.name] = tended
        return tended, point

    def _hold(self, fork: Fork, view: View, mode: Mode, attempt: ExitStack, resources: ExitStack) -> Tended:
        from mudroom.sandbox.client.held import hold
        from mudroom.tending import Setting, Tended

        stand_ins = self._hold_limits(mode)
        equipment = self._equipment(mode)
        gated, port = self._at_the_gate(fork, mode, None, equipment)
        gate = attempt.enter_context(gated)
        leaf = attempt.enter_context(self._group(fork))
        mirror = self._mirror()
        if mirror is not None:
            attempt.callback(mirror.close)
        plan, _environment = self.confinement.plan(
            view.mount(), mode, self.project, fork.path + b"/private", self.settings, stand_ins, self._grant, port,
            shown(equipment),
        )  # fmt: skip
        self._after_the_last(fork)
        started = self._start_time()
        fork.begin(started)
        try:
            want_gate = gate is not None and gate.is_inside
            client = attempt.enter_context(self._at_its_place(plan, fork))
            held = hold(client, plan, want_view=True, want_gate=want_gate, leaf=leaf)
        except BaseException:
            fork.end()
            raise
        if gate is not None:
            gate.began(held.running)
            attempt.callback(self._flows, fork, gate)
        self._desk.go_live(fork.name, held.running)
        attempt.callback(self._desk.end_live, fork.name)
        resources.push(attempt.pop_all())
        environment = dict(equipment.environment) if equipment is not None else {}
        setting = Setting(self.vault, fork, mode, started, self._terms(), environment, port, self._clock)
        return Tended(setting, held, gate, leaf, resources, self._is_over, mirror)

    def _is_over(self, tended: Tended) -> None:
        self._tended.pop(tended.fork.name, None)

    def _terms(self) -> Callable[[], str]:
        """What the commands of a sandbox may see and do, as far as that is not the host's or the project's: only who
        asks for the same can join it. Asked for again and again, because the gate follows its rules while commands
        run: it is the others, of a card, that must not be lent to whoever comes."""
        settings, grant, rules = self.settings, self._grant, self._gate_answers[0]
        network = settings.network_at(grant.level)
        facts = (
            network, settings.read, settings.credentials, settings.limits, settings.secrets_show,
            grant.level, grant.credentials, grant.live, grant.abstract, grant.gpu, grant.image,
        )  # fmt: skip

        def terms() -> str:
            hosts = tuple(rules()) if network == "gate" else ()
            return blake2b(repr((facts, hosts)).encode(), digest_size=16).hexdigest()

        return terms

    def _require_same(self, beside: Tended | Visit) -> None:
        """Raises UsageError if a command as it would be run now cannot be run there."""
        from mudroom.sandbox.client.held import ENDING
        from mudroom.tending import Tended
        from mudroom.visits import OTHER_TERMS

        self._notes += self.look_for_secrets()
        masked = frozenset(beside.mask.paths) if isinstance(beside, Tended) else beside.masked
        new = sorted(frozenset(self.vault.mask.paths) - masked)
        if new:
            raise UsageError(f"{show(new[0])} is a secret that the commands in the background can read", ENDING)
        if isinstance(beside, Tended) and beside.setting.terms() != self._terms()():
            raise UsageError(OTHER_TERMS, ENDING)

    def _inside(self, fork: Fork, beside: Tended | Visit, cwd: bytes) -> tuple[dict[bytes, bytes], bytes]:
        mode, port, more = common_of(beside)
        work, private = fork.copy_place + b"/work", fork.path + b"/private"
        found = self.confinement.beside(work, mode, cwd, private, self.settings, self._grant, port)
        return found[0] | more, found[1]


def common_of(beside: Tended | Visit) -> tuple[Mode, int, dict[bytes, bytes]]:
    from mudroom.tending import Tended

    if isinstance(beside, Tended):
        return beside.setting.mode, beside.setting.port, beside.setting.environment
    return beside.common["mode"], beside.common["port"], beside.environment
