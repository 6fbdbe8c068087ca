"""Attempts side by side: judged in forks of their own, ordered, folded, ended early, combined; nothing is applied."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing

import pytest

from clocks import give_way
from conftest import Place, act_as
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.attempts import record as records
from mudroom.ext.attempts.session.attempts import Attempts, start
from mudroom.ext.attempts.session.discard import discard
from mudroom.ext.attempts.session.request import AttemptRequest
from mudroom.ext.attempts.value import TryRecord, tied
from mudroom.session import Session
from whole_text import whole


def shell(script: str) -> tuple[bytes, ...]:
    return (b"sh", b"-c", script.encode())


def ran(session: Session, request: AttemptRequest) -> TryRecord:
    with start(session, request) as running:
        ended = list(running)
    assert {attempt.number for attempt in ended} == {
        attempt.number for attempt in running.record.attempts if attempt.state != "not started"
    }
    assert records.load(session.vault.path, running.record.name) == running.record
    return running.record


def several(script: str, count: int, **options: object) -> AttemptRequest:
    return AttemptRequest((shell(script),) * count, **options)  # type: ignore[arg-type]


def states(record: TryRecord) -> list[str]:
    return [attempt.state for attempt in record.attempts]


@pytest.fixture
def session(place: Place) -> Session:
    return place.session()


def forks(session: Session) -> set[str]:
    return {fork.name for fork in session.vault.forks()}


def test_the_best_is_chosen_by_the_judge_and_nothing_is_applied(place: Place, session: Session) -> None:
    (place.project / "old").write_text("old\n")
    before = sorted(os.listdir(place.project))
    record = ran(session, several("echo $MUDROOM_ATTEMPT {i} > answer", 3, judge=shell("grep -q '^2 2$' answer")))
    assert states(record) == ["failed", "passed", "failed"]
    assert record.best == 2
    assert [attempt.judged for attempt in record.attempts] == [1, 0, 1]
    assert [attempt.fork for attempt in record.attempts] == ["t1-1", "t1-2", "t1-3"]
    assert all((attempt.added, attempt.lines, attempt.files) == (1, 1, 1) for attempt in record.attempts)
    assert sorted(os.listdir(place.project)) == before
    event = list(session.vault.journal.events())[-1]
    assert (event.kind, event.fork) == ("try", "t1-2")


def test_what_a_judge_writes_is_not_in_the_attempt(session: Session) -> None:
    judge = shell("echo x > dropping; echo y >> answer; rm keep; cat answer")
    record = ran(session, several("echo {i} > answer; echo > keep", 2, judge=judge))
    for attempt in record.attempts:
        assert {change.path for change in session.changes.of(attempt.fork).changes} == {b"answer", b"keep"}
        assert session.forks.files(attempt.fork).read(b"answer") == b"%d\n" % attempt.number
        assert attempt.report == b"%d\ny\n" % attempt.number
    assert forks(session) == {"t1-1", "t1-2"}


@pytest.mark.parametrize(
    ("score", "judge", "best"),
    [
        ("exit", "exit $(cat n)", 0),
        ("json", "echo noise; echo '{\"score\": '$(cat n)'}'", 2),
        ("-lines", "true", 1),
    ],
)
def test_the_order_of_the_scores(session: Session, score: str, judge: str, best: int) -> None:
    record = ran(session, several("echo {i} > n; seq {i} > lines", 2, judge=shell(judge), score=score))
    assert record.best == best


def test_a_judge_without_the_score_it_has_to_print_passes_nothing(session: Session) -> None:
    judge = shell("if [ $(cat n) = 2 ]; then echo -5; else echo none; fi")
    record = ran(session, several("echo {i} > n", 2, judge=judge, score="json"))
    assert record.best == 2
    assert "is no score" in record.attempts[0].note
    assert (record.attempts[0].state, record.attempts[0].score) == ("failed", None)


def test_equal_results_are_folded_and_a_tie_is_named(session: Session) -> None:
    record = ran(session, several("echo $(({i} % 2)) > a", 4, judge=(b"true",)))
    assert [attempt.same_as for attempt in record.attempts] == [0, 0, 1, 2]
    assert record.best == 1
    assert [attempt.number for attempt in tied(record.attempts, "exit")] == [2]


def test_an_attempt_that_changes_nothing_is_not_preferred(session: Session) -> None:
    record = ran(session, several("test {i} = 1 || echo > made", 2, judge=(b"true",)))
    assert states(record) == ["passed", "passed"]
    assert record.best == 2


def test_nothing_passes(session: Session) -> None:
    record = ran(session, several("exit 3", 2))
    assert (record.best, states(record)) == (0, ["failed", "failed"])
    assert [attempt.exit_code for attempt in record.attempts] == [3, 3]


def test_the_first_success_ends_the_others_at_once(session: Session) -> None:
    """The losers ignore SIGTERM and would run for ever; the last does not begin."""
    script = "test {i} = 1 && exit 0; trap '' TERM; while :; do sleep 1000; done"
    record = ran(session, several(script, 4, jobs=3, until=1))
    assert states(record)[0] == "passed"
    assert set(states(record)[1:]) <= {"ended early", "not started"}
    assert (record.best, record.end) == (1, "until")


def test_until_may_be_more_than_there_are(session: Session) -> None:
    record = ran(session, several("true", 2, until=9))
    assert (states(record), record.end) == (["passed", "passed"], "")


def test_the_budget_ends_all(session: Session) -> None:
    record = ran(session, several("echo > began; exec sleep 1000", 3, jobs=2, budget=1.0))
    assert record.end == "budget"
    assert set(states(record)) <= {"timed out", "not started"}
    assert record.best == 0


def test_a_judge_that_hangs_ends_with_its_time(session: Session) -> None:
    record = ran(session, several("echo > a", 1, judge=(b"sleep", b"1000"), timeout=0.5))
    assert states(record) == ["failed"]
    assert (record.attempts[0].judged, record.attempts[0].note) == (124, "the judge ran out of time")
    assert forks(session) == {"t1-1"}


def test_a_missing_judge_ends_the_try(session: Session) -> None:
    script = "test {i} = 1 && exit; exec sleep 1000"
    record = ran(session, several(script, 3, jobs=2, judge=(b"no-such-judge",)))
    assert record.end == "judge"
    assert "no-such-judge" in record.note
    assert record.best == 0


def test_a_judge_that_one_attempt_has_removed_fails_that_attempt(place: Place, session: Session) -> None:
    (place.project / "judge").write_text("#!/bin/sh\n")
    (place.project / "judge").chmod(0o755)
    record = ran(session, several("test {i} = 2 || rm judge; echo > a", 2, judge=(b"./judge",)))
    assert (states(record), record.best) == (["failed", "passed"], 2)


def test_only_the_end_of_a_long_output_is_kept(session: Session) -> None:
    judge = shell("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo 7")
    record = ran(session, several("true", 1, judge=judge, score="json"))
    assert record.attempts[0].score == 7
    assert len(record.attempts[0].report) == records.REPORT


def test_a_report_has_no_secrets(place: Place) -> None:
    (place.project / ".env").write_text("PASSWORD=correct-horse-battery\n")
    session = place.session()
    script = "echo correct-horse-battery ghp_0123456789abcdefABCDEF0123456789abcdef; printf '\\377'"
    record = ran(session, several(script, 1))
    assert record.attempts[0].report == b"[redacted] [redacted]\n\xff"


def test_several_commands(session: Session) -> None:
    record = ran(session, AttemptRequest((shell("echo a > a"), shell("echo b > b"), (b"false",))))
    assert states(record) == ["passed", "passed", "failed"]
    assert [len(session.changes.of(name).changes) for name in ("t1-1", "t1-2")] == [1, 1]


def test_a_command_that_does_not_exist_is_said(session: Session) -> None:
    record = ran(session, AttemptRequest(((b"no-such-command",), (b"true",))))
    assert states(record) == ["error", "passed"]
    assert (record.attempts[0].exit_code, record.attempts[0].fork) == (127, "")
    assert "no-such-command" in record.attempts[0].note


def test_a_refused_command_is_said_and_leaves_no_fork(place: Place) -> None:
    session = place.session()
    act_as(session, agent="coder", settings=session.actor.settings._replace())
    record = ran(session, AttemptRequest(((b"rm", b"-rf", b"/"), (b"true",))))
    assert states(record)[0] == "refused"
    assert record.attempts[0].note
    assert record.attempts[0].fork == ""


def test_forks_of_these_names_that_exist_are_left_alone(session: Session) -> None:
    session.forks.new("t1-1")
    record = ran(session, several("echo > a", 2))
    assert record.attempts[0].fork.startswith("t1-1-")
    assert record.attempts[1].fork == "t1-2"
    assert not session.changes.of("t1-1").changes


def test_from_a_fork_all_begin_alike_and_only_their_own_changes_count(place: Place, session: Session) -> None:
    session.run(shell("echo parent > parent; echo 1 > n"), fork="f")
    record = ran(session, several("cat parent > copy; echo {i} > n", 2, parent="f", judge=shell("grep 2 n")))
    assert record.base_fork == "f@try-t1"
    assert record.best == 2
    assert [(attempt.added, attempt.modified) for attempt in record.attempts] == [(1, 0), (1, 1)]
    session.run(shell("echo later > later"), fork="f")
    again = ran(session, several("test ! -e later && test -e parent", 2, parent="f", at="try-t1"))
    assert (again.base_fork, states(again)) == ("f@try-t1", ["passed", "passed"])


SENSELESS: list[tuple[dict[str, object], str]] = [
    ({"commands": ()}, "no attempts"),
    ({"commands": ((b"true",),) * 1001}, "1,001 attempts"),
    ({"commands": ((),)}, "no command"),
    ({"score": "json"}, "printed by a judge"),
    ({"score": "best"}, "no score"),
    ({"combine": True}, "chosen by a judge"),
    ({"budget": 0.0}, "no time"),
    ({"until": -1}, "negative"),
    ({"parent": "nobody"}, "no fork named nobody"),
    ({"at": "x"}, "checkpoint"),
    ({"parent": "f", "at": "nothing"}, "nothing"),
]


def test_a_senseless_request_leaves_nothing(session: Session) -> None:
    session.forks.new("f")
    for options, message in SENSELESS:
        with pytest.raises(UsageError, match=message):
            start(session, AttemptRequest(((b"true",),))._replace(**options))  # type: ignore[arg-type]
    assert records.tries(session.vault.path).records == ()
    assert forks(session) == {"f"}


def test_closing_ends_what_runs_and_keeps_what_has_ended(session: Session) -> None:
    script = "echo > made; test {i} = 1 || exec sleep 1000"
    with start(session, several(script, 3, jobs=2)) as running:
        first = next(running)
    assert first.number == 1
    assert running.record.end == "interrupted"
    assert states(running.record)[0] == "passed"
    assert set(states(running.record)[1:]) <= {"ended early", "not started"}
    assert session.vault.find("t1-1") is not None


def test_two_tries_at_once(session: Session) -> None:
    done: list[TryRecord] = []
    request = several("echo {i} > a", 3, judge=(b"true",))
    threads = [threading.Thread(target=lambda: done.append(ran(session, request))) for _try in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(record.name for record in done) == ["t1", "t2"]
    assert all(states(record) == ["passed"] * 3 for record in done)
    assert len(forks(session)) == 6


def test_a_failure_of_mudroom_in_one_attempt_does_not_end_the_others(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = session.forks.new

    def full(name: str, **options: object) -> object:
        if name == "t1-2":
            raise OSError(28, os.strerror(28), name)
        return make(name, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(session.forks, "new", full)
    record = ran(session, several("echo > a", 3))
    assert states(record) == ["passed", "error", "passed"]
    assert os.strerror(28) in record.attempts[1].note


def test_a_fork_that_is_discarded_meanwhile_costs_its_attempt(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = session.forks.new

    def gone(name: str, **options: object) -> object:
        if options.get("parent") == "t1-1":
            session.forks.discard("t1-1")
        return make(name, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(session.forks, "new", gone)
    record = ran(session, several("echo > a", 2, judge=(b"true",)))
    assert states(record) == ["error", "passed"]


@pytest.mark.parametrize(("budget", "started"), [(None, 0), (60.0, 0), (60.0, 1)])
def test_a_machine_without_threads(
    session: Session, monkeypatch: pytest.MonkeyPatch, budget: float | None, started: int
) -> None:
    """Neither a record nor a timer is left. RuntimeError is CPython's word for EAGAIN of clone(2)."""
    real = threading._start_new_thread  # type: ignore[attr-defined]
    left = iter([real] * started)

    def begin(*words: object, **more: object) -> object:
        call = next(left, None)
        if call is None:
            raise RuntimeError("can't start new thread")
        return call(*words, **more)

    with monkeypatch.context() as patch:
        patch.setattr(threading, "_start_new_thread", begin)
        told = "no thread can be started (ulimit -u 8192 permits more processes)"
        with pytest.raises(MudroomError, match=whole(told)):
            start(session, several("true", 2, budget=budget))
    assert records.tries(session.vault.path).records == () and forks(session) == set()
    for timer in [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]:
        timer.join(30)
        assert not timer.is_alive(), "it would end a later try of this name"
    assert states(ran(session, several("true", 1))) == ["passed"]


