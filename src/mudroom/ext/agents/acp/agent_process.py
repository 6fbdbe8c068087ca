"""The agent's process: in its fork's sandbox, or on the host.

Inside, it is the fork's first background command. So it shares one sandbox with its terminals, and its own writes are
staged. On the host, only its calls are answered from the fork; its own processes are not confined.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from mudroom.core.confinement.fallback import ELSEWHERE
from mudroom.core.result import Result
from mudroom.core.system.search_path import require_program
from mudroom.core.tree.path import show
from mudroom.core.tree.quote import show_words
from mudroom.errors import CommandNotStarted, Refused, Unsupported
from mudroom.session import Actor, Background, Session
from mudroom.session.order import Pipes
from mudroom.typing import NamedTuple, Protocol

GRACE = 2.0
"""Seconds from SIGTERM to SIGKILL."""
_LAST = 2048
"""Last bytes of its stderr that are kept."""


class AgentProcess(Protocol):
    def wait(self, seconds: float | None = None) -> int | None:
        """Return the exit code when it has ended; None after ``seconds``."""

    def end(self) -> None:
        """Ask it to end, and kill it with all its processes after ``GRACE`` seconds."""


class AgentPipes(NamedTuple):
    """mudroom's ends of the agent's streams."""

    stdin: int
    stdout: int
    stderr: int


def pipes() -> tuple[AgentPipes, Pipes]:
    """Return mudroom's ends and the agent's ends of three pipes."""
    (their_in, our_in), (our_out, their_out), (our_err, their_err) = (os.pipe() for _stream in range(3))
    return AgentPipes(our_in, our_out, our_err), Pipes(their_in, their_out, their_err)


class InsideAgent:
    """An agent in the fork's sandbox."""

    def __init__(self, session: Session, background: Background) -> None:
        self._session, self._background = session, background

    def wait(self, seconds: float | None = None) -> int | None:
        ended = self._background.wait(seconds)
        return ended.exit_code if ended is not None else None

    def end(self) -> None:
        self._session.sandboxes.end(self._background.fork, [self._background.id], GRACE)
        self._background.wait()


class OutsideAgent:
    """An agent on the host, with its process group."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def wait(self, seconds: float | None = None) -> int | None:
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        return 128 - code if code < 0 else code

    def end(self) -> None:
        self._signal(15)
        if self.wait(GRACE) is None:
            self._signal(9)
            self.wait()
        self._signal(9)  # processes that it has left behind in its group

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def start_inside(
    session: Session, argv: Sequence[bytes], fork: str, cwd: bytes, streams: Pipes, actor: Actor
) -> InsideAgent:
    """Start the agent in its fork. Raise Refused if the policy does not let it run, Unsupported if the sandbox here
    shows the project at another path: the editor and the agent name its files to each other."""
    background = session.start(argv, fork=fork, cwd=cwd, stdio=streams, actor=actor)
    if background.refused is not None:
        raise refused(background.refused)
    agent, shared = InsideAgent(session, background), session.forks.users.shared(fork)
    if shared is not None and shared.mode in ELSEWHERE:
        agent.end()
        raise Unsupported(
            "an agent in an editor", "the project at its own path", f"a copy elsewhere ({shared.mode})",
            "mudroom acp --outside; mudroom doctor says what is missing",
        )  # fmt: skip
    return agent


def refused(result: Result) -> Refused:
    verdict = result.verdict
    return Refused(f"refused: {verdict.reason} ({verdict.rule}): {show_words(result.command)}", verdict.instead)


def start_outside(argv: Sequence[bytes], cwd: bytes, streams: Pipes, environ: Mapping[bytes, bytes]) -> OutsideAgent:
    """Start the agent on the host. Raise CommandNotStarted if its program cannot be started."""
    try:
        process = subprocess.Popen(
            list(argv), executable=require_program(argv[0], environ), stdin=streams.stdin, stdout=streams.stdout,
            stderr=streams.stderr, cwd=cwd, env=environ, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        code = 127 if isinstance(error, FileNotFoundError) else 126
        raise CommandNotStarted(f"{show(argv[0])}: {error.strerror}", code, "name a program that is on PATH") from error
    return OutsideAgent(process)


class ErrorStream:
    """Copies the agent's stderr to mudroom's, where editors show it. ``_lock`` guards the last bytes."""

    def __init__(self, descriptor: int, to: int = 2) -> None:
        """``descriptor`` is owned."""
        self._descriptor, self._to = descriptor, to
        self._lock = threading.Lock()
        self._last = b""
        self._thread = threading.Thread(target=self._copy, name="acp stderr", daemon=True)
        self._thread.start()

    def last_line(self) -> str:
        """Return the last line that is not empty, once the stream has ended or a second has passed."""
        self._thread.join(1.0)
        with self._lock:
            lines = [line for line in self._last.decode("utf-8", "replace").splitlines() if line.strip()]
        return lines[-1].strip() if lines else ""

    def _copy(self) -> None:
        is_read = True
        while data := os.read(self._descriptor, 1 << 16):
            with self._lock:
                self._last = (self._last + data)[-_LAST:]
            view = memoryview(data)
            while view and is_read:
                try:
                    view = view[os.write(self._to, view) :]
                except OSError:
                    is_read = False  # no reader is left; the agent must not wait for one
        os.close(self._descriptor)
