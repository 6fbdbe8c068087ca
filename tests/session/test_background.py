"""Commands in the background of a fork, through the library: beside them others run, and all ends with the session."""

from __future__ import annotations

import _socket
import errno
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clocks import give_way
from conftest import Place, act_as, full_listing
from mudroom.cli.fork.ls import fork_rows
from mudroom.core.approval.approval import CommandAnswer, CommandQuestion
from mudroom.core.confinement.limit import Limits
from mudroom.core.network.host_rules import HostRule
from mudroom.core.settings import Settings
from mudroom.errors import CommandNotStarted, MudroomError, Unsupported, UsageError
from mudroom.sandbox.client.invocation import Invocation
from mudroom.sandbox.host.host import landlock_abi
from mudroom.session import Session, Stdio
from mudroom.session.background import Background
from mudroom.session.order import Pipes
from mudroom.session.shared_sandbox import visitor
from mudroom.session.shared_sandbox.remote import connect
from mudroom.session.shared_sandbox.tender import SharedSandbox
from mudroom.vault.forks.background import RING
from mudroom.vault.forks.fork_summary import ForkSummaries
from test_vault_verb import Cli
from whole_text import whole

pytestmark = pytest.mark.both_users

SH = (b"sh", b"-c")
SERVER = "echo up; echo there > made; while :; do sleep 0.02; done"


def heard(background: Background, what: bytes) -> None:
    """Until it has printed that; a test has its own limit of time."""
    while what not in background.output()[0]:
        assert background.poll() is None, background.output()
        give_way()


def started(session: Session, script: str, timeout: float | None = None) -> Background:
    background = session.start([*SH, script.encode()], fork="f", timeout=timeout)
    heard(background, b"up")
    return background


@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_a_command_runs_beside_one_in_the_background(place: Place, view: str) -> None:
    place.write("old", "o\n")
    before = full_listing(place.project)
    session = place.session(Settings(view=view))  # type: ignore[arg-type]
    server = started(session, SERVER)
    result = session.run([*SH, b"cat made; echo hello > said; echo more >> old"], fork="f")
    assert (result.exit_code, result.stdout) == (0, b"there\n")
    assert {change.path for change in result.changeset.changes} == {b"made", b"said", b"old"}
    assert all(change.original_known for change in result.changeset.changes)
    ended = server.end()
    assert ended is not None and ended.signal == 15
    assert {change.path for change in session.changes.of("f").changes} == {b"made", b"said", b"old"}
    assert full_listing(place.project) == before


def test_it_is_listed_and_what_it_prints_is_kept(place: Place) -> None:
    session = place.session()
    server = started(session, "echo up; echo wrong >&2; read word < /dev/null; sleep 1000")
    other = session.start([*SH, b"exit 3"], fork="f")
    ended = other.wait()
    assert ended is not None and (ended.exit_code, ended.signal, ended.timed_out) == (3, None, False)
    rows = {row.id: end for row, end in session.sandboxes.backgrounds("f")}
    assert rows[server.id] is None and rows[other.id] == ended
    assert server.output() == (b"up\n", b"wrong\n")
    assert server.poll() is None


def test_its_processes_are_seen_outside_and_inside(place: Place) -> None:
    session = place.session()
    server = started(session, "echo up; echo $$; sleep 1000")
    while (usage := server.usage()) is None or usage.processes < 2:
        assert server.poll() is None
        give_way()
    assert server.output()[0] == b"up\n%d\n" % usage.inside
    assert Path(f"/proc/{usage.pid}/comm").read_text() == "sh\n"
    assert usage.memory > 0 and usage.ports == ()
    server.end()
    assert server.usage() is None


def test_the_output_that_is_kept_is_bounded(place: Place) -> None:
    session = place.session()
    talker = session.start([*SH, b"head -c 5000000 /dev/zero; echo end"], fork="f")
    talker.wait()
    out, _err = talker.output()
    assert RING <= len(out) <= 2 * RING
    assert out.endswith(b"\0end\n")


def test_a_program_that_is_not_there_says_so_where_it_would_have(place: Place) -> None:
    session = place.session()
    one = session.start([b"no-such-program"], fork="f")
    ended = one.wait()
    assert ended is not None and ended.exit_code == 127
    assert one.output() == (b"", b"mudroom: no-such-program: command not found\n")


