"""A command that attacks what serves the others of its fork: their wardens, their init, the paths of the next one. The
others are told as they ended, and the sandbox goes on."""

from __future__ import annotations

import errno
import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from box import ENVIRONMENT, HELD_KINDS, Box, Conversation, if_namespaces
from mudroom.core.confinement.spec import Copy
from mudroom.errors import CommandNotStarted, MudroomError
from mudroom.sandbox.client.capture import CapturedOutput, attend
from mudroom.sandbox.client.held import HeldSandbox, hold
from mudroom.sandbox.client.invocation import Exit, Invocation
from mudroom.sandbox.client.launcher_client import LaunchedCommand, LauncherClient
from mudroom.sandbox.client.report import StepFailed
from mudroom.sandbox.host.host import landlock_abi
from mudroom.sandbox.linux.syscall import number_of

pytestmark = [pytest.mark.both_users, pytest.mark.root, if_namespaces]

KINDS = [kind for kind in HELD_KINDS if kind in ("overlay prepared", "copy")]
HEAD = """\
import ctypes, errno, os, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def others():
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and name not in ("1", str(os.getpid())):
                with open(f"/proc/{name}/comm") as stream:
                    if stream.read() == "mudroom-init\\n":
                        found.append(int(name))
        except OSError:
            pass
    return found
def tried(act, *words):
    try:
        act(*words)
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]
own = os.getppid()  # its warden
"""


class Beside:
    """A sandbox with a command that attacks, and others."""

    def __init__(self, box: Box, kind: str, attack: str) -> None:
        self.sandbox: HeldSandbox = hold(box.client, box.prepared(kind))
        self.where = os.fsencode(box.copy if kind == "bare" else box.project)
        self.output = CapturedOutput(None, None, None, 1 << 20)
        self.attacker = self.start([b"/usr/bin/python3", b"-IS", b"-c", (HEAD + attack).encode()], self.output)
        assert self.hear() == "up"

    def start(self, words: list[bytes], output: CapturedOutput) -> LaunchedCommand:
        running = self.sandbox.run(Invocation(words, ENVIRONMENT, output.descriptors), self.where)
        for stream in output.streams:
            stream.close_theirs()
        return running

    def hear(self) -> str:
        line = b""
        while not line.endswith(b"\n"):
            part = os.read(self.output.streams[0].read, 1)
            assert part, (line, os.read(self.output.streams[1].read, 65536))
            line += part
        return line.decode().strip()

    def run(self, script: str) -> tuple[Exit, str]:
        with CapturedOutput(None, None, None, 1 << 20) as output:
            running = self.start([b"sh", b"-c", script.encode()], output)
            ended, _timed_out = attend(running, output, None, lambda: None)
            running.wait_gone()
            return ended, "".join(stream.data.decode() for stream in output.streams)

    def end_attack(self) -> None:
        self.attacker.signal(signal.SIGKILL)
        self.attacker.wait()
        self.attacker.wait_gone()
        self.output.__exit__()


@pytest.fixture
def box(tmp_path: Path, client: LauncherClient) -> Box:
    return Box(tmp_path, client)


@contextmanager
def beside(box: Box, kind: str, attack: str) -> Iterator[Beside]:
    """Afterwards the sandbox still serves, and is empty."""
    held = Beside(box, kind, attack)
    try:
        yield held
        held.end_attack()
        ended, said = held.run("set -- /proc/[0-9]*; echo $#; exit 3")
        assert (ended.status, said) == (3 << 8, "3\n"), "init, a warden, a shell"
    finally:
        held.sandbox.end()


KILLS = """
print("up", flush=True)
while True:
    for pid in others():
        if pid != own:
            tried(os.kill, pid, {number})
"""


@pytest.mark.parametrize("kind", KINDS)
def test_killed_wardens(box: Box, kind: str) -> None:
    """Their commands end with them, and what these have left behind."""
    with beside(box, kind, KILLS.format(number="signal.SIGKILL")) as held:
        ends = {held.run("sleep 1000 & setsid sleep 1000 & exec sleep 0.02")[0].status for _number in range(20)}
        assert ends <= {0, 9}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP])
