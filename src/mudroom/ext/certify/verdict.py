"""A row's verdict, from the observations. Pure.

Rules of this file:
1. The command's word is never taken for a refusal that mattered: a row holds if the canary outside is untouched *and*
   the twin's effect is seen in the copy *and* the command ended by exit with the expected errors.
2. A row is not shown if anything is unclear: a signal, a time-out, an answer that cannot be read.
3. Reasons name no path and nothing from this machine: a certificate may be sent to others.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence

from mudroom.ext.certify.deed_program import DeedAnswer
from mudroom.ext.certify.row import CanaryKind, TrialRow, Verdict
from mudroom.ext.certify.table import READINGS
from mudroom.typing import NamedTuple

NO_COMMAND = "no command runs"
NOTHING_THERE = "the deed does not work where nothing confines"
"""The reason for a row whose control failed: this machine has nothing that the deed could reach."""


class Judged(NamedTuple):
    verdict: Verdict
    why: str
    errno: int = 0
    """The deed's error number."""


class Observation(NamedTuple):
    """How a row's command ended; the command tries the twin's deed, then the row's."""

    status: int
    """wait(2). Windows has no os.WIFEXITED."""
    is_over_time: bool
    deeds: tuple[str, str]
    answers: Sequence[DeedAnswer]
    is_secret_out: bool
    """Whether the aim's nonce is in the output."""
    is_done: bool
    is_twin_done: bool
    was_there: bool
    """Whether a process was at the aim."""

    @property
    def errno(self) -> int:
        return self.answers[-1].errno if self.answers else 0


def judge(row: TrialRow, seen: Observation) -> Judged:
    """Return the verdict about a command that ran."""
    return _JUDGES.get(row.canary, _judge_refusal)(row, seen)


def judge_failure(error: Exception, *, is_done: bool) -> Judged:
    """Return the verdict about a command that did not run. ``is_done``: whether the deed was done all the same."""
    if is_done:
        return Judged("fell", "it was done, and the sandbox reported a failure")
    if isinstance(error, OSError):
        return Judged("not shown", f"{NO_COMMAND}: {errno.errorcode.get(error.errno or 0, 'an error')}")
    return Judged("not shown", f"{NO_COMMAND}: {type(error).__name__}")


def _judge_refusal(row: TrialRow, seen: Observation) -> Judged:
    if unclear := _unclear(seen):
        return unclear
    if seen.errno not in row.errors:
        name = errno.errorcode.get(seen.errno, str(seen.errno)) if seen.errno else "no error"
        return Judged("not shown", f"it was refused by {name}, not by the sandbox", seen.errno)
    if not seen.errno:
        return Judged("held", "it had no effect outside")
    return Judged("held", f"refused by {errno.errorcode.get(seen.errno, str(seen.errno))}", seen.errno)


def _judge_process(_row: TrialRow, seen: Observation) -> Judged:
    if unclear := _unclear(seen):
        return unclear
    return (
        Judged("held", "it was ended with the command") if seen.was_there else Judged("not shown", "it did not start")
    )


def _unclear(seen: Observation) -> Judged | None:
    """Return the verdict if it does not depend on how the deed was refused."""
    if seen.is_done or seen.is_secret_out:
        return Judged("fell", "it was done")
    if seen.is_over_time:
        return Judged("not shown", "it took too long")
    if seen.status & 0x7F:
        return Judged("not shown", f"it ended by signal {seen.status & 0x7F}")
    if seen.status or tuple(answer.deed for answer in seen.answers) != seen.deeds:
        return Judged("not shown", f"the deeds did not run (status {seen.status >> 8})")
    if not seen.is_twin_done:
        return Judged("not shown", "its permitted twin did not work either", seen.answers[0].errno)
    return None


def _judge_work(_row: TrialRow, seen: Observation) -> Judged:
    """Return the verdict for a deed that is permitted and has to work."""
    is_right = seen.is_done and not seen.status
    return Judged("held", "it works") if is_right else Judged("not shown", "it does not work", seen.errno)


def _judge_reading(_row: TrialRow, seen: Observation) -> Judged:
    if seen.status or len(seen.answers) != 2 or not seen.is_twin_done:
        return Judged("not shown", "the deeds did not run")
    order = seen.answers[1].evidence
    return Judged("held", READINGS[order]) if order in READINGS else Judged("fell", f"an unknown order ({order})")


_JUDGES: Mapping[CanaryKind, Callable[[TrialRow, Observation], Judged]] = {
    "process": _judge_process,
    "reading": _judge_reading,
    "works": _judge_work,
}
"""For kinds whose rows are more than a refusal."""
