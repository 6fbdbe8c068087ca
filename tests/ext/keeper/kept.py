"""A keeper for a test's project, and commands that it runs, which fail where they would have to run in-process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clocks import give_way
from conftest import Place, tick
from mudroom.ext.keeper.client import DIRECTORY
from mudroom.ext.keeper.status import KeeperStatus, keepers, stop

IN_PROCESS = [sys.executable, "-P", "-c", "import sys; sys.argv[0] = 'mudroom'; from mudroom.cli import main; main()"]
KEPT = [
    sys.executable,
    "-P",
    "-c",
    "import sys; sys.argv[0] = 'mudroom'; from mudroom.ext.keeper.client import hand_over; sys.exit(hand_over())",
]
"""The client alone: it exits with its reason where mudroom would go on in-process."""
PATIENCE = 60.0


class Kept:
    def __init__(self, place: Place) -> None:
        self.place = place
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(place.home),
            "MUDROOM_STATE": str(place.state),
            "LC_ALL": "C.UTF-8",
        }
        self.directory = os.fsencode(place.state) + DIRECTORY
        self.pid = 0

    def start(self, *, idle: float = 600.0, look: float = 600.0) -> int:
        """Start a keeper, and wait until a process of it waits."""
        self.place.state.mkdir(mode=0o700, exist_ok=True)
        assert self.ask(f"start(PROGRAM, os.environb, idle={idle}, look={look})") != "0"
        return self.adopt()

    def ask(self, expression: str) -> str:
        """Return the value of an expression in an interpreter like that of a command."""
        program = (
            "import os; from mudroom.ext.keeper.cli.keeper_process import PROGRAM;"
            "from mudroom.ext.keeper.start import start;"
            f"from mudroom.ext.keeper.client import name_of; print({expression})"
        )
        done = subprocess.run(
            self.python(program),
            cwd=self.place.project,
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def python(self, program: str) -> list[str]:
        """Return the words that run a program in an interpreter like that of a command."""
        return [sys.executable, "-P", "-c", program]

    def wait(self) -> None:
        """Wait until a process waits for a command."""
        until = time.monotonic() + PATIENCE
        while not self.waiting():
            assert time.monotonic() < until
            give_way()

    def wait_for_end(self) -> None:
        """Wait until the keeper runs no command: its process ends a moment after the client."""
        until = time.monotonic() + PATIENCE
        while self.list()[0].commands:
            assert time.monotonic() < until
            give_way()

    def adopt(self) -> int:
        """Take a keeper that a command has started for this test's."""
        until = time.monotonic() + PATIENCE
        while not self.list():
            assert time.monotonic() < until
            give_way()
        self.pid = self.list()[0].pid
        self.wait()
        return self.pid

    def waiting(self) -> list[int]:
        """The process that waits, in the keeper's session: one that runs a command has its own."""
        if self.pid not in [row.pid for row in self.list()]:
            return []  # it rehearses
        sessions = {child: session_of(child) for child in children(self.pid)}
        return [child for child, session in sessions.items() if session == self.pid]

    def __call__(self, *words: str | bytes, kept: bool = True, **options: Any) -> subprocess.CompletedProcess[bytes]:
        """Run a command. ``kept``: by the keeper, otherwise in-process."""
        tick()
        if kept:
            self.wait()
        environment = {**self.environment, **options.pop("more", {}), **({} if kept else {"MUDROOM_KEEPER": "0"})}
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        return subprocess.run(
            [*(KEPT if kept else IN_PROCESS), *words],
            **{"cwd": self.place.project, "env": environment, "timeout": PATIENCE, **options},
            check=False,
        )

    def popen(self, *words: str, kept: bool = True, **options: Any) -> subprocess.Popen[bytes]:
        tick()
        if kept:
            self.wait()
        environment = {**self.environment, **({} if kept else {"MUDROOM_KEEPER": "0"})}
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        command = [*(KEPT if kept else IN_PROCESS), *words]
        return subprocess.Popen(command, **{"cwd": self.place.project, "env": environment, **options})

    def wait_prepared(self) -> int:
        """Wait until a template and its spare are ready for a command. Return the template's pid."""
        until = time.monotonic() + PATIENCE
        while True:
            self.wait()
            launchers = [launcher for waiting in self.waiting() for launcher in children(waiting)]
            templates = [template for launcher in launchers for template in children(launcher)]
            if len(launchers) == len(templates) == len(children(self.pid)) == 1 and len(children(templates[0])) == 1:
                return templates[0]
            assert time.monotonic() < until
            give_way()

    def list(self) -> list[KeeperStatus]:
        return keepers(self.directory)

    def stop(self) -> None:
        stop(self.directory)


def session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


@pytest.fixture
def kept(place: Place) -> Iterator[Kept]:
    """A keeper that is not started yet."""
    kept = Kept(place)
    yield kept
    kept.stop()
