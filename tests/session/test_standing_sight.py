"""A standing overlay shows what a fresh mount would show, whatever the user changes between two commands."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import Place, tick
from mudroom.core.confinement.plan import Plan, StandingPlan
from mudroom.sandbox.client.client import Client, Running
from mudroom.sandbox.client.invocation import Invocation, RunOptions
from mudroom.session import Session
from mudroom.session.confinement.standing import facts_of
from mudroom.session.order import Stdio
from mudroom.stage.views import tree_watch
from standing_fork import COMMANDS, out, stand, stands
from tiers import examples

pytestmark = pytest.mark.both_users


CLOCK_MONOTONIC_COARSE = 6
"""linux/time.h"""


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
