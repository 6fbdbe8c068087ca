"""Forks whose overlays stay mounted: what a command sees, who ends the mount, and what is left between two commands."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import Place, tick
from mudroom.core.confinement.limit import Limits
from mudroom.core.confinement.plan import Plan, StandingPlan
from mudroom.core.settings import Settings
from mudroom.errors import CommandNotStarted, Unsupported, UsageError
from mudroom.review.rows import is_at_rest
from mudroom.sandbox.client.client import Client, Running
from mudroom.sandbox.client.invocation import Invocation, RunOptions
from mudroom.sandbox.client.report import StepFailed
from mudroom.sandbox.client.template import NATIVE_INIT
from mudroom.session import Session
from mudroom.session.confinement.standing import facts_of
from mudroom.session.order import Stdio
from mudroom.stage.views import tree_watch
from mudroom.web.state.server_state import require_at_rest
from tiers import examples

pytestmark = pytest.mark.both_users

CLOCK_MONOTONIC_COARSE = 6
"""linux/time.h"""
COMMANDS = 3
"""After the third a sandbox stands."""


def out(session: Session, script: str, fork: str = "f", **options: Any) -> str:
    result = session.run([b"sh", b"-c", script.encode()], fork=fork, **options)
    assert result.exit_code == 0, result.stderr
    return result.stdout.decode()


def stand(session: Session, fork: str = "f") -> None:
    for _command in range(COMMANDS):
        out(session, "true", fork)
    assert stands(session, fork)


def stands(session: Session, fork: str = "f") -> bool:
    return os.path.lexists(session.vault.fork(fork).path + b"/standing")


def launched(session: Session) -> int:
    """Count the processes of the session's launcher."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True).stdout
    parents = {int(pid): int(parent) for pid, parent in (line.split() for line in listed.splitlines()[1:])}
    below = {os.getpid()}
    for _depth in range(6):
        below |= {pid for pid, parent in parents.items() if parent in below}
    return len(below)


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


# --- it is ended before anybody else has the fork ---

ENDINGS = {
    "review": lambda session: session.forks.record("f"),
    "checkpoint": lambda session: session.forks.checkpoint("f", "point"),
    "rename": lambda session: session.forks.rename("f", "g"),
    "apply": lambda session: session.changes.apply("f"),
    "file tools": lambda session: session.forks.files("f").write(b"g", b"1"),
}


@pytest.mark.parametrize("way", ENDINGS)
def test_it_is_ended_by(place: Place, way: str) -> None:
    session = place.session()
    out(session, "echo 1 > f")
    stand(session)
    assert mounts_of(place)
    ENDINGS[way](session)
    assert not mounts_of(place)
    assert not any(os.path.lexists(fork.path + b"/standing") for fork in session.vault.forks())


def test_it_is_ended_by_a_rollback_and_a_discard(place: Place) -> None:
    session = place.session()
    out(session, "echo 1 > f")
    session.forks.checkpoint("f", "point")
    stand(session)
    session.forks.rollback("f", "point")
    assert not stands(session)
    stand(session)
    session.forks.discard("f")
    assert not mounts_of(place)


def mounts_of(place: Place) -> list[str]:
    """Return the processes with an overlay of any fork of this place over a directory of the host."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            lines = Path(f"/proc/{name}/mounts").read_text().splitlines()
            if any(f"{place.state}/" in line and "/work " in line for line in lines):
                found.append(name)
        except OSError:
            continue
    return found


def test_another_session_runs_a_command_in_the_fork(place: Place) -> None:
    """Each sees what the other has written, and the mount of the first has gone before the other's begins."""
    first, second = place.session(), place.session()
    stand(first)
    for number in range(6):
        for session in (first, second, second):
            out(session, f"echo {number} >> f")
    assert out(first, "wc -l < f").split() == ["18"]
    assert out(second, "wc -l < f").split() == ["18"]


def test_another_process_runs_a_command_in_the_fork(place: Place) -> None:
    session = place.session()
    stand(session)
    out(session, "echo ours > f")
    words = [sys.executable, "-m", "mudroom", "exec", "--fork", "f", "--", "sh", "-c", "cat f; echo theirs > f"]
    environ = {**os.environ, "MUDROOM_STATE": str(place.state), "HOME": str(place.home)}
    ran = subprocess.run(words, cwd=place.project, env=environ, capture_output=True, text=True, check=False)
    assert ran.stdout.startswith("ours"), ran.stderr
    assert not mounts_of(place)
    assert out(session, "cat f") == "theirs\n"


