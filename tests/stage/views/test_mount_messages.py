"""Messages about mounts that the machine does not permit, and about directories that cannot be unmounted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mudroom.stage.views import mount
from mudroom.stage.views.mounted import open_mounted
from whole_text import told

pytestmark = [pytest.mark.both_users, pytest.mark.root]


@pytest.fixture
def places(tmp_path: Path) -> tuple[bytes, bytes]:
    """A base, and a place that is no mount."""
    for name in ("base", "place"):
        (tmp_path / name).mkdir()
    return bytes(tmp_path / "base"), bytes(tmp_path / "place")


def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, script: str) -> None:
    """Let a script of sh(1) stand in the place of fuse-overlayfs or fusermount3; without a script there is none."""
    path = tmp_path / name.strip("_").lower()
    monkeypatch.setattr(mount, name, (bytes(path),))
    if script:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)


def test_what_the_kernel_does_not_mount(places: tuple[bytes, bytes], tmp_path: Path) -> None:
    base, place = places
    before = set(os.listdir("/proc/self/fd"))
    assert told(lambda: mount.mount_overlay([], base, None, b"", bytes(tmp_path / "none"))) == (
        "a mount by the kernel needs overlayfs and root; found: No such file or directory "
        "(mudroom doctor tries overlays)"
    )
    said = told(lambda: mount.mount_overlay([base] * 300, base, None, b"", place))
    assert said.startswith("a mount of so many layers needs options of less than 4096 bytes; found: ")
    assert said.endswith(" bytes (mudroom apply, or a new fork, has fewer layers)")
    assert set(os.listdir("/proc/self/fd")) == before


def test_what_fuse_does_not_mount(places: tuple[bytes, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, place = places

    def said() -> str:
        return told(lambda: mount.mount_fuse([], base, None, b"", place))

    missing = "a mount without root needs fuse-overlayfs and fusermount3; found: not installed "
    for name in ("_FUSE", "_FUSERMOUNT"):
        program(tmp_path, monkeypatch, "_FUSE", "exit 1")
        program(tmp_path, monkeypatch, "_FUSERMOUNT", "exit 1")
        (tmp_path / name.strip("_").lower()).unlink()
        assert said() == missing + "(apt install fuse-overlayfs fuse3)"
    program(tmp_path, monkeypatch, "_FUSERMOUNT", "exit 1")
    hint = "(ls -l /dev/fuse shows who may open it)"
    for script, why in (
        ("exit 3", "exit code 3"),
        ("echo 'fuse: device not found' >&2; exit 1", "fuse: device not found"),
    ):
        program(tmp_path, monkeypatch, "_FUSE", script)
        assert said() == f"a mount without root needs FUSE; found: {why} {hint}"


def test_what_cannot_be_unmounted(places: tuple[bytes, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _base, place = places
    shown = os.fsdecode(place)
    hint = f"(close the programs that use it: fuser -vm {shown} names them)"
    reason = "Operation not permitted" if os.geteuid() else "Invalid argument"
    assert told(lambda: mount.unmount("overlay", place)) == f"{shown} cannot be unmounted: {reason} {hint}"
    for script, why in (
        ("", "fusermount3 is not installed"),
        ("exit 1", "fusermount3 ended with 1"),
        ("echo device busy >&2; exit 1", "device busy"),
    ):
        program(tmp_path, monkeypatch, "_FUSERMOUNT", script)
        assert told(lambda: mount.unmount("fuse", place)) == f"{shown} cannot be unmounted: {why} {hint}"
        assert told(lambda: mount.abandon(place)) == (f"{shown} cannot be unmounted: {why} (fusermount3 -u -z {shown})")


def test_a_mount_that_has_ended(places: tuple[bytes, bytes], tmp_path: Path) -> None:
    _base, place = places
    hint = "(try again: the next call goes on without it)"
    before = set(os.listdir("/proc/self/fd"))
    assert told(lambda: open_mounted(place, (1, 1))) == (
        f"the mount at {os.fsdecode(place)} has ended: another directory is there {hint}"
    )
    assert told(lambda: open_mounted(bytes(tmp_path / "gone"), (1, 1))) == (
        f"the mount at {tmp_path}/gone has ended: No such file or directory {hint}"
    )
    assert set(os.listdir("/proc/self/fd")) == before
