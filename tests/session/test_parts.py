"""More work in a fork with parts in other projects: commands, checkpoints, rollbacks, forks of it, another name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from box import if_namespaces
from conftest import Place, listing
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.transfer.vault.bundle import export_fork
from mudroom.session import Session
from mudroom.vault.forks.ties import ROOTS, Tie, first_of, tie, ties_of

pytestmark = if_namespaces


@pytest.fixture
def lib(place: Place) -> Path:
    path = place.root / "lib"
    path.mkdir()
    (path / "code").write_text("one\n")
    place.write("a", "a\n")
    return path


def sh(session: Session, script: str, fork: str, *roots: Path) -> str:
    words = [b"sh", b"-ec", script.encode()]
    result = session.run(words, fork=fork, roots=[os.fsencode(root) for root in roots])
    assert result.exit_code == 0, (result.stderr, result.notes)
    return result.stdout.decode()


def both(session: Session, fork: str) -> str:
    return sh(session, "cat a ../lib/code", fork).replace("\n", " ")


def test_a_later_command_continues_in_all_parts(place: Place, lib: Path) -> None:
    before = listing(place.project), listing(lib)
    session = place.session()
    sh(session, "echo b > a; echo two >> ../lib/code", "work", lib)
    sh(session, "echo c >> a; echo three >> ../lib/code", "work")
    assert both(session, "work") == "b c one two three "
    assert (listing(place.project), listing(lib)) == before
    session.changes.review("work")
    session.changes.apply("work")
    assert (place.project / "a").read_text() + (lib / "code").read_text() == "b\nc\none\ntwo\nthree\n"
    session.changes.undo()
    assert (listing(place.project), listing(lib)) == before


def test_a_part_joins_a_fork_later_and_leaves_it_with_its_command(place: Place, lib: Path) -> None:
    session = place.session()
    sh(session, "echo b > a", "work")
    session.forks.checkpoint("work", "early")
    with pytest.raises(MudroomError):
        session.run([b"/no/such/program"], fork="work", roots=[os.fsencode(lib)])
    assert ties_of(session.vault.fork("work")) == ()
    sh(session, "echo two >> ../lib/code", "work", lib)
    assert both(session, "work") == "b one two "
    session.forks.rollback("work", "early")
    assert both(session, "work") == "b one "


def test_a_checkpoint_and_a_rollback_are_of_all_parts(place: Place, lib: Path) -> None:
    session = place.session()
    sh(session, "echo b > a; echo two >> ../lib/code", "work", lib)
    session.forks.checkpoint("work", "point")
    sh(session, "echo three >> ../lib/code", "work")
    assert session.forks.last_checkpoint("work") == "point"
    dropped = session.forks.rollback("work")
    assert both(session, "work") == "b one two "
    assert dropped is not None
    session.forks.rollback("work", dropped.name)
    assert both(session, "work") == "b one two three "


def test_a_checkpoint_that_was_cut_off_is_made_again(place: Place, lib: Path) -> None:
    session = place.session()
    sh(session, "echo two >> ../lib/code", "work", lib)
    state = session.vault.fork("work").state
    session.forks.checkpoint("work", "point")
    session.vault.fork("work").save(state)
    sh(session, "echo three >> ../lib/code", "work")
    session.forks.checkpoint("work", "point")
    sh(session, "echo four >> ../lib/code", "work")
    session.forks.rollback("work", "point")
    assert both(session, "work") == "a one two three "


def test_a_fork_of_it_has_parts_of_its_own(place: Place, lib: Path) -> None:
    session = place.session()
    sh(session, "echo two >> ../lib/code", "work", lib)
    session.forks.checkpoint("work", "point")
    sh(session, "echo three >> ../lib/code", "work")
    session.forks.new("copy", parent="work")
    session.forks.new("then", parent="work", at="point")
    sh(session, "echo more >> ../lib/code", "work")
    assert [both(session, name) for name in ("copy", "then")] == ["a one two three ", "a one two "]
    session.forks.discard("copy")
    session.changes.apply("then")
    assert (lib / "code").read_text() == "one\ntwo\n"
    assert both(session, "work") == "a one two three more "


def test_forks_of_one_name_have_parts_apart(place: Place, lib: Path) -> None:
    session = place.session()
    there = session.root(Tie(b"", os.fsencode(lib)))
    sh(there, "echo theirs >> code", "work")
    sh(session, "echo mine >> ../lib/code", "work", lib)
    assert both(session, "work") == "a one mine "
    (tied,) = ties_of(session.vault.fork("work"))
    assert tied.name == "work-2"
    part = tied.fork(session.vault.fork("work"))
    first = first_of(part)
    assert first is not None
    assert first.name == "work"
    with pytest.raises(UsageError, match="work-2 is a part of the fork work of") as refused:
        there.run([b"true"], fork="work-2")
    assert refused.value.hint == f"cd {place.project} && mudroom exec --fork work"
    assert there.run([b"cat", b"code"], fork="work").stdout == b"one\ntheirs\n"


def test_another_name_leads_to_its_parts(place: Place, lib: Path) -> None:
    session = place.session()
    sh(session, "echo two >> ../lib/code", "work", lib)
    session.forks.rename("work", "renamed")
    assert both(session, "renamed") == "a one two "
    session.changes.apply("renamed")
    assert (lib / "code").read_text() == "one\ntwo\n"
    with pytest.raises(UsageError, match="renamed also has changes in"):
        session.forks.mount("renamed")


def test_a_part_that_another_command_has_made_meanwhile_is_not_left_out(place: Place, lib: Path) -> None:
    session = place.session()
    sh(session, "echo b > a", "work", lib)
    order = session._tied(session._order([b"true"], "work", None, None, None), ())
    tie(session.vault.fork("work").path + ROOTS, [])
    from mudroom.session.run import run

    with pytest.raises(MudroomError, match="has other parts than a moment ago"):
        run(session._parts(), order)


def test_verbs_of_one_project_say_so(place: Place, lib: Path) -> None:
    session = place.session()
    sh(session, "echo b > a; echo two >> ../lib/code", "work", lib)
    with pytest.raises(UsageError, match="mudroom vault export is for a fork of one project"):
        export_fork(session.vault, session.vault.fork("work"), os.fsencode(place.root / "x.tar"), 0)
    session.changes.apply("work")
    session.changes.undo()
    with pytest.raises(UsageError, match="u1 is of several projects: it is redone whole"):
        session.changes.give_again("u1")
    session.changes.redo()


def test_nothing_runs_in_the_background_beside_a_part(place: Place, lib: Path) -> None:
    session = place.session()
    sh(session, "echo b > a", "work", lib)
    with pytest.raises(UsageError, match="in the background does not see"):
        session.start([b"true"], fork="work")
    background = session.start([b"sleep", b"600"], fork="other")
    with pytest.raises(UsageError, match=r"other is running .sleep 600., without"):
        session.run([b"true"], fork="other", roots=[os.fsencode(lib)])
    session.sandboxes.end("other")
    assert background.wait(None) is not None
