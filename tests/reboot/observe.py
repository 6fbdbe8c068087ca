"""What a user finds of a project and its forks, as ``commands.py`` prints it. No test is here."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

_GIVEN = time.clock_gettime_ns


def start_machine_now() -> None:
    """Let the machine have been started a moment ago."""
    begun = _GIVEN(time.CLOCK_BOOTTIME) - 1

    def since(clock: int) -> int:
        return _GIVEN(clock) - (begun if clock == time.CLOCK_BOOTTIME else 0)

    time.clock_gettime_ns = since


def digest(data: bytes) -> str:
    return f"{len(data)} {hashlib.sha256(data).hexdigest()[:16]}"


def tree(project: Path) -> dict[str, str]:
    found = (path for path in sorted(project.rglob("*")) if path.is_file() and ".mudroom" not in path.parts)
    return {str(path.relative_to(project)): f"{path.stat().st_mode:o} {digest(path.read_bytes())}" for path in found}


def observe(project: Path, state: Path, home: Path) -> dict[str, Any]:
    from mudroom.errors import MudroomError
    from mudroom.ext.attempts import record as records
    from mudroom.ext.remarks.store import RemarkStore
    from mudroom.session import Session
    from mudroom.session.upkeep import problems
    from mudroom.vault.conflict.resolution import load_resolutions

    environ = {**os.environb, b"LC_ALL": b"C"}
    found: dict[str, Any] = {"forks": {}}
    with Session.open(
        os.fsencode(project), state=os.fsencode(state), home=os.fsencode(home), environ=environ
    ) as session:
        with session.alone("recover") as recovered:
            found["recovered"] = [f"{one.name} {one.outcome}" for one in recovered]
        found["problems before"] = [f"{each.subject}: {each.text}" for each in problems(session)]
        for fork in session.vault.forks():
            try:
                changes = session.changes.of(fork.name)
                row = {
                    "changes": {os.fsdecode(each.path): each.verb for each in changes.changes},
                    "diff": b"".join(session.changes.diff(fork.name)).decode(),
                    "points": [point.name for point in fork.state.checkpoints if not point.automatic],
                    "decisions": len(load_resolutions(fork)),
                    "remarks": [one.text for one in RemarkStore(fork).read().remarks.values()],
                }
                told = [f"{os.fsdecode(each.path)} {each.text}" for each in changes.remarks]
                found["forks"][fork.name] = row | {"told": [text for text in told if "crash" in text]}
            except (MudroomError, OSError, ValueError) as error:
                found["forks"][fork.name] = {"error": f"{type(error).__name__}: {error}"}
        found["applies"] = [f"{each['apply']} {each['state']}" for each in session.changes.applies()]
        tries = records.tries(session.vault.path)
        found["tries"] = [len(tries.records), list(tries.damaged)]
        session.vault.journal.append("test", "", {}, time=session.forks.clock())
        broken = session.vault.journal.examine().broken
        found["journal"] = broken.text if broken is not None else ""
        found["problems"] = [f"{each.subject}: {each.text}" for each in problems(session)]
    found["project"] = tree(project)
    archives = sorted(home.glob("*.tar"))
    found["archives"] = {path.name: digest(path.read_bytes()) for path in archives}
    return found
