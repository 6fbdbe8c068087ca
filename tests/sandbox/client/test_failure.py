"""Why a command did not run, in one line: of what the launcher reports."""

from __future__ import annotations

import errno

from mudroom.sandbox.client.failure import failure_of

PLAN = (("umask", 0o22),)


def test_the_place_of_a_failure_is_told_once() -> None:
    told = [
        failure_of(("failed", 0, "umask", errno.EIO, detail), PLAN, b"true").message
        for detail in ("", "Input/output error", "/proc")
    ]
    assert [text.rpartition("umask 022: ")[2] for text in told] == ["Input/output error"] * 2 + [
        "Input/output error /proc"
    ]


def test_a_launcher_that_is_not_sealed_is_told() -> None:
    error = failure_of(("failed", -1, "program", errno.EROFS, ""), PLAN, b"true")
    assert str(error) == (
        "cannot set up the sandbox: a command could change the program that starts it: it is not sealed "
        "(mudroom doctor tries the sandbox)"
    )


def test_a_program_under_a_lease_is_told() -> None:
    error = failure_of(("failed", -1, "exec", errno.EAGAIN, ""), PLAN, b"./script.sh")
    assert str(error) == (
        "./script.sh: resource temporarily unavailable "
        "(no process is left (ulimit -u, --processes), or another program has a lease on the file)"
    )
    assert error.exit_code == 126
