"""Processes that make, use, list, rename and discard the same few forks at the same time: nothing is lost that nobody
has discarded, no list fails, and every refusal is one line."""

from __future__ import annotations

import json
import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from conftest import Place
from listed_rows import fork_rows
from mudroom.core.approval.approval import CommandAnswer
from mudroom.core.command.policy import ClassRule, CommandPolicy
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.session import Session
from mudroom.session.approval import CommandAnswers
from mudroom.session.upkeep import problems
from tiers import QUICK, SEED, daily, sample

pytestmark = pytest.mark.slow

FORKS = ("a", "b")
PEOPLE = 4
CALLS = 20 if QUICK else sample(40)


class Event(NamedTuple):
    """What one of the crowd has done. Times by the clock that counts from the boot, which all processes share."""

    verb: str
    fork: str
    file: str
    began: float
    ended: float
    outcome: str
    """``done``, the text of a refusal, or the trace of a failure."""


class Person:
    """One process of the crowd, with sessions of its own."""

    def __init__(self, place: Place, number: int, weights: dict[str, int]) -> None:
        self._place, self._number, self._weights, self._count = place, number, weights, 0
        self._client = LauncherClient(SpawnedLauncher())
        self._client.start()

    def perform(self, calls: int) -> list[Event]:
        draw = random.Random(f"{SEED} {self._number}")
        verbs = [verb for verb, weight in self._weights.items() for _time in range(weight)]
        events = [self._event(draw.choice(verbs), draw.choice(FORKS)) for _call in range(calls)]
        self._client.close()
        return events

    def _event(self, verb: str, fork: str) -> Event:
        self._count += 1
        file = f"file-{self._number}-{self._count}"
        began = time.monotonic()
        try:
            with self._session(verb) as session:
                VERBS[verb](session, fork, file)
            outcome = "done"
        except UsageError as error:
            outcome = str(error)
        except BaseException:  # noqa: BLE001 - told to the test, which fails
            outcome = traceback.format_exc()
        return Event(verb, fork, file, began, time.monotonic(), outcome)

    def _session(self, verb: str) -> Session:
        """Commands of the session are an agent's, and asked about, if the verb is an answer."""
        place = self._place
        agent: dict[str, Any] = {}
        if verb in ANSWERS:
            answer = CommandAnswer(ANSWERS[verb], by="a test")
            agent = {
                "settings": ASKING,
                "agent": "coder",
                "commands": CommandAnswers(approver=lambda _question: answer),
            }
        return Session.open(
            os.fsencode(place.project),
            state=os.fsencode(place.state),
            home=os.fsencode(place.home),
            environ=os.environb,
            client=self._client,
            **agent,
        )


def execute(session: Session, fork: str, file: str) -> None:
    result = session.run((b"sh", b"make.sh", file.encode()), fork=fork)
    if result.approval is not None and "has changed since it was approved" in result.approval.reason:
        raise UsageError(result.approval.reason)  # the fork was another one by then
    assert result.ran and result.exit_code == 0, result
    assert file.encode() in [change.path for change in result.changeset.changes]


def refused(session: Session, fork: str, file: str) -> None:
    """An agent's command that makes a fork, perhaps, and then does not run. Others may have used the fork."""
    result = session.run((b"sh", b"make.sh", file.encode()), fork=fork)
    assert result.ran is False, result


def write(session: Session, fork: str, file: str) -> None:
    session.forks.files(fork).write(file, "x")


def look(session: Session, _fork: str, _file: str) -> None:
    rows = fork_rows(session)
    assert not [row for row in rows if row.get("problem")], rows


def discard(session: Session, fork: str, _file: str) -> None:
    with session.alone("discard"):
        session.forks.discard(fork)


def apply(session: Session, fork: str, _file: str) -> None:
    with session.alone("apply"):
        assert session.changes.apply(fork).conflicts == ()


def rollback(session: Session, fork: str, _file: str) -> None:
    with session.alone("rollback"):
        points = session.vault.fork(fork).state.checkpoints
        session.forks.rollback(fork, points[-1].name if points else "none")


