"""A crash, a kill or a full disk while a fork is mounted or unmounted: no file is lost."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from conftest import Place
from mounted_fork import KINDS, changed, kind, mounted, mounted_new, session, sh
from mudroom.session import Session
from mudroom.stage.views.mount import Kind
from mudroom.vault.forks import mount as vault_mount
from mudroom.vault.forks import stacking
from mudroom.vault.store.mount_note import MountNote, write_note

__all__ = ["kind", "session"]  # fixtures
pytestmark = pytest.mark.both_users


def in_a_child(act: Callable[[], object]) -> int:
    """Do it in a process that is gone afterwards, without any clean-up."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
        finally:
            os._exit(9)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("writes", [1, 2])
def test_a_crash_while_it_is_mounted(
    session: Session, kind: Kind, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """After the note is written, and after it is mounted."""
    sh(session, "echo early > early")
    left = [writes]

    def write(fork: bytes, note: MountNote) -> None:
        left[0] -= 1
        if writes == 1 or left[0]:
            write_note(fork, note)
        if not left[0]:
            os._exit(9)

    monkeypatch.setattr(vault_mount, "write_note", write)
    assert in_a_child(lambda: mounted(session, kind)) == 9
    monkeypatch.undo()
    assert sh(session, "cat early; echo more >> file").stdout == b"early\n"
    at = mounted(session, kind)
    assert (at / "file").read_text() == "one\nmore\n"
    session.forks.unmount("f")
    assert changed(session) == {"early", "file"}


@pytest.mark.parametrize("step", ["convert_fuse_layer", "gather", "leave_copy", "_remove_place", "remove_note"])
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_while_it_is_unmounted(
    session: Session, kind: Kind, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    at = mounted_new(session, kind)
    (at / "made").write_text("x\n")
    shutil.rmtree(at / "d")
    (at / "d").mkdir()
    sh(session, "echo more >> file")
    done = getattr(vault_mount, step)

    def cut_off(*arguments: object, **named: object) -> None:
        if after:
            done(*arguments, **named)
        os._exit(9)

    monkeypatch.setattr(vault_mount, step, cut_off)
    in_a_child(lambda: session.forks.unmount("f"))
    monkeypatch.undo()
    assert sh(session, "cat made file; ls d").stdout == b"x\none\nmore\n"
    if "f" in session.forks.mounts():
        session.forks.unmount("f")
    assert changed(session) == {"made", "file", "d/x", "d/y"}
    assert sh(session, "cat made file; ls d").stdout == b"x\none\nmore\n"


@pytest.mark.parametrize("step", ["gather", "leave_copy", "convert_fuse_layer", "write_note"])
def test_a_full_disk_while_it_is_unmounted(
    session: Session, kind: Kind, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    at = mounted_new(session, kind)
    (at / "made").write_text("x\n")

    def full(*_arguments: object, **_named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(vault_mount, step, full)
    with contextlib.suppress(OSError):
        session.forks.unmount("f")
    monkeypatch.undo()
    assert sh(session, "cat made").stdout == b"x\n"
    assert changed(session) == {"made"}


def test_a_mudroom_that_is_killed_while_its_command_runs(place: Place, session: Session, kind: Kind) -> None:
    at = mounted_new(session, kind)
    script = "echo half > half; echo up; while :; do sleep 0.02; done"
    words = [sys.executable, "-m", "mudroom", "exec", "--fork", "f", "--", "sh", "-c", script]
    environment = {**os.environ, "HOME": str(place.home), "MUDROOM_STATE": str(place.state)}
    with subprocess.Popen(words, cwd=place.project, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.kill()
    assert (at / "half").read_text() == "half\n"
    assert sh(session, "cat half; echo more >> half").stdout == b"half\n"
    assert changed(session) == {"half"}
    assert mounted(session, kind) == at


@pytest.mark.parametrize("kind", KINDS[:-1], indirect=True)
def test_a_crash_while_the_mount_is_away(
    place: Place, session: Session, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = mounted_new(session, kind)
    (at / "made").write_text("x\n")
    session.forks.checkpoint("f", "point")
    (at / "made").write_text("y\n")

    def cut_off(*_arguments: object) -> None:
        os._exit(0 if not at.is_dir() else 1)

    monkeypatch.setattr(stacking, "rollback", cut_off)
    assert in_a_child(lambda: session.forks.rollback("f", "point")) == 0
    monkeypatch.undo()
    with pytest.raises(OSError, match="Not a directory"):
        (at / "lost").write_text("nobody would find this")
    assert mounted(session, kind) == at
    assert (at / "made").read_text() == "y\n"
