"""The policy's start commands in a fork: in the background, each when the one before is ready.

A copied fork has the files of servers that were running: their lock files name processes that are not in the new
fork's sandbox. So the commands start only where none runs in the background, and a line may remove such a file first.
"""

from __future__ import annotations

import time

from mudroom.core.settings import StartCommand
from mudroom.core.tree.quote import show_words
from mudroom.errors import MudroomError, UsageError
from mudroom.session import Actor, Background, Session
from mudroom.vault.lock import Lock

_LOOK = 0.05
"""Seconds between two looks whether a command is ready."""
_UNTIL = b'until "$@" > /dev/null 2>&1; do sleep 0.05; done'


def start_commands(session: Session, fork: str) -> list[Background]:
    """Start the commands and return them when the last one is ready. Raise UsageError if the policy has none, or a
    command runs in the fork's background; MudroomError if a command ends, or is not ready in time, which ends them
    all."""
    actor = _policy_actor(session)
    steps, place = actor.settings.start, session.vault.fork(fork)
    if not steps:
        raise UsageError(
            "the policy has no commands to start in a fork", "start: {commands: [make serve]}: docs/POLICY.md"
        )
    started: list[Background] = []
    with Lock(place.path + b"/starting"):  # two would remove each other's lock files
        session.forks.users.require_free(place)
        try:
            for step in steps:
                started.append(session.start(step.argv, fork=fork, actor=actor))
                if step.port or step.ready:
                    _await(session, started[-1], step, time.monotonic() + actor.settings.start_timeout)
        except BaseException:
            session.sandboxes.end(fork)
            raise
    return started


def _await(session: Session, command: Background, step: StartCommand, deadline: float) -> None:
    """Wait until a command is ready."""
    probe = None
    if step.ready:
        words = [b"/bin/sh", b"-c", _UNTIL, b"sh", *step.ready]
        probe = session.start(words, fork=command.fork, actor=_policy_actor(session))
    while not _is_ready(command, probe, step.port):
        ended = command.poll()
        if ended is not None or time.monotonic() >= deadline:
            why = "is not ready in time (start.timeout)" if ended is None else f"has ended with {ended.exit_code}"
            raise MudroomError(
                f"{show_words(command.argv)} {why}: what was started in {command.fork} is ended",
                f"mudroom ps --output {command.id}",
            )
        time.sleep(_LOOK)


def _is_ready(command: Background, probe: Background | None, port: int) -> bool:
    if probe is not None:
        ended = probe.poll()
        return ended is not None and ended.exit_code == 0
    usage = command.usage()
    return usage is not None and port in usage.ports


def _policy_actor(session: Session) -> Actor:
    """Return the actor of the policy's own commands: without an agent, so that other commands can run beside them."""
    return session.actor._replace(settings=session.actor.policy, card=None, agent=None)
