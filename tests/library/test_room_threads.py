"""Ten threads in two rooms on one project, under a scheduler that switches between them all the time: docs/LIBRARY.md
promises that a room may be used from any number of threads.

Nothing else than a refusal is raised, no work is lost or in another fork, and nothing is left open.
"""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import mudroom
from conftest import Place
from mudroom import session, stage, vault
from mudroom.errors import MudroomError
from mudroom.sandbox.client.client import Client
from mudroom.session.upkeep import problems
from rooms import open_room
from tiers import examples

KEPT, ROUGH = ("a", "b"), ("x", "y")
"""Forks whose files all stay, and those that are rolled back and discarded as well."""
CALLS = (
    "write", "write", "edit", "share", "share", "read", "search", "delete", "exec", "checkpoint", "diff", "apply",
    "flush", "fork",
)  # fmt: skip
ROUGH_CALLS = (*CALLS, "rollback", "discard", "discard")
STEP = st.one_of(
    st.tuples(st.sampled_from(CALLS), st.sampled_from(KEPT)),
    st.tuples(st.sampled_from(ROUGH_CALLS), st.sampled_from(ROUGH)),
)
THREADS = 10
PLANS = st.lists(st.lists(STEP, min_size=2, max_size=6), min_size=THREADS, max_size=THREADS)


@contextmanager
def switching() -> Iterator[None]:
    """Let threads take turns as often as the interpreter permits: between any two of its instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class Worker:
    """One thread's calls. Its files are its own; ``written`` has those that must be found at the end."""

    def __init__(self, room: mudroom.Room, number: int) -> None:
        self.room, self.number = room, number
        self.written: dict[str, dict[str, str]] = {fork: {} for fork in (*KEPT, *ROUGH)}
        self.errors: list[str] = []
        self.shared = dict.fromkeys(KEPT, 0)
        """Edits of the thread's own line in the file of its room."""
        self._names = itertools.count()

    def perform(self, plan: list[tuple[str, str]], start: threading.Barrier) -> None:
        start.wait()
        for call, fork in plan:
            try:
                getattr(self, call)(fork)
            except MudroomError:
                if fork in KEPT and call not in ("apply", "checkpoint", "diff"):
                    self.errors.append(f"{call} in {fork}\n{traceback.format_exc()}")
            except BaseException:  # noqa: BLE001 - of a thread: told to the test
                self.errors.append(f"{call} in {fork}\n{traceback.format_exc()}")

    def _new(self, fork: str) -> str:
        return f"{fork}/{self.number}-{next(self._names)}"

    def write(self, fork: str) -> None:
        name = self._new(fork)
        files = self.room.fork(fork)
        files.write(name, f"{name}\n")
        self.written[fork][name] = f"{name}\n"
        if fork in KEPT:
            assert files.read(name) == f"{name}\n", "its own write is read"

    def edit(self, fork: str) -> None:
        for name, content in list(self.written[fork].items())[-1:]:
            if fork in KEPT:
                self.room.fork(fork).edit(name, content, f"{content}more\n")
                self.written[fork][name] = f"{content}more\n"

    def share(self, fork: str) -> None:
        if fork in KEPT:
            before = self.shared[fork]
            line = f"{self.number}: {{}}\n"
            self.room.fork(fork).edit(shared_file(fork, self.number), line.format(before), line.format(before + 1))
            self.shared[fork] += 1

    def delete(self, fork: str) -> None:
        for name in list(self.written[fork])[:1]:
            if fork in KEPT:
                self.room.fork(fork).delete(name)
                del self.written[fork][name]

    def read(self, fork: str) -> None:
        files = self.room.fork(fork)
        for name, content in self.written[fork].items():
            if fork in KEPT:
                assert files.read(name) == content, "its own work is read"

    def search(self, fork: str) -> None:
        found = {match.path for match in self.room.fork(fork).search(f"^{fork}/{self.number}-")}
        assert fork not in KEPT or found == set(self.written[fork])

    def exec(self, fork: str) -> None:
        name = self._new(fork)
        result = self.room.run(f"mkdir -p {fork}; echo {name} > {name}; cat {name}", fork=fork)
        assert (result.stdout, result.exit_code) == (f"{name}\n", 0)
        self.written[fork][name] = f"{name}\n"

    def checkpoint(self, fork: str) -> None:
        self.room.fork(fork).checkpoint(f"c-{self.number}-{next(self._names)}")

    def rollback(self, fork: str) -> None:
        self.room.fork(fork).rollback()

    def diff(self, fork: str) -> None:
        for line in self.room.diff(fork).splitlines():
            assert not line.startswith("+++ ") or line.startswith(f"+++ b/{fork}"), "a file of another fork"

    def apply(self, fork: str) -> None:
        self.room.apply(fork).check()

    def flush(self, fork: str) -> None:
        self.room.fork(fork).flush()

    def fork(self, fork: str) -> None:
        self.room.fork(f"{fork}-of-{self.number}-{next(self._names)}", parent=fork)

    def discard(self, fork: str) -> None:
        self.room.discard(fork)


