"""The steps of a command: judge, ask, take the fork, acquire a sandbox, checkpoint, run, collect, record, journal.

A user's command, an agent's command and an apply's verification all take these steps, each with its own actor.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from mudroom.core.result import REFUSED, Denial, Result, RootResult, denial_to_json, exit_code_of, text, verdict_to_json
from mudroom.core.tree.change import Changeset, summarise
from mudroom.errors import FULL, ForkGone, MudroomError, RunUnwritten
from mudroom.session.approval import Approval
from mudroom.session.forks import Forks
from mudroom.session.machine import Machine
from mudroom.session.order import Case, CommandEnd, Order, Outcome, ProtectionLost
from mudroom.session.sandboxes import Sandboxes
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple
from mudroom.vault.forks.collection import CollectedCommand, changed_paths, recorded_changes
from mudroom.vault.forks.damage import reason_of
from mudroom.vault.store.fork import Fork

if TYPE_CHECKING:
    from mudroom.core.network.flow import Flow

_TRIES = 100
"""Maximum attempts to run a command: another process may discard its fork, or its sandbox may lose a protection."""


MOST_LOOKUP_NOTES = 5
"""Maximum number of notes after a command about allowed hosts that could not be looked up."""


class Parts(NamedTuple):
    """The session's parts that run a command."""

    machine: Machine
    forks: Forks
    approval: Approval
    sandboxes: Sandboxes


def run(parts: Parts, order: Order) -> Result:
    """Run a command in its order's fork and return the result with its changes. The fork is made if it does not exist.
    A refusal is a result, too."""
    outcome = Outcome()
    outcome.cancellation = order.cancellation
    outcome.notes += parts.forks.unsaid()
    name = f"run-{parts.forks.new_id()}" if order.fork is None else order.fork
    for _try in range(_TRIES):
        case = parts.approval.asked(order, parts.approval.judge(order), name)
        outcome.is_networked, outcome.relies = "networked" in case.verdict.classes, case.relies
        if not case.allowed:
            return refused(parts, order, case)
        try:
            return _run_until_free(parts, order, case, outcome, name)
        except ProtectionLost:  # judged again, without that protection
            outcome.has_fork, outcome.checkpoint, outcome.mounted = False, None, None
    raise MudroomError("the sandbox of the command loses protections again and again", "mudroom doctor says why")


def _run_until_free(parts: Parts, order: Order, case: Case, outcome: Outcome, name: str) -> Result:
    """Run an allowed command in the fork ``name``. Make the fork again if another process discards it."""
    for _try in range(_TRIES):
        try:
            return _run_in(parts, order, case, outcome, name)
        except ForkGone:
            if outcome.has_fork:
                raise
    raise MudroomError(f"the fork {name} is discarded again and again", "choose another name")


