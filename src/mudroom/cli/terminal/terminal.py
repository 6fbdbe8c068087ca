"""Output for people: colours only on a terminal, progress on one line, errors as one line with a hint."""

from __future__ import annotations

import _thread
import errno
import os
import sys
import time

from mudroom.cli.terminal.fold import fold
from mudroom.errors import FULL, MudroomError
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Mapping, Sequence

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_WIDE = 1 << 16
_LEAST = 40
"""Columns of the narrowest terminal for which lines are broken, and of the narrowest help."""
_HELP = (80, 100)
"""Columns of a help text: through a pipe, and on a wide terminal."""
_LONGEST = 2_000
"""Characters of an error, and of its hint."""
TITLE = 60
"""Columns of a command line in a sentence about it."""
_PROGRESS_AFTER = 0.3
"""Seconds. Work shorter than this shows no progress: a flash of text is noise."""
_PROGRESS_EVERY = 0.1
"""Seconds between two lines of the same step."""


class Terminal:
    """Owner: the thread of the verb. ``_lock`` guards the state of the progress; another thread, which ends with the
    work, shows it late."""

    def __init__(self, environ: Mapping[bytes, bytes]) -> None:
        self.interactive = is_terminal(0) and is_terminal(2)
        self._colour = {1: _wants_colour(1, environ), 2: _wants_colour(2, environ)}
        self._rewrites = is_terminal(2) and environ.get(b"TERM") not in (None, b"dumb")
        self._began = 0.0
        """Start of the work whose progress is told; 0: none."""
        self._label = ""
        self._shown = 0.0
        self._latest = ""
        """The line that would be shown now."""
        self._lock = _thread.allocate_lock()
        self._under_way: LockType | None = None
        """Held while work goes on that is shown when it has taken a while."""

    def style(self, text: str, style: str, stream: int = 2) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self._colour[stream] else text

    def coloured(self, stream: int) -> bool:
        return self._colour[stream]

    def columns(self, stream: int) -> int:
        """Return the columns of a terminal; if the stream is no terminal, a number larger than any line."""
        try:
            return os.get_terminal_size(stream).columns or _WIDE
        except OSError:
            return _WIDE

    def help_columns(self, environ: Mapping[bytes, bytes]) -> int:
        """Return the width of a help text: that of COLUMNS, or of the terminal, within what is easy to read."""
        given = environ.get(b"COLUMNS", b"")
        columns = (int(given[:9]) if given.isdigit() else 0) or self.columns(1)  # 0: not known, as of shells
        return _HELP[0] if columns == _WIDE else max(_LEAST, min(columns, _HELP[1]))

    def out(self, text: str) -> None:
        """Print the result of the command, to stdout."""
        self.clear()
        _write(1, text + "\n")

    def say(self, text: str = "") -> None:
        """Print a message, to stderr."""
        self.clear()
        _write(2, self._fitted(text) + "\n")

    def _fitted(self, text: str) -> str:
        """Return the text in lines that fit the terminal, without a break in a word or a command."""
        if len(text) <= _LEAST or len(text) <= (columns := self.columns(2)):
            return text

        return fold(text, columns)

    def error(self, message: str, hint: str = "") -> None:
        """Print an error on one line; on a terminal that is narrower, the hint has a line of its own. Its words may be
        those of a caller or of a file name: no character of them acts, and a long word is cut."""
        message, hint = _one_line(message), _one_line(hint)
        begin = self.style("mudroom: ", "red") + message
        between = "\n  " if hint and len(message) + len(hint) + 12 > self.columns(2) else " "
        self.say(f"{begin}{between}({hint})" if hint else begin)

    def note(self, text: str) -> None:
        self.say(self.style("note: ", "yellow") + text)

    def tell_waiting(self, holder: str) -> None:
        """Say that another process holds what this one needs."""
        self.say(f"waiting for {holder} to end; Ctrl-C to give up")

    def progress(self, label: str, done: int, total: int) -> None:
        """Rewrite one line with the progress; only on a terminal that can, and only for work that takes a while.
        ``total`` 0: unknown. A new step of the work and its end are always shown; a step that counts nothing is shown
        when it has taken a while, though nothing more is told."""
        if not self._rewrites:
            return
        from mudroom.core.text.plural import progress_line

        now = time.monotonic()
        with self._lock:
            is_first = not self._began
            self._began = began = self._began or now
            self._latest = progress_line(label, done, total)
            under_way = _held_lock() if is_first and not total else None
            self._under_way = under_way or self._under_way
            is_next = label != self._label or done == total
            if now - began >= _PROGRESS_AFTER and (is_next or now - self._shown >= _PROGRESS_EVERY):
                self._label, self._shown = label, now
                _write(2, self._line())
        if under_way is not None:
            try:
                _thread.start_new_thread(self._show_late, (under_way,))
            except RuntimeError:
                pass  # the limit of threads is reached: the work goes on, and is shown by what it tells next

    def _line(self) -> str:
        return f"\r\x1b[K{cut(self._latest, self.columns(2) - 1)}"

    def _show_late(self, under_way: LockType) -> None:
        """Show the step of the work in a while, unless the work is over by then, or a step of it is shown."""
        if under_way.acquire(timeout=_PROGRESS_AFTER):
            return
        with self._lock:
            if self._under_way is not under_way or self._shown:
                return
            self._shown = time.monotonic()
            try:
                os.write(2, self._line().encode())  # not by the stream, which the end of the process may take away
            except OSError:
                pass  # the terminal has gone: the next line finds that

    def clear(self) -> None:
        with self._lock:
            if self._shown:
                _write(2, "\r\x1b[K")
            self._began, self._shown, self._label = 0.0, 0.0, ""
            under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.release()

    def begin_line(self) -> None:
        """Clear the line, where other output (a progress bar) may have left half a line."""
        self.clear()
        if is_terminal(2):
            _write(2, "\r\x1b[K")

    def ask(self, question: str) -> str:
        """Return one line of input; empty at the end of the input. A Ctrl-C that comes just before the wait ends it,
        too."""
        from mudroom.cli.terminal.signals import wake_for_signals

        self.clear()
        with wake_for_signals():
            _write(2, question)
            try:
                return sys.stdin.readline()
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                return ""  # the terminal has gone

    def width(self) -> int:
        try:
            return os.get_terminal_size(2).columns
        except OSError:
            return 100


