"""A keeper for a test's project, and commands that it runs, which fail where they would have to run in-process.

The program is built as a wheel has it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from box import children
from clocks import give_way
from conftest import Place, tick
from mudroom.ext.keeper import start
from mudroom.ext.keeper.status import KeeperStatus, keepers, stop
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from native_init import COMPILERS, STRICT

SOURCES = sorted((Path(__file__).parents[3] / "src/native").glob("*.c"))
LEFT = b"left to the script\n"
"""The answer of the script where the program leaves a command to it, and a test wants a keeper to run it."""
PATIENCE = 60.0
SCRIPT = f"""#!{sys.executable}
import os, sys
task = os.environ.pop("KEPT", "")
if task == "program":
    exec(sys.argv[1])
elif task == "keeper":
    try:
        os.write(2, {LEFT!r})
    finally:
        os._exit(99)
else:
    from mudroom.cli import main
    main()
"""
"""The script beside the program, for tests: KEPT says what is to be done where no keeper runs the command."""


def compile_client(directory: Path, *options: str, compiler: str = COMPILERS[0] if COMPILERS else "cc") -> Path:
    """Build the program in ``directory``, with the script beside it. Return its path."""
    program = directory / "mudroom"
    subprocess.run([compiler, *STRICT, *(options or ("-O2",)), *SOURCES, "-o", program], check=True)
    script = directory / "mudroom-python"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    tick()
    return program


_BUILT: list[Path] = []


def built(factory: pytest.TempPathFactory) -> Path:
    """Return the program, which is built once."""
    if not COMPILERS:
        pytest.skip("no C compiler")
    if not _BUILT:
        _BUILT.append(compile_client(factory.mktemp("native")))
    return _BUILT[0]


class Kept:
    def __init__(self, place: Place, program: Path) -> None:
        self.place = place
        self.program, self.script = str(program), f"{program}-python"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(place.home),
            "MUDROOM_STATE": str(place.state),
            "LC_ALL": "C.UTF-8",
        }
        self.directory = os.fsencode(place.state) + start.DIRECTORY
        self.pid = 0
        self.name = ""

    def start(self, *, idle: float = 600.0, look: float = 600.0) -> int:
        """Start a keeper, and wait until a process of it waits."""
        self.place.state.mkdir(mode=0o700, exist_ok=True)
        assert self.ask(f"start(PROGRAM, os.environb, {self.wanted()!r}, idle={idle}, look={look})") != "0"
        return self.adopt()

    def names(self) -> list[str]:
        """Return what the program says where no keeper runs a command: why, and the names of the keepers for its
        control group, limits and variables alone, for its variables, and for all."""
        done = self.run([self.program, "ls", "--none"], MUDROOM_KEEPER="only")
        assert done.returncode == 125, done
        return done.stdout.split()

    def wanted(self) -> bytes:
        """Return what the program tells its script, before there is a keeper."""
        *_others, own, self.name = self.names()
        return f"{start.PROTOCOL} {self.name} {own}".encode()

    def ask(self, expression: str) -> str:
        """Return the value of an expression in an interpreter like that of a command."""
        program = (
            "import os; from mudroom.ext.keeper.cli.keeper_process import PROGRAM;"
            f"from mudroom.ext.keeper.start import start; print({expression})"
        )
        done = self.run([self.script, program], KEPT="program")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def run(self, words: Sequence[str], **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=self.place.project, env=self.environment | more, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip

    def way(self, kept: bool) -> tuple[str, dict[str, str]]:
        """Return the first word and the environment of a command that runs by the keeper, or in-process."""
        if kept:
            return self.program, {**self.environment, "KEPT": "keeper"}
        return self.script, {**self.environment, "MUDROOM_KEEPER": "0"}

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
        first, environment = self.way(kept)
        environment |= options.pop("more", {})
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        return subprocess.run(
            [first, *words],
            **{"cwd": self.place.project, "env": environment, "timeout": PATIENCE, **options},
            check=False,
        )

    def popen(self, *words: str, kept: bool = True, **options: Any) -> subprocess.Popen[bytes]:
        tick()
        if kept:
            self.wait()
        first, environment = self.way(kept)
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        return subprocess.Popen([first, *words], **{"cwd": self.place.project, "env": environment, **options})

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


@pytest.fixture
def kept(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """A keeper that is not started yet."""
    kept = Kept(place, built(tmp_path_factory))
    yield kept
    kept.stop()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """A keeper that has started. The tests of a module share it, since its start takes longer than a command."""
    place = Place(tmp_path_factory.mktemp("kept"), LauncherClient(SpawnedLauncher()))
    place.write("f", "1\n")
    shared = Kept(place, built(tmp_path_factory))
    shared.start()
    yield shared
    shared.stop()
    place.close()
