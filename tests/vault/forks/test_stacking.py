"""Checkpoints, rollbacks, forks of forks and names on disk: what is shared, what is whole after a failure."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from conftest import Place
from mudroom.errors import MudroomError, UsageError
from mudroom.session import Session
from mudroom.vault.forks import stacking
from mudroom.vault.retention.check import check
from mudroom.vault.store.fork import Fork, fork_directory, is_plain
from tiers import each


def run(session: Session, fork: str, script: str) -> str:
    return session.run([b"sh", b"-c", script.encode()], fork=fork).stdout.decode()


def names(session: Session, fork: str) -> list[str]:
    return [point.name for point in session.vault.fork(fork).state.checkpoints]


def tree(path: bytes) -> dict[str, tuple[int, int, int]]:
    found = {}
    for directory, directories, files in os.walk(os.fsdecode(path)):
        for name in (*directories, *files):
            info = os.lstat(os.path.join(directory, name))
            found[os.path.relpath(os.path.join(directory, name), os.fsdecode(path))] = (
                stat.S_IFMT(info.st_mode), info.st_size, info.st_mtime_ns,
            )  # fmt: skip
    return found


@each("name", ["a", "A-1_b.c", "0", "a..", "x" * 64, "run-7f3a", "now-1", "base2"])
def test_names_that_are_plain(name: str) -> None:
    assert is_plain(name)
    assert fork_directory(name) == name.encode()


@each(
    "name",
    ["", ".", "..", "../x", "a/b", "/", "a b", " a", "a\n", "a\0", "-a", "_a", ".a", "é", "x" * 65, "a\\b", "a@b", "²"],
)
def test_names_that_are_not(name: str) -> None:
    assert not is_plain(name)
    with pytest.raises(UsageError, match="cannot be the name of a fork"):
        fork_directory(name)


@pytest.mark.parametrize("name", ["base", "now"])
def test_what_diff_calls_something_else_is_no_name(place: Place, name: str) -> None:
    session = place.session()
    session.forks.new("try")
    with pytest.raises(UsageError, match="another meaning in mudroom diff"):
        session.forks.new(name)
    with pytest.raises(UsageError, match="another meaning in mudroom diff"):
        session.forks.rename("try", name)
    assert [fork.name for fork in session.vault.forks()] == ["try"]


def test_a_sealed_layer_is_never_written_to(place: Place) -> None:
    place.write("file", "base\n")
    place.write("d/x", "x\n")
    session = place.session()
    run(session, "one", "echo 1 >> file; rm d/x; mkdir n; echo n > n/n")
    session.forks.checkpoint("one", "point")
    sealed = session.vault.layer(session.vault.fork("one").state.layers[0])
    before = tree(sealed)
    session.forks.new("two", parent="one")
    run(session, "one", "echo 2 >> file; rm -r n; echo back > d/x")
    run(session, "two", "mv n m; chmod 600 file")
    session.forks.files("two").write("n/own", "x")
    session.forks.flush("two")
    session.forks.rollback("one", "point")
    session.vault.lock.acquire("test")
    session.changes.apply("two")
    session.vault.lock.release()
    assert tree(sealed) == before
    assert check(session.vault) == []


def test_checkpoints_of_the_same_state_share_their_layers(place: Place) -> None:
    session = place.session()
    run(session, "f", "echo 1 > a")
    session.forks.checkpoint("f", "one")
    session.forks.checkpoint("f", "two")
    one, two = session.vault.fork("f").state.checkpoints
    assert one.layers == two.layers and len(one.layers) == 1
    assert session.forks.rollback("f", "one") is None, "there is nothing to drop"
    assert names(session, "f") == ["one", "two"]


def test_a_rollback_keeps_what_it_drops_under_a_name(place: Place) -> None:
    session = place.session()
    session.forks.new("f")
    session.forks.checkpoint("f", "empty")
    for number in range(3):
        run(session, "f", f"echo {number} > f{number}")
        made = session.forks.rollback("f", "empty")
        assert made is not None and (made.name, made.automatic) == (f"rollback-{number + 1}", True)
        assert session.changes.of("f").changes == ()
    for number in range(3):
        session.forks.rollback("f", f"rollback-{number + 1}")
        assert run(session, "f", "ls") == f"f{number}\n"
    assert names(session, "f") == ["empty", "rollback-1", "rollback-2", "rollback-3"], "no more than is needed"


def test_a_name_is_taken_once(place: Place) -> None:
    session = place.session()
    session.forks.new("f")
    session.forks.checkpoint("f", "point")
    before = session.vault.fork("f").state
    with pytest.raises(UsageError, match="has a checkpoint named point already"):
        session.forks.checkpoint("f", "point")
    for name in ("", "..", "a/b", "a b", "x" * 65):
        with pytest.raises(UsageError, match="cannot be the name of a checkpoint"):
            session.forks.checkpoint("f", name)
    with pytest.raises(UsageError, match="the last ones: point"):
        session.forks.rollback("f", "nope")
    assert session.vault.fork("f").state == before


def test_renaming(place: Place) -> None:
    session = place.session()
    run(session, "one", "echo 1 > a")
    session.forks.checkpoint("one", "point")
    session.forks.new("two")
    with pytest.raises(UsageError, match="there is a fork named two already"):
        session.forks.rename("one", "two")
    with pytest.raises(UsageError, match="there is a fork named one already"):
        session.forks.rename("one", "one")
    session.forks.rename("one", "three")
    assert run(session, "three", "cat a") == "1\n"
    assert names(session, "three") == ["point"]
    with pytest.raises(UsageError, match="there is no fork named one"):
        session.changes.of("one")


def test_a_damaged_fork_keeps_its_name(place: Place) -> None:
    session = place.session()
    fork = session.forks.new("f")
    Path(os.fsdecode(fork.path), "state").write_text("garbage\n")
    with pytest.raises(MudroomError, match="the state of the fork f "):
        session.forks.rename("f", "g")
    assert [one.name for one in session.vault.forks()] == ["f"]


def test_the_parent_may_go(place: Place) -> None:
    session = place.session()
    run(session, "parent", "echo 1 > a")
    session.forks.checkpoint("parent", "point")
    run(session, "parent", "echo 2 > b")
    session.forks.new("child", parent="parent", at="point")
    session.forks.discard("parent")
    assert run(session, "child", "ls") == "a\n"
    session.forks.discard("child")
    assert os.listdir(session.vault.path + b"/layers") == []


@pytest.mark.parametrize("left", ["garbage", "a second name of the record"])
def test_what_a_crash_in_a_rollback_left(place: Place, left: str) -> None:
    """Cut off between link(2) and rename(2): neither the next command nor the next rollback minds."""
    session = place.session()
    run(session, "f", "echo 1 > a")
    session.forks.checkpoint("f", "point")
    fork = session.vault.fork("f")
    record = session.vault.layer(fork.state.layers[0]) + b"/record"
    for beside in (b"/record.link", b"/record.new"):
        if left == "garbage":
            Path(os.fsdecode(fork.path + beside)).write_bytes(b"half")
        elif beside == b"/record.link":
            os.link(record, fork.path + beside)
    with open(record, "rb") as stream:
        before = stream.read()
    run(session, "f", "echo 2 > b")
    with open(record, "rb") as stream:
        assert stream.read() == before
    session.forks.rollback("f", "point")
    assert {change.path for change in session.changes.of("f").changes} == {b"a"}
    assert not os.path.exists(fork.path + b"/record.link")
    assert check(session.vault) == []


def test_a_state_that_could_not_be_written_is_not_believed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session = place.session()
    fork = session.forks.new("f")
    before = fork.state

    def refuse(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    with fork.lock("test"):
        monkeypatch.setattr(os, "rename", refuse)
        with pytest.raises(OSError, match="No space"):
            stacking.checkpoint(session.vault, fork, "point", 1)
        monkeypatch.undo()
        assert fork.state == before
    assert session.vault.fork("f").state == before


def test_two_processes_see_one_state(place: Place) -> None:
    one, two = place.session(), place.session()
    one.forks.new("f")
    mine: Fork = one.vault.fork("f")
    two.forks.checkpoint("f", "theirs")
    assert [point.name for point in mine.state.checkpoints] == ["theirs"]
    one.forks.checkpoint("f", "ours")
    assert names(two, "f") == ["theirs", "ours"]
