"""Whether the policy's ``verify`` command passes on the forks of a project, alone and in pairs.

A fork, or two, are merged into a fork of the project as it is, and the command runs there with the rights of a judge.
Verdicts are kept in the vault, for the command line, the page and ``try --combine``. A verdict holds while the command
is the same, and the stamps of its forks, of the project's entries at their paths, of git's HEAD and index, and of the
applies. Other files of the project are not looked at: so a verdict is told with its time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b

from mudroom.errors import MudroomError
from mudroom.ext.attempts.session.attempt import Origin, new_fork
from mudroom.ext.attempts.session.judge import TIMED_OUT, discard_unused, judged
from mudroom.ext.attempts.session.matrix import MatrixCell, fork_stamp
from mudroom.ext.attempts.session.request import AttemptRequest
from mudroom.ext.attempts.session.union import merge_into
from mudroom.sandbox.client.cancellation import Cancellation
from mudroom.session.session import Session
from mudroom.stage import safe_open
from mudroom.stage.stamp import stamp_of
from mudroom.typing import NamedTuple
from mudroom.vault.record import write

BUDGET = 300.0
"""Seconds for all commands. One that has begun has the rest of the time."""
MOST = 2_000
"""Verdicts that are kept, the newest."""
_FILE = b"/verdicts"
_GIT = (b"/.git/HEAD", b"/.git/index")


class ForkVerdict(NamedTuple):
    passed: bool
    time: int
    """Nanoseconds since 1970."""


def verify_command(session: Session) -> tuple[bytes, ...]:
    """Return the policy's command, or nothing if an apply is not verified."""
    settings = session.actor.as_policy_says().settings
    return settings.verify if settings.verify_when != "never" else ()


def with_verdicts(session: Session, cells: Sequence[MatrixCell]) -> list[MatrixCell]:
    """Return the cells with the verdicts that are known and hold."""
    words = verify_command(session)
    kept = _load(session) if words else {}
    if not kept:
        return list(cells)
    return [_with(cell, kept.get(_key(session, cell.one, cell.other, words).hex())) for cell in cells]


def verify_cells(
    session: Session,
    cells: Sequence[MatrixCell],
    cancellation: Cancellation,
    *,
    budget: float = BUDGET,
    report: Callable[[str, int, int], None] = lambda _pair, _done, _total: None,
) -> list[MatrixCell]:
    """Return the cells, verified as far as the budget goes. Those in conflict, or not compared, are not verified.
    ``report``: called with a pair, the number of pairs before it, and of all."""
    words, until = verify_command(session), time.monotonic() + budget
    known = with_verdicts(session, cells) if words else list(cells)
    todo = [at for at, cell in enumerate(known) if words and is_open(cell)]
    for done, at in enumerate(todo):
        rest = until - time.monotonic()
        if rest <= 0 or cancellation.is_set:
            break
        cell = known[at]
        report(f"{cell.one} and {cell.other}" if cell.other else cell.one, done, len(todo))
        key = _key(session, cell.one, cell.other, words)
        passed = _passes(session, cell, words, rest, cancellation)
        if passed is None:
            continue
        verdict = ForkVerdict(passed, time.time_ns())
        known[at] = _with(cell, verdict)
        if key and key == _key(session, cell.one, cell.other, words):
            _keep(session, key, verdict)
    return known


def is_open(cell: MatrixCell) -> bool:
    """Return whether a cell can be verified, and is not."""
    return not cell.problem and not cell.conflicts and cell.verified is None


def known_verdict(session: Session, one: str, other: str, words: Sequence[bytes]) -> ForkVerdict | None:
    """Return the verdict on a pair that holds, or None."""
    key = _key(session, *_in_order(session, one, other), words)
    return _load(session).get(key.hex()) if key else None


def keep_pair(session: Session, one: str, other: str, words: Sequence[bytes], *, passed: bool) -> None:
    """Keep a verdict on a pair that somebody else has found."""
    if key := _key(session, *_in_order(session, one, other), words):
        _keep(session, key, ForkVerdict(passed, time.time_ns()))


def _in_order(session: Session, one: str, other: str) -> tuple[str, str]:
    """Return two forks in the order of a matrix."""
    names = [fork.name for fork in session.vault.forks()]
    return (one, other) if names.index(one) < names.index(other) else (other, one)


def _keep(session: Session, key: bytes, verdict: ForkVerdict) -> None:
    """Keep a verdict. Two processes at once may lose one, which is computed again."""
    rows = {**_load(session), key.hex(): verdict}
    newest = sorted(rows.items(), key=lambda row: row[1].time)[-MOST:]
    write(session.vault.path + _FILE, json.dumps(dict(newest)).encode(), durable=False)


def _load(session: Session) -> dict[str, ForkVerdict]:
    try:
        rows = json.loads(safe_open.read(session.vault.path + _FILE))
        return {str(key): ForkVerdict(bool(passed), int(at)) for key, (passed, at) in rows.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError):
        return {}  # a cut or older file: what it told is computed again


def _key(session: Session, one: str, other: str, words: Sequence[bytes]) -> bytes:
    """Return a digest of all that a verdict depends on, or nothing if that may change unseen."""
    forks = [fork_stamp(session, name) for name in (one, other) if name]
    if not all(forks):
        return b""
    project = [stamp_of(session.vault.source + path) for path in _GIT]
    found = (forks, project, stamp_of(session.vault.path + b"/applies"), tuple(words))
    return blake2b(repr(found).encode(), digest_size=20).digest()


def _with(cell: MatrixCell, verdict: ForkVerdict | None) -> MatrixCell:
    if verdict is None or cell.problem or cell.conflicts:
        return cell
    return cell._replace(verified=verdict.passed, verified_at=verdict.time)


def _passes(
    session: Session, cell: MatrixCell, words: tuple[bytes, ...], seconds: float, cancellation: Cancellation
) -> bool | None:
    """Return whether the command passes; None if a fork cannot be merged now, or the command cannot be run or has not
    ended."""
    try:
        fork = new_fork(session, Origin(None), f"matrix-{session.forks.new_id()}")
    except (MudroomError, OSError):
        return None
    try:
        if not all(merge_into(session, fork, name) for name in (cell.one, cell.other) if name):
            return None
        verdict = judged(session, AttemptRequest((), judge=words, timeout=seconds), fork, 0, cancellation)
        is_known = not (verdict.is_hopeless or cancellation.is_set or verdict.exit_code == TIMED_OUT)
        return verdict.passed if is_known else None
    except (MudroomError, OSError):
        return None  # a fork was discarded meanwhile
    finally:
        discard_unused(session, fork)