HAND_ON = """
import os, socket, sys
path = "/tmp/handed"
if sys.argv[1] == "keep":
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    print("up", flush=True)
    kept = socket.recv_fds(server.accept()[0], 1, 1)
    while True:
        os.read(0, 1) or os.sched_yield()
else:
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    socket.send_fds(client, [b"x"], [1])
    print("handed on", flush=True)
"""


def test_one_that_has_handed_on_its_output_is_over_all_the_same(place: Place) -> None:
    place.write("hand.py", HAND_ON)
    session = place.session()
    python = [os.fsencode(sys.executable), b"-I", b"hand.py"]
    keeper = session.start([*python, b"keep"], fork="f")
    heard(keeper, b"up")
    other = session.start([*python, b"give"], fork="f")
    ended = other.wait()
    assert ended is not None and ended.exit_code == 0
    assert other.output()[0] == b"handed on\n"
    result = session.run([*python, b"give"], fork="g")
    assert result.exit_code == 1, "another fork has another /tmp"
    keeper.end()


def test_who_is_asked_to_end_has_not_run_out_of_time(place: Place) -> None:
    session = place.session()
    ended = started(session, SERVER, timeout=1000.0).end()
    assert ended is not None and not ended.timed_out


@pytest.mark.parametrize("level", [0, 1])
def test_at_either_level(place: Place, level: int) -> None:
    session = place.session(Settings(level=level))
    server = started(session, SERVER)
    result = session.run([*SH, b"cat made; touch /etc/x || echo no"], fork="f")
    assert (result.level, result.stdout) == (level, b"there\nno\n")
    server.end()


@pytest.mark.parametrize("own", [True, False])
def test_hosts_that_one_may_reach_are_not_lent_to_another(place: Place, own: bool) -> None:
    """Those of the project are everybody's and may change; those of a card are its agent's."""
    rules: list[HostRule] = []
    session, other = place.session(), place.session()
    for one in (session, other):
        one.machine.host_answers = (lambda: tuple(rules), *one.machine.host_answers[1:])
    server = started(session, SERVER)
    joining = session if own else other
    rules.append(HostRule("allow", "project.example"))
    assert joining.run([b"true"], fork="f").exit_code == 0
    joining.machine.host_answers = (
        lambda: (*rules, HostRule("allow", "card.example")),
        *joining.machine.host_answers[1:],
    )
    with pytest.raises(UsageError, match="other settings"):
        joining.run([b"true"], fork="f")
    with pytest.raises(UsageError, match="other settings"):
        joining.start([b"true"], fork="f")
    server.end()


def test_limits_are_those_of_all_together(place: Place) -> None:
    session = place.session(Settings(limits=Limits(open_files=64)))
    server = started(session, SERVER)
    assert session.run([*SH, b"ulimit -n"], fork="f").stdout == b"64\n"
    act_as(session, settings=session.actor.settings._replace(limits=Limits(open_files=100)))
    with pytest.raises(UsageError, match="other settings"):
        session.run([b"true"], fork="f")
    server.end()


def test_what_the_policy_says_of_the_background(place: Place) -> None:
    session = place.session(Settings(background="deny"))
    act_as(session, agent="tester")
    refused = session.start([b"sleep", b"1000"], fork="f").refused
    assert refused is not None and refused.exit_code == 126 and refused.verdict.rule == "background"
    assert session.run([b"true"], fork="f").exit_code == 0
    act_as(session, agent=None)
    started(session, SERVER).end()


@pytest.mark.parametrize("allow", [True, False])
def test_the_background_may_have_to_be_approved(place: Place, allow: bool) -> None:
    session = place.session(Settings(background="require_approval"))
    act_as(session, agent="tester")
    asked: list[CommandQuestion] = []

    def answer(question: CommandQuestion) -> CommandAnswer:
        asked.append(question)
        return CommandAnswer(allow, by="a test")

    session.approval.ask_about(answer)
    one = session.start([*SH, b"echo up; sleep 1000"], fork="f")
    assert [question.verdict.rule for question in asked] == ["background"]
    assert (one.refused is None) == allow
    if allow:
        heard(one, b"up")
        one.end()
    else:
        assert one.refused is not None and one.refused.exit_code == 126
        assert session.vault.forks() == []


