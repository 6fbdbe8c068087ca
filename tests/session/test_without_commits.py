"""An installation that lacks what brings commits: an apply lands files, the commits stay in the fork and that is said;
what cannot be done without it is refused in one line, with nothing changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Place, full_listing, listing
from mudroom.cli.main import run
from mudroom.core.registry import NotInstalled
from mudroom.errors import UsageError
from mudroom.session import Session
from mudroom.vault.apply.repositories import REFS
from mudroom.vault.apply.transaction import ApplyDirectory
from whole_text import whole

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
GIT = "git -c user.name=T -c user.email=t@example.org -c init.defaultBranch=main"
LACKS = "is not part of this installation: it lacks mudroom/ext/commits"
HINT = " (install all of mudroom: pip install --force-reinstall mudroom)"
STAYS = "stays in the fork, with its commits: this installation lacks mudroom/ext/commits"
COMMIT = f"echo two >>file; {GIT} commit -qam two"


@pytest.fixture(autouse=True)
def nothing_brings_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mudroom.ext.commits", None)


@pytest.fixture
def project(place: Place) -> Place:
    place.write("file", "one\n")
    subprocess.run(["sh", "-ec", f"{GIT} init -q; {GIT} add -A; {GIT} commit -qm one"], cwd=place.project, check=True)
    return place


def repository(place: Place) -> dict[str, object]:
    return {name: stamp for name, stamp in full_listing(place.project).items() if name.startswith(".git/")}


def test_files_land_and_one_remark_says_that_the_commits_stay(project: Place) -> None:
    before = repository(project)
    session, result = project.sh(COMMIT + "; mkdir -p .git/hooks; echo evil >.git/hooks/post-commit")
    landed = session.changes.apply(result.fork)
    assert (project.project / "file").read_text() == "one\ntwo\n"
    assert repository(project) == before
    assert [(remark.path, remark.text) for remark in landed.applied.remarks] == [(b".git", STAYS)]
    assert landed.untold == [b".git/hooks/post-commit"], "it has to be named as ever"
    assert landed.remaining
    session.changes.undo()
    assert (project.project / "file").read_text() == "one\n"


def test_files_without_commits_land_as_ever(project: Place) -> None:
    session, result = project.sh("echo two >>file")
    assert session.changes.apply(result.fork, git=True).applied.remarks == ()
    assert session.changes.undo().conflicts == () == session.changes.redo().conflicts
    with pytest.raises(UsageError, match=whole("u1 cannot be redone (it has not been undone)")):
        session.changes.redo("u1")
    assert (project.project / "file").read_text() == "one\ntwo\n"


@pytest.mark.parametrize("how", [{"git": True}, {"paths": [b".git"]}])
def test_commits_that_are_asked_for_are_refused_and_nothing_lands(project: Place, how: dict[str, object]) -> None:
    before = full_listing(project.project)
    session, result = project.sh(COMMIT)
    with pytest.raises(NotInstalled, match=whole(f"bringing a fork's commits {LACKS}{HINT}")):
        session.changes.apply(result.fork, **how)  # type: ignore[arg-type]
    assert full_listing(project.project) == before and not session.vault.has_unfinished()


def test_a_new_repository_lands_where_no_file_is_masked(place: Place) -> None:
    session, result = place.sh(f"echo 1 >a; {GIT} init -q; {GIT} add a; {GIT} commit -qm one")
    assert session.changes.apply(result.fork).withheld == ()
    shown = subprocess.run(["git", "log", "--format=%s"], cwd=place.project, capture_output=True, check=True)
    assert shown.stdout == b"one\n"


def test_a_new_repository_that_may_hold_masked_files_is_refused(place: Place) -> None:
    place.write(".env", "KEY=1\n")
    session, result = place.sh(f"echo 1 >a; {GIT} init -q; {GIT} add -A; {GIT} commit -qm one")
    with pytest.raises(NotInstalled, match=whole(f"checking a new repository for masked files {LACKS}{HINT}")):
        session.changes.apply(result.fork)
    assert sorted(listing(place.project)) == [".env"]
    assert session.changes.apply(result.fork, [b"a"]).conflicts == ()


def moving(project: Place, state: str = "done") -> tuple[Session, ApplyDirectory]:
    """Return an apply that has moved refs."""
    session, result = project.sh("echo two >>file")
    session.changes.apply(result.fork)
    place = ApplyDirectory(session.vault.applies()[-1])
    if state == "undone":
        session.changes.undo()
    Path(os.fsdecode(place.path + REFS)).write_bytes(b"\x90")
    return session, place


def test_an_apply_that_moved_refs_is_neither_undone_nor_redone(project: Place) -> None:
    session, _place = moving(project)
    with pytest.raises(NotInstalled, match=whole(f"undo of u1, which has moved refs of git, {LACKS}{HINT}")):
        session.changes.undo()
    assert (project.project / "file").read_text() == "one\ntwo\n" and not session.vault.has_unfinished()
    session, place = moving(project, "undone")
    with pytest.raises(NotInstalled, match=whole(f"redo of {place.name}, which has moved refs of git, {LACKS}{HINT}")):
        session.changes.redo(place.name)
    assert place.state() == "undone" and not session.vault.has_unfinished()


@pytest.mark.parametrize("operation", ["apply", "turn"])
def test_an_apply_that_was_cut_off_with_planned_refs_waits_for_what_moves_them(project: Place, operation: str) -> None:
    session, place = moving(project)
    place.begin(operation)  # type: ignore[arg-type]
    before = listing(project.project)
    told = whole(f"recovery of u1, which was cut off and moves refs of git, {LACKS}{HINT}")
    for _try in range(2):
        with pytest.raises(NotInstalled, match=told), session.alone("a test"):
            raise AssertionError("nothing else begins")
    assert session.vault.has_unfinished() and place.state() == "done" and listing(project.project) == before
    os.unlink(place.path + REFS)
    with session.alone("a test"):
        pass
    assert not session.vault.has_unfinished()


def test_an_apply_that_was_cut_off_before_its_plan_is_no_obstacle(project: Place) -> None:
    session = project.session()
    place = ApplyDirectory(session.vault.new_apply())
    place.begin("apply")
    Path(os.fsdecode(place.path + REFS)).write_bytes(b"\x90")
    with session.alone("a test"):
        pass
    assert not session.vault.has_unfinished()


def environ_of(place: Place) -> dict[bytes, bytes]:
    variables = {"HOME": place.home, "MUDROOM_STATE": place.state, "PATH": os.environ["PATH"], "MUDROOM_KEEPER": "0"}
    return {os.fsencode(name): os.fsencode(str(value)) for name, value in variables.items()}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("apply f --yes --commit -m two", f"mudroom apply --commit {LACKS}"),
        ("apply f --commits --branch b", f"mudroom apply --commits {LACKS}"),
        ("apply f --yes --git", f"bringing a fork's commits {LACKS}"),
        ("diff f --commits", f"mudroom diff --commits {LACKS}"),
    ],
)
def test_verbs_say_in_one_line_what_is_missing(
    project: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], words: str, told: str
) -> None:
    project.session().run([b"sh", b"-c", COMMIT.encode()], fork="f")
    before = full_listing(project.project)
    monkeypatch.chdir(project.project)
    capfd.readouterr()
    assert run(words.split(), environ_of(project)) == 125
    assert capfd.readouterr().err == f"mudroom: {told}{HINT}\n"
    assert full_listing(project.project) == before


def test_a_preview_says_that_the_commits_stay(
    project: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project.project)
    assert run(["exec", "--fork", "f", "--", "sh", "-c", COMMIT], environ_of(project)) == 0
    assert f"  ! .git {STAYS}\n" in capfd.readouterr().err
    assert run(["apply", "f", "--yes"], environ_of(project)) == 0
    said = capfd.readouterr()
    assert (said.out + said.err).count("mudroom/ext/commits") == 1 and "--git" not in said.err
