"""A command that changes several projects: one fork with a part in each, one review, one apply, one undo."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from box import if_namespaces
from conftest import Listing, Place, listing, tick
from mudroom.core.journal.event import data_of
from mudroom.core.journal.event_filter import EventFilter
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError, Unsupported, UsageError
from mudroom.ext.reasons.session import Reasons
from mudroom.session import Session
from mudroom.session.forks import Forks
from mudroom.vault.apply.transaction import ApplyDirectory, recover
from mudroom.vault.forks.ties import Tie, ties_of
from mudroom.vault.lock import Lock
from mudroom.vault.retention.prune import old_forks

pytestmark = if_namespaces


SCRIPT = b"echo mine > here; echo theirs >> ../lib/code; mkdir ../lib/new; echo n > ../lib/new/file; rm ../lib/old"


@pytest.fixture
def lib(place: Place) -> Path:
    path = place.root / "lib"
    path.mkdir()
    (path / "code").write_text("one\ntwo\n")
    (path / "old").write_text("old\n")
    place.write("a", "a\n")
    return path


def both(place: Place) -> tuple[Listing, Listing]:
    return listing(place.project), listing(place.root / "lib")


def staged(place: Place, lib: Path, script: bytes = SCRIPT) -> tuple[Session, str]:
    session = place.session()
    session.machine.confinement.variables = {**os.environb, b"MUDROOM_TRUST_POLICY": b"1"}
    result = session.run([b"sh", b"-ec", script], roots=[os.fsencode(lib)])
    assert result.exit_code == 0, (result.stderr, result.notes)
    return session, result.fork


def vault_of(session: Session, lib: Path) -> Path:
    (name,) = (name for name in os.listdir(session.vault.path + b"/..") if name.startswith(os.fsencode(lib.name)))
    return Path(os.fsdecode(session.vault.path)).parent / os.fsdecode(name)


def test_each_project_has_the_paths_that_the_command_changed_there(place: Place, lib: Path) -> None:
    session, fork = staged(place, lib)
    session.run([b"sh", b"-ec", b"echo more >> ../lib/code"], fork=fork, roots=[os.fsencode(lib)])
    (there,) = (there for _tied, there in session.changes.parts(fork))
    told = [data_of(event)["paths"] for event in there.vault.journal.events(where=EventFilter(("run",)))]
    assert [[row[0] for row in rows] for rows in told] == [["code", "new", "old", "new/file"], ["code"]]
    own = [data_of(event).get("paths", []) for event in session.vault.journal.events(where=EventFilter(("run",)))]
    assert [[row[0] for row in rows] for rows in own] == [["here"], []]
    seen = Reasons(session, fork).of_file(os.fsencode(lib / "code"))
    assert [step.command[2] for step in seen.steps] == [SCRIPT.decode(), "echo more >> ../lib/code"]
    assert seen.rows[0].blame.steps == (0, 1)


def test_all_parts_are_applied_undone_and_redone_together(place: Place, lib: Path) -> None:
    before = both(place)
    session, fork = staged(place, lib)
    assert both(place) == before
    session.changes.review(fork)
    landed = session.changes.apply(fork)
    assert [root.tied.path for root in landed.roots] == [os.fsencode(lib)]
    assert (landed.applied.written, landed.roots[0].landed.applied.written) == (1, 2)
    after = both(place)
    assert (lib / "code").read_text() == "one\ntwo\ntheirs\n"
    assert not (lib / "old").exists()
    assert (place.project / "here").read_text() == "mine\n"
    assert session.vault.find(fork) is None
    assert not list((vault_of(session, lib) / "forks").iterdir())
    undone = session.changes.undo()
    assert [label for label, _done in undone.roots] == [str(lib)]
    assert both(place) == before
    session.changes.redo()
    assert both(place) == after


def test_a_change_of_one_project_alone_leaves_no_part_in_the_other(place: Place, lib: Path) -> None:
    session, fork = staged(place, lib, b"echo mine > here")
    assert not list((vault_of(session, lib) / "forks").iterdir())
    assert session.changes.apply(fork).roots == ()


def test_a_change_of_the_other_project_alone_is_applied_and_undone_from_the_first(place: Place, lib: Path) -> None:
    before = both(place)
    session, fork = staged(place, lib, b"echo theirs >> ../lib/code")
    session.changes.apply(fork)
    assert (lib / "code").read_text() == "one\ntwo\ntheirs\n"
    assert session.vault.find(fork) is None
    session.changes.undo()
    assert both(place) == before


def test_a_file_that_the_user_has_edited_is_merged_in_each_project(place: Place, lib: Path) -> None:
    session, fork = staged(place, lib)
    tick()
    (lib / "code").write_text("zero\none\ntwo\n")
    session.changes.apply(fork)
    assert (lib / "code").read_text() == "zero\none\ntwo\ntheirs\n"
    tick()
    (lib / "code").write_text("ZERO\none\ntwo\ntheirs\n")
    session.changes.undo()
    assert (lib / "code").read_text() == "ZERO\none\ntwo\n"


def test_what_conflicts_in_the_other_project_stays_in_the_fork(place: Place, lib: Path) -> None:
    session, fork = staged(place, lib, b"echo mine > here; printf '\\0fork' > ../lib/code")
    tick()
    (lib / "code").write_bytes(b"\0user")
    landed = session.changes.apply(fork)
    assert [conflict.path for conflict in landed.roots[0].landed.conflicts] == [b"code"]
    assert (place.project / "here").exists()
    assert session.vault.find(fork) is not None, "the part in the other project is reached by it"
    tick()
    (lib / "code").write_text("one\ntwo\n")
    with pytest.raises(UsageError, match="mudroom mount is for a fork of one project"):
        session.forks.mount(fork)
    session.forks.discard(fork)
    assert not list((vault_of(session, lib) / "forks").iterdir())


def test_a_change_after_the_review_of_one_part_applies_none(place: Place, lib: Path) -> None:
    before = both(place)
    session, fork = staged(place, lib)
    prints = "+".join((session.changes.fingerprint(fork), "0" * 40))
    with pytest.raises(MudroomError, match="has changed since"):
        session.changes.apply(fork, reviewed=prints)
    assert both(place) == before
    assert not session.vault.has_unfinished()
    session.changes.apply(fork)
    assert (lib / "new/file").exists()


def test_a_review_of_the_first_project_alone_is_not_enough(place: Place, lib: Path) -> None:
    session, fork = staged(place, lib)
    with pytest.raises(UsageError, match="which this review has not shown"):
        session.changes.apply(fork, reviewed=session.changes.fingerprint(fork))


def test_a_failed_verification_of_the_other_project_applies_none(place: Place, lib: Path) -> None:
    (lib / ".mudroom").mkdir()
    (lib / ".mudroom/policy.yaml").write_text("verify: {command: 'false', when: always}\n")
    before = both(place)
    session, fork = staged(place, lib)
    landed = session.changes.apply(fork)
    assert landed.verified is not None and not landed.verified.passed
    assert both(place) == before
    assert session.vault.find(fork) is not None


def test_the_other_project_sends_its_user_to_the_first(place: Place, lib: Path) -> None:
    session, fork = staged(place, lib)
    there = session.root(session_tie(session, fork))
    for verb in (there.changes.apply, there.forks.discard):
        with pytest.raises(UsageError, match=f"is a part of the fork {fork} of") as refused:
            verb(fork)
        assert str(place.project) in refused.value.hint
    session.changes.apply(fork)
    with pytest.raises(UsageError, match="u1 is a part of u1 of"):
        there.changes.undo()
    session.changes.undo()


def session_tie(session: Session, fork: str) -> Tie:
    return ties_of(session.vault.fork(fork))[0]


def test_a_missing_part_is_damage(place: Place, lib: Path) -> None:
    session, fork = staged(place, lib)
    vault_of(session, lib).rename(place.root / "aside")
    with pytest.raises(MudroomError, match=f"the part of {fork} in {lib} is missing"):
        session.changes.apply(fork)
    assert not (place.project / "here").exists()
    session.forks.discard(fork)
    assert session.vault.find(fork) is None


def test_an_undo_without_a_part_undoes_none(place: Place, lib: Path) -> None:
    session, fork = staged(place, lib)
    session.changes.apply(fork)
    after = both(place)
    aside, there = place.root / "aside", vault_of(session, lib)
    there.rename(aside)
    with pytest.raises(MudroomError, match="a part of it is in"):
        session.changes.undo()
    aside.rename(there)
    (there / "applies/u1").rename(aside)
    with pytest.raises(UsageError, match="is not kept any more"):
        session.changes.undo()
    aside.rename(there / "applies/u1")
    assert both(place) == after
    assert not session.vault.has_unfinished()
    session.changes.undo()


def test_a_part_waits_for_the_vault_that_decides_it(place: Place, lib: Path) -> None:
    session, fork = staged(place, lib)
    there = session.root(session_tie(session, fork))
    session.changes.apply(fork)
    apply = ApplyDirectory(there.vault.path + b"/applies/u1")
    record = apply.load()
    apply.begin("apply")
    os.rename(apply.path + b"/plan.done", apply.path + b"/plan.tied")
    aside = os.fsencode(place.root / "aside")
    os.rename(session.vault.path, aside)
    with pytest.raises(MudroomError, match="u1 is a part of u1 in"):
        there.changes.recover()
    os.rename(aside, session.vault.path)
    there.changes.recover()
    assert apply.state() == "done"
    apply.write("tied", record._replace(joint=None))
    with pytest.raises(MudroomError, match="the plan of u1 is damaged: it is of no operation"):
        recover(apply)


def test_another_project_in_use_is_not_waited_for(place: Place, lib: Path) -> None:
    session, fork = staged(place, lib)
    there = session.root(session_tie(session, fork))
    in_use = pytest.raises(MudroomError, match=f"{lib} is in use: somebody")
    with Lock(there.vault.path + b"/lock", "somebody"), in_use:
        session.changes.apply(fork)
    assert not (place.project / "here").exists()
    session.changes.apply(fork)


def test_a_secret_of_the_first_project_in_a_command_is_not_written_down_for_the_other(place: Place, lib: Path) -> None:
    place.write(".env", "API_TOKEN=sesame-value-12345\n")
    session, _fork = staged(place, lib, b": sesame-value-12345; echo x >> ../lib/code")
    session.close()
    files = [path for path in vault_of(session, lib).rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [path for path in files if b"sesame-value-12345" in path.read_bytes()] == []


def test_no_part_expires_without_the_others(place: Place, lib: Path) -> None:
    session, fork = staged(place, lib)
    there = session.root(session_tie(session, fork))
    tick()
    assert [old_forks(vault, 0, session.forks.clock()) for vault in (session.vault, there.vault)] == [[], []]
    os.unlink(session.vault.fork(fork).path + b"/roots")
    assert [old_forks(vault, 0, session.forks.clock()) for vault in (session.vault, there.vault)] == [[fork], [fork]]


def test_forks_without_a_session_open_no_other_project(place: Place, lib: Path) -> None:
    session = place.session()
    forks = Forks(session.vault, Settings(), clock=session.forks.clock, new_id=session.forks.new_id)
    with pytest.raises(MudroomError, match=f"{lib} cannot be opened here"):
        forks.root(Tie(b"", os.fsencode(lib)))


def test_secrets_and_the_policy_of_the_other_project_are_its_own(place: Place, lib: Path) -> None:
    (lib / ".env").write_text("KEY=sesame-in-a-file\n")
    (lib / ".mudroom").mkdir()
    (lib / ".mudroom/policy.yaml").write_text("secrets: {mask: ['deep.txt']}\n")
    (lib / "deep.txt").write_text("sesame-too\n")
    session = place.session()
    session.machine.confinement.variables = {**os.environb, b"MUDROOM_TRUST_POLICY": b"1"}
    script = b"cat ../lib/.env ../lib/deep.txt; echo x > ../lib/.mudroom/policy.yaml; true"
    result = session.run([b"sh", b"-c", script], roots=[os.fsencode(lib)])
    assert result.stdout == b""
    assert b"Read-only" in result.stderr
    assert not result.has_changes


@pytest.mark.parametrize("where", ["project/sub", "."])
def test_a_root_apart_from_the_project_is_asked_for(place: Place, where: str) -> None:
    place.write("sub/file", "x")
    with pytest.raises(UsageError, match="lies in"):
        place.session().run([b"true"], roots=[os.fsencode(place.root / where)])


def test_level_0_has_no_second_project(place: Place, lib: Path) -> None:
    session = place.session(level=0)
    with pytest.raises(Unsupported, match="level 0"):
        session.run([b"true"], roots=[os.fsencode(lib)])
