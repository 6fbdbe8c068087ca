"""Forks whose overlays stay mounted: what a command sees, who ends the mount, and what is left between two commands."""

from __future__ import annotations

import errno
import os
import subprocess
from typing import Any

import pytest

from conftest import Place
from mudroom.core.confinement.limit import Limits
from mudroom.core.settings import Settings
from mudroom.errors import CommandNotStarted, Unsupported, UsageError
from mudroom.sandbox.client.report import StepFailed
from mudroom.session.order import Stdio
from standing_fork import mounts_of, out, stand, stands

pytestmark = pytest.mark.both_users


def test_a_fork_that_has_run_commands_stands(place: Place) -> None:
    session = place.session()
    out(session, "true")
    assert not stands(session)
    stand(session)
    for number in range(5):
        assert out(session, f"echo {number} >> f; wc -l < f").split() == [str(number + 1)]
    assert stands(session)
    record = session.vault.fork("f").record
    assert record is not None and [change.path for change in record.changeset.changes] == [b"f"]


def test_what_a_command_may_changes(place: Place) -> None:
    session = place.session()
    stand(session)
    (place.project / ".env").write_text("secret")
    assert out(session, "cat .env") == ""
    (place.project / ".env").unlink()
    assert out(session, "ls -a") == ".\n..\n"


def test_the_project_is_another_directory(place: Place) -> None:
    session = place.session()
    (place.project / "a").write_text("1")
    stand(session)
    place.project.rename(place.project.with_name("old"))
    place.project.mkdir()
    (place.project / "b").write_text("2")
    assert out(session, "ls") == "b\n"


def test_commands_of_git(place: Place) -> None:
    session = place.session()
    stand(session)
    out(session, "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one")
    for number in range(4):
        out(session, f"git -c user.name=a -c user.email=a@b commit -q --allow-empty -m {number}")
    assert out(session, "git log --oneline | wc -l").split() == ["5"]
    assert stands(session)


def test_git_in_a_project_that_is_a_repository(place: Place) -> None:
    """A repository that the fork has not changed follows the user's; one that it has changed does not."""
    session = place.session()
    git = "git -c user.name=a -c user.email=a@b"
    subprocess.run(
        ["sh", "-c", f"git init -q && {git} commit -q --allow-empty -m user1"], cwd=place.project, check=True
    )
    stand(session)
    for number in range(2, 6):
        (place.project / f"f{number}").touch()
        subprocess.run(
            ["sh", "-c", f"git add -A && {git} commit -q --allow-empty -m user{number}"], cwd=place.project, check=True
        )
        for _time in range(2):
            assert out(session, "git status --porcelain; git log --format=%s -1") == f"user{number}\n"
    session.forks.checkpoint("f", "point")
    subprocess.run(["sh", "-c", f"{git} commit -q --allow-empty -m user6"], cwd=place.project, check=True)
    for _time in range(4):
        assert (
            out(session, "git status --porcelain; touch f2; git status --porcelain; git log --format=%s -1")
            == "user6\n"
        )
    subprocess.run(["sh", "-c", f"{git} commit -q --allow-empty -m user7"], cwd=place.project, check=True)
    assert out(session, "git log --format=%s -1") == "user7\n"
    out(session, f"touch mine; git add -A; {git} commit -q -m fork")
    subprocess.run(["sh", "-c", f"{git} commit -q --allow-empty -m late"], cwd=place.project, check=True)
    for _time in range(3):
        assert out(session, "git status --porcelain; git log --format=%s -2") == "fork\nuser7\n"
    assert stands(session)


def test_new_entries_of_caches_are_moved_to_their_pool(place: Place) -> None:
    session = place.session()
    stand(session, "f")
    stand(session, "g")
    out(session, "mkdir -p ~/.cache/pip; echo 1 > ~/.cache/pip/a", "f")
    assert out(session, "cat ~/.cache/pip/a", "g") == "1\n"
    assert out(session, "cat ~/.cache/pip/a", "f") == "1\n"
    for number in range(3):
        out(session, f"echo {number} > ~/.cache/pip/a; echo {number} > ~/.cache/pip/b{number}", "f")
        assert out(session, f"cat ~/.cache/pip/a ~/.cache/pip/b{number}", "g") == f"{number}\n{number}\n"
        assert out(session, f"cat ~/.cache/pip/a ~/.cache/pip/b{number}", "f") == f"{number}\n{number}\n"


def test_file_tools_write_between_commands(place: Place) -> None:
    session = place.session()
    files = session.forks.files("f") if session.vault.find("f") else None
    stand(session)
    files = files or session.forks.files("f")
    for number in range(6):
        files.write(b"a", b"%d" % number)
        assert out(session, "cat a; echo c >> b") == str(number)
        assert files.read(b"b") == b"c\n" * (number + 1)
    assert stands(session)


