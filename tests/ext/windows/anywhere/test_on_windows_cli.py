"""``python -m mudroom`` where it thinks that it is on Windows: no traceback, one line, exit code 125."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mudroom.cli.main import VERBS
from mudroom.core.registry import ROWS
from mudroom.ext.windows.cli.windows import PORTED
from tiers import each

TAKEN = """
import os, runpy, sys
sys.platform = "win32"
for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "_posixsubprocess"):
    sys.modules[name] = None
del os.environb, os.fork
sys.path.insert(0, sys.argv.pop(1))
"""
PRETEND = f"""{TAKEN}
sys.argv[0] = "mudroom"
runpy.run_module("mudroom", run_name="__main__", alter_sys=True)
"""
NOT_THERE = {
    "containers.cli.engine", "containers.level", "keeper.cli.keeper", "keeper.cli.keeper_process",
    "macos.platform",
}  # fmt: skip
"""Looked up on other systems alone."""

IMPORT = f"""import asyncio, ssl, subprocess
{TAKEN}
class Stub(type(sys)):
    def __init__(self, name, use_last_error=True):
        super().__init__(name)
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub(name)
    def __call__(self, *words, **named):
        return 0
for name in ("msvcrt", "_winapi", "winreg"):
    sys.modules[name] = Stub(name)
import ctypes
import _signal
ctypes.WinDLL, _signal.SIGBREAK = Stub, 21
for name in sys.argv[1:]:
    try:
        __import__(name)
    except Exception as error:
        print(name, repr(error))
"""
SOURCE = str(Path(__file__).parents[4] / "src")


def mudroom(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-c", PRETEND, SOURCE, *words], capture_output=True, text=True, check=False
    )


@each("verb", [verb for verb in VERBS if verb not in PORTED])
def test_every_verb_says_in_one_line_what_is_missing(verb: str) -> None:
    done = mudroom(verb, "--", "x")
    assert done.returncode == 125
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1 and "Windows" in done.stderr and "WSL 2" in done.stderr


@each(
    ("words", "code", "says"),
    [
        (["--version"], 0, "mudroom 0."),
        (["--help"], 0, "mudroom run -- npm install"),
        ([], 0, "mudroom run -- npm install"),
        (["nothing"], 125, "there is no verb"),
    ],
)
def test_what_works_there(words: list[str], code: int, says: str) -> None:
    done = mudroom(*words)
    assert done.returncode == code and says in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def imports(*names: str) -> str:
    """Return the modules that cannot be imported there, with the reason."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", IMPORT, SOURCE, *names], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_each_verb_and_what_it_looks_up_can_be_imported_there() -> None:
    """One of them that needs a module of POSIX would leave the verb, or each session, with a traceback."""
    verbs = [f"mudroom.cli.{VERBS[verb].folder}.{verb}" for verb in sorted(PORTED) if VERBS[verb].folder]
    rows = [
        f"mudroom.ext.{module}"
        for kind, row in ROWS.items()
        for name, module in row.items()
        if module not in NOT_THERE and (kind != "verb" or name in PORTED)
    ]
    assert len(verbs) > 15 and len(rows) > 30
    assert imports(*verbs, *rows) == ""


def test_what_is_not_there_is_seen_by_that() -> None:
    assert "fcntl" in imports("mudroom.ext.macos.host")