def test_a_destructive_command_beside_one_gets_its_checkpoint(place: Place) -> None:
    place.write("build/x", "x\n")
    session = place.session()
    act_as(session, agent="tester")
    server = started(session, "echo up; echo y > y; while :; do sleep 0.02; done")
    while b"y" not in {change.path for change in session.changes.of("f").changes}:
        assert server.poll() is None
        give_way()
    result = session.run([b"rm", b"-rf", b"build"], fork="f")
    assert result.checkpoint is not None and result.exit_code == 0
    server.end()
    session.sandboxes.end("f")
    session.forks.rollback("f", result.checkpoint)
    assert {change.path for change in session.changes.of("f").changes} == {b"y"}


def test_a_terminal_beside_one(place: Place) -> None:
    """As a user has it: both ends of a pseudo-terminal outside."""
    session = place.session()
    server = started(session, SERVER)
    outside, inside = os.openpty()
    script = b"test -t 0 && tty && echo word: $(head -n 1)"
    ended: list[int] = []
    stdio = Stdio(inside, inside, inside, terminal=True)
    thread = threading.Thread(target=lambda: os.write(outside, b"typed\n"))
    thread.start()
    ended.append(session.run([*SH, script], fork="f", stdio=stdio).exit_code)
    thread.join()
    os.set_blocking(outside, False)
    said = os.read(outside, 4096)
    assert ended == [0] and b"/dev/pts/0" in said and b"word: typed" in said
    for descriptor in (outside, inside):
        os.close(descriptor)
    server.end()


def test_a_server_is_reached_over_the_loopback_they_share(place: Place) -> None:
    session = place.session(Settings(network="none"))
    serve = (
        "import socket; s = socket.create_server(('127.0.0.1', 3000)); print('up', flush=True)\n"
        "while True: c, _ = s.accept(); c.sendall(b'hello'); c.close()"
    )
    server = session.start([os.fsencode(sys.executable), b"-I", b"-S", b"-c", serve.encode()], fork="f")
    heard(server, b"up")
    ask = "import socket; print(socket.create_connection(('127.0.0.1', 3000)).recv(9).decode())"
    result = session.run([os.fsencode(sys.executable), b"-I", b"-c", ask.encode()], fork="f")
    assert result.stdout == b"hello\n", result.stderr
    apart = session.run([os.fsencode(sys.executable), b"-I", b"-c", ask.encode()], fork="other")
    assert b"ConnectionRefusedError" in apart.stderr


def test_it_runs_out_of_time(place: Place) -> None:
    session = place.session()
    ended = started(session, "trap '' TERM; echo up; echo x > made; sleep 1000 & wait; sleep 1000", timeout=0.3).wait()
    assert ended is not None and ended.timed_out and ended.signal == 9
    assert {change.path for change in session.changes.of("f").changes} == {b"made"}


def test_all_ends_with_the_session_and_is_collected(place: Place) -> None:
    session = place.session()
    for script in (SERVER, "trap '' TERM; echo up; echo x > more; sleep 1000 & wait; sleep 1000"):
        started(session, script)
    session.run([*SH, b"(setsid sleep 1000 &) ; true"], fork="f")
    session.close()
    again = place.session()
    assert [end.signal for _row, end in again.sandboxes.backgrounds() if end is not None] == [15, 9]
    assert {change.path for change in again.changes.of("f").changes} == {b"made", b"more"}
    assert not (Path(os.fsdecode(again.vault.fork("f").path)) / "background/socket").exists()
    assert again.run([b"true"], fork="f").exit_code == 0


