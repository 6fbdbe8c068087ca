"""The warden: a small process beside each command, for platforms without namespaces and resident launcher (macOS).

It starts the command under ``sandbox-exec``, forwards signals, waits, kills the command's leftover processes and
reports. It sends the same messages as the launcher of Linux (``src/native/launcher``), so ``client.Running`` is the
other end for
both.

Rules of this file and ``processtable``:
1. It uses only features that macOS has: no pidfd, no prctl, no /proc. So it runs on Linux as well, and is tested there.
2. It is single-threaded (``python -I -S``): it forks, and runs Python between fork and exec. The host does neither.
3. Any failure before the exec is reported with the step's index; the command has not run.
4. When the host is gone (end of file on ``CONTROL``), all the command's processes end.

The command's processes are its descendants, the processes in its session or in a process group or session that such a
process has led, and at its end those that carry its mark in their environment (``MUDROOM_RUN``). They are listed five
times a second, at every event, and, at the end, until none is found. A process that leaves the first three (a double
fork with setsid(2) between two looks) is found by its mark alone. macOS does not show the mark for Apple's own programs
(``processtable.carries``), so a daemon that is a /bin/sh is not found, nor a process that was deliberately given
another environment. It stays in the sandbox, which a process never leaves; but it outlives the command.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import fcntl
import os
import resource
import select
import sys
import termios
import time
from contextlib import suppress

from mudroom.core.system import rights
from mudroom.core.system.closing import Descriptor
from mudroom.sandbox.client.wire import receive, tell
from mudroom.sandbox.host.process_table import carries, rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mudroom.sandbox.client.wire import Request
    from mudroom.sandbox.host.process_table import Row
    from mudroom.typing import Any, NoReturn

CONTROL, REPORT, CHANNEL = 3, 4, 5
"""Descriptors that the host passes, beside the command's own."""
LOOK = 0.2
"""Seconds between two looks at the processes: each takes a few milliseconds."""
PATIENCE = 200
"""Attempts to kill the leftover processes before giving up: 10 ms each."""
QUIET = 2
"""Looks in a row that have to find no process: a process may start, and its parent end, during a look."""
CHECK = 5.0
"""Seconds that sandbox-exec may take for a program that only ends."""
ENOENT, EACCES, EIO, EPERM = 2, 13, 5, 1
_TO_COMMAND = (_signal.SIGTERM, _signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2)
_TO_GROUP = (_signal.SIGINT, _signal.SIGQUIT)
_IGNORED = (*_TO_GROUP, _signal.SIGTSTP, _signal.SIGTTIN, _signal.SIGTTOU, _signal.SIGHUP, _signal.SIGPIPE)
_RESET = (*_IGNORED, *_TO_COMMAND, _signal.SIGXFSZ, _signal.SIGCHLD)
_MOST_SAID = 400
"""Characters kept from sandbox-exec's message about a rejected profile."""
RLIMITS = {1: "RLIMIT_FSIZE", 2: "RLIMIT_DATA", 4: "RLIMIT_CORE", 6: "RLIMIT_NPROC", 7: "RLIMIT_NOFILE"}
"""Linux's rlimit numbers, as in a plan; macOS has others for some."""


class WardenError(Exception):
    """Raised after a failure was reported to the host: the process only has to exit."""


def fail(index: int, op: str, error: OSError) -> NoReturn:
    detail = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else error.strerror or ""
    tell(REPORT, ("failed", index, op, error.errno or 0, detail))
    raise WardenError


# --- the command's processes ---


