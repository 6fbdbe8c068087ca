"""Retention on disk: what goes, what never does, and nobody loses what he is just making."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import mudroom.vault.retention.expiry
from clocks import let_pass, steady
from conftest import Place
from cut_off import counted
from empty_vault import vault
from inner_path import inner
from mudroom.core.clock import SECOND, CommandStart
from mudroom.core.retention import DAY, YOUNG, Expired, RetentionLimits
from mudroom.core.settings import Settings
from mudroom.core.tree import stack
from mudroom.errors import MudroomError, UsageError
from mudroom.session import Session, upkeep
from mudroom.vault.apply.transaction import ApplyDirectory
from mudroom.vault.moment import clock_of, save
from mudroom.vault.retention import prune
from mudroom.vault.retention.check import check
from mudroom.vault.retention.prune import PruneResult
from mudroom.vault.retention.schedule import tidy
from mudroom.vault.retention.tombstone import LINES, remember, require_kept, tombstones
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.spare_base import SPARE
from mudroom.vault.store.store import Vault
from whole_text import whole

__all__ = ["vault"]  # a fixture

WIDE = RetentionLimits(30 * DAY, 50, 1 << 50)


def later(days: int = 2) -> int:
    """Nothing that was made now is young any more."""
    return time.time_ns() + days * DAY


def collect_garbage(vault: Vault, kept: RetentionLimits, now: int, *, forks_older: int | None = None) -> PruneResult:
    return prune.collect_garbage(vault, kept, let_pass(vault, now), forks_older=forks_older)


def old_forks(vault: Vault, older: int, now: int) -> list[str]:
    return prune.old_forks(vault, older, let_pass(vault, now))


def sweep(
    vault: Vault, now: int | None = None, kept: RetentionLimits = WIDE, *, older: int | None = None
) -> PruneResult:
    """Garbage collection, after the same as a dry run has changed nothing and told the same."""
    now = let_pass(vault, later() if now is None else now)
    before = names(vault)
    told = prune.collect_garbage(vault, kept, now, forks_older=older, dry_run=True)
    assert names(vault) - {b"lock"} == before - {b"lock"}
    swept = collect_garbage(vault, kept, now, forks_older=older)
    assert swept._replace(size=0) == told._replace(size=0)
    assert os.listdir(vault.path + b"/trash") == []
    return swept


def names(vault: Vault) -> set[bytes]:
    found = {os.path.join(at, name) for at, below, files in os.walk(vault.path) for name in (*below, *files)}
    return {name for name in found if os.path.basename(name) != b"lock"}


def layers(vault: Vault) -> set[str]:
    return {os.fsdecode(name) for name in os.listdir(vault.path + b"/layers")}


def apply_times(place: Place, session: Session, times: int) -> None:
    """Each makes ``file`` one line longer."""
    for _time in range(times):
        session.run([b"sh", b"-c", b"echo more >> file"])
        session.changes.apply(session.vault.forks()[0].name)


# --- applies ---


def test_applies_go_by_number_and_an_undo_says_so(place: Place) -> None:
    place.write("file", "first\n")
    session = place.session()
    apply_times(place, session, 5)
    swept = sweep(session.vault, kept=RetentionLimits(30 * DAY, 2, 1 << 50))
    assert [(one.name, one.reason) for one in swept.applies] == [("u1", "count"), ("u2", "count"), ("u3", "count")]
    assert [apply["apply"] for apply in session.changes.applies()] == ["u4", "u5"]
    with pytest.raises(UsageError, match=r"u2 cannot be undone: what it replaced was removed on \d{4}-.* keep.applies"):
        require_kept(session.vault, "u2")
    for name in ("u4", "u5", "u6", "x", "u", "u\u0663", "../u1"):
        require_kept(session.vault, name)  # these are somebody else's to explain
    session.changes.undo()
    session.changes.undo()
    assert (place.project / "file").read_text() == "first\n" + 3 * "more\n"
    assert check(session.vault) == []
    apply_times(place, session, 1)
    assert session.changes.applies()[-1]["apply"] == "u6"  # a number is never used again


def test_the_newest_apply_stays_whatever_its_age_and_size(place: Place) -> None:
    session = place.session()
    apply_times(place, session, 2)
    swept = sweep(session.vault, later(400), RetentionLimits(DAY, 1, 0))
    assert [(one.name, one.reason) for one in swept.applies] == [("u1", "age")]
    assert swept.applies[0].size > 0
    session.changes.undo("u2")


def test_applies_go_by_bytes(place: Place) -> None:
    place.write("big", b"x" * 1_000_000)
    session = place.session()
    for number in range(3):
        session.run([b"sh", b"-c", b"head -c 1000000 /dev/urandom > big; echo %d" % number])
        session.changes.apply(session.vault.forks()[0].name)
    swept = sweep(session.vault, kept=RetentionLimits(DAY * 30, 50, 2_500_000))
    assert [(one.name, one.reason) for one in swept.applies] == [("u1", "bytes")]
    assert 1_000_000 <= swept.size < 1_200_000
    session.changes.undo("u3")  # its size was noted when it was done, and is another now
    assert sweep(session.vault, kept=RetentionLimits(DAY * 30, 50, 2_500_000)).applies == ()


def test_nothing_is_removed_while_an_apply_is_unfinished(place: Place) -> None:
    session = place.session()
    apply_times(place, session, 2)
    directory = ApplyDirectory(session.vault.applies()[0])
    directory.begin("apply")
    swept = sweep(session.vault, later(400), RetentionLimits(0, 0, 0))
    assert not swept
    assert "cut off" in swept.remarks[0]


@contextmanager
def cut_off(at: int) -> Iterator[list[bool]]:
    """The call number ``at`` that renames, removes or writes durably ends the work, as SIGKILL would. Yield whether it
    came to its end, for afterwards."""

    class Killed(BaseException):
        pass

    def act(number: int) -> None:
        if number == at:
            raise Killed

    ended = [True]
    with pytest.MonkeyPatch.context() as patch:
        counted(patch, act, ("rename", "unlink", "rmdir", "fsync"))
        try:
            yield ended
        except Killed:
            ended[0] = False


def test_killed_anywhere_an_apply_is_whole_or_gone(place: Place) -> None:
    """After each crash the next sweep finishes the work; what is left can be undone down to the last byte."""
    kept = RetentionLimits(30 * DAY, 2, 1 << 50)
    for at in range(1, 200):
        session = place.session()
        apply_times(place, session, 3 - len(session.vault.applies()))
        last = session.vault.applies()[-1]
        with cut_off(at) as ended:
            collect_garbage(session.vault, kept, later())
        known = {stone.name for stone in tombstones(session.vault)}
        for path in session.vault.applies():
            directory = ApplyDirectory(path)
            assert directory.state() == "done" or directory.name in known
        collect_garbage(session.vault, kept, later())
        assert len(session.vault.applies()) == 2
        assert session.vault.applies()[-1] == last
        assert [problem for problem in check(session.vault) if problem.subject != "journal"] == []
        if ended[0]:
            break
    else:
        raise AssertionError("the work never came to its end")
    before = (place.project / "file").read_text()
    session.changes.undo()
    assert (place.project / "file").read_text() + "more\n" == before


def test_slots_in_the_project_go_too(place: Place) -> None:
    session = place.session()
    apply_times(place, session, 2)
    path = session.vault.applies()[0]
    inside = place.project / ".mudroom/apply/u1"
    inside.parent.mkdir(parents=True)
    (inside.parent / ".gitignore").write_text("*\n")
    os.rename(path + b"/slots", inside)
    directory = ApplyDirectory(path)
    directory.write("done", directory.load()._replace(slots=inner(inside)))
    swept = sweep(session.vault, kept=RetentionLimits(30 * DAY, 1, 1 << 50))
    assert [one.name for one in swept.applies] == ["u1"]
    assert not (place.project / ".mudroom").exists()


def test_slots_are_removed_only_where_they_can_be(place: Place, tmp_path: Path) -> None:
    session = place.session()
    apply_times(place, session, 2)
    path = session.vault.applies()[0]
    precious = tmp_path / "precious"
    precious.mkdir()
    directory = ApplyDirectory(path)
    directory.write("done", directory.load()._replace(slots=inner(precious)))
    with pytest.raises(MudroomError, match=whole(f"u1 has its slots at {precious}: not a path that mudroom uses")):
        collect_garbage(session.vault, RetentionLimits(30 * DAY, 1, 1 << 50), later())
    assert precious.is_dir()
    assert (
        any("not a path that mudroom uses" in problem.text for problem in check(session.vault))
        or directory.state() is None
    )


def test_a_link_in_the_project_leads_nowhere(place: Place, tmp_path: Path) -> None:
    session = place.session()
    apply_times(place, session, 2)
    path = session.vault.applies()[0]
    (tmp_path / "elsewhere/apply/u1").mkdir(parents=True)
    (place.project / ".mudroom").symlink_to(tmp_path / "elsewhere")
    directory = ApplyDirectory(path)
    slots = os.fsencode(place.project / ".mudroom/apply/u1")
    directory.write("done", directory.load()._replace(slots=slots))
    os.rename(path + b"/slots", path + b"/other")
    collect_garbage(session.vault, RetentionLimits(30 * DAY, 1, 1 << 50), later())
    assert (tmp_path / "elsewhere/apply/u1").is_dir()


def test_tombstones_are_few(vault: Vault) -> None:
    remember(vault, [Expired(f"u{number}", "age", 1) for number in range(1, LINES + 10)], 5 * SECOND)
    assert len(tombstones(vault)) == LINES
    told = "u3 cannot be undone: what it replaced was removed long ago"
    with pytest.raises(UsageError, match=whole(f"{told} (mudroom log shows it)")):
        require_kept(vault, "u3")
    Path(os.fsdecode(vault.path), "applies/removed").write_bytes(b"\xff\nu1\nu2 x age\nu7 12 age\nu8 9 flood\n")
    assert [stone.name for stone in tombstones(vault)] == ["u7", "u8"]


# --- layers ---


def test_layers_that_nobody_needs_go(vault: Vault) -> None:
    fork = vault.new_fork("f")
    Path(os.fsdecode(vault.layer(vault.new_layer())), "tree").mkdir()
    assert sweep(vault).layers != ()
    assert layers(vault) == {fork.state.upper}
    assert sweep(vault) == PruneResult()


def test_what_is_being_made_stays(vault: Vault) -> None:
    young = vault.new_layer()
    now = time.time_ns()
    assert sweep(vault, now + YOUNG // 2).layers == ()
    assert layers(vault) == {young}


def test_a_busy_forks_holder_may_have_made_it(vault: Vault) -> None:
    """A layer that a holder of a lock has made and not named yet stays for as long as the lock is held."""
    fork = vault.new_fork("f")
    with vault.fork("f").lock("a command"):
        merged = vault.new_layer()
        swept = sweep(vault, later(300))
        assert swept.layers == ()
        assert layers(vault) == {fork.state.upper, merged}
    assert sweep(vault, later(300)).layers == (merged,)


def test_what_was_made_long_before_a_lock_was_taken_goes(vault: Vault) -> None:
    fork = vault.new_fork("f")
    old = vault.new_layer()
    with vault.fork("f").lock("a command"):
        stamp = time.time_ns() + 3 * DAY
        os.utime(fork.path + b"/lock", ns=(stamp, stamp))
        swept = collect_garbage(vault, WIDE, later(5))
        assert swept.layers == (old,)


def test_a_fork_of_a_fork_made_in_between_is_seen(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child is made of its parent, and the parent drops the layer, after the forks were listed."""
    parent = vault.new_fork("parent")
    shared = parent.state.upper
    parent.save(stack.seal(parent.state, vault.new_layer()))
    state_or_none = Fork.state_or_none
    done: list[bool] = []

    def and_then(fork: Fork) -> stack.ForkState | None:
        if not done and fork._lock is not None:
            done.append(True)
            child = stack.forked(fork.state, "parent", vault.new_layer(), 1)
            vault.add_fork("child", child)
            fork.save(fork.state._replace(layers=()))
        return state_or_none.fget(fork)  # type: ignore[attr-defined, no-any-return]

    monkeypatch.setattr(Fork, "state_or_none", property(and_then))
    swept = collect_garbage(vault, WIDE, later())
    assert done
    assert shared not in swept.layers
    assert shared in layers(vault)


