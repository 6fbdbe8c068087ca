"""Decisions about conflicts, beside what else can be chosen of a fork."""

from __future__ import annotations

import os

import pytest

from conftest import Place, tick
from mudroom.core.merge.merge import PartialChoice
from mudroom.core.merge.merge_tree import ConflictAnswer
from mudroom.core.merge.resolution_words import Take
from mudroom.errors import ForkMoved, MudroomError, SideMoved, UsageError
from mudroom.session import Session
from mudroom.vault.apply.conflict import ForkConflict
from whole_text import whole

TEXT = "".join(f"line {number}\n" for number in range(1, 41))
OURS = TEXT.replace("line 5\n", "ours\n")
THEIRS = TEXT.replace("line 5\n", "theirs\n").replace("line 30\n", "more\n")
PART = {b"f": PartialChoice(TEXT.replace("line 5\n", "theirs\n").encode(), 0o644)}
"""One of its two hunks."""
FORK = "agent-1"


@pytest.fixture
def session(place: Place) -> Session:
    """A fork and a project that have both changed ``f``, in the same line."""
    (place.project / "f").parent.mkdir(exist_ok=True)
    (place.project / "f").write_text(TEXT)
    (place.project / "f").chmod(0o644)
    session = place.session()
    session.forks.new(FORK)
    script = b"sed -i 's/^line 5$/theirs/; s/^line 30$/more/' f; echo new > new"
    assert session.run([b"sh", b"-c", script], fork=FORK).exit_code == 0
    tick()
    (place.project / "f").write_text(OURS)
    return session


def conflict(session: Session) -> ForkConflict:
    (found,) = session.changes.conflicts(FORK)
    return found


def test_a_file_cannot_take_the_place_of_a_directory(place: Place, session: Session) -> None:
    (place.project / "f").unlink()
    (place.project / "f").mkdir()
    (place.project / "f/mine").write_text("mine\n")
    told = "f is a directory on one side and none on the other"
    hint = "move it out of the way in the project, then apply again"
    with pytest.raises(UsageError, match=whole(f"{told} ({hint})")):
        session.changes.decide(FORK, conflict(session), "theirs")
    (place.project / "f").rename(place.root / "away")
    session.changes.decide(FORK, conflict(session), "theirs")
    assert session.changes.apply(FORK).conflicts == ()
    assert "theirs" in (place.project / "f").read_text()


