"""Workers, runs and errands as lines and as JSON. Workers' texts were escaped when they arrived
(``ext/fleet/origin/claim.py``), or are here."""

from __future__ import annotations

import time
from collections.abc import Sequence

from mudroom.core.result import text
from mudroom.core.text.plural import amount, counted
from mudroom.core.tree.path import show
from mudroom.core.tree.quote import show_words
from mudroom.ext.fleet.origin.claim import line, rank
from mudroom.ext.fleet.origin.errand_log import AttemptRow, ErrandRow, RunRow
from mudroom.ext.fleet.origin.probe import WorkerProbe
from mudroom.ext.fleet.origin.worker_registry import FleetWorker
from mudroom.ext.fleet.origin.worker_session import WorkerSession
from mudroom.typing import Any

_DISCARDED = frozenset({"cancelled", "failed", "refused"})
_BRIEF = 3
"""A run's errands that are listed in an overview."""


def worker_to_json(worker: FleetWorker) -> dict[str, Any]:
    return {"name": worker.name, "argv": [text(word) for word in worker.argv], "jobs": worker.jobs}


def probe_to_json(row: WorkerProbe) -> dict[str, Any]:
    known = worker_to_json(row.worker) | {"usable": not row.reason, "reason": row.reason, "hint": row.hint}
    hello = row.hello
    if hello is None:
        return known
    return known | {
        "mudroom": line(hello.mudroom),
        "arch": line(hello.arch),
        "kernel": line(hello.kernel),
        "levels": list(hello.levels[:10]),
        "processors": hello.processors,
        "memory": hello.memory,
        "gpus": hello.gpus,
        "free_disk": hello.free_disk,
        "engine": line(hello.engine),
        "nodes": [line(node) for node in hello.nodes[:1000]],
        "held": len(hello.held),
    }


def probe_lines(probes: Sequence[WorkerProbe]) -> list[str]:
    width = max(len(row.worker.name) for row in probes)
    lines = []
    for row in probes:
        name = f"{row.worker.name:<{width}}"
        if row.reason or row.hello is None:
            lines.append(f"{name}  not usable: {row.reason}" + (f" ({row.hint})" if row.hint else ""))
            continue
        hello = row.hello
        levels = ",".join(str(level) for level in sorted(set(hello.levels))[:3])
        jobs = f", {row.worker.jobs} at one time" if row.worker.jobs else ""
        gpus = f", {counted(hello.gpus, 'GPU')}" if hello.gpus else ""
        held = f", {len(hello.held)} errands kept there" if hello.held else ""
        nodes = f", {line(hello.engine)}: {len(hello.nodes)} nodes" if hello.engine != "local" else ""
        lines.append(
            f"{name}  levels {levels or 'none'}, {hello.processors} cpus{jobs}, {amount(hello.memory)} memory{gpus},"
            f" {amount(hello.free_disk)} disk free, mudroom {line(hello.mudroom)}, {line(hello.arch)},"
            f" {line(hello.kernel)}{nodes}{held}"
        )
    return lines


# --- errands ---


def errand_to_json(errand: ErrandRow, row: AttemptRow) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": errand.label,
        "number": errand.number,
        "attempt": row.attempt,
        "command": [text(word) for word in errand.message.argv],
        "state": row.state,
        "worker": row.worker,
        "fork": row.fork or None,
        "changed": row.changed if row.fork else None,
        "reason": row.reason,
    }
    outcome = row.outcome
    if outcome is None:
        return fields
    return fields | {
        "exit_code": None if _was_cut_off(row) else outcome.exit_code,
        "signal": outcome.signal or None,
        "timed_out": outcome.timed_out,
        "judged": None if outcome.judged < 0 else outcome.judged,
        "duration_ms": round(outcome.seconds * 1000),
        "cpu_ms": round(outcome.cpu * 1000),
        "max_rss_kib": outcome.memory,
        "added": outcome.added,
        "modified": outcome.modified,
        "deleted": outcome.deleted,
        "archive_bytes": outcome.archive,
        "notes": list(outcome.notes),
    }


def run_to_json(run: RunRow, errands: Sequence[ErrandRow], rows: Sequence[AttemptRow]) -> dict[str, Any]:
    by_id = {row.errand: row for row in errands}
    return {
        "run": run.run,
        "started": run.started,
        "ended": bool(run.ended),
        "command": [text(word) for word in run.command],
        "workers": list(run.workers),
        "errands": [errand_to_json(by_id[row.errand], row) for row in rows],
    }


def _was_cut_off(row: AttemptRow) -> bool:
    """Return whether the command did not end by itself, although its files are here, or were kept: its exit code says
    nothing."""
    outcome = row.outcome
    return outcome is not None and outcome.state != "ended" and row.state in ("fetched", "kept", "late")


