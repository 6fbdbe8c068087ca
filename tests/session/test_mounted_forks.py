"""A fork that is mounted and worked in at once: the user, commands, file tools and servers see one truth."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clocks import give_way
from conftest import Place, act_as, full_listing
from mudroom.core.confinement.limit import Limits
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.errors import ForkMoved, MudroomError, Unsupported, UsageError
from mudroom.sandbox.host.host import landlock_abi
from mudroom.session import Session, upkeep
from mudroom.session.background import Background
from mudroom.stage.views.copy_view import CopyView
from mudroom.stage.views.mount import Kind, is_mounted
from mudroom.vault.apply import landing
from mudroom.vault.forks import mount as vault_mount
from mudroom.vault.forks import stacking
from mudroom.vault.store.mount_note import MountNote, write_note
from whole_text import whole

pytestmark = pytest.mark.both_users

SH = (b"sh", b"-c")
SERVER = b"""import http.server, socketserver
server = socketserver.TCPServer(("127.0.0.1", 8123), http.server.SimpleHTTPRequestHandler)
print("up", flush=True)
server.serve_forever()"""
PYTHON = os.fsencode(os.path.realpath(sys.executable))


KINDS = [*(["overlay"] if os.geteuid() == 0 else []), "fuse", "copy"]
"""The kernel mounts for root alone."""
HAS_FUSE = bool(shutil.which("fuse-overlayfs")) and os.access("/dev/fuse", os.R_OK | os.W_OK)
EDITOR = next(filter(None, map(shutil.which, ("vim", "vim.tiny"))), "vi")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    if request.param == "fuse" and not HAS_FUSE:
        pytest.skip("a mount by fuse cannot be had here")
    chosen: Kind = request.param
    return chosen


@pytest.fixture
def session(place: Place) -> Iterator[Session]:
    place.write("file", "one\n")
    place.write("d/x", "x\n")
    place.write("d/y", "y\n")
    place.write("tool.sh", "#!/bin/sh\necho tool\n", 0o755)
    session = place.session()
    yield session
    for name, note in session.forks.mounts().items():
        if is_mounted(note.place):
            session.forks.unmount(name)


def sh(session: Session, script: str, fork: str = "f") -> Result:
    return session.run([*SH, script.encode()], fork=fork)


def mounted(session: Session, kind: Kind, fork: str = "f") -> Path:
    return Path(os.fsdecode(session.forks.mount(fork, kind=kind).place))


def changed(session: Session, fork: str = "f") -> set[str]:
    return {os.fsdecode(change.path) for change in session.changes.of(fork).changes}


def heard(background: Background, text: bytes) -> None:
    while text not in background.output()[0]:
        assert background.poll() is None, background.output()
        give_way()


def test_commands_and_the_user_see_one_truth(place: Place, session: Session, kind: Kind) -> None:
    before = full_listing(place.project)
    sh(session, "echo early > early")
    at = mounted(session, kind)
    assert (at / "early").read_text() == "early\n"
    (at / "made").write_text("by an editor\n")
    (at / "d/x").unlink()
    result = sh(session, "cat made; ls d; pwd; echo more >> file; mkdir n; echo in > n/in; rm d/y; rmdir d; mkdir d")
    assert result.stdout == b"by an editor\ny\n%s\n" % os.fsencode(place.project)
    assert result.exit_code == 0, result.stderr
    assert {os.fsdecode(change.path) for change in result.changeset.changes} == {
        "early", "made", "d/x", "d/y", "file", "n", "n/in",
    }  # fmt: skip
    assert (at / "file").read_text() == "one\nmore\n"
    assert (at / "n/in").read_text() == "in\n"
    assert list((at / "d").iterdir()) == []
    assert all(change.original_known for change in result.changeset.changes)
    assert full_listing(place.project) == before
    after = session.forks.unmount("f")
    assert {os.fsdecode(change.path) for change in after.changes} == {
        "early", "made", "d/x", "d/y", "file", "n", "n/in",
    }  # fmt: skip
    assert not at.exists()
    assert sh(session, "cat early made file n/in; ls -a d").stdout == b"early\nby an editor\none\nmore\nin\n.\n..\n"
    assert full_listing(place.project) == before


def test_file_tools_work_in_the_mount(session: Session, kind: Kind) -> None:
    session.forks.new("f")
    files = session.forks.files("f")
    files.write("buffered", "before the mount\n")
    at = mounted(session, kind)
    assert (at / "buffered").read_text() == "before the mount\n"
    files.write("tool/new", "by a tool\n")
    assert (at / "tool/new").read_text() == "by a tool\n"
    (at / "tool/new").write_text("by an editor\n")
    assert files.read_text("tool/new") == "by an editor\n"
    files.edit("tool/new", "an editor", "a tool again")
    assert sh(session, "cat tool/new").stdout == b"by a tool again\n"
    assert changed(session) == {"buffered", "tool", "tool/new"}
    session.forks.unmount("f")
    assert files.read_text("tool/new") == "by a tool again\n"
    files.write("last", "x")
    assert sh(session, "cat last").stdout == b"x"


def test_a_server_in_the_background_beside_them(session: Session, kind: Kind) -> None:
    at = mounted_new(session, kind)
    server = session.start([PYTHON, b"-c", SERVER], fork="f")
    heard(server, b"up")
    get = f"{PYTHON.decode()} -c \"import urllib.request as u; print(u.urlopen('http://127.0.0.1:8123/page').read().decode())\""
    (at / "page").write_text("first")
    assert sh(session, get).stdout == b"first\n"
    (at / "page.new").write_text("second")
    os.rename(at / "page.new", at / "page")
    assert sh(session, get).stdout == b"second\n"
    session.forks.files("f").write("page", "third")
    assert sh(session, get).stdout == b"third\n"
    assert (at / "page").read_text() == "third"
    session.forks.checkpoint("f", "point")
    with pytest.raises(UsageError, match="running in the background"):
        session.forks.unmount("f")
    assert changed(session) == {"page"}
    server.end()
    assert {change.path for change in session.forks.unmount("f").changes} == {b"page"}


def mounted_new(session: Session, kind: Kind) -> Path:
    session.forks.new("f")
    return mounted(session, kind)


def test_a_real_editor(session: Session, kind: Kind) -> None:
    at = mounted_new(session, kind)
    words = [EDITOR, "-es", "-u", "NONE", "-i", "NONE", "-c", "%s/one/two/", "-c", "wq", "file"]
    subprocess.run(words, cwd=at, check=True, stdin=subprocess.DEVNULL)
    assert sh(session, "cat file; ls").stdout == b"two\nd\nfile\ntool.sh\n"
    assert changed(session) == {"file"}


def test_a_checkpoint_has_the_moment(session: Session, kind: Kind) -> None:
    at = mounted_new(session, kind)
    (at / "file").write_text("first\n")
    shutil.rmtree(at / "d")
    (at / "d").mkdir()
    (at / "d/new").write_text("new\n")
    session.forks.checkpoint("f", "point")
    (at / "file").write_text("second\n")
    session.forks.new("g", parent="f", at="point")
    assert sh(session, "cat file d/new; ls d", "g").stdout == b"first\nnew\nnew\n"
    session.forks.new("h", parent="f")
    assert sh(session, "cat file", "h").stdout == b"second\n"
    if kind == "copy":
        with pytest.raises(MudroomError, match="is mounted at"):
            session.forks.rollback("f", "point")
        session.forks.unmount("f")
    session.forks.rollback("f", "point")
    assert sh(session, "cat file d/new; ls d").stdout == b"first\nnew\nnew\n"
    assert at.exists() == (kind != "copy")
    assert mounted(session, kind).joinpath("file").read_text() == "first\n"


@pytest.mark.parametrize("reviews", [True, False])
def test_an_apply_of_a_mounted_fork(place: Place, session: Session, kind: Kind, reviews: bool) -> None:
    at = mounted_new(session, kind)
    (at / "file").write_text("changed\n")
    (at / "made").write_text("x\n")
    fingerprint = session.changes.review("f")[1] if reviews else None
    if kind == "copy":
        with session.alone("a test"), pytest.raises(MudroomError, match="is mounted at"):
            session.changes.apply("f")
        session.forks.unmount("f")
        fingerprint = None
    with session.alone("a test"):
        session.changes.apply("f", reviewed=fingerprint)
    assert (place.project / "file").read_text() == "changed\n"
    assert (place.project / "made").read_text() == "x\n"
    assert changed(session) == set()
    if kind != "copy":
        assert (at / "made").read_text() == "x\n"
        (at / "after").write_text("y\n")
        assert sh(session, "cat made after").stdout == b"x\ny\n"
        assert changed(session) == {"after"}


@pytest.mark.parametrize("act", ["apply", "rollback"])
@pytest.mark.parametrize("kind", KINDS[:-1], indirect=True)
def test_a_command_that_waits_for_an_apply_does_not_keep_the_mount_away(
    place: Place, session: Session, kind: Kind, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    """It gets the fork's lock as soon as that is free, and may run for hours."""
    at = mounted_new(session, kind)
    (at / "made").write_text("x\n")
    session.forks.checkpoint("f", "point")
    waits = threading.Event()
    other = place.session(waiting=lambda _holder: waits.set())
    results: list[Result] = []
    command = threading.Thread(target=lambda: results.append(sh(other, "until [ -e go ]; do sleep 0.05; done")))

    def held_up(call: Callable[..., Any]) -> Callable[..., Any]:
        def calling(*arguments: Any, **options: Any) -> Any:
            command.start()
            assert waits.wait(20)
            return call(*arguments, **options)

        return calling

    monkeypatch.setattr(landing, "land", held_up(landing.land))
    monkeypatch.setattr(stacking, "rollback", held_up(stacking.rollback))
    try:
        with session.alone("a test") if act == "apply" else contextlib.nullcontext():
            session.changes.apply("f") if act == "apply" else session.forks.rollback("f", "point")
        assert is_mounted(os.fsencode(at))
    finally:
        if at.is_dir():
            (at / "go").touch()
        else:
            other.interrupt()
        command.join()
    assert [result.exit_code for result in results] == [0]
    assert (place.project / "made").exists() == (act == "apply")
    assert session.forks.unsaid() == []


