"""A record or a layer that a crash of the machine has taken: absence is damage, never emptiness."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from conftest import Place
from mudroom.core.clock import CommandStart
from mudroom.core.retention import RetentionLimits
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError
from mudroom.session.upkeep import problems
from mudroom.vault.forks.crash import LOST
from mudroom.vault.forks.fork_summary import ForkSummaries
from mudroom.vault.retention.prune import collect_garbage
from mudroom.vault.store import store
from mudroom.vault.store.fork import Fork

ONE, TWO = [b"sh", b"-c", b"echo 1 > one; echo more >> edited"], [b"sh", b"-c", b"echo 2 > two"]


def filled(place: Place) -> None:
    (place.project / "edited").write_text("edited\n")
    with place.session() as session:
        session.run(ONE, fork="f")


def with_checkpoint(place: Place) -> None:
    filled(place)
    with place.session() as session:
        session.forks.checkpoint("f", "point")
        session.run(TWO, fork="f")


def record_of(place: Place) -> Path:
    with place.session() as session:
        return Path(os.fsdecode(session.vault.fork("f").record_path))


def sealed(place: Place) -> Path:
    with place.session() as session:
        fork = session.vault.fork("f")
        return Path(os.fsdecode(fork.layer(fork.state.layers[-1])))


def changed(place: Place) -> list[bytes]:
    with place.session() as session:
        return [change.path for change in session.changes.of("f").changes]


def empty(path: Path) -> None:
    path.unlink()
    path.touch()


@pytest.mark.parametrize("lose", [Path.unlink, empty])
def test_a_record_that_is_lost_is_collected_again(place: Place, lose: object) -> None:
    filled(place)
    lose(record_of(place))  # type: ignore[operator]
    assert changed(place) == [b"edited", b"one"]
    with place.session() as session:
        assert session.changes.apply("f").conflicts == ()
    assert (place.project / "edited").read_text() == "edited\nmore\n"


@pytest.mark.parametrize("lose", [Path.unlink, empty])
def test_a_record_above_a_checkpoint_that_is_lost_is_collected_again(place: Place, lose: object) -> None:
    with_checkpoint(place)
    lose(record_of(place))  # type: ignore[operator]
    with place.session() as session:
        assert any("its record is lost" in problem.text for problem in problems(session))
    assert changed(place) == [b"edited", b"one", b"two"]
    with place.session() as session:
        assert problems(session) == []


@pytest.mark.parametrize("lose", [Path.unlink, empty])
def test_a_rollback_to_a_layer_without_its_record_keeps_the_files(place: Place, lose: object) -> None:
    with_checkpoint(place)
    lose(sealed(place) / "record")  # type: ignore[operator]
    with place.session() as session:
        assert any("has lost its record" in problem.text for problem in problems(session))
        session.forks.rollback("f", "point")
    assert changed(place) == [b"edited", b"one"]
    with place.session() as session:
        session.forks.new("child", parent="f", at="point")
        assert [change.path for change in session.changes.of("child").changes] == [b"edited", b"one"]


def test_a_layer_that_is_gone_is_damage(place: Place) -> None:
    with_checkpoint(place)
    with place.session() as session:
        session.forks.checkpoint("f", "later")
        session.run([b"sh", b"-c", b"echo 3 > three"], fork="f")
    layer = sealed(place)
    layer.rename(layer.with_name("lost"))
    with place.session() as session:
        for look in (session.changes.of, session.changes.apply, session.changes.review):
            with pytest.raises(MudroomError, match="files of the fork f are missing") as caught:
                look("f")
            assert caught.value.hint == "mudroom rollback --fork f point brings it back to then"
        summary = ForkSummaries().all(session.vault)[0]
        assert summary.state == "damaged"
        assert any("is missing" in problem.text for problem in problems(session))
        session.forks.rollback("f", "point")
    assert changed(place) == [b"edited", b"one"]


def booted() -> int:
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def cut(place: Place, name: str, size: int) -> None:
    """As a crash of the machine leaves a file that was not written back; the record is of an earlier boot."""
    with place.session() as session:
        fork = session.vault.fork("f")
        os.truncate(fork.upper + b"/" + name.encode(), size)
        os.utime(fork.record_path, ns=(booted() - 10**9,) * 2)


@pytest.mark.parametrize("runs", [False, True])
def test_a_file_that_a_crash_has_cut_off_does_not_land_unless_it_is_named(place: Place, runs: bool) -> None:
    """Also if a command runs in the fork before anybody looks."""
    filled(place)
    cut(place, "edited", 0)
    with place.session() as session:
        if runs:
            session.run(TWO, fork="f")
        remarks = {remark.path: remark.text for remark in session.changes.of("f").remarks}
        assert remarks[b"edited"].startswith("was cut off by a crash of the machine (0 of 12 bytes are left)")
        session.changes.review("f")
        session.changes.apply("f")
    assert (place.project / "edited").read_text() == "edited\n"
    assert (place.project / "one").read_text() == "1\n"
    with place.session() as session:
        session.changes.apply("f", [b"edited"])
    assert (place.project / "edited").read_text() == ""


def test_a_file_that_is_written_again_is_not_lost(place: Place) -> None:
    filled(place)
    cut(place, "edited", 0)
    with place.session() as session:
        session.run([b"sh", b"-c", b"echo again > edited"], fork="f")
        assert session.changes.of("f").remarks == ()
        session.changes.apply("f")
    assert (place.project / "edited").read_text() == "again\n"


def test_an_empty_file_of_a_command_that_a_crash_cut_off_does_not_land(place: Place) -> None:
    filled(place)
    with place.session() as session:
        fork = session.vault.fork("f")
        os.truncate(fork.upper + b"/one", 0)
        os.unlink(fork.record_path)
        begun = booted() - 60 * 10**9
        fork.begin(CommandStart(begun, begun - 3600 * 10**9))
        remarks = {remark.path: remark.text for remark in session.changes.of("f").remarks}
        assert remarks[b"one"].startswith("is empty after a crash of the machine that cut its command off")
        session.changes.apply("f")
    assert not (place.project / "one").exists()


def test_a_damaged_list_of_losses_is_no_empty_one(place: Place) -> None:
    filled(place)
    cut(place, "edited", 0)
    with place.session() as session:
        session.changes.of("f")
        fork = session.vault.fork("f")
        Path(os.fsdecode(fork.path + LOST)).write_bytes(b"\x91")
        with pytest.raises(MudroomError, match="lost is damaged"):
            session.run(TWO, fork="f")


def remarks_of(place: Place) -> dict[bytes, str]:
    with place.session() as session:
        return {remark.path: remark.text for remark in session.changes.of("f").remarks}


def age(place: Place) -> None:
    os.utime(record_of(place), ns=(booted() - 10**9,) * 2)


def test_a_file_whose_name_a_crash_has_taken_is_told(place: Place) -> None:
    with_checkpoint(place)
    with place.session() as session:
        os.unlink(session.vault.fork("f").upper + b"/two")
    age(place)
    assert remarks_of(place)[b"two"].startswith("was taken by a crash of the machine")
    assert remarks_of(place)[b"two"].endswith("; mudroom rollback goes back to a checkpoint")
    assert changed(place) == [b"edited", b"one"]
    with place.session() as session:
        session.forks.rollback("f", "point")
    assert remarks_of(place) == {}


def test_a_removal_that_a_crash_has_taken_is_told(place: Place) -> None:
    place.write("gone", "gone")
    place.write("d/a", "a")
    with place.session() as session:
        session.run([b"sh", b"-c", b"rm gone; rm -r d; mkdir d; echo new > d/b"], fork="f")
    age(place)
    assert remarks_of(place) == {}, "nothing is lost"
    with place.session() as session:
        fork = session.vault.fork("f")
        os.unlink(fork.upper + b"/gone")
        os.unlink(fork.path + b"/examined")
    age(place)
    assert list(remarks_of(place)) == [b"gone"]
    assert remarks_of(place)[b"gone"].startswith("was removed by the command, and is there again after a crash")


def test_a_command_that_a_crash_has_cut_off_is_told_even_if_all_is_lost(place: Place) -> None:
    filled(place)
    with place.session() as session:
        fork = session.vault.fork("f")
        os.unlink(fork.upper + b"/one")
        os.unlink(fork.upper + b"/edited")
        os.unlink(fork.record_path)
        begun = booted() - 60 * 10**9
        fork.begin(CommandStart(begun, begun - 3600 * 10**9))
    assert remarks_of(place)[b""].startswith("a crash of the machine cut a command of this fork off")


def test_a_fork_that_a_crash_has_left_without_its_state_frees_its_name(place: Place) -> None:
    filled(place)
    with place.session() as session:
        fork = session.vault.fork("f")
    empty(Path(os.fsdecode(fork.path + b"/state")))
    empty(Path(os.fsdecode(fork.record_path)))
    with place.session() as session:
        assert session.vault.forks() == []
        assert problems(session) == []
        with pytest.raises(MudroomError) as caught:
            session.vault.fork("f")
        assert (
            caught.value.hint == "it was new when the machine crashed, and nothing of it was on disk: its name is free"
        )
        session.run(TWO, fork="f")
    assert changed(place) == [b"two"]


def test_a_fork_of_a_fork_that_a_crash_has_left_without_its_state_frees_its_name(place: Place) -> None:
    """Its record is a second name of its parent's, and so on disk."""
    filled(place)
    with place.session() as session:
        empty(Path(os.fsdecode(session.forks.new("child", parent="f").path + b"/state")))
    with place.session() as session:
        assert [fork.name for fork in session.vault.forks()] == ["f"]
        assert problems(session) == []
        session.forks.new("child", parent="f")
        assert [change.path for change in session.changes.of("child").changes] == [b"edited", b"one"]


