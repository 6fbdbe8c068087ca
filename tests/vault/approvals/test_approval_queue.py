"""The queue of questions: asked once, answered once, used once; across processes, crashes, clocks and full disks."""

from __future__ import annotations

import errno
import os
import select
import signal
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from clocks import give_way
from inner_path import inner
from mudroom.core.approval.approval import CommandAnswer, CommandQuestion, HostQuestion, ask_approver
from mudroom.core.approval_queue import QueueRoom, QueueRow, row_to_json
from mudroom.core.clock import Moment
from mudroom.core.command.verdict import Verdict
from mudroom.core.network.flow import NOBODY, FlowAnswer, FlowQuestion
from mudroom.errors import MudroomError, UsageError
from mudroom.stage import disk
from mudroom.vault.approvals import queue as approval
from mudroom.vault.approvals.approver import HostApprover, QueueApprover
from mudroom.vault.approvals.queue import Queue, Ticket
from whole_text import whole

VERDICT = Verdict("require_approval", ("host_escape_risk",), "class host_escape_risk", "loads a module")
QUESTION = CommandQuestion(
    (b"insmod", b"x\xff\0.ko"), b"/p", "f", "claude", VERDICT, "insmod x", "1234", ((b"/p/x", "9"),)
)


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue(inner(tmp_path))


