"""Relay between the user's terminal and a command, which never holds that terminal's descriptor.

Rules:
1. The caller's descriptors alone decide what a command gets (``substitutes``): its own pseudo-terminal if stdin and
   stdout are both terminals. Otherwise every descriptor that is a terminal becomes a pipe that is relayed here; all
   others are relayed by ``stream.py``. So ``isatty`` inside is never true where it is false outside, and no act of a
   command on its terminal (TIOCSTI, modes, foreground group, hang-up) affects the user's.
2. A separate thread does the relaying, because the session has other work. Only this thread talks to the launcher;
   signals post a word to it (signal.set_wakeup_fd). Handlers, in the main thread, do only what another thread cannot:
   stop and end the process. A handler runs when the interpreter does, and a signal that arrives just before the main
   thread waits does not wake it: the relay thread does that (``POKE``).
3. Every way out restores the modes: the command's end, a stop, an exception, SIGTERM, SIGHUP. After SIGKILL, which
   cannot be handled, that is left to the shell, as with any program (bash, zsh and fish do it).

Job control, as a shell outside sees it: when the command is stopped (Ctrl-Z), the user's terminal gets its modes back
and mudroom's whole process group is stopped with SIGTSTP, as the kernel would have done. When mudroom continues, so
does the command. Where pipes are relayed, Ctrl-Z stops mudroom, and the sandbox is paused meanwhile. In the background
no input is read and no modes are set; both begin when mudroom finds itself in the foreground.

The display is restored when the output ends and before a question: the command's output does not
affect how mudroom's output is displayed.

While a program in the command reads keys itself (``is_taken``), questions are asked elsewhere, and a sign says so
(``terminal_sign.py``).

Type-ahead that the command has not read when it ends is lost with its terminal.
"""

from __future__ import annotations

import _thread
import fcntl
import os
import re
import select
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from mudroom.errors import MudroomError
from mudroom.sandbox.client.connection import wait_ready
from mudroom.sandbox.client.terminal_sign import SignKind, TerminalSign, is_between
from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import _socket

    from mudroom.sandbox.client.client import Running


# --- Bytes between the user's terminal and a command, and the display that the command leaves behind ---
# A command may leave a terminal in a state that hides later text: an unterminated string (``OSC`` takes the following
# text for a window title), invisible text (SGR 8), the line drawing character set, margins, no wrap at the line end, no
# tab stops. So a preview or question could be displayed wrongly. ``RESTORED`` ends that. It is written only after
# output with an escape sequence or another character that may act, and never to a terminal that shows escape sequences
# instead of acting on them (``TERM=dumb``: Emacs's shell, ed).
#
# Sources: ECMA-48; xterm's ctlseqs. Not restored: palette colours (OSC 4), which may be the user's own, and the
# alternate screen, on which text is visible.


LIMIT = 1 << 16
"""Bytes in transit in one direction; a writer of more has to wait."""
_TAIL = 4096
"""Last output bytes, searched for the start of an unfinished escape sequence."""
_ACTING = re.compile(rb"[\x0e\x1b\x80-\x9f]")
"""SO, ESC, and C1 controls, whose bytes also occur in other UTF-8 characters."""
_PATIENCE = 5
"""Seconds that a question waits for a terminal full of output. If it takes no bytes for so long, the user has stopped
it (Ctrl-S), and it shows no question either."""
RESTORED = b"".join(
    (
        b"\x1b\\",  # ST ends a string
        b"\x1b]8;;\x1b\\",  # no hyperlink
        b"\x1b[?69l\x1b7\x1b[r\x1b8",  # no margins; DECSTBM moves the cursor, which DECRC brings back
        b"\x1b[0m\x1b(B\x0f",  # plain text, in ASCII
        b"\x1b[?7h\x1b[4l\x1b[?5W",  # wrapping at the line end; no insert mode; a tab stop every 8 columns
        b"\x1b[?25h\x1b[?2026l",  # the cursor is visible; no synchronized update
    )
)
"""Bytes after which text is displayed as written. They do not change what is on the screen."""