def test_a_fork_that_a_command_has_run_in_keeps_its_name_without_its_state(place: Place) -> None:
    filled(place)
    with place.session() as session:
        session.forks.new("child", parent="f")
        session.run(TWO, fork="child")
        empty(Path(os.fsdecode(session.vault.fork("child").path + b"/state")))
    with place.session() as session:
        assert [fork.name for fork in session.vault.forks()] == ["f", "child"]
        assert any("state of the fork child" in problem.text for problem in problems(session))


def test_gc_removes_a_fork_that_a_crash_has_left_without_its_state(place: Place) -> None:
    filled(place)
    with place.session() as session:
        fork = session.vault.fork("f")
        empty(Path(os.fsdecode(fork.path + b"/state")))
        empty(Path(os.fsdecode(fork.record_path)))
        with session.alone("gc"):
            collect_garbage(session.vault, RetentionLimits(0, 1, 0), session.forks.clock())
        assert not os.path.lexists(fork.path)


def test_the_writable_layer_of_a_checkpoint_is_on_disk_before_the_state_names_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """btrfs: a checkpoint that was cut off was told as a command that was cut off."""
    filled(place)
    synced: list[str] = []
    monkeypatch.setattr(store, "sync_all", lambda path: synced.extend(os.listdir(os.fsdecode(path) + "/layers")))
    with place.session() as session:
        session.forks.checkpoint("f", "point")
        assert session.vault.fork("f").state.upper in synced


