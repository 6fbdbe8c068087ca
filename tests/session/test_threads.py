"""Several threads of one session at once: no thread sees the state of another thread's command, or loses its
changes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import mudroom.vault.forks.flatten
from clocks import give_way
from conftest import Place
from mudroom.core.approval.approval import CommandAnswer, CommandQuestion
from mudroom.core.command.policy import ClassRule, CommandPolicy
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.session import Session, Stdio
from mudroom.session.approval import CommandAnswers
from mudroom.session.shared_sandbox.tender import SharedSandbox
from mudroom.session.upkeep import Queue, QueueApprover
from mudroom.stage.buffer.buffer import Buffer
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork

ASKING = Settings(commands=CommandPolicy((ClassRule("unknown", "require_approval", "policy.yaml:1", 1),)))
WAITING = b"while [ ! -e stop ]; do sleep 0.01; done"


class Call:
    """A call in its own thread. ``result`` waits for it, and raises its exception."""

    def __init__(self, function: Callable[[], Any], patience: float = 0.0) -> None:
        """``patience``: seconds for which its end is waited for here."""
        self._function, self._result = function, None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._thread.join(patience)

    def _run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:  # noqa: BLE001 - for the thread that asks for the result
            self._error = error

    def result(self) -> Any:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result


class Waiting:
    """A command that runs until ``stop``. It has started when the object is made."""

    def __init__(self, session: Session, fork: str, script: bytes = WAITING) -> None:
        if session.vault.find(fork) is None:
            session.forks.new(fork)
        self._files = session.forks.files(fork)
        self._files.list()  # in use: the live mount is asked for
        up = threading.Event()
        stdio = Stdio(on_output=lambda _stream, _data: up.set())
        self._call = Call(
            lambda: session.run([b"sh", b"-c", b"echo up; " + script], fork=fork, stdio=stdio, timeout=80)
        )
        assert up.wait(60), "all that goes on beside its start is done, too"

    def size(self, name: str) -> int:
        entry = self._files.look(name)
        return entry.size if entry is not None else 0

    def end(self) -> Result:
        self._files.write("stop", b"")
        return self.result()

    def result(self) -> Result:
        found: Result = self._call.result()
        return found


def deep_fork(session: Session, name: str, layers: int) -> None:
    session.forks.new(name)
    for number in range(layers):
        session.forks.files(name).write(f"{name}-{number}", name)
        session.forks.checkpoint(name, f"c{number}")


def test_a_merged_layer_stays_with_its_fork(place: Place) -> None:
    """The layers of ``a`` are merged while a command runs in ``b``: ``b`` keeps its own layers."""
    session = place.session()
    deep_fork(session, "a", mudroom.vault.forks.flatten.DEEP + 2)
    deep_fork(session, "b", mudroom.vault.forks.flatten.KEPT + 2)
    b = Waiting(session, "b")
    a = Waiting(session, "a")
    assert b.end().exit_code == 0
    assert a.end().exit_code == 0
    for name in ("a", "b"):
        listed = session.run([b"ls"], fork=name).stdout.split()
        assert {path[:1] for path in listed if b"-" in path} == {name.encode()}
    session.changes.apply("b")
    assert not list(place.project.glob("a-*")), "a file of the other fork"
    assert len(session.vault.fork("a").state.layers) < mudroom.vault.forks.flatten.DEEP, "it has been merged"


def test_a_command_beside_a_verification_has_its_own_settings(place: Place) -> None:
    place.write("f", "1\n")
    policy = Settings(network="open", verify=(b"true",), verify_when="always")
    session = place.session(policy._replace(network="none"), policy=policy)
    session.run([b"sh", b"-c", b"echo 2 > f"], fork="f")
    seen: list[bytes] = []

    def verifying(_command: tuple[bytes, ...]) -> Callable[[bytes], None]:
        other = Call(lambda: session.run([b"tail", b"-n", b"+3", b"/proc/net/dev"], fork="other"))
        seen.append(other.result().stdout)
        return lambda _data: None

    landed = session.changes.apply("f", on_verify=verifying)
    assert landed.verified is not None and landed.verified.passed
    names = {line.split(b":")[0].strip() for line in seen[0].splitlines()}
    assert names == {b"lo"}, "it asked for no network, and has the host's"


def test_the_vault_alone_holds_against_other_threads(place: Place) -> None:
    session = place.session()
    counting = b"i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i >> count; done"
    agent = Waiting(session, "agent", counting)
    while not agent.size("count"):
        give_way()
    stopped: list[bool] = []
    with session.alone("the user", stopping=lambda: stopped.append(True)):
        assert stopped == [True], "the command of the other thread"
        size = agent.size("count")
        assert session.run([b"sh", b"-c", b"i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done"]).exit_code == 0
        assert agent.size("count") == size, "it went on meanwhile"
    assert agent.end().exit_code == 0


def test_a_thread_without_the_vault_waits_for_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session = place.session()
    begin, at_the_door = session.vault.turn.begin, threading.Event()
    order: list[str] = []

    def arriving(waiting: Callable[[bytes], None], *, is_users: bool = False) -> None:
        at_the_door.set()
        begin(waiting, is_users=is_users)

    def run() -> None:
        session.run([b"true"], fork="other")
        order.append("ran")

    monkeypatch.setattr(session.vault.turn, "begin", arriving)
    with session.alone("the user"):
        other = Call(run)
        while not at_the_door.is_set() and not order:
            give_way()
        assert session.run([b"true"]).exit_code == 0
        order.append("free")
    other.result()
    assert order == ["free", "ran"]


def test_two_threads_want_the_vault_alone(place: Place) -> None:
    session = place.session()
    inside: list[int] = []

    def alone(number: int) -> None:
        for _time in range(30):
            with session.alone(f"thread {number}"):
                inside.append(number)
                assert inside == [number]
                inside.remove(number)

    calls = [Call(partial(alone, number)) for number in range(4)]
    for call in calls:
        call.result()


def test_the_signal_for_one_command_is_not_lost_when_another_ends(place: Place) -> None:
    session = place.session()
    long = Waiting(session, "long")
    assert session.run([b"true"], fork="short").exit_code == 0
    assert session.interrupt() is True
    assert long.result().signal == 15
    assert session.interrupt() is False


@pytest.mark.parametrize("how", ["command", "tools", "checkpoint", "fork"])
def test_a_refused_command_leaves_the_fork_that_another_has_used(place: Place, how: str) -> None:
    """The fork was made for the command that is asked about; meanwhile another thread works in it."""
    place.write("run.sh", "echo never\n")

    def use(session: Session) -> None:
        if how == "command":
            session.run([b"sh", b"-c", b"echo work > work"], fork="f")
            return
        if session.vault.find("f") is None:
            session.forks.new("f")
        if how == "checkpoint":
            session.forks.checkpoint("f", "kept")
        elif how == "tools":
            session.forks.files("f").write("work", b"work\n")
        elif how == "fork":
            session.forks.new("child", parent="f")

    def no(_question: CommandQuestion) -> CommandAnswer:
        Call(lambda: use(other)).result()
        return CommandAnswer(False, by="a test")

    other = place.session()
    session = place.session(ASKING, agent="coder", commands=CommandAnswers(approver=no))
    assert session.run([b"sh", b"run.sh"], fork="f").ran is False
    assert other.vault.find("f") is not None
    if how in ("command", "tools"):
        assert [change.path for change in other.changes.of("f").changes] == [b"work"]


def test_a_command_that_has_changed_leaves_the_fork_that_another_has_used(place: Place) -> None:
    place.write("run.sh", "echo harmless\n")

    def yes(_question: CommandQuestion) -> CommandAnswer:
        other.run([b"sh", b"-c", b"echo work > work"], fork="f")
        place.write("run.sh", "echo evil\n")
        return CommandAnswer(True, by="a test")

    other = place.session()
    session = place.session(ASKING, agent="coder", commands=CommandAnswers(approver=yes))
    result = session.run([b"sh", b"run.sh"], fork="f")
    assert result.ran is False and "changed since it was approved" in result.verdict.reason
    assert [change.path for change in other.changes.of("f").changes] == [b"work"]


def test_an_answer_is_used_by_one_command(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads ask the same question at the same time: the second waits."""
    place.write("run.sh", "echo ran\n")
    queue = Queue(os.fsencode(place.root))
    os.makedirs(place.root / "approvals", exist_ok=True)
    session = place.session(ASKING, agent="coder", commands=CommandAnswers(approver=QueueApprover(queue, 0)))
    session.forks.new("f")
    command = [b"sh", b"run.sh"]
    for _time in range(5):
        assert session.run(command, fork="f").ran is False
        (waiting,) = [row for row in queue.rows() if row.decision is None]
        queue.decide(waiting.name, allow=True, by="a test")
        both = threading.Barrier(2)

        def ask(both: threading.Barrier = both) -> bool:
            both.wait()
            ran: bool = session.run(command, fork="f").ran
            return ran

        calls = [Call(ask) for _thread in range(2)]
        assert sorted(call.result() for call in calls) == [False, True]
        for row in queue.rows():
            if row.decision is None:
                queue.decide(row.name, allow=False, by="a test")
        assert session.run(command, fork="f").ran is False, "the answer of no is used up as well"