class TerminalFlow:
    """Bytes in one direction: from ``source`` to ``target``, both non-blocking where possible.

    Owner: the relay's thread.
    """

    def __init__(self, source: int, target: int, *, is_input: bool, acts: bool = True) -> None:
        """``acts``: the target acts on escape sequences."""
        self.source, self.target, self.is_input = source, target, is_input
        self.waiting = b""
        self.tail = b""
        """The last output."""
        self.ended = False
        self._acts = acts and not is_input
        self._has_acted = False
        """The output may have changed how later text is displayed."""

    @property
    def done(self) -> bool:
        return self.ended and not self.waiting

    def take(self) -> None:
        try:
            chunk = os.read(self.source, LIMIT)
        except BlockingIOError:
            return
        except OSError:  # EIO: the other side of a pseudo-terminal is closed, or the terminal is gone
            chunk = b""
        self.waiting += chunk
        self.ended = not chunk
        if self.is_input:
            return
        self.tail = (self.tail + chunk)[-_TAIL:]
        self._has_acted = self._acts and (self._has_acted or _ACTING.search(chunk) is not None)
        if self.ended and self._has_acted:
            self.waiting += RESTORED

    def give(self) -> None:
        try:
            self.waiting = self.waiting[os.write(self.target, self.waiting) :]
        except BlockingIOError:
            return
        except OSError:  # EPIPE, EIO: no reader is left, and further bytes are dropped
            self.waiting, self.ended = b"", self.ended or self.is_input

    def restore(self) -> None:
        """Restore the display at once, although output may wait: a question is about to be asked. Wait for room if the
        terminal is full: otherwise a command that fills it would control how the question is displayed."""
        if not self._has_acted:
            return
        self._has_acted = bool(self.waiting)
        rest, deadline = RESTORED, time.monotonic() + _PATIENCE
        while rest:
            try:
                rest = rest[os.write(self.target, rest) :]
            except BlockingIOError:
                if not wait_ready({self.target: select.POLLOUT}, deadline):
                    return
            except OSError:
                return  # the terminal has gone: the question does not get there either


BACKGROUND = 200
"""Milliseconds between two checks for the foreground: no signal announces it."""
POKE = 50
"""Milliseconds after which the main thread is woken again while it has a handler to run."""
_RELAYED_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH, signal.SIGCONT)
QUIET = 50
"""Milliseconds without output after which a sign is shown."""
_SIGN, _SUSPEND, _RESUME, _ENDING, _GOING_ON = b"\xfb", b"\xfc", b"\xfd", b"\xfe", b"\xff"
"""Words for the relay thread that are not signal numbers."""


def substitutes(terminals: Sequence[bool]) -> tuple[str, ...]:
    """Return the substitutes for stdin, stdout and stderr: ``terminal``, ``pipe``, or ``given`` for a descriptor that
    stays. ``terminals`` says which of the three are terminals."""
    for_terminal = "terminal" if terminals[0] and terminals[1] else "pipe"
    return tuple(for_terminal if is_terminal else "given" for is_terminal in terminals)


