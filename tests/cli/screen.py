"""A pseudo-terminal with a program in it that believes a person is there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from typing import Any

from conftest import Place, environment, tick
from forked import on_terminal

PATIENCE = 30.0
"""Seconds for what is expected to come at once."""
PROGRESS = r"(?:\r\x1b\[K[a-z ]+…)*(?:\r\x1b\[K)?"
"""A pattern for the progress line, which is shown where work takes a while, and for its end."""
BASH = shutil.which("bash") or ""


class Screen:
    """A pseudo-terminal with a program in it that believes a person is there."""

    def __init__(self, place: Place, *argv: str, rows: int = 24, columns: int = 80, **more: str) -> None:
        tick()
        own = {"PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm", "SHELL": BASH, "HISTFILE": ""}
        variables = environment(place, **own, **more)
        self._process: subprocess.Popen[Any] | None = None
        if argv[:3] == (sys.executable, "-m", "mudroom"):
            self._process, self.master = on_terminal(argv[3:], cwd=place.project, env=variables)
            self.pid = self._process.pid
        else:
            self.pid, self.master = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(place.project)
                os.execvpe(argv[0], list(argv), variables)
            finally:
                os._exit(127)  # otherwise a second pytest goes on
        self.seen = b""
        self.resize(rows, columns)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def modes(self) -> list[Any]:
        return termios.tcgetattr(self.master)

    def read(self, deadline: float) -> bool:
        if not select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise AssertionError(f"nothing more came after {self.seen!r}")
        try:
            chunk = os.read(self.master, 65536)
        except OSError:  # EIO: the last process that had it has gone
            chunk = b""
        self.seen += chunk
        return bool(chunk)

    def expect(self, pattern: str) -> re.Match[bytes]:
        """Read until it has come; what was seen up to its end is forgotten."""
        deadline = time.monotonic() + PATIENCE
        while (found := re.search(pattern.encode(), self.seen, re.S)) is None:
            if not self.read(deadline):
                raise AssertionError(f"{pattern!r} did not come, but: {self.seen!r}")
        self.seen = self.seen[found.end() :]
        return found

    def until(self, condition: Callable[[], bool]) -> None:
        """Until something is so that no output tells of."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, self.seen
            if select.select([self.master], [], [], 0.01)[0]:
                self.read(deadline)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def exit_code(self) -> int:
        deadline = time.monotonic() + PATIENCE
        while self.read(deadline):
            pass
        return self.wait()

    def wait(self) -> int:
        """Wait for its end. Return its exit code, negative for a signal."""
        if self._process is not None:
            return self._process.wait()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Shell(Screen):
    """A job-control shell outside, in which mudroom is started."""

    def __init__(self, place: Place, **options: Any) -> None:
        super().__init__(place, BASH, "--norc", "--noediting", "-i", **options)
        self.type("PS1='outside> '\n")
        self.expect("outside> .*outside> ")

    def prompt(self) -> None:
        self.expect("outside> $")
