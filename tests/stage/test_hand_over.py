"""A staged copy that another user works in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mudroom.core.confinement.container import NOBODY, user_of
from mudroom.stage import disk
from mudroom.stage.source import OpenSource
from mudroom.stage.views.copy_view import CopyView

pytestmark = [
    pytest.mark.both_users,
    pytest.mark.root,
    pytest.mark.skipif(disk.user() != 0, reason="only root may give files away"),
]


def made(tmp_path: Path, owner: tuple[int, int] | None = NOBODY) -> tuple[CopyView, Path, OpenSource]:
    project = tmp_path / "project"
    if not project.exists():
        (project / "d").mkdir(parents=True)
        (project / "d" / "f").write_text("one\n")
        os.link(project / "d" / "f", project / "same")
        (project / "run").write_text("x")
        (project / "run").chmod(0o4755)
        (project / "link").symlink_to("/etc/passwd")
    lower = OpenSource(os.fsencode(project))
    view = CopyView(os.fsencode(tmp_path / "copy"), lower, owner=owner)
    view.prepare()
    return view, tmp_path / "copy" / "work", lower


def changed(view: CopyView, lower: OpenSource) -> set[bytes]:
    return {one.path for one in view.differences(lower)}


def owners(work: Path) -> set[tuple[int, int]]:
    found = [work, *work.rglob("*")]
    return {(os.lstat(path).st_uid, os.lstat(path).st_gid) for path in found}


def test_all_of_it_is_given_and_nothing_counts_as_changed(tmp_path: Path) -> None:
    view, work, lower = made(tmp_path)
    assert owners(work) == {NOBODY}
    assert changed(view, lower) == set()
    assert os.lstat("/etc/passwd").st_uid == 0
    assert os.stat(work / "run").st_mode & 0o7777 == 0o4755


def test_what_was_changed_before_stays_changed(tmp_path: Path) -> None:
    view, work, lower = made(tmp_path)
    (work / "new").write_text("n")
    (work / "d" / "f").write_text("two\n")
    (work / "link").unlink()
    view, work, lower = made(tmp_path)
    assert owners(work) == {NOBODY}
    assert changed(view, lower) == {b"new", b"d/f", b"same", b"link"}


def test_root_has_it_back(tmp_path: Path) -> None:
    made(tmp_path)
    view, work, lower = made(tmp_path, None)
    assert owners(work) == {(0, os.getegid())}
    assert changed(view, lower) == set()


def test_who_is_who_in_a_container() -> None:
    assert user_of(0, 0) == NOBODY
    assert user_of(1000, 1001) == (1000, 1001)
    assert user_of(1000, 0) == (1000, NOBODY[1])