def test_a_fork_gets_its_first_layer_while_it_is_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question is asked without the fork's lock."""
    session, result = place.sh("echo new > made")
    monkeypatch.setattr(Fork, "contents", ())  # as it was read before
    with OpenFork(session.vault, session.vault.fork(result.fork)) as opened:
        assert isinstance(opened.merged().names(b""), dict)


def beside(monkeypatch: pytest.MonkeyPatch, method: str, function: Callable[[], Any]) -> list[Call]:
    """At the first call of a buffer's method, begin the function in another thread, and give it time."""
    before, calls = getattr(Buffer, method), list[Call]()

    def called(self: Buffer, *arguments: Any) -> Any:
        if not calls:
            calls.append(Call(function, 0.3))
        return before(self, *arguments)

    monkeypatch.setattr(Buffer, method, called)
    return calls


def test_a_command_that_starts_sees_a_write_that_has_begun(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session = place.session()
    session.forks.new("f")
    files = session.forks.files("f")
    files.list()
    calls = beside(monkeypatch, "write", lambda: session.run([b"cat", b"new"], fork="f"))
    files.write("new", b"new\n")
    assert calls[0].result().stdout == b"new\n"


def test_two_threads_edit_one_file(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a model's parallel calls do."""
    place.write("f", "one\ntwo\n")
    session = place.session()
    session.forks.new("f")
    files = session.forks.files("f")
    calls = beside(monkeypatch, "_place", lambda: files.edit("f", "two", "2"))
    files.edit("f", "one", "1")
    assert calls[0].result() == 1
    assert files.read("f") == b"1\n2\n"


def test_a_read_goes_on_in_the_buffer_when_the_command_has_ended(place: Place) -> None:
    session = place.session()
    running = Waiting(session, "f")
    files = session.forks.files("f")
    files.write("new", b"new\n")
    tree = files.tree()
    running.end()
    assert (tree.read(b"new"), list(tree.names(b""))) == (b"new\n", list(files.tree().names(b"")))


def test_a_read_of_a_discarded_fork_says_so(place: Place) -> None:
    session = place.session()
    session.forks.new("f")
    tree = session.forks.files("f").tree()
    session.forks.discard("f")
    with pytest.raises(UsageError, match="no fork named f"):
        tree.look(b"new")


def test_a_write_while_a_background_command_s_last_changes_are_collected(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the next record: the last one of the command is made already."""
    session = place.session()
    session.forks.new("f")
    files, gather, calls = session.forks.files("f"), SharedSandbox._gather, list[Call]()
    files.list()

    def gathered(self: SharedSandbox, *, live: bool) -> Any:
        changeset = gather(self, live=live)
        if not live:
            calls.append(Call(lambda: files.write("late", b"late"), 0.3))
        return changeset

    monkeypatch.setattr(SharedSandbox, "_gather", gathered)
    session.start([b"true"], fork="f").wait()
    session.sandboxes.end("f", grace=0.0)
    for call in calls:
        call.result()
    assert calls and [change.path for change in session.changes.of("f").changes] == [b"late"]
