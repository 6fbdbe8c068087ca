"""``diff``, ``status``: the fork's changes, and the commands that run in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain

from mudroom.core.network.push import PushRow, push_lines, push_to_json
from mudroom.core.result import path_fields, text
from mudroom.core.tree.change import Change, counted_changes, summarise
from mudroom.core.tree.path import is_below
from mudroom.core.tree.rollup import Roll, roll_up
from mudroom.ext.agents.tools import schema
from mudroom.ext.agents.tools.error import ToolError
from mudroom.ext.agents.tools.path import shown
from mudroom.ext.agents.tools.tool import MOST, Hints, Tool, ToolContext, ToolResult, decoded
from mudroom.ext.agents.tools.workspace import ToolWorkspace, words
from mudroom.typing import TYPE_CHECKING, Any
from mudroom.vault.forks.review import not_reviewed
from mudroom.vault.store.fork import is_plain

if TYPE_CHECKING:
    from mudroom.session import Session


import json

from mudroom.core.tree.change import Changeset
from mudroom.core.tree.quote import show_text
from mudroom.core.tree.stack import Checkpoint
from mudroom.session.forks import Forks
from mudroom.typing import NamedTuple

LOOKED_AT = 500
"""Journal events that are searched for refusals."""
MOST_DENIALS = 100


class ForkReport(NamedTuple):
    """A report about a fork, for an agent: its state, changes and refusals."""

    state: str
    """``idle``, ``running``, ``cut off`` (mudroom itself ended during the last command), ``mounted``."""
    changeset: Changeset
    checkpoints: tuple[Checkpoint, ...] = ()
    denials: tuple[dict[str, Any], ...] = ()
    """Denials from the last commands, newest first, as in their results."""


def inspect(forks: Forks, name: str) -> ForkReport:
    """Return a fork's state, its changes and its commands' refusals. Raise UsageError if the fork does not exist."""
    record = forks.record(name)
    fork = forks.vault.fork(name)
    words = {"running": fork.interrupted is not None, "mounted": name in forks.mounts()}
    words["cut off"] = record is not None and not record.command
    return ForkReport(
        next((word for word, is_so in words.items() if is_so), "idle"),
        record.changeset if record is not None else Changeset(),
        fork.state.checkpoints,
        _denied(forks, name),
    )


def _denied(forks: Forks, name: str) -> tuple[dict[str, Any], ...]:
    """Return the refusals of a fork's last commands, newest first, by the policy or by the sandbox."""
    denials: list[dict[str, Any]] = []
    for event in forks.vault.journal.events(last=LOOKED_AT):
        if event.fork == name and event.kind in ("run", "verdict"):
            data = json.loads(event.data)
            denials += data["denials"]
            if event.kind == "verdict":
                reason = data["verdict"]["reason"]
                denials.append({"kind": "command", "target": show_text(data["command"]), "reason": reason, "count": 1})
    return tuple(reversed(denials))[:MOST_DENIALS]


_ROWS = 100
_NAMED = 20


def changed_paths(workspace: ToolWorkspace, paths: list[str]) -> list[bytes]:
    """Return a model's paths as paths in the project. A path that was deleted in the fork is valid, too."""
    tree = workspace.tree()
    return [workspace.path(tree, path) for path in paths]


def secrets_of(session: Session) -> Callable[[Change], bool]:
    """Return a function that tells whether a change is to a secret of the project that is hidden from the session's
    commands: a command to which the user has shown the secret may have made the change."""
    hides = session.forks.secrets.hides
    return lambda change: (
        change.base is not None and (hides(change.path) or bool(change.source and hides(change.source)))
    )


