"""Commands in the background of a fork, and what happens meanwhile: who was faster, who went away, what is left."""

from __future__ import annotations

import contextlib
import marshal
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from background_command import heard
from conftest import Place, act_as
from mudroom.core.approval.approval import CommandAnswer, CommandQuestion
from mudroom.core.background import BackgroundStart
from mudroom.core.command.policy import ClassRule, CommandPolicy
from mudroom.core.settings import Settings
from mudroom.errors import CommandNotStarted, MudroomError, UsageError
from mudroom.sandbox.client.invocation import Invocation
from mudroom.session import Session
from mudroom.session.approval import CommandAnswers
from mudroom.session.background import Background
from mudroom.session.joined_sandbox import JoinedSandbox
from mudroom.session.order import Pipes
from mudroom.vault.forks.background import Book
from mudroom.vault.store.fork import Fork

pytestmark = pytest.mark.both_users

ASKING = Settings(commands=CommandPolicy((ClassRule("unknown", "require_approval", "policy.yaml:1", 1),)))
SCRIPT = [b"sh", b"run.sh"]


def yes(_question: CommandQuestion) -> CommandAnswer:
    return CommandAnswer(True, by="a test")


def asking(place: Place, ask: Any = yes) -> Session:
    return place.session(ASKING, agent="coder", commands=CommandAnswers(approver=ask))


def staged(session: Session) -> Path:
    return Path(os.fsdecode(session.vault.fork("f").upper)) / "run.sh"


def names(session: Session) -> list[str]:
    return [fork.name for fork in session.vault.forks()]


def idle(session: Session) -> Background:
    """Something in the background of f, of the user's own."""
    return session.start([b"sleep", b"1000"], fork="f", actor=session.actor._replace(agent=None))


