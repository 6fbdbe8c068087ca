"""Files that a command has left in directories that end with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mudroom.core.result import LeftFile, left_sentence
from mudroom.stage import left
from mudroom.stage.left import left_files
from tiers import each

pytestmark = pytest.mark.both_users


def found(top: Path, placed: dict[bytes, bytes] | None = None) -> dict[str, int]:
    opened = os.open(top, getattr(os, "O_PATH", os.O_RDONLY))
    before = len(os.listdir("/proc/self/fd"))
    try:
        files = left_files([(b"/home/me", opened)], placed or {})
    finally:
        os.close(opened)
    assert len(os.listdir("/proc/self/fd")) == before - 1
    return {os.fsdecode(file.path): file.size for file in files}


def test_files_at_any_depth(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/deep").write_text("1234")
    (tmp_path / "top").write_text("1")
    (tmp_path / "empty").mkdir()
    assert found(tmp_path) == {"/home/me/a/b/deep": 4, "/home/me/top": 1}


def test_what_was_placed_is_left_out_unless_it_was_changed(tmp_path: Path) -> None:
    for name in ("same", "changed", "longer"):
        (tmp_path / name).write_text("new" + "er" * (name == "longer"))
    placed = {b"/home/me/same": b"new", b"/home/me/changed": b"old", b"/home/me/longer": b"new"}
    assert found(tmp_path, placed) == {"/home/me/changed": 3, "/home/me/longer": 5}


def test_what_a_command_plants_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    home = tmp_path / "home"
    home.mkdir()
    (home / "link").symlink_to(outside)
    (home / "to_file").symlink_to(outside / "secret")
    os.mkfifo(home / "fifo")
    assert found(home) == {}
    assert found(home, {b"/home/me/fifo": b"", b"/home/me/to_file": b"s"}) == {}


def test_a_closed_directory_is_passed(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    (tmp_path / "open").write_text("1")
    assert found(tmp_path) == {"/home/me/open": 1}


def test_the_look_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left, "MOST", 5)
    for number in range(9):
        (tmp_path / str(number)).write_text("1")
    assert len(found(tmp_path)) == 5


@each(
    ("paths", "sentence"),
    [
        ([], ""),
        (["/tmp/pytest-of-me/x", "/var/tmp/a/b"], ""),
        (["/home/me/.gitconfig"], "~/.gitconfig (1 file, 10 B)"),
        (["/tmp/z", "/var/tmp/y", "/home/me/a/b"], "~/a/b, /tmp/z, /var/tmp/y (3 files, 30 B)"),
        ([f"/home/me/{name}" for name in "abcd"], "~/a, ~/b, ~/c, … (4 files, 40 B)"),
        (["/home/me/\x1b[31m"], r"~/\x1b[31m (1 file, 10 B)"),
    ],
)
def test_the_sentence(paths: list[str], sentence: str) -> None:
    said = left_sentence([LeftFile(path.encode(), 10) for path in paths], b"/home/me", "x")
    assert said == (sentence and f"written outside the project and not kept: {sentence}")
