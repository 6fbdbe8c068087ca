"""Run one of the user's programs (an editor, a merge driver, a pager) in the terminal's foreground.

1. Typed keys are for the program. Ctrl-C and Ctrl-\\ signal every process in the terminal's foreground, including
   mudroom (termios(3), ISIG). mudroom ignores them while the program runs, like git (editor.c).
2. A signal that tells mudroom itself to end (SIGTERM; SIGHUP when a terminal closes) is passed to the program, which is
   killed after a grace period or at a second signal. Only then does mudroom end, in order.
3. Signals that mudroom ignored from its start (nohup, a shell's ``&``) are ignored by the program, too.
4. The interpreter runs handlers between its own instructions: a signal just before waitpid(2) would be handled only
   when the program has ended. So mudroom does not wait in waitpid: every signal writes a byte to a pipe, and mudroom
   polls the pipe (signal(7)).
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from mudroom.cli.terminal.command_signals import TYPED, Terminated
from mudroom.cli.terminal.signals import Handler, handling
from mudroom.cli.terminal.terminal import is_terminal, replace_by_null
from mudroom.errors import Unsupported

Sleep = Callable[["subprocess.Popen[bytes]", float | None], object]

GRACE = 2.0
"""Seconds between SIGTERM for the program and SIGKILL."""


@contextmanager
def signal_handlers(handlers: Mapping[int, Handler]) -> Iterator[Mapping[int, object]]:
    """Install signal handlers; yield the previous handlers. Unlike SIG_IGN, a handler is not inherited across
    execve(2): a started program has the default actions."""
    try:
        wakeup = signal.set_wakeup_fd(-1)  # otherwise an event loop would see these signals later
    except ValueError:  # not the main thread: signals are handled elsewhere
        yield {}
        return
    try:
        with handling(handlers) as before:
            yield before
    finally:
        signal.set_wakeup_fd(wakeup)


def ignore_signal(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the signal is for the program."""


@contextmanager
def _waking_sleep() -> Iterator[Sleep]:
    """Yield a function that waits until the program ends, a signal with a handler arrives, or the time is over. It may
    return early. Threads other than the main thread receive no signals; there it only waits for the program's end."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda program, _seconds: program.wait()
        return
    wake_reader, wake_writer = os.pipe()
    os.set_blocking(wake_writer, False)

    def sleep(_program: subprocess.Popen[bytes], seconds: float | None) -> None:
        if select.select([wake_reader], [], [], seconds)[0]:
            os.read(wake_reader, 4096)

    before = signal.signal(signal.SIGCHLD, ignore_signal)  # if SIGCHLD stayed ignored, there would be no exit code
    wakeup = signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
    try:
        yield sleep
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGCHLD, before)
        os.close(wake_reader)
        os.close(wake_writer)


class ForegroundRunner:
    """Run programs, and keep mudroom alive meanwhile: a terminating signal takes effect between two steps.

    Owner: the main thread, in which signal handlers run.
    """

    def __init__(self) -> None:
        """Raise Unsupported on Windows, whose consoles have no foreground."""
        if sys.platform == "win32":
            hint = "mudroom resolve FORK PATH --mine, or --theirs; with --hunk N one conflict of it"
            raise Unsupported("an editor or a merge driver", "a terminal's foreground", "a console of Windows", hint)
        self._received: list[int] = []
        """Signals that told mudroom to end."""
        self._ended_by: float | None = None
        """Monotonic time at which the program is killed if it still runs."""
        self._terminals = [number for number in (0, 1, 2) if is_terminal(number)]
        self._handlers = signal_handlers({signal.SIGTERM: self._receive, signal.SIGHUP: self._receive})

    def __enter__(self) -> ForegroundRunner:
        self._before = self._handlers.__enter__()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Raise the received signals again for the previous handlers. Without an error, raise Terminated if there was
        a signal."""
        self._handlers.__exit__(None, None, None)
        replace_by_null([number for number in self._terminals if not is_terminal(number)])
        for number in self._received:
            if callable(self._before.get(number)):
                signal.raise_signal(number)
        if error is None:
            self._require_not_terminated()

    def run(self, words: list[str], directory: Path, *, is_typed_in: bool) -> int:
        """Run a program and return its exit code; a negative value is the signal that ended it. ``is_typed_in`` says
        that the program handles Ctrl-C itself; otherwise Ctrl-C tells it to end. Raise OSError if it cannot be started,
        Terminated if mudroom was told to end."""
        self._require_not_terminated()
        typed = ignore_signal if is_typed_in else self._receive
        with (
            signal_handlers(dict.fromkeys(TYPED, typed)),
            _waking_sleep() as sleep,
            subprocess.Popen(words, cwd=directory) as program,
        ):
            handled = 0
            while program.poll() is None:
                if handled < len(self._received):
                    handled += 1
                    self._end_program(program, self._received[handled - 1])
                else:
                    sleep(program, self._seconds_left(program))
        self._require_not_terminated()
        return program.returncode

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self._received.append(number)

    def _end_program(self, program: subprocess.Popen[bytes], number: int) -> None:
        program.send_signal(number)
        if self._ended_by is None:
            self._ended_by = time.monotonic() + GRACE
        else:
            program.kill()

    def _seconds_left(self, program: subprocess.Popen[bytes]) -> float | None:
        """Return the seconds until the program must be killed, or None to wait for a wake-up. Kill it if they are
        over."""
        if self._ended_by is None:
            return None
        left = self._ended_by - time.monotonic()
        if left <= 0:
            program.kill()
            return None
        return left

    def _require_not_terminated(self) -> None:
        if self._received:
            raise Terminated(self._received[0], "nothing was decided")