class Family:
    """The command's processes. Pids and group and session numbers are remembered only while a process has them: the
    kernel reuses them for unrelated processes."""

    def __init__(self, command: int, session: int, mark: bytes) -> None:
        self._first = (command, session)
        self._alive: dict[int, int] = {}
        """The processes at the last look, with their start times."""
        self._leaders: set[int] = set()
        """The leaders of their groups and sessions."""
        self._mark = mark
        self._spared = {os.getpid(), os.getppid()}

    def members(self, *, by_mark: bool = False) -> list[tuple[int, bool]]:
        """Return the live processes, and whether each is stopped."""
        table = {row[0]: row for row in rows() if row[0] not in self._spared}
        leaders = {*self._first, *self._leaders}
        members = {pid for pid, row in table.items() if pid == self._first[0] or self._alive.get(pid) == row[4]}
        has_grown = True
        while has_grown:
            leaders |= {leader for pid in members for leader in _groups(table[pid])}
            new = {
                pid
                for pid, row in table.items()
                if pid not in members and (row[1] in members or any(leader in leaders for leader in _groups(row)))
            }
            members |= new
            has_grown = bool(new)
        if by_mark:
            members |= {pid for pid in table if pid not in members and carries(pid, self._mark)}
        self._alive = {pid: table[pid][4] for pid in members}
        self._leaders = {leader for pid in members for leader in _groups(table[pid])}
        return [(pid, table[pid][3]) for pid in members]

    def end(self) -> bool:
        """Kill all processes, until none is found. Return False if some cannot be killed."""
        quiet = 0
        for _attempt in range(PATIENCE):
            left = self.members(by_mark=True)
            quiet = 0 if left else quiet + 1
            if quiet == QUIET:
                return True
            for pid, _stopped in left:
                send_signal(pid, _signal.SIGKILL)
            reap_others()
            if left:
                select.select([], [], [], 0.01)
        return False

    def stop(self, stopped: list[int]) -> None:
        """Stop all running processes; on return they are stopped. Add those stopped here to ``stopped``. Raise OSError,
        after continuing them, if some do not stop."""
        quiet = 0
        for _attempt in range(PATIENCE):
            running = [pid for pid, is_stopped in self.members(by_mark=True) if not is_stopped]
            quiet = 0 if running else quiet + 1
            if quiet == QUIET:
                return
            for pid in running:
                if send_signal(pid, _signal.SIGSTOP) and pid not in stopped:
                    stopped.append(pid)
            if running:
                select.select([], [], [], 0.002)
        for pid in stopped:
            send_signal(pid, _signal.SIGCONT)
        stopped.clear()
        raise OSError(EPERM, "its processes did not stop in time")


def _groups(row: Row) -> tuple[int, ...]:
    """Return a process's group and session, by their leaders' pids."""
    try:
        return row[2], os.getsid(row[0])
    except OSError:
        return (row[2],)  # it has just ended


def send_signal(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False


def reap_others() -> None:
    """Reap children that have ended, after the command was waited for."""
    while True:
        try:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return


# --- starting it ---


def keep_only(last: int) -> None:
    """Close descriptors that the host inherited from its parent, and keep this process's own from the command."""
    for name in os.listdir("/dev/fd"):
        if int(name) > last:
            with suppress(OSError):  # the listing's own descriptor
                os.close(int(name))
    for descriptor in range(CONTROL, last + 1):
        os.set_inheritable(descriptor, False)


def take_terminal(numbers: tuple[int, ...]) -> tuple[int, _socket.socket]:
    """Make a pseudo-terminal the controlling terminal for this process and the command: tty(4). Its master goes to the
    host, which copies the user's terminal settings before it sends ``g``. This process leads the session: a command
    that led it could not be stopped."""
    master, side = os.openpty()
    fcntl.ioctl(side, termios.TIOCSCTTY, 0)
    for number in numbers:
        os.dup2(side, number)
    channel = _socket.socket(fileno=CHANNEL)
    rights.send(channel, b"t", [master])
    os.close(master)
    if channel.recv(1) != b"g":
        raise OSError(EIO, "the host has closed the terminal")
    return side, channel


def write_profile(path: bytes, profile: bytes) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
    with Descriptor(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)) as descriptor:
        while profile:
            profile = profile[os.write(descriptor, profile) :]


