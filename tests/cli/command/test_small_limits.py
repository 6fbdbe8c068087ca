"""A user's own limits (ulimit) that are too small for mudroom: one line, and nothing is lost."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess

import pytest

from conftest import Place
from mudroom.cli.main import run
from test_vault_verb import MUDROOM, Cli

pytestmark = [pytest.mark.both_users, pytest.mark.root]


@pytest.mark.parametrize("number", [6, 10, 14, 18, 20, 22, 24, 26, 28, 30, 34])
def test_few_descriptors(place: Place, number: int) -> None:
    done = limited(place, resource.RLIMIT_NOFILE, number)
    assert done.returncode == 0 or "open files" in done.stderr, done.stderr


def test_few_descriptors_while_many_of_the_user_are_on_their_way(place: Place) -> None:
    here, there = socket.socketpair()
    with here, there:
        socket.send_fds(here, [b"0"], [0] * 100)
        done = limited(place, resource.RLIMIT_NOFILE, 34)
    is_refused = (done.returncode, "ulimit -n" in done.stderr) == (125, True)
    assert is_refused or (os.geteuid() == 0 and done.returncode == 0), done.stderr  # CAP_SYS_RESOURCE: unix(7)


@pytest.mark.parametrize("size", [0, 100, 5_000])
def test_small_files(place: Place, size: int) -> None:
    done = limited(place, resource.RLIMIT_FSIZE, size)
    assert done.returncode == 125, done.stderr


DEEP = [pytest.param(megabytes, marks=pytest.mark.deep) for megabytes in (22, 26, 28, 30)]


@pytest.mark.parametrize("megabytes", [20, 24, 32, *DEEP])
def test_little_memory(place: Place, megabytes: int) -> None:
    done = limited(place, resource.RLIMIT_AS, megabytes * 1024 * 1024)
    assert done.returncode in (0, *INTERPRETER) or "memory" in done.stderr, done.stderr


def test_a_function_of_the_interpreter_that_had_no_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "<function __exit__ at 0x7ff8c770a5c0> returned NULL without setting an exception"  # under 24 MiB

    def without_memory(*_given: object) -> int:
        raise SystemError(said)

    monkeypatch.setattr("mudroom.cli.main._run_verb", without_memory)
    assert run(["ls"], {}) == 125
    assert capsys.readouterr().err.startswith("mudroom: out of memory")
    said = "a fault of mudroom's own"
    with pytest.raises(SystemError):
        run(["ls"], {})


def test_few_processes(place: Place) -> None:
    if os.geteuid() == 0:
        pytest.skip("RLIMIT_NPROC does not hold for root")
    done = limited(place, resource.RLIMIT_NPROC, 1)
    assert (done.returncode, "ulimit -u" in done.stderr) == (125, True), done.stderr


INTERPRETER = (-signal.SIGXCPU, -signal.SIGSEGV, -signal.SIGABRT, 120)
"""Ends of an interpreter that has no memory for its own work. Until 3.13 it goes round in circles at an exception
handler if it cannot make a number (PyLong_FromLong below exception_unwind in Python/ceval.c). Its stack cannot grow
(setrlimit(2), RLIMIT_AS), it gives up (Py_FatalError), or it cannot print a traceback (120: Py_RunMain). mudroom cannot
prevent them; nothing may be lost."""
SPINNING = 5
"""Seconds of the processor after which a process is one of the first kind: a command needs less than one."""
_THREAD = re.compile(r"Exception ignored in thread started by: .*\n(?:MemoryError: ?\n?)?|MemoryError: (?=mudroom: )")
"""A thread that has no memory for its first line: Python itself tells it, while mudroom tells the same."""


def limited(place: Place, kind: int, most: int) -> subprocess.CompletedProcess[str]:
    """Run a command under a limit. Whatever comes of it, the next one works on what is there."""
    place.write("f", "1\n")
    cli = Cli(place)

    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (SPINNING, SPINNING + 1))
        resource.setrlimit(kind, (most, most))

    done = subprocess.run(
        [*MUDROOM, "run", "--yes", "--", "sh", "-c", "echo 2 >> f"],
        cwd=place.project,
        env=cli.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=confine,
    )
    applied = (place.project / "f").read_text()
    if done.returncode not in INTERPRETER:
        assert "Traceback" not in done.stderr
        expected = {"1\n2\n"} if not done.returncode else {"1\n"}
        assert applied in expected | ({"1\n2\n"} if kind == resource.RLIMIT_AS else set())  # it may end after the apply
    if done.returncode > 0 and applied == "1\n2\n":
        assert "u1 has been applied; after that: " in done.stderr or "applied: 1 written" in done.stderr, done.stderr
    if done.returncode > 0:
        lines = _THREAD.sub("", done.stderr).splitlines()
        told = [line for line in lines if line.startswith("mudroom: ")]
        assert told == lines[-1:], done.stderr  # one line, after the preview if it came so far
    assert cli("run", "--yes", "--", "sh", "-c", "echo 3 >> f").returncode == 0
    possible = {"1\n", "1\n2\n"} if done.returncode in INTERPRETER else {applied}  # it may have ended in its apply
    assert (place.project / "f").read_text().removesuffix("3\n") in possible
    assert cli("vault", "check").returncode == 0
    return done