def test_wardens_that_are_told_to_end(box: Box, number: int) -> None:
    """They tell their commands, as if the host had said so."""
    with beside(box, KINDS[0], KILLS.format(number=int(number))) as held:
        ends = {held.run("exec sleep 0.02")[0].status for _number in range(20)}
        assert ends <= {0, int(number), 126 << 8}


@pytest.mark.parametrize("kind", KINDS)
def test_stopped_wardens(box: Box, kind: str) -> None:
    """The command hangs, as if it had been stopped itself; it can be ended."""
    with beside(box, kind, KILLS.format(number="signal.SIGSTOP")) as held:
        for _number in range(5):
            with CapturedOutput(None, None, None, 100) as output:
                running = held.start([b"sh", b"-c", b"sleep 1000 & sleep 1000"], output)
                running.signal(signal.SIGKILL)
                assert running.wait().status == 9
                running.wait_gone()


FLOOD = """
print("up", flush=True)
for _number in range(3):
    os.fork()
while True:
    {act}
"""
ACTS = {
    "signals to init": "for number in range(1, 65): tried(os.kill, 1, number)",
    "refused calls": "tried(socket.socket, 40, 1)",
    "orphans": (
        "pid = os.fork()\n    if pid == 0:\n        if os.fork() == 0: os.setsid()\n        os._exit(0)\n"
        "    os.waitpid(pid, 0)"
    ),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_flood(box: Box, kind: str, act: str) -> None:
    with beside(box, kind, FLOOD.format(act=ACTS[act])) as held:
        for number in range(10):
            assert held.run(f"exit {number}")[0].status == number << 8


LIMITS = f"""
import resource
print("up", flush=True)
none = ctypes.create_string_buffer(16)
while True:
    for pid in others():
        for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_AS,
                      resource.RLIMIT_STACK, resource.RLIMIT_MEMLOCK, resource.RLIMIT_SIGPENDING):
            libc.syscall({number_of("prlimit64", os.uname().machine)}, pid, which, none, None)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_limits_of_wardens(box: Box, kind: str) -> None:
    """A warden without any may fail to start its command, which is told then. Otherwise it does its work."""
    with beside(box, kind, LIMITS) as held:
        for number in range(20):
            try:
                ended = held.run(f"sleep 1000 & exec sh -c 'exit {number}'")[0].status
            except MudroomError as failed:
                assert isinstance(failed, (CommandNotStarted, StepFailed)), failed
            else:
                assert ended & 0x7F in (0, signal.SIGKILL, signal.SIGSEGV), "a command inherits the limits"


LOOK = f"""
def content(path):
    with open(path, "rb") as stream:
        if not stream.read(1):
            raise PermissionError(errno.EACCES, "empty")
def links(path):
    for name in os.listdir(path):
        os.readlink(path + "/" + name)
        return
    raise PermissionError(errno.EACCES, "empty")
FILES = ("mem", "environ", "maps", "auxv", "io", "stack", "syscall")
def looked(pid):
    seen = []
    acts = [(content, name) for name in FILES] + [(links, name) for name in ("fd", "map_files")]
    for act, name in acts + [(os.readlink, name) for name in ("exe", "cwd", "root", "ns/mnt", "ns/user")]:
        if tried(act, f"/proc/{{pid}}/{{name}}") == "done":
            seen.append((pid, name))
    for number, words in (({number_of("ptrace", os.uname().machine)}, (16, pid, 0, 0)),
                          ({number_of("pidfd_getfd", os.uname().machine)}, (os.pidfd_open(pid), 0, 0))):
        if libc.syscall(number, *words) >= 0:
            seen.append((pid, number))
    return seen
"""
SERVING = LOOK + "print(looked(1) + looked(own), flush=True)"


@pytest.mark.parametrize("kind", [kind for kind in HELD_KINDS if kind != "bare"])
def test_what_is_seen_of_those_that_serve(box: Box, kind: str) -> None:
    """Nothing of init and of wardens, and no access to them."""
    sandbox = hold(box.client, box.prepared(kind))
    with CapturedOutput(None, None, None, 1 << 20) as output:
        words = [b"/usr/bin/python3", b"-IS", b"-c", (HEAD + SERVING).encode()]
        running = sandbox.run(Invocation(words, ENVIRONMENT, output.descriptors), os.fsencode(box.project))
        for stream in output.streams:
            stream.close_theirs()
        attend(running, output, None, lambda: None)
        running.wait_gone()
        said = "".join(stream.data.decode() for stream in output.streams)
    sandbox.end()
    assert said == "[]\n"


NEIGHBOURS = """
def above(pid):
    found = []
    while pid > 0:
        found.append(pid)
        try:
            with open(f"/proc/{pid}/stat") as stream:
                pid = int(stream.read().rpartition(")")[2].split()[1])
        except OSError:
            break  # it has ended, or is hidden
    return found
init = above(own)[1]
pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
others = [pid for pid in pids if init in above(pid)[1:] and own not in above(pid)]
for pid in others:
    for name in range(3):
        try:
            with open(f"/proc/{pid}/fd/{name}", "w") as stream:
                stream.write("12 passed\\n")
        except OSError:
            pass
print(len(others), sum(map(looked, others), []), flush=True)
"""


@pytest.mark.skipif(landlock_abi() < 2, reason="Landlock before ABI 2 cannot permit renames between directories")
@pytest.mark.parametrize("kind", HELD_KINDS)
def test_commands_cannot_open_each_other(box: Box, kind: str) -> None:
    """Neither memory, variables and descriptors, nor directories: no other's result can be forged."""
    held = Beside(box, kind, "print('up', flush=True); os.execvp('sleep', ['sleep', '1000'])")
    try:
        ended, said = held.run(f"exec /usr/bin/python3 -IS -c '{HEAD + LOOK + NEIGHBOURS}'")
        assert said.split(" ", 1)[1] == "[]\n", said
        assert int(said.split()[0]) >= 2, "the other and its warden are seen"
        assert select.select([held.output.streams[0].read], [], [], 0)[0] == [], "nothing is written in its name"
        moved = "mkdir one two && echo x >one/f && mv one/f two/f && ln two/f one/g && cat one/g"
        assert held.run(moved)[1] == "x\n", "renames and links between directories go on"
        assert ended.status == 0
    finally:
        held.end_attack()
        held.sandbox.end()


RACE = """\
import itertools, os
print("up", flush=True)
for number in itertools.count():
    try:
        if os.path.isdir("linked"):
            os.rename("linked", f"gone{number}")
        os.symlink(OUTSIDE, "linked")
        os.unlink("linked")
        os.mkdir("linked")
    except OSError:
        pass  # the other one was faster
"""


def test_paths_that_are_exchanged_while_the_next_command_is_set_up(box: Box) -> None:
    """Its steps make and mount nothing outside of the view, however the race ends."""
    outside = box.home / "outside"
    outside.mkdir()
    (box.home / "shown").mkdir()
    (box.home / "shown/file").write_text("shown")
    view = Copy(os.fsencode(box.copy))
    script = "exec /usr/bin/python3 -IS -c '" + RACE.replace("OUTSIDE", f'"{outside}"') + "'"
    talk = Conversation(box, box.plan(view=view), script)
    assert talk.hear() == "up"
    source, path = os.fsencode(box.home / "shown"), os.fsencode(box.project)[1:] + b"/linked/deep"
    numbers = (errno.ELOOP, errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.EXDEV)
    done = 0
    for _number in range(40):
        plan = box.plan(view=view)
        at = next(index for index, step in enumerate(plan.steps) if step[0] == "view")
        steps = (*plan.steps[: at + 1], ("inside", source, path, 1), *plan.steps[at + 1 :])
        try:
            ended, said = box.run("cat linked/deep/file", plan._replace(steps=steps))
            assert said == "shown" or "No such file" in said, "the name leads elsewhere by now"
            done += ended.status == 0
        except StepFailed as failed:
            assert failed.number in numbers, failed
    assert list(outside.iterdir()) == []
    talk.running.signal(signal.SIGKILL)
    assert talk.end() == 9
