"""What is certified here and what is closed: rows of ``mudroom doctor``, lines of ``mudroom status``."""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.certify.opening import HINT, PlatformOpening, reasons
from mudroom.certify.row import TrialRow, results
from mudroom.doctor.probe import Finding, State


def findings(table: Sequence[TrialRow], opening: PlatformOpening) -> list[Finding]:
    """Return a row for each class of the certificate, and one for each part that is closed."""
    if opening.certificate is None:
        return [Finding("a certificate", "missing", opening.why, HINT)]
    made = dict(zip((row.name for row in table), results(table, opening.certificate), strict=True))
    found = []
    for kind in dict.fromkeys(row.kind for row in table):
        of_kind = [made[row.name] for row in table if row.kind == kind]
        failed = [result for result in of_kind if result.verdict != "held"]
        fell = any(result.verdict == "fell" for result in failed)
        state: State = "missing" if fell else "not probed" if failed else "strict"
        first = f"; {failed[0].name}: {failed[0].found}" if failed else ""
        words = f"{len(of_kind) - len(failed)} of {len(of_kind)} rows held{first}"
        found.append(Finding(f"certified: {kind}", state, words, HINT if failed else ""))
    closed = reasons(opening.certificate.platform, opening.closed)
    return [*found, *(Finding(f"closed: {part}", "missing", why) for part, why in closed.items())]


def lines(opening: PlatformOpening) -> list[str]:
    """Return what is certified and what is closed, and why, in one line each."""
    if opening.certificate is None:
        return [f"none: {opening.why}"]
    state = "open" if opening.is_open else "closed"
    closed = [f"closed: {why}" for why in reasons(opening.certificate.platform, opening.closed).values()]
    return [f"{opening.certificate.system}, {state}", *closed]
