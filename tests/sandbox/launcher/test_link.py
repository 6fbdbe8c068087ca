"""Paths in a root that comes from an image: which of them lead elsewhere."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mudroom.sandbox.launcher.link import require_no_link


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