def test_changes_are_those_of_now_and_an_original_is_that_of_the_start(place: Place) -> None:
    place.write("a", "1\n")
    place.write("b", "1\n")
    session = place.session()
    server = started(session, "echo up; echo 2 > a; while ! [ -e go ]; do sleep 0.01; done; echo 3 > b; sleep 1000")
    assert {change.path for change in session.changes.of("f").changes} == {b"a"}
    place.write("b", "the user's\n")
    session.run([*SH, b"touch go; while ! grep -q 3 b; do sleep 0.01; done"], fork="f")
    known = {change.path: change.original_known for change in session.changes.of("f").changes}
    assert known == {b"a": True, b"b": False, b"go": True}
    server.end()


def test_other_settings_cannot_join(place: Place) -> None:
    session = place.session()
    server = started(session, SERVER)
    act_as(session, settings=session.actor.settings._replace(network="none"))
    with pytest.raises(UsageError, match="other settings"):
        session.run([b"true"], fork="f")
    act_as(session, settings=session.actor.settings._replace(network="auto"))
    assert session.run([b"true"], fork="f").exit_code == 0
    place.write(".env", "SECRET=1\n")
    with pytest.raises(UsageError, match=r"\.env is a secret that the commands in the background can read"):
        while session.run([b"true"], fork="f").exit_code == 0:
            pass  # where looking for secrets is slow, they are looked for once a second
    server.end()
    assert session.run([*SH, b"test ! -s .env"], fork="f").exit_code == 0


@pytest.mark.parametrize(
    "do",
    [
        lambda session: session.forks.rollback("f", "p"),
        lambda session: session.forks.discard("f"),
        lambda session: session.changes.apply("f"),
        lambda session: session.forks.mount("f"),
        lambda session: session.forks.rename("f", "g"),
    ],
    ids=["rollback", "discard", "apply", "mount", "rename"],
)
def test_what_needs_the_fork_at_rest_is_refused(place: Place, do: Callable[[Session], object]) -> None:
    session = place.session()
    session.forks.new("f")
    session.forks.checkpoint("f", "p")
    server = started(session, SERVER)
    for one in (session, place.session()):
        with pytest.raises(UsageError, match=f"background of the fork f \\({server.id}: sh -c echo up") as raised:
            do(one)
        assert raised.value.hint == f"mudroom ps --end {server.id} ends it"
    assert server.poll() is None


def test_a_fork_of_what_it_holds_can_be_applied_meanwhile(place: Place) -> None:
    session, other = place.session(), place.session()
    server = started(session, SERVER)
    session.run([*SH, b"echo x > tested"], fork="f")
    for name, one in (("g", session), ("h", other)):
        one.forks.new(name, parent="f")
        assert {change.path for change in one.changes.of(name).changes} == {b"made", b"tested"}
    with other.alone("a test"):
        assert other.changes.apply("h").applied.written == 2
    assert (place.project / "tested").read_text() == "x\n"
    assert server.poll() is None
    server.end()
    assert {change.path for change in session.changes.of("f").changes} <= {b"made", b"tested"}


def test_rollback_and_discard_can_end_it(place: Place) -> None:
    session = place.session()
    session.forks.new("f")
    session.forks.checkpoint("f", "p")
    server = started(session, SERVER)
    session.sandboxes.end("f")
    session.forks.rollback("f", "p")
    assert server.poll() is not None
    assert session.changes.of("f").changes == ()
    started(session, SERVER)
    session.sandboxes.end("f")
    session.forks.discard("f")
    assert session.vault.forks() == []


@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_a_checkpoint_while_it_runs(place: Place, view: str) -> None:
    place.write("gone", "x\n")
    place.write("d/e", "x\n")
    session = place.session(Settings(view=view))  # type: ignore[arg-type]
    program = (
        "echo up; chmod 750 .; rm gone; rm -r d; mkdir d; echo 1 > d/f; ln d/f g; echo 1 > closed; chmod 0 closed; "
        "ln -s g l; "
    )
    server = started(session, program + "echo done; while ! [ -e go ]; do sleep 0.01; done; echo 2 > d/f; sleep 1000")
    heard(server, b"done")
    session.forks.checkpoint("f", "p")
    before = {change.path: change.verb for change in session.changes.of("f").changes}
    session.run([*SH, b"touch go; while ! grep -q 2 g; do sleep 0.01; done; echo x > later"], fork="f")
    session.sandboxes.end("f")
    session.forks.rollback("f", "p")
    assert {change.path: change.verb for change in session.changes.of("f").changes} == before
    result = session.run([*SH, b"cat d/f g; test d/f -ef g && test ! -e gone -a ! -e d/e -a ! -e later"], fork="f")
    assert (result.exit_code, result.stdout) == (0, b"1\n1\n")
    assert session.changes.apply("f").applied.written > 0
    assert (place.project / "d/f").read_text() == "1\n" and place.project.stat().st_mode & 0o777 == 0o750
    assert not (place.project / "gone").exists()
    with pytest.raises(UsageError, match="has a checkpoint named p already"):
        started(session, SERVER)
        session.forks.checkpoint("f", "p")


