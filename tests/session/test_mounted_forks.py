"""A fork that is mounted and worked in at once: the user, commands, file tools and servers see one truth."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from background_command import heard
from conftest import Place, act_as, full_listing
from mounted_fork import SH, changed, kind, mounted, mounted_new, session, sh
from mudroom.core.confinement.limit import Limits
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError, UsageError
from mudroom.sandbox.host.host import landlock_abi
from mudroom.session import Session, upkeep
from mudroom.stage.views.mount import Kind

__all__ = ["kind", "session"]  # fixtures
pytestmark = [pytest.mark.both_users, pytest.mark.root]


SERVER = b"""import http.server, socketserver
server = socketserver.TCPServer(("127.0.0.1", 8123), http.server.SimpleHTTPRequestHandler)
print("up", flush=True)
server.serve_forever()"""
PYTHON = os.fsencode(os.path.realpath(sys.executable))
EDITOR = next(filter(None, map(shutil.which, ("vim", "vim.tiny"))), "vi")


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
    assert files.read("tool/new").decode() == "by an editor\n"
    files.edit("tool/new", "an editor", "a tool again")
    assert sh(session, "cat tool/new").stdout == b"by a tool again\n"
    assert changed(session) == {"buffered", "tool", "tool/new"}
    session.forks.unmount("f")
    assert files.read("tool/new").decode() == "by a tool again\n"
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
            files.read(path).decode()
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
        session.forks.files("f").read("made").decode()
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
    assert other.forks.files("f").read("after").decode() == "x\n"


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
