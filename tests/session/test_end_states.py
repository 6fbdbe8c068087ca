"""Every end state of a view is journalled, listed, reviewed and discarded, and one fork does not spoil the list of all.

A command can leave its view in any state that the kernel permits, and a killed mudroom or a full disk a fork in any
half-made one.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from conftest import Place
from listed_rows import fork_rows
from mudroom.cli.fork.ls import describe
from mudroom.core.clock import CommandStart
from mudroom.core.settings import Settings
from mudroom.core.tree.entry import Entry
from mudroom.errors import MudroomError
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.session import Session, Stdio
from mudroom.stage.beneath import entries
from mudroom.stage.layers.closed_directory import open_to_owner
from mudroom.stage.layers.layer import remove_tree
from mudroom.vault.forks.fork_summary import ForkSummaries
from mudroom.vault.retention.check import check
from mudroom.vault.store.fork import Fork
from tiers import daily
from whole_text import whole

pytestmark = pytest.mark.both_users

View = Literal["overlay", "copy"]
NAME = b"n" * 250


@pytest.fixture(params=["overlay", "copy"])
def settings(request: pytest.FixtureRequest) -> Settings:
    view: View = request.param
    return Settings(view=view)


@pytest.fixture
def opened(place: Place) -> Iterator[None]:
    """The project's directory can be removed by its owner after the test."""
    yield
    place.project.chmod(0o755)


def sh(session: Session, script: str, fork: str) -> Any:
    return session.run([b"sh", b"-c", script.encode()], fork=fork)


def events(session: Session, kind: str) -> list[dict[str, Any]]:
    return [json.loads(event.data) for event in session.vault.journal.events() if event.kind == kind]


def states(session: Session) -> dict[str, str]:
    return {row["fork"]: row["state"] for row in fork_rows(session)}


# --- a view whose root is closed ---


@pytest.mark.usefixtures("opened")
@pytest.mark.parametrize("mode", [0o000, 0o111, 0o500])
def test_a_closed_root_is_staged_open_to_its_owner(place: Place, settings: Settings, mode: int) -> None:
    place.write("a", "a\n")
    place.project.chmod(0o755)
    session = place.session(settings)
    sh(session, "echo x > x", "other")
    result = sh(session, f"echo b > b; chmod {mode:o} .", "closed")
    assert result.exit_code == 0
    assert {change.path for change in result.changeset.changes} == {b"", b"b"}
    assert any(f"mode {mode:04o}" in remark.text for remark in result.changeset.remarks)
    assert [event["exit_code"] for event in events(session, "run")] == [0, 0]
    assert states(session) == {"other": "ended", "closed": "ended"}

    again = sh(session, "echo more >> b && cat a b", "closed")
    assert (again.exit_code, again.stdout) == (0, b"a\nb\nmore\n")
    session.forks.checkpoint("closed", "point")
    sh(session, f"chmod {mode:o} .", "closed")
    session.forks.rollback("closed", "point")
    landed = session.changes.apply("closed").applied
    assert (landed.conflicts, (place.project / "b").read_text()) == ((), "b\nmore\n")
    assert stat.S_IMODE(place.project.stat().st_mode) == mode | 0o700
    session.changes.undo(landed.name)
    assert stat.S_IMODE(place.project.stat().st_mode) == 0o755 and not (place.project / "b").exists()


def test_a_closed_root_that_a_killed_mudroom_left_is_collected(place: Place, settings: Settings) -> None:
    session, result = place.sh("echo b > b", settings)
    fork = session.vault.fork(result.fork)
    fork.begin(CommandStart(1))
    os.chmod(fork.contents[0], 0)
    assert states(session) == {result.fork: "cut off"}
    assert {change.path for change in session.changes.of(result.fork).changes} >= {b"b"}


