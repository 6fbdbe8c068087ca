"""A real terminal, in tmux: keys go in, and what a person would see comes out."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import conftest
from conftest import Place, tick

PATIENCE = 60.0
"""Seconds for what is expected to come at once."""
LOOK = 0.05
"""Seconds that a look at the screen may take at least."""


class Tmux:
    """One window with a shell in it. Its server is its own, and ends with it."""

    def __init__(self, place: Place, columns: int = 80, rows: int = 24, **environment: str) -> None:
        tick()
        self._directory = tempfile.mkdtemp(prefix="tm")  # the path of a socket has 107 bytes at most: unix(7)
        self._environment = {
            **conftest.environment(place, PYTHONPATH=os.pathsep.join(sys.path)),
            "TERM": "xterm-256color",
            "HISTFILE": "",
            "TMUX_TMPDIR": self._directory,
            **environment,
        }
        size = ["-x", str(columns), "-y", str(rows)]
        self(
            "new-session", "-d", *size, "-c", str(place.project), "exec sh"
        )  # dash, as the shell of the user, would wait for it
        self("set-option", "-g", "remain-on-exit", "on")
        self.type("PS1='out''side> '")
        self.until(lambda seen: seen.rstrip().endswith("outside>"))

    def __call__(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            ["tmux", "-f", "/dev/null", *words], env=self._environment, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, (words, done.stderr)
        return done.stdout

    def screen(self) -> str:
        return self("capture-pane", "-p")

    def until(self, wanted: str | Callable[[str], object]) -> str:
        """Look until it is there; what is seen then."""
        deadline = time.monotonic() + PATIENCE
        while True:
            seen = self.screen()
            if (wanted in seen) if isinstance(wanted, str) else wanted(seen):
                return seen
            assert time.monotonic() < deadline, f"{wanted!r} did not come:\n{seen}"
            self("run-shell", "-d", str(LOOK))

    def keys(self, *keys: str) -> None:
        """As tmux names them."""
        self("send-keys", *keys)

    def type(self, line: str) -> None:
        self("send-keys", "-l", line)
        self("send-keys", "Enter")

    def mudroom(self, *words: str) -> None:
        """Start it, and say afterwards how it has ended."""
        command = shlex.join([sys.executable, "-m", "mudroom", *words])
        self.type(f"clear; {command}; echo ended $?; stty -a | grep -o ' .\\?icanon'")

    def resize(self, columns: int, rows: int) -> None:
        self("resize-window", "-x", str(columns), "-y", str(rows))

    def pid(self) -> int:
        """Of the shell in it."""
        return int(self("display-message", "-p", "#{pane_pid}"))

    def close(self) -> None:
        self("kill-server", check=False)
        shutil.rmtree(self._directory, ignore_errors=True)
