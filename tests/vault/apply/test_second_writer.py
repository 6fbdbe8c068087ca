"""Somebody works on the project while an apply or an undo runs: nothing of theirs is overwritten, none of it is lost.

The apply is stopped before and after each call that changes something, and the user does one thing to the file that it
is about (a race without stops: ``test_writer_race.py``). The rule of the code is held exactly:

* what the user wrote last is at its path when the apply is over, and so it is after undo;
* what they deleted, moved away or gave another mode stays so;
* a file written to through a descriptor that was open before the apply replaced it comes back to its place, as a
  conflict, if that was before the end; afterwards it is in the slot, and undo brings it back;
* no path outside the project is touched, whatever links the user lays meanwhile;
* every conflict is one of two versions that both exist.
"""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from faults import ASK_AGAIN, KILL_BEFORE, PASS, Call, at, passing, watched, without_flags
from faults import why_impossible as why_not_watched
from mudroom.core.merge.merge import Conflict
from mudroom.sandbox.client.client import Client
from tiers import QUICK, SEED, daily, half, pairs
from user_acts import ACTS, Act, Outside, Wish, root, unfulfilled
from world import APART, PLAIN, TOGETHER, Portrait, Portraits, Way, World, portraits, why_impossible

__all__ = ["root"]


ALL = os.environ.get("MUDROOM_FAULTS") == "all"
pytestmark = [pytest.mark.slow]


def _project_path(call: Call, project: Path) -> Path | None:
    """The path in the project that a call is about."""
    start = call.what.find(str(project) + "/")
    if start < 0:
        return None
    words = call.what[start:].split(f" {project.parent.parent}")
    path = Path(words[0].split(" /")[0])
    return None if ".mudroom" in path.parts else path


def _meanwhile(
    world: World, outside: Outside, act: Act, number: int, ended: bool, wishes: list[Wish]
) -> Callable[[Call], int]:
    """A decider that lets the user act at one moment: at this call, or the next one about a path of the project. On a
    busy machine there are some calls more."""

    def decide(call: Call) -> int:
        if not call.has_ended:
            path = _project_path(call, world.project)
            if remembered or call.number < number or path is None:
                return PASS
            remembered.append(path)
            if ended:
                return ASK_AGAIN
        try:
            wishes.extend(
                [*act(remembered[0], outside.path, b"user \0 %d" % number), Wish(remembered[0], anything=True)]
            )
        except OSError:
            pass  # there is no such file at the moment, so the user cannot do that
        return PASS

    remembered: list[Path] = []
    return decide


def _moments(client: Client, root: Path, way: Way, what: str) -> list[Call]:
    world = World(root / f"moments-{way.name}-{what}", client, way)
    decide = without_flags(passing) if way.plain else passing
    outcome = watched(world.apply, decide)
    if what == "undo":
        outcome = watched(world.undo, decide)
    found = [call for call in outcome.calls if call.number and _project_path(call, world.project) is not None]
    world.remove()
    return found


def _conflicts_of_apply(world: World) -> list[Conflict]:
    with world.session(world.settings) as session, session.alone("apply"):
        return list(session.changes.apply(world.fork).conflicts)


def _conflicts_of_undo(world: World) -> list[Conflict]:
    with world.session(world.settings) as session, session.alone("undo"):
        return list(session.changes.undo().conflicts)


@pytest.mark.skipif(bool(why_not_watched()), reason=why_not_watched())
@pytest.mark.parametrize(
    ("way", "what"), pairs((TOGETHER, APART, PLAIN), ("apply", "undo"), 3), ids=lambda part: getattr(part, "name", part)
)
def test_whatever_the_user_does_between_any_two_calls(root: Path, client: Client, way: Way, what: str) -> None:
    if why_impossible(way):
        pytest.skip(why_impossible(way))
    moments = _moments(client, root, way, what)
    cases = [(call, act, ended) for call in moments for act in ACTS for ended in (False, True)]
    if not ALL:
        step = 116 if QUICK else 29
        cases = cases[zlib.crc32(f"{way.name} {what}".encode()) % step :: step]
    acted = 0
    for number, (call, act, ended) in enumerate(cases):
        world = World(root / f"w{number}", client, way)
        outside = Outside(world.root)
        where = f"{what}, {way.name}: {act.__name__} {'after' if ended else 'before'} {call.name} {call.what}"
        wishes: list[Wish] = []
        work = functools.partial(_conflicts_of_apply, world)
        if what == "undo":
            assert world.apply() == (0, 0)
            work = functools.partial(_conflicts_of_undo, world)
        decide = _meanwhile(world, outside, act, call.number, ended, wishes)
        outcome = watched(work, without_flags(decide) if way.plain else decide)
        assert outcome.error is None, f"{where}: {outcome.error}"
        acted += bool(wishes)
        _check_aftermath(world, outside, wishes, where, was_undone=what == "undo")
        world.remove()
    assert acted > len(cases) // 3, f"{acted} of {len(cases)}"


def _check_aftermath(world: World, outside: Outside, wishes: list[Wish], where: str, *, was_undone: bool) -> None:
    assert outside.is_untouched(), where
    assert unfulfilled(wishes) == [], where
    assert world.unfinished() == [], where
    if not was_undone and world.is_applied():
        world.undo()
        assert outside.is_untouched(), f"{where}, then undo"
        assert unfulfilled(wishes) == [], f"{where}, then undo"
    _check_rest(world, wishes, where)