def _run_in(parts: Parts, order: Order, case: Case, outcome: Outcome, name: str) -> Result:
    """Run an allowed command in the fork ``name``. Raise ForkGone if another process discards the fork before the
    command has it, ProtectionLost if the verdict is void; nothing has run then."""
    end, changeset, duration, roots, words = None, Changeset(), 0.0, tuple[RootResult, ...](), tuple[bytes, ...]()
    paths, beside = dict[str, Any](), list[dict[str, Any]]()
    with parts.forks.taken(name, named=order.fork is not None) as (fork, is_new):
        try:
            with parts.sandboxes.acquire(fork, order, outcome) as sandbox, _beside(parts.forks, fork, order, outcome):
                outcome.has_fork = True
                if parts.approval.holds(order, case, fork):
                    if order.cancellation is not None:
                        order.cancellation.require_unset()
                    if case.wants_checkpoint:
                        outcome.checkpoint = sandbox.checkpoint_before()
                    before = recorded_changes(fork)
                    began = time.monotonic()
                    end = sandbox.run(order, outcome)
                    command = CollectedCommand(
                        order.argv,
                        exit_code_of(end.exit.status, timed_out=end.timed_out),
                        parts.forks.clock(),
                        order.grant.level,
                    )
                    if parts.forks.progress is not None:
                        parts.forks.progress("collecting the changes", 0, 0)
                    try:
                        changeset = sandbox.collect(command)
                        words = _redacted(parts.forks, order) if order.roots else ()
                        roots = outcome.roots.collect(command._replace(argv=words)) if order.roots else ()
                    except (MudroomError, OSError) as error:
                        ran = result_of(fork.name, order, case, outcome, end)
                        _journal_uncollected(parts.forks, order, ran._replace(duration=time.monotonic() - began), error)
                        raise
                    beside = outcome.roots.paths if order.roots else beside
                    paths = changed_paths(parts.forks.vault, fork, before, changeset, parts.forks.secrets.hides)
                    duration = time.monotonic() - began
        except ProtectionLost:
            if is_new and order.fork is not None:  # ``taken`` discards an unnamed one
                parts.forks.take_back(fork)
            raise
        if end is None:
            if is_new:
                parts.forks.take_back(fork)
            return refused(parts, order, case.changed())
        result = result_of(fork.name, order, case, outcome, end)._replace(changeset=changeset, duration=duration)
        result = result._replace(roots=roots)
        _journal_run(parts.forks, order, result, outcome, paths)
        for root, (_tied, session), touched in zip(roots, order.roots, beside, strict=True):
            if root.changeset.changes:
                there = result._replace(changeset=root.changeset, command=words)
                _journal(session.forks, "run", order, there, touched)
        return result


def _beside(forks: Forks, fork: Fork, order: Order, outcome: Outcome) -> AbstractContextManager[None]:
    """Return a block with the fork's parts in the order's other projects."""
    if not order.roots:
        return nullcontext()
    from mudroom.session.own_sandbox import settled_vault
    from mudroom.session.roots import staged_roots

    return staged_roots(forks, fork, order, outcome, settled_vault)


def _redacted(forks: Forks, order: Order) -> tuple[bytes, ...]:
    """Return a command without this project's secrets, for the records of other projects."""
    from mudroom.core.text.redaction import redact_argv

    return tuple(redact_argv(order.argv, forks.vault.secrets()))


def refused(parts: Parts, order: Order, case: Case) -> Result:
    """Journal a refused command and return its result."""
    result = Result(
        fork=order.fork or "",
        command=order.argv,
        level=order.grant.level,
        exit_code=REFUSED,
        verdict=case.final,
        approval=case.answer,
        ran=False,
    )
    try:
        _journal(parts.forks, "verdict", order, result)
    except MudroomError as error:
        raise MudroomError(f"the command was refused; {error.message}", error.hint) from error
    return result


def result_of(fork: str, order: Order, case: Case, outcome: Outcome, end: CommandEnd) -> Result:
    """Return a command's result, without its changes."""
    ended, output = end.exit, end.output
    return Result(
        fork=fork,
        command=order.argv,
        level=order.grant.level,
        exit_code=exit_code_of(ended.status, timed_out=end.timed_out),
        signal=(ended.status & 0x7F) or None,
        timed_out=end.timed_out,
        stdout=output.captured("stdout"),
        stderr=output.captured("stderr"),
        truncated=any(stream.truncated for stream in output.streams),
        cpu=ended.user + ended.system,
        max_rss=ended.max_rss,
        denials=(*_denials(ended.refused), *refused_hosts(end.flows)),
        reached=end.reached,
        use=end.use,
        notes=(*outcome.notes, *lookup_notes(end.flows), *page_notes(end.flows, ended.status)),
        credentials=order.grant.credentials,
        verdict=case.final,
        checkpoint=outcome.checkpoint,
        approval=case.answer,
        left=end.left,
    )


def _denials(refused: tuple[bytes, ...]) -> Sequence[Denial]:
    if not refused:
        return ()
    from mudroom.sandbox.host.denials import denials

    return denials(refused)


