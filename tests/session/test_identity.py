"""Whether a file is still the one that mudroom knew: the stamp where it is certain, the content where it is not.

The user's tools keep sizes and times: rsync, ``cp -p``, formatters, an editor within one tick of a coarse clock. Others
change the times alone: touch(1), a build, a checkout and back.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from conftest import Place
from mudroom.core.settings import Settings
from mudroom.session import Session
from mudroom.stage.originals import collection
from mudroom.vault.apply import imprint
from mudroom.vault.apply.drift import find_drift

View = Literal["overlay", "copy"]
OLD, USERS = "one\ntwo\nthree\n", "one\ntwo\nTHREE\n"


@pytest.fixture(params=["overlay", "copy"])
def session(request: pytest.FixtureRequest, place: Place) -> Session:
    view: View = request.param
    place.write("f", OLD)
    place.write("d/a", "a\n")
    place.write("d/b", "b\n")
    return place.session(Settings(view=view))


def sh(session: Session, script: str) -> Any:
    return session.run([b"sh", b"-c", script.encode()], fork="f")


def sneak(path: Path, content: str) -> None:
    """Edit as rsync and ``cp -p`` do: another content of the same size, and the time that the file had."""
    info = path.stat()
    assert len(content) == info.st_size
    path.write_text(content)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


def touch(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def same(path: Path) -> None:
    """Change nothing but ctime."""
    info = path.stat()
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


def paths(result: Any) -> list[bytes]:
    return [conflict.path for conflict in result.conflicts]


# --- apply ---


def test_an_edit_with_the_same_size_and_time_is_merged(place: Place, session: Session) -> None:
    sh(session, "sed -i 's/one/ONE/' f")
    sneak(place.project / "f", USERS)
    applied = session.changes.apply("f")
    assert paths(applied) == [] and applied.merged == (b"f",)
    assert (place.project / "f").read_text() == "ONE\ntwo\nTHREE\n"


def test_an_edit_of_the_same_line_is_a_conflict(place: Place, session: Session) -> None:
    sh(session, "sed -i 's/three/3333/' f")
    sneak(place.project / "f", USERS)
    assert [remark.path for remark in find_drift(session.vault, session.vault.fork("f"))] == [b"f"]
    assert paths(session.changes.apply("f")) == [b"f"]
    assert (place.project / "f").read_text() == USERS


@pytest.mark.parametrize("script", ["rm f", "rm f; mkdir f", "mv f g", "rm f; ln -s d f"])
def test_an_edited_file_is_not_removed(place: Place, session: Session, script: str) -> None:
    sh(session, script)
    sneak(place.project / "f", USERS)
    applied = session.changes.apply("f")
    if script == "mv f g":
        assert not (place.project / "f").exists() and (place.project / "g").read_text() == USERS
    else:
        assert b"f" in paths(applied) and (place.project / "f").read_text() == USERS


def test_an_edited_file_is_not_removed_with_its_directory(place: Place, session: Session) -> None:
    sh(session, "rm -r d")
    sneak(place.project / "d/a", "A\n")
    assert b"d/a" in paths(session.changes.apply("f"))
    assert (place.project / "d/a").read_text() == "A\n" and not (place.project / "d/b").exists()


@pytest.mark.parametrize("script", ["rm f", "echo new > f", "rm -r d f", "chmod 600 f", "mv f g"])
@pytest.mark.parametrize("change", [touch, same])
def test_a_touched_file_is_no_edit(place: Place, session: Session, script: str, change: Callable[[Path], None]) -> None:
    sh(session, script)
    for name in ("f", "d/a"):
        change(place.project / name)
    assert find_drift(session.vault, session.vault.fork("f")) == []
    assert paths(session.changes.apply("f")) == []
    assert session.changes.undo().conflicts == ()
    assert (place.project / "f").read_text() == OLD and (place.project / "d/a").read_text() == "a\n"


def test_what_is_not_known_is_kept(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many files that a fork deletes not all are read. Where the times leave a doubt, the file stays. (A staged copy
    has a snapshot below it: there is no doubt.)"""
    monkeypatch.setattr(collection, "DELETED_FILES", 1)
    place.write("d/a", "a\n")
    place.write("d/b", "b\n")
    session = place.session()
    sh(session, "rm d/a d/b")
    for name in "ab":
        same(place.project / "d" / name)
    (conflict,) = session.changes.apply("f").conflicts
    assert "its times have changed" in conflict.reason
    assert len(list((place.project / "d").iterdir())) == 1


