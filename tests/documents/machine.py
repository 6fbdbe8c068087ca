"""A throw-away home with projects, in which the blocks of a document are run by bash with the real mudroom."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0
_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[=>78]|\x1b[()][A-Z0-9]|\x1b\\|\x07"
)
_QUESTION = re.compile(r"[:?] \Z|then Enter\s*\Z")

_AGENT = """#!/bin/sh
# A stand-in for an agent: it edits a file of the project as a model would have it do.
case $1 in --version|-v|-V) echo "{version} (stand-in)"; exit 0 ;; esac
sed -i 's/text.split(" ")/text.split()/' app/count.py
echo "I have made count() ignore double spaces."
"""
_GITCONFIG = "[user]\n\tname = You\n\temail = you@example.org\n[init]\n\tdefaultBranch = main\n"
_AGENTS = {"claude": "2.1.330", "codex": "codex-cli 0.169.0", "gemini": "0.61.0"}


class Ran(NamedTuple):
    printed: str
    exit_code: int


class Machine:
    """``root`` becomes the home directory of a user whose projects are in ``~``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.home.mkdir(parents=True)
        self._programs = root / "bin"
        self._programs.mkdir()
        self._scratch = root / "scratch"
        self._scratch.mkdir()
        self._number = 0
        command = f"{shlex.quote(sys.executable)} -m mudroom"
        path = shlex.quote(os.pathsep.join(filter(None, sys.path)))
        self._write_program("mudroom", f'#!/bin/sh\nPYTHONPATH={path} exec {command} "$@"\n')
        for name, version in _AGENTS.items():
            self._write_program(name, _AGENT.format(version=version))
        (self.home / ".gitconfig").write_text(_GITCONFIG)
        self.directory = self.home
        self._exports = ""
        self._environment = {
            "PATH": f"{self._programs}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "USER": "you",
            "LC_ALL": "C.UTF-8",
            "TERM": "xterm",
            "NO_COLOR": "1",
            "COLUMNS": "110",
            "PAGER": "cat",
            "MUDROOM_KEEPER": "0",
            "GIT_CONFIG_NOSYSTEM": "1",
        }

    def _write_program(self, name: str, text: str) -> None:
        path = self._programs / name
        path.write_text(text)
        path.chmod(0o755)

    def new_project(self, kind: str) -> None:
        """Make a project and enter it: ``app``, ``todo`` (both of examples/), ``empty``."""
        self._number += 1
        name = kind if not (self.home / kind).exists() else f"{kind}-{self._number}"
        self.directory = project = self.home / name
        if kind == "empty":
            project.mkdir()
        else:
            shutil.copytree(ROOT / "examples" / kind, project, ignore=shutil.ignore_patterns("__pycache__"))
        done = self.run("git init -q && git add -A && git commit -q --allow-empty -m 'first commit'")
        assert done.exit_code == 0, done.printed

    def run(self, script: str) -> Ran:
        """Run a script in the current directory, with variables and directory as the last one left them."""
        state = self._scratch / "state"
        kept = f"code=$?; {{ pwd; export -p; }} >{shlex.quote(str(state))}; exit $code"
        at = f"cd {shlex.quote(str(self.directory))} || exit 125"
        wrapped = f"{self._exports}\n{at}\ntrap {shlex.quote(kept)} EXIT\n{script}\n"
        output = self._scratch / "output"
        with output.open("wb") as stream:
            done = subprocess.run(
                ["bash", "-c", wrapped], check=False, env=self._environment, stdin=subprocess.DEVNULL, stdout=stream,
                stderr=subprocess.STDOUT, timeout=PATIENCE,
            )  # fmt: skip
        if state.exists():
            directory, _, self._exports = state.read_text().partition("\n")
            self.directory = Path(directory)
            state.unlink()
        return Ran(self._shown(output.read_text(errors="replace")), done.returncode)

    def run_at_terminal(self, script: str, answers: list[str], columns: int = 110) -> Ran:
        """Run a script on a terminal. An answer is typed, and leaves ``answers``, at a question; one without an answer
        gets Ctrl-C."""
        wrapped = f"{self._exports}\ncd {shlex.quote(str(self.directory))} || exit 125\n{script}\n"
        master, slave = pty.openpty()
        process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", "bash", "-c", f"stty cols {columns} rows 40; {wrapped}"],
            env=self._environment | {"COLUMNS": str(columns)},
            stdin=slave, stdout=slave, stderr=slave,
        )  # fmt: skip
        os.close(slave)
        text, end = b"", time.monotonic() + PATIENCE
        seen = 0
        while time.monotonic() < end:
            ready = select.select([master], [], [], 0.5)[0]
            try:
                piece = os.read(master, 65536) if ready else b""
            except OSError:
                break  # the other end is closed
            if ready and not piece:
                break
            text += piece
            shown = _ESCAPES.sub("", text[seen:].decode(errors="replace"))
            if _QUESTION.search(shown) and not ready:  # nothing more came
                os.write(master, answers.pop(0).encode() + b"\n" if answers else b"\x03")
                seen = len(text)
        else:
            process.kill()
        os.close(master)
        code = process.wait()
        printed = _ESCAPES.sub("", text.decode(errors="replace")).replace("\r\n", "\n")
        printed = "\n".join(line.rpartition("\r")[2] for line in printed.split("\n"))
        return Ran(self._shown(printed), code)

    def _shown(self, text: str) -> str:
        return text.replace(str(self.home), "/home/you")
