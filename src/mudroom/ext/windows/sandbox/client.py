"""Windows: start commands as ``WindowsPlan``s, without a launcher.

A plan from ``platform.py`` holds one step, the spec and the limits. How the command is confined depends on its words
and environment too, so the ``WindowsPlan`` is compiled here. It is performed in this process: KILL_ON_JOB_CLOSE ends
the command's processes when this process ends, in any way.
"""

from __future__ import annotations

import _thread
import os
import select
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from mudroom.core.confinement.plan import Plan
from mudroom.core.confinement.spec import SandboxSpec
from mudroom.errors import CommandNotStarted, MudroomError, Unsupported
from mudroom.ext.windows.core.windows_command import find_program
from mudroom.ext.windows.core.windows_plan import WindowsPlan
from mudroom.ext.windows.sandbox.bridge import relay_text
from mudroom.ext.windows.sandbox.calls import Calls
from mudroom.ext.windows.sandbox.native import NativeJobs, native
from mudroom.ext.windows.sandbox.plan import WindowsCommand, WindowsMachine, compile_plan, system_variables
from mudroom.ext.windows.sandbox.run import ConfinedProcess, start
from mudroom.ext.windows.sandbox.stream import PipedOutput
from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.api import CallFailed, Library
from mudroom.sandbox.client.client import NO_TEMPLATES
from mudroom.sandbox.client.invocation import NO_OPTIONS, ClientTraits, Exit, Invocation, RunOptions
from mudroom.typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import _socket

    from mudroom.core.confinement.limit import Limits
    from mudroom.sandbox.client.capture import Beside, Watch


_SIGNALS = {
    0xC0000005: 11,  # STATUS_ACCESS_VIOLATION
    0xC00000FD: 11,  # STATUS_STACK_OVERFLOW
    0xC000001D: 4,  # STATUS_ILLEGAL_INSTRUCTION
    0xC0000094: 8,  # STATUS_INTEGER_DIVIDE_BY_ZERO
    0xC0000374: 6,  # STATUS_HEAP_CORRUPTION
    0xC0000409: 6,  # STATUS_STACK_BUFFER_OVERRUN: abort() ends so, too
    0xC000013A: 2,  # STATUS_CONTROL_C_EXIT
}
"""The signal that ends a process for the same reason on Linux."""


def status_of(code: int, sent: int = 0) -> int:
    """Return the wait(2) status for an exit code. ``sent``: the last signal with which mudroom ended the processes, by
    the exit code 128 + ``sent``. An exit code above 255 is never taken for success: its last byte, or 1."""
    if sent and code == 128 + sent:
        return sent
    if code in _SIGNALS:
        return _SIGNALS[code]
    return (code & 0xFF or (1 if code else 0)) << 8


SIGINT, SIGKILL, SIGTERM = 2, 9, 15
_INTERRUPT = b"\x03"
"""Ctrl-C, as a console in raw mode passes it on."""
_SLICE = 0.1
"""Seconds of each wait: between two waits Python calls its handlers for Ctrl-C and Ctrl-Break, in the main thread."""
_BESIDE = 0.02
"""Seconds of each wait for sockets: between two waits the command's end is looked for."""
GRACE = 2.0
"""Seconds between the request to end and the end of the job."""
_ROUNDS = 50
"""Looks for new processes while a job is paused."""
_SIZE = (80, 25)