def test_a_copy_of_what_a_running_command_has_done_was_not_cut_off(place: Place) -> None:
    """Neither a fork of its fork, nor a checkpoint that is gone back to."""
    session, script = place.session(), "echo there > made; echo up; sleep 1000"
    server = started(session, script)
    session.forks.checkpoint("f", "p")
    session.forks.new("child", parent="f")
    server.end()
    session.sandboxes.end("f")
    session.forks.rollback("f", "p")
    words = [os.fsdecode(word) for word in (*SH, script.encode())]
    for row in fork_rows(session):
        assert (row["state"], row["command"]) == ("ended", words)
    assert {summary.state for summary in ForkSummaries().all(session.vault)} == {"idle"}


def test_another_process_joins_it(place: Place) -> None:
    """Another session of this process has another vault object, and comes in by the socket."""
    session, other = place.session(), place.session()
    server = started(session, SERVER)
    result = other.run([*SH, b"cat made; echo x > theirs; exit 4"], fork="f")
    assert (result.exit_code, result.stdout) == (4, b"there\n")
    assert {change.path for change in result.changeset.changes} == {b"made", b"theirs"}
    with pytest.raises(CommandNotStarted):
        other.run([b"no-such-program"], fork="f")
    second = other.start([*SH, b"echo up; sleep 1000"], fork="f")
    heard(second, b"up")
    assert other.run([b"true"], fork="f", timeout=60).exit_code == 0
    ended = second.end()
    assert ended is not None and ended.signal == 15
    other.forks.checkpoint("f", "p")
    assert session.vault.fork("f").state.checkpoint("p") is not None
    timed = other.run([b"sleep", b"1000"], fork="f", timeout=0.1)
    assert timed.timed_out
    act_as(other, settings=other.actor.settings._replace(network="none"))
    with pytest.raises(UsageError, match="other settings"):
        other.run([b"true"], fork="f")
    other.sandboxes.end("f")
    assert server.poll() is not None
    assert other.run([*SH, b"cat theirs"], fork="f").stdout == b"x\n"


@pytest.mark.parametrize("own", [True, False])
def test_the_end_of_the_sandbox_is_the_end_of_what_has_joined(place: Place, own: bool) -> None:
    session = place.session()
    joining = session if own else place.session()
    started(session, SERVER)
    stdio = Stdio(on_output=lambda _stream, _data: shared_of(session, "f").end())
    result = joining.run([*SH, b"echo x > more; echo up; sleep 1000"], fork="f", stdio=stdio)
    assert result.signal == 9
    assert {change.path for change in joining.changes.of("f").changes} == {b"made", b"more"}
    assert joining.run([b"cat", b"more"], fork="f").stdout == b"x\n"


def test_a_visitor_that_goes_away_takes_its_command_with_it(place: Place) -> None:
    session = place.session()
    server = started(session, SERVER)
    visitor = connect(session.vault.fork("f"))
    assert visitor is not None
    read, write = os.pipe()
    environment = {b"PATH": os.environb[b"PATH"]}
    argv = [*SH, b"echo up; exec sleep 1000"]
    invocation, terms = Invocation(argv, environment, (0, write, 2)), shared_of(session, "f").basis.terms()
    running = visitor.join(invocation, session.project, terms)
    os.close(write)
    assert os.read(read, 3) == b"up\n"
    visitor.close()
    assert running.wait().status == 9
    assert os.read(read, 1) == b""
    os.close(read)
    assert server.poll() is None


