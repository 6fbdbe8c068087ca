"""A sandbox that is stopped for a while, and the same afterwards."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from box import KINDS, Box, Conversation, fresh, if_namespaces, tree
from clocks import give_way
from mudroom.sandbox.client.capture import CapturedOutput
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from native_init import COMPILERS, compile_library
from tiers import QUICK

__all__ = ["fresh"]  # a fixture

pytestmark = pytest.mark.both_users


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
        for _round in range(1 if QUICK else 3):
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
    for number in range(8 if QUICK else 20):
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


# --- the walk, on processes of our own ---

needs_compiler = pytest.mark.skipif(not COMPILERS, reason="no C compiler")


class Pids(ctypes.Structure):
    """struct pids of launcher.h."""

    _fields_ = (("items", ctypes.POINTER(ctypes.c_int)), ("count", ctypes.c_size_t), ("room", ctypes.c_size_t))

    def listed(self) -> list[int]:
        return list(self.items[: self.count])


class Walk:
    """The functions of process.c, in this process."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._pause, self._resume = library.pause_all, library.resume_all
        for function in (self._pause, self._resume):
            function.restype, function.argtypes = ctypes.c_char_p, (ctypes.c_int, ctypes.POINTER(Pids))

    def pause(self, init: int, stopped: Pids) -> str:
        """Return why it is impossible; empty if it is done."""
        return (self._pause(init, stopped) or b"").decode()

    def resume(self, init: int, stopped: Pids) -> None:
        assert self._resume(init, stopped) is None


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compile_library(tmp_path_factory.mktemp("library"))


@pytest.fixture
def walk(library: ctypes.CDLL) -> Walk:
    return Walk(library)


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    return Walk(compile_library(tmp_path_factory.mktemp("impatient"), "-DPATIENCE=50", "-DMOST=200"))


@pytest.fixture
def sleeper() -> Iterator[int]:
    with subprocess.Popen(["sh", "-c", "sleep 1000 & echo; wait"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        yield process.pid
        end_tree(process.pid)


def end_tree(root: int) -> None:
    for pid in tree(root):
        with suppress(ProcessLookupError):  # it has ended with another one
            os.kill(pid, signal.SIGKILL)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


@needs_compiler
def test_parents_first(walk: Walk, sleeper: int) -> None:
    stopped = Pids()
    assert walk.pause(sleeper, stopped) == ""
    assert stopped.listed() == tree(sleeper)
    assert len(stopped.listed()) == 2
    assert [state(pid) for pid in tree(sleeper)] == ["T", "T"]
    again = Pids()
    assert walk.pause(sleeper, again) == ""
    assert again.listed() == [], "they were stopped already"
    walk.resume(sleeper, again)
    assert [state(pid) for pid in tree(sleeper)] == ["T", "T"]
    walk.resume(sleeper, stopped)
    assert stopped.listed() == []
    while "T" in [state(pid) for pid in tree(sleeper)]:
        give_way()


@needs_compiler
def test_only_what_is_below_goes_on(walk: Walk, sleeper: int) -> None:
    """Pids of processes that have ended may be those of others by now."""
    stopped = Pids()
    with subprocess.Popen(["sleep", "1000"]) as other:
        other.send_signal(signal.SIGSTOP)
        while state(other.pid) != "T":
            give_way()
        assert walk.pause(sleeper, stopped) == ""
        processes = stopped.listed()
        room = (ctypes.c_int * 4)(*processes, other.pid, 1 << 22)
        listed = Pids(ctypes.cast(room, ctypes.POINTER(ctypes.c_int)), 4, 4)
        walk.resume(sleeper, listed)
        while "T" in [state(pid) for pid in processes]:
            give_way()
        assert state(other.pid) == "T"
        other.kill()


RESTLESS = """
#define _GNU_SOURCE
#include <unistd.h>

/* A process that never comes to rest: it waits for a child of vfork(2), which does not exec. */
int main(void)
{
    if (write(1, "!", 1) != 1)
        return 1;
    if (vfork() == 0)
        for (;;)
            pause();
    return 0;
}
"""


@pytest.fixture
def restless(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "restless.c").write_text(RESTLESS)
    subprocess.run([COMPILERS[0], tmp_path / "restless.c", "-o", tmp_path / "restless"], check=True)
    line = f"sleep 1000 & {tmp_path}/restless & wait"
    with subprocess.Popen(["sh", "-c", line], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        while "D" not in [state(pid) for pid in tree(process.pid)] or len(tree(process.pid)) < 4:
            give_way()
        yield process.pid
        end_tree(process.pid)


@needs_compiler
def test_what_does_not_come_to_rest_goes_on(impatient: Walk, restless: int) -> None:
    """And all others that were stopped before it."""
    stopped = Pids()
    assert impatient.pause(restless, stopped) == "its processes did not stop in time"
    assert stopped.listed() == []
    while "T" in [state(pid) for pid in tree(restless)]:
        give_way()


@needs_compiler
def test_what_forks_for_ever_is_left_in_time(impatient: Walk) -> None:
    with subprocess.Popen(
        ["sh", "-c", "echo; while :; do sleep 1000 & kill $!; done"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        for _number in range(10):
            stopped = Pids()
            assert impatient.pause(process.pid, stopped) in ("", "its processes did not stop in time")
            impatient.resume(process.pid, stopped)
        end_tree(process.pid)


@needs_compiler
def test_what_is_gone_rests(walk: Walk) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    stopped = Pids()
    assert walk.pause(gone.pid, stopped) == ""
    assert stopped.listed() == []


HIDDEN = """
import ctypes, os, sys
sys.path[:0] = sys.argv[2:]
libc = ctypes.CDLL(None, use_errno=True)
user, group = os.getuid(), os.getgid()
assert libc.unshare(0x10020000) == 0, os.strerror(ctypes.get_errno())
open("/proc/self/setgroups", "w").write("deny")
open("/proc/self/uid_map", "w").write(f"{user} {user} 1")
open("/proc/self/gid_map", "w").write(f"{group} {group} 1")
assert libc.mount(b"none", b"/proc", b"tmpfs", 0, None) == 0, os.strerror(ctypes.get_errno())
from test_pause import Pids, Walk
print(Walk(ctypes.CDLL(sys.argv[1])).pause(os.getppid(), Pids()))
"""


@needs_compiler
@if_namespaces
def test_what_is_hidden_does_not(library: ctypes.CDLL) -> None:
    """As with hidepid (proc(5)), or without /proc."""
    words = [sys.executable, "-c", HIDDEN, library._name, *sys.path]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "its processes are hidden in /proc", done.stderr


# --- signals typed early ---


def typed(library: ctypes.CDLL) -> int:
    """In a child that leaves its process group: return 0 if only what a process has sent stays pending."""
    library.block_signals()
    os.setsid()
    master, side = os.openpty()
    fcntl.ioctl(side, termios.TIOCSCTTY, 0)
    os.tcsetpgrp(side, os.getpgrp())
    for number, key in ((signal.SIGINT, b"\x03"), (signal.SIGQUIT, b"\x1c")):
        os.write(master, key)
        while number not in signal.sigpending():
            pass  # the line discipline looks at it in its own time
    library.discard_terminal_signals()
    left = set(signal.sigpending())
    os.kill(os.getpid(), signal.SIGINT)
    library.discard_terminal_signals()
    return 0 if (left, set(signal.sigpending())) == (set(), {signal.SIGINT}) else 1


@needs_compiler
def test_only_what_a_process_has_sent_stays(library: ctypes.CDLL) -> None:
    """Terminal signals for the process group that a sandbox's init has just left do not reach its command."""
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            code = typed(library)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
