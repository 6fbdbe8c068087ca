"""Processes that join the sandbox of a command in the background: which may, and what ends with it."""

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
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from background_command import SERVER, SH, heard, started
from conftest import Place, act_as
from mudroom.core.settings import Settings
from mudroom.errors import CommandNotStarted, MudroomError, UsageError
from mudroom.sandbox.client.invocation import Invocation
from mudroom.sandbox.host.host import landlock_abi
from mudroom.session import Session, Stdio
from mudroom.session.shared_sandbox import visitor
from mudroom.session.shared_sandbox.remote import connect
from mudroom.session.shared_sandbox.tender import SharedSandbox
from test_vault_verb import Cli
from tiers import QUICK
from whole_text import whole

pytestmark = pytest.mark.both_users


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


@pytest.mark.parametrize("given", ["first", "second", "value"])
def test_a_variable_is_shown_only_to_commands_that_were_given_it(place: Place, given: str) -> None:
    """Each could read it in /proc/PID/environ."""
    session = place.session()
    plain, passed = session.actor.settings, session.actor.settings._replace(environment=(b"TOKEN=s3cret",))
    other = plain._replace(environment=(b"TOKEN=another",))
    first, second = {"first": (passed, plain), "second": (plain, passed), "value": (passed, other)}[given]
    act_as(session, settings=first)
    server = started(session, SERVER)
    act_as(session, settings=second)
    with pytest.raises(UsageError, match="other settings"):
        session.run([*SH, b"cat /proc/*/environ"], fork="f")
    act_as(session, settings=first)
    assert session.run([b"true"], fork="f").exit_code == 0
    server.end()


FORGES = """
echo up
while :; do
    for pid in /proc/[0-9]*; do
        case $pid in /proc/$$|/proc/1) ;; *) echo 12 passed >$pid/fd/1; cat $pid/environ; ls $pid/cwd/ $pid/root/; esac
    done
done 2>/dev/null
"""


@pytest.mark.skipif(landlock_abi() < 2, reason="docs/THREATS.md: it needs Landlock, ABI 2")
def test_a_command_in_the_background_cannot_write_a_result_for_another(place: Place) -> None:
    session = place.session()
    forger = started(session, FORGES)
    for _number in range(10):
        result = session.run([*SH, b"sleep 0.05; echo 1 failed; exit 1"], fork="f")
        assert (result.exit_code, result.stdout) == (1, b"1 failed\n")
    forger.end()


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
        for number in range(2 if QUICK else 10):
            assert (session, other)[number % 2].run([b"true"], fork="f").exit_code == 0
            other.changes.of("f")
    finally:
        over.set()
        thread.join()
    assert server.poll() is None
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


LEASING = """
import fcntl, os, signal
with open("script.sh", "w") as script:
    script.write("#!/bin/sh\\n")
os.chmod("script.sh", 0o755)
fcntl.fcntl(os.open("script.sh", os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_WRLCK)
signal.signal(signal.SIGIO, signal.SIG_IGN)
print("up", flush=True)
while True:
    signal.pause()
"""


def test_a_file_under_a_lease_is_said(place: Place) -> None:
    """The checkpoint before the command reads it, while its holder is stopped."""
    session, other = (place.session(Settings(view="copy"), agent="coder") for _number in range(2))
    holder = session.start([sys.executable.encode(), b"-I", b"-S", b"-c", LEASING.encode()], fork="f")
    heard(holder, b"up")
    with pytest.raises(UsageError) as refused:
        other.run([b"./script.sh"], fork="f")
    assert refused.value.message == "script.sh: another program has a lease on it"
    assert refused.value.hint.startswith("end the program that holds it, and try again: mudroom ps")
    holder.end()


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
