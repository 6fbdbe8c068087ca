"""Slots in the project (``.mudroom/apply``), where the vault is on another file system: those of another vault stay."""

from __future__ import annotations

import os
import re
import shutil
import stat
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from mudroom.errors import MudroomError
from mudroom.stage import disk
from mudroom.vault.apply import slot_directory, transaction
from mudroom.vault.retention import expiry
from whole_text import whole

pytestmark = [pytest.mark.both_users, pytest.mark.root]


@pytest.fixture
def apart(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The vault as on another file system: slots are in the project. A removed directory is kept there for undo."""
    monkeypatch.setattr(transaction, "mount_of", lambda path: path)
    place.write("src/a", "one\n")
    session, result = place.sh("rm -r src")
    session.changes.apply(result.fork)
    assert (place.project / ".mudroom/apply/u1/1/a").exists()
    place.state = place.root / "another"
    return place


def apply_new_file(place: Place) -> Any:
    session, result = place.sh("echo new > b")
    session.changes.apply(result.fork)
    return session


def test_an_apply_of_another_state_directory_lands_what_was_reviewed(apart: Place) -> None:
    """A container without a volume for the state, a state directory that was removed, two states at once."""
    shutil.rmtree(apart.root / "state")
    session = apply_new_file(apart)
    assert (apart.project / "b").read_text() == "new\n"
    assert (apart.project / ".mudroom/apply/u1/1/a").read_text() == "one\n", "what another vault's undo needs"
    session.changes.undo()
    assert not (apart.project / "b").exists()


def test_both_can_be_taken_back(apart: Place) -> None:
    apply_new_file(apart).changes.undo()
    apart.state = apart.root / "state"
    apart.session().changes.undo()
    assert (apart.project / "src/a").read_text() == "one\n"


def test_a_link_in_the_state(place: Place) -> None:
    """A user who makes room on a disk by moving a directory of the state and leaving a link."""
    session, result = place.sh("echo new > b")
    applies, elsewhere = Path(os.fsdecode(session.vault.path)) / "applies", place.root / "elsewhere"
    if applies.exists():
        applies.rmdir()
    elsewhere.mkdir()
    applies.symlink_to(elsewhere)
    told = f"{applies}/u1/slots leads through a symbolic link to {elsewhere}/u1/slots"
    hint = "the state has no links inside: set MUDROOM_STATE to the directory itself"
    with pytest.raises(MudroomError, match=whole(f"{told} ({hint})")):
        session.changes.apply(result.fork)
    assert not (place.project / "b").exists() and session.vault.fork(result.fork)
    applies.unlink()
    applies.mkdir()
    session.changes.apply(result.fork)
    assert (place.project / "b").exists()


def test_slots_that_are_made_at_the_same_time_are_left_alone(apart: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session, result = apart.sh("echo new > b")
    theirs = apart.project / ".mudroom/apply/u2"
    made = slot_directory.make_slots

    def between(record: Any, **more: Any) -> None:
        theirs.mkdir()
        (theirs / "1").write_text("theirs\n")
        made(record, **more)

    monkeypatch.setattr(transaction, "make_slots", between)
    with pytest.raises(MudroomError, match="u2 was made meanwhile"):
        session.changes.apply(result.fork)
    assert (theirs / "1").read_text() == "theirs\n" and not (apart.project / "b").exists()
    monkeypatch.setattr(transaction, "make_slots", made)
    session.changes.apply(result.fork)
    assert (apart.project / "b").read_text() == "new\n"
    assert Path(os.fsdecode(session.vault.applies()[-1])).name == "u3"


@pytest.mark.parametrize("planted", ["file", "directory", "ignore"])
def test_what_a_clone_has_in_the_place_of_slots_is_left_alone(
    place: Place, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    """A link to a file of the user's, which the file that hides slots from git would have emptied."""
    monkeypatch.setattr(transaction, "mount_of", lambda path: path)
    theirs = place.root / "theirs"
    theirs.mkdir()
    (theirs / ".gitignore").write_text("precious\n")
    own = place.project / ".mudroom"
    own.mkdir()
    if planted == "ignore":
        (own / "apply").mkdir()
        (own / "apply/.gitignore").symlink_to(theirs / ".gitignore")
    elif planted == "directory":
        (own / "apply").symlink_to(theirs)
    else:
        (own / "apply").write_text("precious\n")
    session, result = place.sh("echo new > b")
    if planted == "ignore":
        session.changes.apply(result.fork)
        session.changes.undo()
    else:
        with pytest.raises(MudroomError, match=r"\.mudroom/apply is not a directory"):
            session.changes.apply(result.fork)
    assert (theirs / ".gitignore").read_text() == "precious\n"
    assert os.listdir(theirs) == [".gitignore"] and not (place.project / "b").exists()


def test_slots_beside_those_of_another_user_are_refused_by_their_path(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two users of one project: the first one's directory is not for the second one, who was told only its name."""
    monkeypatch.setattr(transaction, "mount_of", lambda path: path)

    def refuse(*_given: object) -> None:
        raise PermissionError(13, "Permission denied", b"u1")

    session, result = place.sh("echo new > b")
    monkeypatch.setattr(disk, "mkdir", refuse)
    with pytest.raises(MudroomError, match=": the directory above it is closed to you") as told:
        session.changes.apply(result.fork)
    assert "MUDROOM_STATE" in told.value.hint and not (place.project / "b").exists()
    monkeypatch.undo()
    session.changes.apply(result.fork)
    assert (place.project / "b").exists()


def test_a_full_disk_of_the_project_is_told_as_that(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint was to discard forks, whose disk had room."""
    monkeypatch.setattr(transaction, "mount_of", lambda path: path)

    def full(*_given: object, **_more: object) -> None:
        raise OSError(28, "No space left on device")

    session, result = place.sh("echo new > b")
    monkeypatch.setattr(transaction, "fill_slots", full)
    with pytest.raises(MudroomError, match=r"no room on the file system of .*/project") as told:
        session.changes.apply(result.fork)
    assert "discard" not in told.value.hint
    monkeypatch.undo()
    session.changes.apply(result.fork)
    assert (place.project / "b").exists()


def test_undo_after_the_slots_are_gone_writes_through_no_link(apart: Place) -> None:
    theirs = apart.root / "theirs"
    theirs.mkdir()
    shutil.rmtree(apart.project / ".mudroom/apply")
    (apart.project / ".mudroom/apply").symlink_to(theirs)
    apart.state = apart.root / "state"
    with pytest.raises(MudroomError, match="is not a directory"):
        apart.session().changes.undo()
    assert not os.listdir(theirs)


def modes_of(project: Path, *names: str) -> list[int]:
    return [stat.S_IMODE((project / name).stat().st_mode) for name in names]


@pytest.mark.parametrize(
    ("project", "mask", "own", "apply"),
    [
        (0o2775, 0o022, 0o2775, 0o3775),  # shared by a group, as most umasks are
        (0o775, 0o077, 0o770, 0o1770),
        (0o777, 0o022, 0o777, 0o1777),
        (0o755, 0o022, 0o755, 0o755),
        (0o700, 0o077, 0o700, 0o700),
    ],
)
def test_who_may_write_to_the_project_may_keep_slots_beside(
    place: Place, monkeypatch: pytest.MonkeyPatch, project: int, mask: int, own: int, apply: int
) -> None:
    """Two users with a vault each, in a project of their group: the second one could not apply."""
    monkeypatch.setattr(transaction, "mount_of", lambda path: path)
    place.project.chmod(project)
    session, result = place.sh("echo new > b")
    before = os.umask(mask)
    try:
        session.changes.apply(result.fork)
    finally:
        os.umask(before)
    assert modes_of(place.project, ".mudroom", ".mudroom/apply", ".mudroom/apply/u1") == [
        own,
        apply,
        0o700 | project & 0o2000,
    ]
    session.changes.undo()
    assert not (place.project / "b").exists()


def test_a_directory_that_is_the_users_already_is_opened_to_nobody(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "mount_of", lambda path: path)
    place.project.chmod(0o2775)
    place.write(".mudroom/apply/notes", "private\n")
    (place.project / ".mudroom").chmod(0o755)
    (place.project / ".mudroom/apply").chmod(0o700)
    session, result = place.sh("echo new > b")
    session.changes.apply(result.fork)
    assert modes_of(place.project, ".mudroom", ".mudroom/apply") == [0o755, 0o700]


def planted(slots: Path, kind: str) -> Path:
    """Put something else in the place of slots, as another user who may write to ``.mudroom`` can; return its files."""
    slots.rename(slots.with_name("taken"))
    theirs = slots.parents[2] / "theirs"
    theirs.mkdir()
    if kind == "link":
        slots.symlink_to(theirs)
    elif kind == "link above":
        slots.parent.rename(slots.parent.with_name("elsewhere"))
        (theirs / slots.name).mkdir(mode=0o700)
        slots.parent.symlink_to(theirs)
        theirs /= slots.name
    else:
        theirs.rename(slots)
        theirs = slots
        theirs.chmod(0o775)  # else nobody else could have moved it there
    (theirs / "1").write_text("theirs\n")
    return theirs


@pytest.mark.parametrize("kind", ["link", "link above", "directory"])
@pytest.mark.parametrize("when", ["undo", "apply", "removal"])
def test_slots_in_the_place_of_those_of_an_apply_are_not_used(
    place: Place, monkeypatch: pytest.MonkeyPatch, kind: str, when: str
) -> None:
    monkeypatch.setattr(transaction, "mount_of", lambda path: path)
    place.write("a", "old\n")
    session, result = place.sh("echo new > a")
    slots, files = place.project / ".mudroom/apply/u1", []
    told = f"{slots} is not a directory, or behind a symbolic link"
    if kind == "directory":
        told = f"{slots} is not yours alone: it may hold other files than yours"
    if when == "apply":

        def between(record: Any) -> None:
            files.append(planted(slots, kind))
            slot_directory.sync_above(record)

        monkeypatch.setattr(transaction, "sync_above", between)
        with pytest.raises(MudroomError, match=re.escape(told)):
            session.changes.apply(result.fork)
    else:
        session.changes.apply(result.fork)
        files.append(planted(slots, kind))
        if when == "undo":
            before = os.listdir("/proc/self/fd")
            with pytest.raises(MudroomError, match=re.escape(told)):
                session.changes.undo()
            assert len(os.listdir("/proc/self/fd")) == len(before)
        else:
            at = transaction.ApplyDirectory(session.vault.applies()[0])
            expiry._remove_slots(session.vault, at, at.load())
    assert (place.project / "a").read_text() == ("old\n" if when == "apply" else "new\n")
    assert os.listdir(files[0]) == ["1"] and (files[0] / "1").read_text() == "theirs\n"


def test_slots_of_another_owner_are_not_used(apart: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    apart.state = apart.root / "state"
    session = apart.session()
    monkeypatch.setattr(disk, "user", lambda: 12345)
    monkeypatch.setattr(slot_directory, "_access_of_new", lambda _at: (12345, 0))
    with pytest.raises(MudroomError, match="u1 is not yours alone: it may hold other files than yours"):
        session.changes.undo()
    monkeypatch.undo()
    session.changes.undo()
    assert (apart.project / "src/a").read_text() == "one\n"


def test_a_file_system_with_one_owner_for_all_has_slots(apart: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    apart.state = apart.root / "state"
    session = apart.session()
    monkeypatch.setattr(disk, "user", lambda: 12345)
    session.changes.undo()
    assert (apart.project / "src/a").read_text() == "one\n"


def applied_twice(place: Place, monkeypatch: pytest.MonkeyPatch, mode: int) -> Any:
    """Apply ``a`` and ``b`` in a project of this mode; their earlier versions are in slots there."""
    monkeypatch.setattr(transaction, "mount_of", lambda path: path)
    place.project.chmod(mode)
    for name in "ab":
        place.write(name, f"old {name}\n")
    for name in "ab":
        session, result = place.sh(f"echo new > {name}")
        session.changes.apply(result.fork)
    return session


def exchanged(above: Path) -> None:
    """As the owner of the directory above can, also if it is sticky."""
    (above / "u1").rename(above / "u")
    (above / "u2").rename(above / "u1")
    (above / "u").rename(above / "u2")


def test_slots_of_another_apply_of_the_user_are_not_used(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The earlier version of one file would land in the place of another."""
    session = applied_twice(place, monkeypatch, 0o777)
    above = place.project / ".mudroom/apply"
    exchanged(above)
    told, slots = f"{above}/u2 holds no slots of u2, or those of another", f"{above}/u2"
    with pytest.raises(MudroomError, match=whole(f"{told} (ls -ld {slots} shows whose it is; move it away)")):
        session.changes.undo()
    assert (place.project / "a").read_text() == (place.project / "b").read_text() == "new\n"
    exchanged(above)
    session.changes.undo()
    session.changes.undo()
    assert (place.project / "a").read_text() == "old a\n" and (place.project / "b").read_text() == "old b\n"


def test_a_directory_of_the_users_that_was_moved_with_the_one_above_is_not_emptied(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rename(2) to another parent needs write permission for the directory itself, not for what is in it."""
    session = applied_twice(place, monkeypatch, 0o777)
    theirs, above = place.project / "theirs", place.project / ".mudroom/apply"
    (theirs / "data").mkdir(parents=True)
    (theirs / "data").chmod(0o755)
    (theirs / "data/1").write_text("precious\n")
    (theirs / "data").rename(theirs / "u1")
    above.rename(above.with_name("away"))
    theirs.rename(above)
    at = transaction.ApplyDirectory(session.vault.applies()[0])
    expiry._remove_slots(session.vault, at, at.load())
    assert (above / "u1/1").read_text() == "precious\n"


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_slots_of_an_earlier_version_have_no_mark(place: Place, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    session = applied_twice(place, monkeypatch, mode)
    for mark in (place.project / ".mudroom/apply").glob("u*/.of-*"):
        mark.unlink()
    if mode == 0o777:
        with pytest.raises(MudroomError, match="u2 holds no slots of u2"):
            session.changes.undo()
    else:
        session.changes.undo()
        assert (place.project / "b").read_text() == "old b\n"


def test_an_apply_that_is_killed_before_its_mark_is_taken_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "mount_of", lambda path: path)
    place.project.chmod(0o777)
    session, result = place.sh("echo new > b")

    def die(*_given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(slot_directory, "_mark", die)
    with pytest.raises(KeyboardInterrupt):
        session.changes.apply(result.fork)
    monkeypatch.undo()
    monkeypatch.setattr(transaction, "mount_of", lambda path: path)
    assert (place.project / ".mudroom/apply/u1").is_dir()
    place.session().changes.apply(result.fork)
    assert (place.project / "b").read_text() == "new\n"


def test_removal_leaves_nothing_of_slots(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session = applied_twice(place, monkeypatch, 0o777)
    for path in session.vault.applies():
        at = transaction.ApplyDirectory(path)
        expiry._remove_slots(session.vault, at, at.load())
    assert not (place.project / ".mudroom").exists()


def access_list(*entries: tuple[int, int, int]) -> bytes:
    """Return an access control list as the kernel stores it (linux/posix_acl_xattr.h): tag, permissions, id."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


@pytest.mark.skipif(sys.platform != "linux", reason="lists of Linux")
def test_the_mask_of_an_access_list_is_no_permission_of_the_group(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """acl(5): with a list, the group's bits of the mode are the mask. One user may write, the group may read."""
    user_obj, user, group_obj, mask, other, nobody = 1, 2, 4, 0x10, 0x20, 0xFFFFFFFF
    listed = access_list(
        (user_obj, 7, nobody), (user, 7, 65533), (group_obj, 5, nobody), (mask, 7, nobody), (other, 5, nobody)
    )
    try:
        os.setxattr(place.project, "system.posix_acl_access", listed)
    except OSError as error:
        pytest.skip(f"no access control lists here: {error.strerror}")
    assert place.project.stat().st_mode & 0o777 == 0o775
    monkeypatch.setattr(transaction, "mount_of", lambda path: path)
    session, result = place.sh("echo new > b")
    session.changes.apply(result.fork)
    assert modes_of(place.project, ".mudroom", ".mudroom/apply") == [0o755, 0o755]
