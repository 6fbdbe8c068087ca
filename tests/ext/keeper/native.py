"""The native client, built as a wheel has it, and a keeper that both clients use.

The console script beside the program is one for tests: the variable KEPT tells it what to do, and it never hands a
command over where the native client was to do that.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kept import PATIENCE, Kept

from conftest import Place, tick
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from native_init import COMPILERS, STRICT

SOURCES = sorted((Path(__file__).parents[3] / "src/native").glob("*.c"))
LEFT = b"left to the script\n"
"""The answer of the script where the native client leaves a command to it."""

SCRIPT = f"""#!{sys.executable}
import os, sys
task = os.environ.get("KEPT", "")
if task == "program":
    exec(sys.argv[1])
elif task == "client":
    from mudroom.ext.keeper.client import hand_over
    sys.exit(hand_over())
elif task == "native":
    try:
        os.write(2, {LEFT!r})
    finally:
        os._exit(99)
else:
    from mudroom.cli import main
    main()
"""


def compile_native(directory: Path, *options: str, compiler: str = COMPILERS[0] if COMPILERS else "cc") -> Path:
    """Build the client in ``directory``, with the script beside it. Return its path."""
    program = directory / "mudroom"
    subprocess.run([compiler, *STRICT, *(options or ("-O2",)), *SOURCES, "-o", program], check=True)
    script = directory / "mudroom-python"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    tick()
    return program


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not COMPILERS:
        pytest.skip("no C compiler")
    return compile_native(tmp_path_factory.mktemp("native"))


class NativeKept(Kept):
    """A keeper for the commands of the script, which both clients use."""

    def __init__(self, place: Place, program: Path) -> None:
        super().__init__(place)
        self.native, self.script = str(program), str(program) + "-python"

    def python(self, program: str) -> list[str]:
        return ["env", "KEPT=program", self.script, program]

    def command(self, client: str) -> tuple[list[str], dict[str, str]]:
        """Return the first word and the environment: of the "native" or the Python "client" alone, or in-process."""
        if client == "in-process":
            return [self.script], {**self.environment, "MUDROOM_KEEPER": "0"}
        return [self.native if client == "native" else self.script], {**self.environment, "KEPT": client}

    def by(self, client: str, *words: str | bytes, **options: Any) -> subprocess.CompletedProcess[bytes]:
        """Run a command by one of the clients."""
        if client != "in-process":
            self.wait()
        first, environment = self.command(client)
        environment |= options.pop("more", {})
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.run(
            [*first, *words],
            **{"cwd": self.place.project, "env": environment, "timeout": PATIENCE, **streams, **options},
            check=False,
        )

    def begin(self, client: str, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        self.wait()
        first, environment = self.command(client)
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            [*first, *words], **{"cwd": self.place.project, "env": environment, **streams, **options}
        )


@pytest.fixture(scope="module")
def both(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NativeKept]:
    """A keeper that has started. The tests of a module share it, since its start takes longer than a command."""
    place = Place(tmp_path_factory.mktemp("kept"), LauncherClient(SpawnedLauncher()))
    place.write("f", "1\n")
    both = NativeKept(place, program)
    both.start()
    yield both
    both.stop()
    place.close()


@pytest.fixture
def unstarted(program: Path, place: Place) -> Iterator[NativeKept]:
    """As ``both``, for a test of its own, which starts the keeper if it needs one."""
    unstarted = NativeKept(place, program)
    yield unstarted
    unstarted.stop()