def test_its_session_was_killed(place: Place) -> None:
    """Its door is there, and nobody answers."""
    script = f"""
import os, signal
from mudroom.errors import CommandNotStarted, Unsupported
from mudroom.core.confinement.limit import Limits
from mudroom.core.confinement.plan import StandingPlan
from mudroom.core.settings import Settings
from mudroom.review.rows import is_at_rest
from mudroom.sandbox.client.report import StepFailed
from mudroom.sandbox.client.template import StandingPlace
from mudroom.session import Session
from mudroom.session.confinement.standing import facts_of
from mudroom.session.order import Stdio
session = Session.open({os.fsencode(place.project)!r}, state={os.fsencode(place.state)!r},
    home={os.fsencode(place.home)!r}, environ=os.environb)
for number in range({COMMANDS}):
    session.run([b"sh", b"-c", b"echo 1 >> f"], fork="f")
assert os.path.lexists(session.vault.fork("f").path + b"/standing")
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", script], check=False)
    assert ended.returncode == -signal.SIGKILL
    session = place.session()
    assert stands(session)
    assert out(session, "wc -l < f").split() == [str(COMMANDS)]
    assert not stands(session)


def test_nothing_stands_after_a_session(place: Place) -> None:
    with place.session() as session:
        stand(session)
    assert not mounts_of(place)
    assert not stands(place.session())


def test_idle_forks_cost_no_process(place: Place) -> None:
    session = place.session()
    before = launched(session)
    for number in range(40):
        stand(session, f"f{number}")
    standing = sum(stands(session, f"f{number}") for number in range(40))
    assert standing == 12
    each = 3 if os.path.exists(NATIVE_INIT) else 2  # a template with its spare, and with its nursery
    assert launched(session) - before <= each * standing + 4
    for number in range(1000):
        session.forks.new(f"idle{number}")
    assert launched(session) - before <= each * standing + 4


# --- other terms, and changes that a mount does not see ---


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


def test_a_file_that_the_user_removes_after_the_fork_did(place: Place) -> None:
    session = place.session()
    (place.project / "d").mkdir()
    (place.project / "d" / "a").write_text("1")
    stand(session)
    out(session, "rm d/a; echo 2 > d/b")
    (place.project / "d" / "a").unlink()
    result = session.run([b"true"], fork="f")
    assert [change.path for change in result.changeset.changes] == [b"d/b"]
    assert stands(session)
    assert out(session, "ls d") == "b\n"
    (place.project / "d").rmdir()
    session.changes.apply("f")
    assert (place.project / "d" / "b").read_text() == "2\n"


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


EDITS = ("write", "save", "create", "delete", "rename", "mode", "link", "directory", "replace", "pass", "by a link")
NAMES = st.sampled_from(["a", "b", "d/a", "d/b", "d/e/a"])


def edit(project: Path, kind: str, name: str, other: str, number: int) -> None:
    """Change the project as a user does. What is not possible is left out."""
    path, to = project / name, project / other
    try:
        if kind == "write":
            with path.open("r+") as stream:
                stream.write(f"written {number}")
        elif kind == "save":
            beside = path.with_name("beside")
            beside.write_text(f"saved {number}")
            beside.rename(path)
        elif kind == "create":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"new {number}")
        elif kind == "delete":
            path.unlink()
        elif kind == "rename":
            path.rename(to)
        elif kind == "mode":
            path.chmod(0o600 if number % 2 else 0o755)
        elif kind == "link":
            beside = path.with_name("beside")
            beside.symlink_to(f"{number}")
            beside.rename(path)
        elif kind == "pass":
            path.touch(exist_ok=False)
            path.unlink()
        elif kind == "by a link":
            beside = path.with_name("beside")
            beside.hardlink_to(path)
            beside.write_text(f"written {number} by a link")
            beside.unlink()
        elif kind == "directory":
            (project / "d").rename(project / f"d{number}")
        else:
            subprocess.run(["cp", "-r", str(project / "d"), str(project / "copy")], check=False, capture_output=True)
            subprocess.run(["rm", "-rf", str(project / "d")], check=True)
            (project / "copy").rename(project / "d")
    except OSError:
        pass


LOOK = r"""
find . -printf '%p %y %m %l\n' | sort
find . -type f | sort | xargs -r head -v -n 99
cat gone d/gone 2>&1; true
"""


@pytest.mark.slow
@pytest.mark.parametrize("watched", [True, False])
def test_it_sees_what_a_fresh_mount_sees(place: Place, monkeypatch: pytest.MonkeyPatch, watched: bool) -> None:
    """Whatever the user does in the project between two commands, with a watch that begins at once, and with none."""
    monkeypatch.setattr(tree_watch, "_QUIET", 1)
    monkeypatch.setattr(tree_watch, "_MOST_QUIET", 1)
    monkeypatch.setattr(tree_watch, "MOST", tree_watch.MOST if watched else 0)
    session = place.session()
    numbers = iter(range(10**9))

    @settings(max_examples=examples(25), suppress_health_check=list(HealthCheck), deadline=None)
    @given(
        st.lists(
            st.lists(st.tuples(st.sampled_from(EDITS), NAMES, NAMES), min_size=1, max_size=4), min_size=1, max_size=5
        )
    )
    def run(rounds: list[list[tuple[str, str, str]]]) -> None:
        name = f"f{next(numbers)}"
        subprocess.run(
            ["sh", "-c", "rm -rf ./* && mkdir -p d/e && echo 1 > a && echo 2 > d/a"], cwd=place.project, check=True
        )
        stand(session, name)
        try:
            for edits in rounds:
                for kind, one, other in edits:
                    edit(place.project, kind, one, other, next(numbers))
                seen = out(session, LOOK, name)
                assert stands(session, name)
                assert seen == out(session, LOOK, f"fresh{next(numbers)}")
        finally:
            for fork in list(session.vault.forks()):
                session.forks.discard(fork.name)

    run()


# --- nothing is left between two commands ---

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


# --- what the kernel remembers of the project ---


def refreshes(session: Session, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Keep what each command of the session asks of its sandbox."""
    asked: list[bool] = []
    run = session.machine.client.run

    def keep(plan: Plan, invocation: Invocation, options: RunOptions) -> Running:
        assert options.standing is not None
        asked.append(options.standing.refresh)
        return run(plan, invocation, options)

    monkeypatch.setattr(session.machine.client, "run", keep)
    return asked


