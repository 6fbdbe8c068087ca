"""The group of what lands in a project that users share by a group: theirs, so that the others can go on with it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from conftest import Place
from mudroom.core.merge.operations import Op
from mudroom.session import Session
from mudroom.stage import disk
from mudroom.stage.beneath import look
from mudroom.vault.apply import slot_content
from mudroom.vault.apply.form import LandingForm

pytestmark = [pytest.mark.both_users, pytest.mark.root]

FORK = "agent-1"
SCRIPT = (
    "sed -i s/one/two/ kept; mkdir -p new/deep; echo x > new/deep/x; cd here; mkdir empty; echo n > n; ln -s n link"
)
LANDED = ("kept", "new", "new/deep", "new/deep/x", "here/n", "here/link", "here/empty")


def other_group() -> int:
    """Return a group that this user may give a file to, and whose files the user does not have by default."""
    if os.geteuid() == 0:
        return 54321
    others = [group for group in os.getgroups() if group != os.getegid()]
    if not others:
        pytest.skip("this user is in one group only")
    return others[0]


def share(project: Path, group: int, bits: int) -> None:
    (project / "here").mkdir()
    (project / "kept").write_text("one\n")
    for path in (project, project / "here", project / "kept"):
        os.chown(path, -1, group)
        path.chmod(0o664 if path.is_file() else bits)


def applied(session: Session) -> None:
    with session.alone("a test"):
        assert not session.changes.apply(FORK).conflicts


def groups(project: Path) -> dict[str, int]:
    return {name: (project / name).lstat().st_gid for name in LANDED}


@pytest.mark.parametrize("keeps", [False, True], ids=["moved", "copied"])
def test_what_lands_has_the_group_of_the_project(place: Place, keeps: bool) -> None:
    group = other_group()
    share(place.project, group, 0o2775)
    session = place.session()
    session.forks.new(FORK)
    assert session.run([b"sh", b"-c", SCRIPT.encode()], fork=FORK).exit_code == 0
    if keeps:  # a sealed layer is copied
        session.forks.checkpoint(FORK, "point")
    applied(session)
    assert groups(place.project) == dict.fromkeys(LANDED, group)
    assert (place.project / "kept").read_text() == "two\n"
    with session.alone("a test"):
        session.changes.undo()
    assert (place.project / "kept").stat().st_gid == group
    assert not (place.project / "new").exists()
    with session.alone("a test"):
        session.changes.redo()
    assert groups(place.project) == dict.fromkeys(LANDED, group)


def test_the_group_is_that_of_the_project_that_was_opened_whatever_takes_its_path(tmp_path: Path) -> None:
    group, project, slots = other_group(), tmp_path / "project", tmp_path / "slots"
    for path in (project, project / "here", slots):
        path.mkdir()
    (slots / "1").write_text("x")
    for path in (project, project / "here"):
        os.chown(path, -1, group)
        path.chmod(0o2775)
    root, at = disk.open_root(bytes(project)), disk.open_root(bytes(slots))
    project.rename(tmp_path / "aside")
    (project / "here").mkdir(parents=True)
    entry = look(at, b"1")
    assert entry is not None
    try:
        forms = LandingForm(root, {})
        given = forms.give(at, Op("place", b"here/new", 1, None, entry), entry, {})
        forms.close()
    finally:
        os.close(at)
    assert given.gid == (slots / "1").stat().st_gid == group


def test_a_project_without_set_group_id_keeps_the_group_of_replaced_files_only(place: Place) -> None:
    group = other_group()
    share(place.project, group, 0o775)
    session = place.session()
    session.forks.new(FORK)
    assert session.run([b"sh", b"-c", SCRIPT.encode()], fork=FORK).exit_code == 0
    applied(session)
    own = dict.fromkeys(LANDED, os.getegid())
    assert groups(place.project) == {**own, "kept": group}
    assert stat.S_IMODE((place.project / "kept").stat().st_mode) == 0o664


def test_what_goes_back_to_the_fork_can_be_written_to_there(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    share(place.project, other_group(), 0o2775)
    session = place.session()
    session.forks.new(FORK)
    assert session.run([b"sh", b"-c", SCRIPT.encode()], fork=FORK).exit_code == 0

    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(slot_content, "_make_durable", full)
        with pytest.raises(OSError, match="No space left"), session.alone("a test"):
            session.changes.apply(FORK)
    session.changes.recover()
    written = session.run([b"sh", b"-c", b"echo more >> kept; echo more >> new/deep/x; cat new/deep/x"], fork=FORK)
    assert written.exit_code == 0
    applied(session)
    assert (place.project / "kept").read_text() == "two\nmore\n"
    assert (place.project / "new/deep/x").read_text() == "x\nmore\n"


def test_an_undo_that_keeps_edits_keeps_the_group(place: Place) -> None:
    group, kept = other_group(), place.project / "kept"
    share(place.project, group, 0o2775)
    kept.write_text("one\n" + "line\n" * 9)
    session = place.session()
    session.forks.new(FORK)
    assert session.run([b"sh", b"-c", SCRIPT.encode()], fork=FORK).exit_code == 0
    applied(session)
    with kept.open("a") as stream:
        stream.write("mine\n")
    with session.alone("a test"):
        session.changes.undo()
    assert kept.read_text() == "one\n" + "line\n" * 9 + "mine\n"
    assert kept.stat().st_gid == group