def test_what_was_approved_is_looked_at_once_the_fork_is_ours(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever had the fork has changed it meanwhile."""
    session = asking(place)
    session.forks.new("f")
    session.forks.files("f").write(b"run.sh", b"echo harmless\n")
    session.run([b"true"], fork="f")
    locked = session.forks.locked

    @contextmanager
    def late(fork: Fork, what: str) -> Iterator[None]:
        with locked(fork, what):
            staged(session).write_bytes(b"echo evil\n")
            yield

    monkeypatch.setattr(session.forks, "locked", late)
    one = session.start(SCRIPT, fork="f")
    assert one.refused is not None and "changed since it was approved" in one.refused.verdict.reason
    assert session.sandboxes.backgrounds() == []
    monkeypatch.undo()
    assert session.start(SCRIPT, fork="f").wait() is not None, "the fork is free, and asked about anew"


@pytest.mark.parametrize("own", [True, False])
def test_what_was_approved_is_looked_at_before_it_joins(
    place: Place, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    holding = asking(place)
    session = holding if own else asking(place)
    holding.forks.new("f")
    holding.forks.files("f").write(b"run.sh", b"echo harmless\n")
    other = idle(holding)
    require_same = JoinedSandbox.require_same

    def late(place_in: JoinedSandbox) -> None:
        staged(session).write_bytes(b"echo evil\n")
        require_same(place_in)

    monkeypatch.setattr(JoinedSandbox, "require_same", late)
    one = session.start(SCRIPT, fork="f")
    assert one.refused is not None and "changed since it was approved" in one.refused.verdict.reason
    assert [row.id for row, _end in session.sandboxes.backgrounds()] == [other.id]


def interrupts(_question: CommandQuestion) -> CommandAnswer:
    raise KeyboardInterrupt


@pytest.mark.parametrize("call", ["run", "start"])
def test_an_interrupted_question_leaves_no_fork(place: Place, call: str) -> None:
    session = asking(place, interrupts)
    place.write("run.sh", "echo harmless\n")
    with pytest.raises(KeyboardInterrupt):
        getattr(session, call)(SCRIPT)
    assert names(session) == []


@pytest.mark.parametrize("call", ["run", "start"])
def test_what_has_changed_leaves_no_fork(place: Place, call: str) -> None:
    def changing(_question: CommandQuestion) -> CommandAnswer:
        place.write("run.sh", "echo evil\n")
        return CommandAnswer(True, by="a test")

    session = asking(place, changing)
    place.write("run.sh", "echo harmless\n")
    done = getattr(session, call)(SCRIPT)
    refused = done.refused if call == "start" else done
    assert refused.ran is False and refused.fork == ""
    assert names(session) == []


@pytest.mark.parametrize("kind", ["approval", "background"])
def test_a_journal_that_fails_leaves_no_fork(place: Place, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    session = asking(place)
    place.write("run.sh", "echo harmless\n")
    append = session.vault.journal.append

    def failing(what: str, *arguments: Any, **named: Any) -> Any:
        if what == kind:
            raise MudroomError("the journal cannot be written")
        return append(what, *arguments, **named)

    monkeypatch.setattr(session.vault.journal, "append", failing)
    with pytest.raises(MudroomError, match="cannot be written"):
        session.start(SCRIPT)
    assert names(session) == []


def connected(session: Session) -> socket.socket:
    book = Path(os.fsdecode(session.vault.fork("f").path)) / "background"
    found = socket.socket(socket.AF_UNIX)
    with contextlib.chdir(book):
        found.connect("socket")
    return found


def test_a_visitor_that_hangs_up_ends_nothing(place: Place) -> None:
    """At once; in the middle of a sentence; before it is told that it is refused; with words that are none."""
    session = place.session()
    server = idle(session)
    for _time in range(20):
        connected(session).close()
    for said in (b"\5\0\0\0x", b"\4\0\0\0none"):
        with connected(session) as visitor:
            visitor.sendall(said)
    refused: Any = {"op": "command", "id": 1, "terms": "others"}
    request: Any
    for request in (refused, {"op": "signal", "id": []}, {"op": "x"}, [], {}, 3):
        read, write = os.pipe()
        os.close(read)
        with connected(session) as visitor:
            data = marshal.dumps(request)
            socket.send_fds(visitor, [len(data).to_bytes(4, "little") + data], [write])
            os.close(write)
            assert visitor.recv(1) == b"w"
            assert visitor.recv(1) == b"", "it is shown the door"
    other = place.session()
    assert other.run([b"true"], fork="f").exit_code == 0
    assert server.poll() is None


@pytest.mark.parametrize("own", [True, False])
def test_who_cannot_join_leaves_no_checkpoint(place: Place, own: bool) -> None:
    place.write("build/x", "x\n")
    holding = place.session(agent="coder")
    session = holding if own else place.session(agent="coder")
    idle(holding)
    act_as(session, settings=session.actor.settings._replace(network="none"))
    for call in (session.run, session.start):
        with pytest.raises(UsageError, match="other settings"):
            call([b"rm", b"-r", b"build"], fork="f")
    assert session.vault.fork("f").state.checkpoints == ()


def test_checkpoints_before_commands_side_by_side(place: Place) -> None:
    """Each has a name of its own, whoever was the first to choose one."""
    holding = place.session(agent="coder")
    server = idle(holding)
    made: list[str | None] = []
    failed: list[BaseException] = []

    def commands(session: Session) -> None:
        try:
            made.extend(session.run([b"rm", b"-f", b"nothing"], fork="f").checkpoint for _time in range(4))
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=commands, args=(place.session(agent="coder"),)) for _one in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert sorted(str(name) for name in made) == sorted(f"before-rm-f-nothing-{number + 1}" for number in range(12))
    server.end()


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_who_waits_for_its_end_finds_what_it_has_changed(
    place: Place, monkeypatch: pytest.MonkeyPatch, own: bool, whole: bool
) -> None:
    """``whole``: it ends with all that is in the sandbox."""
    holding = place.session()
    session = holding if own else place.session()
    idle(holding)
    one = session.start([b"sh", b"-c", b"echo x > made; echo up; sleep 1000"], fork="f")
    heard(one, b"up")
    tended = holding.forks.users.shared("f")
    assert tended is not None
    gather = tended._gather
    ends: list[Any] = []

    def seen(*arguments: Any, **named: Any) -> None:
        ends.append(one.poll() or one.wait(0.0))
        gather(*arguments, **named)

    monkeypatch.setattr(tended, "_gather", seen)
    if whole:
        tended.held.running.signal(9)
    else:
        session.sandboxes.end("f", [one.id])
    assert one.wait() is not None
    assert ends[0] is None, "it was told before anything was collected"
    record = session.vault.fork("f").record
    assert record is not None and {change.path for change in record.changeset.changes} == {b"made"}


def test_a_command_beside_those_that_another_thread_ends(place: Place) -> None:
    """It had been let in before: it is refused in one line, and a signal for it is no error."""
    session = place.session()
    idle(session)
    shared = session.forks.users.shared("f")
    assert shared is not None
    null = os.open(os.devnull, os.O_RDWR)
    try:
        with shared.guest() as welcome:
            assert welcome
            invocation = Invocation([b"sleep", b"1000"], {b"PATH": b"/usr/bin:/bin"}, (null, null, null))
            running = shared.join(invocation, session.project, "")
            session.sandboxes.end("f", grace=0.0)
            assert shared.wait()
            running.signal(15)
            with pytest.raises(UsageError, match="the background commands of this fork have just ended"):
                shared.join(invocation, session.project, "")
            running.close()
    finally:
        os.close(null)
    assert session.run([b"cat", b"made"], fork="f").exit_code in (0, 1)


def test_the_end_of_one_whose_keeper_was_killed(place: Place) -> None:
    """It is found by who waits: nobody else writes it down."""
    session = place.session()
    session.forks.new("f")
    fork = session.vault.fork("f")
    started = BackgroundStart("0badcafe", "f", (b"sleep", b"1000"), session.project, 1, 1)
    Book(fork).begin(started)
    Book(fork).note({"mode": "overlay", "port": 0, "environment": [], "masked": [], "keeper": 1})
    one = Background(session.sandboxes, started)
    ended = one.wait(0.0)
    assert ended is not None and ended.signal == 9
    Book(fork).write(started, None)
    assert one.end() is not None


CHANGED = b"mkdir d; echo 1 > d/a; ln d/a b; ln -s b l; rm gone; chmod 600 d/a; rm -r e; mkdir e; echo up; sleep 1000"


@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_checkpoints_of_the_very_same_share_what_they_hold(place: Place, view: str) -> None:
    """Of a command that changes nothing, and of one that never begins; not of one that changes a byte."""
    place.write("gone", "x\n")
    place.write("e/f", "x\n")
    session = place.session(Settings(view=view, keep_applies=3), agent="coder")  # type: ignore[arg-type]
    server = session.start([b"sh", b"-c", CHANGED], fork="f")
    heard(server, b"up")
    before = len(session.vault.fork("f").state.checkpoints)
    for _time in range(3):
        session.run([b"rm", b"-f", b"nothing"], fork="f")
        with pytest.raises(CommandNotStarted):
            session.run([b"no-such-program", b"-x"], fork="f")
    made = [point.layers for point in session.vault.fork("f").state.checkpoints[before:]]
    assert len(made) == 6 and set(made) == {made[0]}
    sneaky = b"touch -r b /tmp/time; printf '2\\n' > b; touch -r /tmp/time b; rm -f nothing"
    session.run([b"sh", b"-c", sneaky], fork="f")
    result = session.run([b"rm", b"-f", b"b"], fork="f")
    assert result.checkpoint is not None
    last = session.vault.fork("f").state.checkpoint(result.checkpoint)
    assert last is not None and last.layers not in made
    session.sandboxes.end("f")
    session.forks.rollback("f", result.checkpoint)
    act_as(session, agent=None)
    assert session.run([b"cat", b"b", b"d/a"], fork="f").stdout == b"2\n2\n"


def test_threads_that_start_at_once_share_one_sandbox(place: Place) -> None:
    """None of them waits for the end of the others' commands."""
    session = place.session()
    session.forks.new("f")
    ready = threading.Barrier(4)
    started: list[Background] = []

    def start() -> None:
        ready.wait()
        started.append(session.start([b"sleep", b"1000"], fork="f"))

    threads = [threading.Thread(target=start, daemon=True) for _thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(started) == 4
    assert [background.poll() for background in started] == [None] * 4
    session.sandboxes.end("f")
    assert all(background.poll() is not None for background in started)


def test_a_background_command_gets_the_pipes_that_it_is_given(place: Place) -> None:
    session = place.session()
    (their_in, our_in), (our_out, their_out) = (os.pipe(), os.pipe())
    background = session.start(
        [b"sh", b"-c", b"cat; echo end >&2"], fork="f", stdio=Pipes(their_in, their_out, their_out)
    )
    for descriptor in (their_in, their_out):
        os.close(descriptor)
    os.write(our_in, b"through\n")
    os.close(our_in)
    with open(our_out, "rb") as stream:
        assert stream.read() == b"through\nend\n"
    ended = background.wait()
    assert ended is not None
    assert ended.exit_code == 0
    assert background.output() == (b"", b"")