class Relay:
    """The relay between a caller's descriptors and one command. It has to be closed in every case.

    ``descriptors`` are those to pass to the command; ``numbers`` says which of them become its pseudo-terminal instead.
    Call ``start`` when the command is on its way, in the main thread if signals are to be handled.
    """

    def __init__(self, stdio: Sequence[int | None], signs: Sequence[SignKind] = (), *, is_dumb: bool = False) -> None:
        kinds = substitutes([descriptor is not None and os.isatty(descriptor) for descriptor in stdio])
        self.numbers = tuple(number for number, kind in enumerate(kinds) if kind == "terminal")
        self._acts = not is_dumb
        self._owned: list[int] = []
        self._command_ends: list[int] = []
        self._flows: list[TerminalFlow] = []
        self._user = [
            -1 if kind == "given" or descriptor is None else descriptor
            for descriptor, kind in zip(stdio, kinds, strict=True)
        ]
        stdin, stdout, stderr = (
            descriptor if kind == "given" else self._open_null() if kind == "terminal" else self._make_pipe(number)
            for number, (descriptor, kind) in enumerate(zip(stdio, kinds, strict=True))
        )
        self.descriptors = (stdin, stdout, stderr)
        self.own = frozenset(self._command_ends)
        """The ``descriptors`` that are not the caller's."""
        self._running: Running | None = None
        self._master = -1
        self._channel: _socket.socket | None = None
        self._before: list[Any] | None = None
        """The user's terminal modes before raw mode; None outside raw mode."""
        self._raw: list[Any] | None = None
        self._to_stop = False
        """Everything is ready for the main thread to stop the process."""
        self._held = self._paused = False
        """``_held``: the terminal is left alone because the process is about to be stopped, or the relay is suspended.
        ``_paused``: the sandbox has been paused for the stop."""
        self._signs = signs
        self._sign: TerminalSign | None = None
        self._sign_text = ""
        """The text that the sign should have. Written by the caller's thread."""
        self._sign_due = False
        self._silent = False
        """Output to the user's terminal is suspended while the user is asked a question there."""
        self._has_left = _thread.allocate_lock()
        self._has_left.acquire()
        self._ending = False
        self._failure: BaseException | None = None
        self._handlers: dict[int, Any] = {}
        self._wakeup = -1
        self._poke = False
        """The main thread has a handler to run."""
        self._wake, self._wake_write = os.pipe()
        for end in (self._wake, self._wake_write):
            os.set_blocking(end, False)
        self._owned += [self._wake, self._wake_write]
        self._main = _thread.get_ident()
        self._done = _thread.allocate_lock()
        self._modes = _thread.allocate_lock()
        """Held while the user's terminal modes are changed; by the main thread only in a handler."""
        self._is_exiting = False
        """The process is about to end: no mode is changed any more."""

    # --- in the caller's thread ---

    def start(self, running: Running) -> None:
        self._running = running
        _close_all(self._command_ends)
        self._done.acquire()
        with suppress(ValueError):  # not the main thread, which alone handles signals
            self._wakeup = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
            self._handlers = {number: signal.signal(number, _on_word) for number in _RELAYED_SIGNALS}
            self._handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._on_stop)
            for number in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is signal.SIG_DFL:
                    self._handlers[number] = signal.signal(number, self._on_end)
        try:
            _thread.start_new_thread(self._serve, ())
        except RuntimeError as error:  # the thread limit is reached
            self._done.release()
            message = f"cannot relay between the terminal and the command: {error}"
            raise MudroomError(message, "threads count as processes, and their number is limited: ulimit -u") from error

    def close(self) -> None:
        """After the command has ended: wait until all its output is on the terminal, and restore the terminal."""
        if self._running is not None:
            self._post(_ENDING)
            self._done.acquire()
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            if self._handlers:
                signal.set_wakeup_fd(self._wakeup)
        _close_all(self._command_ends)
        _close_all(self._owned)
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Suspend the relay, to ask the user a question in the main thread: the user's terminal is as before the
        command, and the command's output waits."""
        self._post(_SUSPEND)
        while not self._has_left.acquire(timeout=0.1):
            if not self._done.locked():
                break  # the thread has ended, and left the terminal
        try:
            yield
        finally:
            self._post(_RESUME)

    def is_taken(self) -> bool:
        """Return whether a program reads keys from the user's terminal itself: no question can be asked there.

        It has switched off line mode (ICANON) or echo. The modes are read from the command's terminal, at its master
        (ioctl_tty(2)); where pipes are relayed, from the user's terminal, which a pager may have.
        """
        descriptor = self._master if self.numbers else next((user for user in self._user if user >= 0), -1)
        try:
            modes: int = termios.tcgetattr(descriptor)[3]
        except (termios.error, OSError, ValueError):
            return False  # the command has not begun, or has just ended
        return modes & (termios.ICANON | termios.ECHO) != termios.ICANON | termios.ECHO

    def sign(self, text: str) -> None:
        """Show a sign with this text on the user's terminal as soon as the program's output permits it; empty: remove
        it. Do nothing where pipes are relayed."""
        if self.numbers and self._signs:
            self._sign_text = text
            self._post(_SIGN)

    def _on_stop(self, _number: int, _frame: object) -> None:
        """Handle SIGTSTP. The first comes from outside, and reaches the relay thread by the pipe; the second comes from
        that thread when all is ready for the stop."""
        if not self._to_stop:
            return
        self._to_stop = False
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.killpg(0, signal.SIGTSTP)  # stops here, unless the group is orphaned: no process could continue it
        signal.signal(signal.SIGTSTP, handler)
        self._post(_GOING_ON)

    def _on_end(self, number: int, _frame: object) -> None:
        self._is_exiting = True  # first: otherwise the thread would undo the restored modes
        self._restore_modes()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _post(self, word: bytes) -> None:
        with suppress(BlockingIOError):  # the pipe is full, so this word is already in it
            os.write(self._wake_write, word)

    def _open_null(self) -> int:
        descriptor = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._command_ends.append(descriptor)
        return descriptor

    def _make_pipe(self, number: int) -> int:
        """Make a pipe that is relayed. Return the command's end."""
        read, write = os.pipe()
        ours, theirs = (write, read) if number == 0 else (read, write)
        os.set_blocking(ours, False)
        self._owned.append(ours)
        self._command_ends.append(theirs)
        user = self._open_user_terminal(self._user[number])
        self._flows.append(
            TerminalFlow(user, ours, is_input=True)
            if number == 0
            else TerminalFlow(ours, user, is_input=False, acts=self._acts)
        )
        return theirs

    def _open_user_terminal(self, user: int) -> int:
        """Open the user's terminal again, non-blocking for this process alone; duplicate the descriptor where it may
        not be opened again (after su(1))."""
        try:
            flags = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(_path_of_terminal(user), flags)
        except OSError:
            descriptor = os.dup(user)
        self._owned.append(descriptor)
        return descriptor

    # --- in the relay thread ---

    def _serve(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # signals are for the thread that handles them
        try:
            if not self.numbers or self._open_master():
                self._relay()
        except BaseException as error:  # noqa: BLE001 - raised by close
            self._failure = error
        finally:
            _remove(self._sign, self._user[1])
            self._restore_modes()
            if self._channel is not None:
                self._channel.close()
            self._done.release()

    def _open_master(self) -> bool:
        """Take the master, give it the user's terminal modes and size, and let the command start. Return False if the
        sandbox ended before that."""
        assert self._running is not None
        terminal = self._running.terminal()
        if terminal is None:
            return False
        self._master, self._channel = terminal
        self._owned.append(self._master)
        os.set_blocking(self._master, False)
        self._flows.append(TerminalFlow(self._open_user_terminal(self._user[0]), self._master, is_input=True))
        output = self._open_user_terminal(self._user[1])
        self._flows.append(TerminalFlow(self._master, output, is_input=False, acts=self._acts))
        with suppress(termios.error):  # the terminal has just gone
            termios.tcsetattr(self._master, termios.TCSANOW, termios.tcgetattr(self._user[0]))
        self._resize()
        self._enter_raw_mode()
        try:
            self._channel.send(b"g")
        except BrokenPipeError:
            return False
        return True

    def _relay(self) -> None:
        while True:
            outputs = [flow for flow in self._flows if not flow.is_input]
            if all(flow.done for flow in outputs) and (outputs or self._ending):
                return
            foreground = self._in_foreground()
            if foreground and not self._held:
                self._enter_raw_mode()
            ready = self._poll(foreground)
            if self._sign_due and not any(ready.get(flow.source) for flow in outputs):
                self._show_sign(outputs[-1])
            for flow in tuple(self._flows):
                if ready.get(flow.source) and self._may_take(flow, foreground):
                    flow.take()
                    if self._sign is not None:
                        self._sign.heard(flow.tail)
                if flow.waiting and (flow.is_input or not self._silent):
                    flow.give()
                if flow.is_input and flow.done:
                    self._close_input(flow)
            if ready.get(self._wake):
                for word in os.read(self._wake, 4096):
                    self._handle_word(word)
            channel = self._channel
            if channel is not None and ready.get(channel.fileno()):
                self._read_channel(channel)

    def _poll(self, foreground: bool) -> dict[int, int]:
        events_of = {self._wake: select.POLLIN}
        if self._channel is not None:
            events_of[self._channel.fileno()] = select.POLLIN
        for flow in self._flows:
            if self._may_take(flow, foreground):
                events_of[flow.source] = events_of.get(flow.source, 0) | select.POLLIN
            if flow.waiting and (flow.is_input or not self._silent):
                events_of[flow.target] = events_of.get(flow.target, 0) | select.POLLOUT
        patience = POKE if self._poke else QUIET if self._sign_due else None if foreground else BACKGROUND
        ready = wait_ready(events_of, None if patience is None else time.monotonic() + patience / 1000)
        if self._poke and not ready:
            signal.pthread_kill(self._main, signal.SIGWINCH)
        return ready

    def _may_take(self, flow: TerminalFlow, foreground: bool) -> bool:
        is_wanted = not flow.is_input or (foreground and not self._ending and not self._held)
        return is_wanted and not flow.ended and len(flow.waiting) < LIMIT

    def _close_input(self, flow: TerminalFlow) -> None:
        """End the input: close the pipe, once all bytes are in it. If a terminal's input ends, the terminal has
        gone."""
        self._flows.remove(flow)
        if flow.target == self._master and self._running is not None:
            self._running.signal(signal.SIGHUP)
        elif flow.target in self._owned:
            self._owned.remove(flow.target)
            os.close(flow.target)

    def _read_channel(self, channel: _socket.socket) -> None:
        if channel.recv(64):
            self._stop()
        else:
            self._channel = None
            channel.close()

    def _handle_word(self, word: int) -> None:
        """Act on ``word``: a signal number, or one of the words above."""
        assert self._running is not None
        if word in (signal.SIGINT, signal.SIGQUIT):
            self._running.signal(word)
        elif word == signal.SIGWINCH:
            self._resize()
        elif word == signal.SIGCONT:
            with self._modes:
                self._set_raw()
            self._resize()
        elif word == signal.SIGTSTP and not self._held:
            self._pause()
            self._stop()
        elif word in (signal.SIGTERM, signal.SIGHUP):
            self._poke = True
        elif word == _SIGN[0]:
            self._sign_due = True
        elif word == _GOING_ON[0]:
            self._go_on()
        elif word == _SUSPEND[0]:
            self._held = self._silent = True
            self._restore_modes()
            for flow in self._flows:
                flow.restore()
            self._has_left.release()
        elif word == _RESUME[0]:
            self._held = self._silent = False
        elif word == _ENDING[0]:
            self._ending = True

    def _show_sign(self, flow: TerminalFlow) -> None:
        """Show the sign on the terminal to which ``flow`` leads, if its output is between two characters."""
        if flow.waiting or self._silent or not is_between(flow.tail):
            return
        self._sign = self._sign or TerminalSign(self._signs)
        self._sign_due = False
        flow.waiting = self._sign.change(self._sign_text)

    def _pause(self) -> None:
        assert self._running is not None
        with suppress(MudroomError):  # it does not come to rest; stopping this process is possible all the same
            self._running.pause()
            self._paused = True

    def _stop(self) -> None:
        """Have the main thread stop the process."""
        self._held = True
        self._restore_modes()
        if signal.SIGTSTP in self._handlers:
            self._to_stop = self._poke = True
            signal.pthread_kill(self._main, signal.SIGTSTP)
        else:
            os.killpg(0, signal.SIGTSTP)
            self._go_on()

    def _go_on(self) -> None:
        assert self._running is not None
        self._held, self._poke = self._silent, False
        if self._paused:
            self._paused = False
            self._running.resume()
        else:
            self._running.signal(signal.SIGCONT)
        self._resize()

    def _in_foreground(self) -> bool:
        """Return whether this process may read the terminal; also True where it has no job control."""
        user = next((descriptor for descriptor in self._user if descriptor >= 0), -1)
        try:
            return os.tcgetpgrp(user) == os.getpgrp()
        except OSError:
            return True

    def _resize(self) -> None:
        if self._master >= 0:
            with suppress(OSError):  # the terminal or the master is gone
                size = fcntl.ioctl(self._user[1], termios.TIOCGWINSZ, bytes(8))
                fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def _enter_raw_mode(self) -> None:
        """Enter raw mode, in which every key goes to the command."""
        with self._modes:
            # Only from the foreground: the kernel would stop a background group.
            if not self.numbers or self._before is not None or self._is_exiting or not self._in_foreground():
                return
            try:
                self._before = termios.tcgetattr(self._user[0])
                self._raw = raw(self._before)
                self._set_raw()
            except termios.error:
                self._before = None

    def _set_raw(self) -> None:
        if self._before is not None and self._raw is not None and self._in_foreground():
            _change_modes(lambda: termios.tcsetattr(self._user[0], termios.TCSANOW, self._raw or []))

    def _restore_modes(self) -> None:
        with self._modes:
            before, self._before = self._before, None
            if before is not None and self._in_foreground():
                _change_modes(lambda: termios.tcsetattr(self._user[0], termios.TCSANOW, before))


def _path_of_terminal(descriptor: int) -> str:
    """Return a path by which the terminal is opened anew, with its own flags. macOS: /dev/fd/N would share them
    (fd(4)), the terminal's name does not (ttyname(3)). Raise OSError."""
    return f"/proc/self/fd/{descriptor}" if sys.platform == "linux" else os.ttyname(descriptor)


def _on_word(_number: int, _frame: object) -> None:
    """Do nothing: the relay thread gets the signal through the wakeup pipe."""


def _close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _change_modes(change: Callable[[], None]) -> None:
    with suppress(termios.error):  # the terminal has gone, and with it its modes
        change()


def _remove(sign: TerminalSign | None, terminal: int) -> None:
    """Remove the sign, if it is shown, from a terminal on which no program draws any more."""
    if sign is not None and sign.is_shown:
        with suppress(OSError):  # the terminal has gone
            os.write(terminal, sign.change(""))


def raw(modes: list[Any]) -> list[Any]:
    """Return ``modes`` in raw mode, as cfmakeraw(3) defines it."""
    iflag, oflag, cflag, lflag, ispeed, ospeed, characters = modes
    iflag &= ~(
        termios.IGNBRK | termios.BRKINT | termios.PARMRK | termios.ISTRIP | termios.INLCR | termios.IGNCR
        | termios.ICRNL | termios.IXON
    )  # fmt: skip
    lflag &= ~(termios.ECHO | termios.ECHONL | termios.ICANON | termios.ISIG | termios.IEXTEN)
    cflag = cflag & ~(termios.CSIZE | termios.PARENB) | termios.CS8
    characters = list(characters)
    characters[termios.VMIN], characters[termios.VTIME] = 1, 0
    return [iflag, oflag & ~termios.OPOST, cflag, lflag, ispeed, ospeed, characters]