@pytest.mark.parametrize("kind", KINDS[:-1], indirect=True)
def test_an_apply_while_the_mount_is_in_use(place: Place, session: Session, kind: Kind) -> None:
    at = mounted_new(session, kind)
    (at / "made").write_text("x\n")
    with open(at / "made"), session.alone("a test"), pytest.raises(MudroomError, match="cannot be unmounted"):
        session.changes.apply("f")
    assert not (place.project / "made").exists()
    assert sh(session, "cat made").stdout == b"x\n"


def test_changes_that_are_not_those_of_the_review_are_not_applied(place: Place, session: Session, kind: Kind) -> None:
    at = mounted_new(session, kind)
    (at / "made").write_text("x\n")
    session.changes.review("f")
    (at / "made").write_text("another\n")
    if kind == "copy":
        session.forks.unmount("f")
    with session.alone("a test"), pytest.raises(ForkMoved):
        session.changes.apply("f")
    assert not (place.project / "made").exists()
    if kind != "copy":
        assert (at / "made").read_text() == "another\n"


def test_mounting_again_gives_the_same(session: Session, kind: Kind, tmp_path: Path) -> None:
    at = mounted_new(session, kind)
    assert mounted(session, kind) == at
    assert session.forks.mount("f").place == os.fsencode(at)
    with pytest.raises(UsageError, match="f is mounted at"):
        session.forks.mount("f", os.fsencode(tmp_path / "elsewhere"))
    with pytest.raises(UsageError, match="f is mounted at"):
        session.forks.mount("f", writable=False)
    session.forks.unmount("f")
    assert mounted(session, kind) == at


