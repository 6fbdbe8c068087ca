"""An entry that cannot be represented is a remark: the fork can still be read, repaired, rolled back and applied."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from mudroom.core.settings import Settings
from mudroom.core.tree.change import Changeset
from mudroom.errors import MudroomError
from mudroom.session import Session
from mudroom.stage import view as limits
from mudroom.stage.copy import listed
from mudroom.stage.originals import collection
from mudroom.stage.source import OpenSource

pytestmark = pytest.mark.both_users

NEST = "for name in {names}; do mkdir $name; cd $name; done; echo deep > leaf"
DEEP = NEST.format(names=" ".join(["d"] * 16))
LEFT_OUT = (
    "holds more than 2,048 nested directories, or a path of more than 32,768 bytes: deeper directories are not read, "
    "and it does not land"
)


@pytest.fixture(params=["overlay", "copy"])
def settings(request: pytest.FixtureRequest) -> Settings:
    return Settings(view=request.param)


@pytest.fixture
def shallow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Staging to a depth of 10: the real limit takes seconds."""
    monkeypatch.setattr(limits, "_DEEPEST", 10)


def paths(changes: Changeset) -> list[str]:
    return [os.fsdecode(change.path) for change in changes.changes]


def remarks(changes: Changeset) -> dict[str, str]:
    return {os.fsdecode(remark.path): remark.text for remark in changes.remarks}


def started(place: Place, script: str, settings: Settings) -> Session:
    """Return a session in whose fork ``f`` the script has run."""
    session = place.session(settings)
    run(session, script, "f")
    return session


def run(session: Session, script: str, fork: str) -> Changeset:
    result = session.run([b"sh", b"-c", script.encode()], fork=fork)
    assert result.exit_code == 0, result.stderr
    return result.changeset


@pytest.mark.usefixtures("shallow")
def test_a_tree_too_deep_is_a_remark(place: Place, settings: Settings) -> None:
    place.write("src/f", "1\n")
    session, result = place.sh(f"echo new > new; mkdir src/gen; ln new src/gen/linked; cd src/gen; {DEEP}", settings)
    assert paths(result.changeset) == ["new"]
    assert remarks(result.changeset) == {"src/gen": LEFT_OUT}
    landed = session.changes.apply(result.fork)
    assert not landed.applied.conflicts
    assert sorted(os.listdir(place.project)) == ["new", "src"] and os.listdir(place.project / "src") == ["f"]
    session.changes.undo()
    assert os.listdir(place.project) == ["src"]


@pytest.mark.usefixtures("shallow")
def test_a_fork_with_a_tree_too_deep_goes_on(place: Place, settings: Settings) -> None:
    session = started(place, "echo 1 > one", settings)
    session.forks.checkpoint("f", "green")
    run(session, DEEP, "f")
    session.forks.checkpoint("f", "deep")
    session.forks.new("early", parent="f", at="green")
    session.forks.new("late", parent="f")
    assert (paths(session.changes.of("early")), paths(session.changes.of("late"))) == (["one"], ["one"])
    changes = run(session, "echo 2 > d/beside; echo 3 > three", "f")
    assert (paths(changes), list(remarks(changes))) == (["one", "three"], ["d"])
    changes = run(session, "rm -r d", "f")
    assert (paths(changes), remarks(changes)) == (["one", "three"], {})
    session.forks.rollback("f", "deep")
    assert list(remarks(session.changes.of("f"))) == ["d"]
    session.forks.rollback("f", "green")
    assert (paths(session.changes.of("f")), remarks(session.changes.of("f"))) == (["one"], {})


@pytest.mark.usefixtures("shallow")
def test_a_tree_made_shallow_again_lands(place: Place, settings: Settings) -> None:
    session = started(place, f"mkdir top; cd top; echo 1 > one; {DEEP}", settings)
    session.forks.checkpoint("f", "deep")
    if settings.view == "copy":
        assert list(remarks(session.changes.of("f"))) == ["top"]
        return  # the deep part is only in the copy, and not in the checkpoint
    changes = run(session, "rm -r top/d/d", "f")
    assert (paths(changes), remarks(changes)) == (["top", "top/d", "top/one"], {})
    session.changes.apply("f")
    assert (place.project / "top/one").read_text() == "1\n"


@pytest.mark.usefixtures("shallow")
def test_a_deep_tree_of_the_project_stays_as_it_is(place: Place, settings: Settings) -> None:
    deep = "/".join(["d"] * 16)
    place.write(f"{deep}/f", "1\n")
    session, result = place.sh("echo 1 > new; echo 2 > d/beside", settings)
    assert paths(result.changeset) == ["d/beside", "new"]
    changes = run(session, f"test ! -e {deep} || echo 3 > {deep}/f", result.fork)
    told = LEFT_OUT.replace("it does not land", "changes in them do not land")
    assert remarks(changes) == ({"d": told} if settings.view == "overlay" else {})
    session.changes.apply(result.fork)
    assert (place.project / deep / "f").read_text() == "1\n" and (place.project / "d/beside").exists()


def test_directories_that_lie_too_deep_are_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "/".join(["dd"] * 40)).mkdir(parents=True)
    for name, limit in (("_LONGEST", 60), ("_DEEPEST", 20)):
        with monkeypatch.context() as patch, OpenSource(bytes(tmp_path)) as source:
            patch.setattr(limits, name, limit)
            deep = set[bytes]()
            assert len(listed(source, deep=deep)) == 20
            assert deep == {b"/".join([b"dd"] * 20)}


COLLECT = collection.collect


def fail(*_arguments: object) -> Changeset:
    raise OSError(errno.EIO, os.strerror(errno.EIO), b"broken")


WHY = f"broken: {os.strerror(errno.EIO)}"


def spoiled(place: Place, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Session:
    """A session with a fork ``f`` whose last command's changes cannot be collected."""
    session = started(place, "echo 1 > one", settings)
    session.forks.checkpoint("f", "green")
    monkeypatch.setattr(collection, "collect", fail)
    with pytest.raises(MudroomError, match="could not be collected"):
        run(session, "echo 2 > two", "f")
    return session


def test_a_rollback_needs_no_collection(place: Place, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    session = spoiled(place, monkeypatch, settings)
    before = session.forks.rollback("f", "green")
    assert session.forks.unsaid() == [f"the earlier changes in f could not be collected: {WHY}"]
    monkeypatch.undo()
    assert paths(session.changes.of("f")) == ["one"]
    assert before is not None
    session.forks.new("kept", parent="f", at=before.name)
    changes = session.changes.of("kept")
    assert paths(changes) == ["one"]
    assert remarks(changes) == {"": f"the changes of its last command could not be collected, and do not land: {WHY}"}


def test_a_fork_of_a_checkpoint_needs_no_collection(
    place: Place, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    session = spoiled(place, monkeypatch, settings)
    session.forks.new("g", parent="f", at="green")
    monkeypatch.undo()
    assert paths(session.changes.of("g")) == ["one"]


def test_a_command_may_repair_what_cannot_be_collected(
    place: Place, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """Its changes are collected with those of the earlier command."""
    session = spoiled(place, monkeypatch, settings)
    tries = iter((fail, COLLECT))

    def collect(*given: Any) -> Changeset:
        return next(tries)(*given)

    monkeypatch.setattr(collection, "collect", collect)
    result = session.run([b"sh", b"-c", b"echo 3 > three"], fork="f")
    assert f"the earlier changes in f could not be collected: {WHY}" in result.notes
    assert (paths(result.changeset), remarks(result.changeset)) == (["one", "three", "two"], {})
