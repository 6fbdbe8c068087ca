"""An undo gives the changes back to the fork that they came from, and a redo takes them out of it again."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from conftest import Place, tick
from mudroom.errors import UsageError
from mudroom.session import Session

TEXT = "".join(f"line {number}\n" for number in range(1, 21))
MANY = "for name in a b c d e; do echo new $name > $name; done; rm gone; mkdir -p made/in; echo x > made/in/x"
MANY += "; ln -s a link"


@pytest.fixture
def session(place: Place) -> Iterator[Session]:
    place.write("f", TEXT)
    place.write("a", "old a\n")
    place.write("b", "old b\n")
    place.write("gone", "still here\n")
    with place.session() as opened:
        yield opened


def run(session: Session, script: str, fork: str = "agent-1") -> None:
    result = session.run([b"sh", b"-c", script.encode()], fork=fork)
    assert result.exit_code == 0, result.stderr


def seen(session: Session, fork: str = "agent-1") -> dict[str, str]:
    return {os.fsdecode(change.path): change.verb for change in session.changes.of(fork).changes}


def landed(session: Session, *paths: bytes, fork: str = "agent-1") -> None:
    with session.alone("a test"):
        assert not session.changes.apply(fork, paths).conflicts


def undone(session: Session) -> tuple[bytes, ...]:
    with session.alone("a test"):
        applied = session.changes.undo()
    assert not applied.conflicts
    assert not applied.remarks, applied.remarks
    return applied.again


def redone(session: Session) -> tuple[bytes, ...]:
    with session.alone("a test"):
        applied = session.changes.redo()
    assert not applied.conflicts and not applied.remarks
    return applied.again


def diff(session: Session, fork: str = "agent-1") -> bytes:
    return b"".join(session.changes.diff(fork))


def test_the_fork_has_its_changes_again(session: Session, place: Place) -> None:
    run(session, MANY)
    before, shown = seen(session), diff(session)
    landed(session)
    assert not seen(session)
    assert len(undone(session)) == 8
    assert seen(session) == before
    assert diff(session) == shown
    assert (place.project / "gone").read_text() == "still here\n" and not (place.project / "made").exists()


def test_two_of_five_are_chosen_after_an_undo(session: Session, place: Place) -> None:
    run(session, MANY)
    landed(session)
    undone(session)
    landed(session, b"a", b"c")
    assert (place.project / "a").read_text() == "new a\n" and (place.project / "c").read_text() == "new c\n"
    assert (place.project / "b").read_text() == "old b\n" and (place.project / "gone").exists()
    assert "a" not in seen(session) and "b" in seen(session)


def test_a_redo_takes_them_out_again(session: Session, place: Place) -> None:
    run(session, MANY)
    landed(session)
    undone(session)
    assert len(redone(session)) == 8
    assert not seen(session)
    assert (place.project / "a").read_text() == "new a\n" and (place.project / "made/in/x").exists()
    undone(session)
    assert len(seen(session)) == 10


def test_a_command_in_the_fork_sees_them(session: Session) -> None:
    run(session, MANY)
    landed(session)
    undone(session)
    run(session, "grep -q 'new a' a && test ! -e gone && test -L link && test -f made/in/x")


@pytest.mark.parametrize("sealed", [False, True])
def test_part_of_a_fork(session: Session, place: Place, sealed: bool) -> None:
    run(session, MANY)
    if sealed:
        session.forks.checkpoint("agent-1", "here")
    before, shown = seen(session), diff(session)
    landed(session, b"a", b"gone", b"made")
    undone(session)
    assert seen(session) == before
    assert diff(session) == shown
    landed(session)
    assert not seen(session)
    assert (place.project / "a").read_text() == "new a\n" and not (place.project / "gone").exists()
    undone(session)
    assert seen(session) == before and (place.project / "gone").exists()


@pytest.mark.parametrize("sealed", [False, True])
def test_a_fork_that_moved_on_keeps_both_changes(session: Session, place: Place, sealed: bool) -> None:
    run(session, "sed -i 's/^line 3$/three/' f; echo new > n")
    if sealed:
        session.forks.checkpoint("agent-1", "here")
    landed(session)
    run(session, "sed -i 's/^line 15$/fifteen/' f; echo more >> n")
    assert seen(session) == {"f": "modified", "n": "modified"}
    undone(session)
    assert (place.project / "f").read_text() == TEXT and not (place.project / "n").exists()
    assert seen(session) == {"f": "modified", "n": "added"}
    assert b"+three" in diff(session) and b"+fifteen" in diff(session)
    landed(session)
    assert (place.project / "f").read_text() == TEXT.replace("line 3\n", "three\n").replace("line 15\n", "fifteen\n")
    assert (place.project / "n").read_text() == "new\nmore\n"


def test_a_redo_leaves_what_the_fork_changed_since(session: Session, place: Place) -> None:
    run(session, "sed -i 's/^line 3$/three/' f; echo new > n")
    landed(session)
    undone(session)
    run(session, "sed -i 's/^line 15$/fifteen/' f")
    assert redone(session) == (b"n",)
    assert seen(session) == {"f": "modified"}
    assert b"+fifteen" in diff(session) and b"three" not in diff(session).replace(b" three", b"")
    landed(session)
    assert (place.project / "f").read_text() == TEXT.replace("line 3\n", "three\n").replace("line 15\n", "fifteen\n")


def test_edits_made_since_stay_apart(session: Session, place: Place) -> None:
    """The undo keeps the user's edit; the fork's change is the applied one alone."""
    run(session, "sed -i 's/^line 3$/three/' f")
    landed(session)
    tick()
    place.write("f", TEXT.replace("line 3\n", "three\n").replace("line 15\n", "mine\n"))
    with session.alone("a test"):
        assert session.changes.undo().again == (b"f",)
    assert (place.project / "f").read_text() == TEXT.replace("line 15\n", "mine\n")
    shown = diff(session)
    assert b"+three" in shown and b"+mine" not in shown
    landed(session)
    assert (place.project / "f").read_text() == TEXT.replace("line 3\n", "three\n").replace("line 15\n", "mine\n")


def test_a_part_of_a_file(session: Session, place: Place) -> None:
    from mudroom.core.merge.merge import PartialChoice

    run(session, "sed -i 's/^line 3$/three/; s/^line 15$/fifteen/' f")
    shown = diff(session)
    part = PartialChoice(TEXT.replace("line 3\n", "three\n").encode(), 0o644)
    with session.alone("a test"):
        session.changes.apply("agent-1", [b"f"], parts={b"f": part}, exact=True)
    assert b"+fifteen" in diff(session) and b"+three" not in diff(session)
    undone(session)
    assert diff(session) == shown
    landed(session)
    assert (place.project / "f").read_text() == TEXT.replace("line 3\n", "three\n").replace("line 15\n", "fifteen\n")


def test_a_frozen_fork_and_a_copy(session: Session, place: Place) -> None:
    session.forks.new("agent-1", snapshot=True)
    run(session, MANY)
    before = seen(session)
    landed(session)
    undone(session)
    assert seen(session) == before
    landed(session)
    assert (place.project / "c").exists()


def test_another_fork_of_that_name_gets_nothing(session: Session) -> None:
    run(session, MANY)
    landed(session)
    session.forks.discard("agent-1")
    tick()
    run(session, "true")
    assert undone(session) == ()
    assert not seen(session)


def test_a_renamed_fork_gets_them(session: Session) -> None:
    run(session, MANY)
    landed(session)
    session.forks.rename("agent-1", "agent-2")
    with session.alone("a test"):
        applied = session.changes.undo()
    assert (len(applied.again), applied.holder) == (8, "agent-2")


def test_an_undo_that_refused_nothing(session: Session) -> None:
    run(session, MANY)
    landed(session)
    undone(session)
    assert session.changes.refused_undo("u1") == session.changes.refused_undo("u9") == ""
    with pytest.raises(UsageError, match="the undo of u1 left nothing to decide"):
        session.changes.refused("u1")


def test_a_secret_is_not_given_back(session: Session, place: Place) -> None:
    place.write(".env", "KEY=1\n")
    from mudroom.session.project_session import with_shown

    shown = with_shown(session.actor.settings, [".env"])
    with place.session(settings=shown) as other:
        run(other, "echo KEY=2 > .env; echo new > n")
        with other.alone("a test"):
            other.changes.apply("agent-1", [b".env", b"n"])
    with session.alone("a test"):
        applied = session.changes.undo()
    assert (place.project / ".env").read_text() == "KEY=1\n"
    assert applied.again == (b"n",)
    assert [(one.path, one.text) for one in applied.remarks] == [
        (b".env", "is a secret, and is not in agent-1 again; mudroom redo u1 brings it")
    ]
    run(session, "! grep -q KEY .env")


def test_a_fork_in_use_does_not_stop_the_undo(session: Session, place: Place) -> None:
    run(session, MANY)
    landed(session)
    with session.vault.fork("agent-1").lock("somebody"), place.session() as other, other.alone("a test"):
        applied = other.changes.undo()
    assert (place.project / "a").read_text() == "old a\n"
    assert applied.again == ()
    assert [one.path for one in applied.remarks] == [b"agent-1"]
    assert "mudroom redo u1 applies them again" in applied.remarks[0].text


def test_an_interrupted_undo_gives_them_back_later(
    session: Session, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mudroom.vault.apply import turn

    run(session, MANY)
    before = seen(session)
    landed(session)

    def killed(*_arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(turn, "give_back", killed)
        with pytest.raises(KeyboardInterrupt), session.alone("a test"):
            session.changes.undo()
    assert not seen(session)
    with session.alone("the next"):
        pass
    assert seen(session) == before