class WindowsRunning:
    """A command in its job: ``client.Running``. The thread that waits for the command calls ``wait`` and ``close``;
    other threads may signal and pause it."""

    over = -1
    gate: _socket.socket | None = None

    def __init__(
        self,
        calls: Calls,
        confined: ConfinedProcess,
        write: Callable[[int, bytes], object],
        notes: tuple[str, ...] = (),
    ) -> None:
        """``write``: writes bytes to a handle. ``notes``: the plan's."""
        self.notes = notes
        self._calls, self._confined, self._write = calls, confined, write
        self._sent = 0
        """The last signal by which the job was ended. Written under no lock: of two concurrent values either is
        right."""
        self._held: tuple[int, ...] = ()
        """Processes that ``pause`` stopped; only ``pause``'s caller changes it."""
        self._exit: Exit | None = None
        self.left: tuple[str, ...] = ()
        """Lines about undo actions that failed."""

    def fileno(self) -> int:
        """Raise Unsupported: a process is waited for by its handle."""
        raise Unsupported("waiting for a command with others", "a descriptor", "a process of Windows")

    def open_gate(self, target: tuple[str, int], key: bytes, /) -> Callable[[], Sequence[str]]:
        bridge = self._confined.bridge
        if bridge is None:
            raise Unsupported("the gate", "a bridge in the command's plan", "a plan without one")
        bridge.serve(target, key)
        return lambda: bridge.notes

    @property
    def confined(self) -> ConfinedProcess:
        return self._confined

    @property
    def is_over(self) -> bool:
        return self._exit is not None

    def has_report(self) -> bool:
        return self.ends_within(0)

    def ends_within(self, seconds: float) -> bool:
        """Wait at most this long. Return whether the command's own process has ended."""
        return self.is_over or self._confined.wait(seconds) is not None

    def signal(self, number: int) -> None:
        """End the command: as Ctrl-C does if it has a console and the signal is INT, else all processes at once. A
        process without a console cannot be asked to end."""
        if self.is_over or number == 0:
            return
        console = self._confined.console
        if number == SIGINT and console is not None:
            self._write(console.input, _INTERRUPT)
            return
        self._sent = number
        self._confined.terminate(128 + number)

    def pause(self) -> None:
        """Stop every process in the job, with those that start meanwhile. Raise MudroomError if new ones keep coming;
        then all continue."""
        held: list[int] = []
        for _round in range(_ROUNDS):
            new = [pid for pid in self._calls.jobs.process_ids(self._confined.job) if pid not in held]
            if not new:
                self._held = tuple(held)
                return
            for pid in new:
                self._calls.processes.hold(pid)
                held.append(pid)
        self._held = tuple(held)
        self.resume()
        raise MudroomError("the command cannot be paused: it starts new processes", "wait for its end, or end it")

    def resume(self) -> None:
        held, self._held = self._held, ()
        for pid in held:
            self._calls.processes.release(pid)

    def view(self) -> NoReturn:
        """Raise Unsupported: without it file tools wait for the command's end."""
        raise Unsupported("the view of a running command", "a mount", "a copy")

    def own_directories(self) -> tuple[list[int], list[int]]:
        """Return no directory: they are on the host."""
        return [], []

    def terminal(self) -> None:
        """Return None: a console has no descriptor (``confined``)."""

    def listeners(self) -> list[tuple[str, int]]:
        """Return no listener: the gate is reached by the bridge."""
        return []

    def door(self) -> NoReturn:
        """Raise Unsupported: no sandbox is held."""
        raise Unsupported("a held sandbox", "namespaces that others can join", "a job")

    def wait(self) -> Exit:
        """Wait for the command's own process, then end the rest of the job, as on other systems."""
        if self._exit is not None:
            return self._exit
        while (code := self._confined.wait(_SLICE)) is None:
            pass  # a handler may raise between two slices
        return self._end(code)

    def _end(self, code: int) -> Exit:
        accounting = self._confined.accounting()
        self._exit = Exit(status_of(code, self._sent), accounting.seconds, 0.0, accounting.peak_memory >> 10)
        self.close()
        return self._exit

    def wait_gone(self) -> None:
        self.close()

    def close(self) -> None:
        """End the job and undo the set-up. Harmless when repeated."""
        self.left += self._confined.close()

    def __del__(self) -> None:
        self.close()


class WindowsClient:
    """The Windows ``client.Client``. ``shape`` changes a plan before it is performed. It is for tests on systems
    without AppContainers, and the only way to leave a step out: no setting, variable or file does."""

    traits, templates = ClientTraits(), NO_TEMPLATES

    def __init__(
        self,
        calls: Calls | None = None,
        *,
        variables: Mapping[str, str],
        machine: WindowsMachine | None = None,
        is_file: Callable[[str], bool] = os.path.isfile,
        shape: Callable[[WindowsPlan], WindowsPlan] = lambda plan: plan,
    ) -> None:
        """``variables``: the host's environment, from which programs get the variables that Windows itself needs. Raise
        OSError without ``calls`` if this is not Windows."""
        if calls is None:
            calls = native()
        self._calls, self._machine, self._is_file, self._shape = calls, machine, is_file, shape
        self._system = system_variables(variables)
        self._running: list[WindowsRunning] = []
        self._lock = _thread.allocate_lock()
        """Guards ``_running``."""

    def start(self) -> None:
        """Do nothing: there is no launcher."""

    def prepare_move(self) -> int:
        """Raise Unsupported: Windows has no control groups."""
        raise Unsupported("a control group", "Linux", "Windows", "a job holds memory, processes and cpus")

    def run(self, plan: Plan, invocation: Invocation, options: RunOptions = NO_OPTIONS) -> WindowsRunning:
        """Start a command. ``stdio`` are C runtime descriptors. With ``terminal`` the command gets its own console,
        whose ends ``WindowsRunning.confined`` has.

        Raise Unsupported for requests that need namespaces, CommandNotStarted if the program is not found.
        """
        if options.held:
            hint = "run it without --background"
            raise Unsupported("a command in the background", "namespaces that others can join", "a job", hint)
        if options._replace(view=False) != NO_OPTIONS:  # without a view file tools wait for the command's end
            raise Unsupported("a sandbox with a network or control groups of its own", "namespaces", "Windows")
        spec, limits = _request(plan)
        machine = self._machine or self._survey()
        command = self._command(invocation, spec)
        compiled = self._shape(compile_plan(spec, limits, command, machine, os.urandom(16)))
        handles = None if invocation.terminal else _handles(invocation.stdio)
        running = WindowsRunning(self._calls, start(self._calls, compiled, handles), _write_handle, compiled.notes)
        with self._lock:
            self._running = [*(one for one in self._running if not one.is_over), running]
        return running

    def _command(self, invocation: Invocation, spec: SandboxSpec) -> WindowsCommand:
        chosen = _distinct({name.decode(): value.decode() for name, value in invocation.env.items()})
        variables = {**self._system, **chosen}  # PATHEXT is the system's
        words = tuple(word.decode() for word in invocation.argv)
        named = {name.upper(): value for name, value in variables.items()}
        cwd = spec.cwd.decode().replace("/", "\\")
        program = find_program(words[0], named.get("PATH", ""), named.get("PATHEXT", ""), self._is_file, cwd)
        if program is None:
            raise CommandNotStarted(f"{words[0]}: not found", 127, "name a program of PATH, or its path")
        return WindowsCommand(program, words, variables, _SIZE if invocation.terminal else None)

    def _survey(self) -> WindowsMachine:
        library = Library()
        self._machine = WindowsMachine(
            os.cpu_count() or 1,
            in_job=NativeJobs(library).runs_in_job(),
            python=getattr(sys, "_base_executable", "") or sys.executable,
            relay=relay_text(),
        )
        return self._machine

    def clear(self, works: Sequence[tuple[bytes, bytes]]) -> bool:
        """Return False: there are no overlay work directories."""
        return not works

    def close(self) -> None:
        """End every command."""
        with self._lock:
            running, self._running = self._running, []
        for command in running:
            command.close()


