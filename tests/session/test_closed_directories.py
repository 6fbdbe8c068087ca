"""What a command closes to its owner (``chmod 0 d``) is staged, shown and applied as everything else.

Root passes closed doors, so these tests tell most when an ordinary user runs them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from conftest import Place
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError, UsageError
from mudroom.stage.beneath import open_root
from mudroom.stage.layers.closed_directory import LoosenedDirectories

pytestmark = [pytest.mark.both_users, pytest.mark.root]

View = Literal["overlay", "copy"]

SCRIPT = """
set -e
mkdir -p new/below; echo n > new/n; echo b > new/below/b; chmod 0 new/below/b; chmod 0 new/below; chmod 555 new
echo more >> old/f; chmod 0 old/f; chmod 0 old
chmod 0 secret
"""


@pytest.fixture(params=["overlay", "copy"])
def settings(request: pytest.FixtureRequest) -> Settings:
    view: View = request.param
    return Settings(view=view)


@pytest.fixture
def project(place: Place) -> Iterator[Path]:
    for name in ("old/f", "old/g", "secret/kept", "other"):
        place.write(name, name + "\n")
    yield place.project
    unlock(place.project)


def unlock(root: Path) -> dict[str, int]:
    """The modes of what is closed to its owner; all of it is open afterwards."""
    closed = {}
    pending = [root]
    while pending:
        for path in pending.pop().iterdir():
            mode = path.stat().st_mode & 0o777
            if (path.is_dir() and mode & 0o700 != 0o700) or not mode & 0o400:
                closed[str(path.relative_to(root))] = mode
                path.chmod(mode | (0o700 if path.is_dir() else 0o600))
            if path.is_dir():
                pending.append(path)
    return closed


CHANGED = [b"new", b"new/below", b"new/below/b", b"new/n", b"old", b"old/f", b"secret"]


def test_what_is_closed_is_staged_and_lands(place: Place, project: Path, settings: Settings) -> None:
    session, result = place.sh(SCRIPT, settings)
    assert result.exit_code == 0, result.stderr
    assert sorted(change.path for change in result.changeset.changes) == CHANGED
    files = session.forks.files(result.fork)
    assert files.read("new/below/b") == b"b\n" and files.read("old/f") == b"old/f\nmore\n"
    assert sorted(files.list("new")) == ["below", "n"]

    checked = session.run([b"sh", b"-c", b"chmod 755 new/below; echo again >> new/n"], fork=result.fork)
    session.run([b"chmod", b"0", b"new/below"], fork=result.fork)
    assert checked.exit_code == 0, checked.stderr
    assert sorted(change.path for change in session.changes.of(result.fork).changes) == CHANGED

    landed = session.changes.apply(result.fork)
    assert (landed.applied.conflicts, landed.applied.remarks) == ((), ())
    closed = {"new": 0o555, "new/below": 0o500, "new/below/b": 0, "old": 0o500, "old/f": 0, "secret": 0o500}
    assert unlock(project) == closed
    assert (project / "new/below/b").read_text() == "b\n"
    assert (project / "new/n").read_text() == "n\nagain\n"
    assert (project / "old/f").read_text() == "old/f\nmore\n"
    assert (project / "old/g").read_text() == "old/g\n"
    assert (project / "secret/kept").read_text() == "secret/kept\n"


def test_a_tool_writes_into_what_a_command_has_closed(place: Place, project: Path, settings: Settings) -> None:
    session, result = place.sh("mkdir d; echo 1 > d/one; chmod 555 d; chmod 555 old", settings)
    files = session.forks.files(result.fork)
    files.write("d/two", "2")
    files.write("old/new", "3")
    files.delete("d/one")
    session.changes.apply(result.fork)
    assert unlock(project) == {"d": 0o555, "old": 0o555}
    assert (sorted(os.listdir(project / "d")), sorted(os.listdir(project / "old"))) == (["two"], ["f", "g", "new"])


def test_a_checkpoint_keeps_what_is_closed(place: Place, project: Path, settings: Settings) -> None:
    session, result = place.sh(SCRIPT, settings)
    session.forks.checkpoint(result.fork, "closed")
    session.run([b"sh", b"-c", b"chmod -R u+rwX new old secret; rm -r new; echo y > old/g"], fork=result.fork)
    session.forks.rollback(result.fork, "closed")
    assert sorted(change.path for change in session.changes.of(result.fork).changes) == CHANGED
    assert session.forks.files(result.fork).read("new/below/b") == b"b\n"
    session.changes.apply(result.fork)
    assert unlock(project)["new/below"] == 0o500
    assert (project / "old/g").read_text() == "old/g\n"


def test_what_the_user_has_closed_meanwhile_is_left_alone(place: Place, project: Path, settings: Settings) -> None:
    session, result = place.sh("echo more >> old/f; echo new > old/new; rm secret/kept; echo x > fine", settings)
    (project / "old").chmod(0)
    (project / "secret").chmod(0o500)
    landed = session.changes.apply(result.fork)
    assert (project / "fine").read_text() == "x\n"
    if os.geteuid():
        assert {conflict.path for conflict in landed.applied.conflicts} == {b"old/f", b"old/new", b"secret/kept"}
        assert unlock(project) == {"old": 0, "secret": 0o500}
        assert (project / "old/f").read_text() == "old/f\n" and (project / "secret/kept").exists()
        landed = session.changes.apply(result.fork)
    assert landed.applied.conflicts == ()
    assert (project / "old/f").read_text() == "old/f\nmore\n" and not (project / "secret/kept").exists()


def test_closing_is_undone(place: Place, project: Path, settings: Settings) -> None:
    session, result = place.sh(SCRIPT, settings)
    landed = session.changes.apply(result.fork)
    undone = session.changes.undo(landed.applied.name)
    assert (project / "old/f").read_text() == "old/f\n"
    if not undone.conflicts:
        assert unlock(project) == {}
        assert not (project / "new").exists(), undone
        return
    # what lies in a directory that an ordinary user may not write stays, with its reason, and has a way on
    assert os.geteuid(), undone.conflicts
    assert {conflict.path for conflict in undone.conflicts} == {b"new/below", b"new/below/b", b"new/n"}
    with pytest.raises(UsageError, match=f"mudroom undo {landed.applied.name} --decide"):
        session.changes.undo(landed.applied.name)
    assert unlock(project) == {"new": 0o555, "new/below": 0o500, "new/below/b": 0}


def test_killed_while_a_directory_is_open_to_us(place: Place, project: Path, settings: Settings) -> None:
    """``restore`` never came. Nothing lands with a mode that nobody was shown."""
    session, result = place.sh("mkdir new; echo n > new/n; chmod 500 new; chmod 500 old", settings)
    # rglob would raise: the launcher removes work directories beside the session
    for tree in {Path(at) for at, directories, _files in os.walk(place.state) if "new" in directories}:
        root = open_root(os.fsencode(tree))
        for name in (b"new", b"old"):
            LoosenedDirectories(root).enter(name)
        os.close(root)
    assert unlock(project) == {}
    if settings.view == "copy":
        with pytest.raises(MudroomError, match="not what was reviewed"):
            session.changes.apply(result.fork)
        assert sorted(os.listdir(project)) == ["old", "other", "secret"] and unlock(project) == {}
        looked = session.run([b"true"], fork=result.fork)
        assert [(one.path, one.entry.mode) for one in looked.changeset.changes if one.path == b"new"] == [
            (b"new", 0o700)
        ]
        session.changes.apply(result.fork)
        assert unlock(project) == {}
    else:
        session.changes.apply(result.fork)
        assert unlock(project) == {"new": 0o500, "old": 0o500}


def test_a_file_that_nobody_may_write_to_moves(place: Place, project: Path, settings: Settings) -> None:
    place.write("fixed", "f\n", 0o444)
    session, result = place.sh("mkdir new; mv fixed new; mv other new; chmod 444 new/other; chmod 555 new", settings)
    session.changes.apply(result.fork)
    assert (project / "new/fixed").read_text() == "f\n" and unlock(project) == {"new": 0o555}
    for name in ("new", "new/fixed", "new/other"):
        (project / name).chmod(0o755)
        assert os.listxattr(project / name) == []


def test_a_read_only_project_is_not_opened(place: Place, settings: Settings, project: Path) -> None:
    """Its directory is staged open, because readers go through it; that was shown and applied as a change of every
    command, also of one that did nothing."""
    project.chmod(0o555)
    try:
        session = place.session(settings)
        for script in ("true", "true", "echo more >> other"):
            changes = session.run([b"sh", b"-c", script.encode()], fork="f").changeset
            assert [change.path for change in changes.changes] == ([b"other"] if "other" in script else [])
            assert not changes.remarks
        applied = session.changes.apply("f")
        lands = [conflict.path for conflict in applied.conflicts] != [b"other"]  # root writes to it nevertheless
        assert project.stat().st_mode & 0o777 == 0o555
        assert (project / "other").read_text() == ("other\nmore\n" if lands else "other\n")
        closing = session.run([b"sh", b"-c", b"chmod 750 ."], fork="g").changeset
        assert [change.path for change in closing.changes] == [b""]
    finally:
        project.chmod(0o755)
