"""The times by which a file is known again: on Windows ``os.stat`` has the time of creation where POSIX has that of the
last change, so a file that is written in place would stay the one that was read. Run by ``dev/wine``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

from inner_path import inner
from mudroom.policy import cache, host_answers
from mudroom.stage.file_cache import FileCache
from mudroom.stage.stamp import is_settled, stamp_of

SECOND = 10**9


def read(path: bytes) -> bytes:
    return Path(os.fsdecode(path)).read_bytes()


def settle(path: Path) -> None:
    """Wait until a change has another time."""
    import time

    while (found := stamp_of(inner(path))) is None or not is_settled(found.ctime, time.time_ns()):
        pass


@pytest.mark.parametrize(
    "stamp",
    [stamp_of, cache.stamp, lambda path: host_answers.stamp(b"C:/none", None, (path,))],
    ids=["state", "policy", "hosts"],
)
def test_a_file_that_is_written_in_place_has_another_stamp(tmp_path: Path, stamp: Callable[[bytes], object]) -> None:
    """Of the same size, and with the time of modification set back."""
    file = tmp_path / "file"
    file.write_bytes(b"deny")
    os.utime(file, ns=(SECOND, SECOND))
    settle(file)
    before = stamp(inner(file))
    assert stamp(inner(file)) == before
    with file.open("r+b") as stream:
        stream.write(b"pass")
    os.utime(file, ns=(SECOND, SECOND))
    assert stamp(inner(file)) != before


def test_a_state_file_is_read_again(tmp_path: Path) -> None:
    file, kept = tmp_path / "file", FileCache()
    file.write_bytes(b"0")
    os.utime(file, ns=(SECOND, SECOND))
    settle(file)
    assert kept.of(inner(file), read) == kept.of(inner(file), read) == b"0"
    with file.open("r+b") as stream:
        stream.write(b"1")
    os.utime(file, ns=(SECOND, SECOND))
    assert kept.of(inner(file), read) == b"1"
