"""Opening below a directory: no symbolic link is followed and nothing outside is reached, with openat2 and without."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from mudroom.core.tree.entry import FileHeld
from mudroom.stage import disk
from mudroom.stage.beneath import look_beneath, open_beneath, open_file, open_root, read_file


@pytest.fixture(params=["openat2", "by hand"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(disk, "_have_openat2", request.param == "openat2", raising=False)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    inside = tmp_path / "inside"
    (inside / "d/e").mkdir(parents=True)
    (inside / "d/e/f").write_text("content")
    os.symlink("../outside", inside / "out")
    os.symlink("d", inside / "within")
    os.symlink("d/e/f", inside / "link")
    descriptor = open_root(os.fsencode(inside))
    request.addfinalizer(lambda: os.close(descriptor))
    return descriptor


def test_what_is_there_opens(root: int) -> None:
    descriptor = open_beneath(root, b"d/e/f", os.O_RDONLY)
    assert os.read(descriptor, 100) == b"content"
    os.close(descriptor)
    assert read_file(root, b"d/e/f", 100) == b"content"
    assert read_file(root, b"d/e/f", 3) is None


@pytest.mark.parametrize("path", [b"out/secret", b"within/e/f", b"link", b"out"])
def test_no_link_is_followed(root: int, path: bytes) -> None:
    with pytest.raises(OSError):
        open_beneath(root, path, os.O_RDONLY)
    entry = look_beneath(root, path)
    assert entry is None or entry.kind == "symlink"


def test_a_deep_path_opens_by_hand(root: int) -> None:
    deep = b"/".join([b"x" * 200] * 30)
    current = os.dup(root)
    for part in deep.split(b"/"):
        os.mkdir(part, dir_fd=current)
        below = os.open(part, os.O_RDONLY | os.O_DIRECTORY, dir_fd=current)
        os.close(current)
        current = below
    os.close(current)
    os.close(open_beneath(root, deep, os.O_RDONLY | os.O_DIRECTORY))


def test_nothing_is_none(root: int) -> None:
    assert look_beneath(root, b"no/such") is None
    assert look_beneath(root, b"d/e/f/below-a-file") is None


@pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")
def test_a_file_under_a_lease_is_held_by_another(root: int) -> None:
    """The holder does not end it when it is asked, as a command that is paused: the kernel would wait 45 seconds."""
    import fcntl

    holder = os.open("d/e/f", os.O_RDONLY, dir_fd=root)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        with pytest.raises(FileHeld, match=r"lease|temporarily"):
            open_file(root, b"d/e/f")
    finally:
        os.close(holder)
        signal.signal(signal.SIGIO, before)
