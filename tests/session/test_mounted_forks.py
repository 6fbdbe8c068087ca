"""A fork that is mounted and worked in at once: the user, commands, file tools and servers see one truth."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import Place, full_listing
from mudroom.core.result import Result
from mudroom.errors import MudroomError, UsageError
from mudroom.session import Session
from mudroom.session.background import Background
from mudroom.stage.views.mount import Kind, is_mounted

pytestmark = pytest.mark.both_users

SH = (b"sh", b"-c")
SERVER = b"""import http.server, socketserver
server = socketserver.TCPServer(("127.0.0.1", 8123), http.server.SimpleHTTPRequestHandler)
print("up", flush=True)
server.serve_forever()"""
PYTHON = os.fsencode(os.path.realpath(sys.executable))


def _is_there(kind: str) -> bool:
    if kind == "overlay":
        return os.geteuid() == 0
    return kind == "copy" or (bool(shutil.which("fuse-overlayfs")) and os.access("/dev/fuse", os.R_OK | os.W_OK))


@pytest.fixture(params=["overlay", "fuse", "copy"])
def kind(request: pytest.FixtureRequest) -> Kind:
    if not _is_there(request.param):
        pytest.skip(f"a mount by {request.param} cannot be had here")
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
    files = session.forks.files("f") if session.vault.find("f") else None
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


@pytest.mark.skipif(not shutil.which("vim"), reason="vim is not installed")
def test_a_real_editor(session: Session, kind: Kind) -> None:
    at = mounted_new(session, kind)
    words = ["vim", "-es", "-u", "NONE", "-i", "NONE", "-c", "%s/one/two/", "-c", "wq", "file"]
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
    with pytest.raises(MudroomError, match="is mounted at"):
        session.forks.rollback("f", "point")
    session.forks.unmount("f")
    session.forks.rollback("f", "point")
    assert sh(session, "cat file d/new; ls d").stdout == b"first\nnew\nnew\n"
    assert mounted(session, kind).joinpath("file").read_text() == "first\n"


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
        pass
    os.close(waiting)


ENDS: dict[str, tuple[tuple[str, ...], Callable[[Kind, Path], None]]] = {
    "umount by hand": (("overlay", "fuse"), _by_hand),
    "fuse-overlayfs killed": (("fuse",), _killed),
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
@pytest.mark.parametrize("end", ENDS)
def test_a_mount_that_has_ended_is_settled(place: Place, session: Session, kind: Kind, end: str, use: str) -> None:
    kinds, ended = ENDS[end]
    if kind not in kinds:
        pytest.skip(f"no such end of a mount by {kind}")
    at = mounted_new(session, kind)
    (at / "made").write_text("by an editor\n")
    shutil.rmtree(at / "d")
    (at / "d").mkdir()
    sh(session, "echo more >> file")
    ended(kind, at)
    with session.alone("a test"):
        USES[use](session) if use == "an apply" else None
    if use != "an apply":
        USES[use](session)
        assert changed(session) == {"made", "d/x", "d/y", "file"}
        assert sh(session, "cat made; ls d; cat file").stdout == b"by an editor\none\nmore\n"
    else:
        assert (place.project / "made").read_text() == "by an editor\n"
        assert not (place.project / "d/x").exists()


def test_a_copy_whose_directory_is_gone(session: Session, tmp_path: Path) -> None:
    sh(session, "echo before > before")
    at = mounted(session, "copy")
    (at / "made").write_text("x")
    os.rename(at, tmp_path / "away")
    with pytest.raises(MudroomError, match="is not there any more") as caught:
        sh(session, "true")
    assert "--lost" in caught.value.hint
    os.rename(tmp_path / "away", at)
    assert sh(session, "cat made").stdout == b"x"
    shutil.rmtree(at)
    with pytest.raises(MudroomError, match="is not there any more"):
        session.forks.unmount("f")
    session.forks.unmount("f", lost=True)
    assert changed(session) == {"before"}
    assert sh(session, "ls").stdout == b"before\nd\nfile\ntool.sh\n"


def test_another_directory_at_its_place_is_not_written_to(session: Session, kind: Kind, tmp_path: Path) -> None:
    """A command that is started while the user ends the mount must not get the user's directory instead."""
    at = tmp_path / "here"
    session.forks.new("f")
    note = session.forks.mount("f", os.fsencode(at), kind=kind)
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
    del note
