"""Messages about control groups that can neither be made nor removed, on directories in the place of groups."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mudroom.core.confinement.limit import Limits
from mudroom.errors import MudroomError, Unsupported
from mudroom.sandbox.limits import limiter
from mudroom.sandbox.limits.cgroup import CgroupTree, remove
from mudroom.sandbox.limits.limiter import Limiter


def test_a_group_that_cannot_be_removed(tmp_path: Path) -> None:
    """rmdir(2) fails as it does while a process is in it."""
    (tmp_path / "group").mkdir()
    (tmp_path / "group/held").touch()
    with pytest.raises(MudroomError) as raised:
        remove(str(tmp_path / "group"))
    assert str(raised.value) == (
        f"{tmp_path}/group cannot be removed: processes in it do not end (cat {tmp_path}/group/cgroup.procs lists them)"
    )


def test_a_group_that_may_not_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a tree of another user, or one that is mounted read-only: no process is the reason."""

    def refuse(path: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    monkeypatch.setattr(os, "rmdir", refuse)
    with pytest.raises(MudroomError) as raised:
        remove(str(tmp_path))
    assert str(raised.value) == f"{tmp_path} cannot be removed: Read-only file system (rmdir {tmp_path})"


def test_a_group_that_cannot_be_made_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "vault"
    place.mkdir()
    tree = CgroupTree(2, {"memory": str(place)}, (str(place),), "for a test")
    monkeypatch.setattr(Limiter, "_tree", lambda *_words: tree)
    monkeypatch.setattr(limiter, "dismantle", lambda _tree: None)
    held = Limiter("vault", lambda: 0, {}, ())
    held.hold(Limits(memory=1 << 30), counts_processes=False)
    place.rmdir()
    place.write_text("no directory any more")
    with pytest.raises(Unsupported) as raised:
        held.leaf()
    told = str(raised.value)
    assert told.startswith(f"a limit needs a control group; found: Not a directory at {place}/")
    assert told.endswith(" (mudroom doctor tries each limit)")
    held.close()
