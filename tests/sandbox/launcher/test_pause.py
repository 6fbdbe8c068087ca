"""A sandbox that is stopped for a while, and the same afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from box import KINDS, Box, Conversation
from clocks import give_way
from mudroom.errors import MudroomError
from mudroom.sandbox.client.capture import CapturedOutput
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.sandbox.launcher import pause

pytestmark = pytest.mark.both_users


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Box]:
    """With a launcher of its own, so that the first run is the first."""
    client = LauncherClient(SpawnedLauncher())
    client.start()
    yield Box(tmp_path, client)
    client.close()


def sizes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in directory.iterdir() if path.name.startswith("grows")}


def until_all_grow(directory: Path, count: int) -> None:
    """Every one of the files gets longer; a test that waits in vain ends by its alarm."""
    before = sizes(directory)
    while len(now := sizes(directory)) < count or any(now[name] <= before.get(name, 0) for name in now):
        give_way()


BUSY = f"""
for i in 1 2 3 4; do
    (while :; do (echo x >> grows-fork$i); done) &
    (while :; do sh -c "echo x >> grows-exec$i"; done) &
done
(while :; do (setsid sh -c 'echo x >> grows-orphan' &) ; done) &
{sys.executable} -c '
import os, subprocess, threading
def write(name):
    while True:
        with open(name, "ab", 0) as stream:
            for _ in range(100):
                stream.write(b"x")
for number in range(3):
    threading.Thread(target=write, args=(f"grows-thread{{number}}",)).start()
with open("grows-vfork", "ab", 0) as stream:
    while True:
        subprocess.run(["true"])
        stream.write(b"x")
' &
exec sleep 1000
"""


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_written_while_a_sandbox_is_paused(fresh: Box, kind: str) -> None:
    staged = fresh.staged(kind)
    plan = fresh.prepared(kind)
    with CapturedOutput(None, None, None, 1 << 20) as output:
        running = fresh.start(BUSY, output, plan)
        until_all_grow(staged, 13)
        for _round in range(3):
            running.pause()
            before = sizes(staged)
            assert fresh.run("true", fresh.bare() if kind == "bare" else fresh.plan())[0].status == 0
            assert sizes(staged) == before
            running.resume()
            until_all_grow(staged, 13)
        running.signal(signal.SIGKILL)
        running.wait()
        running.wait_gone()


def test_what_had_been_stopped_stays_stopped(fresh: Box) -> None:
    script = (
        "sleep 1000 & kill -STOP $!; until grep -q '^State:.T' /proc/$!/status; do :; done; echo; read go; "
        "cut -d' ' -f3 /proc/$!/stat; kill -CONT $!; until grep -q '^State:.S' /proc/$!/status; do :; done; read go"
    )
    talk = Conversation(fresh, "overlay", script)
    talk.hear()
    talk.running.pause()
    talk.running.resume()
    talk.say()
    assert talk.hear() == "T"
    talk.running.pause()
    talk.running.resume()
    assert talk.end() == 0


@pytest.mark.skipif(shutil.which("bash") is None, reason="no shell with job control here")
@pytest.mark.parametrize("kind", KINDS)
def test_a_shell_does_not_notice(fresh: Box, kind: str) -> None:
    """Its job is stopped after it, and goes on before it: no "Stopped", and no prompt."""
    talk = Conversation(
        fresh, kind, "exec bash -mc 'sh -c \"echo; read go; exit 7\"; echo job $?; read go; jobs; exit 3'"
    )
    talk.hear()
    for _round in range(20):
        talk.running.pause()
        talk.running.resume()
    talk.say()
    assert talk.hear() == "job 7"
    assert talk.end() == 3 << 8


def test_pauses_are_not_counted(fresh: Box) -> None:
    talk = Conversation(fresh, "overlay", "echo; read go; echo gone on; read go")
    talk.hear()
    talk.running.resume()
    talk.running.pause()
    talk.running.pause()
    talk.say()
    talk.running.resume()
    assert talk.hear() == "gone on"
    talk.running.resume()
    assert talk.end() == 0
    talk.running.pause()
    talk.running.resume()


@pytest.mark.parametrize("kind", KINDS)
def test_a_sandbox_may_be_paused_at_any_moment(fresh: Box, kind: str) -> None:
    """Before its command has started, too, or as it ends."""
    plans = [fresh.prepared(kind)]
    for number in range(20):
        with CapturedOutput(None, None, None, 100) as output:
            running = fresh.start("echo done", output, plans.pop())
            if number % 2:
                os.read(output.streams[0].read, 1)
            running.pause()
            running.resume()
            assert running.wait().status == 0
            running.wait_gone()
        plans.append(fresh.bare() if kind == "bare" else fresh.plan())


@pytest.mark.parametrize("kind", KINDS)
def test_a_paused_sandbox_can_be_ended(fresh: Box, kind: str) -> None:
    with CapturedOutput(None, None, None, 100) as output:
        running = fresh.start("sleep 1000 & sleep 1000", output, fresh.prepared(kind))
        running.pause()
        running.signal(signal.SIGTERM)
        running.signal(signal.SIGKILL)
        assert running.wait().status == 9
        running.wait_gone()


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_closes_ends_a_paused_sandbox(tmp_path: Path, kind: str) -> None:
    client = LauncherClient(SpawnedLauncher())
    client.start()
    box = Box(tmp_path, client)
    with CapturedOutput(None, None, None, 100) as output:
        running = box.start("sleep 1000 & echo; sleep 1000", output, box.prepared(kind))
        os.read(output.streams[0].read, 1)
        running.pause()
        client.close()
        assert os.read(output.streams[0].read, 1) == b"", "nobody is left who could write"
        running.close()


def test_pausing_after_the_launcher_died(fresh: Box) -> None:
    with CapturedOutput(None, None, None, 100) as output:
        running = fresh.start("sleep 1000", output)
        os.kill(fresh.client.launcher.require_pid(), signal.SIGKILL)
        with pytest.raises(MudroomError, match="launcher"):
            running.pause()


# --- the walk, on processes of our own ----------------------------------------------------------------------------


@pytest.fixture
def sleeper() -> Iterator[int]:
    with subprocess.Popen(["sh", "-c", "sleep 1000 & echo; wait"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        yield process.pid
        for pid in tree(process.pid):
            os.kill(pid, signal.SIGKILL)


def tree(root: int) -> list[int]:
    return [pid for generation in pause.generations(root) for pid in generation]


def test_parents_first(sleeper: int) -> None:
    stopped: list[int] = []
    pause.pause(sleeper, stopped)
    assert stopped[0] == sleeper
    assert stopped == tree(sleeper)
    assert len(stopped) == 2
    assert all(pause.is_at_rest(pid) for pid in stopped)
    again = list(stopped)
    pause.pause(sleeper, again)
    assert again == stopped
    pause.resume(sleeper, stopped)
    assert stopped == []
    assert not any(pause.is_at_rest(pid) for pid in again)


def test_a_child_that_proc_skips_goes_on(sleeper: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of children may lack one while another ends (proc(5)), as after a pause that failed."""
    stopped: list[int] = []
    pause.pause(sleeper, stopped)
    processes = list(stopped)
    monkeypatch.setattr(pause, "generations", lambda root: iter([[root]]))
    pause.resume(sleeper, [*stopped, os.getpid()])
    assert not any(pause.is_at_rest(pid) for pid in processes)
    assert pause.descends(processes[1], sleeper)
    assert not pause.descends(sleeper, processes[1])
    assert not pause.descends(os.getpid(), sleeper)
    assert not pause.descends(1 << 22, sleeper)


