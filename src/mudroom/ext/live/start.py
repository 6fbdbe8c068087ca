"""The policy's start commands in a fork: in the background, each when the one before is ready.

A copied fork has the files of servers that were running: their lock files name processes that are not in the new
fork's sandbox. So the commands start only where none runs in the background, and a line may remove such a file first.

The end of a command is waited for. Readiness is looked for: Linux tells no other process that a socket begins to listen
(sock_diag(7) reports only the end of sockets), and a command succeeds or fails when it is run. A ready command that
waits itself is run once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from queue import Empty, SimpleQueue
from threading import Thread

from mudroom.core.settings import StartCommand
from mudroom.core.tree.path import show
from mudroom.core.tree.quote import show_words
from mudroom.errors import MudroomError, UsageError
from mudroom.session import Actor, Background, Session
from mudroom.vault.lock import Lock

_UNTIL = b'until "$@"; do sleep 0.05; done'
_PAUSES = (0.005, 0.1)
"""Seconds between two looks for a port: the first, and the longest. Each is twice as long as the one before."""
_FALL = 0.2
"""Seconds in which a command without ``ready`` may fail at its start."""
_SAID = 3
"""Lines of a command's output that are told."""
_LONGEST = 200
"""Bytes of such a line."""


def start_commands(session: Session, fork: str) -> list[Background]:
    """Start the commands and return those that run when the last one is ready. Raise UsageError if the policy has none,
    or a command runs in the fork's background; MudroomError if a command fails, ends though it has ``ready``, or is not
    ready in time, which ends them all, and if none is left."""
    actor = _policy_actor(session)
    steps, place = actor.settings.start, session.vault.fork(fork)
    if not steps:
        raise UsageError(
            "the policy has no commands to start in a fork", "start: {commands: [make serve]}: docs/POLICY.md"
        )
    started: list[tuple[Background, StartCommand]] = []
    with Lock(place.path + b"/starting"):  # two would remove each other's lock files
        session.forks.users.require_free(place)
        try:
            for step in steps:
                started.append((session.start(step.argv, fork=fork, actor=actor), step))
                if step.port or step.ready:
                    _await(session, *started[-1], time.monotonic() + actor.settings.start_timeout)
            return _standing(session, started)
        except BaseException:
            session.sandboxes.end(fork)
            raise


def _await(session: Session, command: Background, step: StartCommand, deadline: float) -> None:
    """Wait until a command is ready. Raise MudroomError if it ends, or the deadline passes."""
    ended, probe = SimpleQueue[Background](), None
    if step.ready:
        words = [b"/bin/sh", b"-c", _UNTIL, b"sh", *step.ready]
        probe = session.start(words, fork=command.fork, actor=_policy_actor(session))
    for each in filter(None, (command, probe)):
        Thread(target=_tell_end, args=(each, deadline, ended), daemon=True).start()
    pause, longest = _PAUSES
    while not (step.port and _listens(command, step.port)):
        left = deadline - time.monotonic()
        try:
            first = ended.get(timeout=max(0.0, min(left, pause) if step.port else left))
        except Empty:
            if left > 0:
                pause = min(2 * pause, longest)
                continue
            raise _failure(session, command, "is not ready in time (start.timeout)", probe or command) from None
        if first is probe:
            return
        raise _ended(session, command)


def _tell_end(command: Background, deadline: float, ended: SimpleQueue[Background]) -> None:
    if command.wait(max(0.0, deadline - time.monotonic())) is not None:
        ended.put(command)


def _listens(command: Background, port: int) -> bool:
    usage = command.usage()
    return usage is not None and port in usage.ports


def _standing(session: Session, started: Iterable[tuple[Background, StartCommand]]) -> list[Background]:
    """Return the commands that run. One without ``ready`` may have ended with success: then it is no server. Raise
    MudroomError if another one has ended, or all have."""
    running: list[Background] = []
    until, command = time.monotonic() + _FALL, None
    for command, step in started:
        has_sign = step.port or step.ready
        ended = command.poll() if has_sign else command.wait(max(0.0, until - time.monotonic()))
        if ended is None:
            running.append(command)
        elif has_sign or ended.exit_code:
            raise _ended(session, command)
    if not running and command is not None:
        raise _ended(session, command)
    return running


def _ended(session: Session, command: Background) -> MudroomError:
    ended = command.poll()
    code = ended.exit_code if ended is not None else 0
    why = f"has ended with {code}" + ("" if code else ", but a server has to stay in the foreground")
    return _failure(session, command, why)


def _failure(session: Session, command: Background, why: str, speaker: Background | None = None) -> MudroomError:
    """Return an error with the last lines that the command has written, or else ``speaker``."""
    facts = [why, *(_last_lines(command) or _last_lines(speaker or command))]
    masked = sorted(session.vault.mask.paths)
    if masked:
        names = ", ".join(map(show, masked[:_SAID])) + (" …" if len(masked) > _SAID else "")
        facts.append(f"{names} appears empty to it (secrets.show)")
    return MudroomError(
        f"{show_words(command.argv)} {'; '.join(facts)}: what was started in {command.fork} is ended",
        f"mudroom ps --output {command.id}",
    )


def _last_lines(command: Background) -> list[str]:
    """Return the last lines of its errors, or else of its output, each once."""
    out, errors = command.output()
    lines = (show(line.strip()[:_LONGEST]) for line in (errors.strip() or out.strip()).splitlines())
    return [*dict.fromkeys(filter(None, lines))][-_SAID:]


def _policy_actor(session: Session) -> Actor:
    """Return the actor of the policy's own commands: without an agent, so that other commands can run beside them."""
    return session.actor._replace(settings=session.actor.policy, card=None, agent=None)