def test_a_place_where_mudroom_works_itself_is_refused(
    place: Place, session: Session, kind: Kind, tmp_path: Path
) -> None:
    at = mounted_new(session, kind)
    session.forks.new("g")
    vault = Path(os.fsdecode(session.vault.path))
    (tmp_path / "link").symlink_to(vault / "forks")
    session.forks.new("named")
    named = tmp_path / "named"
    session.forks.mount("named", os.fsencode(named), kind=kind)
    before = sorted(path.name for path in vault.iterdir())
    for inside, reason in (
        (place.project / "d/in", "in the project"),
        (at / "in", "where f is mounted"),
        (named / "in", "where named is mounted"),
        (vault / "forks/g/upper/in", "mudroom's own files"),
        (vault / "forks/new", "mudroom's own files"),
        (vault / "mounts/new", "mudroom's own files"),
        (tmp_path / "link/g/in", "mudroom's own files"),
    ):
        with pytest.raises(UsageError, match=reason):
            session.forks.mount("g", os.fsencode(inside), kind=kind)
        assert not inside.exists()
    assert sorted(path.name for path in vault.iterdir()) == before
    assert changed(session) == changed(session, "named") == set()
    assert mounted(session, kind, "g") == vault / "mounts/g"


def test_secrets_are_masked_in_the_mount_and_stay_so(place: Place, session: Session, kind: Kind) -> None:
    place.write(".env", "TOKEN=abc\n")
    at = mounted_new(session, kind)
    assert (at / ".env").read_text() == ""
    assert sh(session, "cat .env").stdout == b""
    place.write("d/.env", "TOKEN=def\n")
    with pytest.raises(UsageError, match="is a secret that can be read where f is mounted"):
        sh(session, "cat d/.env")
    session.forks.unmount("f")
    assert sh(session, "cat d/.env").stdout == b""


