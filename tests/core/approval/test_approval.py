"""Questions and answers as values: what allows, what an answer holds for, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from mudroom.core.approval.approval import (
    CommandAnswer,
    CommandQuestion,
    HostQuestion,
    ask_approver,
    explain_difference,
    is_same_question,
    terms_of,
)
from mudroom.core.approval.fingerprint import (
    IMPLIED,
    LARGEST,
    LARGEST_NAMED,
    Uncovered,
    digests,
    fingerprint,
    still_applies,
)
from mudroom.core.approval_queue import elapsed
from mudroom.core.clock import Moment
from mudroom.core.command.verdict import CommandPart, Verdict
from mudroom.core.text.answer_place import answered_by
from mudroom.session.order import Case
from tiers import each

QUESTION = CommandQuestion((b"make",), b"/p", "f", "a", Verdict("require_approval"), "make", "1234")


def part(*words: bytes) -> CommandPart:
    return CommandPart(words, True, ("unknown",), "")


def raising(error: BaseException) -> Callable[[CommandQuestion], CommandAnswer]:
    def approver(_question: CommandQuestion) -> CommandAnswer:
        raise error

    return approver


@each(
    "answer",
    [
        None,
        True,
        1,
        "yes",
        {"allow": True},
        (True, False, "", ""),
        CommandAnswer(cast(Any, "no")),
        CommandAnswer(cast(Any, 1)),
    ],
)
def test_only_an_answer_allows(answer: Any) -> None:
    found = ask_approver(lambda _question: answer, QUESTION)
    assert found.allow is False
    assert found.by == "nobody"
    assert "CommandAnswer" in found.reason


def test_an_approver_that_fails_refuses_and_is_named() -> None:
    assert ask_approver(raising(ValueError("no such page")), QUESTION) == CommandAnswer(
        False, by="nobody", reason="the approver failed: ValueError: no such page"
    )
    with pytest.raises(KeyboardInterrupt):
        ask_approver(raising(KeyboardInterrupt()), QUESTION)


def test_an_answer_is_handed_on_and_without_an_approver_it_is_no() -> None:
    assert ask_approver(lambda _question: CommandAnswer(True, by="me"), QUESTION) == CommandAnswer(True, by="me")
    assert ask_approver(None, QUESTION).allow is False


def test_an_answer_to_something_else_is_none() -> None:
    assert is_same_question(QUESTION, QUESTION)
    others = QUESTION._replace(fingerprint="5"), QUESTION._replace(fork="g"), QUESTION._replace(agent="b")
    assert not any(is_same_question(QUESTION, other) for other in others)
    assert not is_same_question(QUESTION._replace(fingerprint=""), QUESTION._replace(fingerprint=""))
    assert not is_same_question(HostQuestion("1234", 0, "tls", "f", "a"), QUESTION)


def test_what_has_changed_is_told() -> None:
    before = QUESTION._replace(files=((b"/p/a", "1"), (b"/p/b", "2")))
    assert (
        explain_difference(before, before._replace(files=((b"/p/a", "1"), (b"/p/b\n", "2"))))
        == "/p/b and 1 more changed"
    )
    assert explain_difference(before, before._replace(verdict=Verdict("require_approval", rule="policy.yaml:3"))) == (
        "the verdict has changed (default → policy.yaml:3)"
    )
    assert explain_difference(before, before._replace(cwd=b"/p/q")) == ""
    on, other = terms_of(1, "gate"), terms_of(1, "open", variables=["B", "A"], background=True)
    assert explain_difference(before._replace(terms=on), before._replace(terms=other)) == (
        "the terms have changed (network: gate → network: open, variables: A B, in the background)"
    )
    assert explain_difference(before, before._replace(command=(b"make", b"all"))) == ""


@pytest.mark.parametrize(
    ("since", "now", "seconds"),
    [
        (Moment(10**9, 10**9, "x"), Moment(3 * 10**9, 2 * 10**9, "x"), 2.0),  # set forward: as old as it says
        (Moment(10**12, 10**9, "x"), Moment(0, 8 * 10**9, "x"), 7.0),  # set back
        (Moment(10**9, 9**9, "x"), Moment(4 * 10**9, 0, "y"), 3.0),  # started again
        (Moment(10**9, 9**9, "x"), Moment(0, 0, "y"), float("inf")),  # started again, and set back
    ],
)
def test_no_clock_makes_an_answer_younger(since: Moment, now: Moment, seconds: float) -> None:
    assert elapsed(since, now) == seconds


# --- fingerprints ---

ALL = {b"/p/build.sh": b"one", b"/p/sub/Makefile": b"all:", b"/p/package.json": b"{}", b"/p/tool/run.py": b"1"}


def covered(*lines: tuple[bytes, ...], files: dict[bytes, bytes] = ALL) -> list[bytes]:
    found = digests([part(*line) for line in lines[1:]], lines[0], b"/p", lambda path, _limit: files.get(path))
    return [path for path, _digest in found]


@each(
    ("lines", "paths"),
    [
        ([(b"bash", b"build.sh")], [b"/p/build.sh"]),
        ([(b"./build.sh", b"--fast")], [b"/p/build.sh"]),
        ([(b"bash", b"-e", b"-o", b"pipefail", b"build.sh")], [b"/p/build.sh"]),
        ([(b"/p//./build.sh",)], [b"/p/build.sh"]),
        ([(b"env", b"A=1", b"./build.sh")], [b"/p/build.sh"]),
        ([(b"make", b"-C", b"sub")], [b"/p/sub/Makefile"]),
        ([(b"bash", b"-c", b"cd sub && make"), (b"cd", b"sub"), (b"make",)], [b"/p/sub/Makefile"]),
        ([(b"npm", b"run", b"build")], [b"/p/package.json"]),
        ([(b"python3.11", b"-m", b"tool.run")], [b"/p/tool/run.py"]),
        ([(b"grep", b"--file=build.sh", b"x")], [b"/p/build.sh"]),
        ([(b"rm", b"package.json", b"build.sh")], [b"/p/build.sh", b"/p/package.json"]),
        ([(b"echo", b"no\0thing", b"x" * 5000)], []),
        ([()], []),
    ],
)
def test_files_that_a_command_runs_or_names_are_covered(lines: list[tuple[bytes, ...]], paths: list[bytes]) -> None:
    assert covered(*lines) == paths


@each("program", IMPLIED)
def test_what_a_build_tool_reads_by_itself_is_covered(program: bytes) -> None:
    for name in IMPLIED[program]:
        assert covered((program, b"x"), files={b"/p/" + name: b"1"}) == [b"/p/" + name]


def test_an_approval_cannot_be_tied_to_what_is_too_large_or_too_much() -> None:
    sizes = {b"/p/big.sh": LARGEST + 1, b"/p/named.iso": LARGEST_NAMED + 1}

    def read(path: bytes, limit: int) -> bytes | None:
        return b"x" * min(sizes[path], limit + 1) if path in sizes else None

    with pytest.raises(Uncovered, match=r"/p/big\.sh is larger"):
        digests([], (b"bash", b"big.sh"), b"/p", read)
    assert digests([], (b"rm", b"named.iso"), b"/p", read) == ((b"/p/named.iso", "large"),)
    with pytest.raises(Uncovered, match="more than 1024 files"):
        digests([part(b"./s%d" % number) for number in range(1100)], (b"x",), b"/p", read)


def test_a_script_is_covered_however_many_words_come_before_it() -> None:
    words = (b"bash", b"-c", b"...", *(b"w%d" % number for number in range(10_000)))
    assert b"/p/build.sh" in covered(words, (b"bash", b"build.sh"))


def test_every_part_of_a_question_is_in_its_fingerprint() -> None:
    verdict = Verdict("require_approval", ("unknown",), "default")
    given: dict[str, Any] = {
        "command": (b"a", b"b"), "cwd": b"/p", "fork": "f", "agent": "g", "verdict": verdict, "level": 1,
        "files": ((b"/p/a", "1"),),
    }  # fmt: skip
    others: list[dict[str, Any]] = [
        {"command": (b"ab",)}, {"command": (b"a", b"b", b"")}, {"cwd": b"/q"}, {"fork": "fg", "agent": ""},
        {"agent": ""},
        {"verdict": verdict._replace(rule="policy.yaml:1")}, {"verdict": verdict._replace(action="allow")},
        {"verdict": verdict._replace(classes=("destructive",))}, {"level": 0}, {"files": ()},
        {"agent": "\ud800"}, {"agent": "\udcff"},
        {"terms": ("level 1",)}, {"terms": ("network: open",)}, {"variables": [b"A=1"]}, {"variables": [b"A=2"]},
        {"files": ((b"/p/a", "2"),)}, {"command": (b"\xff", b"\0")}, {"command": (b"x" * 1_000_000,)},
    ]  # fmt: skip
    found = {fingerprint(**given), *(fingerprint(**(given | other)) for other in others)}
    assert len(found) == 1 + len(others)
    question = QUESTION._replace(fingerprint=fingerprint(**given))
    assert still_applies(question, fingerprint(**given))
    assert not still_applies(question, fingerprint(**(given | others[0])))
    assert not still_applies(QUESTION._replace(fingerprint=""), "")


def test_an_approval_of_a_script_does_not_hold_for_another_content() -> None:
    files = dict(ALL)

    def now() -> CommandQuestion:
        verdict = Verdict("require_approval", ("unknown",))
        command = (b"bash", b"build.sh")
        read = digests((), command, b"/p", lambda path, _limit: files.get(path))
        mark = fingerprint(command, b"/p", "f", "g", verdict, 1, read)
        return CommandQuestion(command, b"/p", "f", "g", verdict, "", mark, read)

    before = now()
    assert still_applies(before, now().fingerprint)
    files[b"/p/other"] = b"new"
    assert still_applies(before, now().fingerprint)
    files[b"/p/build.sh"] = b"two"
    assert not still_applies(before, now().fingerprint)
    assert explain_difference(before, now()) == "/p/build.sh changed"
    del files[b"/p/build.sh"]
    assert not still_applies(before, now().fingerprint)


@each(
    ("by", "words"),
    [
        ("nobody", ""),
        ("queue", ""),
        ("terminal", " on the terminal"),
        ("page", " on the page"),
        ("client", " by the client"),
        ("mudroom approve", " by mudroom approve"),
        ("", " by the approver"),
    ],
)
def test_an_answer_names_its_place_and_a_missing_one_none(by: str, words: str) -> None:
    assert answered_by(by) == words
    case = Case(QUESTION.verdict._replace(reason="builds"), QUESTION, CommandAnswer(False, by=by, reason="why"))
    assert case.final.reason == f"builds; refused{words} (why)"