@contextmanager
def forked(work: Callable[[], None]) -> Iterator[int]:
    """A process that does it: killed and waited for at the end."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    try:
        yield pid
    finally:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(pid, 0)


def until_one_waits(queue: Queue) -> QueueRow:
    """By the bell, as the page and ``approve --follow`` do."""
    bell = queue.listen()
    try:
        while not (rows := [row for row in queue.rows() if row.state == "waiting" and row.waiter]):
            assert select.select([bell.fileno()], [], [], 30)[0]
            bell.clear()
        return rows[0]
    finally:
        bell.close()


def left(queue: Queue) -> str:
    """A question that its waiter has been killed over."""
    with forked(lambda: (queue.put(QUESTION, 60).wait(60), None)[1]) as pid:
        row = until_one_waits(queue)
        assert row.waiter == pid
        while not list(Path(os.fsdecode(queue._bells)).glob("[!.]*")):
            give_way()  # its bell is not open yet
    assert queue.row(row.name).waiter == 0
    return row.name


@pytest.mark.parametrize(("allow", "state"), [(True, "allowed"), (False, "denied")])
def test_an_answer_reaches_the_one_who_waits(queue: Queue, allow: bool, state: str) -> None:
    def answer() -> None:
        queue.decide(until_one_waits(queue).name, allow=allow, by="page", reason="because", keep=True)

    with forked(answer):
        assert QueueApprover(queue, 60)(QUESTION) == CommandAnswer(allow, True, "page", "because")
    (row,) = queue.rows()
    assert (row.state, row.used, row.asked.command) == (state, True, QUESTION)


def test_waking_takes_no_second(queue: Queue) -> None:
    """LOOK is two: it was the bell."""
    read, write = os.pipe()

    def answer() -> None:
        name = until_one_waits(queue).name
        os.write(write, b"%d" % time.monotonic_ns())
        queue.decide(name, allow=True, by="page")

    with forked(answer), queue.put(QUESTION, 60) as ticket:
        assert ticket.wait(60).state == "allowed"
        assert time.monotonic_ns() - int(os.read(read, 99)) < 10**9
    os.close(read)
    os.close(write)


def test_of_eight_who_decide_one_does_and_all_hear_the_same(queue: Queue) -> None:
    for _round in range(10):
        with queue.put(QUESTION, 60) as ticket:
            go, ready = os.pipe()
            read, write = os.pipe()
            name = ticket.asked.name

            def decide(number: int, go: int = go, ready: int = ready, name: str = name, write: int = write) -> None:
                os.close(ready)
                os.read(go, 1)  # its end: all at once
                decision, ours = queue.decide(name, allow=bool(number % 2), by=str(number))
                os.write(write, f"{number} {decision.by} {int(ours)}\n".encode())

            pids = []
            for number in range(8):
                pid = os.fork()
                if pid == 0:
                    try:
                        decide(number)
                    finally:
                        os._exit(0)
                pids.append(pid)
            for descriptor in (go, ready, write):
                os.close(descriptor)
            for pid in pids:
                assert os.waitpid(pid, 0)[1] == 0
            with open(read) as stream:
                rows = [line.split() for line in stream]
            assert len(rows) == 8
            (winner,) = [number for number, _by, ours in rows if ours == "1"]
            assert {by for _number, by, _ours in rows} == {winner}
            assert ticket.wait(0).state == ("allowed" if int(winner) % 2 else "denied")


def test_an_answer_after_the_waiter_was_killed_is_used_once(queue: Queue) -> None:
    name = left(queue)
    queue.decide(name, allow=True, by="page")
    with queue.put(QUESTION, 60) as ticket:
        assert ticket.asked.name == name
        assert ticket.wait(60).state == "allowed"
    with queue.put(QUESTION, 60) as ticket:
        assert ticket.asked.name != name
        assert ticket.look() is None


def test_of_eight_who_ask_again_one_gets_the_answer(queue: Queue) -> None:
    queue.decide(left(queue), allow=True, by="page")
    read, write = os.pipe()
    pids = []
    for _number in range(8):
        pid = os.fork()
        if pid == 0:
            try:
                os.write(write, b"y" if QueueApprover(queue, 0)(QUESTION).allow else b"n")
            finally:
                os._exit(0)
        pids.append(pid)
    os.close(write)
    for pid in pids:
        os.waitpid(pid, 0)
    with open(read) as stream:
        assert sorted(stream.read()) == [*"nnnnnnn", "y"]


def test_a_question_whose_waiter_was_killed_goes_on(queue: Queue) -> None:
    name = left(queue)
    with queue.put(QUESTION, 60) as ticket:
        assert ticket.asked.name == name
        with queue.put(QUESTION, 60) as other:
            assert other.asked.name != name, "each run of it needs an answer of its own"
    assert [row.waiter for row in queue.rows()] == [0, 0]


@pytest.mark.parametrize(
    ("changed", "note"),
    [
        ({"fingerprint": "5", "files": ((b"/p/x", "8"),)}, "/p/x changed since question {} (allowed)"),
        (
            {"fingerprint": "5", "verdict": VERDICT._replace(rule="policy.yaml:3")},
            "the verdict has changed (class host_escape_risk → policy.yaml:3) since question {} (allowed)",
        ),
        ({"fingerprint": "5", "cwd": b"/q"}, ""),
        ({"fingerprint": "5", "command": (b"insmod",)}, ""),
        ({"fork": "g"}, ""),
        ({"agent": "b"}, ""),
    ],
)
def test_an_answer_to_what_has_changed_since_is_none(queue: Queue, changed: dict[str, object], note: str) -> None:
    name = left(queue)
    queue.decide(name, allow=True, by="page")
    with queue.put(QUESTION._replace(**changed), 60) as ticket:  # type: ignore[arg-type]
        assert ticket.look() is None
        assert ticket.asked.note == note.format(name)


def test_what_has_changed_is_asked_anew_and_the_old_question_withdrawn(queue: Queue) -> None:
    name = left(queue)
    with queue.put(QUESTION._replace(fingerprint="5"), 60) as ticket:
        assert (
            ticket.asked.note == f"a variable that decides what is run has changed since question {name} (not answered)"
        )
    decision, ours = queue.decide(name, allow=True, by="page")
    assert (decision.state, ours) == ("withdrawn", False)


def test_nobody_answers(queue: Queue) -> None:
    answer = QueueApprover(queue, 0.05)(QUESTION)
    assert answer == CommandAnswer(False, by="nobody", reason="nobody has answered in 0.05 s")
    (row,) = queue.rows()
    assert (row.state, row.used) == ("expired", True)
    decision, ours = queue.decide(row.name, allow=True, by="page")
    assert (decision.state, ours) == ("expired", False)


def test_it_ends_with_what_it_is_about(queue: Queue) -> None:
    read, write = os.pipe()
    os.close(write)
    assert QueueApprover(queue, 60, read)(QUESTION).allow is False
    os.close(read)
    assert [row.state for row in queue.rows()] == ["withdrawn"]


def test_without_waiting_it_is_refused_with_the_way_to_allow_it(queue: Queue) -> None:
    approver = QueueApprover(queue, 0)
    first = approver(QUESTION)
    (row,) = queue.rows()
    assert first == CommandAnswer(False, False, "queue", f"waiting for approval {row.name}: mudroom approve {row.name}")
    assert row.waiter == 0, "this process lives on, and does not wait"
    assert approver(QUESTION) == first, "asked once"
    queue.decide(row.name, allow=True, by="terminal")
    assert approver(QUESTION).allow is True
    assert approver(QUESTION).allow is False
    assert len(queue.rows()) == 2


class Clock:
    def __init__(self) -> None:
        self.moment = Moment(10**18, 10**12, "a")

    def __call__(self) -> Moment:
        return self.moment

    def pass_by(self, seconds: float, running: float | None = None) -> None:
        time, since, boot = self.moment
        self.moment = Moment(
            time + int(seconds * 1e9), since + int((seconds if running is None else running) * 1e9), boot
        )


@pytest.mark.parametrize(
    ("by_clock", "running", "is_used"),
    [(3599, 3599, True), (3601, 3601, False), (7200, 1, False), (-7200, 60, True), (-7200, 3601, False)],
)
def test_an_answer_is_kept_for_an_hour_whatever_the_clock_says(
    tmp_path: Path, by_clock: float, running: float, is_used: bool
) -> None:
    clock = Clock()
    queue = Queue(inner(tmp_path), clock)
    queue.put(QUESTION, 0).close()
    queue.decide(queue.rows()[0].name, allow=True, by="page")
    clock.pass_by(by_clock, running)
    assert QueueApprover(queue, 0)(QUESTION).allow is is_used


def test_after_a_restart_of_the_machine_a_clock_that_was_set_back_makes_no_answer_younger(tmp_path: Path) -> None:
    clock = Clock()
    queue = Queue(inner(tmp_path), clock)
    queue.put(QUESTION, 0).close()
    queue.decide(queue.rows()[0].name, allow=True, by="page")
    clock.moment = Moment(10**18 - 1, 0, "b")
    assert QueueApprover(queue, 0)(QUESTION).allow is False


def test_a_question_that_nobody_waits_for_expires_in_a_day(tmp_path: Path) -> None:
    clock = Clock()
    queue = Queue(inner(tmp_path), clock)
    queue.put(QUESTION, 0).close()
    clock.pass_by(24 * 3600 + 1)
    assert queue.decide(queue.rows()[0].name, allow=True, by="page")[0].state == "expired"
    assert QueueApprover(queue, 0)(QUESTION).allow is False


def test_a_clock_that_jumps_does_not_shorten_the_waiting(tmp_path: Path) -> None:
    clock = Clock()
    queue = Queue(inner(tmp_path), clock)
    with queue.put(QUESTION, 60) as ticket:
        clock.pass_by(10**6)
        queue.decide(ticket.asked.name, allow=True, by="page")
        assert ticket.wait(60).state == "allowed"


# --- what is wrong with the disk ---


def failing(number: int, name: str, error: int) -> Callable[..., object]:
    real, calls = getattr(os, name), iter(range(1000))

    def call(*args: object, **keywords: object) -> object:
        if next(calls) == number:
            raise OSError(error, os.strerror(error))
        return real(*args, **keywords)

    return call


@pytest.mark.parametrize("name", ["mkdir", "open", "fsync", "pwrite", "rename"])
@pytest.mark.parametrize("number", range(3))
def test_a_full_disk_refuses_and_leaves_nothing(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    os.makedirs(tmp_path / "approvals")
    with monkeypatch.context() as patch:
        patch.setattr(os, name, failing(number, name, errno.ENOSPC))
        answer = ask_approver(QueueApprover(queue, 0), QUESTION)
    assert answer.allow is False
    if "No space left" in answer.reason:
        assert os.listdir(tmp_path / "approvals") == []
        assert answer.reason.endswith("the question cannot be put into the queue: No space left on device")
        assert answer.reason.startswith("nobody could be asked: ")
    else:
        assert answer.reason.startswith("waiting for approval"), "that many calls were not made"


def test_a_queue_whose_names_are_all_taken(tmp_path: Path) -> None:
    queue = Queue(inner(tmp_path), new_id=lambda: "abc123")
    with queue.put(QUESTION, 0), pytest.raises(MudroomError, match=whole("no name was found for the question")):
        queue.put(QUESTION._replace(command=(b"rmmod", b"x")), 0)
    assert [row.name for row in queue.rows()] == ["abc123"]


@pytest.mark.parametrize(("name", "number"), [("open", 0), ("fsync", 0), ("link", 0)])
def test_an_answer_that_cannot_be_written_is_none(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    queue.put(QUESTION, 0).close()
    waiting = queue.rows()[0].name
    with monkeypatch.context() as patch:
        patch.setattr(os, name, failing(number, name, errno.ENOSPC))
        with pytest.raises(MudroomError, match="cannot be written: No space left"):
            queue.end(waiting, "allowed", "")
    assert queue.row(waiting).state == "waiting"
    assert sorted(os.listdir(queue._place(waiting))) == [b"question", b"waiter"]
    queue.decide(waiting, allow=True, by="page")
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", failing(0, "link", errno.ENOSPC))
        answer = ask_approver(QueueApprover(queue, 0), QUESTION)
    assert answer.allow is False
    assert "cannot be marked as used" in answer.reason
    assert ask_approver(QueueApprover(queue, 0), QUESTION).allow is True, "nobody has used it"


def test_room_is_made_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approval, "ROOM", QueueRoom(size=5000, largest=2000))
    clock = Clock()
    queue = Queue(inner(tmp_path), clock)
    for number in range(4):
        clock.pass_by(1)
        queue.put(QUESTION._replace(command=(b"x" * 1400,), fingerprint=str(number)), 0).close()
    assert [row.asked.question.fingerprint for row in queue.rows()] == ["1", "2", "3"][-len(queue.rows()) :]
    assert len(queue.rows()) < 4
    assert sum(row.size for row in queue.rows()) <= 5000


def test_without_a_bell_it_takes_longer(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "mkfifo", failing(0, "mkfifo", errno.ENOSPC))
    monkeypatch.setattr(approval, "LOOK", 0.01)
    with queue.put(QUESTION, 60) as ticket:
        assert ticket.fileno() == -1
        with forked(lambda: (queue.decide(ticket.asked.name, allow=True, by="page"), None)[1]):
            assert ticket.wait(60).state == "allowed"


def test_a_question_of_an_older_format_is_refused_by_name_and_put_anew(queue: Queue, tmp_path: Path) -> None:
    """Format 1 had no terms on which a command would run."""
    with queue.put(QUESTION, 0) as ticket:
        name = ticket.asked.name
    place = tmp_path / "approvals" / name / "question"
    row = msgspec.msgpack.decode(place.read_bytes())
    row[0], row[5] = 1, row[5][:-1]
    place.write_bytes(msgspec.msgpack.encode(row))
    assert queue.rows() == []
    with pytest.raises(UsageError, match=f"there is no question {name}"):
        queue.decide(name, allow=True, by="page")
    with queue.put(QUESTION, 0) as ticket:
        assert ticket.asked.name != name
        assert ticket.look() is None


def test_a_damaged_answer_is_none(queue: Queue) -> None:
    with queue.put(QUESTION, 60) as ticket:
        Path(os.fsdecode(queue._place(ticket.asked.name)), "decided").write_bytes(b"\x96\x01\xa7allowed")
        with pytest.raises(MudroomError, match="is damaged"):
            ticket.wait(60)
    assert queue.rows() == []
    assert ask_approver(QueueApprover(queue, 0), QUESTION).reason.startswith("waiting for approval")


# --- bounds, names, owners ---


def test_a_command_of_a_megabyte_and_one_too_large(queue: Queue) -> None:
    # Random bytes look like a secret at times.
    large = QUESTION._replace(command=(b"echo", b"a line of words\n\xff" * (1 << 16)))
    with queue.put(large, 60) as ticket:
        assert queue.row(ticket.asked.name).asked.command == large
    told = "the command has 4,194,305 bytes, more than the 4,194,304 that can be asked about"
    with pytest.raises(MudroomError, match=whole(f"{told} (put it into a script, and run that)")):
        queue.put(QUESTION._replace(command=(b"x" * (approval.LARGEST + 1),), fingerprint="5"), 60)


def test_old_questions_go_and_those_that_somebody_waits_for_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approval, "ROOM", QueueRoom(waiting=3, decided=2))
    clock = Clock()
    queue = Queue(inner(tmp_path), clock)

    def put(number: int) -> Ticket:
        clock.pass_by(1)
        return queue.put(QUESTION._replace(command=(b"%d" % number,), fingerprint=str(number)), 60)

    for number in range(5):
        put(number).close()
    assert [row.asked.question.fingerprint for row in queue.rows()] == ["2", "3", "4"]
    tickets = [put(number) for number in range(5, 8)]
    assert [row.asked.question.fingerprint for row in queue.rows()] == ["5", "6", "7"]
    with pytest.raises(MudroomError, match="3 questions are waiting already"):
        put(8)
    for ticket in tickets:
        queue.decide(ticket.asked.name, allow=True, by="page")
        ticket.close()
    put(9).close()
    assert [row.asked.question.fingerprint for row in queue.rows()] == ["6", "7", "9"]
    clock.pass_by(24 * 3600 + 9)
    put(10).close()
    assert [row.asked.question.fingerprint for row in queue.rows()] == ["10"]
    queue.decide(queue.rows()[0].name, allow=True, by="page")
    queue.tidy()
    assert [row.state for row in queue.rows()] == ["allowed"]
    clock.pass_by(24 * 3600 + 9)
    queue.tidy()
    assert queue.rows() == []


def test_no_setting_of_the_clock_deletes_a_question_or_changes_the_order(tmp_path: Path) -> None:
    clock = Clock()
    queue = Queue(inner(tmp_path), clock)
    aside = tmp_path / "approvals" / "aside-that another process is writing"
    for number, days in enumerate((0, 400, -900, 30), 1):
        clock.pass_by(days * 86400, 60)
        queue.put(QUESTION._replace(command=(b"%d" % number,), fingerprint=str(number)), 60).close()
        aside.mkdir(exist_ok=True)
        queue.tidy()
    assert [row.asked.question.fingerprint for row in queue.rows()] == ["1", "2", "3", "4"]
    assert [row["age_s"] for row in (row_to_json(row, clock()) for row in queue.rows())] == [180, 120, 60, 0]
    assert aside.is_dir()
    clock.pass_by(86400, 86400)
    queue.put(QUESTION._replace(command=(b"5",), fingerprint="5"), 60).close()
    assert [row.asked.question.fingerprint for row in queue.rows()] == ["4", "5"]


def test_texts_that_are_no_text_are_asked_about_and_answered(queue: Queue) -> None:
    strange = QUESTION._replace(agent="a\udcff", fork="f\ud800", verdict=VERDICT._replace(reason="\udc80"))
    approver = QueueApprover(queue, 0)
    assert ask_approver(approver, strange).reason.startswith("waiting for approval")
    queue.decide(queue.rows()[0].name, allow=True, by="\udcff", reason="because \udcff")
    assert ask_approver(approver, strange) == CommandAnswer(True, by="\\udcff", reason="because \\udcff")
    begun = HostApprover(queue, "", 0).begin(FlowQuestion(7, "x", 443, "tls", "f\udcff"))
    assert begun.look() == FlowAnswer(False, why="and nobody has answered in 0 s")
    begun.close()
    assert [row.state for row in queue.rows()] == ["allowed", "expired"]


def test_what_is_there_is_nobody_elses_to_read(queue: Queue, tmp_path: Path) -> None:
    queue.listen().close()
    queue.put(QUESTION, 0).close()
    queue.decide(queue.rows()[0].name, allow=True, by="page")
    for directory, _directories, files in os.walk(tmp_path / "approvals"):
        assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
        for name in files:
            assert stat.S_IMODE(os.stat(Path(directory, name)).st_mode) == 0o600


@pytest.mark.parametrize("name", ["", "nothing", "../f", "bells", "x" * 300, "\udcff", "a/b"])
def test_there_is_no_such_question(queue: Queue, name: str) -> None:
    queue.put(QUESTION, 0).close()
    queue.listen().close()
    with pytest.raises(UsageError, match="there is no question"):
        queue.decide(name, allow=True, by="page")


@pytest.mark.both_users
@pytest.mark.root
@pytest.mark.skipif(disk.user() != 0, reason="only root can give a file away")
def test_another_users_questions_are_not_ours_to_answer(queue: Queue, tmp_path: Path) -> None:
    queue.put(QUESTION, 0).close()
    name = queue.rows()[0].name
    os.chown(tmp_path / "approvals", 12345, 12345)
    told = f"the questions in {tmp_path}/approvals are another user's (only that user answers them)"
    with pytest.raises(MudroomError, match=whole(told)):
        queue.decide(name, allow=True, by="root")


def test_an_answer_is_used_once(queue: Queue) -> None:
    with queue.put(QUESTION, 0) as ticket:
        queue.decide(ticket.asked.name, allow=True, by="page")
        queue.use(ticket.asked.name)
        told = f"the answer to {ticket.asked.name} has been used already"
        with pytest.raises(MudroomError, match=whole(told)):
            queue.use(ticket.asked.name)


def test_the_bell_of_one_who_was_killed_is_removed(queue: Queue, tmp_path: Path) -> None:
    left(queue)
    queue.put(QUESTION._replace(fingerprint="5"), 0).close()
    assert os.listdir(tmp_path / "approvals/bells") == []


# --- hosts ---


def test_the_gates_questions_wait_in_the_same_queue(queue: Queue) -> None:
    begun = HostApprover(queue, "claude", 60).begin(FlowQuestion(7, "registry.example", 443, "tls", "f"))
    (row,) = queue.rows()
    assert row.asked.host == HostQuestion("registry.example", 443, "tls", "f", "claude")
    queue.decide(row.name, allow=True, by="page", keep=True)
    assert begun.look() == FlowAnswer(True, keep=True)
    begun.close()


def test_where_nobody_would_hear_of_it_nobody_is_waited_for(queue: Queue) -> None:
    approver, question = HostApprover(queue, "claude", 60, anyway=False), FlowQuestion(7, "x.example", 443, "tls")
    begun = approver.begin(question)
    assert (begun.look(), begun.fileno()) == (NOBODY, -1)
    waiter = queue.listen()
    assert approver.begin(question).look() == NOBODY, "who waits for an answer gives none"
    assert queue.rows() == []
    page = queue.listen("page")
    begun = approver.begin(question)
    (row,) = queue.rows()
    queue.decide(row.name, allow=False, by="page", reason="use\nthe mirror")
    assert begun.look() == FlowAnswer(False, why=r"and refused on the page (use\nthe mirror)")
    for one in (begun, waiter, page):
        one.close()


def test_a_host_is_refused_when_the_queue_fails(tmp_path: Path) -> None:
    (tmp_path / "approvals").write_text("no directory")
    begun = HostApprover(Queue(inner(tmp_path)), "", 60).begin(FlowQuestion(7, "x", 443, "tls"))
    refused = begun.look()
    assert refused is not None
    assert refused.why.startswith("but the questions in")
    assert (begun.fileno(), refused.allowed, refused.lasting) == (-1, False, True)
    begun.close()


def test_nobody_has_to_wait_for_an_answer_about_a_host(queue: Queue) -> None:
    approver = HostApprover(queue, "claude", 60)
    one, other = (approver.begin(FlowQuestion(number, f"host{number}.example", 443, "tls")) for number in (1, 2))
    assert (one.look(), other.look()) == (None, None)
    names = [row.name for row in queue.rows()]
    with forked(lambda: (queue.decide(names[0], allow=True, by="page", keep=True), None)[1]):
        while (answer := one.look()) is None:
            assert select.select([one.fileno()], [], [], 30)[0]
    assert answer == FlowAnswer(True, keep=True)
    one.close()
    other.close()
    late = HostApprover(queue, "claude", 0.0).begin(FlowQuestion(3, "host3.example", 443, "tls"))
    assert late.look() == FlowAnswer(False, why="and nobody has answered in 0 s")
    late.close()
    assert [row.state for row in queue.rows()] == ["allowed", "withdrawn", "expired"]


def test_a_question_about_a_host_whose_queue_breaks_is_refused(queue: Queue) -> None:
    begun = HostApprover(queue, "claude", 60).begin(FlowQuestion(1, "host.example", 443, "tls"))
    (row,) = queue.rows()
    Path(os.fsdecode(queue._place(row.name)), "decided").write_bytes(b"nothing")
    answer = begun.look()
    assert answer is not None
    assert (answer.allowed, "is damaged" in answer.why) == (False, True)
    begun.close()
