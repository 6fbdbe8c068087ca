"""A race with another process that edits the project as fast as it can while an apply or an undo runs.

``MUDROOM_WRITER=SECONDS``, a few in the normal run. The rule is that of ``test_second_writer.py``: nothing of the
user's is overwritten, none of it is lost.
"""

from __future__ import annotations

import errno
import os
import pickle
import random
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from mudroom.sandbox.client.client import Client
from user_acts import Outside, root
from world import APART, TOGETHER, Portraits, World, portraits, why_impossible

__all__ = ["root"]


SECONDS = float(os.environ.get("MUDROOM_WRITER", "4"))
ROUNDS = 4
"""At least, however long they take: both ways, with an undo and without."""
pytestmark = [pytest.mark.slow]


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
