"""The agent's terminals, answered from the fork: ``terminal/create``, ``output``, ``wait_for_exit``, ``kill`` and
``release``.

Rules of this file:

1. A terminal is a background command in the fork, judged like every agent command. All terminals share one sandbox,
   also with the agent if it is inside, so they see each other's files, processes and ``localhost``.
2. ``terminal/create`` is answered at once. While a person is asked, the terminal has no output. A command that is
   refused, or cannot be started, ends with 126, 127 or 125, and its output says why: the model reads that.
3. A command gets pipes, not a pseudo-terminal: its output is text for a model.
"""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from mudroom.core.result import REFUSED
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.path import is_below, show
from mudroom.errors import MudroomError
from mudroom.ext.agents.acp.message import INVALID_PARAMS, NOT_FOUND, AcpMessage, CallError
from mudroom.ext.agents.acp.permission import words_of
from mudroom.ext.agents.acp.question import EditorQuestion, Questions
from mudroom.ext.agents.acp.session_text import fenced
from mudroom.session import Actor, Background, Session
from mudroom.session.order import Pipes
from mudroom.typing import Any, NamedTuple

MOST = 64
"""Most terminals whose commands run at the same time."""
KEPT = 1 << 20
"""Output bytes that are kept without ``outputByteLimit``."""
MOST_KEPT = 4 << 20
"""Most output bytes that are kept for one terminal, whatever its ``outputByteLimit``: ``MOST`` may run at once."""
MOST_TEXTS = 200
"""Released terminals that tool calls go on showing."""
MOST_ENDED = 64
"""Most terminals that have ended and are not released. Older ones are released: otherwise an agent that releases none
would fill mudroom's memory, which its sandbox's limits do not bound."""
MOST_ENDED_BYTES = 64 << 20
"""Most output bytes that these hold together."""
DRAWN = 256 << 10
"""The last output bytes from which a terminal's text is made. It is made for each item in a tool call that shows the
terminal, each time that this is updated."""
GRACE = 2.0
"""Seconds from SIGTERM to SIGKILL."""
REDRAWN = 0.25
"""Least seconds between two updates with a running command's output."""


class RetainedOutput:
    """An output's last bytes. Guarded by its holder's lock."""

    def __init__(self, limit: int) -> None:
        self._limit, self._bytes = limit, bytearray()
        self.truncated = False

    def write(self, data: bytes) -> None:
        self._bytes += data
        surplus = len(self._bytes) - self._limit
        if surplus > 0:
            self.truncated = True
            if surplus > self._limit // 4 or surplus > 1 << 16:  # not for each piece: it moves the rest
                del self._bytes[:surplus]

    def __len__(self) -> int:
        return len(self._bytes)

    @property
    def text(self) -> str:
        """Return the kept bytes as text that begins with a whole character."""
        return self.last(self._limit)

    def last(self, most: int) -> str:
        """Return the last ``most`` kept bytes in the same way."""
        most = min(most, self._limit)
        kept = memoryview(self._bytes)[-most:] if most else memoryview(b"")
        is_cut, start = self.truncated or len(kept) < len(self._bytes), 0
        while is_cut and start < min(4, len(kept)) and kept[start] & 0xC0 == 0x80:
            start += 1
        text = bytes(kept[start:]).decode("utf-8", "replace")
        kept.release()
        return text


class TerminalEnd(NamedTuple):
    exit_code: int | None
    signal: str | None

    def as_json(self) -> dict[str, Any]:
        return {"exitCode": self.exit_code, "signal": self.signal}

    def __str__(self) -> str:
        return f"ended by {self.signal}" if self.signal else f"exit code {self.exit_code}"


class ForkTerminal:
    """One command. ``_changed`` guards the attributes below it."""

    def __init__(self, identifier: str, words: Sequence[bytes], shown: str, limit: int) -> None:
        """``shown``: the command as the agent wrote it."""
        self.id, self.words, self._shown = identifier, tuple(words), shown
        self.thread: threading.Thread | None = None
        """Set by the thread that makes the terminal."""
        self._changed = threading.Condition()
        self._output = RetainedOutput(limit)
        self._end: TerminalEnd | None = None
        self._background: Background | None = None
        self._question: EditorQuestion | None = None
        self._ending = False
        self._awaiting: list[Callable[[TerminalEnd], None]] = []

    def write(self, data: bytes) -> None:
        with self._changed:
            self._output.write(data)

    def finish(self, end: TerminalEnd) -> None:
        with self._changed:
            self._end = end
            awaiting, self._awaiting = self._awaiting, []
            self._changed.notify_all()
        for tell in awaiting:
            tell(end)

    def started(self, background: Background) -> bool:
        """Note the command. Return whether it is to be ended at once."""
        with self._changed:
            self._background = background
            return self._ending

    def asking(self, question: EditorQuestion) -> None:
        """Note the question whether the command may run."""
        with self._changed:
            self._question = question
            if self._ending:
                question.end("")

    def end(self) -> Background | None:
        """Return the command to end; None if it has not begun: it will be ended then."""
        with self._changed:
            self._ending = True
            if self._question is not None:
                self._question.end("")
            return self._background

    @property
    def is_over(self) -> bool:
        with self._changed:
            return self._end is not None

    @property
    def held(self) -> int:
        """Output bytes that are kept."""
        with self._changed:
            return len(self._output)

    def when_over(self, tell: Callable[[TerminalEnd], None]) -> None:
        """Call ``tell`` when the command has ended: at once, or in the terminal's thread."""
        with self._changed:
            end = self._end
            if end is None:
                self._awaiting.append(tell)
                return
        tell(end)

    def as_json(self) -> dict[str, Any]:
        with self._changed:
            row: dict[str, Any] = {"output": self._output.text, "truncated": self._output.truncated}
            return row | ({"exitStatus": self._end.as_json()} if self._end is not None else {})

    def as_text(self) -> str:
        with self._changed:
            return fenced(self._shown, self._output.last(DRAWN), str(self._end) if self._end is not None else "")


