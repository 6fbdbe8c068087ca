"""Somebody works on the project while an apply or an undo runs: nothing of theirs is overwritten, none of it is lost.

First at every single moment: the apply is stopped before and after each call that changes something, and the user does
one thing to the file that it is about. Then as a race: another process edits as fast as it can for a while
(``MUDROOM_WRITER=SECONDS``, a few in the normal run). In both, the rule of the code is held exactly:

* what the user wrote last is at its path when the apply is over, and so it is after undo;
* what they deleted, moved away or gave another mode stays so;
* a file written to through a descriptor that was open before the apply replaced it comes back to its place, as a
  conflict, if that was before the end; afterwards it is in the slot, and undo brings it back;
* no path outside the project is touched, whatever links the user lays meanwhile;
* every conflict is one of two versions that both exist.
"""

from __future__ import annotations

import errno
import functools
import os
import pickle
import random
import signal
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from faults import ASK_AGAIN, KILL_BEFORE, PASS, Call, at, passing, watched, without_flags
from faults import why_impossible as why_not_watched
from mudroom.core.merge.merge import Conflict
from mudroom.sandbox.client.client import Client
from mudroom.sandbox.client.launcher_client import LauncherClient
from tiers import QUICK, SEED
from world import (
    APART,
    PLAIN,
    TOGETHER,
    Portrait,
    Portraits,
    Way,
    World,
    fast_place,
    load_modules,
    portraits,
    why_impossible,
)

SECONDS = float(os.environ.get("MUDROOM_WRITER", "4"))
ROUNDS = 4
"""At least, however long they take: both ways, with an undo and without."""
ALL = os.environ.get("MUDROOM_FAULTS") == "all"
pytestmark = [pytest.mark.slow]


@pytest.fixture
def root(tmp_path: Path, client: LauncherClient) -> Iterator[Path]:
    load_modules(client)
    with fast_place(tmp_path) as place:
        yield place


# --- one act at each moment ---


class Wish(NamedTuple):
    """What the user has made of a path, and wants to find there."""

    path: Path
    content: bytes | None = None
    """Somewhere in the file; None: whatever it is."""
    gone: bool = False
    mode: int | None = None
    link: str | None = None
    anything: bool = False
    """Whatever is there: a directory in which something was done stays as a whole."""


Act = Callable[[Path, Path, bytes], list[Wish]]
"""Called with the path that the operation is about, a directory outside, and bytes to write."""


def _file_in(path: Path) -> Path:
    """The path itself, or if it is a directory a file in it."""
    if path.is_dir() and not path.is_symlink():
        inside = sorted(one for one in path.rglob("*") if one.is_file() and not one.is_symlink())
        return inside[0] if inside else path / "by-the-user"
    return path


def _can_be_written(path: Path) -> bool:
    """Not through a link, and not to a fifo, which would be waited for."""
    return not path.is_symlink() and (path.is_file() or not path.exists())


def write_in_place(path: Path, _outside: Path, token: bytes) -> list[Wish]:
    target = _file_in(path)
    if not _can_be_written(target):
        return []
    with open(target, "r+b" if target.exists() else "xb") as stream:
        stream.write(token)
        stream.truncate()
    return [Wish(target, token)]


def append(path: Path, _outside: Path, token: bytes) -> list[Wish]:
    target = _file_in(path)
    if not _can_be_written(target):
        return []
    with open(target, "ab") as stream:
        stream.write(token)
    return [Wish(target, token)]


def replace(path: Path, _outside: Path, token: bytes) -> list[Wish]:
    """As editors do."""
    target = _file_in(path)
    beside = target.with_name(".save.tmp")
    beside.write_bytes(token)
    os.rename(beside, target)
    return [Wish(target, token)]


def delete(path: Path, _outside: Path, _token: bytes) -> list[Wish]:
    target = _file_in(path)
    target.unlink()
    return [Wish(target, gone=True)]


def change_mode(path: Path, _outside: Path, _token: bytes) -> list[Wish]:
    target = _file_in(path)
    if target.is_symlink() or not target.exists():
        return []
    target.chmod(0o610)
    return [Wish(target, mode=0o610)]