def _one_line(text: str) -> str:
    """Return the text with the characters that are not printed as escapes, and without the middle of a long one."""
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST - 500]} … {text[-500:]}"
    if text.isprintable():
        return text
    from mudroom.core.text.escaping import escape_character

    return "".join(one if one.isprintable() else escape_character(one) for one in text)


def cut(text: str, columns: int) -> str:
    """Return the text on one line of at most ``columns`` characters: its beginning, and a mark if more follows."""
    first, newline, _rest = text.partition("\n")
    return first if len(first) <= columns and not newline else first[: columns - 1].rstrip() + "…"


def _write(number: int, text: str) -> None:
    """Write to stdout or stderr. A terminal that has gone (EIO) is replaced by /dev/null: what is said there matters
    less than what is being done. Raise MudroomError if stdout's file has no room: the vault's disk may have some."""
    stream = sys.stdout if number == 1 else sys.stderr
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        if error.errno != errno.EIO:
            raise (output_error(error) if number == 1 else error) from None
        replace_by_null([number])


def output_error(error: OSError) -> Exception:
    """Return what to raise for an error of a write to stdout: its file may have no room where the vault's disk has."""
    if error.errno not in (*FULL, errno.EFBIG):
        return error
    message = f"the output could not be written to standard output: {error.strerror}"
    return MudroomError(message, "make room where it goes to, or send it elsewhere")


def replace_by_null(terminals: Sequence[int]) -> None:
    """Replace the descriptors of a terminal that is gone by /dev/null: writing to them does not fail then."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in terminals:
        os.dup2(null, number)
    os.close(null)


def is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


def _wants_colour(descriptor: int, environ: Mapping[bytes, bytes]) -> bool:
    """Follow no-color.org, and FORCE_COLOR as other tools do."""
    if environ.get(b"NO_COLOR"):
        return False
    if environ.get(b"FORCE_COLOR"):
        return True
    return is_terminal(descriptor) and environ.get(b"TERM") not in (None, b"dumb")


def _held_lock() -> LockType:
    lock = _thread.allocate_lock()
    lock.acquire()
    return lock
