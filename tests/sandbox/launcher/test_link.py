"""Paths in a root that comes from an image: which of them lead elsewhere."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from pathlib import Path

import pytest

from mudroom.sandbox.launcher import link
from mudroom.sandbox.launcher.link import require_no_link, require_no_magic_link


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "real/deep").mkdir(parents=True)
    (tmp_path / "real/file").write_bytes(b"")
    (tmp_path / "absolute").symlink_to("/usr")
    (tmp_path / "relative").symlink_to("real")
    (tmp_path / "out").symlink_to("../..")
    (tmp_path / "round").symlink_to("round")
    return tmp_path


@pytest.mark.parametrize("path", ["real", "real/deep", "real/file", "relative/deep"])
def test_what_is_where_it_seems(root: Path, path: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    descriptor = os.open(root, os.O_PATH)
    require_no_link(descriptor, path.encode())
    os.close(descriptor)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("path", "number"),
    [
        *((path, errno.ELOOP) for path in ("absolute", "absolute/bin", "relative", "out", "out/x", "round", "round/x")),
        *((path, errno.ENOENT) for path in ("nothing", "real/nothing/deep")),
        ("real/file/x", errno.ENOTDIR),
    ],
)
def test_what_is_not(root: Path, path: str, number: int) -> None:
    descriptor = os.open(root, os.O_PATH)
    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        require_no_link(descriptor, path.encode())
    os.close(descriptor)
    assert caught.value.errno == number


def looked_at(path: Path) -> int:
    """Return the error of the look at a program; 0 if there is none."""
    before = len(os.listdir("/proc/self/fd"))
    try:
        require_no_magic_link(os.fsencode(path))
        return 0
    except OSError as error:
        return error.errno or -1
    finally:
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_program_that_cannot_be_looked_at_is_refused(tmp_path: Path) -> None:
    script, second, fifo = tmp_path / "script", tmp_path / "second", tmp_path / "fifo"
    script.write_text("#!/bin/true\n")
    second.write_text(f"#! {script} x\n")
    os.mkfifo(fifo)
    assert (looked_at(script), looked_at(second)) == (0, 0)
    assert looked_at(tmp_path) == errno.EACCES  # as execve(2) has it
    assert looked_at(tmp_path / "nothing") == errno.ENOENT
    assert looked_at(script / "below") == errno.ENOTDIR
    assert looked_at(fifo) == 0  # an empty one; execve(2) refuses it
    with script.open("rb") as held:
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        assert looked_at(script) == looked_at(second) == errno.EAGAIN
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        signal.signal(signal.SIGIO, signal.SIG_DFL)
    script.write_text(f"#!{script}\n")
    assert looked_at(script) == errno.ELOOP


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM, errno.EIO, errno.EMFILE])
def test_only_a_kernel_without_the_call_makes_no_look(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Such a kernel permits no sandbox with mounts. Every other error is a refusal."""

    def refused(*_arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(link, "syscall", refused)
    assert looked_at(Path("/bin/true")) == (0 if number in (errno.ENOSYS, errno.EPERM) else number)
