"""An Agent Trace record: which lines of which files come from which conversation (agent-trace.dev, 0.1).

Only hunks with a turn are in it, and so nothing that mudroom did not observe. The record says by what they agree.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime

from mudroom import __version__
from mudroom.core.tree.path import show_path
from mudroom.ext.reasons.core.blame import added_ranges
from mudroom.ext.reasons.session import ObservedFile, Reasons, changed_files
from mudroom.ext.reasons.telling import observed_to_json
from mudroom.ext.reasons.turn import ObservedTurn
from mudroom.session import Session
from mudroom.typing import Any

VERSION = "0.1"
MOST_FILES = 500
"""Files of one record, and of one answer."""


def tracer(session: Session, fork: str, paths: Sequence[bytes]) -> Callable[[str, Collection[bytes]], bytes]:
    """Read what was observed at these changed paths of a fork. Return a function that makes the record of their commit
    as JSON, without the paths whose lines are not the fork's there."""
    reasons = Reasons(session, fork)
    seen = [reasons.of_file(path) for path in changed_files(session, fork, [*paths])[:MOST_FILES]] if paths else []
    now = session.forks.clock()

    def made(revision: str, differing: Collection[bytes]) -> bytes:
        record = record_of(reasons, [file for file in seen if file.path not in differing], now, revision)
        return json.dumps(record, indent=1).encode() + b"\n"

    return made


def record_of(reasons: Reasons, seen: Iterable[ObservedFile], time: int, revision: str = "") -> dict[str, Any]:
    """Return the record. ``time``: nanoseconds since 1970."""
    files, observed = [], []
    for file in seen:
        conversations: dict[str, dict[str, Any]] = {}
        for row in file.rows:
            if row.turn is not None and row.hunk is not None:
                found = conversations.setdefault(row.turn.conversation.name, _conversation(row.turn))
                found["ranges"] += [{"start_line": one, "end_line": last} for one, last in added_ranges(row.hunk)]
            told = observed_to_json(reasons, file, row)
            observed.append({key: told[key] for key in ("path", "first", "lines", "commands", "turn")})
        if conversations:
            files.append({"path": show_path(file.path), "conversations": list(conversations.values())})
    record: dict[str, Any] = {
        "version": VERSION,
        "id": str(uuid.uuid4()),
        "timestamp": datetime.fromtimestamp(time // 10**9, UTC).isoformat().replace("+00:00", "Z"),
        "tool": {"name": "mudroom", "version": __version__},
        "files": files,
        "metadata": {"io.mudroom": {"fork": reasons.fork, "observed": observed}},
    }
    if revision:
        record["vcs"] = {"type": "git", "revision": revision}
    return record


def _conversation(turn: ObservedTurn) -> dict[str, Any]:
    contributor = {"type": "ai"} | ({"model_id": turn.call.model} if turn.call.model else {})
    return {"contributor": contributor, "ranges": []}
