"""Several people land, undo, redo, mount and edit in one project at the same time, as processes and as threads, in one
vault and in two: what each was told has happened to his own lines and files is what is there at the end.

Each person owns some lines of one file that all change, far enough apart that changes of two never conflict, and files
of his own. So his history is his own, and the project has to be the outcome of some order of all histories. A line may
only be unsure where mudroom has said so: by a conflict, or by ``stays``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from mudroom.errors import ForkMoved, MudroomError, UsageError
from mudroom.sandbox.client.client import Client
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.session import Session, upkeep
from tiers import QUICK, SEED, sample

pytestmark = pytest.mark.slow

PEOPLE = 3
CALLS = 6 if QUICK else sample(25)
WIDTH, APART, LINES = 16, 8, 6
"""A line has so many bytes, to be written in place; so many lines from one person's to the next; each person's own."""
VERBS = {"land": 5, "undo": 3, "redo": 2, "edit": 3, "gc": 1, "mount": 2, "unmount": 2, "look": 1, "checkpoint": 1}
"""How often each verb is drawn."""
SET = b'printf "%-15s\\n" "$1" | dd of=shared conv=notrunc bs=16 seek="$2" 2>/dev/null; echo "$1" > "file-$1"'


def line(text: str) -> bytes:
    return text.ljust(WIDTH - 1).encode() + b"\n"


class Person:
    """``lines``: what is in each of his lines, a set of possible texts where mudroom has said that it is not sure.
    ``files``: his files, and whether they are in the project. ``failures``: traces; nobody expects one."""

    def __init__(self, place: Place, state: Path, number: int, client: Client | None) -> None:
        """``client``: None makes one when it is needed: a process has its own."""
        self._place, self._state, self._client = place, state, client
        self._fork, self._draw = f"p{number}", random.Random(f"{SEED} {number}")
        self._count, self._number = 0, number
        own = range(number * APART, PEOPLE * APART * LINES, PEOPLE * APART)
        self.lines = {index: [f"line {index}"] for index in own}
        self.files: dict[str, bool] = {}
        self.failures: list[str] = []
        self.refused: list[str] = []
        self._landed: list[tuple[str, int, str, list[str]]] = []
        self._undone: list[tuple[str, int, str, list[str]]] = []
        """Applies of his own, the last one last: name, line, the text, and what the line was before."""

    def perform(self, calls: int) -> None:
        if self._client is None:
            self._client = LauncherClient(SpawnedLauncher())
            self._client.start()
        verbs = [verb for verb, weight in VERBS.items() for _time in range(weight)]
        for _call in range(calls):
            self._count += 1
            verb = self._draw.choice(verbs) if self._count > 1 else "land"
            try:
                with self._session() as session:
                    getattr(self, verb)(session)
            except (UsageError, ForkMoved) as error:
                self.refused.append(f"{verb}: {error}")
            except MudroomError as error:
                self.failures.append(f"{verb}: {error!r}")
            except BaseException:  # noqa: BLE001 - told to the test, which fails
                self.failures.append(f"{verb}: {traceback.format_exc()}")

    def _session(self) -> Session:
        place = self._place
        return Session.open(
            os.fsencode(place.project), state=os.fsencode(self._state), home=os.fsencode(place.home),
            environ=os.environb, client=self._client,
        )  # fmt: skip

    # --- verbs ---

    def land(self, session: Session) -> None:
        index, text = self._draw.choice(list(self.lines)), f"{self._number}-{self._count}"
        result = session.run((b"sh", b"-c", SET, b"sh", text.encode(), b"%d" % index), fork=self._fork)
        assert result.exit_code == 0, result
        with session.alone("land"):
            landed = session.changes.apply(self._fork)
            name, before = landed.applied.name, self.lines[index]
            if not {conflict.path for conflict in landed.conflicts} & {b"shared"}:
                self.lines[index] = [text]
                self._landed.append((name, index, text, before))
            self.files[text] = b"file-" + text.encode() not in {conflict.path for conflict in landed.conflicts}
            if landed.remaining:
                self._start_anew(session)

    def _start_anew(self, session: Session) -> None:
        """Leave nothing in the fork that a later apply would land, too."""
        with suppress(UsageError):
            session.forks.unmount(self._fork)
        session.forks.discard(self._fork)

    def undo(self, session: Session) -> None:
        if self._landed:
            name, index, text, before = self._landed.pop()
            with session.alone("undo"):
                undone = session.changes.undo(name)
            self._turned(index, before, {conflict.path for conflict in undone.conflicts})
            self.files[text] = False
            self._undone.append((name, index, text, before))
            if undone.again:
                self._start_anew(session)

    def redo(self, session: Session) -> None:
        if self._undone:
            name, index, text, before = self._undone.pop()
            with session.alone("redo"):
                redone = session.changes.redo(name)
            self._turned(index, [text], {conflict.path for conflict in redone.conflicts})
            self.files[text] = True
            self._landed.append((name, index, text, before))

    def _turned(self, index: int, to: list[str], stays: set[bytes]) -> None:
        self.lines[index] = self.lines[index] + to if b"shared" in stays or len(self.lines[index]) > 1 else to

    def edit(self, _session: Session) -> None:
        """As an editor that writes in place: nothing else may be lost, nor this, whatever lands meanwhile."""
        index, text = self._draw.choice(list(self.lines)), f"{self._number}-{self._count}"
        descriptor = os.open(self._place.project / "shared", os.O_WRONLY)
        os.pwrite(descriptor, line(text), index * WIDTH)
        os.close(descriptor)
        self.lines[index] = [text]
        self._landed = [one for one in self._landed if one[1] != index]  # undone later, it would be a conflict
        self._undone = [one for one in self._undone if one[1] != index]

    def gc(self, session: Session) -> None:
        with session.alone("gc"):
            upkeep.sweep(session.vault, upkeep.retention_limits(session.actor.settings), time.time_ns())

    def mount(self, session: Session) -> None:
        session.forks.mount(self._fork)

    def unmount(self, session: Session) -> None:
        session.forks.unmount(self._fork)

    def leave(self) -> None:
        """Unmount what he has left mounted."""
        with self._session() as session, suppress(UsageError):
            session.forks.unmount(self._fork)

    def look(self, session: Session) -> None:
        session.changes.review(self._fork)

    def checkpoint(self, session: Session) -> None:
        session.forks.checkpoint(self._fork, f"c{self._count}")


Crowd = Callable[[list[Person], Path], list[dict[str, Any]]]


def as_processes(people: list[Person], report: Path) -> list[dict[str, Any]]:
    """Let everybody begin at once, in a process each, and return what they say."""
    gate, go = os.pipe()
    children = []
    for number, person in enumerate(people):
        child = os.fork()
        if child == 0:
            signal.alarm(0)
            try:
                os.read(gate, 1)
                person.perform(CALLS)
                (report / str(number)).write_text(json.dumps(vars_of(person)))
            finally:
                os._exit(0)
        children.append(child)
    os.write(go, b"x" * len(people))
    for child in children:
        os.waitpid(child, 0)
    os.close(gate)
    os.close(go)
    return [json.loads((report / str(number)).read_text()) for number in range(len(people))]


def as_threads(people: list[Person], _report: Path) -> list[dict[str, Any]]:
    threads = [threading.Thread(target=person.perform, args=(CALLS,)) for person in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [json.loads(json.dumps(vars_of(person))) for person in people]


def vars_of(person: Person) -> dict[str, Any]:
    return {key: getattr(person, key) for key in ("lines", "files", "failures", "refused")}


@pytest.mark.parametrize(
    ("crowd", "vaults"),
    [
        pytest.param(as_processes, 1, marks=pytest.mark.deep),
        (as_processes, 2),
        (as_threads, 1),
        pytest.param(as_threads, 2, marks=pytest.mark.deep),
    ],
)
@pytest.mark.limit(300)
def test_what_each_was_told_is_what_is_there(
    place: Place, client: Client, tmp_path: Path, crowd: Crowd, vaults: int
) -> None:
    place.write("shared", b"".join(line(f"line {index}") for index in range(PEOPLE * APART * LINES)).decode())
    report = tmp_path / "report"
    report.mkdir()
    states = [place.state, tmp_path / "other"]
    states[1].mkdir()
    own = client if crowd is as_threads else None
    people = [Person(place, states[number % vaults], number, own) for number in range(PEOPLE)]
    told = crowd(people, report)
    for person in people:
        person.leave()
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    now = (place.project / "shared").read_bytes()
    assert len(now) == WIDTH * PEOPLE * APART * LINES
    for one in told:
        assert one["failures"] == [], one["failures"][0]
    for one in told:
        for index, texts in one["lines"].items():
            found = now[int(index) * WIDTH : (int(index) + 1) * WIDTH].decode().strip()
            assert found in texts, (index, found, texts, told)
        for text, there in one["files"].items():
            assert (place.project / f"file-{text}").exists() is there, (text, there, told)
    names = {"shared", ".mudroom"} | {f"file-{text}" for one in told for text in one["files"]}
    assert {path.name for path in place.project.iterdir()} <= names