def test_a_journal_that_cannot_be_written_at_the_end(session: Session) -> None:
    """The record is there: only the line of the journal is missing."""
    session.vault.journal.append("note", "", {}, time=1)
    path = os.fsdecode(session.vault.path) + "/journal.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(
            "CREATE TRIGGER full BEFORE INSERT ON event WHEN NEW.kind = 'try' "
            "BEGIN SELECT RAISE(FAIL, 'disk I/O error'); END"
        )
    with start(session, several("true", 1)) as running, pytest.raises(MudroomError) as told:
        list(running)
    assert str(told.value) == (
        f"the try t1 has ended; the journal {path} cannot be used: disk I/O error (mudroom try show t1)"
    )
    (record,) = records.tries(session.vault.path).records
    assert states(record) == ["passed"] and record.ended


def test_an_unexpected_exception_ends_all_and_is_raised(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_given: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("mudroom.ext.attempts.session.attempt.described", broken)
    request = several("test {i} = 1 || exec sleep 1000", 3, jobs=2)
    with start(session, request) as running, pytest.raises(ZeroDivisionError):
        list(running)
    assert running.is_over


def test_names_that_are_no_text(session: Session) -> None:
    record = ran(session, AttemptRequest(((b"sh", b"-c", b"echo > 'a\xff'; echo '\xff'"),) * 2))
    assert states(record) == ["passed", "passed"]
    assert record.attempts[1].same_as == 1


def test_the_judge_has_the_rights_of_a_verification(place: Place) -> None:
    settings = Settings(environment=(b"TOKEN=secret",))
    session = place.session(settings, policy=Settings())
    record = ran(session, several("echo $TOKEN > token", 1, judge=shell('echo "$TOKEN $(cat token)"')))
    assert record.attempts[0].report == b" secret\n"


def test_discard_keeps_the_best_or_takes_all(session: Session) -> None:
    record = ran(session, several("echo {i} > a", 3, judge=shell("grep 2 a")))
    session.forks.discard("t1-1")
    assert discard(session, record, everything=False) == ["t1-3"]
    assert forks(session) == {"t1-2"}
    assert discard(session, record, everything=True) == ["t1-2"]
    assert records.tries(session.vault.path).records == ()


def test_a_running_try_is_not_discarded(session: Session) -> None:
    with start(session, several("exec sleep 1000", 1)) as running, pytest.raises(UsageError, match="is running"):
        discard(session, running.record, everything=True)


# --- unions ---

TEXT = "".join(f"line {number}\n" for number in range(40))
JUDGE = "n=0; for word in A B C; do grep -q $word file && n=$((n+1)); done; echo $n; test $n = 3"


def combined(place: Place, *scripts: str, judge: str = JUDGE) -> tuple[Session, TryRecord]:
    (place.project / "file").write_text(TEXT)
    session = place.session()
    commands = tuple(shell(script) for script in scripts)
    return session, ran(session, AttemptRequest(commands, judge=shell(judge), score="json", combine=True))


def test_a_union_of_attempts_that_is_better_is_offered_as_one_fork(place: Place) -> None:
    session, record = combined(
        place, "sed -i 's/line 5$/A/' file", "sed -i 's/line 20$/B/' file", "sed -i 's/line 35$/C/' file; echo > new"
    )
    union = record.attempts[-1]
    assert (union.number, union.of, union.fork, union.state, union.score) == (
        4,
        (1, 2, 3),
        record.combined,
        "passed",
        3,
    )
    assert record.best == 4
    text = session.forks.files(record.combined).read(b"file").decode()
    assert text == TEXT.replace("line 5\n", "A\n").replace("line 20\n", "B\n").replace("line 35\n", "C\n")
    assert forks(session) == {"t1-1", "t1-2", "t1-3", record.combined}
    session.changes.apply(record.combined)
    assert (place.project / "file").read_text() == text
    assert (place.project / "new").exists()
    assert record.combined not in forks(session)


def test_attempts_that_conflict_are_not_combined(place: Place) -> None:
    session, record = combined(place, "sed -i 's/line 5$/A/' file", "sed -i 's/line 5$/B/' file")
    assert (record.combined, record.best) == ("", 0)
    assert record.note == "unions: 0 judged, 1 not made since the attempts conflict"
    assert forks(session) == {"t1-1", "t1-2"}


def test_a_union_that_is_not_better_is_not_offered(place: Place) -> None:
    session, record = combined(place, "echo A >> file", "sed -i 1d file; echo > x", judge="grep -c A file")
    assert record.combined == ""
    assert forks(session) == {"t1-1", "t1-2"}


def test_renames_and_deletions_go_along(place: Place) -> None:
    (place.project / "gone").write_text("gone\n")
    _session, record = combined(
        place,
        "mv file moved",
        "sed -i 's/line 20$/B/' file; rm gone",
        judge="n=0; test -e moved && n=1; grep -q B file moved && n=$((n+1)); test -e gone || n=$((n+1)); echo $n",
    )
    assert record.attempts[-1].of == (2, 1) or record.attempts[-1].of == (1, 2)
    assert record.attempts[-1].score == 3


def test_the_search_is_bounded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mudroom.ext.attempts.session.combination.MOST_JUDGED", 2)
    (place.project / "file").write_text(TEXT)
    log = place.root / "log"
    session = place.session()
    judged = session.run

    def counted(argv: object, **options: object) -> object:
        if argv == shell("exit 1"):
            with log.open("a") as stream:
                stream.write("x")
        return judged(argv, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(session, "run", counted)
    record = ran(session, several("echo > new{i}", 5, judge=shell("exit 1"), combine=True))
    assert record.combined == ""
    assert len(log.read_text()) == 5 + 2


def test_the_fork_of_a_judge_that_somebody_looks_at(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of forks holds its lock for a moment: it is discarded all the same."""
    monkeypatch.setattr("mudroom.ext.attempts.session.judge.discarded", lambda *_arguments: False)
    session, record = combined(place, "echo a > a", "echo b > b")
    assert not [name for name in forks(session) if name.startswith("judge-")], record


def test_an_interruption_while_it_begins_ends_what_has_begun(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C that comes then removed the record of attempts that went on, or failed to remove it."""
    begin = Attempts.begin

    def begun(running: Attempts) -> None:
        begin(running)
        while all(row.state != "running" for row in running.record.attempts):
            give_way()
        raise KeyboardInterrupt

    monkeypatch.setattr(Attempts, "begin", begun)
    with pytest.raises(KeyboardInterrupt):
        start(session, several("echo x > made; sleep 1000", 2))
    (record,), damaged = records.tries(session.vault.path)
    assert (record.end, damaged) == ("interrupted", ())
    assert not records.is_running(session.vault.path, record.name)
    assert forks(session) == {row.fork for row in record.attempts if row.fork}
