"""Commands by ``WindowsClient`` with real jobs, pipes and processes, in a shape without what Wine lacks. Run by
``dev/wine``."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

from mudroom.core.confinement.limit import Limits
from mudroom.core.confinement.plan import Plan
from mudroom.errors import CommandNotStarted, Unsupported
from mudroom.ext.windows.core.windows_plan import WindowsPlan
from mudroom.ext.windows.sandbox.client import WindowsClient, WindowsRunning, attend
from mudroom.ext.windows.sandbox.plan import WindowsMachine
from mudroom.ext.windows.sandbox.stream import PipedOutput
from mudroom.ext.windows.win32.api import Library
from mudroom.sandbox.client.invocation import Exit, Invocation, RunOptions
from test_on_windows import NATIVE, spec

LIBRARY = Library()
_CONFINING = ("profile", "grant", "deny", "label", "protect", "integrity", "default_dacl", "mitigate")


def without_container(plan: WindowsPlan) -> WindowsPlan:
    """Return the plan without what Wine lacks: the AppContainer and its rights, restricting SIDs, integrity."""
    steps: list[tuple[Any, ...]] = []
    for step in plan.steps:
        if step[0] == "token":
            steps.append(("token", step[1], ()))
        elif step[0] == "check":
            steps.append(("check", False))
        elif step[0] == "bridge":
            steps.append((*step[:2], "@user"))
        elif step[0] == "relay":
            steps.append((*step[:-1], False))
        elif step[0] not in _CONFINING:
            steps.append(step)
    return plan._replace(steps=tuple(steps))


class Place:
    """A copy and a scratch directory, and a client for commands in them."""

    def __init__(self, root: Path) -> None:
        self.work = root / "work"
        self.spec = spec(root)
        self.client = WindowsClient(
            NATIVE, variables=os.environ, machine=WindowsMachine(os.cpu_count() or 1), shape=without_container
        )
        self.env = {name.encode(): value.encode() for name, value in os.environ.items() if name.isascii()}

    @property
    def plan(self) -> Plan:
        return Plan(0, (b"", b"", False), (("windows", self.spec, Limits(missing="degrade")),))

    def start(self, *argv: str, output: PipedOutput, terminal: tuple[int, ...] = ()) -> WindowsRunning:
        words = [word.encode() for word in argv]
        return self.client.run(self.plan, Invocation(words, self.env, output.descriptors, terminal))

    def run(self, *argv: str, timeout: float | None = None, stdin: int | None = None) -> tuple[Exit, bytes, bool]:
        with PipedOutput(LIBRARY, stdin, None, None, 1 << 20) as output:
            running = self.start(*argv, output=output)
            ended, timed_out = attend(running, output, timeout, lambda: None)
            assert running.left == ()
            assert output.failures == []
            return ended, output.captured("stdout"), timed_out


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.client.close()


def python(*text: str) -> tuple[str, str, str]:
    return sys.executable, "-c", "\n".join(text)


def test_a_command_works_in_the_copy_and_its_end_is_told(place: Place) -> None:
    ended, out, timed_out = place.run("cmd", "/d", "/c", "echo hello> made.txt& cd& exit 7")
    assert ended.status == 7 << 8
    assert not timed_out
    assert os.path.samefile(out.decode().strip(), place.work)
    assert (place.work / "made.txt").read_text().strip() == "hello"
    assert ended.user >= 0


def test_both_outputs_are_captured_whole_and_told_as_they_come(place: Place) -> None:
    heard = list[tuple[str, int]]()
    with PipedOutput(LIBRARY, None, None, None, 1000, lambda name, chunk: heard.append((name, len(chunk)))) as output:
        text = "import sys; sys.stdout.write('o' * 300000); sys.stderr.write('e' * 500)"
        ended, _late = attend(place.start(sys.executable, "-c", text, output=output), output, None, lambda: None)
    assert ended.status == 0
    assert output.captured("stdout") == b"o" * 1000
    assert output.captured("stderr") == b"e" * 500
    assert [stream.truncated for stream in output.streams] == [True, False]
    assert sum(length for name, length in heard if name == "stdout") == 300_000


def test_input_and_output_go_to_the_callers_files(place: Place, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"x" * 200_000)
    with (
        (tmp_path / "in").open("rb") as given,
        (tmp_path / "out").open("wb") as out,
        PipedOutput(LIBRARY, given.fileno(), out.fileno(), None, 1000) as output,
    ):
        text = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
        ended, _late = attend(place.start(sys.executable, "-c", text, output=output), output, None, lambda: None)
    assert ended.status == 0
    assert (tmp_path / "out").read_bytes() == b"x" * 200_000


def test_input_that_never_comes_holds_up_nothing(place: Place) -> None:
    """A thread waits for the caller's pipe when the command is over. It is interrupted: what is written then, is read
    by whoever reads next."""
    read, write = os.pipe()
    ended, out, _late = place.run("cmd", "/d", "/c", "echo done", stdin=read)
    assert (ended.status, out.strip()) == (0, b"done")
    assert not any(thread.name == "mudroom-stdin" for thread in threading.enumerate())
    os.write(write, b"answer")
    assert os.read(read, 100) == b"answer"
    os.close(read)
    os.close(write)


def test_a_command_out_of_time_ends_with_all_that_it_has_started(place: Place) -> None:
    text = ("import subprocess, sys", "subprocess.Popen(['ping', '-n', '600', '127.0.0.1'])", "sys.stdin.read()")
    read, write = os.pipe()
    ended, _out, timed_out = place.run(*python(*text), timeout=0.5, stdin=read)
    os.close(write)
    os.close(read)
    assert timed_out
    assert ended.status & 0x7F in (15, 9)


def test_what_a_command_leaves_behind_is_ended(place: Place) -> None:
    text = ("import subprocess", "print(subprocess.Popen(['ping', '-n', '600', '127.0.0.1']).pid)")
    ended, out, _late = place.run(*python(*text))
    assert ended.status == 0
    from mudroom.ext.windows.win32.process import started

    assert started(LIBRARY, int(out.split()[-1].split(b"\r")[0] if b"Pinging" not in out else out.split()[0])) == 0


def test_a_paused_command_does_nothing(place: Place) -> None:
    counter = place.work / "counter"
    text = (
        "import itertools", f"stream = open({str(counter)!r}, 'wb', buffering=0)",
        "for number in itertools.count():", "    stream.write(b'.')",
    )  # fmt: skip
    with PipedOutput(LIBRARY, None, None, None, 1000) as output:
        running = place.start(*python(*text), output=output)
        while not (counter.exists() and counter.stat().st_size):
            assert not running.ends_within(0.01)
        running.pause()
        before = counter.stat().st_size
        assert not running.ends_within(0.3)
        assert counter.stat().st_size == before
        running.resume()
        while counter.stat().st_size == before:
            assert not running.ends_within(0.01)
        running.signal(9)
        ended, _late = attend(running, output, None, lambda: None)
    assert ended.status == 9


def test_an_exception_meanwhile_ends_the_job(place: Place) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with PipedOutput(LIBRARY, None, None, None, 1000) as output:
        running = place.start("ping", "-n", "600", "127.0.0.1", output=output)
        with pytest.raises(KeyboardInterrupt):
            attend(running, output, None, interrupted)
    assert place.client._running[0].confined.job == 0


def test_a_program_that_cannot_be_started_is_told(place: Place, tmp_path: Path) -> None:
    with pytest.raises(CommandNotStarted) as missing:
        place.run("no-such-program")
    assert missing.value.exit_code == 127
    (tmp_path / "text.exe").write_bytes(b"no program")
    with pytest.raises(CommandNotStarted) as unfit:
        place.run(str(tmp_path / "text.exe"))
    assert unfit.value.exit_code in (126, 127)


def test_a_crash_and_large_exit_codes_are_no_success(place: Place) -> None:
    assert place.run(*python("import os", "os._exit(256)"))[0].status == 1 << 8
    assert place.run(*python("import os", "os._exit(0xC0000005 - 2**32)"))[0].status == 11
    assert place.run("cmd", "/d", "/c", "exit 4660")[0].status == 0x34 << 8


def test_a_terminal_of_its_own(place: Place) -> None:
    with PipedOutput(LIBRARY, None, None, None, 1000) as output:
        running = place.start("cmd", "/d", "/c", "exit 5", output=output, terminal=(0, 1, 2))
        assert running.confined.console is not None
        assert running.wait().status == 5 << 8
        assert running.left == ()


def test_without_the_shape_of_the_tests_no_command_runs(place: Place) -> None:
    """Wine has no AppContainers, so the plan itself is refused; a real Windows performs it or refuses it, too."""
    from test_on_windows import WINE

    plain = WindowsClient(NATIVE, variables=os.environ)
    with PipedOutput(LIBRARY, None, None, None, 1000) as output:
        context: Any = pytest.raises(Unsupported) if WINE else contextlib.nullcontext()
        with context:
            plain.run(place.plan, Invocation([b"cmd", b"/c", b"echo x> made.txt"], place.env, output.descriptors))
    plain.close()
    assert not WINE or not (place.work / "made.txt").exists()


def test_requests_that_need_namespaces_are_refused(place: Place) -> None:
    with PipedOutput(LIBRARY, None, None, None, 1000) as output:
        for wish in (RunOptions(held=True), RunOptions(gate=True), RunOptions(after=1)):
            with pytest.raises(Unsupported):
                place.client.run(place.plan, Invocation([b"cmd"], place.env, output.descriptors), wish)