def test_a_root_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir(mode=0o500)
    (tmp_path / "root").symlink_to("outside")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        open_to_owner(os.fsencode(tmp_path / "root"))
    assert stat.S_IMODE((tmp_path / "outside").stat().st_mode) == 0o500
    assert open_to_owner(os.fsencode(tmp_path / "missing")) is None


# --- changes that cannot be collected ---


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), MudroomError("the index is damaged")])
def test_a_run_is_journalled_though_its_changes_cannot_be_collected(
    place: Place, settings: Settings, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise error

    session = place.session(settings)
    with monkeypatch.context() as patch:
        patch.setattr("mudroom.session.own_sandbox.gather", fail)
        with pytest.raises(MudroomError) as caught:
            sh(session, "echo b > b; exit 7", "work")
    reason = error.message if isinstance(error, MudroomError) else "Too many open files"
    done = "the command has run (exit code 7) in the fork work, but its changes could not be collected: "
    assert caught.value.message == done + reason
    assert caught.value.hint == "mudroom diff work tries again, mudroom discard work drops the fork"
    [event] = events(session, "run")
    assert (event["exit_code"], event["changed"]) == (7, 0)
    assert reason in event["uncollected"]
    assert states(session) == {"work": "cut off"}  # collected by the list
    assert [change.path for change in session.changes.of("work").changes] == [b"b"]
    assert sh(session, "cat b", "work").stdout == b"b\n"


def test_a_directory_that_is_closed_to_the_user_is_told_with_what_opens_it(place: Place) -> None:
    """It hinders root in a sandbox, and not outside of one."""
    place.write("a b/file", "x")
    closed, session = place.project / "a b", place.session(Settings(view="overlay"))
    closed.chmod(0)
    try:
        if os.geteuid():
            told = "the command has changed a b, which is closed to you in the project: "
            told += f"chmod u+rwx '{closed}' opens it"
            with pytest.raises(MudroomError) as caught:
                sh(session, "chmod 700 'a b'; rm -r 'a b'", "work")
            assert caught.value.message.endswith(f"its changes could not be collected: {told}")
            with pytest.raises(MudroomError) as caught:
                session.changes.review("work")
            assert (caught.value.message, caught.value.hint) == (told, "then mudroom diff work shows the changes")
            [row] = fork_rows(session)
            assert (row["state"], row["problem"]) == ("cut off", told)
            assert describe(row, 500) == f"work  not collected: {told}  (then mudroom diff work shows the changes)"
            closed.chmod(0o700)
        else:
            sh(session, "chmod 700 'a b'; rm -r 'a b'", "work")
        session.changes.review("work")
        session.changes.apply("work")
        assert not closed.exists()
    finally:
        if closed.exists():
            closed.chmod(0o700)


def test_a_full_disk_while_collecting_is_journalled(
    place: Place, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    session = place.session(settings)
    with monkeypatch.context() as patch:
        patch.setattr("mudroom.session.own_sandbox.gather", fail)
        with pytest.raises(OSError, match="No space left"):  # the front door names the fork to discard
            sh(session, "echo b > b", "work")
    assert [event["uncollected"] for event in events(session, "run")] == ["No space left on device"]
    session.forks.discard("work")
    assert states(session) == {}


# --- forks that cannot be read ---


def _no_state(fork: Fork) -> None:
    os.unlink(fork.path + b"/state")


def _broken_state(fork: Fork) -> None:
    Path(os.fsdecode(fork.path + b"/state")).write_bytes(b"\xff\x00 nonsense")


def _state_is_directory(fork: Fork) -> None:
    _no_state(fork)
    os.mkdir(fork.path + b"/state")


def _half_made(fork: Fork) -> None:
    remove_tree(fork.path)
    os.mkdir(fork.path, 0o700)


def _broken_record(fork: Fork) -> None:
    Path(os.fsdecode(fork.record_path)).write_bytes(b"{")


def _unreadable(fork: Fork) -> None:
    os.chmod(fork.path + b"/state", 0)


def _closed(fork: Fork) -> None:
    os.chmod(fork.path, 0)


DAMAGE = [_no_state, _broken_state, _state_is_directory, _half_made, _broken_record]
FOR_USERS = [_unreadable, _closed]


@pytest.mark.parametrize("damage", [*DAMAGE, *FOR_USERS], ids=lambda damage: damage.__name__)
def test_a_damaged_fork_is_one_row_that_says_why(place: Place, damage: Callable[[Fork], None]) -> None:
    if damage in FOR_USERS and not os.geteuid():
        pytest.skip("root reads what is closed to its owner")
    session = place.session()
    for name in ("one", "two"):
        sh(session, f"echo {name} > {name}", name)
    sh(session, "echo x > x", "damaged")
    broken = session.vault.fork("damaged")
    damage(broken)
    try:
        rows = {row["fork"]: row for row in fork_rows(session)}
        assert {name: row["state"] for name, row in rows.items()} == {
            "one": "ended",
            "two": "ended",
            "damaged": "damaged",
        }
        assert rows["damaged"]["problem"]
        summaries = {summary.name: summary for summary in ForkSummaries().all(session.vault)}
        assert summaries["damaged"].state == "damaged" and summaries["damaged"].problem
        assert session.forks.mounts() == {}
        assert session.sandboxes.backgrounds() == [] and session.sandboxes.foreground() == []
        assert "fork damaged" in {problem.subject for problem in check(session.vault)}
        assert sh(session, "cat one", "one").stdout == b"one\n"
        assert session.changes.apply("two").applied.conflicts == ()
    finally:
        if damage is _closed:
            os.chmod(broken.path, 0o700)
    session.forks.discard("damaged")
    assert set(states(session)) == {"one", "two"}


def test_a_fork_that_vanishes_while_it_is_listed_is_no_row(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process discards forks between the reading of the directory and each look at a fork."""
    session = place.session()
    for name in ("one", "two", "three"):
        sh(session, f"echo {name} > {name}", name)
    listed = os.scandir(session.vault.path + b"/forks")

    @contextlib.contextmanager
    def earlier(_path: bytes) -> Iterator[list[os.DirEntry[bytes]]]:
        yield names

    names = list(listed)
    forks = session.vault.forks()
    session.forks.discard("two")
    with monkeypatch.context() as patch:
        patch.setattr("mudroom.vault.store.store.os.scandir", earlier)
        assert [fork.name for fork in session.vault.forks()] == ["one", "three"]
    monkeypatch.setattr(type(session.vault), "forks", lambda _vault: forks)
    assert set(states(session)) == {"one", "three"}
    assert session.forks.mounts() == {}
    assert session.sandboxes.backgrounds() == [] and session.sandboxes.foreground() == []
    assert check(session.vault) == []


# --- deep and odd trees ---

DEEP = """
import os
for number in range({depth}):
    os.mkdir(b"{name}")
    os.chdir(b"{name}")
open("leaf", "w").write("leaf")
"""


def deep(session: Session, depth: int, name: bytes, fork: str) -> Any:
    script = DEEP.format(depth=depth, name=name.decode())
    return session.run([b"/usr/bin/python3", b"-c", script.encode()], fork=fork)


def test_names_of_every_kind_are_staged_and_land(place: Place, settings: Settings) -> None:
    script = b"import os\nfor n in (b'a\\nb', b'\\xff\\xfe', b'x' * 255, b' ', b'-rf'):\n    os.mknod(n, 0o100000)\n"
    session = place.session(settings)
    result = session.run([b"/usr/bin/python3", b"-c", script], fork="names")
    assert result.exit_code == 0, result.stderr
    assert len(result.changeset.changes) == 5 and states(session) == {"names": "ended"}
    assert session.changes.apply("names").applied.conflicts == ()
    assert sorted(os.listdir(os.fsencode(place.project))) == [b" ", b"-rf", b"a\nb", b"x" * 255, b"\xff\xfe"]


def test_a_command_that_removes_its_own_directory_ends_as_others(place: Place, settings: Settings) -> None:
    place.write("d/f", "f\n")
    session = place.session(settings)
    result = sh(session, 'cd d && rm -rf ../d; rm -rf "$PWD/../.." 2> /dev/null; rm -rf ./* 2> /dev/null; true', "gone")
    assert result.exit_code == 0
    assert {change.path for change in result.changeset.changes} == {b"d", b"d/f"}
    assert states(session) == {"gone": "ended"}
    assert (place.project / "d/f").read_text() == "f\n"


def test_a_chain_longer_than_a_path_lands_and_is_undone(place: Place, settings: Settings) -> None:
    """120 names of 80 bytes: twice PATH_MAX (4,096)."""
    session = place.session(settings)
    result = deep(session, 120, NAME[:80], "deep")
    assert (result.exit_code, states(session)) == (0, {"deep": "ended"})
    session.forks.checkpoint("deep", "point")
    landed = session.changes.apply("deep").applied
    assert landed.conflicts == () and depth_of(place.project) == 120
    assert [event["apply"] for event in events(session, "apply")] == [landed.name]
    session.changes.undo(landed.name)
    assert os.listdir(place.project) == []
    session.forks.discard("deep")
    assert states(session) == {} and os.listdir(session.vault.path + b"/trash") == []


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("settings", daily(["overlay", "copy"]), indirect=True)
def test_a_chain_that_is_too_deep_does_not_land(place: Place, settings: Settings) -> None:
    session = place.session(settings)
    sh(session, "echo x > x", "deep")
    deep(session, 2_500, b"dd", "deep")
    assert [change.path for change in session.changes.of("deep").changes] == [b"x"]
    assert [remark.path for remark in session.changes.of("deep").remarks] == [b"dd"]
    assert [row["state"] for row in fork_rows(session)] == ["ended"]
    session.changes.apply("deep")
    session.forks.discard("deep")
    assert os.listdir(place.project) == ["x"]


def depth_of(root: Path) -> int:
    """Return the number of directories in a chain, entered one by one. The leaf is read."""
    current, depth = os.open(root, os.O_RDONLY), 0
    while (names := os.listdir(current)) != ["leaf"]:
        below = os.open(names[0], os.O_RDONLY | os.O_DIRECTORY, dir_fd=current)
        os.close(current)
        current, depth = below, depth + 1
    leaf = os.open("leaf", os.O_RDONLY, dir_fd=current)
    assert os.read(leaf, 10) == b"leaf"
    os.close(leaf)
    os.close(current)
    return depth


def test_an_apply_of_many_directories_is_linear(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory above them is not listed anew for each."""
    session, result = place.sh("mkdir $(seq 200)")
    listed = 0

    def counting(opened: int) -> dict[bytes, Entry]:
        nonlocal listed
        names = entries(opened)
        listed += len(names)
        return names

    monkeypatch.setattr("mudroom.stage.layers.layer.entries", counting)
    assert session.changes.apply(result.fork).applied.conflicts == ()
    assert len(os.listdir(place.project)) == 200 and listed <= 5 * 200


def test_a_launcher_that_is_killed(place: Place, settings: Settings) -> None:
    """By the kernel, where memory is short: the command ends, too; its changes are collected at the next look."""
    own = LauncherClient(SpawnedLauncher())
    own.start()
    place._client = own
    session = place.session(settings)

    def kill(_stream: str, _data: bytes) -> None:
        os.kill(own.launcher.require_pid(), signal.SIGKILL)

    told = "the sandbox launcher died (run the command again; nothing was applied)"
    with pytest.raises(MudroomError, match=whole(told)):
        session.run([b"sh", b"-c", b"echo b > b; echo up; sleep 1000"], fork="work", stdio=Stdio(on_output=kill))
    session.close()
    own.close()
    session = place.session(settings)
    assert [change.path for change in session.changes.of("work").changes] == [b"b"]