def state_text(row: AttemptRow) -> str:
    """Return an attempt's state in a few words. The exit code is the worker's claim."""
    outcome = row.outcome
    if outcome is None or row.state not in ("ended", "fetched", "kept", "late"):
        return row.state
    if _was_cut_off(row):
        return outcome.state
    if outcome.timed_out:
        return "out of time"
    if outcome.signal:
        return f"signal {outcome.signal}"
    return f"exit {outcome.exit_code}"


def settled_line(errand: ErrandRow, row: AttemptRow) -> str:
    parts = [f"{errand.label}", row.worker, state_text(row)]
    outcome = row.outcome
    if outcome is not None:
        if outcome.judged >= 0:
            parts.append("judge passed" if outcome.judged == 0 else f"judge {outcome.judged}")
        changes = row.changed if row.fork else outcome.added + outcome.modified + outcome.deleted
        parts.append(counted(changes, "change") + (", discarded" if changes and row.state in _DISCARDED else ""))
        parts.append(f"{outcome.seconds:.1f} s")
    if row.fork and row.fork != errand.label:
        parts.append(f"as {row.fork}")
    if row.reason:
        parts.append(row.reason)
    return "  ".join(part for part in parts if part)


def run_lines(run: RunRow, errands: Sequence[ErrandRow], rows: Sequence[AttemptRow], *, brief: bool) -> list[str]:
    by_id = {row.errand: row for row in errands}
    states: dict[str, int] = {}
    for row in rows:
        states[state_text(row)] = states.get(state_text(row), 0) + 1
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started / 1e9))
    count = counted(len(errands), "errand")
    open_text = "" if run.ended else "  not finished: mudroom fleet resume " + run.run
    summary = ", ".join(f"{number:,} {state}" for state, number in states.items())
    lines = [f"{run.run}  {when}  {count}: {summary}  {show_words(run.command)}{open_text}"]
    if brief and len(rows) > _BRIEF:
        return lines
    return lines + ["  " + settled_line(by_id[row.errand], row) for row in rows]


def best_first(rows: Sequence[tuple[ErrandRow, AttemptRow]]) -> list[tuple[ErrandRow, AttemptRow]]:
    """Return the attempts in order; if they were judged, the best first."""
    if not any(errand.message.judge for errand, _row in rows):
        return list(rows)
    return sorted(rows, key=lambda pair: rank(pair[1]))


def summary_lines(rows: Sequence[tuple[ErrandRow, AttemptRow]], workers: Sequence[WorkerSession]) -> list[str]:
    """Return the table that ends a run, with its cost. All figures are the workers' own but the forks' changes and the
    bytes moved."""
    heads = ("errand", "worker", "state", "judge", "changes", "time", "cpu", "memory", "fork")
    table = [heads]
    for errand, row in best_first(rows):
        outcome = row.outcome
        if outcome is None:
            table.append((errand.label, row.worker or "-", row.state, "", "", "", "", "", row.fork))
            continue
        changes = row.changed if row.fork else outcome.added + outcome.modified + outcome.deleted
        judge = "" if outcome.judged < 0 else "passed" if outcome.judged == 0 else f"exit {outcome.judged}"
        fork = row.fork or ("there" if outcome.archive and row.state in ("ended", "late", "expired") else "")
        table.append(
            (
                errand.label,
                row.worker,
                state_text(row),
                judge,
                f"{changes:,}",
                f"{outcome.seconds:.1f} s",
                f"{outcome.cpu:.1f} s",
                amount(outcome.memory * 1024),
                fork,
            )
        )
    used = [index for index in range(len(heads)) if any(line[index] for line in table[1:])]
    widths = [max(len(line[index]) for line in table) for index in used]
    lines = [
        "  ".join(f"{row[index]:<{width}}" for index, width in zip(used, widths, strict=True)).rstrip() for row in table
    ]
    outcomes = [row.outcome for _errand, row in rows if row.outcome is not None]
    for worker in workers:
        sent, received = worker.traffic
        count = sum(row.worker == worker.name for _errand, row in rows)
        if count:
            lines.append(f"{worker.name}: {counted(count, 'errand')}, {amount(sent)} sent, {amount(received)} received")
    if outcomes:
        most = max(outcome.memory for outcome in outcomes) * 1024
        cpu = sum(outcome.cpu for outcome in outcomes)
        lines.append(f"all: {cpu:.1f} s of processors, {amount(most)} of memory at most in one")
    return lines


def node_text(name: str) -> str:
    return show(name.encode())
