"""The files of a fork while a command runs in its background: what is seen, applied, checkpointed and refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from background_command import SERVER, SH, heard, started
from clocks import give_way
from conftest import Place, act_as
from listed_rows import fork_rows
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.session import Session
from mudroom.vault.forks.fork_summary import ForkSummaries

pytestmark = pytest.mark.both_users


def test_a_destructive_command_beside_one_gets_its_checkpoint(place: Place) -> None:
    place.write("build/x", "x\n")
    session = place.session()
    act_as(session, agent="tester")
    server = started(session, "echo up; echo y > y; while :; do sleep 0.02; done")
    while b"y" not in {change.path for change in session.changes.of("f").changes}:
        assert server.poll() is None
        give_way()
    result = session.run([b"rm", b"-rf", b"build"], fork="f")
    assert result.checkpoint is not None and result.exit_code == 0
    server.end()
    session.sandboxes.end("f")
    session.forks.rollback("f", result.checkpoint)
    assert {change.path for change in session.changes.of("f").changes} == {b"y"}


def test_changes_are_those_of_now_and_an_original_is_that_of_the_start(place: Place) -> None:
    place.write("a", "1\n")
    place.write("b", "1\n")
    session = place.session()
    server = started(session, "echo up; echo 2 > a; while ! [ -e go ]; do sleep 0.01; done; echo 3 > b; sleep 1000")
    assert {change.path for change in session.changes.of("f").changes} == {b"a"}
    place.write("b", "the user's\n")
    session.run([*SH, b"touch go; while ! grep -q 3 b; do sleep 0.01; done"], fork="f")
    known = {change.path: change.original_known for change in session.changes.of("f").changes}
    assert known == {b"a": True, b"b": False, b"go": True}
    server.end()


@pytest.mark.parametrize(
    "do",
    [
        lambda session: session.forks.rollback("f", "p"),
        lambda session: session.forks.discard("f"),
        lambda session: session.changes.apply("f"),
        lambda session: session.forks.mount("f"),
        lambda session: session.forks.rename("f", "g"),
    ],
    ids=["rollback", "discard", "apply", "mount", "rename"],
)
def test_what_needs_the_fork_at_rest_is_refused(place: Place, do: Callable[[Session], object]) -> None:
    session = place.session()
    session.forks.new("f")
    session.forks.checkpoint("f", "p")
    server = started(session, SERVER)
    for one in (session, place.session()):
        with pytest.raises(UsageError, match=f"background of the fork f \\({server.id}: sh -c 'echo up") as raised:
            do(one)
        assert raised.value.hint == f"mudroom ps --end {server.id} ends it"
    assert server.poll() is None


def test_a_fork_of_what_it_holds_can_be_applied_meanwhile(place: Place) -> None:
    session, other = place.session(), place.session()
    server = started(session, SERVER)
    session.run([*SH, b"echo x > tested"], fork="f")
    for name, one in (("g", session), ("h", other)):
        one.forks.new(name, parent="f")
        assert {change.path for change in one.changes.of(name).changes} == {b"made", b"tested"}
    with other.alone("a test"):
        assert other.changes.apply("h").applied.written == 2
    assert (place.project / "tested").read_text() == "x\n"
    assert server.poll() is None
    server.end()
    assert {change.path for change in session.changes.of("f").changes} <= {b"made", b"tested"}


def test_rollback_and_discard_can_end_it(place: Place) -> None:
    session = place.session()
    session.forks.new("f")
    session.forks.checkpoint("f", "p")
    server = started(session, SERVER)
    session.sandboxes.end("f")
    session.forks.rollback("f", "p")
    assert server.poll() is not None
    assert session.changes.of("f").changes == ()
    started(session, SERVER)
    session.sandboxes.end("f")
    session.forks.discard("f")
    assert session.vault.forks() == []


def test_a_copy_of_what_a_running_command_has_done_was_not_cut_off(place: Place) -> None:
    """Neither a fork of its fork, nor a checkpoint that is gone back to."""
    session, script = place.session(), "echo there > made; echo up; sleep 1000"
    server = started(session, script)
    session.forks.checkpoint("f", "p")
    session.forks.new("child", parent="f")
    server.end()
    session.sandboxes.end("f")
    session.forks.rollback("f", "p")
    words = [os.fsdecode(word) for word in (*SH, script.encode())]
    for row in fork_rows(session):
        assert (row["state"], row["command"]) == ("ended", words)
    assert {summary.state for summary in ForkSummaries().all(session.vault)} == {"idle"}


@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_a_checkpoint_while_it_runs(place: Place, view: str) -> None:
    place.write("gone", "x\n")
    place.write("d/e", "x\n")
    session = place.session(Settings(view=view))  # type: ignore[arg-type]
    program = (
        "echo up; chmod 750 .; rm gone; rm -r d; mkdir d; echo 1 > d/f; ln d/f g; echo 1 > closed; chmod 0 closed; "
        "ln -s g l; "
    )
    server = started(session, program + "echo done; while ! [ -e go ]; do sleep 0.01; done; echo 2 > d/f; sleep 1000")
    heard(server, b"done")
    session.forks.checkpoint("f", "p")
    before = {change.path: change.verb for change in session.changes.of("f").changes}
    session.run([*SH, b"touch go; while ! grep -q 2 g; do sleep 0.01; done; echo x > later"], fork="f")
    session.sandboxes.end("f")
    session.forks.rollback("f", "p")
    assert {change.path: change.verb for change in session.changes.of("f").changes} == before
    result = session.run([*SH, b"cat d/f g; test d/f -ef g && test ! -e gone -a ! -e d/e -a ! -e later"], fork="f")
    assert (result.exit_code, result.stdout) == (0, b"1\n1\n")
    assert session.changes.apply("f").applied.written > 0
    assert (place.project / "d/f").read_text() == "1\n" and place.project.stat().st_mode & 0o777 == 0o750
    assert not (place.project / "gone").exists()
    with pytest.raises(UsageError, match="has a checkpoint named p already"):
        started(session, SERVER)
        session.forks.checkpoint("f", "p")


def test_file_tools_go_through_the_live_mount(place: Place) -> None:
    place.write("a", "1\n")
    session = place.session()
    files = session.forks.files("f") if session.forks.new("f") else None
    assert files is not None
    files.write(b"before", b"b\n")
    server = started(session, SERVER)
    assert session.run([b"cat", b"before"], fork="f").stdout == b"b\n"
    files.write(b"after", b"a\n")
    assert session.run([b"cat", b"after"], fork="f").stdout == b"a\n"
    assert files.read(b"made") == b"there\n"
    server.end()
    assert {change.path for change in session.changes.of("f").changes} == {b"before", b"after", b"made"}


def test_who_has_the_vault_alone_stops_it(place: Place) -> None:
    session, user = place.session(), place.session()
    server = started(session, "echo up; i=0; while :; do i=$((i+1)); echo $i > count; done")
    count = Path(os.fsdecode(session.vault.fork("f").upper)) / "count"
    with user.alone("a test"):
        one = count.read_bytes()
        user.run([b"sleep", b"0.2"])
        assert count.read_bytes() == one
        with pytest.raises(UsageError, match="background of the fork f"):
            user.changes.apply("f")
    while count.read_bytes() in (one, b""):
        assert server.poll() is None
        give_way()
    with session.alone("another"):  # by the very session that has it
        one = count.read_bytes()
        assert count.read_bytes() == one
    while count.read_bytes() in (one, b""):
        assert server.poll() is None
        give_way()
    server.end()


@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_a_command_beside_it_sees_what_the_user_has_changed_meanwhile(place: Place, view: str) -> None:
    """An overlay caches names, missing ones too; a copy stays as it was made."""
    for name in ("edited", "deleted", "moved/inside"):
        place.write(name, "old\n")
    names = b"edited deleted made moved/inside away/inside"
    session = place.session(Settings(view=view))  # type: ignore[arg-type]
    started(session, f"cat {names.decode()} 2>/dev/null; ls -R >/dev/null; echo up; sleep 1000")
    place.write("edited.new", "new\n")
    (place.project / "edited.new").rename(place.project / "edited")  # as editors do
    (place.project / "deleted").unlink()
    place.write("made", "made\n")
    (place.project / "moved").rename(place.project / "away")
    show = b"for name in %s; do cat $name 2>/dev/null || echo none; done; ls" % names
    result = session.run([*SH, show], fork="f")
    after = b"new\nnone\nmade\nnone\nold\naway\nedited\nmade\n"
    before = b"old\nold\nnone\nold\nnone\ndeleted\nedited\nmoved\n"
    assert result.stdout == (after if view == "overlay" else before)
    assert not result.changeset.changes