def turn_into_directory(path: Path, _outside: Path, token: bytes) -> list[Wish]:
    target = _file_in(path)
    target.unlink()
    target.mkdir()
    (target / "inside").write_bytes(token)
    return [Wish(target / "inside", token)]


def turn_into_link(path: Path, outside: Path, _token: bytes) -> list[Wish]:
    """To a file outside that must not be written to."""
    target = _file_in(path)
    target.unlink()
    os.symlink(outside / "sentinel", target)
    return [Wish(target, link=str(outside / "sentinel"))]


def move_away(path: Path, _outside: Path, _token: bytes) -> list[Wish]:
    content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
    away = path.with_name(path.name + "-moved-by-user")
    os.rename(path, away)
    return [Wish(path, gone=True), Wish(away, content)]


def put_a_link_for_its_directory(path: Path, outside: Path, _token: bytes) -> list[Wish]:
    """The directory it is in is moved away, and a link in its place leads outside."""
    above = path.parent
    if above.parent == outside.parent:
        return []  # it is the project itself
    away = above.with_name(above.name + "-away")
    os.rename(above, away)
    os.symlink(outside, above)
    return [Wish(above, link=str(outside))]


def add_to_directory(path: Path, _outside: Path, token: bytes) -> list[Wish]:
    if not path.is_dir() or path.is_symlink():
        return []
    (path / "by-the-user").write_bytes(token)
    return [Wish(path / "by-the-user", token)]


ACTS: tuple[Act, ...] = (
    write_in_place,
    append,
    replace,
    delete,
    change_mode,
    turn_into_directory,
    turn_into_link,
    move_away,
    put_a_link_for_its_directory,
    add_to_directory,
)


class Outside:
    """A directory beside the project with files that nobody may touch."""

    def __init__(self, root: Path) -> None:
        self.path = root / "outside"
        self.path.mkdir()
        for name in ("sentinel", "edited", "x", "a", "f"):
            (self.path / name).write_text("nobody touches this\n")
        self._before = self._look()

    def _look(self) -> list[tuple[str, int, int, int, bytes]]:
        found = []
        for path in sorted(self.path.rglob("*")):
            info = path.lstat()
            found.append((str(path), info.st_ino, info.st_mode, info.st_mtime_ns, path.read_bytes()))
        return found

    def is_untouched(self) -> bool:
        return self._look() == self._before


def unfulfilled(wishes: list[Wish]) -> list[str]:
    return [text for wish in wishes if (text := _lacks(wish))]


def _lacks(wish: Wish) -> str:
    path = wish.path
    if wish.anything:
        return ""
    if wish.gone:
        return f"{path} is there again" if os.path.lexists(path) else ""
    if not os.path.lexists(path):
        return f"{path} is gone"
    if wish.link is not None:
        return "" if path.is_symlink() and os.readlink(path) == wish.link else f"{path} is not the user's link"
    if path.is_symlink():
        return f"{path} is a link" if wish.mode is not None or wish.content is not None else ""
    if wish.mode is not None and path.stat().st_mode & 0o777 != wish.mode:
        return f"{path} has the mode {path.stat().st_mode & 0o777:o}"
    if wish.content is not None and (not path.is_file() or wish.content not in path.read_bytes()):
        return f"{path} does not hold what the user wrote"
    return ""


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
@pytest.mark.parametrize("way", (TOGETHER, APART, PLAIN), ids=lambda way: way.name)
@pytest.mark.parametrize("what", ["apply", "undo"])
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


# --- a program that has the file open ---


@pytest.mark.skipif(bool(why_not_watched()), reason=why_not_watched())
@pytest.mark.parametrize("name", ["edited", "removed", "gone/a", "tree/x", "part/a"])
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


# --- the user goes on before mudroom does, after it was killed ---


@pytest.mark.skipif(bool(why_not_watched()), reason=why_not_watched())
@pytest.mark.parametrize("what", ["apply", "undo"])
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


# --- a race ---

NAMES = [f"{directory}f{number}" for directory in ("", "d1/", "d2/", "gone1/", "gone2/") for number in range(24)]
RACE = """
for f in f? f1? d1/f?; do printf 'fork' > $f; done
rm f2? d1/f1? d2/f1?; rm -r gone1 gone2; chmod 600 d2/f2?
mkdir new; for n in 0 1 2 3 4 5; do printf 'fork' > new/f$n; done
"""