def shared_of(session: Session, fork: str) -> SharedSandbox:
    found = session.forks.users.shared(fork)
    assert found is not None
    return found


CONNECT = """
import ctypes, os, socket, sys
if sys.argv[2] == "confined":
    ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
os.chdir(sys.argv[1])
one = socket.socket(socket.AF_UNIX)
one.connect("socket")
print(one.recv(1))
"""


@pytest.mark.parametrize(("who", "heard"), [("confined", "b''\n"), ("the user", "b'w'\n")])
def test_a_sandboxed_process_is_no_visitor(place: Place, who: str, heard: str) -> None:
    session = place.session()
    server = started(session, SERVER)
    book = Path(os.fsdecode(session.vault.fork("f").path)) / "background"
    asked = subprocess.run([sys.executable, "-c", CONNECT, book, who], capture_output=True, text=True, check=True)
    assert asked.stdout == heard
    server.end()


def test_file_tools_go_through_the_live_mount(place: Place) -> None:
    place.write("a", "1\n")
    session = place.session()
    files = session.forks.files("f") if session.forks.new("f") else None
    assert files is not None
    files.write(b"before", b"b\n")
    server = started(session, SERVER)
    assert session.run([b"cat", b"before"], fork="f").stdout == b"b\n"
    files.write(b"after", b"a\n")
    assert session.run([b"cat", b"after"], fork="f").stdout == b"a\n"
    assert files.read(b"made") == b"there\n"
    server.end()
    assert {change.path for change in session.changes.of("f").changes} == {b"before", b"after", b"made"}


def test_who_has_the_vault_alone_stops_it(place: Place) -> None:
    session, user = place.session(), place.session()
    server = started(session, "echo up; i=0; while :; do i=$((i+1)); echo $i > count; done")
    count = Path(os.fsdecode(session.vault.fork("f").upper)) / "count"
    with user.alone("a test"):
        one = count.read_bytes()
        user.run([b"sleep", b"0.2"])
        assert count.read_bytes() == one
        with pytest.raises(UsageError, match="background of the fork f"):
            user.changes.apply("f")
    while count.read_bytes() in (one, b""):
        assert server.poll() is None
        give_way()
    with session.alone("another"):  # by the very session that has it
        one = count.read_bytes()
        assert count.read_bytes() == one
    while count.read_bytes() in (one, b""):
        assert server.poll() is None
        give_way()
    server.end()


def test_turns_while_others_join(place: Place) -> None:
    """Nobody waits for somebody who waits for him: it would hang."""
    session, other, user = place.session(), place.session(), place.session()
    server = started(session, SERVER)
    over = threading.Event()

    def commands() -> None:
        while not over.is_set():
            with user.alone("a test"):
                user.run([b"true"], fork="user")

    thread = threading.Thread(target=commands)
    thread.start()
    try:
        for number in range(10):
            assert (session, other)[number % 2].run([b"true"], fork="f").exit_code == 0
            other.changes.of("f")
    finally:
        over.set()
        thread.join()
    assert server.poll() is None
    server.end()


def test_output_is_told_as_it_comes(place: Place) -> None:
    session = place.session()
    told: list[tuple[str, bytes]] = []
    stdio = Stdio(on_output=lambda stream, data: told.append((stream, data)))
    result = session.run([*SH, b"echo one; echo two >&2"], stdio=stdio)
    assert (result.stdout, result.stderr) == (b"one\n", b"two\n")
    assert sorted(told) == [("stderr", b"two\n"), ("stdout", b"one\n")]


TERMINAL = "a terminal beside a command in the background needs user namespaces; found: none are permitted here"


def test_what_cannot_be_started_now(place: Place) -> None:
    session = place.session()
    told = "nothing can be started in the background while the project is changed (try again when it has ended)"
    with session.alone("a test"), pytest.raises(UsageError, match=whole(told)):
        session.start([b"true"])
    assert list(session.vault.forks()) == []
    server, other = started(session, SERVER), place.session()
    reader, writer = os.pipe()
    told = "another mudroom holds the commands of the fork f"
    hint = "mudroom ps lists the commands there, mudroom ps --end ID ends one"
    with pytest.raises(UsageError, match=whole(f"{told} ({hint})")):
        other.start([b"true"], fork="f", stdio=Pipes(reader, writer, writer))
    os.close(reader)
    os.close(writer)
    server.end()


