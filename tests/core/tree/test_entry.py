"""Entries: what is read from a stat result, and what counts as the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.tree.entry import Entry, Kind, StatResult, difference_in_words, from_stat, same_shape, same_stamp
from sample import KINDS, directory, file, symlink
from tiers import each

FILE = file()
FORMATS: list[tuple[int, Kind]] = [
    (0o100000, "file"),
    (0o040000, "directory"),
    (0o120000, "symlink"),
    (0o010000, "fifo"),
    (0o140000, "socket"),
    (0o020000, "device"),
    (0o060000, "device"),
]


@each(("format_bits", "kind"), FORMATS)
def test_from_stat(format_bits: int, kind: Kind) -> None:
    entry = from_stat(StatResult(format_bits | 0o6755, 2, 3, 4, 5, 6, 7, 8, 9))
    assert entry == Entry(
        kind, 0 if kind == "symlink" else 0o6755, 7 if kind == "file" else 0, b"", 3, 2, 4, 5, 6, 8, 9
    )


def look(path: Path, target: bytes = b"") -> Entry:
    return from_stat(os.lstat(path), target)  # type: ignore[arg-type]


def test_a_real_stat_result_fits(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    (tmp_path / "f").chmod(0o640)
    (tmp_path / "l").symlink_to("nowhere")
    info, entry = os.lstat(tmp_path / "f"), look(tmp_path / "f")
    assert (entry.kind, entry.mode, entry.size, entry.inode) == ("file", 0o640, 3, info.st_ino)
    assert (entry.mtime, entry.ctime) == (info.st_mtime_ns, info.st_ctime_ns)
    link = look(tmp_path / "l", b"nowhere")
    assert (link.kind, link.mode, link.size, link.target) == ("symlink", 0, 0, b"nowhere")
    assert look(tmp_path).kind == "directory"


@pytest.mark.parametrize(
    ("entry", "executable"),
    [
        (file(mode=0o755), True),
        (file(mode=0o610), True),
        (file(mode=0o644), False),
        (directory(mode=0o755), False),
        (symlink(), False),
    ],
)
def test_executable(entry: Entry, executable: bool) -> None:
    assert entry.executable == executable


DIFFERENT: dict[str, Any] = {
    "kind": "fifo",
    "mode": 0o600,
    "size": 9,
    "target": b"elsewhere",
    "device": 9,
    "inode": 9,
    "links": 9,
    "uid": 9,
    "gid": 9,
    "mtime": 9,
    "ctime": 9,
}


@pytest.mark.parametrize("field", Entry._fields)
@pytest.mark.parametrize("entry", [file(), symlink()], ids=["file", "symlink"])
def test_which_fields_make_a_shape_and_a_stamp(entry: Entry, field: str) -> None:
    other = entry._replace(**{field: DIFFERENT[field]})
    assert same_shape(entry, other) == (field not in ("kind", "mode", "target"))
    assert same_stamp(entry, other) == (field in ("device", "links", "uid", "gid", "ctime"))


@each("field", Entry._fields)
def test_the_times_of_a_directory_do_not_count(field: str) -> None:
    other = directory()._replace(**{field: DIFFERENT[field]})
    assert same_stamp(directory(), other) == (field not in ("kind", "mode", "inode"))


def entries() -> st.SearchStrategy[Entry | None]:
    few = st.integers(0, 1)
    return st.none() | st.builds(
        Entry, st.sampled_from(KINDS), few, few, st.sampled_from([b"", b"x"]), few, few, few, few, few, few, few
    )


@given(entries(), entries(), entries())
def test_both_are_equivalences(a: Entry | None, b: Entry | None, c: Entry | None) -> None:
    for same in (same_shape, same_stamp):
        assert same(a, a)
        assert same(a, b) == same(b, a)
        assert not (same(a, b) and same(b, c)) or same(a, c)
        assert same(a, None) == (a is None)


@each(
    ("expected", "actual", "words"),
    [
        (FILE, FILE._replace(kind="fifo"), "another kind"),
        (FILE, FILE._replace(mode=0o600), "another mode"),
        (FILE, FILE._replace(inode=FILE.inode + 1, mtime=1), "another file"),
        (FILE, FILE._replace(size=FILE.size + 1), "another size"),
        (FILE, FILE._replace(mtime=FILE.mtime + 1), "another time"),
        (None, FILE, "it is new"),
        (FILE, None, "it is gone"),
    ],
)
def test_a_difference_in_words(expected: Entry | None, actual: Entry | None, words: str) -> None:
    assert difference_in_words(expected, actual) == words
