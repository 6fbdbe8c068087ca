"""The judge of an attempt: a command in a fork *of* the attempt.

Rules:
1. The judge's writes go with its fork: the attempt stays as it was judged.
2. The judge has a verification's rights (``Actor.as_policy_says``). It runs code that the attempt may have written, so
   it does not get access that the user has granted to the attempt's command.
3. Only the end of its output is kept, without secrets (decision 57). A margin before it is read, too (``MARGIN``), so
   that the cut never divides a secret that is recognised by its beginning.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from mudroom.core.text.redaction import redact
from mudroom.errors import CommandNotStarted, UsageError
from mudroom.ext.attempts.record import REPORT
from mudroom.ext.attempts.session.request import VARIABLE, AttemptRequest, with_variables
from mudroom.ext.attempts.value import numbered, read_score
from mudroom.sandbox.client.cancellation import Cancellation
from mudroom.session.forks import discarded
from mudroom.session.order import Stdio
from mudroom.session.session import Session
from mudroom.typing import NamedTuple

TIMED_OUT = 124
STEM = "judge-"
"""Prefix for the names of judges' forks."""
MARGIN = 1 << 14
"""Bytes read before the kept end: longer than a secret, such as a private key."""
_HEARD = REPORT + MARGIN


class JudgeVerdict(NamedTuple):
    exit_code: int
    score: float | None
    report: bytes
    note: str = ""
    is_hopeless: bool = False
    """Whether no attempt could be judged: the judge is refused, or its program does not exist on this machine."""

    @property
    def passed(self) -> bool:
        """True on exit code 0, unless a note says that the judge failed (it printed no score, for example)."""
        return not self.exit_code and not self.note


class OutputEnd:
    """The end of a command's output. Owner: the thread that runs the command."""

    def __init__(self) -> None:
        self._both, self._stdout = bytearray(), bytearray()

    def hear(self, stream: str, data: bytes) -> None:
        _append(self._both, data)
        if stream == "stdout":
            _append(self._stdout, data)

    def report(self, secrets: Collection[str]) -> bytes:
        """Return the end of both streams, without these values and others that look like secrets."""
        text = self._both[-_HEARD:].decode("utf-8", "surrogateescape")
        redacted = redact(text, secrets).encode("utf-8", "surrogateescape")
        begin = MARGIN if len(self._both) >= _HEARD else 0  # the margin may hold the rest of a cut secret
        return redacted[begin:][-REPORT:]

    @property
    def stdout(self) -> bytes:
        return bytes(self._stdout[-REPORT:])


def discard_unused(session: Session, fork: str) -> None:
    """Discard a try's fork, unless it is in use or already discarded."""
    try:
        session.forks.discard(fork)
    except UsageError:
        pass


def _append(kept: bytearray, data: bytes) -> None:
    kept += data[-_HEARD:]
    if len(kept) > 2 * _HEARD:
        del kept[:-_HEARD]


def _is_missing(program: bytes) -> bool:
    """Return whether no directory in PATH has the program. A program given with a directory, as in a virtual
    environment, may have been removed or broken by the attempt: that says nothing about other attempts."""
    from shutil import which

    return not os.path.dirname(program) and which(program) is None


def judged(
    session: Session,
    request: AttemptRequest,
    fork: str,
    number: int,
    cancellation: Cancellation,
) -> JudgeVerdict:
    """Judge a fork's present state. Raise Cancelled if the judge was not started, MudroomError and OSError as
    ``Session.run`` does."""
    actor = (request.actor or session.actor).as_policy_says()
    actor = with_variables(actor, [VARIABLE + b"=%d" % number])
    timeout = actor.settings.verify_timeout or request.timeout or actor.settings.timeout
    words, end, secrets = numbered(request.judge, number), OutputEnd(), session.vault.secrets()
    below = session.forks.new(f"{STEM}{session.forks.new_id()}", parent=fork, named=False)
    try:
        result = session.run(
            words,
            fork=below.name,
            cwd=request.cwd,
            stdio=Stdio(on_output=end.hear),
            timeout=timeout,
            actor=actor,
            approver=request.approver(cancellation),
            cancellation=cancellation,
        )
    except CommandNotStarted as error:
        return JudgeVerdict(error.exit_code, None, error.message.encode(), error.message, _is_missing(words[0]))
    finally:
        if not discarded(session.forks, below, lambda: True):  # a list of forks may be reading it at this moment
            discard_unused(session, below.name)
    if not result.ran:
        note = f"the judge was refused: {result.verdict.reason}"
        return JudgeVerdict(result.exit_code, None, end.report(secrets), note, is_hopeless=True)
    if result.timed_out:
        return JudgeVerdict(TIMED_OUT, None, end.report(secrets), "the judge ran out of time")
    score = read_score(end.stdout) if request.score == "json" else None
    lacks = request.score == "json" and score is None
    note = "the last line of the judge's output is no score" if lacks else ""
    return JudgeVerdict(result.exit_code, score, end.report(secrets), note)