VERBS: dict[str, Callable[[Session, str, str], object]] = {
    "exec": execute,
    "write": write,
    "look": look,
    "new": lambda session, fork, _file: session.forks.new(fork),
    "rename": lambda session, fork, _file: session.forks.rename(fork, FORKS[fork == FORKS[0]]),
    "fork": lambda session, fork, file: session.forks.new(file, parent=fork),
    "checkpoint": lambda session, fork, file: session.forks.checkpoint(fork, file),
    "discard": discard,
    "apply": apply,
    "rollback": rollback,
    "approved": execute,
    "refused": refused,
}
ANSWERS = {"approved": True, "refused": False}
MAKERS = ("exec", "approved", "write")
"""What they have made is never lost once they are done, but for ``LOSERS``."""
LOSERS = ("discard", "rollback")
KEEPING = {"exec": 5, "write": 2, "look": 3, "new": 1, "rename": 1, "fork": 1, "checkpoint": 1}
"""How often each verb is drawn."""
ANSWERED = {**KEEPING, "exec": 2, "approved": 4, "refused": 4, "apply": 2}
LOSING = {**ANSWERED, "discard": 2, "rollback": 2}
ASKING = Settings(commands=CommandPolicy((ClassRule("unknown", "require_approval", "policy.yaml:1", 1),)))


def crowd(place: Place, report: Path, weights: dict[str, int]) -> list[Event]:
    """Let everybody begin at once, in a process each. Return all events."""
    gate, go = os.pipe()
    people = []
    for number in range(PEOPLE):
        pid = os.fork()
        if pid == 0:
            signal.alarm(0)
            _one(place, number, weights, gate, report)
        people.append(pid)
    os.write(go, b"x" * PEOPLE)
    statuses = [os.waitpid(pid, 0)[1] for pid in people]
    os.close(gate)
    os.close(go)
    assert statuses == [0] * PEOPLE
    rows: list[Any] = [row for number in range(PEOPLE) for row in json.loads((report / str(number)).read_text())]
    return sorted((Event(*row) for row in rows), key=lambda event: event.ended)


def _one(place: Place, number: int, weights: dict[str, int], gate: int, report: Path) -> None:
    code = 1
    try:
        person = Person(place, number, weights)
        os.read(gate, 1)
        (report / str(number)).write_text(json.dumps(person.perform(CALLS)))
        code = 0
    except BaseException:  # noqa: BLE001 - of a child: printed, and told by the exit code
        traceback.print_exc()
    finally:
        os._exit(code)


@pytest.mark.parametrize("turn", range(1 if QUICK else sample(5)))
@pytest.mark.parametrize("weights", daily([KEEPING, ANSWERED, LOSING]))
@pytest.mark.limit(300)
def test_a_crowd_on_two_forks(
    place: Place, tmp_path: Path, weights: dict[str, int], turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mudroom.session.forks.PATIENCE", 0.02)
    report = tmp_path / "report"
    report.mkdir()
    place.write("make.sh", f'echo {turn} > "$1"\n')
    with place.session() as session:
        session.run((b"true",), fork="a")  # the vault is there
    events = crowd(place, report, weights)
    failures = [event for event in events if "Traceback" in event.outcome]
    assert not failures, failures[0].outcome
    with place.session() as session:
        now = {
            fork.name: {os.fsdecode(change.path) for change in session.changes.of(fork.name).changes}
            for fork in session.vault.forks()
        }
        assert problems(session) == []
    done = [event for event in events if event.outcome == "done"]
    lost = [
        event
        for event in done
        if event.verb in MAKERS
        and not (place.project / event.file).exists()
        and not any(event.file in files for files in now.values())
        and not any(other.verb in LOSERS and other.ended > event.began for other in done)
    ]
    assert not lost, (lost, now, done)
    assert not [event for event in events if event.verb == "refused" and (place.project / event.file).exists()]
    assert {"exec", "look"} <= {event.verb for event in done}
