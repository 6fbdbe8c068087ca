"""The terminal, lent to a program of the user's own: an editor, a merge driver, a pager.

1. What is typed is for the program. Ctrl-C and Ctrl-\\ are sent to every process in the terminal's foreground, to
   mudroom as well (termios(3), ISIG): it does not heed them while the program runs, as git does not (editor.c).
2. Who tells mudroom itself to end (SIGTERM, a terminal that closes) tells the program, which is ended after a grace, or
   when it is said twice. Only then does mudroom end, in order.
3. What mudroom was started to ignore (nohup, a shell's ``&``) is ignored by the program, too.
4. A handler runs when the interpreter does: a signal that comes just before waitpid(2) would be heeded only when the
   program has ended. So nothing waits there; every signal leaves a byte in a pipe, which is waited for (signal(7)).
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from mudroom.cli.terminal.terminal import is_terminal
from mudroom.errors import MudroomError

Heed = Callable[[int, FrameType | None], None]
Sleep = Callable[["subprocess.Popen[bytes]", float | None], object]

GRACE = 2.0
"""Seconds between telling the program to end and ending it."""
TYPED = (signal.SIGINT, signal.SIGQUIT)
"""By Ctrl-C and Ctrl-\\."""


class Terminated(MudroomError):
    """By a signal, which the exit code says as a shell would."""

    def __init__(self, number: int, hint: str = "") -> None:
        super().__init__(f"told to end by {signal.Signals(number).name}", hint)
        self.number = number
        self.exit_code = 128 + number


@contextmanager
def signal_handlers(handlers: Mapping[int, Heed]) -> Iterator[Mapping[int, object]]:
    """Signals mean this meanwhile; gives what they meant before. A handler is not inherited, as SIG_IGN would be
    (execve(2)): to a program that is started they mean what they always do."""
    try:
        wakeup = signal.set_wakeup_fd(-1)  # or an event loop would hear of them all the same, later
    except ValueError:  # not the main thread: signals are somebody else's business
        yield {}
        return
    before = {number: found for number in handlers if (found := signal.getsignal(number)) != signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, handlers[number])
        yield before
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)


def ignore_signal(_number: int, _frame: FrameType | None) -> None:
    """It is for the program."""


@contextmanager
def _awoken() -> Iterator[Sleep]:
    """Gives what waits until the program has ended, a signal has come (of those that have a handler), or the time is
    over; it may come back for nothing. In another thread, where no signal is heard, it waits for the end alone."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda program, _seconds: program.wait()
        return
    wake, word = os.pipe()
    os.set_blocking(word, False)

    def sleep(_program: subprocess.Popen[bytes], seconds: float | None) -> None:
        if select.select([wake], [], [], seconds)[0]:
            os.read(wake, 4096)

    before = signal.signal(signal.SIGCHLD, ignore_signal)  # even if it was ignored: then there would be no exit code
    wakeup = signal.set_wakeup_fd(word, warn_on_full_buffer=False)
    try:
        yield sleep
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGCHLD, before)
        os.close(wake)
        os.close(word)


class ForegroundRunner:
    """While this is entered, nobody ends mudroom in the middle of what it does: it hears of that between two steps."""

    def __init__(self) -> None:
        self._told: list[int] = []
        """The signals by which mudroom was told to end."""
        self._ended_by: float | None = None
        """When the program is ended if it is still there: by the monotonic clock."""
        self._terminals = [number for number in (0, 1, 2) if is_terminal(number)]
        self._handlers = signal_handlers({signal.SIGTERM: self._tell, signal.SIGHUP: self._tell})

    def __enter__(self) -> ForegroundRunner:
        self._before = self._handlers.__enter__()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Whoever heeded the signals before hears of them now."""
        self._handlers.__exit__(None, None, None)
        without([number for number in self._terminals if not is_terminal(number)])
        for number in self._told:
            if callable(self._before.get(number)):
                signal.raise_signal(number)
        if error is None:
            self._require_not_told()

    def run(self, words: list[str], directory: Path, *, is_typed_in: bool) -> int:
        """Returns its exit code; below 0: the signal that ended it. ``is_typed_in``: what Ctrl-C means is its business;
        else it is told to end. Raises OSError, Terminated."""
        self._require_not_told()
        typed = ignore_signal if is_typed_in else self._tell
        with (
            signal_handlers(dict.fromkeys(TYPED, typed)),
            _awoken() as sleep,
            subprocess.Popen(words, cwd=directory) as program,
        ):
            told = 0
            while program.poll() is None:
                if told < len(self._told):
                    told += 1
                    self._end(program, self._told[told - 1])
                else:
                    sleep(program, self._patience(program))
        self._require_not_told()
        return program.returncode

    def _tell(self, number: int, _frame: FrameType | None) -> None:
        self._told.append(number)

    def _end(self, program: subprocess.Popen[bytes], number: int) -> None:
        program.send_signal(number)
        if self._ended_by is None:
            self._ended_by = time.monotonic() + GRACE
        else:
            program.kill()

    def _patience(self, program: subprocess.Popen[bytes]) -> float | None:
        """Seconds until there is something to do for us; None: somebody wakes us."""
        if self._ended_by is None:
            return None
        left = self._ended_by - time.monotonic()
        if left <= 0:
            program.kill()
            return None
        return left

    def _require_not_told(self) -> None:
        if self._told:
            raise Terminated(self._told[0], "nothing was decided")


def without(terminals: Sequence[int]) -> None:
    """The terminal has gone: what there is to say goes nowhere, instead of failing."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in terminals:
        os.dup2(null, number)
    os.close(null)