LEAVE = """
mkdir -p /dev/shm/x /run/x 2>/dev/null; echo x > /tmp/left; echo x > ~/left; echo x > /dev/shm/left
ipcmk -M 100 >/dev/null 2>&1; ipcmk -Q >/dev/null 2>&1; ipcmk -S 1 >/dev/null 2>&1
umask 0; ulimit -n 64; export LEFT=1; cd /tmp
/usr/bin/python3 - <<'E'
import os, signal, socket
ready, done = os.pipe()
def child():
    os.setsid()
    a = socket.socket(socket.AF_UNIX); a.bind("\\0left"); a.listen()
    b = socket.socket(); b.bind(("127.0.0.1", 4321)); b.listen()
    c = socket.create_connection(("127.0.0.1", 4321)); d = b.accept()[0]
    d.close()
    os.write(done, b"1")
    signal.pause()
if not os.fork():
    for number in range(3):
        os.close(number)
    child()
os.read(ready, 1)
E
"""
FIND = """
echo files: $(ls -A /tmp ~ /dev/shm /run | grep -c left)
echo ipc: $(cat /proc/sysvipc/shm /proc/sysvipc/msg /proc/sysvipc/sem | grep -vc key)
echo sockets: $(tail -qn +2 /proc/net/tcp /proc/net/tcp6 | grep -c ':10E1 ') $(grep -c left /proc/net/unix)
set -- /proc/[0-9]*; echo processes: $#
echo umask: $(umask) limit: $(ulimit -n) left: $LEFT cwd: $(pwd)
echo descriptors: $(ls /proc/self/fd | wc -l)
echo status: $(grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status)
echo mounts: $(grep -c . /proc/self/mounts)
"""


def test_nothing_is_left_of_the_command_before(place: Place) -> None:
    session = place.session()
    fresh = out(session, FIND, "g")
    stand(session)
    assert out(session, FIND) == fresh
    out(session, LEAVE)
    assert stands(session)
    assert out(session, FIND) == fresh


def test_a_command_that_cannot_be_started(place: Place) -> None:
    session = place.session()
    stand(session)
    with pytest.raises(CommandNotStarted):
        session.run([b"no-such-program"], fork="f")
    stand(session)
    with pytest.raises(CommandNotStarted):
        session.run([b"/etc/passwd"], fork="f")
    assert out(session, "echo 1") == "1\n"


def test_the_environment_is_the_present_one(place: Place) -> None:
    session = place.session()
    stand(session)
    session.machine.confinement.variables = {**session.machine.confinement.variables, b"LANG": b"C.UTF-8"}
    assert out(session, "echo $LANG") == "C.UTF-8\n"


def test_refused_calls_are_told(place: Place) -> None:
    session = place.session()
    script = b"unshare -U true; exec 2>&-; true"
    fresh = session.run([b"sh", b"-c", script], fork="g")
    stand(session)
    assert session.run([b"sh", b"-c", script], fork="f").denials == fresh.denials != ()
    assert stands(session)


def test_a_command_on_a_terminal(place: Place) -> None:
    session = place.session()
    stand(session)
    master, slave = os.openpty()
    try:
        stdio = Stdio(slave, slave, slave, terminal=True)
        result = session.run([b"sh", b"-c", b"tty && test -t 0 && stty size"], fork="f", stdio=stdio)
        assert result.exit_code == 0
        assert b"/dev/pts/" in os.read(master, 4096)
    finally:
        os.close(master)
        os.close(slave)


def test_a_command_that_takes_too_long_is_ended(place: Place) -> None:
    session = place.session()
    stand(session)
    result = session.run([b"sh", b"-c", b"echo 1 > f; exec sleep 1000"], fork="f", timeout=0.2)
    assert result.timed_out and [change.path for change in result.changeset.changes] == [b"f"]
    assert out(session, "cat f") == "1\n"


def test_processes_that_a_command_leaves_end_with_it(place: Place) -> None:
    session = place.session()
    stand(session)
    out(session, "(setsid sleep 1000 >/dev/null 2>&1 &); (while true; do echo x >> late; done >/dev/null 2>&1 &); true")
    size = out(session, "wc -c < late 2>/dev/null || echo 0")
    assert out(session, "wc -c < late 2>/dev/null || echo 0") == size
    assert stands(session)


@pytest.mark.parametrize("op", ["stand", "run"])
def test_a_machine_on_which_none_can_be_made(place: Place, monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    """The command runs as in any other fork, and no other one is tried."""
    session = place.session()
    client = session.machine.client
    part = client.templates if op == "stand" else client
    real, tries = getattr(part, op), []

    def fail(*arguments: Any, **options: Any) -> Any:
        if op == "run" and arguments[2].standing is None:
            return real(*arguments)
        tries.append(op)
        raise StepFailed("refresh", errno.ENOSYS, "no such call")

    out(session, "true")
    monkeypatch.setattr(part, op, fail)
    for number in range(6):
        assert out(session, f"echo {number} >> f; wc -l < f").split() == [str(number + 1)]
        assert not stands(session)
    assert tries == [op]
    assert not mounts_of(place)


def test_a_limit_that_a_control_group_holds(place: Place) -> None:
    """Its sandbox is cloned into the group."""
    session = place.session()
    stand(session)
    limits = Settings(limits=Limits(memory=1 << 30, processes=200))
    actor = session.actor._replace(settings=limits, policy=limits)
    try:
        result = session.run([b"sh", b"-c", b"echo 1 > f"], fork="f", actor=actor)
    except Unsupported:
        return  # no control group can be made here
    assert result.exit_code == 0 and not stands(session)
    assert not [note for note in result.notes if "copy" in note]
    for _command in range(4):
        result = session.run([b"sh", b"-c", b"cat f"], fork="f", actor=actor)
        assert result.stdout == b"1\n" and not stands(session)
    stand(session)


def test_a_directory_that_a_command_has_closed(place: Place) -> None:
    session = place.session()
    (place.project / "d").mkdir()
    stand(session)
    out(session, "chmod 0 d")
    fresh = session.run([b"true"], fork="f", cwd=os.fsencode(place.project / "d"))
    assert fresh.exit_code == 0
    stand(session)
    with pytest.raises(UsageError, match=r"cannot work in .*/none: No such file"):
        session.run([b"true"], fork="f", cwd=os.fsencode(place.project / "none"))
    stand(session)
