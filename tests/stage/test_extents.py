"""What is copied of a file with holes, by what its file system tells of them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mudroom.stage.copy import copy_content


def copied(tmp_path: Path, size: int) -> bytes:
    one, other = tmp_path / "one", tmp_path / "other"
    with open(one, "rb") as read, open(other, "wb") as write:
        assert copy_content(read.fileno(), write.fileno(), size)
    return other.read_bytes()


@pytest.fixture
def sparse(tmp_path: Path) -> bytes:
    with open(tmp_path / "one", "wb") as stream:
        stream.seek(1 << 20)
        stream.write(b"middle" * 1000)
        stream.truncate(1 << 21)
    return (tmp_path / "one").read_bytes()


def test_holes_stay_holes(tmp_path: Path, sparse: bytes) -> None:
    assert copied(tmp_path, len(sparse)) == sparse
    assert os.stat(tmp_path / "other").st_blocks <= os.stat(tmp_path / "one").st_blocks


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTTY, errno.ENOTSUP])
def test_a_file_system_that_tells_nothing_of_holes(
    tmp_path: Path, sparse: bytes, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refused(_descriptor: int, _position: int, _how: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "lseek", refused)
    assert copied(tmp_path, len(sparse)) == sparse


def test_a_file_that_has_got_shorter_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"short")
    assert copied(tmp_path, 100) == b"short" + bytes(95)


def test_the_size_of_a_file_without_a_hole_at_its_end_is_not_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ext4 journals a size that is set before it writes the data: a power cut left zeros of the full size."""
    (tmp_path / "one").write_bytes(b"text")
    monkeypatch.delattr(os, "ftruncate")
    assert copied(tmp_path, 4) == b"text"
