from __future__ import annotations

from pathlib import Path

import pytest

from mudroom.core.tree.entry import Entry
from mudroom.stage.originals import moved_files
from mudroom.stage.originals.moved_files import Moved


def entry(inode: int, ctime: int) -> Entry:
    return Entry("file", 0o644, 1, b"", 1, inode, 1, 0, 0, 5, ctime)


@pytest.fixture
def applies(tmp_path: Path) -> bytes:
    return bytes(tmp_path)


def ctimes(applies: bytes, inode: int, ctime: int) -> tuple[int, ...]:
    return moved_files.ctimes_of(moved_files.read(applies), entry(inode, ctime))


def test_a_file_has_all_its_ctimes_while_it_is_untouched(applies: bytes) -> None:
    for moved in (Moved(7, 1, 11), Moved(7, 11, 21)):
        moved_files.add(applies, [moved])
        moved_files.add(applies, [moved])  # a recovery does it again
    assert ctimes(applies, 7, 21) == (1, 11, 21)
    assert ctimes(applies, 7, 22) == (22,)  # edited since
    assert ctimes(applies, 7, 11) == (11,)
    assert ctimes(applies, 8, 21) == (21,)


def test_an_edit_or_a_file_with_the_same_inode_ends_the_history(applies: bytes) -> None:
    moved_files.add(applies, [Moved(7, 1, 11)])
    moved_files.add(applies, [Moved(7, 15, 21)])
    assert ctimes(applies, 7, 21) == (15, 21)


def test_a_ctime_in_whole_seconds_proves_nothing(applies: bytes) -> None:
    moved_files.add(applies, [Moved(7, 1, 2_000_000_000)])
    assert ctimes(applies, 7, 2_000_000_000) == (2_000_000_000,)


def test_a_damaged_file_puts_its_files_in_doubt(applies: bytes) -> None:
    moved_files.add(applies, [Moved(7, 1, 11)])
    (Path(applies.decode()) / "moved").write_bytes(b"\xc1")
    assert ctimes(applies, 7, 11) == (11,)


@pytest.mark.parametrize(("oldest", "left"), [(0, (1, 11, 21)), (1, (1, 11, 21)), (12, (11, 21)), (21, (21,))])
def test_what_nothing_can_refer_to_is_forgotten(applies: bytes, oldest: int, left: tuple[int, ...]) -> None:
    moved_files.add(applies, [Moved(7, 1, 11), Moved(7, 11, 21)])
    moved_files.forget(applies, oldest)
    assert ctimes(applies, 7, 21) == left
    assert (7 in moved_files.read(applies)) == (len(left) > 1)
