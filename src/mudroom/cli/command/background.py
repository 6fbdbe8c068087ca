"""``mudroom exec --background``: a separate process, the keeper, holds the sandbox as long as a command runs in it.

The keeper is forked from this process, so that the user at the terminal can still be asked. Once the command has
started, the keeper reports over a pipe and leaves the terminal, the session and the directory. Until then it ends
together with its parent, so no unreported command goes on. SIGTERM ends the keeper and all its commands. So does
SIGKILL; then the next mudroom that uses the fork recovers it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence

from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.signals import wake_for_signals
from mudroom.core.background import to_json
from mudroom.core.result import Result
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, Unsupported
from mudroom.sandbox.client.connection import wait_readable
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.session import Background
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

if TYPE_CHECKING:
    from mudroom.cli.command.run import OpenedProgram
    from mudroom.session import Client


LOOK = 2.0
"""Seconds between two looks whether a command that ends with an agent has ended before."""


class Keeper(NamedTuple):
    """The keeper's steps: open the session, start the commands, report a refusal (and return the exit code)."""

    opened: Callable[[Client], OpenedProgram]
    started: Callable[[OpenedProgram], Sequence[Background]]
    refused: Callable[[Result], int]


class _KeeperError(MudroomError):
    """An error reported by the keeper."""


def start(keeper: Keeper, context: Context) -> int:
    """Start the keeper. Return the exit code once the command has started or was refused."""
    started = hold(keeper)
    if isinstance(started, int):
        return started
    for row in started:
        print_started(row, context)
    return 0


def hold(keeper: Keeper) -> list[dict[str, Any]] | int:
    """Start the keeper. Return the JSON form of each command once they have started, or the exit code of a refusal."""
    if sys.platform != "linux":
        from mudroom.sandbox.platform import system_name

        found = f"{system_name(sys.platform)}, which has none"
        raise Unsupported("a command in the background", "namespaces that others can join", found)
    read, write = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(read)
        _run_keeper(write, keeper, parent)
    os.close(write)
    with open(read, "rb") as stream:
        report = stream.read()
    if not report:
        os.waitpid(child, 0)
        raise MudroomError("the process that was to hold the command has died", "run the command again")
    outcome: dict[str, Any] = json.loads(report)
    if "error" in outcome:
        error = _KeeperError(outcome["error"], outcome["hint"])
        error.exit_code = outcome["code"]
        raise error
    if "refused" in outcome:
        return int(outcome["refused"])
    started: list[dict[str, Any]] = outcome["started"]
    return started


def print_started(started: dict[str, Any], context: Context) -> None:
    if context.as_json:
        context.terminal.json(started)
        return
    context.terminal.out(started["id"])
    context.terminal.say(
        f"{show(' '.join(started['command']).encode())} runs in the background of {started['fork']}: "
        f"mudroom ps, mudroom ps --output {started['id']}, mudroom ps --end {started['id']}"
    )


def _run_keeper(write: int, keeper: Keeper, parent: int) -> NoReturn:
    """Run the keeper in the forked process, and end the process."""
    code = 125
    try:
        signal.signal(signal.SIGTERM, _interrupt)
        signal.signal(signal.SIGINT, _interrupt)
        _hide_values()
        _die_with(signal.SIGTERM)
        _require_parent(parent)  # if it ended before prctl(2), no signal comes
        os.closerange(3, write)  # descriptors that our caller left open must not stay open as long as we live
        os.closerange(write + 1, os.sysconf("SC_OPEN_MAX"))
        client = LauncherClient(SpawnedLauncher(apart=True))
        client.start()
        opened = keeper.opened(client)
        with wake_for_signals(), opened.session as session:
            commands = keeper.started(opened)
            refused = next((command.refused for command in commands if command.refused is not None), None)
            if refused is not None:
                _report(write, {"refused": keeper.refused(refused)})
            elif _report(write, {"started": [to_json(command.started, None) for command in commands]}):
                _detach(write, parent)
                _await_companion(commands[0])
                session.sandboxes.keep()
        code = 0
    except MudroomError as error:
        _report(write, {"error": error.message, "hint": error.hint, "code": error.exit_code})
    except OSError as error:
        _report(write, {"error": error.strerror or str(error), "hint": os.fsdecode(error.filename or ""), "code": 125})
    except KeyboardInterrupt:
        code = 130
        _report(write, {"error": "interrupted", "hint": "", "code": code})
    except SystemExit:
        code = 0  # SIGTERM: the session has been closed
    except BaseException:  # noqa: BLE001 - nothing of it may go on as the process that was forked
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _hide_values() -> None:
    """Overwrite the values of ``--env NAME=VALUE`` in this process's command line. Every user can read it while the
    process lives (/proc/PID/cmdline, proc_pid_cmdline(5)). Nothing reads the words after the start."""
    with open("/proc/self/cmdline", "rb") as stream:
        line = stream.read()
    with open("/proc/self/stat", "rb") as stream:
        start = int(stream.read().rpartition(b") ")[2].split()[45])  # arg_start, the 48th field: proc_pid_stat(5)
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        for found in re.finditer(rb"\0--env[\0=][^\0=]+=([^\0]*)", line.partition(b"\0--\0")[0]):
            memory.seek(start + found.start(1))
            memory.write(b"*" * len(found[1]))


def _report(write: int, outcome: dict[str, Any]) -> bool:
    """Write the outcome. Return False if the reader is gone. The parent reads until the pipe is closed."""
    try:
        os.write(write, json.dumps(outcome).encode())
    except OSError:
        return False
    return True


def _detach(write: int, parent: int) -> None:
    """Leave the parent's session, directory and descriptors. This closes the pipe, for which the parent waits."""
    os.setsid()
    os.chdir("/")
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _ignore_signal)
    signal.signal(signal.SIGTERM, _end)
    _die_with(0)
    _require_parent(parent)  # an ended parent has not reported the command
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2, write):  # not closed: another file could get the number before the next write
        os.dup2(null, descriptor)
    os.close(null)


def _await_companion(background: Background) -> None:
    """Block until the agent's process has ended, or the command; then end the command."""
    if not background.started.companion:
        return
    try:
        process = os.pidfd_open(background.started.companion)
    except ProcessLookupError:
        process = -1
    while process >= 0 and not wait_readable([process], time.monotonic() + LOOK) and background.poll() is None:
        pass
    background.end()


def _die_with(number: int) -> None:
    """Have the kernel send this signal when the thread that forked us ends (prctl(2), PR_SET_PDEATHSIG); 0: none."""
    import ctypes

    ctypes.CDLL(None).prctl(1, ctypes.c_ulong(number), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


def _require_parent(parent: int) -> None:
    if os.getppid() != parent:
        raise SystemExit


def _interrupt(_number: int, _frame: object) -> NoReturn:
    """Handle a signal before the command has started like Ctrl-C, which withdraws a question."""
    _ignore_further()
    raise KeyboardInterrupt


def _end(_number: int, _frame: object) -> NoReturn:
    _ignore_further()
    raise SystemExit


def _ignore_further() -> None:
    """Ignore further signals, so that they do not interrupt the cleanup."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _ignore_signal)


def _ignore_signal(_number: int, _frame: object) -> None:
    """Do nothing. SIG_IGN would not do: if a signal arrives before it is ignored, the interpreter complains that it has
    no handler to run (CPython, _PyErr_CheckSignalsTstate)."""
