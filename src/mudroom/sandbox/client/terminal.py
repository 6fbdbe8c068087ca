"""The user's terminal on one side, the command on the other; the command never holds a descriptor of it.

Rules of this file:
1. What a command gets is decided by what its caller has, and by nothing else (``substitutes``): a pseudo-terminal of
   its own if stdin and stdout are both terminals; else every descriptor that is a terminal becomes a pipe that is
   relayed, and stays what it is if it is none. So ``isatty`` inside is never true where it is not outside, and nothing
   that a command does to its terminal (TIOCSTI, modes, foreground group, hang-up) is done to the user's.
2. A thread of its own does the relaying, because the session has other things to do. It alone talks to the launcher;
   signals leave word for it (signal.set_wakeup_fd), and only what a thread cannot do is done by a handler, in the main
   thread: stopping and ending the process. A handler runs when the interpreter does, and a signal that comes just
   before the main thread waits does not wake it: the thread does (``POKE``).
3. Every way out restores the modes: the end of the command, a stop, an exception, SIGTERM, SIGHUP. After SIGKILL, of
   which nobody hears, that is left to the shell, as it is with any program (bash, zsh and fish do it).

Job control, as a shell outside sees it: when the command is stopped (Ctrl-Z), the user's terminal gets its modes back
and our whole process group is stopped with SIGTSTP, as the kernel would have done; when we go on, so does the command.
Where pipes are relayed Ctrl-Z means us: the sandbox is paused as long as we are stopped. In the background nothing is
read and no modes are set; that begins when we find ourselves in the foreground.

Type-ahead that the command has not read when it ends is lost with its terminal.
"""

from __future__ import annotations

import _thread
import fcntl
import os
import select
import signal
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mudroom.errors import MudroomError

if TYPE_CHECKING:
    import _socket

    from mudroom.sandbox.client.client import Running

LIMIT = 1 << 16
"""Bytes on their way in one direction; whoever writes more waits."""
BACKGROUND = 200
"""Milliseconds between two looks whether we have come to the foreground: no signal tells."""
POKE = 50
"""Milliseconds after which the main thread is woken again, if it has a handler to run and has not."""
_HEARD = (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH, signal.SIGCONT)
_HUSH, _SPEAK, _ENDING, _GOING_ON = b"\xfc", b"\xfd", b"\xfe", b"\xff"
"""Words that are no signals."""


def substitutes(terminals: Sequence[bool]) -> tuple[str, ...]:
    """What takes the place of stdin, stdout and stderr: ``terminal``, ``pipe``, or ``given`` for one that stays.

    ``terminals``: which of them are one.
    """
    for_terminal = "terminal" if terminals[0] and terminals[1] else "pipe"
    return tuple(for_terminal if one else "given" for one in terminals)


class TerminalFlow:
    """Bytes in one direction: from ``source`` to ``target``, both non-blocking where that can be."""

    def __init__(self, source: int, target: int, *, is_input: bool) -> None:
        self.source, self.target, self.is_input = source, target, is_input
        self.waiting = b""
        self.ended = False

    @property
    def done(self) -> bool:
        return self.ended and not self.waiting

    def take(self) -> None:
        try:
            chunk = os.read(self.source, LIMIT)
        except BlockingIOError:
            return
        except OSError:  # EIO: nobody has the other side of a pseudo-terminal any more, or the terminal is gone
            chunk = b""
        self.waiting += chunk
        self.ended = not chunk

    def give(self) -> None:
        try:
            self.waiting = self.waiting[os.write(self.target, self.waiting) :]
        except BlockingIOError:
            return
        except OSError:  # EPIPE, EIO: nobody reads there any more, and what comes yet is for nobody
            self.waiting, self.ended = b"", self.ended or self.is_input