def _links(at: Path, outside: Path) -> None:
    (at / "out").symlink_to(outside)
    (at / "dir").symlink_to(outside.parent)


def test_links_lead_no_host_process_out(place: Place, session: Session, kind: Kind, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("the user's\n")
    at = mounted_new(session, kind)
    _links(at, outside)
    sh(session, f"ln -s {tmp_path} by-command; mkdir deep; mv deep deeper; ln -s {tmp_path} deep")
    files = session.forks.files("f")
    for path in ("dir/outside", "by-command/outside", "deep/outside"):
        with pytest.raises((OSError, MudroomError)):
            files.read_text(path)
        with pytest.raises((OSError, MudroomError)):
            files.write(path, "x")
    changes = session.changes.of("f").changes
    assert all(change.staged is not None and change.staged.kind in ("symlink", "directory") for change in changes)
    assert outside.read_text() == "the user's\n"
    assert sh(session, f"cat out || cat {outside} || echo none").stdout == b"none\n"


def test_two_forks_are_mounted_apart(session: Session, kind: Kind) -> None:
    session.forks.new("g")
    one, other = mounted_new(session, kind), mounted(session, kind, "g")
    (one / "made").write_text("1")
    assert not (other / "made").exists()
    sh(session, "echo 2 > made", "g")
    assert (one / "made").read_text() == "1"
    assert (other / "made").read_text() == "2\n"


def test_the_mount_of_a_session_before(place: Place, session: Session, kind: Kind) -> None:
    """Its launcher has a template with the mounts of before."""
    for _time in range(4):
        sh(session, "true", "g")
    at = mounted_new(session, kind)
    for number in range(4):
        assert sh(session, f"echo {number} > n{number}; ls").exit_code == 0
        assert (at / f"n{number}").read_text() == f"{number}\n"
    other = place.session()
    assert sh(other, "cat n3").stdout == b"3\n"


# --- mounts that end ---


def _by_hand(kind: Kind, at: Path) -> None:
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
    ("overlay", "umount by hand"): _by_hand,
    ("fuse", "umount by hand"): _by_hand,
    ("fuse", "fuse-overlayfs killed"): _killed,
}
USES: dict[str, Callable[[Session], object]] = {
    "a command": lambda session: sh(session, "true"),
    "file tools": lambda session: session.forks.files("f").read_text("made"),
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
        _by_hand(kind, at)
    (at / "own").write_text("the user's\n")
    try:
        sh(session, "echo lost > own; rm -f own")
    except MudroomError as error:
        assert "not there any more" in error.message
    assert (at / "own").read_text() == "the user's\n"
    if kind == "copy":
        shutil.rmtree(at)
        os.rename(tmp_path / "away", at)


# --- beside others ---


def test_several_at_once(session: Session, kind: Kind) -> None:
    at = mounted_new(session, kind)
    files = session.forks.files("f")
    results: list[Result] = []
    server = session.start([*SH, b"echo up; while :; do sleep 0.02; done"], fork="f")
    heard(server, b"up")

    def run(number: int) -> None:
        results.append(sh(session, f"for i in 1 2 3 4 5; do echo $i >> by-command-{number}; done"))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for number in range(20):
        files.write(f"by-tool-{number}", str(number))
        (at / f"by-user-{number}").write_text(str(number))
    for thread in threads:
        thread.join()
    server.end()
    assert [result.exit_code for result in results] == [0] * 3
    expected = {f"by-{who}-{number}" for who in ("tool", "user") for number in range(20)}
    assert changed(session) == expected | {f"by-command-{number}" for number in range(3)}
    assert (at / "by-command-1").read_text() == "1\n2\n3\n4\n5\n"


def test_another_process_mounts_while_a_server_runs(session: Session, kind: Kind) -> None:
    """No lock is needed for the path of a mount that is there."""
    at = mounted_new(session, kind)
    server = session.start([*SH, b"echo up; while :; do sleep 0.02; done"], fork="f")
    heard(server, b"up")
    assert mounted(session, kind) == at
    server.end()


@pytest.mark.parametrize("level", [0, 1])
def test_levels_and_machines_without_namespaces(place: Place, session: Session, kind: Kind, level: int) -> None:
    at = mounted_new(session, kind)
    act_as(session, level=level)
    assert sh(session, "cat file; echo two >> file; echo bad >> /etc/mudroom-test").stdout == b"one\n"
    assert (at / "file").read_text() == "one\ntwo\n"
    if not landlock_abi():
        return
    session.machine.confinement.mode = "landlock"
    result = sh(session, f"cat file; echo three >> file; echo bad >> {place.project}/file")
    assert result.stdout == b"one\ntwo\n", result
    assert (at / "file").read_text() == "one\ntwo\nthree\n"
    assert (place.project / "file").read_text() == "one\n"


def test_no_container_in_a_mounted_fork(session: Session, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted_new(session, kind)
    act_as(session, level=2)
    monkeypatch.setattr("mudroom.sandbox.container.engine.why_none", lambda *_environment: "")  # there need not be one
    with pytest.raises(Unsupported, match="a container in a mounted fork"):
        sh(session, "true")


def test_a_standing_overlay_gives_way(session: Session, kind: Kind) -> None:
    for number in range(5):
        sh(session, f"echo {number} > n{number}")
    at = mounted(session, kind)
    assert (at / "n4").read_text() == "4\n"
    (at / "n5").write_text("5\n")
    sh(session, "cat n5")
    assert not os.path.lexists(session.vault.fork("f").path + b"/standing")
    session.forks.unmount("f")
    for _time in range(5):
        assert sh(session, "cat n5").stdout == b"5\n"


def test_a_fork_that_is_mounted_to_look_at_runs_nothing(session: Session, kind: Kind) -> None:
    sh(session, "echo made > made")
    note = session.forks.mount("f", writable=False, kind=kind)
    with pytest.raises(MudroomError, match="is mounted at"):
        sh(session, "true")
    with pytest.raises(MudroomError, match="is mounted at"):
        session.forks.files("f").read_text("made")
    assert changed(session) == {"made"}
    session.forks.unmount("f")
    assert not os.path.exists(note.place)
    assert sh(session, "cat made").stdout == b"made\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount here")
def test_what_the_user_mounts_inside_is_not_the_command_s(session: Session, kind: Kind, tmp_path: Path) -> None:
    at = mounted_new(session, kind)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(at / "d")], check=True)
    try:
        with pytest.raises(MudroomError):
            sh(session, "echo bad > d/bad")
        assert list((at / "d").iterdir()) == []
    finally:
        subprocess.run(["umount", str(at / "d")], check=True)
    assert sh(session, "ls d").stdout == b"x\ny\n"


