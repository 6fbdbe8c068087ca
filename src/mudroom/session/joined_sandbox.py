"""A command in its fork's shared sandbox, which this process or another holds."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager

from mudroom.core.network.flow_log import flows_since
from mudroom.core.tree.change import Changeset
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, Unsupported, UsageError
from mudroom.sandbox.client.capture import CapturedOutput, Watch, attend
from mudroom.sandbox.client.held import ENDING
from mudroom.sandbox.client.invocation import Exit, Invocation
from mudroom.session.forks import Forks
from mudroom.session.machine import Machine
from mudroom.session.order import CommandEnd, Order, Outcome
from mudroom.session.own_sandbox import note_failures, reached_beside, relay_for
from mudroom.session.users import Occupied, RunningCommands
from mudroom.typing import TYPE_CHECKING
from mudroom.vault.forks.background import Book
from mudroom.vault.forks.collection import CollectedCommand, work_place
from mudroom.vault.store.fork import Fork
from mudroom.vault.turn import LOOK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mudroom.core.background import BackgroundStart
    from mudroom.sandbox.client.terminal import Relay
    from mudroom.session.users import Standing

MARK = b"MUDROOM_BACKGROUND"
"""Environment variable with a background command's id. The command's processes inherit it, which identifies them from
outside the sandbox."""


def nothing() -> None:
    """Do nothing: the tender pauses the sandbox; this command only gives up its turn."""


class JoinedSandbox:
    """One command's place in a shared sandbox. Used by one thread, within ``users.py:Users.beside``, which keeps the
    sandbox alive."""

    def __init__(
        self,
        machine: Machine,
        forks: Forks,
        fork: Fork,
        standing: Standing,
        order: Order,
        outcome: Outcome,
        running: RunningCommands,
    ) -> None:
        self._machine, self._forks, self._fork, self._standing = machine, forks, fork, standing
        self._order, self._outcome, self._running = order, outcome, running
        self._terms = machine.terms(order)
        self._turn, self._has_turn = ExitStack(), False

    def close(self) -> None:
        self._turn.close()

    def require_same(self) -> None:
        """Raise Occupied if the sandbox does not fit the command: it masks a secret that the command is shown, leaves a
        secret readable that the command must not read, or has other terms."""
        mask, notes = self._forks.secrets.look(self._order.actor.settings)
        self._outcome.note(*notes)
        hidden = sorted(mask.shown & self._standing.masked)
        if hidden:
            raise Occupied(f"{show(hidden[0])} is a secret that the commands in the background see empty", ENDING)
        new = sorted(mask.paths - self._standing.masked)
        if new:
            raise Occupied(f"{show(new[0])} is a secret that the commands in the background can read", ENDING)
        if self._has_turn and self._standing.is_elsewhere:
            return  # its holder may be waiting for the end of our turn; it compares the terms with the command
        try:
            self._standing.require_terms(self._terms())
        except UsageError as error:
            raise Occupied(error.message, error.hint) from error

    def checkpoint_before(self) -> str:
        """Freeze the fork's files before the command and return the checkpoint's name."""
        return self._forks.checkpoint_beside(
            self._standing,
            self._fork.name,
            self._order.argv,
            keep=self._order.actor.settings.keep_applies,
            terms=self._terms(),
        )

    def start(self, started: BackgroundStart) -> None:
        environment, _inside = self.inside()
        environment[MARK] = started.id.encode()
        self._standing.start(started, environment, self._terms(), self._order.pipes)

    def inside(self) -> tuple[dict[bytes, bytes], bytes]:
        """Return the command's environment and working directory, as seen inside."""
        standing, fork, order = self._standing, self._fork, self._order
        self._machine.note_caches(fork, order)
        variables, cwd = self._machine.confinement.beside(
            work_place(fork), standing.mode, order.cwd, fork.path + b"/private", order.actor.settings,
            order.grant, standing.port,
        )  # fmt: skip
        return variables | standing.environment, cwd

    def run(self, order: Order, outcome: Outcome) -> CommandEnd:
        """Start the command in the shared sandbox and attend to it until it ends."""
        standing = self._standing
        self._turn.enter_context(self._forks.exclusive.turn(alone=order.alone, waiting=self._forks.waiting))
        self._has_turn = True
        self.require_same()
        outcome.notes += order.grant.notes
        before = standing.flows()
        with self._relay(order) as relay:
            descriptors = relay.descriptors if relay is not None else order.stdio[:3]
            own = relay.own if relay is not None else ()
            limit, heard = order.actor.settings.output_limit, order.stdio.on_output
            with CapturedOutput(*descriptors, limit, heard, own) as output:
                ended, timed_out = self._attend(order, outcome, output, relay)
                if self._keeps():
                    from mudroom.sandbox.client.stream import OutputRelay  # not on Windows

                    for stream in output.relays:
                        if isinstance(stream, OutputRelay):
                            stream.hand_over()
            note_failures(output, outcome)
        limits = reached_beside(order, ended, timed_out=timed_out, output=output)
        now = standing.flows()
        if now:
            outcome.flows = tuple(flows_since(before, now))
        return CommandEnd(ended, timed_out, output, limits, None, outcome.flows)

    def _keeps(self) -> bool:
        """Return whether the processes that the command leaves go on: in the session of an agent."""
        return any(started.companion and ended is None for started, ended in Book(self._fork).rows())

    @contextmanager
    def _relay(self, order: Order) -> Iterator[Relay | None]:
        relay = relay_for(order.stdio)
        try:
            if relay is not None and relay.numbers and self._standing.mode == "landlock":
                raise Unsupported(
                    "a terminal beside a command in the background", "user namespaces", "none are permitted here"
                )
            yield relay
        finally:
            if relay is not None:
                relay.close()

    def _attend(self, order: Order, outcome: Outcome, output: CapturedOutput, relay: Relay | None) -> tuple[Exit, bool]:
        environment, cwd = self.inside()
        numbers = relay.numbers if relay is not None else ()
        turn = self._forks.vault.turn
        watch = None if order.alone else Watch(LOOK, lambda: turn.stand_aside(nothing, nothing))
        terms = self._terms()
        try:
            invocation = Invocation(order.argv, environment, output.descriptors, numbers, self._keeps())
            outcome.running = running = self._running.start(
                outcome, self._fork, lambda: self._standing.join(invocation, cwd, terms)
            )
            if relay is not None:
                relay.start(running)
            return attend(running, output, order.timeout, nothing, watch)
        finally:
            self._running.remove(outcome)
            if outcome.running is not None:
                outcome.running.close()
                outcome.running = None

    def collect(self, command: CollectedCommand) -> Changeset:
        """Record the fork's changes after the command."""
        if self._standing.is_elsewhere:
            # The other process holds its own turn while it collects: waiting for it with ours held would deadlock.
            self._turn.close()
        try:
            self._standing.collect(command)
        except UsageError:
            raise
        except MudroomError:  # the process that held the sandbox is gone, with its commands
            self._outcome.notes.append("the background commands of the fork were ended, and this command with them")
            place = self._forks.vault.fork(self._fork.name)
            with place.lock("looking at what is left"):
                self._forks.settle(place)
        record = self._forks.vault.fork(self._fork.name).record
        return record.changeset if record is not None else Changeset()
