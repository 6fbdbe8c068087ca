"""``python -m mudroom`` where it thinks that it is on Windows: no traceback, one line, exit code 125."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mudroom.cli.main import VERBS
from mudroom.ext.windows.cli.windows import PORTED

PRETEND = """
import os, runpy, sys
sys.platform = "win32"
for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "_posixsubprocess"):
    sys.modules[name] = None
del os.environb, os.fork
sys.path.insert(0, sys.argv.pop(1))
sys.argv[0] = "mudroom"
runpy.run_module("mudroom", run_name="__main__", alter_sys=True)
"""
SOURCE = str(Path(__file__).parents[4] / "src")


def mudroom(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-c", PRETEND, SOURCE, *words], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in PORTED])
def test_every_verb_says_in_one_line_what_is_missing(verb: str) -> None:
    done = mudroom(verb, "--", "x")
    assert done.returncode == 125
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1 and "Windows" in done.stderr and "WSL 2" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--version"], 0, "mudroom 0."),
        (["--help"], 0, "mudroom run -- npm install"),
        ([], 0, "mudroom run -- npm install"),
        (["nothing"], 125, "there is no verb"),
        (["doctor"], 125, "this is not Windows"),
    ],
)
def test_what_works_there(words: list[str], code: int, says: str) -> None:
    done = mudroom(*words)
    assert done.returncode == code and says in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
