"""Ctrl-C before there is a command: while a container starts, while the launcher comes up."""

from __future__ import annotations

import contextlib
import os
import signal
from types import SimpleNamespace
from typing import cast

import pytest

from conftest import Place
from mudroom.cli.terminal.command_signals import command_signals
from mudroom.core.confinement.plan import Plan
from mudroom.sandbox.client.invocation import Invocation
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.session import Session


class Waiting:
    """A session, as far as ``command_signals`` looks at it."""

    def __init__(self, *, running: bool, has_run: bool, is_asking: bool = False) -> None:
        self.running, self.told = running, 0
        self.sandboxes, self.approval = SimpleNamespace(has_run=has_run), SimpleNamespace(is_asking=is_asking)

    def interrupt(self, _number: int) -> bool:
        self.told += 1
        return self.running


@pytest.mark.parametrize(
    ("running", "has_run", "is_asking"),
    [(True, True, False), (False, True, False), (False, False, True), (False, False, False)],
)
def test_who_hears_of_it(running: bool, has_run: bool, is_asking: bool) -> None:
    """A command that runs or has run, and one that asks. Before that it ends mudroom."""
    session = Waiting(running=running, has_run=has_run, is_asking=is_asking)
    ends = contextlib.nullcontext() if has_run or is_asking else pytest.raises(KeyboardInterrupt)
    with ends, command_signals(cast(Session, session)):
        signal.raise_signal(signal.SIGINT)
    assert session.told == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_a_launcher_that_is_coming_up_hears_nothing(
    number: int, place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(10):
        client = LauncherClient(SpawnedLauncher())
        client.start()
        os.kill(client.launcher.require_pid(), number)
        script = "trap 'exit 7' INT; kill -INT $$; exit 8"  # a command is asked to end all the same
        plan = Plan(0, (b"", b"", False), (("cwd", b"/"),))
        shell = [b"/bin/sh", b"-c", script.encode()]
        running = client.run(plan, Invocation(shell, {b"PATH": b"/usr/bin:/bin"}, (0, 1, 2)))
        assert running.wait().status == 7 << 8
        client.close()
    assert capfd.readouterr().err == ""
