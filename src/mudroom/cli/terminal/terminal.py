"""Output for people: colours only on a terminal, progress on one line, errors as one line with a hint."""

from __future__ import annotations

import _thread
import errno
import os
import sys
import time
from contextlib import suppress

from mudroom.cli.terminal.fold import fold, fold_beside
from mudroom.errors import FULL, MudroomError
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Mapping, Sequence

    from mudroom.core.merge.merge import Conflict

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_WIDE = 1 << 16
_LEAST = 40
"""Longest text in columns that is never broken; also the minimum width for help."""
_HELP = (80, 100)
"""Columns for help: through a pipe, and at most on a terminal."""
_LONGEST = 2_000
"""Most characters for an error message, and for its hint."""
TITLE = 60
"""Most columns for a command line quoted in a message."""
_PROGRESS_AFTER = 0.3
"""Seconds. Shorter work shows no progress, because a flash of text is noise."""
_PROGRESS_EVERY = 0.1
"""Minimum seconds between two updates for the same step."""


class Terminal:
    """Text output. Owner: the verb's thread. ``_lock`` guards the progress state, which another thread also uses to
    show slow work late; that thread ends with the work."""

    def __init__(self, environ: Mapping[bytes, bytes]) -> None:
        self.interactive = is_terminal(0) and is_terminal(2)
        self._colour = {1: _wants_colour(1, environ), 2: _wants_colour(2, environ)}
        self._rewrites = is_terminal(2) and environ.get(b"TERM") not in (None, b"dumb")
        self._began = 0.0
        """Monotonic time at which the reported work started; 0: none."""
        self._label = ""
        self._shown = 0.0
        self._latest = ""
        """The latest progress line, shown or not."""
        self._lock = _thread.allocate_lock()
        self._under_way: LockType | None = None
        """Held while work goes on that will be shown once it has taken a while."""

    def style(self, text: str, style: str, stream: int = 2) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self._colour[stream] else text

    def columns(self, stream: int) -> int:
        """Return the terminal's columns, or a number larger than any line if the stream is not a terminal."""
        try:
            return os.get_terminal_size(stream).columns or _WIDE
        except OSError:
            return _WIDE

    def help_columns(self, environ: Mapping[bytes, bytes]) -> int:
        """Return the width for help from COLUMNS or the terminal, limited to a readable range."""
        given = environ.get(b"COLUMNS", b"")
        columns = (int(given[:9]) if given.isdigit() else 0) or self.columns(1)  # 0: unknown, as in shells
        return _HELP[0] if columns == _WIDE else max(_LEAST, min(columns, _HELP[1]))

    def out(self, text: str) -> None:
        """Print a result to stdout."""
        self.clear()
        _write(1, text + "\n")

    def json(self, value: Mapping[str, object]) -> None:
        """Print a result to stdout as one line of JSON."""
        from mudroom.core.text.json_text import to_json_text

        self.out(to_json_text(value))

    def say(self, text: str = "") -> None:
        """Print a message to stderr."""
        self.clear()
        _write(2, self._fitted(text) + "\n")

    def _fitted(self, text: str) -> str:
        """Return the text in lines that fit the terminal. Words and commands are not broken."""
        if len(text) <= _LEAST or len(text) <= (columns := self.columns(2)):
            return text

        return fold(text, columns)

    def error(self, message: str, hint: str = "") -> None:
        """Print an error on one line, or on a narrow terminal with the hint on a second line. The text may contain a
        caller's words or file names, so control characters are escaped and long text is cut."""
        message, hint = _one_line(message), _one_line(hint)
        begin = self.style("mudroom: ", "red") + message
        between = "\n  " if hint and len(message) + len(hint) + 12 > self.columns(2) else " "
        self.say(f"{begin}{between}({hint})" if hint else begin)

    def note(self, text: str) -> None:
        self.say(self.style("note: ", "yellow") + text)

    def conflict_line(self, word: str, conflict: Conflict) -> str:
        """Return the line about a file that an apply or undo left as it is, folded for stderr."""
        from mudroom.core.tree.path import show_path

        text = f"{show_path(conflict.path)}: {conflict.reason}"
        return fold_beside(f"  {self.style(word, 'red')}  ", text, self.columns(2))

    def tell_waiting(self, holder: str) -> None:
        """Print that this process waits for another one."""
        self.say(f"waiting for {holder} to end; Ctrl-C to give up")

    def progress(self, label: str, done: int, total: int) -> None:
        """Rewrite the progress line, on terminals that can, for work that takes a while. ``total`` 0 is unknown. A new
        step and the end are always shown then. If the first step has no total, a thread shows it after a while even
        without another call."""
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
            with suppress(RuntimeError):  # the thread limit is reached: the next call shows the work
                _thread.start_new_thread(self._show_late, (under_way,))

    def _line(self) -> str:
        return f"\r\x1b[K{cut(self._latest, self.columns(2) - 1)}"

    def _show_late(self, under_way: LockType) -> None:
        """Show the latest step after a while, unless the work is over or already shown by then."""
        if under_way.acquire(timeout=_PROGRESS_AFTER):
            return
        with self._lock:
            if self._under_way is not under_way or self._shown:
                return
            self._shown = time.monotonic()
            with suppress(OSError):  # the terminal is gone: the next line notices it
                os.write(2, self._line().encode())  # not sys.stderr, which interpreter shutdown may take away

    def clear(self) -> None:
        with self._lock:
            if self._shown:
                _write(2, "\r\x1b[K")
            self._began, self._shown, self._label = 0.0, 0.0, ""
            under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.release()

    def begin_line(self) -> None:
        """Clear the current line, on which other output (a progress bar) may have stopped."""
        self.clear()
        if is_terminal(2):
            _write(2, "\r\x1b[K")

    def ask(self, question: str) -> str:
        """Return a line of input, or "" at end of input. A Ctrl-C just before the wait ends it, too."""
        from mudroom.cli.terminal.signals import wake_for_signals

        self.clear()
        with wake_for_signals():
            _write(2, question)
            try:
                return sys.stdin.readline()
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                return ""  # the terminal is gone

    def width(self) -> int:
        try:
            return os.get_terminal_size(2).columns
        except OSError:
            return 100


