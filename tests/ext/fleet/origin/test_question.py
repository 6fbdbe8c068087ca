"""Workers' questions: shown under the origin's names, answered like all others, and never believed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from mudroom.core.approval.approval import CommandAnswer, CommandQuestion
from mudroom.core.command.verdict import Verdict
from mudroom.core.network.flow import FlowAnswer, FlowQuestion
from mudroom.ext.fleet.origin.errand_log import ErrandRow
from mudroom.ext.fleet.origin.link import OriginLink
from mudroom.ext.fleet.origin.question import MOST, MOST_OF_WORKER, QueuedQuestions
from mudroom.ext.fleet.wire.frame import LinkError
from mudroom.ext.fleet.wire.message import ANSWER, Answer, Ask, Errand, message_of
from mudroom.vault.approvals.queue import Queue

MESSAGE = Errand("e" * 16, 1, b"", (b"true",), b"", (), 1, b"", 0.0, agent="coder")
ERRAND = ErrandRow("e" * 16, "r1", 1, "r1-1", MESSAGE)
VERDICT = Verdict("require_approval", ("networked",), "policy.yaml:3", "installs packages")
COMMAND = CommandQuestion(
    (b"npm", b"install"), b"/home/ann/proj", "some-fork", "coder", VERDICT, "npm install", "f" * 32, (), ("level 1",)
)


class Asked:
    """One run's questions, with their own clock."""

    def __init__(self, path: Path) -> None:
        self.now = 0.0
        self.commands: set[int] = set()
        self.told: list[tuple[str, str, str]] = []
        self.queue = Queue(os.fsencode(path))
        self.questions = QueuedQuestions(
            self.queue, 300.0, lambda *words: self.told.append(cast("tuple[str, str, str]", words)), lambda: self.now
        )
        self.link = cast("OriginLink", object())

    def command(self, number: int, **fields: Any) -> None:
        self.commands.add(number)
        question = msgspec.msgpack.encode(COMMAND._replace(**fields))
        self.questions.ask("big", ERRAND, self.link, 7, Ask(number, "command", question))

    def host(self, number: int, host: str = "registry.example", port: int = 443) -> None:
        question = msgspec.msgpack.encode(FlowQuestion(1, host, port, "https", "x"))
        self.questions.ask("big", ERRAND, self.link, 7, Ask(number, "host", question))

    def answers(self) -> list[tuple[int, Any]]:
        """Return each answered question's number and answer."""
        found = []
        for link, frame in self.questions.poll():
            assert link is self.link and (frame.kind, frame.stream) == (ANSWER, 7)
            answer = message_of(frame, Answer)
            kind: Any = CommandAnswer if answer.number in self.commands else FlowAnswer
            found.append((answer.number, msgspec.msgpack.decode(answer.answer, type=kind)))
        return found


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path)


def test_a_question_is_shown_with_the_origin_s_names(asked: Asked) -> None:
    asked.command(1, fork="innocent", agent="somebody", pattern="rm *", terms=("level 2",))
    assert asked.answers() == []
    (row,) = asked.queue.rows()
    question = row.asked.question
    assert isinstance(question, CommandQuestion)
    assert (question.fork, question.agent, question.command) == ("r1-1 on big", "coder", (b"npm", b"install"))
    assert question.pattern == "" and question.fingerprint.startswith("fleet-")
    assert asked.told == [("r1-1 on big", "a command", row.name)]
    asked.queue.decide(row.name, allow=True, by="test", keep=True)
    ((number, answer),) = asked.answers()
    assert number == 1 and answer.allow and not answer.keep
    assert asked.answers() == []


def test_a_question_uses_up_no_answer_to_another(asked: Asked) -> None:
    """The worker sends a fingerprint whose question was answered while nothing waited."""
    local = COMMAND._replace(fork="r1-1 on big")
    asked.queue.put(local, 300.0).close()
    asked.queue.decide(asked.queue.rows()[0].name, allow=True, by="test")
    asked.command(1, fork=local.fork, fingerprint=local.fingerprint)
    assert asked.answers() == []
    assert [row.used for row in asked.queue.rows()] == [False, False]


def test_an_answer_about_a_host_that_is_kept_holds_for_the_run(asked: Asked) -> None:
    asked.host(1)
    asked.host(2, "other.example")
    assert asked.answers() == []
    by_host = {getattr(row.asked.question, "host", ""): row.name for row in asked.queue.rows()}
    asked.queue.decide(by_host["registry.example"], allow=True, by="test", keep=True)
    asked.queue.decide(by_host["other.example"], allow=False, by="test")
    answers = dict(asked.answers())
    assert answers[1].allowed and not answers[1].keep and not answers[2].allowed
    asked.host(3)
    ((number, answer),) = asked.answers()
    assert number == 3 and answer.allowed
    assert len(asked.queue.rows()) == 2


def test_nobody_answers(asked: Asked) -> None:
    asked.command(1)
    asked.host(2)
    assert asked.answers() == []
    asked.now = 301.0
    answers = dict(asked.answers())
    assert not answers[1].allow and not answers[2].allowed
    asked.questions.close()


def test_a_thousand_questions_wait_for_their_turn(asked: Asked) -> None:
    for number in range(MOST_OF_WORKER):
        asked.host(number, f"h{number}.example")
    with pytest.raises(LinkError, match="asks more than"):
        asked.host(0)
    assert asked.answers() == []
    assert len(asked.queue.rows()) == MOST
    for row in asked.queue.rows()[:10]:
        asked.queue.decide(row.name, allow=False, by="test")
    assert len(asked.answers()) == 10
    asked.questions.forget(asked.link)
    assert asked.answers() == []
    assert all(row.decision is not None for row in asked.queue.rows())


def test_what_is_no_question_is_an_offence(asked: Asked) -> None:
    for kind, body in (
        ("command", b""),
        ("command", msgspec.msgpack.encode(("npm", 1))),
        ("command", msgspec.msgpack.encode(COMMAND._replace(verdict=VERDICT._replace(action=cast("Any", "grant"))))),
        ("command", b"\x91" * 5000),
        ("host", msgspec.msgpack.encode((1, "x", -1, "https", ""))),
        ("host", msgspec.msgpack.encode((1, "x", 65536, "https", ""))),
        *(
            ("host", msgspec.msgpack.encode((1, host, 443, "https", "")))
            for host in ("", "*", "*.example", "a.example (press a)", "A.example", "a\x1b[2J\r.example", "10.0.0.0/8")
        ),
        ("file", msgspec.msgpack.encode(COMMAND)),
    ):
        with pytest.raises(LinkError):
            asked.questions.ask("big", ERRAND, asked.link, 7, Ask(1, kind, body))
    assert asked.queue.rows() == []


def test_texts_of_a_question_are_escaped(asked: Asked) -> None:
    asked.command(2, verdict=VERDICT._replace(reason="\x1b]0;x\x07", rule="\x1b[2J"))
    asked.answers()
    shown = "".join(str(row.asked.question) for row in asked.queue.rows()) + str(asked.told)
    assert "\x1b" not in shown and "\x07" not in shown