def _check_rest(world: World, wishes: list[Wish], where: str) -> None:
    """After undo: all that the user has not touched is as before."""
    now = portraits(world.project)
    touched = {os.path.relpath(wish.path, world.project) for wish in wishes}
    touched |= {other for name in touched for names in ONE_FILE if name in names for other in names}

    def is_touched(name: str) -> bool:
        ours = any(name == one or name.startswith(one + "/") or one.startswith(name + "/") for one in touched)
        return ours or "-away" in name or "-moved-by-user" in name

    names = {name for name in {*now, *world.before} if not is_touched(name)}
    changed = [name for name in names if _plain(now, name) != _plain(world.before, name)]
    assert not changed, f"{where}: after undo {sorted(changed)} are not as before"


ONE_FILE = ({"h1", "h2"}, {"twin-outside", "new/twin", "new/sub/f", "new"})
"""What is done to one of them is done to all."""


def _plain(all_of_them: Portraits, name: str) -> Portrait | None:
    found = all_of_them.get(name)
    return found._replace(same_as="") if found is not None else None


@pytest.mark.skipif(bool(why_not_watched()), reason=why_not_watched())
@pytest.mark.parametrize("name", half(["edited", "removed", "gone/a", "tree/x", "part/a"]))
def test_what_is_written_through_an_open_file_goes_back_to_its_place(root: Path, client: Client, name: str) -> None:
    for number in _sample_of_moments(client, root, name):
        world = World(root / f"w{number}", client, TOGETHER)
        path = world.project / name
        with open(path, "ab", buffering=0) as stream:
            conflicts = watched(
                functools.partial(_conflicts_of_apply, world), _writing(stream.write, number, b"late \0\n")
            ).value
            assert path.read_bytes().endswith(b"late \0\n"), f"{name}, call {number}"
            assert conflicts, f"{name}, call {number}"
        assert world.unfinished() == []
        if world.is_applied():
            world.undo()
        assert path.read_bytes().endswith(b"late \0\n")
        world.remove()


def _sample_of_moments(client: Client, root: Path, name: str) -> list[int]:
    """When the file is taken out of the project, and some calls after that, up to where the plan becomes done."""
    world = World(root / "moments", client, TOGETHER)
    calls = watched(world.apply, passing).calls
    top = world.project / name.split("/")[0]
    taken = next(
        call.number
        for call in calls
        if call.name == "renameat2"
        and (path := _project_path(call, world.project)) is not None
        and (path == world.project / name or path == top)
    )
    world.remove()
    return [taken, taken + 1, taken + 2]


def _writing(write: Callable[[bytes], object], number: int, data: bytes) -> Callable[[Call], int]:
    def decide(call: Call) -> int:
        if call.number == number:
            write(data)
        return PASS

    return decide


def test_what_is_written_through_an_open_file_after_an_apply_comes_back_with_undo(root: Path, client: Client) -> None:
    world = World(root / "w", client, TOGETHER)
    names = ("edited", "removed", "gone/b/c", "tree/x")
    opened = [os.open(world.project / name, os.O_WRONLY | os.O_APPEND) for name in names]
    assert world.apply() == (0, 0)
    for descriptor in opened:
        os.write(descriptor, b"later \0\n")
        os.close(descriptor)
    world.undo()
    for name in names:
        assert (world.project / name).read_bytes().endswith(b"later \0\n"), name
    world.remove()


@pytest.mark.skipif(bool(why_not_watched()), reason=why_not_watched())
@pytest.mark.parametrize("what", daily(["apply", "undo"]))
def test_whatever_the_user_does_before_a_crash_is_recovered_from(root: Path, client: Client, what: str) -> None:
    moments = _moments(client, root, TOGETHER, what)
    cases = [(call, act, late) for call in moments for act in ACTS for late in (0, 1, 6)]
    if not ALL:
        cases = cases[3::37]
    if QUICK:  # a quarter of them, another one each day
        cases = cases[zlib.crc32(f"{SEED} {what}".encode()) % 4 :: 4]
    for number, (target, act, late) in enumerate(cases):
        world = World(root / f"w{number}", client, TOGETHER)
        outside = Outside(world.root)
        if what == "undo":
            assert world.apply() == (0, 0)
        work = world.undo if what == "undo" else world.apply
        watched(work, at(target.number + late, KILL_BEFORE))
        where = f"killed in {what} {late} calls after {target.name} {target.what}, then {act.__name__}"
        path = _project_path(_in(target, world), world.project)
        assert path is not None
        wishes = []
        try:
            wishes = [*act(path, outside.path, b"user \0 later"), Wish(path, anything=True)]
        except OSError:
            pass  # there is no such file
        world.recover()
        _check_aftermath(world, outside, wishes, where, was_undone=what == "undo")
        world.remove()


def _in(call: Call, world: World) -> Call:
    """A call of another world of the same kind, as it would be in this one."""
    start = call.what.index("/project/")
    before = call.what.rfind(" ", 0, start) + 1
    return call._replace(what=str(world.project) + call.what[start + len("/project") :].split(" /")[0] + ("" * before))