def check_profile(request: Request, profile: bytes) -> None:
    """Run ``true`` under the profile: a rejected profile, or another sandbox around this process, is reported before
    the command runs. sandbox-exec's message is passed on without interpretation."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for number, target in ((null, 0), (null, 1), (write, 2)):
                os.dup2(number, target)
            os.chdir("/")
            os.setpgid(0, 0)
            _signal.alarm(int(CHECK))  # remains over execve(2)
            tool = request["tool"]
            os.execve(tool, [tool, b"-f", profile, b"--", b"/usr/bin/true"], {"PATH": os.defpath})
        except OSError as error:
            os.write(2, (error.strerror or "").encode())
        finally:
            os._exit(126)
    os.close(write)
    message, end = b"", time.monotonic() + CHECK
    while select.select([read], [], [], max(0.0, end - time.monotonic()))[0] and (chunk := os.read(read, 4096)):
        message = (message + chunk)[:_MOST_SAID]
    os.close(read)
    if time.monotonic() >= end:
        os.killpg(child, _signal.SIGKILL)  # not waited for yet, so the number is still its own
    status = os.waitpid(child, 0)[1]
    if status:
        text = message.decode("utf-8", "replace").strip() or f"it ended with the status {status}"
        raise OSError(EPERM, f"{os.fsdecode(request['tool'])} reports: {text}")


def find_program(name: bytes, search: list[bytes]) -> bytes:
    """Find a program as execvp(3) does: "not found" then comes from here, never from the sandbox."""
    candidates = [name] if b"/" in name else [directory + b"/" + name for directory in search]
    failure = OSError(ENOENT, "not found")
    for candidate in candidates:
        if os.path.isfile(candidate):
            if os.access(candidate, os.X_OK):
                return candidate
            failure = OSError(EACCES, "not executable")
    raise failure


def perform(request: Request, ops: tuple[str, ...], table: dict[str, Any]) -> None:
    for index, step in enumerate(request["plan"]):
        if step[0] in ops:
            try:
                table[step[0]](*step[1:])
            except OSError as error:
                fail(index, step[0], error)


def set_rlimit(number: int, soft: int, hard: int) -> None:
    kind = getattr(resource, RLIMITS[number])
    ours = resource.getrlimit(kind)[1]
    if ours != resource.RLIM_INFINITY:
        soft, hard = min(soft, ours), min(hard, ours)
    try:
        resource.setrlimit(kind, (soft, hard))
    except ValueError as error:
        raise OSError(EPERM, str(error)) from error


def become_command(request: Request, profile: bytes, terminal: int, failed: int) -> NoReturn:
    """Become the command, in the forked child. With ``terminal`` it takes the terminal's foreground; with -1 it leads a
    session. ``failed`` is a pipe that gets a byte if a failure was reported; exec closes it."""
    try:
        if terminal >= 0:
            os.setpgid(0, 0)
            os.tcsetpgrp(terminal, os.getpid())
        else:
            os.setsid()
        for number in _RESET:
            _signal.signal(number, _signal.SIG_DFL)
        table = {"umask": os.umask, "rlimit": set_rlimit, "cwd": os.chdir}
        perform(request, ("umask", "cwd"), table)
        try:
            program = find_program(request["argv"][0], request["search"])
        except OSError as error:
            fail(-1, "exec", error)
        perform(request, ("rlimit",), table)
        tool = request["tool"]
        try:
            words = [tool, b"-f", profile, b"--", program, *request["argv"][1:]]
            os.execve(tool, words, {**request["env"], b"MUDROOM_RUN": request["mark"]})
        except OSError as error:
            fail(-1, "seatbelt" if error.errno in (ENOENT, EACCES) else "exec", error)
    except WardenError:
        os.write(failed, b"f")
    finally:
        os._exit(127)


# --- while it runs ---


class WardenWatch:
    def __init__(self, request: Request, command: int, control: _socket.socket, channel: _socket.socket | None) -> None:
        self._command, self._control, self._channel = command, control, channel
        self._family = Family(command, os.getpid(), b"MUDROOM_RUN=" + request["mark"])
        self._paused: list[int] = []
        self._is_stopped = False
        self._wake, wake_write = os.pipe()
        for descriptor in (self._wake, wake_write):
            os.set_blocking(descriptor, False)
        _signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, lambda _number, _frame: None)

    def run(self) -> tuple[object, ...] | None:
        """Watch until the command has ended, then kill and reap its other processes. Return the report, or None if the
        host is gone."""
        ended = self._look()
        while ended is None:
            ready = set(select.select([self._control.fileno(), self._wake], [], [], LOOK)[0])
            self._family.members()
            if self._wake in ready:
                os.read(self._wake, 4096)
            if self._control.fileno() in ready and not self._handle_message():
                self._family.end()
                return None
            ended = self._look()
        status, use = ended
        empty = self._family.end()
        kib = use.ru_maxrss // 1024 if sys.platform == "darwin" else use.ru_maxrss  # getrusage(2): bytes on macOS
        return ("exited", status, use.ru_utime, use.ru_stime, kib, (), 0, empty)

    def _look(self) -> tuple[int, Any] | None:
        """Return the command's wait status and resource use if it has ended, else None. A stop is reported if there is
        a terminal."""
        pid, status, use = os.wait4(self._command, os.WNOHANG | os.WUNTRACED)
        if not pid:
            return None
        if os.WIFSTOPPED(status):
            self._is_stopped = True
            if self._channel is not None and not self._paused:
                with suppress(BrokenPipeError):  # the host has closed it
                    self._channel.send(b"s")
            return None
        return status, use

    def _handle_message(self) -> bool:
        """Handle a message from the host. Return False if the host is gone."""
        request, descriptors = receive(self._control)
        if request is None:
            return False
        if request["op"] == "signal":
            self._signal(request["signal"])
        elif request["op"] in ("pause", "resume"):
            record: tuple[object, ...] = ("done",)
            try:
                (self._pause if request["op"] == "pause" else self._resume)()
            except OSError as error:
                record = ("failed", error.strerror or "")
            with suppress(BrokenPipeError):  # the caller was interrupted
                tell(descriptors[0], record)
            os.close(descriptors[0])
        return True

    def _signal(self, number: int) -> None:
        if number == _signal.SIGKILL:
            send_signal(self._command, number)  # first: a shell would report the death of a child
            for pid, _stopped in self._family.members():
                send_signal(pid, number)
        elif number in _TO_GROUP:
            self._signal_group(number)
        elif number == _signal.SIGCONT:
            if self._is_stopped:
                self._is_stopped = False
                self._signal_group(number)
        else:
            send_signal(self._command, number)

    def _signal_group(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):  # it has just ended
            os.killpg(self._command, number)

    def _pause(self) -> None:
        self._family.stop(self._paused)

    def _resume(self) -> None:
        paused, self._paused = self._paused, []
        self._is_stopped = self._is_stopped and self._command not in paused
        for pid in paused:
            send_signal(pid, _signal.SIGCONT)


def run_command(request: Request, control: _socket.socket) -> None:
    keep_only(CHANNEL if request["terminal"] else REPORT)
    places = [(index, step[1], step[2]) for index, step in enumerate(request["plan"]) if step[0] == "seatbelt"]
    if len(places) != 1:
        fail(-1, "seatbelt", OSError(EPERM, "a plan without a profile"))
    index, profile, text = places[0]
    try:
        write_profile(profile, text)
        if request["check"]:
            check_profile(request, profile)
    except OSError as error:
        fail(index, "seatbelt", error)
    terminal, channel = -1, None
    if request["terminal"]:
        try:
            terminal, channel = take_terminal(request["terminal"])
        except OSError as error:
            fail(-1, "terminal", error)
    failed, failed_write = os.pipe()
    command = os.fork()
    if not command:
        become_command(request, profile, terminal, failed_write)
    os.close(failed_write)
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)  # a pipe that the command was given must end when the command does
    report = WardenWatch(request, command, control, channel).run()
    if report is not None and not os.read(failed, 1):  # the pipe carries one report
        tell(REPORT, report)


def main() -> None:
    os.setsid()
    for number in _IGNORED:
        _signal.signal(number, _signal.SIG_IGN)
    control = _socket.socket(fileno=CONTROL)
    code = 125
    try:
        request, _none = receive(control)
        if request is not None:
            run_command(request, control)
        code = 0
    except WardenError:
        code = 0
    except BaseException as error:  # noqa: BLE001 - whatever it is, the host must hear of it and nothing may run on
        tell(REPORT, ("failed", -1, "warden", getattr(error, "errno", 0) or 0, repr(error)))
    finally:
        os._exit(code)