def _diff(workspace: ToolWorkspace, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    del context
    session, name = workspace.session, workspace.fork
    paths = [path for path in changed_paths(workspace, arguments["paths"] or []) if path]
    start, point, in_use, held_rows = arguments["offset"], arguments["since"], "", list[PushRow]()
    is_secret = secrets_of(session)
    if point:
        with session.forks.compare(f"{name}@{point}", name) as comparison:
            chosen = _chosen(comparison.changeset.changes, paths)
            open_ones = [change for change in chosen if not is_secret(change)]
            lines = chain(comparison.lines(open_ones), _not_shown(chosen, open_ones))
            part, more = _part(lines, start)
    else:
        held_rows = session.changes.pushes(name)
        look = session.changes.look(name)
        chosen, in_use = _chosen(look.changeset.changes, paths), look.in_use
        open_ones = [change for change in chosen if not is_secret(change)]
        told = (f"# {line}\n".encode() for row in held_rows if not paths for line in push_lines(row))
        lines = chain(session.changes.diff(name, paths, without=is_secret), _not_shown(chosen, open_ones), told)
        part, more = _part(lines, start)
    summary = summarise(chosen)
    data = {
        "diff": part,
        "more": more,
        "offset": start,
        "files": summary.files,
        "lines_added": summary.lines_added,
        "lines_removed": summary.lines_removed,
        "in_use": in_use,
        "held": [push_to_json(row) for row in held_rows],
    }
    if in_use:
        part = f"[{not_reviewed(name, in_use)}]\n{part}"
    if more:
        part += f"[… the diff goes on: diff with offset {start + part.count(chr(10))}, or with paths]\n"
    return ToolResult(part or "[no difference]\n", data)


def _not_shown(changes: Collection[Change], shown_ones: Collection[Change]) -> Iterator[bytes]:
    for change in changes:
        if change not in shown_ones:
            yield f"# {shown(change.path)}: a secret of the user's, which is not shown\n".encode()


def _chosen(changes: tuple[Change, ...], paths: list[bytes]) -> list[Change]:
    return [change for change in changes if not paths or any(is_below(change.path, path) for path in paths)]


def _part(lines: Iterator[bytes], start: int) -> tuple[str, bool]:
    """Return the lines from ``start`` (from 0) on, as many as fit, and whether there are more."""
    part: list[str] = []
    size = 0
    for number, line in enumerate(lines):
        if number < start:
            continue
        if size >= MOST:
            return "".join(part), True
        row = decoded(line)
        row = row if len(row) <= MOST // 4 else row[: MOST // 4] + "…\n"
        part.append(row)
        size += len(row)
    return "".join(part), False


def _status(workspace: ToolWorkspace, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    del arguments, context
    session, name = workspace.session, workspace.fork
    report = inspect(session.forks, name)
    changes = report.changeset.changes
    summary = summarise(changes)
    rows, rolls = roll_up(changes, lines=_ROWS)
    backgrounds = session.sandboxes.backgrounds(name)
    running = [started for started, ended in backgrounds if ended is None]
    actor = workspace.actor or session.actor
    level = session.machine.granted(actor).level
    network = actor.settings.network_at(level)
    differing = "1 file differs" if summary.files == 1 else f"{summary.files:,} files differ"
    lines = [
        f"fork {name} of {shown(session.project)}: staged, nothing lands before the user applies it",
        f"commands: level {level}, network {network}",
        f"{differing} from the project, +{summary.lines_added:,} -{summary.lines_removed:,} lines",
    ]
    lines += [_row(change) for change in rows[:_ROWS]]
    lines += [_roll(roll) for roll in rolls]
    if len(rows) > _ROWS:
        lines.append(f"  … {len(rows) - _ROWS:,} more; diff shows them")
    lines += [f"note: {shown(remark.path)}: {remark.text}" for remark in report.changeset.remarks[:_NAMED]]
    lines += [f"in the background: {started.id}: {words(started.command)}" for started in running[:_NAMED]]
    held_rows = session.changes.pushes(name)
    lines += [f"held until the user applies it: {line}" for row in held_rows for line in push_lines(row)[:1]]
    points = [point.name for point in report.checkpoints]
    if points:
        lines.append(f"checkpoints: {', '.join(points[-_NAMED:])}")
    for denial in report.denials[:5]:
        lines.append(f"refused: {denial['target']}: {denial['reason']}")
    data = {
        "fork": name,
        "project": text(session.project),
        "state": report.state,
        "level": level,
        "network": network,
        "files": summary.files,
        "lines_added": summary.lines_added,
        "lines_removed": summary.lines_removed,
        "changes": [_change(change) for change in list(counted_changes(changes))[:1_000]],
        "background": [
            {"id": started.id, "command": words(started.command), "running": ended is None}
            for started, ended in backgrounds
        ],
        "checkpoints": points,
        "held": [push_to_json(row) for row in held_rows],
        "denials": list(report.denials[:_NAMED]),
    }
    return ToolResult("\n".join(lines) + "\n", data)


def _row(change: Change) -> str:
    counts = f"  +{change.lines_added} -{change.lines_removed}" if change.lines_added or change.lines_removed else ""
    source = f" (from {shown(change.source)})" if change.source else ""
    later = f"  runs later: {change.runs}" if change.runs else ""
    return f"  {change.verb:<8} {shown(change.path)}{source}{counts}{later}"


def _roll(roll: Roll) -> str:
    counts = ", ".join(
        f"{count:,} {verb}"
        for verb, count in zip(("added", "modified", "deleted", "renamed"), roll[1:5], strict=True)
        if count
    )
    return f"  {shown(roll.path)}/: {counts}"


def _change(change: Change) -> dict[str, Any]:
    row: dict[str, Any] = {
        **path_fields(change.path),
        "change": change.verb,
        "lines_added": change.lines_added,
        "lines_removed": change.lines_removed,
    }
    return row | path_fields(change.source, "from") if change.source else row


def _drop(workspace: ToolWorkspace, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    del context
    session, name = workspace.session, workspace.fork
    workspace.require_idle()
    with workspace.edits:
        session.changes.drop_pushes(name, arguments["effects"])
    held_rows, lines = session.changes.pushes(name), [*session.forks.unsaid()]
    lines += [f"held until the user applies it: {line}" for row in held_rows for line in push_lines(row)[:1]]
    return ToolResult("\n".join(lines) + "\n", {"held": [push_to_json(row) for row in held_rows]})


_STRING, _INTEGER = {"type": "string"}, {"type": "integer"}
_STRINGS = {"type": "array", "items": _STRING}
_ROWS_OF_OBJECTS = {"type": "array", "items": {"type": "object"}}

CHANGE_TOOLS = (
    Tool(
        "diff",
        "Show what has changed",
        "Show your fork's changes against the user's project as a unified diff, or since one of its checkpoints. This "
        "is what the user will be asked to apply.",
        schema.of_object(
            {
                "paths": schema.array("Only at and below these.", schema.string("A path.", most=4_096), most=200),
                "since": schema.string("A checkpoint. Default: the project.", most=200, default=""),
                "offset": schema.integer("Lines of the diff to skip.", 0, 10**9, default=0),
            }
        ),
        schema.of_object(
            {
                "diff": _STRING,
                "more": {"type": "boolean"},
                "offset": _INTEGER,
                "files": _INTEGER,
                "lines_added": _INTEGER,
                "lines_removed": _INTEGER,
                "held": {**_ROWS_OF_OBJECTS, "description": "Pushes, publishes and requests that wait for the apply."},
                "in_use": {**_STRING, "description": "Why this is only a look; empty: nothing runs in the fork."},
            },
            ("diff", "more", "files"),
            is_open=True,
        ),
        Hints(read_only=True, idempotent=True),
        _diff,
    ),
    Tool(
        "status",
        "Show where you stand",
        "Show your fork: its name, the changed files, commands in the background, checkpoints, and what was refused.",
        schema.of_object({}),
        schema.of_object(
            {
                "fork": _STRING,
                "project": _STRING,
                "state": _STRING,
                "level": _INTEGER,
                "network": _STRING,
                "files": _INTEGER,
                "changes": _ROWS_OF_OBJECTS,
                "background": _ROWS_OF_OBJECTS,
                "checkpoints": _STRINGS,
                "held": _ROWS_OF_OBJECTS,
                "denials": _ROWS_OF_OBJECTS,
            },
            ("fork", "project", "files", "changes", "background", "checkpoints"),
            is_open=True,
        ),
        Hints(read_only=True, idempotent=True),
        _status,
    ),
    Tool(
        "drop_held",
        "Drop what waits to be sent",
        "Drop pushes, publishes, mail or requests of your fork that wait until the user applies it, such as a wrong "
        "push. diff and status show them. They are gone unsent, and the files stay.",
        schema.of_object(
            {"effects": schema.array("Such as push:1.", schema.string("Its name.", most=200), most=100)}, ("effects",)
        ),
        schema.of_object({"held": _ROWS_OF_OBJECTS}, ("held",), is_open=True),
        Hints(destructive=True),
        _drop,
    ),
)


def require_point(name: str) -> str:
    """Return a checkpoint's name. Raise ToolError if it is not valid."""
    if not is_plain(name):
        raise ToolError(
            f"{ascii(name)[:80]} cannot be a checkpoint's name", "letters, digits, - _ . and at most 64 characters"
        )
    return name
