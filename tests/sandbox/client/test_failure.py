"""Why a command did not run, in one line: of what the launcher reports."""

from __future__ import annotations

import errno

from mudroom.sandbox.client.failure import failure_of
from mudroom.sandbox.linux.forbidden import CONTAINER

PLAN = (("hostname", b"mudroom"), ("mount", b"/a", b"b"))


def test_an_outer_filter_that_forbids_the_host_name_has_a_fix() -> None:
    """Podman's default profile allows all that mudroom calls but sethostname (seccomp.json of containers-common)."""
    error = failure_of(("failed", 0, "hostname", errno.EPERM, "Operation not permitted"), PLAN, b"true")
    assert str(error) == (
        "cannot set up the sandbox: host name mudroom: Operation not permitted "
        "(an outer filter forbids sethostname, as Podman's does: mudroom doctor has the fix)"
    )
    assert "sethostname allowed" in CONTAINER.replace("\n", " ")


def test_the_place_of_a_failure_is_told_once() -> None:
    told = [
        failure_of(("failed", 0, "hostname", errno.EIO, detail), PLAN, b"true").message
        for detail in ("", "Input/output error", "/proc")
    ]
    assert [text.rpartition("mudroom: ")[2] for text in told] == ["Input/output error"] * 2 + [
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
