"""The program of the launcher, which is started from a sealed copy: what is said where that is impossible."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mudroom.errors import MudroomError
from mudroom.sandbox.client import launcher_client
from mudroom.sandbox.client.launcher_client import SpawnedLauncher

pytestmark = pytest.mark.both_users


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has not read it yet."""
    monkeypatch.setattr(launcher_client, "_program", [])


def said() -> str:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(MudroomError) as caught:
        SpawnedLauncher().start()
    assert len(os.listdir("/proc/self/fd")) == before
    return str(caught.value)


def test_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher_client, "LAUNCHER", bytes(tmp_path / "none"))
    hint = "install mudroom again; in a checkout: dev/native"
    assert said() == f"the sandbox launcher is missing: {tmp_path}/none ({hint})"


def test_it_is_for_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "launcher"
    other.write_bytes(b"\x7fELF of none")
    monkeypatch.setattr(launcher_client, "LAUNCHER", bytes(other))
    assert said() == f"the sandbox launcher cannot be started: {other}: Exec format error (install mudroom again)"


def test_a_machine_that_permits_no_program_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_name: str, _flags: int) -> int:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))  # vm.memfd_noexec=2

    monkeypatch.setattr(os, "memfd_create", refused)
    assert said() == (
        "the sandbox launcher cannot be started: a copy of its program in memory is refused: Permission denied "
        "(sysctl vm.memfd_noexec=0)"
    )


def test_a_kernel_that_does_not_know_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux before 6.3."""
    made = os.memfd_create

    def older(name: str, flags: int) -> int:
        if flags & 0x10:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return made(name, flags)

    monkeypatch.setattr(os, "memfd_create", older)
    launcher = SpawnedLauncher()
    launcher.start()
    assert os.readlink(f"/proc/{launcher.require_pid()}/exe") == "/memfd:mudroom-launcher (deleted)"
    launcher.close()
