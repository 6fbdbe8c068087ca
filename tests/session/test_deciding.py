"""An agent's commands are judged before they run: verdicts in action, through the library."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from conftest import Place
from mudroom.core.approval.approval import CommandAnswer, CommandQuestion
from mudroom.core.command.checkpoint_name import checkpoint_stem
from mudroom.core.command.policy import ClassRule, CommandPolicy
from mudroom.core.command.verdict import Action, Verdict
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError
from mudroom.session import Session
from mudroom.session.approval import CommandAnswers
from mudroom.session.upkeep import QueueApprover
from tiers import each


def policy(**actions: Action) -> Settings:
    return Settings(commands=CommandPolicy(tuple(ClassRule(name, what) for name, what in actions.items())))  # type: ignore[arg-type]


def events(session: Session, *kinds: str) -> list[dict[str, Any]]:
    return [json.loads(one.data) for one in session.vault.journal.events() if one.kind in kinds]


class Answers:
    """An approver with answers that are given beforehand."""

    def __init__(self, *answers: CommandAnswer) -> None:
        self.answers = list(answers)
        self.questions: list[CommandQuestion] = []

    def __call__(self, question: CommandQuestion) -> CommandAnswer:
        self.questions.append(question)
        return self.answers.pop(0)


def test_the_user_s_own_commands_are_not_judged(place: Place) -> None:
    session = place.session(policy(destructive="deny", mutating="deny"))
    result = session.run([b"rm", b"-rf", b"nothing"])
    assert (result.ran, result.exit_code, result.verdict.action) == (True, 0, "allow")


def test_a_denied_command_does_not_run(place: Place) -> None:
    place.write("precious", "p")
    session = place.session(policy(destructive="deny"), agent="coder")
    result = session.run([b"rm", b"precious"], fork="f")
    assert (result.ran, result.exit_code, list(result.changeset.changes)) == (False, 126, [])
    assert result.verdict.action == "deny"
    assert result.verdict.rule == "class destructive"
    assert result.verdict.instead
    assert session.vault.find("f") is None
    (told,) = events(session, "verdict")
    assert (told["agent"], told["verdict"]["action"], told["command"]) == ("coder", "deny", ["rm", "precious"])
    assert events(session, "run") == []


def test_a_refusal_that_cannot_be_journalled_is_one(place: Place) -> None:
    place.write("precious", "p")
    session = place.session(policy(destructive="deny"), agent="coder")
    session.vault.journal.append("note", "", {}, time=1)
    path = os.fsdecode(session.vault.path) + "/journal.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(
            "CREATE TRIGGER full BEFORE INSERT ON event WHEN NEW.kind = 'verdict' "
            "BEGIN SELECT RAISE(FAIL, 'disk I/O error'); END"
        )
    with pytest.raises(MudroomError) as told:
        session.run([b"rm", b"precious"], fork="f")
    assert told.value.message == f"the command was refused; the journal {path} cannot be used: disk I/O error"
    assert session.vault.find("f") is None and (place.project / "precious").exists()


def test_a_checkpoint_before_what_destroys_and_back(place: Place) -> None:
    place.write("a", "1")
    session = place.session(agent="coder")
    session.run([b"sh", b"-c", b"echo 2 > a"], fork="f")
    result = session.run([b"rm", b"-r", b"a"], fork="f")
    assert result.verdict.action == "allow_with_checkpoint"
    assert result.checkpoint == "before-rm-r-a-1"
    assert [one.verb for one in session.changes.of("f").changes] == ["deleted"]
    session.forks.rollback("f", result.checkpoint)
    assert session.forks.files("f").read(b"a").decode() == "2\n"


def test_what_changes_nothing_pushes_no_checkpoint_out(place: Place) -> None:
    session = place.session(Settings(keep_applies=2), agent="coder")
    session.run([b"touch", b"a"], fork="f")
    session.run([b"rm", b"a"], fork="f")
    for number in range(5):
        session.run([b"rm", b"-f", b"none%d" % number], fork="f")
    names = [one.name for one in session.vault.fork("f").state.checkpoints]
    assert names == ["before-rm-a-1", *(f"before-rm-f-none{number}-1" for number in range(5))]


@each(
    ("argv", "name"),
    [
        ([b"rm", b"-r", b"a"], "before-rm-r-a"),
        ([b"/usr/bin/rm", b"-r", b"a b"], "before-rm-r-a-b"),
        ([b"bash", b"-c", b"rm -r a\nrm b"], "before-rm-r-a"),
        ([b"sh", b"-c", b"export DB_PASSWORD=hunter2hunter2; ./deploy"], "before-export-DB_PASSWORD-redacted-.-deploy"),
        ([b"redis-cli", b"-a", b"s3cretpass99", b"flushall"], "before-redis-cli-a-redacted-flushall"),
        ([b"rm", b"known-to-be-secret"], "before-rm-redacted"),
        ([b"./\xff\n"], "before-xff-n"),
        ([b"///"], "before"),
    ],
)
def test_the_name_of_a_checkpoint(argv: list[bytes], name: str) -> None:
    assert checkpoint_stem(argv, {"known-to-be-secret"}) == name


def test_old_automatic_checkpoints_go(place: Place) -> None:
    session = place.session(Settings(keep_applies=3), agent="coder")
    session.run([b"touch", b"x"], fork="f")
    session.forks.checkpoint("f", "mine")
    for number in range(5):
        session.run([b"touch", b"x%d" % number], fork="f")
        session.run([b"rm", b"x%d" % number], fork="f")
    names = [one.name for one in session.vault.fork("f").state.checkpoints]
    assert names == ["mine", "before-rm-x2-1", "before-rm-x3-1", "before-rm-x4-1"]


def test_an_approved_command_runs_and_the_answer_is_kept(place: Place) -> None:
    kept: list[tuple[str, bool]] = []
    ask = Answers(CommandAnswer(True, keep=True, by="test"))
    settings = policy(mutating="require_approval")
    session = place.session(
        settings,
        agent="coder",
        commands=CommandAnswers(approver=ask, remember=lambda pattern, allow: kept.append((pattern, allow))),
    )
    result = session.run([b"touch", b"x"], fork="f")
    assert (result.ran, result.exit_code) == (True, 0)
    assert result.checkpoint is not None
    assert "approved by test" in result.verdict.reason
    (question,) = ask.questions
    assert (question.command, question.fork, question.agent) == ((b"touch", b"x"), "f", "coder")
    assert session.run([b"touch", b"x"], fork="g").verdict.rule == "asked", "it holds in this session, too"
    assert kept == [(question.pattern, True)] and question.rule(False) == "touch x"
    (told,) = events(session, "approval")
    assert (told["allow"], told["by"]) == (True, "test")


@pytest.mark.parametrize("ask", [None, Answers(CommandAnswer(False, by="test", reason="not today"))])
def test_a_refused_command_does_not_run(place: Place, ask: Answers | None) -> None:
    session = place.session(policy(mutating="require_approval"), agent="coder", commands=CommandAnswers(approver=ask))
    result = session.run([b"touch", b"x"], fork="f")
    assert (result.ran, result.exit_code, result.verdict.action) == (False, 126, "require_approval")
    assert "; refused" in result.verdict.reason
    assert session.vault.find("f") is None


def test_a_rule_that_cannot_be_written_is_an_answer_for_once(place: Place) -> None:
    def full(_pattern: str, _allow: bool) -> None:
        raise MudroomError("no room")

    ask = Answers(CommandAnswer(True, keep=True, by="test"), CommandAnswer(False, by="test"))
    session = place.session(
        policy(mutating="require_approval"), agent="coder", commands=CommandAnswers(approver=ask, remember=full)
    )
    result = session.run([b"touch", b"x"], fork="f")
    assert result.ran
    assert result.approval is not None
    assert (result.approval.keep, result.approval.reason) == (False, "the rule could not be written: no room")
    assert not session.run([b"touch", b"x"], fork="f").ran


def test_an_answer_about_a_new_fork_holds_for_the_next_new_one(place: Place) -> None:
    first = place.session(policy(mutating="require_approval"), agent="coder")
    first.approval.ask_about(QueueApprover(first.vault.approvals, 0))
    assert not first.run([b"touch", b"x"]).ran
    (row,) = first.vault.approvals.rows()
    first.vault.approvals.decide(row.name, allow=True, by="test")
    assert first.run([b"touch", b"x"]).ran
    assert not first.run([b"touch", b"x"]).ran, "once"


def test_an_approver_that_fails_is_a_refusal(place: Place) -> None:
    def broken(_question: CommandQuestion) -> CommandAnswer:
        raise RuntimeError("out of order")

    session = place.session(
        policy(mutating="require_approval"), agent="coder", commands=CommandAnswers(approver=broken)
    )
    result = session.run([b"touch", b"x"])
    assert not result.ran
    assert "out of order" in result.verdict.reason
    assert session.vault.forks() == []


def test_decide_on_asks_nobody(place: Place) -> None:
    ask = Answers()
    session = place.session(agent="coder", commands=CommandAnswers(approver=ask))
    assert session.approval.decide_on([b"ls"]) == Verdict(
        "allow", ("read_only",), "default", session.approval.decide_on([b"ls"]).reason
    )
    assert session.approval.decide_on([b"sudo", b"ls"]).action == "require_approval"
    assert ask.questions == []