@pytest.mark.parametrize("renames", [True, False])
def test_a_fork_that_goes_while_others_are_visited_is_no_error(
    vault: Vault, monkeypatch: pytest.MonkeyPatch, renames: bool
) -> None:
    for name in ("first", "second"):
        vault.new_fork(name)
    listed = Vault.forks

    def forks(vault: Vault) -> list[Fork]:
        found = listed(vault)
        for fork in found if any(each.name == "second" for each in found) else ():
            if fork.name == "second" and renames:
                os.rename(fork.path, vault.path + b"/forks/third")
            elif fork.name == "second":
                vault.throw_away(fork.path)
        return found

    monkeypatch.setattr(Vault, "forks", forks)
    swept = prune.collect_garbage(vault, RetentionLimits(0, 1, 0), later())
    assert swept.remarks == ()
    assert (vault.find("third") is not None) == renames
    assert vault.find("first") is not None


def test_one_unreadable_state_and_nothing_shared_goes(vault: Vault) -> None:
    vault.new_fork("good")
    bad = vault.new_fork("bad")
    vault.new_layer()
    Path(os.fsdecode(bad.path), "state").write_text("mudroom-fork 2\nupper")
    before = layers(vault)
    swept = sweep(vault)
    assert layers(vault) == before
    assert "bad" in swept.remarks[0]
    assert [(one.subject, one.text) for one in check(vault)] == [("fork bad", "the state of the fork bad is cut off")]