class Relay:
    """Between the descriptors of a caller and one command. To be closed, whatever happens.

    ``descriptors`` is what the command is to be given, ``numbers`` which of those are its pseudo-terminal instead.
    ``began`` has to be called when it is on its way, in the main thread if signals are to be heeded.
    """

    def __init__(self, stdio: Sequence[int | None]) -> None:
        kinds = substitutes([one is not None and os.isatty(one) for one in stdio])
        self.numbers = tuple(number for number, kind in enumerate(kinds) if kind == "terminal")
        self._owned: list[int] = []
        self._given: list[int] = []
        self._flows: list[TerminalFlow] = []
        self._user = [-1 if kind == "given" or one is None else one for one, kind in zip(stdio, kinds, strict=True)]
        stdin, stdout, stderr = (
            one if kind == "given" else self._null() if kind == "terminal" else self._pipe(number)
            for number, (one, kind) in enumerate(zip(stdio, kinds, strict=True))
        )
        self.descriptors = (stdin, stdout, stderr)
        self._running: Running | None = None
        self._master = -1
        self._channel: _socket.socket | None = None
        self._before: list[Any] | None = None
        """Modes of the user's terminal, while it has ours."""
        self._raw: list[Any] | None = None
        self._to_stop = False
        """All is ready for the main thread to stop us."""
        self._held = self._paused = False
        """Nothing is done to the terminal, because we are about to be stopped; the sandbox has been paused for that."""
        self._silent = False
        """Nothing is written to the user's terminal: somebody is asked there."""
        self._hushed = _thread.allocate_lock()
        self._hushed.acquire()
        self._ending = False
        self._failure: BaseException | None = None
        self._handlers: dict[int, Any] = {}
        self._wakeup = -1
        self._poke = False
        """The main thread has a handler to run."""
        self._wake, self._word = os.pipe()
        for end in (self._wake, self._word):
            os.set_blocking(end, False)
        self._owned += [self._wake, self._word]
        self._main = _thread.get_ident()
        self._done = _thread.allocate_lock()
        self._modes = _thread.allocate_lock()
        """Held while the modes of the user's terminal are changed; by the main thread only in a handler."""
        self._over = False
        """The process is about to end: no mode is changed any more."""

    # --- in the caller's thread ---

    def began(self, running: Running) -> None:
        self._running = running
        self._drop(self._given)
        self._done.acquire()
        try:
            self._wakeup = signal.set_wakeup_fd(self._word, warn_on_full_buffer=False)
            self._handlers = {number: signal.signal(number, self._on_word) for number in _HEARD}
            self._handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._on_stop)
            for number in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is signal.SIG_DFL:
                    self._handlers[number] = signal.signal(number, self._on_end)
        except ValueError:
            pass  # not the main thread: signals are somebody else's business
        try:
            _thread.start_new_thread(self._serve, ())
        except RuntimeError as error:  # there are as many as there may be
            self._done.release()
            message = f"nothing can be passed on between the terminal and the command: {error}"
            raise MudroomError(message, "threads are limited here as processes are: ulimit -u") from error

    def close(self) -> None:
        """After the command has ended: wait until all that it wrote is on the terminal, and leave that as it was."""
        if self._running is not None:
            self._ask(_ENDING)
            self._done.acquire()
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            if self._handlers:
                signal.set_wakeup_fd(self._wakeup)
        self._drop(self._given)
        self._drop(self._owned)
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def hushed(self) -> Iterator[None]:
        """The user's terminal is as it was before the command, and nothing of the command appears on it; what it writes
        waits. For somebody to be asked something, in the main thread."""
        self._ask(_HUSH)
        while not self._hushed.acquire(timeout=0.1):
            if not self._done.locked():
                break  # the thread has ended, and left the terminal
        try:
            yield
        finally:
            self._ask(_SPEAK)

    def _on_word(self, _number: int, _frame: object) -> None:
        """The thread has been told by the pipe."""

    def _on_stop(self, _number: int, _frame: object) -> None:
        """SIGTSTP: first from outside, which the thread has been told; then from the thread, when all is ready."""
        if not self._to_stop:
            return
        self._to_stop = False
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.killpg(0, signal.SIGTSTP)  # here we are stopped, unless nobody could continue us: an orphaned group
        signal.signal(signal.SIGTSTP, handler)
        self._ask(_GOING_ON)

    def _on_end(self, number: int, _frame: object) -> None:
        self._over = True  # first: the thread would enter again what has just been left
        self._leave()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _ask(self, word: bytes) -> None:
        try:
            os.write(self._word, word)
        except BlockingIOError:
            pass  # so many are waiting that this one is among them

    def _null(self) -> int:
        descriptor = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._given.append(descriptor)
        return descriptor

    def _pipe(self, number: int) -> int:
        """The command's end of a pipe that is relayed."""
        read, write = os.pipe()
        ours, theirs = (write, read) if number == 0 else (read, write)
        os.set_blocking(ours, False)
        self._owned.append(ours)
        self._given.append(theirs)
        user = self._own(self._user[number])
        self._flows.append(
            TerminalFlow(user, ours, is_input=True) if number == 0 else TerminalFlow(ours, user, is_input=False)
        )
        return theirs

    def _own(self, user: int) -> int:
        """The user's terminal, non-blocking for us alone; as it is if it may not be opened again (after su(1))."""
        try:
            flags = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(b"/proc/self/fd/%d" % user, flags)
        except OSError:
            descriptor = os.dup(user)
        self._owned.append(descriptor)
        return descriptor

    def _drop(self, descriptors: list[int]) -> None:
        while descriptors:
            os.close(descriptors.pop())

    # --- in the thread ---

    def _serve(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the thread that handles them
        try:
            if not self.numbers or self._open():
                self._relay()
        except BaseException as error:  # noqa: BLE001 - raised by close
            self._failure = error
        finally:
            self._leave()
            if self._channel is not None:
                self._channel.close()
            self._done.release()

    def _open(self) -> bool:
        """Take the master, make it like the user's terminal, let the command start. False if it never came so far."""
        assert self._running is not None
        got = self._running.terminal()
        if got is None:
            return False
        self._master, self._channel = got
        self._owned.append(self._master)
        os.set_blocking(self._master, False)
        self._flows.append(TerminalFlow(self._own(self._user[0]), self._master, is_input=True))
        self._flows.append(TerminalFlow(self._master, self._own(self._user[1]), is_input=False))
        try:
            termios.tcsetattr(self._master, termios.TCSANOW, termios.tcgetattr(self._user[0]))
        except termios.error:
            pass  # the terminal has just gone
        self._resize()
        self._enter()
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
                self._enter()
            ready = self._poll(foreground)
            for flow in tuple(self._flows):
                if ready.get(flow.source) and self._may_take(flow, foreground):
                    flow.take()
                if flow.waiting and (flow.is_input or not self._silent):
                    flow.give()
                if flow.is_input and flow.done:
                    self._end_input(flow)
            if ready.get(self._wake):
                for word in os.read(self._wake, 4096):
                    self._do(word)
            channel = self._channel
            if channel is not None and ready.get(channel.fileno()):
                self._hear(channel)

    def _poll(self, foreground: bool) -> dict[int, int]:
        wanted = {self._wake: select.POLLIN}
        if self._channel is not None:
            wanted[self._channel.fileno()] = select.POLLIN
        for flow in self._flows:
            if self._may_take(flow, foreground):
                wanted[flow.source] = wanted.get(flow.source, 0) | select.POLLIN
            if flow.waiting and (flow.is_input or not self._silent):
                wanted[flow.target] = wanted.get(flow.target, 0) | select.POLLOUT
        poller = select.poll()
        for descriptor, events in wanted.items():
            poller.register(descriptor, events)
        ready = dict(poller.poll(POKE if self._poke else None if foreground else BACKGROUND))
        if self._poke and not ready:
            signal.pthread_kill(self._main, signal.SIGWINCH)
        return ready

    def _may_take(self, flow: TerminalFlow, foreground: bool) -> bool:
        wanted = not flow.is_input or (foreground and not self._ending and not self._held)
        return wanted and not flow.ended and len(flow.waiting) < LIMIT

    def _end_input(self, flow: TerminalFlow) -> None:
        """The end of the input is the end of the pipe, once all is in it; a terminal ends because it has gone."""
        self._flows.remove(flow)
        if flow.target == self._master and self._running is not None:
            self._running.signal(signal.SIGHUP)
        elif flow.target in self._owned:
            self._owned.remove(flow.target)
            os.close(flow.target)

    def _hear(self, channel: _socket.socket) -> None:
        if channel.recv(64):
            self._stop()
        else:
            self._channel = None
            channel.close()

    def _do(self, word: int) -> None:
        """``word``: the number of a signal, or one of ours."""
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
        elif word == _GOING_ON[0]:
            self._go_on()
        elif word == _HUSH[0]:
            self._held = self._silent = True
            self._leave()
            self._hushed.release()
        elif word == _SPEAK[0]:
            self._held = self._silent = False
        elif word == _ENDING[0]:
            self._ending = True

    def _pause(self) -> None:
        assert self._running is not None
        try:
            self._running.pause()
            self._paused = True
        except MudroomError:
            pass  # it does not come to rest: we can stop all the same

    def _stop(self) -> None:
        """Have the main thread stop us."""
        self._held = True
        self._leave()
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
        """Whether the terminal is ours to read; also where there is no job control on it."""
        user = next((one for one in self._user if one >= 0), -1)
        try:
            return os.tcgetpgrp(user) == os.getpgrp()
        except OSError:
            return True

    def _resize(self) -> None:
        if self._master >= 0:
            try:
                size = fcntl.ioctl(self._user[1], termios.TIOCGWINSZ, bytes(8))
                fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)
            except OSError:
                pass  # one of the two is gone

    def _enter(self) -> None:
        """Raw mode, so that every key is the command's; from the foreground only (a background group is stopped)."""
        with self._modes:
            if not self.numbers or self._before is not None or self._over or not self._in_foreground():
                return
            try:
                self._before = termios.tcgetattr(self._user[0])
                self._raw = raw(self._before)
                self._set_raw()
            except termios.error:
                self._before = None

    def _set_raw(self) -> None:
        if self._before is not None and self._raw is not None and self._in_foreground():
            self._try(lambda: termios.tcsetattr(self._user[0], termios.TCSANOW, self._raw or []))

    def _leave(self) -> None:
        with self._modes:
            before, self._before = self._before, None
            if before is not None and self._in_foreground():
                self._try(lambda: termios.tcsetattr(self._user[0], termios.TCSANOW, before))

    def _try(self, change: Callable[[], None]) -> None:
        try:
            change()
        except termios.error:
            pass  # the terminal has gone: there is nothing to change


def raw(modes: list[Any]) -> list[Any]:
    """As cfmakeraw(3) has it."""
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
