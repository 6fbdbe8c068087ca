"""An interpreter of one's own with which mudroom runs, and the judgement: whether a command has changed it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from mudroom.errors import CommandNotStarted

from .interpreter import OVERTAKINGS, SCRIPT
from .outside import Ground, lines, wait
from .side import Side

_MODE = 0o755
_START = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"


class Overtaking(NamedTuple):
    """What came of one way."""

    evidence: str
    """What of the interpreter was changed; empty: nothing."""
    ran: bool
    """The interpreter has run what the fork has written."""
    told: Mapping[str, int]
    """The error number of each act, if it ran."""


class Interpreter:
    """The file of an interpreter, with which launchers start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known = self._look()

    def _look(self) -> dict[str, object]:
        info = self.path.stat()
        return {
            "mode": oct(info.st_mode & 0o7777),
            "owner": (info.st_uid, info.st_gid),
            "links": info.st_nlink,
            "time": info.st_mtime_ns,
            "attributes": os.listxattr(self.path),
            "content": self.path.read_bytes(),
        }

    def changed(self) -> str:
        """Return what is different since the last call."""
        before, self._known = self._known, self._look()
        return ", ".join(key for key, value in before.items() if self._known[key] != value)

    def restore(self) -> None:
        os.utime(self.path)
        for name in os.listxattr(self.path):
            os.removexattr(self.path, name)
        self.path.chmod(_MODE)
        self._known = self._look()

    def is_number(self, inode: object) -> bool:
        return inode == self.path.stat().st_ino

    @property
    def prefix(self) -> list[str]:
        """Words before a command that the interpreter is to start, as nothing but itself."""
        return [str(self.path), "-I", "-S", "-c", _START]


@contextmanager
def interpreter_of(root: Path) -> Iterator[Interpreter]:
    """Yield a copy of this process's interpreter, owned by its user, as uv, pyenv and conda install them. This process
    starts launchers with it, and commands of the command line, meanwhile."""
    path = root / "own/bin/python"
    path.parent.mkdir(parents=True)
    shutil.copy(os.path.realpath(sys.executable), path)
    path.chmod(_MODE)
    made = Interpreter(path)
    before, sys.executable = sys.executable, str(made.path)
    try:
        yield made
    finally:
        sys.executable = before


def overtake(
    ground: Ground,
    interpreter: Interpreter,
    name: str,
    beside: Side,
    starting: Side,
    *,
    most: int = 100,
    until_it_ran: bool = False,
) -> Overtaking:
    """Start the one in the background, and the script beside it as often as the way says, at ``most`` so often; or
    until it ran, which is certain where nothing looks at a script."""
    background = beside.start(ground.argv("beside", ground.key, name))
    ran: list[dict[str, object]] = []
    try:
        wait(background, "up")
        left = min(OVERTAKINGS[name].times, most)
        while left > 0 or (until_it_ran and not ran):
            left -= 1
            ran += [line for line in lines(_output(starting)) if interpreter.is_number(line.get("ran"))]
        assert not background.ended(), background.output()
    finally:
        background.end()
    told = ran[-1]["told"] if ran else {}
    assert isinstance(told, dict)
    return Overtaking(interpreter.changed(), bool(ran), told)


def _output(starting: Side) -> str:
    try:
        return starting.run([SCRIPT, "pay.py"])
    except CommandNotStarted:
        return ""