def test_snapshots_go_with_their_last_fork(place: Place) -> None:
    place.write("a", "a\n")
    session = place.session()
    session.forks.new("f", snapshot=True)
    session.forks.new("g", parent="f")
    vault = session.vault
    base = vault.fork("f").state.base
    assert sweep(vault) == PruneResult()
    for name in ("f", "g"):
        vault.throw_away(vault.fork(name).path)
    vault.empty_trash()
    assert sweep(vault).snapshots == (base,)
    half = vault.base("abc")
    os.mkdir(half)  # no manifest: somebody may be copying into it for hours
    assert sweep(vault, time.time_ns() + DAY // 2).snapshots == ()
    assert sweep(vault, later(2)).snapshots == ("abc",)


def test_old_automatic_checkpoints_go_with_their_layers(place: Place) -> None:
    session = place.session()
    session.run([b"touch", b"a"], fork="f")
    session.forks.checkpoint("f", "mine")
    session.run([b"touch", b"b"], fork="f")
    session.forks.rollback("f", "mine")
    assert [point.name for point in session.vault.fork("f").state.checkpoints] == ["mine", "rollback-1"]
    before = layers(session.vault)
    swept = sweep(session.vault, later(31))
    assert swept.checkpoints == ("f@rollback-1",)
    assert len(swept.layers) == 1
    assert len(before - layers(session.vault)) == 1
    assert [change.path for change in session.changes.of("f").changes] == [b"a"]
    session.run([b"sh", b"-c", b"test -e a && ! test -e b"], fork="f")
    assert check(session.vault) == []


# --- forks ---


def test_forks_are_somebodys_work(place: Place) -> None:
    session = place.session()
    run = session.run([b"touch", b"a"]).fork
    session.run([b"touch", b"b"], fork="mine")
    session.close()  # the launcher, which removes work directories beside us, has ended
    assert sweep(session.vault, later(4000)).forks == ()
    assert old_forks(session.vault, DAY, later()) == [run]
    swept = sweep(session.vault, later(), older=DAY)
    assert swept.forks == (run,)
    assert [fork.name for fork in session.vault.forks()] == ["mine"]
    assert len(layers(session.vault)) == 1
    assert sweep(session.vault, later(), older=100 * DAY).forks == ()


def test_a_fork_in_use_is_no_old_fork(vault: Vault) -> None:
    fork = vault.new_fork("f")
    fork.begin(CommandStart(5))
    assert old_forks(vault, DAY, later(99)) == []
    fork.end()
    assert old_forks(vault, DAY, later(99)) == ["f"]
    Path(os.fsdecode(fork.path), "mount").write_text("/x")
    assert old_forks(vault, DAY, later(99)) == []


# --- leftovers ---


def test_what_a_killed_mudroom_left_goes(vault: Vault) -> None:
    fork = vault.new_fork("f")
    place = Path(os.fsdecode(fork.path))
    (place / "state.new").write_text("half")
    (place / "work/3/work").mkdir(parents=True)
    (Path(os.fsdecode(vault.path)) / "trash/7/deep").mkdir(parents=True)
    unborn = Path(os.fsdecode(vault.path)) / "forks/unborn"
    unborn.mkdir()
    (unborn / "lock").touch()
    assert sweep(vault, time.time_ns()).leftovers == 1  # the trash; all else may be in use
    (Path(os.fsdecode(vault.path)) / "trash/7").mkdir()
    swept = sweep(vault)
    assert swept.leftovers == 4
    assert sorted(os.listdir(place)) == ["lock", "state", "work"]
    assert not unborn.exists()


def test_an_apply_that_never_began_goes_but_the_last(place: Place) -> None:
    session = place.session()
    vault = session.vault
    for _number in range(2):
        os.mkdir(vault.new_apply() + b"/slots")
    assert sweep(vault).leftovers == 1
    assert [os.path.basename(path) for path in vault.applies()] == [b"u2"]


# --- by itself ---


def test_tidy_is_done_once_a_day_and_after_an_apply(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session = place.session()
    apply_times(place, session, 3)
    now, settings = time.time_ns(), Settings(keep_applies=2)
    save(session.vault.path, clock_of(session.vault.path, now)._replace(swept=-1))  # the session did it by itself, too
    first = tidy(session.vault, settings, now)
    assert first is not None
    assert [one.name for one in first.applies] == ["u1"]
    stats: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr("mudroom.vault.retention.prune.collect_garbage", lambda *_: stats.append("swept"))
        save(session.vault.path, steady(now + DAY, unswept=DAY - SECOND * 3600))
        assert tidy(session.vault, settings, now + DAY) is None
        assert tidy(session.vault, settings, now + 400 * DAY) is None, "a clock that is ahead"
        assert tidy(session.vault, settings, now - 400 * DAY) is None, "a clock that was set back"
    assert stats == []
    apply_times(place, session, 1)
    after = tidy(session.vault, settings, now + 5, applied=True)
    assert after is not None
    assert [one.name for one in after.applies] == ["u2"]
    save(session.vault.path, steady(now + DAY, unswept=DAY))
    assert tidy(session.vault, settings, now + DAY) == PruneResult()
    assert tidy(session.vault, settings, now + DAY) is None


def test_tidy_never_spoils_what_was_asked_for(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object, **_named: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("mudroom.vault.retention.prune.collect_garbage", full)
    swept = tidy(vault, Settings(), 5)
    assert swept is not None
    assert "No space left" in swept.remarks[0]
    assert clock_of(vault.path, 5).swept == -1


def test_a_full_disk_leaves_the_applies(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session = place.session()
    apply_times(place, session, 2)
    monkeypatch.setattr(mudroom.vault.retention.expiry, "remember", _full)
    with pytest.raises(OSError, match="No space left"):
        collect_garbage(session.vault, RetentionLimits(30 * DAY, 1, 1 << 50), later())
    assert [apply["state"] for apply in session.changes.applies()] == ["applied", "applied"]


def _full(*_arguments: object) -> None:
    raise OSError(28, os.strerror(28))


def test_a_clock_that_was_not_renamed_goes(vault: Vault) -> None:
    place = Path(os.fsdecode(vault.path))
    (place / "clock.123").write_text("half")
    assert sweep(vault).leftovers == 1
    assert [path.name for path in place.glob("clock*")] == ["clock"]


def test_git_layers_of_masks_go_after_a_day_without_use(vault: Vault) -> None:
    for name in (b"git-old", b"0123"):
        os.makedirs(vault.path + b"/masks/" + name)
    fork = vault.new_fork("f")
    assert sweep(vault, time.time_ns()).leftovers == 0
    with fork.lock("a command"):
        collect_garbage(vault, WIDE, later())
        assert os.path.isdir(vault.path + b"/masks/git-old")
    assert sweep(vault).leftovers == 1
    assert os.listdir(vault.path + b"/masks") == [b"0123"]


@pytest.mark.parametrize("is_new", [True, False])
def test_the_spare_snapshot_goes_also_when_it_is_young(vault: Vault, is_new: bool) -> None:
    """It is complete, and no fork can be about to need it under its name: a full disk needs its bytes now."""
    spare = vault.base(SPARE)
    os.makedirs(spare + b"/source")
    Path(os.fsdecode(spare + b"/manifest")).write_bytes(b"")
    now = time.time_ns() if is_new else let_pass(vault, time.time_ns())
    for dry_run in (True, False):
        swept = upkeep.sweep if is_new else prune.collect_garbage
        assert swept(vault, WIDE, now, dry_run=dry_run).snapshots == (SPARE,)
    assert os.listdir(vault.path + b"/bases") == []
