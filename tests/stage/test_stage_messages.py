"""Messages about the state directory, about damaged files and trees that cannot be staged, and of the file tools."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from mudroom.stage import disk
from mudroom.stage.originals.original import read_rows
from mudroom.stage.private_directory import require_private
from whole_text import told


def test_a_state_directory_that_is_replaced_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at it and its opening: another process renames it, and makes one in its place."""
    state = tmp_path / "state"
    state.mkdir(mode=0o755)
    real = disk.open_path

    def slow(path: bytes, flags: int) -> int:
        state.rename(tmp_path / "old")
        state.mkdir(mode=0o755)
        return real(path, flags)

    monkeypatch.setattr(disk, "open_path", slow)
    assert told(lambda: require_private(bytes(state))) == (
        f"the state directory {state} is being replaced (run the command again)"
    )
    assert state.stat().st_mode & 0o777 == 0o755


def test_a_file_system_that_keeps_no_permissions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As vfat and many mounts of Windows: chmod(2) succeeds, and the mode stays (mount(8), umask of vfat)."""
    state = tmp_path / "state"
    state.mkdir(mode=0o755)
    monkeypatch.setattr(os, "chmod", lambda _path, _mode: None)
    assert told(lambda: require_private(bytes(state))) == (
        f"{state} is on a file system that does not keep permissions (set MUDROOM_STATE to a directory on another one, "
        "such as a volume: MUDROOM_STATE=/var/tmp/mudroom)"
    )


def test_an_index_that_names_what_is_no_original() -> None:
    data = msgspec.msgpack.encode([(b"a", (None, "../../etc/passwd", 0, 0, b""))])
    assert told(lambda: read_rows(len(data).to_bytes(8, "little") + data, b"/state/originals/index")) == (
        "/state/originals/index is damaged: it names an invalid original "
        "(other forks are not affected: mudroom ls shows them)"
    )