def test_a_side_that_cannot_be_read(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root reads everything, so the error is raised here."""

    def refuse(*_words: object) -> str:
        raise PermissionError(13, "Permission denied")

    found = conflict(session)
    monkeypatch.setattr("mudroom.vault.apply.conflict._require_unmoved", lambda *_words: None)
    monkeypatch.setattr("mudroom.vault.apply.conflict.fingerprint", refuse)
    with pytest.raises(UsageError, match=whole("f cannot be read: permission denied (chmod u+r f)")):
        session.changes.decide(FORK, found, "ours")


@pytest.mark.parametrize("take", ["ours", "theirs", "delete"])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_decision_brings_no_more_than_the_part_that_is_wanted(
    place: Place, session: Session, take: Take, sealed: bool
) -> None:
    if sealed:
        session.forks.checkpoint(FORK, "one")
    session.changes.decide(FORK, conflict(session), take)
    with session.alone("a test"):
        landed = session.changes.apply(FORK, [b"f", b"new"], parts=PART, exact=True)
    assert [one.path for one in landed.conflicts] == [b"f"]
    assert (place.project / "f").read_text() == OURS
    assert (place.project / "new").read_text() == "new\n", "the rest lands"
    assert session.forks.files(FORK).read(b"f").decode() == THEIRS, "the fork stays whole"
    assert conflict(session).take == take, "and so does the decision"
    with session.alone("a test"):
        landed = session.changes.apply(FORK)
    assert not landed.conflicts and landed.remaining == 0
    expected = {"ours": OURS, "theirs": THEIRS, "delete": None}[take]
    assert ((place.project / "f").read_text() if expected is not None else None) == expected


def test_what_is_missing_from_one_fork_does_not_hold_up_the_vault(
    place: Place, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.project / "f").write_text(TEXT)

    def killed(*_all: object, **_more: object) -> int:
        raise MudroomError("killed")

    with monkeypatch.context() as patch, session.alone("a test"):
        patch.setattr("mudroom.vault.apply.landing.keep_remainder", killed)
        with pytest.raises(MudroomError, match="killed"):
            session.changes.apply(FORK, [b"f"], parts=PART, exact=True)
    os.unlink(session.vault.fork(FORK).layered[0] + b"/f")
    with session.alone("a test") as recovered:
        told = [(one.fork, [remark.path for remark in one.applied.remarks]) for one in recovered]
        assert told == [(FORK, [b"f"])]
        landed = session.changes.apply(FORK)
    assert not landed.conflicts
    assert (place.project / "new").read_text() == "new\n"
    assert (place.project / "f").read_bytes() == PART[b"f"].content


def test_the_fork_keeps_a_file_of_which_a_part_was_wanted(
    place: Place, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever answers: what is left of it has to be somewhere."""
    monkeypatch.setattr(
        "mudroom.vault.apply.landing.answers", lambda _fork, _staged: lambda *_asked: ConflictAnswer("theirs")
    )
    with session.alone("a test"):
        assert session.changes.apply(FORK, [b"f"], parts=PART, exact=True).applied.written == 1
    assert (place.project / "f").read_text() == THEIRS
    assert session.forks.files(FORK).read(b"f").decode() == THEIRS


def test_what_was_looked_at_is_another_after_a_part_has_landed(place: Place, session: Session) -> None:
    (place.project / "f").write_text(TEXT)
    seen = session.changes.fingerprint(FORK)
    assert session.changes.fingerprint(FORK) == seen
    with session.alone("a test"):
        session.changes.apply(FORK, [b"f"], parts=PART, exact=True, reviewed=seen)
        assert session.changes.fingerprint(FORK) != seen
        with pytest.raises(ForkMoved):
            session.changes.apply(FORK, [b"f"], parts=PART, exact=True, reviewed=seen)


RESULTS: dict[Take, str | None] = {"ours": OURS, "theirs": THEIRS, "content": "merged\n", "delete": None}


@pytest.mark.parametrize("take", RESULTS)
def test_what_was_decided_is_told(place: Place, session: Session, take: Take) -> None:
    assert conflict(session).result is None
    session.changes.decide(FORK, conflict(session), take, b"merged\n" if take == "content" else None)
    expected = RESULTS[take]
    assert conflict(session).result == (expected.encode() if expected is not None else None)
    tick()
    (place.project / "f").write_text(OURS + "more\n")
    assert conflict(session).result is None, "it was about other versions"


@pytest.mark.parametrize("side", ["ours", "theirs"])
@pytest.mark.parametrize("take", ["ours", "theirs", "content"])
def test_a_side_that_moved_while_it_was_decided_about(place: Place, session: Session, side: str, take: Take) -> None:
    looked_at = conflict(session)
    tick()
    if side == "ours":
        (place.project / "f").write_text(OURS.replace("line 20\n", "saved in an editor\n"))
    else:
        assert session.run([b"sh", b"-c", b"echo later >> f"], fork=FORK).exit_code == 0
    with pytest.raises(SideMoved, match="one side of f has changed since you looked; nothing was decided"):
        session.changes.decide(FORK, looked_at, take, b"merged\n" if take == "content" else None)
    assert (conflict(session).decided, conflict(session).take) == (False, "")
    session.changes.decide(FORK, conflict(session), take, b"merged\n" if take == "content" else None)
    assert conflict(session).decided


def test_a_side_that_was_removed_while_it_was_decided_about(place: Place, session: Session) -> None:
    looked_at = conflict(session)
    (place.project / "f").unlink()
    with pytest.raises(SideMoved):
        session.changes.decide(FORK, looked_at, "theirs")


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("others", [False, True])
def test_what_is_dropped_for_the_projects_own_comes_back(
    place: Place, session: Session, sealed: bool, others: bool
) -> None:
    if sealed:
        session.forks.checkpoint(FORK, "one")
    session.changes.decide(FORK, conflict(session), "ours")
    with session.alone("a test"):
        landed = session.changes.apply(FORK, [] if others else [b"f"])
    assert (landed.kept, landed.merged, landed.remaining) == ((b"f",), (), 0 if others else 1)
    assert landed.applied.name == "u1" and landed.applied.written == int(others)
    assert [one.path for one in session.changes.of(FORK).changes] == ([] if others else [b"new"])
    assert '"kept":1' in next(session.vault.journal.newest()).data.replace(" ", "")
    for _time in range(2):
        with session.alone("a test"):
            undone = session.changes.undo()
        assert (undone.name, undone.conflicts, undone.remarks) == ("u1", (), ())
        assert sorted(one.path for one in session.changes.of(FORK).changes) == [b"f", b"new"]
        assert session.forks.files(FORK).read(b"f").decode() == THEIRS
        assert not (place.project / "new").exists() and (place.project / "f").read_text() == OURS
        assert conflict(session).take == "ours", "the decision, too"
        with session.alone("a test"):
            assert session.changes.redo().name == "u1"
        assert [one.path for one in session.changes.of(FORK).changes] == ([] if others else [b"new"])
        assert (place.project / "new").exists() is others
    with session.alone("a test"):
        session.changes.undo()
    assert session.run([b"grep", b"-c", b"theirs", b"f"], fork=FORK).exit_code == 0
    assert sorted(one.path for one in session.changes.of(FORK).changes) == [b"f", b"new"], "found anew, too"
    session.changes.forget_decision(FORK, b"f")
    session.changes.decide(FORK, conflict(session), "theirs")
    with session.alone("a test"):
        assert not session.changes.apply(FORK).conflicts
    assert (place.project / "f").read_text() == THEIRS


def test_records_that_are_gone_when_they_are_needed(session: Session) -> None:
    """Of what an apply has dropped: somebody has removed them from the vault. As an error, it stopped every apply."""
    session.changes.decide(FORK, conflict(session), "ours")
    with session.alone("a test"):
        session.changes.apply(FORK)
    (apply,) = session.vault.applies()
    os.unlink(apply + b"/fork/record")
    with session.alone("a test"):
        remarks = session.changes.undo().remarks
    told = "was not restored: what the apply kept of its records is missing"
    assert [(remark.path, remark.text) for remark in remarks] == [(b"f", told)]
    assert session.run([b"touch", b"b"], fork="another").exit_code == 0
    with session.alone("a test"):
        assert session.changes.apply("another").applied.written == 1


def test_a_fork_that_has_gone_on_loses_nothing_to_an_undo(place: Place, session: Session) -> None:
    session.changes.decide(FORK, conflict(session), "ours")
    with session.alone("a test"):
        session.changes.apply(FORK)
    assert session.run([b"sh", b"-c", b"echo later > later"], fork=FORK).exit_code == 0
    with session.alone("a test"):
        (remark,) = session.changes.undo().remarks
    assert remark.path == FORK.encode() and remark.text.endswith("checkpoint rollback-1")
    assert sorted(one.path for one in session.changes.of(FORK).changes) == [b"f", b"new"]
    session.forks.rollback(FORK, "rollback-1")
    assert session.forks.files(FORK).read(b"later") == b"later\n"
    with session.alone("a test"):
        (remark,) = session.changes.redo().remarks
    assert remark.path == b"f" and "has changed since" in remark.text
    session.forks.discard(FORK)
    with session.alone("a test"):
        (remark,) = session.changes.undo().remarks
    assert remark.path == b"f" and "is gone" in remark.text


def test_a_fork_that_nobody_named_stays_as_long_as_it_alone_has_what_was_dropped(place: Place) -> None:
    (place.project / "f").write_text(TEXT)
    session = place.session()
    name = session.run([b"sed", b"-i", b"s/^line 5$/theirs/", b"f"]).fork
    tick()
    (place.project / "f").write_text(OURS)
    (found,) = session.changes.conflicts(name)
    session.changes.decide(name, found, "ours")
    with session.alone("a test"):
        assert session.changes.apply(name).kept == (b"f",)
        assert not session.changes.undo().remarks
    assert [one.path for one in session.changes.of(name).changes] == [b"f"]
