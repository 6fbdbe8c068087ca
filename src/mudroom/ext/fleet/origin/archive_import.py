"""Forks from the archives that workers have sent, many at once (``ext/transfer/vault/arrival.py``). The archives may be
hostile."""

from __future__ import annotations

import os
from contextlib import ExitStack

from mudroom.ext.fleet.origin.archive_fetcher import ImportedArchive
from mudroom.ext.fleet.origin.errand_log import AttemptRow
from mudroom.ext.transfer.archives import arrive
from mudroom.ext.transfer.vault.arrival import Arrival, Arrived
from mudroom.session.session import Session
from mudroom.typing import Any
from mudroom.vault.forks.background import Ring
from mudroom.vault.forks.live_output import PLACE


class ForkImporter:
    """Owner: the verb's thread."""

    def __init__(self, session: Session, limit: int) -> None:
        """``limit``: bytes that one archive may have, as it comes and unpacked."""
        self._session, self._limit = session, limit

    def import_archives(self, archives: list[tuple[AttemptRow, str, bytes]]) -> list[ImportedArchive]:
        """Make a fork from each archive (row, wished name, file), or return why it was refused. An archive that is here
        already makes no second one. Raise OSError as the disk does."""
        with ExitStack() as opened:
            arrivals = [
                Arrival(
                    opened.enter_context(open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")),
                    name,
                    row.errand,
                    row.attempt,
                    row.worker,
                    late=row.state == "late",
                    claims=_claims(row),
                )
                for row, name, file in archives
            ]
            outcomes = arrive(self._session, arrivals, limit=self._limit)
        for outcome, (_row, _name, file) in zip(outcomes, archives, strict=True):
            if outcome.state in ("new", "late"):
                self._keep_output(outcome.name, os.path.dirname(file))
        return [_imported(outcome) for outcome in outcomes]

    def _keep_output(self, name: str, directory: bytes) -> None:
        """Make what the errand printed the output of the fork's last command (``vault/forks/live_output.py``)."""
        place = self._session.vault.fork(name).path + PLACE
        for stream in (b"stdout", b"stderr"):
            try:
                with open(directory + b"/" + stream, "rb") as kept:
                    os.makedirs(place, mode=0o700, exist_ok=True)
                    ring = Ring(place + b"/" + stream)
                    while block := kept.read(1 << 16):
                        ring.write(block)
                    ring.close()
            except FileNotFoundError:
                continue  # it printed nothing there


def _imported(outcome: Arrived) -> ImportedArchive:
    return ImportedArchive(outcome.name, outcome.changed, outcome.problem if outcome.state == "refused" else "")


def _claims(row: AttemptRow) -> dict[str, Any]:
    """Return the worker's claims about the command, for the journal."""
    outcome = row.outcome
    if outcome is None:
        return {}
    return {
        "state": outcome.state,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "timed_out": outcome.timed_out,
        "seconds": outcome.seconds,
        "cpu": outcome.cpu,
        "memory": outcome.memory,
        "judged": outcome.judged,
    }