def refused_hosts(flows: Sequence[Flow]) -> list[Denial]:
    """Return one denial, with a count, for each refused host and port."""
    times: dict[tuple[str, str], int] = {}
    for flow in flows:
        if flow.verdict == "deny":
            host = f"[{flow.host}]" if ":" in flow.host else flow.host
            key = (f"{host}:{flow.port}" if flow.port else flow.host, flow.reason)
            times[key] = times.get(key, 0) + 1 + flow.repeats
    return [Denial("network", host.encode(), reason, count) for (host, reason), count in times.items()]


def page_notes(flows: Sequence[Flow], status: int) -> list[str]:
    """Return a note if a command has ended with 0 although a refused request was answered by a page. A profile's rules
    refuse telemetry: that changes no result."""
    pages = [flow for flow in flows if flow.verdict == "deny" and flow.way in ("http", "https")]
    if status or all(flow.rule.startswith("profile ") for flow in pages):
        return []
    return ["the exit status is 0, but a refused request was answered: by a page with status 403 (curl -f fails then)"]


def lookup_notes(flows: Sequence[Flow]) -> list[str]:
    """Return a note for each allowed host that could not be looked up: clients show the proxy's status only."""
    failed = {flow.error: None for flow in flows if flow.error.startswith(f"{flow.host} cannot be looked up")}
    more = len(failed) - MOST_LOOKUP_NOTES
    return [*list(failed)[:MOST_LOOKUP_NOTES], *([f"{more} more hosts cannot be looked up"] if more > 0 else [])]


def _journal_run(forks: Forks, order: Order, result: Result, outcome: Outcome, paths: dict[str, Any]) -> None:
    """Journal a run and the paths that it changed. If that fails, raise RunUnwritten, which names the fork with the
    collected changes."""
    try:
        _journal(forks, "run", order, result, paths)
        if outcome.unwritten is not None:
            raise outcome.unwritten
    except MudroomError as error:
        from mudroom.vault.journal.journal import MAKE_ROOM

        has_changes = bool(result.changeset.changes)
        hint = error.hint
        if has_changes and hint == MAKE_ROOM:
            hint += f": mudroom discard {result.fork} gives back what it holds"
        raise RunUnwritten(result.exit_code, error.message, hint, result.fork, has_changes=has_changes) from error


def _journal_uncollected(forks: Forks, order: Order, result: Result, error: MudroomError | OSError) -> None:
    """Journal a run whose changes could not be collected, and raise MudroomError with the reason. The fork stays as
    after a crash: its next user collects the changes.

    If the disk is full, return instead: the caller raises that error again, and front doors know what to discard.
    """
    reason = reason_of(error)
    done = f"the command has run (exit code {result.exit_code}) in the fork {result.fork}"
    hint = f"mudroom diff {result.fork} tries again, mudroom discard {result.fork} drops the fork"
    try:
        _journal(forks, "run", order, result, {"uncollected": reason})
    except MudroomError as unwritten:
        reason += f"; {unwritten.message}"
    if not isinstance(error, OSError) or error.errno not in FULL:
        raise MudroomError(f"{done}, but its changes could not be collected: {reason}", hint) from error


def _journal(forks: Forks, kind: str, order: Order, result: Result, more: dict[str, Any] | None = None) -> None:
    """``more``: further fields: the changed paths, or why the changes could not be collected (``uncollected``)."""
    data = {
        "command": [text(word) for word in result.command],
        "cwd": text(order.cwd),
        "agent": order.actor.agent,
        "verdict": verdict_to_json(result.verdict),
        "checkpoint": result.checkpoint,
        "level": result.level,
        "credentials": list(result.credentials),
        "exit_code": result.exit_code,
        "timed_out": result.timed_out,
        "duration_ms": round(result.duration * 1000),
        "changed": summarise(result.changeset.changes).files,
        "notes": list(result.notes),
        "denials": [denial_to_json(denial) for denial in result.denials],
    }
    if result.reached:
        data["limits"] = [limit._asdict() for limit in result.reached]
    forks.journal(kind, result.fork, data | (more or {}))
