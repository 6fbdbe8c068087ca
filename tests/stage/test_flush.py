"""What is flushed where fsync(2) and syncfs(2) succeed and do nothing: FUSE. tests/reboot cuts power on a real one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mudroom.core.system.closing import Descriptor
from mudroom.stage import disk, filesystem_kind


@pytest.mark.parametrize(
    ("flush", "name", "expected"),
    [
        pytest.param(disk.sync, ".", 1, id="names in a directory"),
        pytest.param(disk.sync, "file", 0, id="content of a file"),
        pytest.param(disk.sync_filesystem, ".", 1, id="file system"),
    ],
)
@pytest.mark.parametrize("kind", [filesystem_kind.FUSE, filesystem_kind.OVERLAYFS], ids=["FUSE", "overlayfs"])
def test_what_a_server_may_not_be_told_is_flushed_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: Callable[[int], None], name: str, expected: int, kind: int
) -> None:
    (tmp_path / "file").write_text("content")
    flushed: list[None] = []
    monkeypatch.setattr(filesystem_kind, "filesystem_magic", lambda _path: kind)
    monkeypatch.setattr(os, "sync", lambda: flushed.append(None))
    with Descriptor(os.open(tmp_path / name, os.O_RDONLY)) as descriptor:
        flush(descriptor)
    assert len(flushed) == (expected if kind == filesystem_kind.FUSE else 0)