def test_a_holder_that_is_killed_while_it_is_asked(place: Place) -> None:
    cli, session = Cli(place), place.session()
    assert cli("exec", "--background", "--fork", "f", "--", "sleep", "1000").returncode == 0
    remote = connect(session.vault.fork("f"))
    assert remote is not None
    connection: Any = remote._connection
    holder = struct.unpack("3i", connection._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    os.kill(holder, signal.SIGSTOP)
    send = connection.send

    def last(*words: Any) -> None:
        send(*words)
        os.kill(holder, signal.SIGKILL)

    connection.send = last
    told = "the process that holds the commands of this fork has ended (try again)"
    with pytest.raises(MudroomError, match=whole(told)):
        remote.checkpoint("p", 1)
    with pytest.raises(MudroomError, match=whole(told)):
        remote.checkpoint("p", 1)
    remote.close()


def test_a_file_system_without_sockets(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    class Socket(_socket.socket):
        def bind(self, _address: object) -> None:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    session = place.session()
    with monkeypatch.context() as patch:
        patch.setattr(visitor, "_socket", SimpleNamespace(**{**vars(_socket), "socket": Socket}))
        server = started(session, SERVER)
    told = "no other mudroom can join the commands of this fork: Operation not permitted"
    assert shared_of(session, "f").notes == [told]
    assert session.run([b"cat", b"made"], fork="f").stdout == b"there\n"
    server.end()


@pytest.mark.skipif(not landlock_abi(), reason="this kernel has no Landlock")
def test_without_namespaces(place: Place) -> None:
    place.write("old", "o\n")
    session = place.session(Settings(network="none"))
    session.machine.confinement.mode = "landlock"
    server = started(session, "echo x > ~/mine; echo x > $TMPDIR/mine; " + SERVER)
    result = session.run(
        [*SH, b"cat made; echo more >> old; cat ~/mine $TMPDIR/mine; touch /etc/x || echo no"], fork="f"
    )
    assert (result.exit_code, result.stdout) == (0, b"there\nx\nx\nno\n"), result.stderr
    assert {change.path for change in result.changeset.changes} == {b"made", b"old"}
    session.forks.checkpoint("f", "p")
    refused = session.run(
        [*SH, b"python3 -c 'import socket; socket.socket(socket.AF_UNIX)' || chmod 700 /etc"], fork="f"
    )
    assert refused.exit_code != 0
    outside, inside = os.openpty()
    with pytest.raises(Unsupported, match=whole(TERMINAL)):
        session.run([b"true"], fork="f", stdio=Stdio(inside, inside, inside, terminal=True))
    for descriptor in (outside, inside):
        os.close(descriptor)
    ended = server.end()
    assert ended is not None and ended.signal == 15
    assert {change.path for change in session.changes.of("f").changes} == {b"made", b"old"}


@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_a_command_beside_it_sees_what_the_user_has_changed_meanwhile(place: Place, view: str) -> None:
    """An overlay caches names, missing ones too; a copy stays as it was made."""
    for name in ("edited", "deleted", "moved/inside"):
        place.write(name, "old\n")
    names = b"edited deleted made moved/inside away/inside"
    session = place.session(Settings(view=view))  # type: ignore[arg-type]
    started(session, f"cat {names.decode()} 2>/dev/null; ls -R >/dev/null; echo up; sleep 1000")
    place.write("edited.new", "new\n")
    (place.project / "edited.new").rename(place.project / "edited")  # as editors do
    (place.project / "deleted").unlink()
    place.write("made", "made\n")
    (place.project / "moved").rename(place.project / "away")
    show = b"for name in %s; do cat $name 2>/dev/null || echo none; done; ls" % names
    result = session.run([*SH, show], fork="f")
    after = b"new\nnone\nmade\nnone\nold\naway\nedited\nmade\n"
    before = b"old\nold\nnone\nold\nnone\ndeleted\nedited\nmoved\n"
    assert result.stdout == (after if view == "overlay" else before)
    assert not result.changeset.changes
