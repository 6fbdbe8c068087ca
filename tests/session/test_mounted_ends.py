"""Mounts that end while mudroom counts on them: by hand, by a kill, by what cannot be mounted at all."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clocks import give_way
from conftest import Place
from mounted_fork import HAS_FUSE, KINDS, SH, changed, kind, mounted, mounted_new, session, sh
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError, UsageError
from mudroom.session import Session
from mudroom.stage.views.copy_view import CopyView
from mudroom.stage.views.mount import Kind
from mudroom.vault.forks import mount as vault_mount
from whole_text import whole

__all__ = ["kind", "session"]  # fixtures
pytestmark = [pytest.mark.both_users, pytest.mark.root]


def unmount_by_hand(kind: Kind, at: Path) -> None:
    words = ["umount", str(at)] if kind == "overlay" else ["fusermount3", "-u", str(at)]
    subprocess.run(words, check=True)


def _server_of(at: Path) -> int:
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"fuse-overlayfs") and os.fsencode(at) in words:
            return int(entry.name)
    raise AssertionError("no fuse-overlayfs serves this place")


def _killed(kind: Kind, at: Path) -> None:
    server = _server_of(at)
    waiting = os.pidfd_open(server)
    os.kill(server, 9)
    os.waitid(os.P_PIDFD, waiting, os.WEXITED) if os.getppid() == server else None
    while os.path.exists(f"/proc/{server}/stat") and b") Z " not in Path(f"/proc/{server}/stat").read_bytes():
        give_way()
    os.close(waiting)


ENDS: dict[tuple[str, str], Callable[[Kind, Path], None]] = {
    ("overlay", "umount by hand"): unmount_by_hand,
    ("fuse", "umount by hand"): unmount_by_hand,
    ("fuse", "fuse-overlayfs killed"): _killed,
}
USES: dict[str, Callable[[Session], object]] = {
    "a command": lambda session: sh(session, "true"),
    "file tools": lambda session: session.forks.files("f").read("made").decode(),
    "a review": lambda session: session.changes.of("f"),
    "a checkpoint": lambda session: session.forks.checkpoint("f", "after"),
    "an unmount": lambda session: session.forks.unmount("f"),
    "another mount": lambda session: session.forks.mount("f"),
    "an apply": lambda session: session.changes.apply("f"),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(("kind", "end"), [pair for pair in ENDS if pair[0] in KINDS], indirect=["kind"])
def test_a_mount_that_has_ended_is_settled(place: Place, session: Session, kind: Kind, end: str, use: str) -> None:
    at = mounted_new(session, kind)
    (at / "made").write_text("by an editor\n")
    shutil.rmtree(at / "d")
    (at / "d").mkdir()
    sh(session, "echo more >> file")
    ENDS[kind, end](kind, at)
    if use == "a command":
        assert any("the mount of f had ended" in note for note in sh(session, "true").notes)
    if use == "an apply":
        with session.alone("a test"):
            USES[use](session)
    else:
        USES[use](session)
        assert changed(session) == {"made", "d/x", "d/y", "file"}
        assert sh(session, "cat made; ls d; cat file").stdout == b"by an editor\none\nmore\n"
    if use == "an apply":
        assert (place.project / "made").read_text() == "by an editor\n"
        assert not (place.project / "d/x").exists()


@pytest.mark.parametrize("writable", [True, False])
def test_a_fork_whose_commands_worked_in_a_copy(place: Place, writable: bool) -> None:
    """Its content was looked for in the directory of the mount, which was empty, and then thrown away."""
    place.write("file", "one\n")
    session = place.session(Settings(view="copy"))
    session.run([b"sh", b"-c", b"mkdir t; echo new > t/new; echo more >> file"], fork="f")
    at = Path(os.fsdecode(session.forks.mount("f", writable=writable).place))
    assert (at / "t/new").read_text() == "new\n" and (at / "file").read_text() == "one\nmore\n"
    session.forks.unmount("f")
    session.changes.review("f")
    session.changes.apply("f")
    assert (place.project / "t/new").read_text() == "new\n"
    assert (place.project / "file").read_text() == "one\nmore\n"


JUST_ENDED = (
    "the mount of f has just ended, or something is mounted in it (take away what is mounted in it, and try again)"
)


def test_a_copy_whose_directory_is_gone(session: Session, tmp_path: Path) -> None:
    sh(session, "echo before > before")
    at = mounted(session, "copy")
    (at / "made").write_text("x")
    os.rename(at, tmp_path / "away")
    told = f"the directory in which f is mounted, {at}, is not there any more"
    hint = "move it back; without it, mudroom unmount f --lost goes on with what the fork held before"
    with pytest.raises(MudroomError, match=whole(f"{told} ({hint})")):
        sh(session, "true")
    os.rename(tmp_path / "away", at)
    assert sh(session, "cat made").stdout == b"x"
    shutil.rmtree(at)
    with pytest.raises(MudroomError, match="is not there any more"):
        session.forks.unmount("f")
    session.forks.unmount("f", lost=True)
    assert changed(session) == {"before"}
    assert sh(session, "ls").stdout == b"before\nd\nfile\ntool.sh\n"


def test_a_mount_that_is_used_after_it_was_taken_away(session: Session, kind: Kind) -> None:
    """umount -l of a user, while a program has a file of it open: what that writes is the fork's."""
    if kind == "copy":
        pytest.skip("a directory does not end")
    sh(session, "echo more >> file")
    at = mounted(session, kind)
    words = ["umount", "-l", str(at)] if kind == "overlay" else ["fusermount3", "-u", "-z", str(at)]
    with open(at / "file"):
        subprocess.run(words, check=True)
        with pytest.raises(MudroomError) as told:
            sh(session, "true")
    assert told.value.message.startswith(f"the mount of f is not at {at} any more, but is still used by {os.getpid()} ")
    assert told.value.hint == "end the programs that have files of it open"
    assert sh(session, "cat file").stdout == b"one\nmore\n"