def _distinct(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables, without a name's second spelling if both have the same value: elsewhere ``http_proxy`` and
    ``HTTP_PROXY`` are two variables, and both are set."""
    values: dict[tuple[str, str], str] = {}
    for name, value in variables.items():
        values.setdefault((name.upper(), value), name)
    return {name: value for (_upper, value), name in values.items()}


def _request(plan: Plan) -> tuple[SandboxSpec, Limits]:
    for step in plan.steps:
        if step[0] == "windows":
            return step[1], step[2]
    raise ValueError("a plan of another platform")


def _handles(stdio: tuple[int, int, int]) -> tuple[int, int, int]:
    import msvcrt

    get: Callable[[int], int] = msvcrt.get_osfhandle  # type: ignore[attr-defined,unused-ignore]
    return get(stdio[0]), get(stdio[1]), get(stdio[2])


def _write_handle(handle: int, data: bytes) -> None:
    """Write bytes to a handle. A console that has just ended reads nothing any more."""
    from ctypes import byref

    written = w.DWORD()
    try:
        Library().WriteFile(handle, data, len(data), byref(written), None)
    except CallFailed as failed:
        if failed.code not in (w.ERROR_BROKEN_PIPE, w.ERROR_NO_DATA):
            raise


def attend(
    running: WindowsRunning,
    output: PipedOutput,
    timeout: float | None,
    meanwhile: Callable[[], None],
    watch: Watch | None = None,
    beside: Beside | None = None,
) -> tuple[Exit, bool]:
    """Wait, as ``capture.attend`` does, for a command that has received its descriptors, and drain its streams. Return
    how it ended and whether it ran out of time. An exception here (Ctrl-C) ends the job before it is passed on."""
    now = time.monotonic()
    deadline = None if timeout is None else now + timeout
    next_look = None if watch is None else now + watch.every
    timed_out = False
    try:
        output.begin()
        meanwhile()
        while not running.ends_within(_pause(deadline, next_look) if beside is None else 0):
            if beside is not None:
                held = _attend_beside(beside, min(_pause(deadline, next_look), _BESIDE))
                deadline = None if deadline is None else deadline + held
            now = time.monotonic()
            if watch is not None and next_look is not None and now >= next_look:
                held = watch.look()
                next_look = time.monotonic() + watch.every
                deadline = None if deadline is None else deadline + held
            elif deadline is not None and now >= deadline:
                running.signal(SIGKILL if timed_out else SIGTERM)
                deadline, timed_out = now + GRACE, True
        ended = running.wait()
        output.join()
        return ended, timed_out
    except BaseException:
        running.signal(SIGKILL)
        running.close()
        output.join()
        raise


def _attend_beside(beside: Beside, seconds: float) -> float:
    """Wait at most this long for a socket in ``beside``, and attend to it. Return the seconds for which it kept the
    command waiting."""
    descriptors = beside.descriptors()
    # select() on Windows serves sockets alone; without any it fails.
    if not descriptors:
        time.sleep(seconds)
        return 0.0
    ready = select.select(list(descriptors), [], [], seconds)[0]
    return beside.attend(ready) if ready else 0.0


def _pause(*times: float | None) -> float:
    """Return the seconds until the first time, at most ``_SLICE``."""
    now = time.monotonic()
    return min([_SLICE, *(max(0.0, when - now) for when in times if when is not None)])
