"""Answers for an hour: the same question in the same fork is answered again; nothing else is, and not for longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from inner_path import inner
from mudroom.core.approval.approval import CommandQuestion, HostQuestion
from mudroom.core.approval_queue import QueueDecision
from mudroom.core.clock import SECOND, Moment
from mudroom.core.command.verdict import Verdict
from mudroom.errors import MudroomError
from mudroom.vault.approvals.queue import Queue

VERDICT = Verdict("require_approval", ("host_escape_risk",), "class host_escape_risk", "loads a module")
COMMAND = CommandQuestion((b"insmod", b"x.ko"), b"/p", "f", "claude", VERDICT, "insmod x.ko", "1234")
HOST = HostQuestion("registry.example", 443, "CONNECT", "f", "claude")
BOTH = pytest.mark.parametrize("question", [COMMAND, HOST], ids=["command", "host"])


class Clock:
    def __init__(self) -> None:
        self.wall, self.running, self.boot = 10**18, 10**12, "first"

    def __call__(self) -> Moment:
        return Moment(self.wall, self.running, self.boot)

    def later(self, seconds: int) -> None:
        self.wall += seconds * SECOND
        self.running += seconds * SECOND


class Asking:
    def __init__(self, vault: bytes) -> None:
        self.clock = Clock()
        self.queue = Queue(vault, self.clock)

    def ask(self, question: CommandQuestion | HostQuestion) -> tuple[str, QueueDecision | None]:
        """Ask without waiting, and return the question's name with its answer."""
        with self.queue.put(question, 0) as ticket:
            return ticket.asked.name, ticket.look()

    def allowed(self, question: CommandQuestion | HostQuestion) -> str:
        """Ask, and allow it for an hour."""
        name, answer = self.ask(question)
        assert answer is None
        self.queue.decide(name, allow=True, by="page", hour=True)
        return name

    def is_open(self, question: CommandQuestion | HostQuestion) -> bool:
        return self.ask(question)[1] is None


@pytest.fixture
def asking(tmp_path: Path) -> Asking:
    return Asking(inner(tmp_path))


@BOTH
def test_each_repeated_question_has_a_decision_of_its_own(
    asking: Asking, question: CommandQuestion | HostQuestion
) -> None:
    first = asking.allowed(question)
    assert asking.ask(question)[0] == first
    names = {first}
    for _time in range(3):
        asking.clock.later(600)
        name, answer = asking.ask(question)
        assert answer is not None
        assert answer[1:2] == ("allowed",)
        assert answer.reason == f"answered for an hour: {first}"
        assert answer.by == "page"
        names.add(name)
    assert len(names) == 4


@BOTH
def test_it_ends_after_an_hour_however_often_it_was_used(
    asking: Asking, question: CommandQuestion | HostQuestion
) -> None:
    asking.allowed(question)
    for _time in range(4):
        asking.clock.later(899)
        assert not asking.is_open(question)
    asking.clock.later(5)
    assert asking.is_open(question)


def test_a_clock_that_is_set_back_does_not_extend_it(asking: Asking) -> None:
    asking.allowed(COMMAND)
    asking.clock.later(3601)
    asking.clock.wall -= 7200 * SECOND
    assert asking.is_open(COMMAND)


def test_nor_a_reboot_with_an_older_clock(asking: Asking) -> None:
    asking.allowed(COMMAND)
    asking.ask(COMMAND)
    asking.clock.wall -= SECOND
    asking.clock.boot, asking.clock.running = "second", SECOND
    assert asking.is_open(COMMAND)


@pytest.mark.parametrize(
    "other",
    [
        COMMAND._replace(fork="g"),
        COMMAND._replace(agent="codex"),
        COMMAND._replace(fingerprint="5"),
        HOST._replace(port=80),
        HOST._replace(host="other.example"),
        HOST._replace(fork="g"),
        HOST._replace(hold="@npm"),
    ],
)
def test_it_answers_no_other_question(asking: Asking, other: CommandQuestion | HostQuestion) -> None:
    asking.allowed(COMMAND)
    asking.allowed(HOST)
    assert asking.is_open(other)


@BOTH
def test_it_ends_with_its_fork(asking: Asking, question: CommandQuestion | HostQuestion) -> None:
    asking.allowed(question)
    assert not asking.is_open(question)
    asking.queue.withdraw(("f",), "its fork is discarded")
    assert asking.is_open(question)


def test_nor_does_an_unused_answer_outlive_its_fork(asking: Asking) -> None:
    name, _none = asking.ask(COMMAND)
    asking.queue.decide(name, allow=True, by="page")
    asking.queue.withdraw(("f",), "its fork is discarded")
    assert asking.is_open(COMMAND)


def test_a_refusal_takes_it_back(asking: Asking) -> None:
    name = asking.allowed(COMMAND)
    asking.ask(COMMAND)
    decision, is_first = asking.queue.decide(name, allow=False, by="page")
    assert (decision.state, is_first) == ("withdrawn", True)
    assert asking.is_open(COMMAND)


def test_but_not_while_its_waiter_has_not_used_it(asking: Asking) -> None:
    with asking.queue.put(COMMAND, 0) as ticket:
        name = ticket.asked.name
        asking.queue.decide(name, allow=True, by="page", hour=True)
        with pytest.raises(MudroomError, match=f"{name} is being used by a command"):
            asking.queue.decide(name, allow=False, by="page")
        used = ticket.look()
    assert used is not None
    assert used.state == "allowed"


def test_an_answer_that_is_over_cannot_be_taken_back(asking: Asking) -> None:
    name = asking.allowed(COMMAND)
    asking.clock.later(3601)
    decision, is_first = asking.queue.decide(name, allow=False, by="page")
    assert (decision.state, is_first) == ("allowed", False)


def test_a_repeated_answer_that_cannot_be_written_leaves_no_waiter(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking.allowed(COMMAND)
    asking.ask(COMMAND)

    def full(_place: bytes, _decision: QueueDecision) -> bool:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("mudroom.vault.approvals.question.decide", full)
        with pytest.raises(MudroomError, match="No space left on device"):
            asking.ask(COMMAND)
    assert not any(row.waiter for row in asking.queue.rows())
