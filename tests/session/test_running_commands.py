"""Signals to a command that is just being started."""

from __future__ import annotations

import signal
from typing import cast

from mudroom.sandbox.client.client import Running
from mudroom.session.order import Outcome
from mudroom.session.users import RunningCommands
from mudroom.vault.store.fork import Fork

FORK = Fork("a", b"/nowhere/forks/a", b"/nowhere")


class Recorded:
    """A running command that notes its signals."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def signal(self, number: int) -> None:
        self.told.append(number)


def test_a_signal_that_comes_during_the_start_is_sent_afterwards() -> None:
    commands, outcome, running = RunningCommands(), Outcome(), Recorded()

    def begin() -> Running:
        assert commands.has_run
        assert commands.signal(signal.SIGTERM, "a") and not commands.signal(signal.SIGTERM, "b")
        return cast(Running, running)

    commands.start(outcome, FORK, begin)
    assert running.told == [signal.SIGTERM]


def test_a_signal_for_a_failed_attempt_is_for_the_next_one() -> None:
    commands, outcome, (first, second) = RunningCommands(), Outcome(), (Recorded(), Recorded())
    commands.start(outcome, FORK, lambda: cast(Running, first))
    commands.signal(signal.SIGTERM, None)
    commands.failed(outcome)
    commands.signal(signal.SIGKILL, None)
    commands.start(outcome, FORK, lambda: cast(Running, second))
    assert (first.told, second.told) == ([signal.SIGTERM], [signal.SIGTERM, signal.SIGKILL])


def test_after_its_end_a_command_gets_no_signal() -> None:
    commands, outcome, running = RunningCommands(), Outcome(), Recorded()
    commands.start(outcome, FORK, lambda: cast(Running, running))
    commands.remove(outcome)
    assert not commands.signal(signal.SIGTERM, None)
    assert running.told == [] and commands.has_run
