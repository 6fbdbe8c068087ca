"""Agents' commands that wait for an approval in the queue, from the question to the run: who answers, when, and what
has changed in between."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from conftest import Place, act_as
from mudroom.core.approval.approval import CommandAnswer, CommandQuestion
from mudroom.core.command.policy import ClassRule, CommandPolicy
from mudroom.core.command.verdict import CLASSES
from mudroom.core.settings import Settings
from mudroom.errors import CommandNotStarted
from mudroom.session import Session
from mudroom.session.approval import CommandAnswers
from mudroom.session.order import Case, Order
from mudroom.vault.approvals.approver import QueueApprover
from mudroom.vault.approvals.queue import Queue

SETTINGS = Settings(commands=CommandPolicy((ClassRule("unknown", "require_approval", "policy.yaml:1", 1),)))
LATER = 0.0


def session_of(place: Place, ask: Callable[[CommandQuestion], CommandAnswer]) -> Session:
    return place.session(SETTINGS, agent="coder", commands=CommandAnswers(approver=ask))


def by_queue(place: Place, patience: float = 60) -> tuple[Session, Queue]:
    queues: list[Queue] = []

    def ask(question: CommandQuestion) -> CommandAnswer:
        return QueueApprover(queues[0], patience)(question)

    session = session_of(place, ask)
    queues.append(session.vault.approvals)
    session.forks.new("f")
    return session, queues[0]


@contextmanager
def answering(queue: Queue, *, allow: bool = True) -> Iterator[None]:
    """Another process, which answers what comes first."""
    pid = os.fork()
    if pid == 0:
        try:
            bell = queue.listen()
            while not (rows := [row for row in queue.rows() if row.state == "waiting"]):
                os.set_blocking(bell.fileno(), True)
                bell.clear()
            queue.decide(rows[0].name, allow=allow, by="page", reason="says the page")
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.waitpid(pid, 0)


@pytest.mark.parametrize("allow", [True, False])
def test_somebody_else_answers_while_it_waits(place: Place, allow: bool) -> None:
    place.write("build.sh", "echo built > out\n")
    session, queue = by_queue(place)
    with answering(queue, allow=allow):
        result = session.run([b"sh", b"build.sh"], fork="f")
    assert result.ran is allow
    assert ("approved" if allow else "refused") + " on the page (says the page)" in result.verdict.reason
    (row,) = queue.rows()
    assert row.used
    assert row.asked.command is not None
    assert [path for path, _digest in row.asked.command.files] == [os.fsencode(place.project / "build.sh")]


def test_what_was_approved_and_has_changed_since_is_asked_anew(place: Place) -> None:
    place.write("build.sh", "echo built > out\n")
    session, queue = by_queue(place, LATER)
    session.run([b"sh", b"build.sh"], fork="f")
    queue.decide(queue.rows()[0].name, allow=True, by="page")
    session.forks.files("f").write(b"build.sh", b"echo bad > out\n")
    assert not session.run([b"sh", b"build.sh"], fork="f").ran
    before, after = queue.rows()
    path = place.project / "build.sh"
    assert after.asked.note == f"{path} changed since question {before.name} (allowed)"
    session.forks.files("f").write(b"build.sh", b"echo built > out\n")
    assert session.run([b"sh", b"build.sh"], fork="f").ran, "what was approved is there again"


@pytest.mark.parametrize(
    ("command", "changed"),
    [
        ([b"./link"], b"build.sh"),
        ([b"sh", b"sub/../link"], b"build.sh"),
        ([b"sh", b"-c", b"cd sub && ./inner"], b"sub/inner"),
        ([b"make"], b"Makefile"),
        ([b"npm", b"run", b"build"], b"package.json"),
    ],
)
def test_a_script_that_changes_while_somebody_thinks(place: Place, command: list[bytes], changed: bytes) -> None:
    place.write("build.sh", "#!/bin/sh\necho fine > out\n", 0o755)
    place.write("sub/inner", "#!/bin/sh\necho fine > ../out\n", 0o755)
    place.write("Makefile", "all:\n\techo fine > out\n")
    place.write("package.json", '{"scripts": {"build": "echo fine > out"}}')
    (place.project / "link").symlink_to("build.sh")
    asked: list[CommandQuestion] = []

    def changing(question: CommandQuestion) -> CommandAnswer:
        asked.append(question)
        session.forks.files("f").write(changed, b"#!/bin/sh\necho bad > out\n")
        return CommandAnswer(True, by="test")

    every = Settings(
        commands=CommandPolicy(
            tuple(
                ClassRule(name, "require_approval", "policy.yaml:1", 1)
                for name in ("unknown", "mutating", "networked", "destructive", "read_only")
            )
        )
    )
    session = place.session(every, agent="coder", commands=CommandAnswers(approver=changing))
    session.forks.new("f")
    result = session.run(command, fork="f")
    assert len(asked) == 1
    assert not result.ran
    assert "has changed since it was approved" in result.verdict.reason


OTHER_TERMS: dict[str, tuple[Settings, str]] = {
    "network": (SETTINGS._replace(network="open"), "network: open"),
    "variable": (SETTINGS._replace(environment=(b"BASH_ENV=/x",)), "variables: BASH_ENV"),
    "shown": (SETTINGS._replace(secrets_show=(b".env",)), "shown: .env"),
    "read": (SETTINGS._replace(read=(b"/srv",)), "read: /srv"),
}


@pytest.mark.parametrize("name", OTHER_TERMS)
def test_an_answer_does_not_hold_on_other_terms(place: Place, name: str) -> None:
    place.write("build.sh", "echo built > out\n")
    session, queue = by_queue(place, LATER)
    session.run([b"sh", b"build.sh"], fork="f")
    queue.decide(queue.rows()[0].name, allow=True, by="page")
    settings, term = OTHER_TERMS[name]
    act_as(session, settings=settings)
    assert not session.run([b"sh", b"build.sh"], fork="f").ran
    asked = queue.rows()[-1].asked
    assert asked.command is not None
    assert term in asked.command.terms
    assert "the terms have changed" in asked.note


def test_an_answer_does_not_hold_for_another_value_nor_in_the_background(place: Place) -> None:
    place.write("build.sh", "echo built > out\n")
    session, queue = by_queue(place, LATER)
    act_as(session, settings=SETTINGS._replace(environment=(b"BASH_ENV=/secret1",)))
    session.run([b"sh", b"build.sh"], fork="f")
    queue.decide(queue.rows()[0].name, allow=True, by="page")
    assert session.start([b"sh", b"build.sh"], fork="f").refused is not None
    asked = queue.rows()[-1].asked.command
    assert asked is not None
    assert asked.terms == ("level 1", "network: gate", "variables: BASH_ENV", "in the background")
    act_as(session, settings=SETTINGS._replace(environment=(b"BASH_ENV=/secret2",)))
    assert not session.run([b"sh", b"build.sh"], fork="f").ran
    assert "secret" not in str([row.asked for row in queue.rows()])


def test_an_answer_does_not_hold_with_another_path_of_programs(place: Place) -> None:
    place.write("build.sh", "echo built > out\n")
    session, queue = by_queue(place, LATER)
    session.run([b"sh", b"build.sh"], fork="f")
    queue.decide(queue.rows()[0].name, allow=True, by="page")
    session.machine.confinement.variables = {**session.machine.confinement.variables, b"PATH": b"/usr/bin:/bin"}
    assert not session.run([b"sh", b"build.sh"], fork="f").ran


@pytest.mark.parametrize("script", ["/tmp/x.sh", "HOME/.cache/x.sh", "HOME/x.sh", "link", "/proc/self/cwd/build.sh"])
def test_a_script_that_commands_left_outside_is_not_approved(place: Place, script: str) -> None:
    place.write("build.sh", "echo built > out\n")
    (place.project / "link").symlink_to("/var/tmp/x.sh")
    session = session_of(place, lambda _question: pytest.fail("it is asked about"))
    result = session.run([b"sh", script.replace("HOME", str(place.home)).encode()], fork="f")
    assert not result.ran
    assert "where commands may write" in result.verdict.reason


def test_a_program_of_the_system_is_approved(place: Place) -> None:
    (place.project / "link").symlink_to("/usr/bin/true")
    session = session_of(place, lambda _question: CommandAnswer(True, by="test"))
    assert session.run([b"./link"], fork="f").exit_code == 0


def test_never_is_remembered(place: Place) -> None:
    kept: list[tuple[str, bool]] = []
    session = place.session(
        SETTINGS,
        agent="coder",
        commands=CommandAnswers(
            approver=lambda _question: CommandAnswer(False, keep=True, by="test"),
            remember=lambda pattern, allow: kept.append((pattern, allow)),
        ),
    )
    session.forks.new("f")
    assert not session.run([b"strange", b"thing"], fork="f").ran
    assert kept == [("strange thing", False)]


def test_a_question_waits_while_the_user_has_the_vault(place: Place) -> None:
    """Neither waits for the other: nothing is locked while somebody thinks."""
    session, queue = by_queue(place)
    question = CommandQuestion((b"x",), b"/p", "f", "coder", session.approval.decide_on([b"x"]), "", "1")
    with queue.put(question, 60) as ticket, session.alone("test", lambda _other: None, lambda: None):
        queue.decide(ticket.asked.name, allow=True, by="page")
        assert ticket.wait(60).state == "allowed"


EVERY = Settings(
    commands=CommandPolicy(tuple(ClassRule(name, "require_approval", "policy.yaml:1", 1) for name in CLASSES))
)
ALWAYS = CommandAnswer(True, keep=True, by="test")
CHANGES_AFTER_ALWAYS: dict[str, tuple[tuple[str, ...], dict[str, str], dict[str, str]]] = {
    "program": (("./t.sh",), {"t.sh": "#!/bin/sh\n"}, {"t.sh": "#!/bin/sh\necho other\n"}),
    "first line": (("./t.sh",), {"t.sh": "#!/bin/sh\n"}, {"t.sh": "#!/usr/bin/env bash\n"}),
    "script of an interpreter": (("bash", "t.sh"), {"t.sh": ":\n"}, {"t.sh": ": other\n"}),
    "script of python": (("python3", "t.py"), {"t.py": ""}, {"t.py": "0\n"}),
    "a script that came later": (("./t.sh",), {}, {"t.sh": "#!/bin/sh\n"}),
    "makefile": (("make", "x"), {"Makefile": "x:\n"}, {"Makefile": "x:\n\techo other\n"}),
    "a makefile that came later": (("make", "x"), {"Makefile": "x:\n"}, {"GNUmakefile": "x:\n"}),
    "script of npm": (("npm", "run", "x"), {"package.json": "{}"}, {"package.json": '{"scripts": {"x": "y"}}'}),
    "where git pushes": (("git", "push"), {".git/config": "[core]\n"}, {".git/config": "[remote]\n"}),
    "a file that is named": (("deploy", "-f", "plan"), {"plan": "1"}, {"plan": "2"}),
    "in a shell's line": (
        ("sh", "-c", "cd sub && ./t.sh"),
        {"sub/t.sh": "#!/bin/sh\n"},
        {"sub/t.sh": "#!/bin/false\n"},
    ),
    "a program that PATH finds": (("deploy", "now"), {"bin/deploy": "#!/bin/sh\n"}, {"bin/deploy": "#!/bin/false\n"}),
    "a program that shadows": (("deploy", "now"), {"bin/.keep": ""}, {"bin/deploy": "#!/bin/sh\n"}),
}


class Counting:
    """An approver that answers "always", and keeps the questions."""

    def __init__(self) -> None:
        self.asked: list[CommandQuestion] = []

    def __call__(self, question: CommandQuestion) -> CommandAnswer:
        self.asked.append(question)
        return ALWAYS


def counting(place: Place) -> tuple[Session, Counting]:
    ask = Counting()
    session = place.session(EVERY, agent="coder", commands=CommandAnswers(approver=ask))

    variables = session.machine.confinement.variables
    path = os.fsencode(place.project / "bin") + b":" + variables[b"PATH"]
    session.machine.confinement.variables = {**variables, b"PATH": path}
    return session, ask


def attempt(session: Session, command: list[bytes], fork: str) -> None:
    """Run a command that may be missing on this machine: it was judged before."""
    with suppress(CommandNotStarted):
        session.run(command, fork=fork)


@pytest.mark.parametrize("name", CHANGES_AFTER_ALWAYS)
def test_always_holds_until_the_files_change(place: Place, name: str) -> None:
    argv, before, after = CHANGES_AFTER_ALWAYS[name]
    command = [word.encode() for word in argv]
    for path, content in before.items():
        place.write(path, content, 0o755)
    session, ask = counting(place)
    for fork in ("f", "f", "g"):
        attempt(session, command, fork)
    assert len(ask.asked) == 1, "it holds in every fork"
    for path, content in after.items():
        session.forks.files("g").write(path, content)
    attempt(session, command, "f")
    assert len(ask.asked) == 1, "the change is in another fork"
    attempt(session, command, "g")
    assert len(ask.asked) == 2


def test_always_holds_in_one_directory_on_one_set_of_terms(place: Place) -> None:
    for directory in ("", "sub/"):
        place.write(directory + "t.sh", "#!/bin/sh\n", 0o755)
    session, ask = counting(place)
    session.run([b"./t.sh"], fork="f")
    session.run([b"./t.sh"], fork="f", cwd=os.fsencode(place.project / "sub"))
    assert len(ask.asked) == 2
    act_as(session, settings=EVERY._replace(environment=(b"BASH_ENV=/x",)))
    session.run([b"./t.sh"], fork="f")
    assert len(ask.asked) == 3
    session.run([b"sh", b"-c", b"PATH=bin ./t.sh"], fork="f")
    assert len(ask.asked) == 4
    session.run([b"./t.sh"], fork="f")
    assert len(ask.asked) == 4, "each answer holds"


def test_always_follows_a_link_to_its_target(place: Place) -> None:
    place.write("good.sh", "#!/bin/sh\n", 0o755)
    place.write("bad.sh", "#!/bin/sh\nfalse\n", 0o755)
    (place.project / "t.sh").symlink_to("good.sh")
    session, ask = counting(place)
    session.run([b"./t.sh"], fork="f")
    session.run([b"ln", b"-sfn", b"bad.sh", b"t.sh"], fork="f")
    session.run([b"./t.sh"], fork="f")
    assert [question.command[0] for question in ask.asked] == [b"./t.sh", b"ln", b"./t.sh"]


def test_a_script_that_changes_after_its_rule_was_found_does_not_run(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write("t.sh", "#!/bin/sh\n", 0o755)
    session, ask = counting(place)
    session.run([b"./t.sh"], fork="f")
    asked = session.approval.asked

    def accomplice(order: Order, case: Case, name: str) -> Case:
        answered = asked(order, case, name)
        session.forks.files("f").write("t.sh", "#!/bin/sh\ntouch got\n")
        return answered

    monkeypatch.setattr(session.approval, "asked", accomplice)
    result = session.run([b"./t.sh"], fork="f")
    assert (result.ran, len(ask.asked)) == (False, 1)
    assert "has changed since it was approved" in result.verdict.reason


def test_never_is_about_the_words(place: Place) -> None:
    place.write("t.sh", "#!/bin/sh\n", 0o755)
    session = place.session(
        EVERY, agent="coder", commands=CommandAnswers(approver=lambda _question: ALWAYS._replace(allow=False))
    )
    session.run([b"./t.sh"], fork="f")
    place.write("t.sh", "#!/bin/sh\ntrue\n", 0o755)
    (place.project / "sub").mkdir()
    result = session.run([b"./t.sh"], fork="g", cwd=os.fsencode(place.project / "sub"))
    assert result.verdict.action == "deny"