def fill_with_names(project: Path) -> None:
    for name in NAMES:
        path = project / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"base \0 " + name.encode())


class Words(NamedTuple):
    """What the second writer leaves behind."""

    written: dict[str, bytes]
    """By path: what it wrote there last."""
    gone: set[str]
    """What it deleted last."""
    acts: int


class Writer:
    """Edits the files of a project at random, as fast as it can, and knows what it wrote last where."""

    def __init__(self, project: Path, outside: Path, seed: int) -> None:
        self._project, self._outside = project, outside
        self._random = random.Random(seed)
        self._count = 0
        self._written: dict[str, bytes] = {}
        self._gone: set[str] = set()
        self._acts = (self._in_place, self._append, self._replace, self._create, self._delete, self._chmod, self._link)
        self._weights = (6, 6, 6, 4, 3, 1, 1)

    @property
    def words(self) -> Words:
        return Words(self._written, self._gone, self._count)

    def act(self) -> None:
        name = self._random.choice(NAMES)
        (act,) = self._random.choices(self._acts, self._weights)
        self._count += 1
        try:
            act(name, self._project / name, b"user \0 %d;" % self._count)
        except OSError:
            pass  # there is no such file just now, or there is one

    def _write(self, name: str, path: Path, token: bytes, flags: int) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | flags, 0o644)
        os.write(descriptor, token)
        os.close(descriptor)
        self._wrote(name, token)

    def _wrote(self, name: str, token: bytes) -> None:
        self._written[name] = token
        self._gone.discard(name)

    def _in_place(self, name: str, path: Path, token: bytes) -> None:
        self._write(name, path, token, os.O_TRUNC)

    def _append(self, name: str, path: Path, token: bytes) -> None:
        self._write(name, path, token, os.O_APPEND)

    def _create(self, name: str, path: Path, token: bytes) -> None:
        path.parent.mkdir(exist_ok=True)
        self._write(name, path, token, os.O_CREAT | os.O_EXCL)

    def _replace(self, name: str, path: Path, token: bytes) -> None:
        beside = self._project / ".save.tmp"
        beside.write_bytes(token)
        os.rename(beside, path)
        self._wrote(name, token)

    def _delete(self, name: str, path: Path, _token: bytes) -> None:
        path.unlink()
        self._written.pop(name, None)
        self._gone.add(name)

    def _chmod(self, _name: str, path: Path, _token: bytes) -> None:
        path.chmod(0o640)

    def _link(self, _name: str, path: Path, _token: bytes) -> None:
        """For a moment, a link that leads outside stands for a directory."""
        above = path.parent
        if above == self._project or above.is_symlink():
            return
        away = above.with_name(above.name + "-away")
        os.rename(above, away)
        try:
            os.symlink(self._outside, above)
            for _turn in range(self._random.randrange(200)):
                os.stat(self._project)
            os.unlink(above)
            os.rename(away, above)
        except OSError:  # mudroom has brought the directory back in this moment: there are two now
            self._is_at(above.name, away.name)

    def _is_at(self, old: str, new: str) -> None:
        for name in [name for name in self._written if name.startswith(old + "/")]:
            self._written[new + name[len(old) :]] = self._written.pop(name)
        self._gone = {name for name in self._gone if not name.startswith(old + "/")}


class Race:
    """A world in which a second process writes while mudroom applies, or applies and undoes."""

    def __init__(self, world: World, outside: Outside, seed: int) -> None:
        self._world, self._outside, self._seed = world, outside, seed
        self._read, write = os.pipe()
        started, starting = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            self._write_all_the_time(write, starting)
        os.close(write)
        os.close(starting)
        os.read(started, 1)
        os.close(started)

    def _write_all_the_time(self, report: int, starting: int) -> None:
        ended: list[int] = []
        try:
            signal.alarm(0)
            signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))
            writer = Writer(self._world.project, self._outside.path, self._seed)
            os.write(starting, b"!")
            while not ended:
                writer.act()
            with os.fdopen(report, "wb") as stream:
                pickle.dump(writer.words, stream)
        finally:
            os._exit(0)

    def stop(self) -> Words:
        os.kill(self._pid, signal.SIGTERM)
        with os.fdopen(self._read, "rb") as stream:
            words: Words = pickle.loads(stream.read())
        os.waitpid(self._pid, 0)
        return words


