"""Messages about a launcher that is gone, does not run, or answers what no launcher would."""

from __future__ import annotations

import _socket
import marshal
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from box import ENVIRONMENT, Box, fresh, if_namespaces
from mudroom.core.confinement.plan import standing_plan
from mudroom.errors import MudroomError
from mudroom.sandbox.client.capture import CapturedOutput
from mudroom.sandbox.client.connection import Connection
from mudroom.sandbox.client.invocation import KILLED, Invocation, RunOptions
from mudroom.sandbox.client.launcher_client import Fate, LaunchedCommand, LauncherClient, SpawnedLauncher
from mudroom.sandbox.client.report import StepFailed
from mudroom.sandbox.client.template import StandingPlace
from whole_text import told

__all__ = ["fresh"]  # a fixture

pytestmark = pytest.mark.both_users

DIED = "the sandbox launcher died (run the command again; nothing was applied)"
AGAIN = "(run the command again; mudroom doctor tries the sandbox)"
NOT_RUNNING = f"the sandbox launcher is not running {AGAIN}"
GONE = f"the sandbox launcher is gone: Broken pipe {AGAIN}"


@if_namespaces
def test_a_launcher_that_is_killed(fresh: Box) -> None:
    """At each place where an answer of it is waited for, and not at the next request."""
    before = set(os.listdir("/proc/self/fd"))
    with CapturedOutput(None, None, None, 100) as output:
        plan = fresh.plan()
        os.kill(fresh.client.launcher.require_pid(), signal.SIGSTOP)
        running = fresh.start("sleep 1000", output, plan, view=True)
        held = fresh.client.run(
            fresh.plan(network="open"), Invocation([b""], {}, output.descriptors), RunOptions(held=True)
        )
        pausing: list[str] = []
        thread = threading.Thread(target=lambda: pausing.append(told(running.pause)), daemon=True)
        thread.start()
        os.kill(fresh.client.launcher.require_pid(), signal.SIGKILL)
        thread.join()
        assert pausing in ([DIED], [GONE])
        assert told(running.view) == f"the sandbox ended before it had a view {AGAIN}"
        assert told(running.wait) == told(held.door) == DIED
        for command in (running, held):
            command.close()
        again = fresh.client.run(plan, Invocation([b"true"], ENVIRONMENT, output.descriptors))
        assert again.wait().status == 0, "the next request starts another launcher"
        again.close()
    fresh.client.templates.end_idle()
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_launcher_that_was_not_started(tmp_path: Path) -> None:
    client = LauncherClient(SpawnedLauncher())
    plan = Box(tmp_path, client).bare()
    assert told(lambda: client.run(plan, Invocation([b"true"], ENVIRONMENT, (0, 1, 2)))) == NOT_RUNNING
    client.close()
    standing = standing_plan(plan)
    if standing is not None:
        assert told(lambda: client.templates.stand(standing, 0)) == NOT_RUNNING


@if_namespaces
def test_a_view_is_taken_once_and_only_by_a_command_that_has_begun(fresh: Box) -> None:
    taken = (
        "the view of this command was not requested, or has been taken "
        "(request it by RunOptions.view, and take it once)"
    )
    with CapturedOutput(None, None, None, 100) as output:
        running = fresh.start("true", output, view=True)
        os.close(running.view())
        assert told(running.view) == taken
        running.wait()
        running = fresh.start("true", output)
        assert told(running.view) == taken
        running.wait()
        plan = fresh.plan()
        broken = fresh.start("true", output, plan._replace(steps=(("cwd", b"/nowhere"), *plan.steps)), view=True)
        assert told(broken.view).startswith("the sandbox ended before it had a view (")
        with pytest.raises(StepFailed):
            broken.wait()
        broken.close()


@if_namespaces
def test_a_standing_sandbox_serves_no_other_plan(fresh: Box) -> None:
    fresh.stand(fresh.plan())
    other = fresh.plan(network="open")
    before = set(os.listdir("/proc/self/fd"))
    place = StandingPlace(fresh.standing, refresh=True)
    true, options = Invocation([b"true"], ENVIRONMENT, (0, 1, 2)), RunOptions(standing=place)
    said = told(lambda: fresh.client.run(other, true, options))
    assert said == "a standing sandbox was asked for a command of another plan (run the command again)"
    assert set(os.listdir("/proc/self/fd")) == before


@contextmanager
def answering(record: bytes, sockets: dict[str, _socket.socket] | None = None) -> Iterator[LaunchedCommand]:
    """A command whose launcher answers each request, and reports its end, with these bytes. ``sockets``: of it."""
    ours, theirs = socket.socketpair()
    read, write = os.pipe()
    os.write(write, record)
    os.close(write)

    def answer() -> None:
        while True:
            data, descriptors, _flags, _address = socket.recv_fds(theirs, 1 << 16, 8)
            if not data:
                return
            for descriptor in descriptors:
                os.write(descriptor, record)
                os.close(descriptor)

    thread = threading.Thread(target=answer)
    thread.start()
    connection = Connection(ours)
    fate = Fate(lambda _record: MudroomError("failed"), lambda: KILLED)
    running = LaunchedCommand(connection, 1, read, fate, sockets or {})
    try:
        yield running
    finally:
        running.close()
        connection.close()
        thread.join()
        theirs.close()


def test_only_a_command_of_windows_has_a_bridge() -> None:
    with answering(b"") as running:
        assert told(lambda: running.open_gate(("127.0.0.2", 1), b"")) == (
            f"a bridge to the gate needs a container without the host's loopback; found: {sys.platform}"
        )


def test_a_terminal_that_does_not_come_leaves_no_socket() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)  # so that recvmsg(2) fails
    with theirs, answering(b"", {"channel": ours}) as running:
        with pytest.raises(BlockingIOError):
            running.terminal()
        assert ours.fileno() == -1


def test_processes_that_do_not_stop() -> None:
    with answering(marshal.dumps(("failed", "its processes did not stop in time"))) as running:
        assert told(running.pause) == (
            "the command cannot be paused: its processes did not stop in time (try again, or end it)"
        )


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (b"\xff", "an unknown kind of value: '\\x7f'"),
        (marshal.dumps(("gone",)), "no record of a launcher: 'gone'"),
        (marshal.dumps("exited"), "no record"),
        (marshal.dumps(("ready",)) * 2, "more than one record"),
    ],
)
def test_a_report_that_no_launcher_writes(report: bytes, why: str) -> None:
    """One in a container is beside the commands, which could write in its place."""
    hint = "do not trust the contents of its fork: mudroom discard FORK"
    with answering(report) as running:
        assert told(running.wait) == f"the sandbox launcher sent an invalid report: {why} ({hint})"
        assert not running._connection.active