def _one_line(text: str) -> str:
    """Return the text with unprintable characters escaped, and with the middle of a long text left out."""
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST - 500]} … {text[-500:]}"
    if text.isascii() and text.isprintable():
        return text
    from mudroom.core.text.invisible_characters import escaped

    return escaped(text)


def cut(text: str, columns: int) -> str:
    """Return the text's first line, cut to ``columns`` characters, with a mark if more follows."""
    first, newline, _rest = text.partition("\n")
    return first if len(first) <= columns and not newline else first[: columns - 1].rstrip() + "…"


def _write(number: int, text: str) -> None:
    """Write to stdout or stderr. A terminal that is gone (EIO) is replaced by /dev/null, because the work matters more
    than its messages. Raise MudroomError if stdout's file has no room."""
    stream = sys.stdout if number == 1 else sys.stderr
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        if error.errno != errno.EIO:
            raise (output_error(error) if number == 1 else error) from None
        replace_by_null([number])


def output_error(error: OSError) -> Exception:
    """Return the exception for a failed write to stdout. A full disk there gets its own message, because the vault's
    disk may still have room."""
    if error.errno not in (*FULL, errno.EFBIG):
        return error
    message = f"the output could not be written to standard output: {error.strerror}"
    return MudroomError(message, "make room where it goes to, or send it elsewhere")


def replace_by_null(terminals: Sequence[int]) -> None:
    """Replace a lost terminal's descriptors by /dev/null, so that writing to them does not fail."""
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
    """Follow no-color.org, and FORCE_COLOR like other tools."""
    if environ.get(b"NO_COLOR"):
        return False
    if environ.get(b"FORCE_COLOR"):
        return True
    return is_terminal(descriptor) and environ.get(b"TERM") not in (None, b"dumb")


def _held_lock() -> LockType:
    lock = _thread.allocate_lock()
    lock.acquire()
    return lock