def test_mounts_that_cannot_be(session: Session, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    sh(session, "echo before > before")
    at = mounted(session, "copy")
    session.forks.new("g")
    told = f"{at}/in lies where f is mounted (name a directory outside of it, or none)"
    with pytest.raises(UsageError, match=whole(told)):
        session.forks.mount("g", os.fsencode(at / "in"), kind="copy")
    real = CopyView.bring_into

    def busy(view: CopyView, *words: Any) -> Any:
        (at / "count").write_text(os.urandom(8).hex())
        return real(view, *words)

    with monkeypatch.context() as patch:
        patch.setattr(CopyView, "bring_into", busy)
        told = "the files of f are being changed (try again when nothing writes to them)"
        with pytest.raises(MudroomError, match=whole(told)):
            session.forks.unmount("f")
    assert (at / "count").exists() and sh(session, "cat before").stdout == b"before\n"
    note = Path(os.fsdecode(session.vault.fork("f").path)) / "mount"
    whole_note = note.read_bytes()
    note.write_bytes(b"garbage")
    with pytest.raises(MudroomError, match=whole(f"the note of the mount of f is damaged (remove {note})")):
        sh(session, "true")
    note.write_bytes(whole_note)
    session.forks.unmount("f")
    assert changed(session) == {"before", "count"}


@pytest.mark.parametrize(
    ("path", "named"), [(".wh.before", ".wh.before"), ("d/.wh..wh..opq", "d/.wh..wh..opq"), (".wh.d/x", ".wh.d")]
)
def test_a_fork_with_a_file_that_fuse_takes_for_a_deletion(place: Place, path: str, named: str) -> None:
    """fuse-overlayfs hides ``before``, and unmount would make it a deletion."""
    place.write("before", "one\n")
    session = place.session()
    sh(session, f"mkdir -p $(dirname {path}); echo x > {path}")
    told = f"{named} has a name that fuse-overlayfs takes for a deleted file"
    with pytest.raises(UsageError, match=whole(f"{told} (mudroom mount f --kind copy shows the fork as it is)")):
        session.forks.mount("f", kind="fuse")
    assert path in changed(session)


@pytest.mark.skipif(not HAS_FUSE, reason="a mount by fuse cannot be had here")
def test_a_server_of_files_that_does_not_end(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that the kernel does not let go: the number of its process is told."""
    sh(session, "echo before > before")
    at = mounted(session, "fuse")
    with monkeypatch.context() as patch:
        patch.setattr(vault_mount, "_has_ended", lambda _fork: False)
        patch.setattr(vault_mount, "end_server", lambda *_places: 12345)
        told = "the fuse-overlayfs of f does not end (kill -9 12345)"
        with pytest.raises(MudroomError, match=whole(told)):
            session.forks.unmount("f")
    assert {change.path for change in session.forks.unmount("f").changes} == {b"before"} and not at.exists()


def test_another_directory_at_its_place_is_not_written_to(session: Session, kind: Kind, tmp_path: Path) -> None:
    """A command that is started while the user ends the mount must not get the user's directory instead."""
    at = tmp_path / "here"
    session.forks.new("f")
    session.forks.mount("f", os.fsencode(at), kind=kind)
    if kind == "copy":
        os.rename(at, tmp_path / "away")
        at.mkdir()
    else:
        unmount_by_hand(kind, at)
    (at / "own").write_text("the user's\n")
    try:
        sh(session, "echo lost > own; rm -f own")
    except MudroomError as error:
        assert "not there any more" in error.message
    assert (at / "own").read_text() == "the user's\n"
    if kind == "copy":
        shutil.rmtree(at)
        os.rename(tmp_path / "away", at)


@pytest.mark.parametrize("in_background", [False, True])
def test_a_mount_that_ends_while_a_command_is_started(
    session: Session, kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_background: bool
) -> None:
    """After the last look at it, before the sandbox binds it."""
    session.forks.new("f")
    at = tmp_path / "here"
    session.forks.mount("f", os.fsencode(at), kind=kind)
    (at / "made").write_text("x\n")
    planned = session.machine.confinement.plan

    def ends(*arguments: Any, **named: Any) -> Any:
        if kind == "copy":
            os.rename(at, tmp_path / "away")
            at.mkdir()
        else:
            unmount_by_hand(kind, at)
        (at / "own").write_text("the user's\n")
        return planned(*arguments, **named)

    monkeypatch.setattr(session.machine.confinement, "plan", ends)
    script = [*SH, b"echo lost > own; echo lost > other"]
    with pytest.raises(MudroomError, match=whole(JUST_ENDED)):
        session.start(script, fork="f") if in_background else session.run(script, fork="f")
    monkeypatch.undo()
    assert sorted(path.name for path in at.iterdir()) == ["own"]
    assert (at / "own").read_text() == "the user's\n"
    if kind == "copy":
        shutil.rmtree(at)
        os.rename(tmp_path / "away", at)
    assert sh(session, "cat made; ls").stdout == b"x\nd\nfile\nmade\ntool.sh\n"


@pytest.mark.parametrize("end", ["unmount", "a mount that has ended"])
def test_a_later_process_knows_the_secrets_of_a_mount(place: Place, session: Session, kind: Kind, end: str) -> None:
    """It has not looked for them yet. What is empty in the fork must not empty the user's file."""
    if kind == "copy" and end != "unmount":
        pytest.skip("a directory does not end")
    place.write(".env", "TOKEN=abc\n")
    at = mounted_new(session, kind)
    os.utime(at / ".env")
    with (at / "d/.env").open("w") as stream:  # no secret of the project's: the fork's own
        stream.write("OWN=1\n")
    (at / "file").write_text("two\n")
    later = place.session()
    if end == "unmount":
        later.forks.unmount("f")
    else:
        unmount_by_hand(kind, at)
    assert later.forks.known_record("f") is not None
    assert changed(place.session()) == {"file", "d/.env"}
    with later.alone("a test"):
        later.changes.apply("f")
    assert (place.project / ".env").read_text() == "TOKEN=abc\n"