def test_a_race_with_somebody_who_writes_all_the_time(root: Path, client: Client) -> None:
    """Half of the rounds are an apply, half an apply and an undo."""
    end, rounds, acts, written, late, again = time.monotonic() + SECONDS, 0, 0, 0, 0, 0
    while rounds < ROUNDS or time.monotonic() < end:
        rounds += 1
        way = TOGETHER if why_impossible(APART) or rounds % 4 < 2 else APART
        world = World(root / f"w{rounds}", client, way, RACE, make=fill_with_names)
        outside = Outside(world.root)
        race = Race(world, outside, rounds)
        try:
            again += _until_planned(world)
            undone = rounds % 2 == 0 and world.is_applied()
            if undone:
                world.undo()
        finally:
            words = race.stop()
        late += _check_race(world, outside, words, f"round {rounds}, {way.name}", undone=undone)
        acts, written = acts + words.acts, written + len(words.written)
        world.remove()
    assert late < written // 20
    sys.stdout.write(
        f"{rounds} rounds, {acts} acts, {written} last words, {late} of them late, planned {again} times anew"
    )


def _until_planned(world: World) -> int:
    """Apply. What vanishes while it is planned is an error, and nothing has happened: so it is tried again."""
    for again in range(100):
        try:
            world.apply()
            return again
        except (FileNotFoundError, NotADirectoryError) as error:
            assert not world.is_applied(), error
            assert world.unfinished() == [], error
        except OSError as error:
            assert error.errno == errno.ELOOP, error
    raise AssertionError("it never came to be planned")


def _check_race(world: World, outside: Outside, words: Words, where: str, *, undone: bool) -> int:
    """Returns how many last words were not in their place after the apply, but in a slot: written to a file that had
    been opened just before it was replaced, just after mudroom had looked at it for the last time."""
    assert outside.is_untouched(), where
    assert world.unfinished() == [], where
    late = {name for name, token in words.written.items() if token not in _content(world, name)}
    in_slots = b"".join(path.read_bytes() for path in _slots(world))
    lost = {name for name in late if words.written[name] not in in_slots}
    assert not lost, f"{where}: what was written to {sorted(lost)} is nowhere"
    back = {name for name in words.gone if os.path.lexists(world.project / name)}
    assert undone or not back, f"{where}: {sorted(back)} were deleted and are there again"
    if world.is_applied():
        world.undo()
        lost = {name for name, token in words.written.items() if token not in _content(world, name)}
        assert not lost, f"{where}: what was written to {sorted(lost)} did not come back with undo"
        assert outside.is_untouched(), where
        assert world.unfinished() == [], where
    _check_untouched(world, words, in_slots, where)
    return len(late)


def _check_untouched(world: World, words: Words, in_slots: bytes, where: str) -> None:
    """What the writer has neither written nor deleted is as before, but for directories that there are two of now, and
    what could not be brought back because there was a link in the place of its directory: that is in its slot."""
    now = portraits(world.project)
    doubled = {name.removesuffix("-away") for name in now if name.endswith("-away")}
    touched = {*words.written, *words.gone, ".save.tmp"}
    names = {name for name in {*now, *world.before} if name.split("/")[0].removesuffix("-away") not in doubled}
    different = {
        name for name in names - touched if _kind_and_content(now, name) != _kind_and_content(world.before, name)
    }
    lost = {name for name in different if name in now or b"base \0 " + name.encode() not in in_slots}
    assert not lost, f"{where}: {sorted(lost)} were not written to, and are not as before"


def _kind_and_content(found: Portraits, name: str) -> tuple[str, str]:
    return (found[name].kind, found[name].content) if name in found else ("", "")


def _content(world: World, name: str) -> bytes:
    try:
        return (world.project / name).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""


def _slots(world: World) -> list[Path]:
    places = [*(world.state / "vaults").glob("*/applies/*/slots"), *world.project.glob(".mudroom/apply/*")]
    return [path for place in places for path in place.rglob("*") if path.is_file() and not path.is_symlink()]