def test_what_does_not_come_to_rest_goes_on(sleeper: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rests = pause.is_at_rest
    monkeypatch.setattr(pause, "PATIENCE", 0.0)
    monkeypatch.setattr(pause, "is_at_rest", lambda pid: pid != sleeper and rests(pid))
    stopped: list[int] = []
    with pytest.raises(TimeoutError):
        pause.pause(sleeper, stopped)
    while rests(sleeper):
        give_way()  # it has been told to go on
    assert stopped == []


def test_time_runs_anew_with_each_that_comes_to_rest(sleeper: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine: each process has its own deadline, within the limit for all of them."""
    rests, asked = pause.is_at_rest, dict.fromkeys(tree(sleeper), 0)

    def slowly(pid: int) -> bool:
        asked[pid] += 1
        return asked[pid] > 400 and rests(pid)  # of 0.2 ms at the least

    monkeypatch.setattr(pause, "is_at_rest", slowly)
    monkeypatch.setattr(pause, "MOST", 0.05)
    with pytest.raises(TimeoutError):
        pause.pause(sleeper, [])
    asked.update(dict.fromkeys(asked, 0))
    monkeypatch.setattr(pause, "MOST", 60.0)
    stopped: list[int] = []
    pause.pause(sleeper, stopped)
    assert stopped == list(asked)


def test_a_process_that_is_gone_rests_and_one_that_is_hidden_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert pause.is_at_rest(gone.pid)
    assert tree(gone.pid) == [gone.pid]
    pause.signal(gone.pid, signal.SIGSTOP)

    def hidden(_path: bytes) -> list[bytes]:
        raise FileNotFoundError(2, "as with hidepid=2")

    monkeypatch.setattr(os, "listdir", hidden)
    with pytest.raises(PermissionError, match="hidden"):
        pause.is_at_rest(os.getpid())