def shared_file(fork: str, number: int) -> str:
    """Return the file that the threads of one room edit together, each its own line."""
    return f"{fork}-of-room-{number % 2}"


@pytest.fixture(scope="module", autouse=True)
def imported(tmp_path_factory: pytest.TempPathFactory, client: Client) -> None:
    """Import what the calls import in one thread: pytest compiles it by ``ast``, which several threads cannot use."""
    for package in (session, stage, vault):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    place = Place(tmp_path_factory.mktemp("imported"), client)
    with open_room(place) as room, open_room(place) as other:
        one = Worker(room, 0)
        room.fork("a").write(shared_file("a", 0), shared_lines([one], "a"))
        for call in dict.fromkeys(("exec", *ROUGH_CALLS)):
            other.changes("a")
            one.perform([(call, "a")], threading.Barrier(1))


@pytest.mark.deep
@pytest.mark.limit(300)
@given(plans=PLANS)
@settings(max_examples=examples(20), phases=(Phase.generate,), print_blob=True)  # no smaller plan fails for certain
def test_two_rooms_in_ten_threads(
    tmp_path_factory: pytest.TempPathFactory, client: Client, plans: list[list[tuple[str, str]]]
) -> None:
    place = Place(tmp_path_factory.mktemp("rooms"), client)
    rooms = [open_room(place), open_room(place)]
    workers = [Worker(rooms[number % 2], number) for number in range(THREADS)]
    for fork, number in itertools.product(KEPT, (0, 1)):
        rooms[0].fork(fork).write(shared_file(fork, number), shared_lines(workers[number::2], fork))
        rooms[0].fork(fork).flush()
    start = threading.Barrier(THREADS)
    threads = [
        threading.Thread(target=one.perform, args=(plan, start)) for one, plan in zip(workers, plans, strict=True)
    ]
    with switching():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for room in rooms:
            room.close()
    errors = [error for one in workers for error in one.errors]
    assert not errors, "\n".join(errors)
    look_after(place, workers)
    place.close()


def shared_lines(workers: list[Worker], fork: str) -> str:
    return "".join(f"{one.number}: {one.shared[fork]}\n" for one in workers)


def look_after(place: Place, workers: list[Worker]) -> None:
    """Every file is where it was written, with what was written last: in its fork, or landed."""
    with open_room(place) as room:
        for fork in KEPT:
            files, changed = room.fork(fork), set(room.changes(fork).paths)
            expected = {name: content for one in workers for name, content in one.written[fork].items()}
            for number in (0, 1):
                expected[shared_file(fork, number)] = shared_lines(workers[number::2], fork)
            found = {name: files.read(name) for name in files.glob(f"{fork}/*") + files.glob(f"{fork}-*")}
            assert found == expected, f"lost, or not removed: {sorted(found.items() ^ expected.items())}"
            assert all(path.startswith(fork) for path in changed), "a file of another fork"
            lost = {name for name in expected if name not in changed and not (place.project / name).exists()}
            assert not lost, "neither changed nor landed"
    assert problems(place.session()) == []