def test_a_rollback_that_a_crash_has_cut_off_is_no_command(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with_checkpoint(place)
    monkeypatch.setattr(Fork, "end", lambda _fork: None)
    with place.session() as session:
        session.forks.rollback("f", "point")
        note = session.vault.fork("f").path + b"/running"
    os.utime(note, ns=(booted() - 10**9,) * 2)
    age(place)
    monkeypatch.undo()
    assert remarks_of(place) == {}
    assert changed(place) == [b"edited", b"one"]


@pytest.mark.parametrize(
    ("content", "is_told"),
    [(b"edited\nmo\0\0\0", True), (bytes(12), True), (b"\x7fELF\0\1\0more\0", False), (b"edited\0more\n", False)],
)
def test_a_text_that_ends_with_zeros_after_a_crash_does_not_land_unless_it_is_named(
    place: Place, content: bytes, is_told: bool
) -> None:
    """ext4 keeps the size of what was written, and zeros in place of it."""
    filled(place)
    with place.session() as session:
        fork = session.vault.fork("f")
        with open(fork.upper + b"/edited", "r+b") as stream:
            stream.write(content)
            stream.truncate()
        fork.begin(CommandStart(1))
        session.changes.of("f")
    age(place)
    told = remarks_of(place).get(b"edited", "")
    assert told.startswith("ends with zeros after a crash of the machine") == is_told
    with place.session() as session:
        session.changes.review("f")
        session.changes.apply("f")
    assert ((place.project / "edited").read_bytes() == content) != is_told


def test_a_record_of_zeros_is_a_lost_one(place: Place) -> None:
    with_checkpoint(place)
    for path in (record_of(place), sealed(place) / "record"):
        path.write_bytes(bytes(path.stat().st_size))
    age(place)
    assert changed(place) == [b"edited", b"one", b"two"]
    with place.session() as session:
        assert problems(session) == []


def test_a_writable_layer_that_was_not_on_disk_yet_is_made_again_and_told(place: Place) -> None:
    """btrfs: the state is synced, and neither the new layer nor the record of the sealed one."""
    filled(place)
    with place.session() as session:
        session.forks.checkpoint("f", "point")
        fork = session.vault.fork("f")
        empty(sealed(place) / "record")
        os.rmdir(fork.layer(fork.state.upper))
    age(place)
    assert changed(place) == [b"edited", b"one"]
    assert remarks_of(place)[b""].startswith("a crash of the machine cut a command of this fork off")
    with place.session() as session:
        assert problems(session) == []
        session.run(TWO, fork="f")
    assert changed(place) == [b"edited", b"one", b"two"]


@pytest.mark.parametrize("lose", ["record", "running"])
def test_an_empty_file_does_not_land_after_a_crash_that_took_the_record_or_the_note_of_the_command(
    place: Place, lose: str
) -> None:
    """No size is recorded then. The note is empty, because its name was on disk and its content was not."""
    filled(place)
    with place.session() as session:
        fork = session.vault.fork("f")
        os.truncate(fork.upper + b"/one", 0)
        note = Path(os.fsdecode(fork.path)) / lose
        note.unlink(missing_ok=True)
        note.touch()
        os.utime(note, ns=(booted() - 10**9,) * 2)
        remarks = {remark.path: remark.text for remark in session.changes.of("f").remarks}
        assert remarks[b"one"].startswith("is empty after a crash of the machine that cut its command off")
        session.changes.apply("f")
    assert not (place.project / "one").exists()


def test_a_copy_whose_manifest_is_damaged_is_told(place: Place) -> None:
    """A power loss left it empty, as long as it was not synced."""
    (place.project / "edited").write_text("edited\n")
    with place.session(Settings(view="copy")) as session:
        session.run(ONE, fork="f")
        session.forks.checkpoint("f", "point")
        session.run(TWO, fork="f")
        copy = Path(os.fsdecode(session.vault.fork("f").copy_place))
        (copy / "manifest").write_bytes(b"")
    with place.session() as session:
        fork = session.vault.fork("f")
        fork.begin(CommandStart(0))
        with pytest.raises(MudroomError, match="manifest is damaged: Input data was truncated") as caught:
            session.changes.of("f")
        assert caught.value.hint == f"the files are in {copy}/work; `mudroom discard` drops the fork"
        assert (copy / "work/two").read_text() == "2\n"
        session.forks.discard("f")