def test_a_command_sees_what_it_changed_itself(place: Place, session: Session) -> None:
    """The same within a fork: a command that keeps size and time has changed the file nevertheless."""
    sh(session, "cp -p f /tmp/was; sed 's/one/ONE/' f > /tmp/new; cat /tmp/new > f; touch -r /tmp/was f")
    assert [change.path for change in session.changes.of("f").changes] == [b"f"]


# --- undo and redo ---


@pytest.mark.parametrize("change", [touch, same])
def test_undo_removes_what_was_only_touched(place: Place, session: Session, change: Callable[[Path], None]) -> None:
    sh(session, "echo new > new; mkdir e; echo x > e/x; echo y > e/y; echo F > f; rm d/a")
    session.changes.apply("f")
    for name in ("new", "e/x", "f"):
        change(place.project / name)
    assert session.changes.undo().conflicts == ()
    assert sorted(os.listdir(place.project)) == ["d", "f"] and (place.project / "f").read_text() == OLD
    assert session.changes.redo().conflicts == ()
    assert (place.project / "e/y").read_text() == "y\n" and (place.project / "f").read_text() == "F\n"


def test_undo_keeps_an_edit_with_the_same_size_and_time(place: Place, session: Session) -> None:
    sh(session, "echo new > new; mkdir e; echo x > e/x; echo y > e/y; sed -i 's/one/ONE/' f")
    session.changes.apply("f")
    sneak(place.project / "new", "NEW\n")
    sneak(place.project / "e/x", "X\n")
    sneak(place.project / "f", "ONE\ntwo\nTHREE\n")
    undone = session.changes.undo()
    assert set(paths(undone)) >= {b"new", b"e/x"}
    assert (place.project / "new").read_text() == "NEW\n" and (place.project / "e/x").read_text() == "X\n"
    assert (place.project / "f").read_text() == USERS and not (place.project / "e/y").exists()


def test_redo_keeps_an_edit_with_the_same_size_and_time(place: Place, session: Session) -> None:
    sh(session, "sed -i 's/one/ONE/' f; rm d/a")
    session.changes.apply("f")
    session.changes.undo()
    sneak(place.project / "f", USERS)
    sneak(place.project / "d/a", "A\n")
    assert set(paths(session.changes.redo())) == {b"f", b"d/a"}
    assert (place.project / "f").read_text() == USERS and (place.project / "d/a").read_text() == "A\n"


def test_undo_in_doubt_keeps_the_file(place: Place, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imprint, "FILES", 0)
    sh(session, "echo new > new; echo other > other")
    session.changes.apply("f")
    same(place.project / "new")
    assert paths(session.changes.undo()) == [b"new"]
    assert (place.project / "new").exists() and not (place.project / "other").exists()


def test_undo_of_what_nobody_touched_reads_no_content(
    place: Place, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    sh(session, "mkdir e; for n in 1 2 3; do echo $n > e/$n; done; echo new > new; echo F > f")
    session.changes.apply("f")
    read: list[bytes] = []
    monkeypatch.setattr(imprint, "digest_at", lambda _root, path, *_kept: read.append(path))
    assert session.changes.undo().conflicts == ()
    assert read == [b"f"]  # the earlier file, for redo


# --- coarse clocks ---


@pytest.fixture
def coarse(place: Place) -> Iterator[Path]:
    """An ext4 with small inodes: times in whole seconds."""
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        pytest.skip("mounting a small disk needs root")
    image, mounted = place.root / "image", place.root / "coarse"
    with image.open("wb") as stream:
        stream.truncate(8 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-I", "128", "-O", "^has_journal", image], check=True)
    mounted.mkdir()
    subprocess.run(["mount", "-o", "loop", image, mounted], check=True)
    place.project.rmdir()
    (mounted / "project").mkdir()
    place.project = mounted / "project"
    yield mounted
    place.close()
    subprocess.run(["umount", mounted], check=True)


@pytest.mark.both_users
@pytest.mark.root
@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_an_edit_within_a_coarse_tick_is_no_loss(place: Place, coarse: Path, view: View) -> None:
    for number in range(4):
        place.write(f"f{number}", OLD)
    session = place.session(Settings(view=view))
    sh(session, "for f in f0 f1 f2 f3; do sed -i 's/three/3333/' $f; done")
    for number in range(4):
        (place.project / f"f{number}").write_text(USERS)
    conflicts = paths(session.changes.apply("f"))
    assert conflicts == [b"f0", b"f1", b"f2", b"f3"]
    assert [(place.project / name.decode()).read_text() for name in conflicts] == [USERS] * 4