@pytest.mark.alone
def test_a_quiet_project_is_remembered(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session = place.session()
    (place.project / "node_modules" / "a").mkdir(parents=True)
    (place.project / "node_modules" / "a" / "b").write_text("1")
    stand(session)
    asked = refreshes(session, monkeypatch)
    for _command in range(5):
        out(session, "echo 1 > f; cat node_modules/a/b; ls -R")
    assert asked.pop() is False
    for change in (
        "chmod 600 node_modules/a/b",
        "touch node_modules/a/c",
        "rm node_modules/a/c",
        "mkdir -p new/below",
        "touch new/below/a",
        "echo more >> new/below/a",
    ):
        subprocess.run(["sh", "-c", change], cwd=place.project, check=True)
        out(session, "true")
        assert asked.pop() is True
        out(session, "true")
        assert asked.pop() is False


@pytest.mark.alone
def test_a_file_that_came_and_went_between_two_commands(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """So does ``.git/index.lock`` at each ``git status``. A command that ran meanwhile may have seen it."""
    session = place.session()
    stand(session)
    asked = refreshes(session, monkeypatch)
    for _command in range(5):
        out(session, "ls")
    assert asked.pop() is False
    passing = place.project / "new"
    for _time in range(3):
        passing.touch()
        passing.unlink()
        assert out(session, "cat new 2>/dev/null; ls") == ""
        assert asked.pop() is False

    def meanwhile(*_output: object) -> None:
        passing.touch()
        passing.unlink()

    assert out(session, "echo begun", stdio=Stdio(on_output=meanwhile)) == "begun\n"
    assert asked.pop() is False
    assert out(session, "ls") == ""
    assert asked.pop() is True
    assert out(session, "ls") == ""
    assert asked.pop() is False


@pytest.mark.alone
def test_a_command_in_a_quiet_project_waits_for_no_tick(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit just before a command has the stamp of its start, unless that waits: it would count as one during it."""
    session, waits = place.session(), list[bool]()
    stand(session)
    for _command in range(5):
        out(session, "echo 1 > f")
    real = type(session.machine.client).run

    def noted(client: Client, plan: Plan, invocation: Invocation, options: RunOptions) -> Running:
        waits.append(options.after > time.clock_gettime_ns(CLOCK_MONOTONIC_COARSE))
        return real(client, plan, invocation, options)

    monkeypatch.setattr(type(session.machine.client), "run", noted)
    for number in range(10):
        tick()
        out(session, "true")
        tick()
        place.write("edited", f"{number}\n")
        out(session, f"echo {number} of the fork >> edited")
        assert session.changes.apply("f").conflicts == (), "the edit is the original"
        assert (place.project / "edited").read_text() == f"{number}\n{number} of the fork\n"
        for _command in range(COMMANDS + 1):  # after an apply none stands
            out(session, "true")
    assert not all(waits) and any(waits)
    del waits[:]
    out(session, "true")
    assert waits == [False]


COPY = """/usr/bin/python3 -c '
import os
given, taken = os.open("a", os.O_RDONLY), os.open("b", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
while os.copy_file_range(given, taken, 1 << 20):
    pass
'; cat b; rm b"""


@pytest.mark.alone
@pytest.mark.parametrize("watched", [True, False])
def test_a_file_that_grows_in_place(place: Place, monkeypatch: pytest.MonkeyPatch, watched: bool) -> None:
    """The kernel copies no more than the size that the overlay knows: copy_file_range(2), as cp uses it."""
    monkeypatch.setattr(tree_watch, "MOST", tree_watch.MOST if watched else 0)
    session = place.session()
    path = place.write("a", "1\n")
    stand(session)
    asked = refreshes(session, monkeypatch)
    for _command in range(5):
        assert out(session, COPY) == "1\n"
    assert asked.pop() is not watched
    with path.open("a") as stream:
        stream.write("2\n")
    assert out(session, COPY) == "1\n2\n"


@pytest.mark.alone
def test_two_forks_are_told_of_each_change(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session = place.session()
    for fork in ("f", "g"):
        stand(session, fork)
    asked = refreshes(session, monkeypatch)
    for _command in range(5):
        out(session, "ls", "f")
        out(session, "ls", "g")
    assert asked[-2:] == [False, False]
    (place.project / "a").touch()
    assert [out(session, "ls", fork) for fork in ("f", "g")] == ["a\n", "a\n"]
    assert asked[-2:] == [True, True]


def test_a_project_with_a_closed_directory_is_not_watched(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.geteuid():
        return  # nothing is closed
    session = place.session()
    (place.project / "closed").mkdir(mode=0)
    stand(session)
    asked = refreshes(session, monkeypatch)
    for _command in range(5):
        out(session, "true")
    assert asked == [True] * 5


def test_too_many_directories_are_not_watched(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_watch, "MOST", 3)
    session = place.session()
    for name in "abcd":
        (place.project / name).mkdir()
    stand(session)
    asked = refreshes(session, monkeypatch)
    for _command in range(5):
        out(session, "true")
    assert asked == [True] * 5


def test_a_file_that_is_covered_or_shown_is_replaced(tmp_path: Path) -> None:
    """Its cover goes with it, and a bind shows the old one."""
    for op in ("cover", "bind"):
        path = tmp_path / op
        path.write_text("1")
        name = os.fsencode(path)
        step = ("cover", name[1:]) if op == "cover" else ("bind", name, name[1:], 7, False)
        plan = StandingPlan((), (step,), (), (), 0, (b"", b"", False))
        before = facts_of(plan, ())
        assert facts_of(plan, ()) == before
        for _time in range(2):
            beside = tmp_path / "beside"
            beside.write_text("2")
            beside.rename(path)
            assert facts_of(plan, ()) != before
        path.unlink()
        assert facts_of(plan, ()) != before


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


def test_lists_and_pages_leave_it(place: Place) -> None:
    session = place.session()
    stand(session)
    session.sandboxes.foreground()
    assert is_at_rest(session, "f")
    require_at_rest(session, "f")
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


@pytest.mark.alone
def test_an_edit_between_the_look_and_the_start(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command sees the file as it was, so the new one is not what it has changed."""
    session = place.session()
    path = place.project / "a"
    path.write_text("old\n")
    stand(session)
    for _command in range(4):
        out(session, "cat a")
    real, seen = session.machine.client.run, []

    def late(plan: Plan, invocation: Invocation, options: RunOptions) -> Running:
        assert options.standing is not None
        seen.append(options.standing.refresh)
        (place.project / "beside").write_text("the user's\n")
        (place.project / "beside").rename(path)
        tick()  # it is certainly older than the command
        tick()
        return real(plan, invocation, options)

    monkeypatch.setattr(session.machine.client, "run", late)
    result = session.run([b"sh", b"-c", b"echo mine >> a; cat a"], fork="f")
    assert seen == [False] and result.stdout == b"old\nmine\n", "the test is about nothing"
    assert [(change.path, change.original_known) for change in result.changeset.changes] == [(b"a", False)]
    monkeypatch.undo()
    session.changes.apply("f")
    assert path.read_text() == "the user's\n"
