"""A sandbox that several commands share: the shared state, and the confinement of each command."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from box import ENVIRONMENT, HELD_KINDS, NAMESPACES, Box, if_namespaces
from mudroom.errors import CommandNotStarted, UsageError
from mudroom.sandbox.client.capture import CapturedOutput, attend
from mudroom.sandbox.client.held import HeldSandbox, hold
from mudroom.sandbox.client.invocation import Exit, Invocation
from mudroom.sandbox.client.launcher_client import LaunchedCommand, LauncherClient

pytestmark = pytest.mark.both_users

COUNT = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c "


@pytest.fixture
def box(tmp_path: Path, client: LauncherClient) -> Box:
    return Box(tmp_path, client)


@contextmanager
def held(box: Box, kind: str) -> Iterator[HeldSandbox]:
    made = hold(box.client, box.prepared(kind))
    try:
        yield made
    finally:
        made.end()


def place_of(box: Box, kind: str) -> bytes:
    return os.fsencode(box.copy if kind == "bare" else box.project)


def run(box: Box, kind: str, sandbox: HeldSandbox, script: str, timeout: float | None = None) -> tuple[Exit, str]:
    with CapturedOutput(None, None, None, 1 << 20) as output:
        running = sandbox.run(
            Invocation([b"sh", b"-c", script.encode()], ENVIRONMENT, output.descriptors), place_of(box, kind)
        )
        ended, _timed_out = attend(running, output, timeout, lambda: None)
        running.wait_gone()
        return ended, "".join(stream.data.decode() for stream in output.streams)


class Beside:
    """A command that goes on while others run: it says a line, and waits for one."""

    def __init__(self, box: Box, kind: str, sandbox: HeldSandbox, script: str) -> None:
        self._stdin, self._write = os.pipe()
        self._output = CapturedOutput(self._stdin, None, None, 1 << 20, own=(self._stdin,))
        argv = [b"sh", b"-c", script.encode()]
        self.running: LaunchedCommand = sandbox.run(
            Invocation(argv, ENVIRONMENT, self._output.descriptors), place_of(box, kind)
        )
        for stream in self._output.streams:
            stream.close_theirs()

    def hear(self) -> str:
        line = b""
        while not line.endswith(b"\n"):
            part = os.read(self._output.streams[0].read, 1)
            assert part, f"it ended: {line!r}"
            line += part
        return line.decode().strip()

    def say(self) -> None:
        os.write(self._write, b"go\n")

    def end(self) -> Exit:
        ended = self.running.wait()
        self.running.wait_gone()
        self._output.__exit__()
        os.close(self._stdin)
        os.close(self._write)
        return ended


@pytest.mark.parametrize("kind", HELD_KINDS)
def test_commands_side_by_side_see_the_same_view(box: Box, kind: str) -> None:
    with held(box, kind) as sandbox:
        server = Beside(box, kind, sandbox, "echo there > made; echo up; read word; cat told; exit 5")
        assert server.hear() == "up"
        ended, output = run(box, kind, sandbox, "cat made; echo hello > told")
        assert (ended.status, output) == (0, "there\n")
        server.say()
        assert server.hear() == "hello"
        assert os.waitstatus_to_exitcode(server.end().status) == 5
    assert (box.staged(kind) / "told").read_text() == "hello\n"


@pytest.mark.parametrize("kind", [kind for kind in HELD_KINDS if kind.startswith("overlay")])
def test_a_directory_is_renamed_and_a_refusal_told(box: Box, kind: str) -> None:
    for name in ("old", "other"):
        (box.project / name).mkdir()
        (box.project / name / "file").write_text("x")
    exchange = "import ctypes; ctypes.CDLL(None).renameat2(-100, b'other', -100, b'new', 2)"
    with held(box, kind) as sandbox:
        script = "/usr/bin/python3 -c \"import os; os.rename('old', 'new')\"; cat new/file; ls"
        ended, output = run(box, kind, sandbox, script)
        assert (output, ended.refused) == ("xnew\nother\n", ())
        assert run(box, kind, sandbox, f'/usr/bin/python3 -c "{exchange}"')[0].refused == (b"rename other",)
        assert run(box, kind, sandbox, "true")[0].refused == ()


@pytest.mark.parametrize("kind", [kind for kind in HELD_KINDS if kind != "bare"])
def test_they_share_tmp_network_and_processes(box: Box, kind: str) -> None:
    spaces = "readlink /proc/self/ns/net /proc/self/ns/pid /proc/self/ns/mnt /proc/self/ns/ipc /proc/self/ns/user"
    with held(box, kind) as sandbox:
        server = Beside(box, kind, sandbox, f"echo x > /tmp/here; {spaces} > /tmp/spaces; echo $$; read word")
        pid = int(server.hear())
        ended, output = run(box, kind, sandbox, f"cat /tmp/here; {spaces} | diff - /tmp/spaces && kill -0 {pid}")
        assert (ended.status, output) == (0, "x\n")
        server.say()
        assert server.end().status == 0


@pytest.mark.parametrize("kind", HELD_KINDS)
def test_what_a_command_leaves_ends_with_it_and_the_others_go_on(box: Box, kind: str) -> None:
    with held(box, kind) as sandbox:
        server = Beside(box, kind, sandbox, "echo up; read word; exit 3")
        assert server.hear() == "up"
        _ended, output = run(box, kind, sandbox, "(setsid sleep 987 >/dev/null 2>&1 &); echo done")
        assert output == "done\n"
        _ended, output = run(box, kind, sandbox, COUNT + "'sleep 98[7]'")
        assert output == "0\n"
        server.say()
        assert os.waitstatus_to_exitcode(server.end().status) == 3


@pytest.mark.parametrize("kind", HELD_KINDS)
def test_a_signal_is_for_one_command(box: Box, kind: str) -> None:
    with held(box, kind) as sandbox:
        server = Beside(box, kind, sandbox, "echo up; read word; exit 3")
        other = Beside(box, kind, sandbox, "trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done")
        stubborn = Beside(box, kind, sandbox, "trap '' TERM; echo up; (setsid sleep 976 &) ; sleep 977")
        assert [server.hear(), other.hear(), stubborn.hear()] == ["up"] * 3
        other.running.signal(signal.SIGTERM)
        assert os.waitstatus_to_exitcode(other.end().status) == 7
        stubborn.running.signal(signal.SIGKILL)
        assert stubborn.end().status == signal.SIGKILL
        _ended, output = run(box, kind, sandbox, COUNT + "'sleep 97[67]'")
        assert output == "0\n"
        server.say()
        assert os.waitstatus_to_exitcode(server.end().status) == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
@pytest.mark.parametrize("kind", HELD_KINDS)
def test_a_signal_that_comes_while_it_is_started_is_heard(box: Box, kind: str, number: signal.Signals) -> None:
    with held(box, kind) as sandbox, CapturedOutput(None, None, None, 1 << 10) as output:
        for _time in range(5):
            running = sandbox.run(Invocation([b"sleep", b"1000"], ENVIRONMENT, output.descriptors), place_of(box, kind))
            running.signal(number)
            assert running.wait().status & 0x7F == number
            running.wait_gone()


@pytest.mark.parametrize("kind", HELD_KINDS)
def test_the_end_of_the_sandbox_ends_all(box: Box, kind: str) -> None:
    with held(box, kind) as sandbox:
        servers = [Beside(box, kind, sandbox, "trap '' TERM; echo up; sleep 986") for _number in range(3)]
        assert [server.hear() for server in servers] == ["up"] * 3
        sandbox.end()
        assert [server.end().status for server in servers] == [signal.SIGKILL] * 3


@pytest.mark.parametrize("kind", HELD_KINDS)
def test_a_program_that_is_not_there_is_the_commands_failure_only(box: Box, kind: str) -> None:
    with held(box, kind) as sandbox, CapturedOutput(None, None, None, 1 << 20) as output:
        running = sandbox.run(Invocation([b"no-such-program"], ENVIRONMENT, output.descriptors), place_of(box, kind))
        with pytest.raises(CommandNotStarted) as raised:
            running.wait()
        assert raised.value.exit_code == 127
        running.close()
        running = sandbox.run(Invocation([b"true"], ENVIRONMENT, output.descriptors), b"/no/such/directory")
        with pytest.raises(UsageError, match="cannot work in /no/such/directory: No such file"):
            running.wait()
        running.close()
        assert run(box, kind, sandbox, "echo yes")[1] == "yes\n"


CONFINED = r"""
grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\t'
ulimit -c; umask
"""


@pytest.mark.parametrize("kind", HELD_KINDS)
def test_a_joined_command_is_confined_as_a_first_one(box: Box, kind: str) -> None:
    _ended, first = box.run(CONFINED, box.prepared(kind))
    with held(box, kind) as sandbox:
        assert run(box, kind, sandbox, CONFINED)[1] == run(box, kind, sandbox, CONFINED)[1] == first
    assert "CapBnd:0000000000000000" in first or kind == "bare"
    assert "NoNewPrivs:1" in first
    assert "Seccomp:2" in first


@pytest.mark.skipif(not NAMESPACES, reason="user namespaces are not permitted here")
def test_a_warden_that_is_killed_takes_its_command_with_it(box: Box) -> None:
    with held(box, "overlay") as sandbox:
        victim = Beside(box, "overlay", sandbox, "echo $PPID; exec sleep 984")
        warden = int(victim.hear())
        run(box, "overlay", sandbox, f"kill -9 {warden}")
        assert victim.end().status == signal.SIGKILL
        _ended, output = run(box, "overlay", sandbox, COUNT + "'sleep 98[4]'")
        assert output == "0\n"


@pytest.mark.parametrize("kind", HELD_KINDS)
def test_a_command_that_stops_its_warden_is_still_ended(box: Box, kind: str) -> None:
    with held(box, kind) as sandbox:
        hostile = Beside(box, kind, sandbox, "kill -STOP $PPID; echo stopped; exec sleep 983")
        assert hostile.hear() == "stopped"
        hostile.running.signal(signal.SIGKILL)
        assert hostile.end().status == signal.SIGKILL


@if_namespaces
def test_refusals_are_told_to_the_command_during_which_they_came(box: Box) -> None:
    unshare = f"{sys.executable} -I -S -c 'import ctypes; ctypes.CDLL(None).unshare(0x10000000)'"
    with held(box, "overlay") as sandbox:
        ended, _output = run(box, "overlay", sandbox, unshare)
        assert any(one.startswith(b"call ") for one in ended.refused)
        ended, _output = run(box, "overlay", sandbox, "true")
        assert ended.refused == ()
