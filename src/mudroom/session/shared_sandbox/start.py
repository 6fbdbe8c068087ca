"""The way of a command into the background: judge, ask, take the fork, find or open a shared sandbox, checkpoint,
journal, start."""

from __future__ import annotations

import os

from mudroom.core.background import BackgroundStart
from mudroom.session.order import Case, Order, Outcome
from mudroom.session.run import Parts, refused
from mudroom.session.shared_sandbox.background import Background
from mudroom.session.shared_sandbox.joined import JoinedSandbox
from mudroom.session.shared_sandbox.opening import Opening
from mudroom.vault.store.fork import Fork


def start(parts: Parts, order: Order) -> Background:
    """Start a command in the background of the fork of its order, which is made if there is none. One that is refused
    is returned with the reason (``Background.refused``)."""
    name = f"run-{parts.forks.new_id()}" if order.fork is None else order.fork
    case = parts.approval.asked(order, parts.approval.judge(order), name)
    if not case.allowed:
        return Background.none(parts.sandboxes, refused(parts, order, case))
    with parts.forks.taken(name, named=order.fork is not None) as (fork, is_new):
        background = _started(parts, fork, order, case)
        if background is not None:
            return background
        if is_new:
            parts.forks.take_back(fork)
        return Background.none(parts.sandboxes, refused(parts, order, case.changed()))


def _started(parts: Parts, fork: Fork, order: Order, case: Case) -> Background | None:
    """Return None if the command is not what was approved any more."""
    outcome = Outcome()
    with parts.sandboxes.joined(fork, order, outcome) as place:
        if place is not None:
            if not parts.approval.holds(order, case, fork):
                return None
            point = place.checkpoint_before() if case.wants_checkpoint else None
            return _begun(parts, fork, order, case, place, point)
    opening = Opening(parts.machine, parts.forks, fork, order, outcome)
    try:
        if not parts.approval.holds(order, case, fork):
            opening.close()
            return None
        point = opening.checkpoint_before() if case.wants_checkpoint else None
        shared = opening.made()
    except BaseException:
        opening.close()
        raise
    try:
        return _begun(parts, fork, order, case, parts.sandboxes.place_in(shared, fork, order, outcome), point)
    finally:
        shared.begin()


def _begun(parts: Parts, fork: Fork, order: Order, case: Case, place: JoinedSandbox, point: str | None) -> Background:
    _environment, inside = place.inside()
    started = BackgroundStart(
        parts.forks.new_id(),
        fork.name,
        order.argv,
        inside,
        parts.forks.clock(),
        os.getpid(),
        order.grant.level,
        order.actor.agent or "",
        order.timeout,
    )
    _journal(parts, order, started, case, point)  # first: what cannot be written down is not started
    place.start(started)
    return Background(parts.sandboxes, started)


def _journal(parts: Parts, order: Order, started: BackgroundStart, case: Case, point: str | None) -> None:
    from mudroom.core.result import text, verdict_to_json

    data = {
        "id": started.id,
        "command": [text(word) for word in started.command],
        "cwd": text(order.cwd),
        "agent": order.actor.agent,
        "verdict": verdict_to_json(case.final),
        "checkpoint": point,
        "level": started.level,
        "timeout": started.timeout,
    }
    parts.forks.vault.journal.append("background", started.fork, data, time=started.time)