class ForkTerminals:
    """A fork's terminals. ``_lock`` guards the attributes below it."""

    def __init__(
        self,
        session: Session,
        fork: str,
        questions: Questions,
        changed: Callable[[str], None],
        shell: str = "/bin/sh",
        actor: Actor | None = None,
    ) -> None:
        """``changed``: called with a terminal's identifier when its output has changed, in its own thread. ``actor``:
        the actor of the agent's process in the same sandbox; None: the session's."""
        self._session, self._fork, self._questions, self._changed = session, fork, questions, changed
        self._shell, self._actor = shell, actor
        self._lock = threading.Lock()
        self._terminals: dict[str, ForkTerminal] = {}
        self._released: dict[str, ForkTerminal] = {}
        """Released terminals, until their commands have ended."""
        self._texts: OrderedDict[str, str] = OrderedDict()
        """The same after that, as text: a tool call goes on showing them."""
        self._closed = False

    def create(self, params: dict[str, Any], directory: str) -> dict[str, Any]:
        """Return the result of ``terminal/create``. ``directory``: the session's. Raise CallError if the parameters are
        invalid, or too many terminals run."""
        words, cwd = _command(params, self._shell), self._directory(params.get("cwd"), directory)
        limit = params.get("outputByteLimit")
        if isinstance(limit, bool) or (limit is not None and (not isinstance(limit, int) or limit < 0)):
            raise CallError(INVALID_PARAMS, "outputByteLimit has to be a count")
        shown = " ".join([params["command"], *map(shlex.quote, params.get("args") or ())])
        kept = KEPT if limit is None else min(limit, MOST_KEPT)
        terminal = ForkTerminal(f"mudroom-{secrets.token_hex(8)}", words, shown, kept)
        session = params.get("sessionId")
        with self._lock:
            alive = sum(not old.is_over for old in self._terminals.values()) + len(self._released)
            if self._closed or alive >= MOST:
                raise CallError(INVALID_PARAMS, f"{MOST} terminals run already: terminal/release ends one")
            self._terminals[terminal.id] = terminal
            self._release_old()
        terminal.thread = threading.Thread(
            target=self._run, args=(terminal, cwd, session if isinstance(session, str) else ""), daemon=True
        )
        terminal.thread.start()
        return {"terminalId": terminal.id}

    def _directory(self, named: Any, directory: str) -> bytes:
        if named is None:
            return directory.encode("utf-8", "surrogateescape")
        if not isinstance(named, str) or not named.startswith("/") or "\0" in named:
            raise CallError(INVALID_PARAMS, "cwd has to be an absolute path")
        path, project = os.path.normpath(named.encode("utf-8", "surrogatepass")), self._session.project
        if not is_below(path, project):
            real = os.path.realpath(path)  # the editor's name for the project may lead through a link
            if not is_below(real, project):
                raise CallError(INVALID_PARAMS, f"{named} is outside the project {show(project)}")
            path = real
        return path

    def _run(self, terminal: ForkTerminal, cwd: bytes, session: str) -> None:
        here = self._questions.here
        here.session, here.asking = session, terminal.asking
        end = TerminalEnd(125, None)
        try:
            end = self._ran(terminal, cwd)
        except MudroomError as error:
            terminal.write(f"mudroom: {error}\n".encode("utf-8", "replace"))
            end = TerminalEnd(error.exit_code, None)
        except OSError as error:
            terminal.write(f"mudroom: {error.strerror or error}\n".encode("utf-8", "replace"))
        finally:  # on any failure: the agent waits for the end
            terminal.finish(end)
            with self._lock:
                self._keep_text(terminal)
            self._changed(terminal.id)

    def _keep_text(self, terminal: ForkTerminal) -> None:
        """Keep only the text of a released terminal that is over. Hold the lock."""
        if terminal.is_over and self._released.pop(terminal.id, None) is not None:
            self._texts[terminal.id] = terminal.as_text()
            if len(self._texts) > MOST_TEXTS:
                self._texts.popitem(last=False)

    def _ran(self, terminal: ForkTerminal, cwd: bytes) -> TerminalEnd:
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        read, write = os.pipe()
        with Descriptor(read):
            with Descriptor(null), Descriptor(write):
                background = self._session.start(
                    terminal.words, fork=self._fork, cwd=cwd, stdio=Pipes(null, write, write), actor=self._actor
                )
            if background.refused is not None:
                verdict = background.refused.verdict
                instead = f" ({verdict.instead})" if verdict.instead else ""
                terminal.write(f"mudroom: refused: {verdict.reason} ({verdict.rule}){instead}\n".encode())
                return TerminalEnd(REFUSED, None)
            if terminal.started(background):
                self._session.sandboxes.end(self._fork, [background.id], GRACE)
            shown = 0.0
            while data := os.read(read, 1 << 16):
                terminal.write(data)
                if time.monotonic() - shown >= REDRAWN:
                    self._changed(terminal.id)
                    shown = time.monotonic()
        ended = background.wait()
        if ended is None:
            return TerminalEnd(None, "SIGKILL")
        if ended.exit_code == 127 and not ended.signal:
            terminal.write(b"".join(background.output()[1:]))  # mudroom's message about a missing program
        number = ended.signal
        return TerminalEnd(None, _name_of(number)) if number else TerminalEnd(ended.exit_code, None)

    # --- calls about a terminal ---

    def find(self, params: dict[str, Any]) -> ForkTerminal:
        """Return the terminal that a call names. Raise CallError if there is none."""
        identifier = params.get("terminalId")
        with self._lock:
            terminal = self._terminals.get(identifier) if isinstance(identifier, str) else None
        if terminal is None:
            raise CallError(NOT_FOUND, f"there is no terminal {str(identifier)[:80]!r}, or it was released")
        return terminal

    def text(self, identifier: str) -> str | None:
        """Return a terminal as text; None if mudroom has none with this identifier."""
        with self._lock:
            terminal = self._terminals.get(identifier) or self._released.get(identifier)
            text = self._texts.get(identifier)
        return terminal.as_text() if terminal is not None else text

    def kill(self, params: dict[str, Any]) -> dict[str, Any]:
        self._end(self.find(params))
        return {}

    def release(self, params: dict[str, Any]) -> dict[str, Any]:
        terminal = self.find(params)
        self._end(terminal)
        with self._lock:
            self._release(terminal)
        return {}

    def _release_old(self) -> None:
        """Release the terminals that have ended, except the latest. Hold the lock."""
        kept, held = 0, 0
        for old in [old for old in reversed(self._terminals.values()) if old.is_over]:
            kept, held = kept + 1, held + old.held
            if kept > MOST_ENDED or held > MOST_ENDED_BYTES:
                self._release(old)

    def _release(self, terminal: ForkTerminal) -> None:
        """Hold the lock."""
        if self._terminals.pop(terminal.id, None) is not None:
            self._released[terminal.id] = terminal
            self._keep_text(terminal)

    def wait_for_exit(self, message: AcpMessage, answer: Callable[[AcpMessage, dict[str, Any]], None]) -> None:
        """Call ``answer`` with the call and its result when the command has ended. Raise CallError if there is no such
        terminal."""
        self.find(message.params).when_over(lambda end: answer(message, end.as_json()))

    def _end(self, terminal: ForkTerminal) -> None:
        background = terminal.end()
        if background is not None and not terminal.is_over:
            self._session.sandboxes.end(self._fork, [background.id], GRACE)

    def close(self) -> None:
        """End all commands, and wait for their ends."""
        with self._lock:
            self._closed = True
            terminals = [*self._terminals.values(), *self._released.values()]
        for terminal in terminals:
            self._end(terminal)
        for terminal in terminals:
            if terminal.thread is not None:
                terminal.thread.join()


def _command(params: dict[str, Any], shell: str) -> tuple[bytes, ...]:
    command, args, variables = params.get("command"), params.get("args") or [], params.get("env") or []
    if not isinstance(command, str) or not command.strip():
        raise CallError(INVALID_PARAMS, "command has to be text")
    if not isinstance(args, list) or not all(isinstance(word, str) for word in args):
        raise CallError(INVALID_PARAMS, "args has to be a list of texts")
    if any("\0" in word for word in (command, *args)):
        raise CallError(INVALID_PARAMS, "a word of the command holds a NUL")
    words = words_of(command, args, shell)
    assigned = [_assignment(row) for row in variables] if isinstance(variables, list) else []
    return (b"env", *assigned, *words) if assigned else words


def _assignment(row: Any) -> bytes:
    name, value = (row.get("name"), row.get("value")) if isinstance(row, dict) else (None, None)
    if not isinstance(name, str) or not isinstance(value, str) or not name.isidentifier() or "\0" in value:
        raise CallError(INVALID_PARAMS, "env has to be a list of a name and a value each")
    return f"{name}={value}".encode("utf-8", "surrogatepass")


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
