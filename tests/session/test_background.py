"""Commands in the background of a fork, through the library: beside them others run, and all ends with the session."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from background_command import SERVER, SH, heard, started
from clocks import give_way
from conftest import Place, act_as, full_listing
from mudroom.core.approval.approval import CommandAnswer, CommandQuestion
from mudroom.core.confinement.limit import Limits
from mudroom.core.network.host_rules import HostRule
from mudroom.core.settings import Settings
from mudroom.errors import Unsupported, UsageError
from mudroom.sandbox.host.host import landlock_abi
from mudroom.session import Stdio
from mudroom.session.order import Pipes
from mudroom.vault.forks.background import RING
from whole_text import whole

pytestmark = pytest.mark.both_users


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
    while (usage := server.usage()) is None or usage.processes < 2 or server.output()[0].count(b"\n") < 2:
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
        one.machine.host_answers = one.machine.host_answers._replace(rules=lambda: tuple(rules))
    server = started(session, SERVER)
    joining = session if own else other
    rules.append(HostRule("allow", "project.example"))
    assert joining.run([b"true"], fork="f").exit_code == 0
    joining.machine.host_answers = joining.machine.host_answers._replace(
        rules=lambda: (*rules, HostRule("allow", "card.example"))
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


def test_nobody_joins_after_the_last_command_has_ended(place: Place) -> None:
    """A look just after the end would otherwise find the fork in use by itself, and be no review."""
    session = place.session()
    server = started(session, "echo up; exec sleep 1000")
    shared = session.forks.users.shared("f")
    while (usage := server.usage()) is None:
        give_way()  # during its exec a process shows no environment (proc_pid_environ(5)), by which it is known
    assert shared is not None
    shared._collecting.acquire()  # the tender waits with the end
    try:
        os.kill(usage.pid, signal.SIGKILL)
        while next(iter(shared.backgrounds.values())).ended is None:
            give_way()
        with shared.guest() as welcome:
            assert not welcome
        assert not shared.admits()
    finally:
        shared._collecting.release()
    assert not session.changes.review("f").in_use
