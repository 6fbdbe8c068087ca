"""What is wrong with a vault is named, with the fork it touches; the others work on."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from conftest import Place, tick
from mudroom.errors import MudroomError
from mudroom.session import Session
from mudroom.stage.layers.layer import remove_tree
from mudroom.vault.apply import plan_state, transaction
from mudroom.vault.apply.transaction import ApplyDirectory
from mudroom.vault.retention.check import VaultProblem, check


@pytest.fixture
def session(place: Place) -> Session:
    """A fork of every kind, an apply."""
    place.write("a", "a\n")
    place.write("b", "b\n")
    session = place.session()
    session.run([b"sh", b"-c", b"echo 1 >> a; rm b"])
    session.changes.apply(session.vault.forks()[0].name)
    session.run([b"sh", b"-c", b"echo 2 >> a"], fork="good")
    session.run([b"sh", b"-c", b"echo 3 >> a"], fork="bad")
    session.forks.checkpoint("bad", "point")
    session.run([b"sh", b"-c", b"echo 4 >> a"], fork="bad")
    session.forks.new("frozen", snapshot=True)
    assert check(session.vault) == []
    return session


def place_of(session: Session, name: str) -> Path:
    return Path(os.fsdecode(session.vault.fork(name).path))


def layer_of(session: Session, name: str) -> Path:
    return Path(os.fsdecode(session.vault.layer(session.vault.fork(name).state.layers[0])))


def only(session: Session) -> VaultProblem:
    (problem,) = check(session.vault)
    return problem


def good_works(session: Session) -> None:
    session.run([b"sh", b"-c", b"echo 5 >> a"], fork="good")
    assert session.changes.apply("good").conflicts == ()


def test_a_state(session: Session) -> None:
    (place_of(session, "bad") / "state").write_text("mudroom-fork 9\n")
    assert only(session).text == "the state of the fork bad has format 9, this mudroom knows 2"
    (place_of(session, "bad") / "state").write_bytes(b"\xff\x00")
    assert only(session).subject == "fork bad"
    (place_of(session, "bad") / "state").unlink()
    assert "is missing" in only(session).text
    good_works(session)


@pytest.mark.parametrize("name", ["record", "landed"])
def test_a_record(session: Session, name: str) -> None:
    (place_of(session, "bad") / name).write_bytes(b"\x91")
    assert only(session).subject == "fork bad"
    assert "is damaged" in only(session).text
    good_works(session)


def test_what_is_running(session: Session) -> None:
    (place_of(session, "bad") / "running").write_text("soon")
    assert only(session).subject == "fork bad"


def test_a_layer(session: Session) -> None:
    remove_tree(os.fsencode(layer_of(session, "bad")))
    problem = only(session)
    assert problem.subject == "fork bad"
    assert "is missing" in problem.text
    good_works(session)


def test_a_layer_that_only_a_checkpoint_needs(session: Session) -> None:
    session.forks.rollback("bad", "point")
    (point,) = [one for one in session.vault.fork("bad").state.checkpoints if one.automatic]
    remove_tree(session.vault.layer(point.layers[-1]))
    assert "(only of the checkpoints rollback-1)" in only(session).text


def test_a_fork_of_which_a_part_has_landed_is_whole(session: Session) -> None:
    session.run([b"sh", b"-c", b"mkdir -p d/e; echo n > d/e/n; echo m > m; rm a"], fork="good")
    session.changes.apply("good", [b"d"])
    assert check(session.vault) == []
    session.changes.undo()
    assert check(session.vault) == []


def test_originals(session: Session) -> None:
    place = layer_of(session, "bad") / "originals"
    (place / "pack").write_bytes(b"")
    assert "is cut off" in only(session).text
    (place / "pack").unlink()
    assert "No such file" in only(session).text
    (place / "index").write_bytes((3).to_bytes(8, "little") + b"\xc1\xc1\xc1")
    assert "is damaged" in only(session).text
    good_works(session)


@pytest.mark.parametrize(("size", "name"), [(2_000, "pack"), (8_000_000, "[0-9]*")])
def test_a_byte_of_an_original(place: Place, session: Session, size: int, name: str) -> None:
    """Edits of both sides are no longer merged with what may have been: a conflict, and the user's file stays."""
    lines = [b"%d\n" % number for number in range(size // 6)]
    (place.project / "large").write_bytes(b"".join(lines))
    tick()
    session.run([b"sed", b"-i", b"1s/0/first/", b"large"], fork="bad")
    layer = Path(os.fsdecode(session.vault.layer(session.vault.fork("bad").state.upper)))
    (stored,) = (layer / "originals").glob(name)
    content = bytearray(stored.read_bytes())
    content[content.index(b"\n200\n") + 1] ^= 1
    assert check(session.vault) == []
    stored.write_bytes(content)
    problem = only(session)
    assert problem.subject == "fork bad"
    assert "the original of large in " in problem.text and problem.text.endswith(" is damaged"), problem
    good_works(session)
    if name == "pack":
        lines[-1] = b"last\n"
        (place.project / "large").write_bytes(b"".join(lines))
        applied = session.changes.apply("bad", [b"large"])
        assert [conflict.path for conflict in applied.conflicts] == [b"large"]
        assert (place.project / "large").read_bytes() == b"".join(lines)


def test_rows_without_digests_are_read(session: Session) -> None:
    """Of a vault that an older mudroom wrote."""
    import msgspec

    place = layer_of(session, "bad") / "originals"
    data = (place / "index").read_bytes()
    rows = msgspec.msgpack.decode(data[8:])
    assert [len(original) for _path, original in rows] == [5] * len(rows)
    older = msgspec.msgpack.encode([(path, original[:4]) for path, original in rows])
    (place / "index").write_bytes(len(older).to_bytes(8, "little") + older)
    assert check(session.vault) == []
    session.changes.apply("bad")


@pytest.mark.parametrize("heal", ["rollback", "discard"])
def test_a_layer_that_has_lost_its_files(session: Session, heal: str) -> None:
    """Each use of the fork is refused in one line; other forks work on."""
    remove_tree(session.vault.fork("bad").upper)
    problem = only(session)
    assert problem.subject == "fork bad"
    assert problem.text.startswith("the files of the fork bad are missing: its layer ")
    for attempt in (
        lambda: session.changes.apply("bad"),
        lambda: session.changes.review("bad"),
        lambda: session.run([b"true"], fork="bad"),
    ):
        with pytest.raises(MudroomError, match="the files of the fork bad are missing") as refused:
            attempt()
        assert refused.value.hint.endswith("mudroom discard bad removes the rest")
    assert check(session.vault) == [problem]
    good_works(session)
    if heal == "rollback":
        session.forks.rollback("bad", "point")
        assert [change.path for change in session.changes.review("bad").changeset.changes] == [b"a"]
    else:
        session.forks.discard("bad")
    assert check(session.vault) == []


def test_an_apply_of_a_fork_without_files_is_taken_back(session: Session) -> None:
    """As an older mudroom left it: a plan that names no directory of the fork."""
    from mudroom.core.merge.operations import Op
    from mudroom.vault.apply.transaction import ApplyDirectory
    from mudroom.vault.record import FORMAT, ApplyRecord

    place = ApplyDirectory(session.vault.new_apply())
    slots = place.path + b"/slots"
    os.mkdir(slots)
    new = session.changes.of("bad").changes[0].staged
    op = Op("swap", b"a", 1, None, new)
    place.begin("apply")
    place.write("prepare", ApplyRecord(FORMAT, place.name, "bad", 0, session.vault.project, slots, (), (op,), {}))
    assert session.vault.has_unfinished()
    with session.alone("a test") as recovered:
        assert [(recovery.name, recovery.outcome) for recovery in recovered] == [(place.name, "deferred")]
    assert check(session.vault) == []
    good_works(session)


def test_a_snapshot(session: Session) -> None:
    base = Path(os.fsdecode(session.vault.base(session.vault.fork("frozen").state.base)))
    (base / "manifest").write_bytes(b"\x81")
    assert only(session) == VaultProblem(
        "fork frozen", f"the snapshot {base} is damaged: Input data was truncated", "forks of it cannot be used"
    )
    good_works(session)


def test_an_apply(session: Session) -> None:
    apply = Path(os.fsdecode(session.vault.applies()[0]))
    next((apply / "slots").iterdir()).unlink()
    assert "cannot be undone completely" in only(session).text
    (apply / "plan.done").write_bytes(b"\x93")
    assert only(session).subject == "apply u1"


def test_the_journal(session: Session) -> None:
    path = os.fsdecode(session.vault.path) + "/journal.db"
    with sqlite3.connect(path) as database:
        database.execute("DROP TRIGGER event_is_never_changed")
        database.execute("UPDATE event SET fork = 'another' WHERE number = 2")
    database.close()
    assert only(session) == VaultProblem(
        "journal", "event 2 was edited, or event 1 was, with its digest", "mudroom log verify"
    )
    session.vault.close()
    for ending in ("", "-wal", "-shm"):
        Path(path + ending).unlink(missing_ok=True)
    Path(path).write_bytes(b"not a database" * 100)
    assert "cannot be used" in only(session).text
    with pytest.raises(MudroomError, match="journal"):
        session.vault.journal.verify()


def test_the_vault_itself(session: Session) -> None:
    vault = Path(os.fsdecode(session.vault.path))
    (vault / "cache").rename(vault / "elsewhere")
    assert "cache is missing" in only(session).text
    (vault / "elsewhere").rename(vault / "cache")
    session.vault.project = b"/another"
    assert any("its directory is that of another path" in problem.text for problem in check(session.vault))
    (vault / "format").write_text("7\n")
    assert only(session).text == "has format 7, this mudroom knows 2"


def test_a_vault_that_was_not_read_once_is_not_moved_aside(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_words: object, **_options: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("mudroom.vault.retention.usage.open", failing, raising=False)
    problem = only(session)
    assert (problem.text, problem.hint) == (
        "cannot be read: Input/output error",
        "try again; dmesg may say what is wrong with the disk",
    )


def test_a_fork_that_is_just_being_made_is_no_damage(session: Session) -> None:
    (Path(os.fsdecode(session.vault.path)) / "forks/new").mkdir()
    assert "being made" in only(session).text


def test_an_apply_that_is_removed_while_it_is_looked_at(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the garbage collection of another process, between the question for its state and its plan."""
    place = ApplyDirectory(session.vault.applies()[0])
    real, asked = plan_state.state_of, list[bytes]()

    def state(directory: bytes) -> Any:
        asked.append(directory)
        if len(asked) == 2:
            session.vault.throw_away(place.path)
        return real(directory)

    monkeypatch.setattr(transaction, "state_of", state)
    assert only(session) == VaultProblem("apply u1", "the apply u1 was removed meanwhile", "mudroom log shows it")
    assert check(session.vault) == []