def test_read_only_files_and_closed_directories(session: Session, kind: Kind) -> None:
    at = mounted_new(session, kind)
    sh(session, "chmod 444 file; mkdir closed; echo in > closed/in; chmod 0 closed/in closed; touch -d @5 tool.sh")
    assert changed(session) >= {"file", "closed", "closed/in"}
    assert (at / "file").stat().st_mode & 0o777 == 0o444
    session.forks.checkpoint("f", "point")
    session.forks.unmount("f")
    assert changed(session) >= {"file", "closed", "closed/in"}
    assert sh(session, "stat -c %a file closed; chmod 700 closed; chmod 600 closed/in; cat closed/in").stdout == (
        b"444\n0\nin\n"
    )


def test_garbage_collection_leaves_a_mounted_fork(session: Session, kind: Kind) -> None:
    at = mounted_new(session, kind)
    (at / "made").write_text("x")
    with session.alone("a test"):
        upkeep.sweep(session.vault, upkeep.retention_limits(session.actor.settings), time.time_ns(), forks_older=0)
    assert sh(session, "cat made file").stdout == b"xone\n"
    assert (at / "d/x").read_text() == "x\n"


# --- crashes ---


def _in_a_child(act: Callable[[], object]) -> int:
    """Do it in a process that is gone afterwards, without any clean-up."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
        finally:
            os._exit(9)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("writes", [1, 2])
def test_a_crash_while_it_is_mounted(
    session: Session, kind: Kind, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """After the note is written, and after it is mounted."""
    sh(session, "echo early > early")
    left = [writes]

    def write(fork: bytes, note: MountNote) -> None:
        left[0] -= 1
        if writes == 1 or left[0]:
            write_note(fork, note)
        if not left[0]:
            os._exit(9)

    monkeypatch.setattr(vault_mount, "write_note", write)
    assert _in_a_child(lambda: mounted(session, kind)) == 9
    monkeypatch.undo()
    assert sh(session, "cat early; echo more >> file").stdout == b"early\n"
    at = mounted(session, kind)
    assert (at / "file").read_text() == "one\nmore\n"
    session.forks.unmount("f")
    assert changed(session) == {"early", "file"}


@pytest.mark.parametrize("step", ["convert_fuse_layer", "gather", "leave_copy", "_remove_place", "remove_note"])
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_while_it_is_unmounted(
    session: Session, kind: Kind, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    at = mounted_new(session, kind)
    (at / "made").write_text("x\n")
    shutil.rmtree(at / "d")
    (at / "d").mkdir()
    sh(session, "echo more >> file")
    done = getattr(vault_mount, step)

    def cut_off(*arguments: object, **named: object) -> None:
        if after:
            done(*arguments, **named)
        os._exit(9)

    monkeypatch.setattr(vault_mount, step, cut_off)
    _in_a_child(lambda: session.forks.unmount("f"))
    monkeypatch.undo()
    assert sh(session, "cat made file; ls d").stdout == b"x\none\nmore\n"
    if "f" in session.forks.mounts():
        session.forks.unmount("f")
    assert changed(session) == {"made", "file", "d/x", "d/y"}
    assert sh(session, "cat made file; ls d").stdout == b"x\none\nmore\n"


@pytest.mark.parametrize("step", ["gather", "leave_copy", "convert_fuse_layer", "write_note"])
def test_a_full_disk_while_it_is_unmounted(
    session: Session, kind: Kind, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    at = mounted_new(session, kind)
    (at / "made").write_text("x\n")

    def full(*_arguments: object, **_named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(vault_mount, step, full)
    with contextlib.suppress(OSError):
        session.forks.unmount("f")
    monkeypatch.undo()
    assert sh(session, "cat made").stdout == b"x\n"
    assert changed(session) == {"made"}


def test_a_mudroom_that_is_killed_while_its_command_runs(place: Place, session: Session, kind: Kind) -> None:
    at = mounted_new(session, kind)
    script = "echo half > half; echo up; while :; do sleep 0.02; done"
    words = [sys.executable, "-m", "mudroom", "exec", "--fork", "f", "--", "sh", "-c", script]
    environment = {**os.environ, "HOME": str(place.home), "MUDROOM_STATE": str(place.state)}
    with subprocess.Popen(words, cwd=place.project, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.kill()
    assert (at / "half").read_text() == "half\n"
    assert sh(session, "cat half; echo more >> half").stdout == b"half\n"
    assert changed(session) == {"half"}
    assert mounted(session, kind) == at


def test_the_user_changes_files_all_the_time(session: Session, kind: Kind) -> None:
    """A file that is gone when it is looked at is no reason to fail."""
    at = mounted_new(session, kind)
    done = threading.Event()

    def edit() -> None:
        number = 0
        while not done.is_set():
            number += 1
            place = at / "busy" / str(number % 3) / "deep"
            place.mkdir(parents=True, exist_ok=True)
            for name in range(5):
                (place / f"{name}.new").write_text(str(number))
                os.rename(place / f"{name}.new", place / str(name))
            shutil.rmtree(at / "busy")

    user = threading.Thread(target=edit)
    user.start()
    try:
        for number in range(6):
            assert sh(session, f"echo {number} > by-command-{number}").exit_code == 0
            session.changes.of("f")
            session.forks.checkpoint("f", f"point-{number}")
    finally:
        done.set()
        user.join()
    assert changed(session) == {f"by-command-{number}" for number in range(6)}
    session.forks.new("g", parent="f", at="point-5")
    assert sh(session, "cat by-command-5", "g").stdout == b"5\n"


def test_conflicts_are_shown_while_it_is_mounted(place: Place, session: Session, kind: Kind) -> None:
    at = mounted_new(session, kind)
    (at / "file").write_text("theirs\n")
    place.write("file", "mine\n")
    if kind == "copy":
        with pytest.raises(MudroomError, match="is mounted at"):
            session.changes.conflicts("f")
        session.forks.unmount("f")
        assert [conflict.path for conflict in session.changes.conflicts("f")] == [b"file"]
        return
    assert [conflict.path for conflict in session.changes.conflicts("f")] == [b"file"]
    conflict = session.changes.conflict("f", b"file")
    assert conflict is not None
    assert (conflict.ours.content, conflict.theirs.content) == (b"mine\n", b"theirs\n")
    with pytest.raises(MudroomError, match="is mounted at"):
        session.changes.decide("f", conflict, "theirs")
    with session.alone("a test"):
        assert session.changes.apply("f").applied.conflicts
    assert (at / "file").read_text() == "theirs\n"


def test_commits_in_a_mounted_fork(place: Place, session: Session, kind: Kind) -> None:
    git = ["git", "-c", "user.name=n", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=place.project, check=True)
    at = mounted_new(session, kind)
    (at / "file").write_text("by the user\n")
    subprocess.run([*git, "commit", "-qam", "second"], cwd=at, check=True)
    result = sh(
        session, "echo two > d/x; git -c user.name=n -c user.email=a@b commit -qam third; git log --oneline | wc -l"
    )
    assert result.stdout.strip() == b"3", result.stderr
    assert [commit.subject for commit in session.changes.commits("f").commits] == ["second", "third"]
    session.forks.unmount("f")
    with session.alone("a test"):
        brought = session.changes.bring_commits("f")
    assert [commit.subject for commit in brought.commits] == ["second", "third"]


def test_writes_that_another_session_still_has_in_memory(place: Place, session: Session, kind: Kind) -> None:
    session.forks.new("f")
    other = place.session()
    other.forks.files("f").write("in-memory", "of the other session\n")
    at = mounted(session, kind)
    assert not (at / "in-memory").exists()
    other.forks.files("f").write("after", "x\n")
    assert (at / "in-memory").read_text() == "of the other session\n"
    assert (at / "after").read_text() == "x\n"
    assert sh(other, "cat in-memory after").stdout == b"of the other session\nx\n"
    session.forks.unmount("f")
    assert changed(session) == {"in-memory", "after"}
    assert other.forks.files("f").read_text("after") == "x\n"


def test_the_user_s_programs_are_told_of_what_a_command_does(session: Session, kind: Kind) -> None:
    """By inotify(7): it is one file system. An editor sees that a file has changed on disk."""
    at = mounted_new(session, kind)
    libc = ctypes.CDLL(None, use_errno=True)
    watching = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    assert libc.inotify_add_watch(watching, os.fsencode(at), 0x100 | 0x8) >= 0  # IN_CREATE, IN_CLOSE_WRITE
    try:
        sh(session, "echo x > by-command")
        assert b"by-command" in os.read(watching, 4096)
    finally:
        os.close(watching)


def test_two_processes_mount_at_once(place: Place, session: Session, kind: Kind) -> None:
    session.forks.new("f")
    words = [sys.executable, "-m", "mudroom", "mount", "f", "--kind", kind, "--json"]
    environment = {**os.environ, "HOME": str(place.home), "MUDROOM_STATE": str(place.state)}
    started = [
        subprocess.Popen(words, cwd=place.project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _process in range(3)
    ]
    ended = [process.communicate() for process in started]
    assert [process.returncode for process in started] == [0] * 3, ended
    assert len({out for out, _err in ended}) == 1
    assert sh(session, "cat file").stdout == b"one\n"


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
            _by_hand(kind, at)
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


@pytest.mark.parametrize("kind", KINDS[:-1], indirect=True)
def test_a_crash_while_the_mount_is_away(
    place: Place, session: Session, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = mounted_new(session, kind)
    (at / "made").write_text("x\n")
    session.forks.checkpoint("f", "point")
    (at / "made").write_text("y\n")

    def cut_off(*_arguments: object) -> None:
        os._exit(0 if not at.is_dir() else 1)

    monkeypatch.setattr(stacking, "rollback", cut_off)
    assert _in_a_child(lambda: session.forks.rollback("f", "point")) == 0
    monkeypatch.undo()
    with pytest.raises(OSError, match="Not a directory"):
        (at / "lost").write_text("nobody would find this")
    assert mounted(session, kind) == at
    assert (at / "made").read_text() == "y\n"


def test_caches_limits_and_secrets_of_the_host_as_in_any_fork(place: Place, session: Session, kind: Kind) -> None:
    (place.home / ".ssh").mkdir()
    (place.home / ".ssh/id_ed25519").write_text("secret\n")
    sh(session, "mkdir -p ~/.cache; echo before > ~/.cache/entry")
    at = mounted(session, kind)
    assert sh(session, "cat ~/.cache/entry; echo more > ~/.cache/other").stdout == b"before\n"
    assert sh(session, "cat ~/.cache/other; cat ~/.ssh/id_ed25519").stdout == b"more\n"
    act_as(session, settings=Settings(limits=Limits(file_size=1 << 20)))
    assert sh(session, "head -c 3000000 /dev/zero > big").exit_code
    assert (at / "big").stat().st_size == 1 << 20
    session.forks.unmount("f")
    assert sh(session, "cat ~/.cache/entry ~/.cache/other").stdout == b"before\nmore\n"


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
        _by_hand(kind, at)
    assert later.forks.known_record("f") is not None
    assert changed(place.session()) == {"file", "d/.env"}
    with later.alone("a test"):
        later.changes.apply("f")
    assert (place.project / ".env").read_text() == "TOKEN=abc\n"
