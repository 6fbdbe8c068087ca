"""A command's result and its JSON form (``mudroom.result/1``, docs/FORMAT.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mudroom.core.command.verdict import Verdict
from mudroom.core.tree.change import Change, Changeset, counted_changes, summarise
from mudroom.core.tree.path import is_below, show
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mudroom.core.approval.approval import CommandAnswer
    from mudroom.core.confinement.limit import LimitReached, Reading
    from mudroom.core.merge.merge import Conflict
    from mudroom.core.tree.entry import Entry
    from mudroom.core.tree.similar_renames import Move

SCHEMA = "mudroom.result/1"
REFUSED = 126
"""Exit code if the policy or an approver refused the command, which has not run."""
TIMED_OUT = 124
"""Exit code if the command ran out of time, as in timeout(1)."""


class Denial(NamedTuple):
    """An operation that the sandbox refused, as the refusing mechanism reports it; never guessed from output."""

    kind: str
    """``metadata``: chmod, chown, times or xattrs on a file outside the project. ``system call``: refused by the
    filter. ``network``: refused by the gate."""
    target: bytes
    """A path, a system call's name, or a host and port."""
    reason: str
    times: int = 1
    """Number of refusals."""


MOST_LEFT, _NAMED = 100, 3
"""Files outside the project that are listed in JSON, and that are named in a sentence."""


class LeftFile(NamedTuple):
    """A file that a command has written outside the project, where nothing is kept."""

    path: bytes
    """From the host's root, as the command sees it."""
    size: int
    """Bytes."""
    kept: bool = False
    """Whether a copy can be had for a day (``ext/outside``)."""


class Result(NamedTuple):
    fork: str
    command: tuple[bytes, ...]
    level: int
    exit_code: int
    """The command's own exit code, or 128 + signal if a signal ended it."""
    signal: int | None = None
    timed_out: bool = False
    duration: float = 0.0
    """Seconds."""
    changeset: Changeset = Changeset()
    verdict: Verdict = Verdict()
    stdout: bytes = b""
    stderr: bytes = b""
    truncated: bool = False
    cpu: float = 0.0
    """Seconds of processor time used by the command and the children it waited for."""
    max_rss: int = 0
    """KiB."""
    denials: tuple[Denial, ...] = ()
    reached: tuple[LimitReached, ...] = ()
    """Limits that affected the command."""
    use: Reading | None = None
    """The command's control group counters, if it had one."""
    notes: tuple[str, ...] = ()
    """Notes about weaker protection, other differences from the request, and failures."""
    checkpoint: str | None = None
    """The checkpoint that holds the fork's contents before the command."""
    approval: CommandAnswer | None = None
    """The approver's answer, if the command needed approval."""
    credentials: tuple[str, ...] = ()
    """The user's credential stores that were available to the command, named as in its agent's card."""
    left: tuple[LeftFile, ...] = ()
    """Files outside the project that ended with the command."""
    ran: bool = True
    """False: the policy or an approver refused the command."""
    roots: tuple[RootResult, ...] = ()
    """Changes in other projects that were staged, too."""

    @property
    def has_changes(self) -> bool:
        return bool(self.changeset.changes) or any(root.changeset.changes for root in self.roots)


class RootResult(NamedTuple):
    """A command's changes in another project that was staged with the first."""

    path: bytes
    label: str
    is_home: bool
    changeset: Changeset

    def as_json(self) -> dict[str, Any]:
        return {**path_fields(self.path), "home": self.is_home, "changes": changes_to_json(self.changeset)}


def exit_code_of(status: int, *, timed_out: bool = False) -> int:
    """Return the exit code that a shell gives for a wait(2) status. ``timed_out`` has priority over the status: a
    command that ran out of time may have ended in any way."""
    if timed_out:
        return TIMED_OUT
    return 128 + (status & 0x7F) if status & 0x7F else status >> 8


def to_json(result: Result) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "fork": result.fork,
        "command": [text(word) for word in result.command],
        "level": result.level,
        "credentials": list(result.credentials),
        "ran": result.ran,
        "verdict": verdict_to_json(result.verdict),
        "approval": result.approval._asdict() if result.approval is not None else None,
        "exit_code": result.exit_code,
        "signal": result.signal,
        "timed_out": result.timed_out,
        "duration_ms": round(result.duration * 1000),
        "cpu_ms": round(result.cpu * 1000),
        "max_rss_kib": result.max_rss,
        "stdout": result.stdout.decode("utf-8", "replace"),
        "stderr": result.stderr.decode("utf-8", "replace"),
        "truncated": result.truncated,
        "checkpoint": result.checkpoint,
        "changes": changes_to_json(result.changeset),
        "roots": [root.as_json() for root in result.roots],
        "denials": [denial_to_json(denial) for denial in result.denials],
        "limits": [{**limit._asdict(), "text": str(limit)} for limit in result.reached],
        "use": _use(result.use),
        "applied": None,
        "left": _left_to_json(result.left),
        "notes": list(result.notes),
    }


def _left_to_json(left: Sequence[LeftFile]) -> dict[str, Any]:
    files = [{**path_fields(file.path), "bytes": file.size, "kept": file.kept} for file in left[:MOST_LEFT]]
    return {"count": len(left), "bytes": sum(file.size for file in left), "files": files}


def told_files(left: Sequence[LeftFile], home: bytes) -> list[LeftFile]:
    """Return the files for which a user would look, those of the home first: not those below a directory of a temporary
    directory."""
    at_home = [file for file in left if is_below(file.path, home)]
    deepest = {b"tmp": 2, b"var": 3}  # slashes in a path directly in /tmp and in /var/tmp
    return at_home + [file for file in left if file.path.count(b"/") <= deepest.get(file.path.split(b"/")[1], 0)]


def left_sentence(left: Sequence[LeftFile], home: bytes, fork: str) -> str:
    """Return the sentence about what a command in ``fork`` has left outside the project; empty if nothing is told."""
    from mudroom.core.text.plural import amount, counted
    from mudroom.core.tree.quote import show_words

    told = told_files(left, home)
    if not told:
        return ""

    def names(files: Sequence[LeftFile]) -> str:
        paths = [b"~" + file.path[len(home) :] if is_below(file.path, home) else file.path for file in files]
        return ", ".join(map(show, paths[:_NAMED])) + ", …" * (len(paths) > _NAMED)

    size = amount(sum(file.size for file in told))
    said = f"written outside the project and not kept: {names(told)} ({counted(len(told), 'file')}, {size})"
    kept, gone = [file for file in told if file.kept], [file for file in told if not file.kept]
    if not kept:
        return said
    but = f", but not {names(gone)}" if gone else ""
    path = kept[0].path
    is_home = is_below(path, home)  # the shell expands an unquoted ~ only
    word = "~/" * is_home + show_words((path[len(home) + 1 :] if is_home else path,))
    return f"{said}; for a day, mudroom keep {fork} {word} copies it out{but}"


def verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    fields = verdict._asdict() | {"classes": list(verdict.classes)}
    return {key: value for key, value in fields.items() if key != "instead" or value}


def denial_to_json(denial: Denial) -> dict[str, Any]:
    return {"kind": denial.kind, **path_fields(denial.target, "target"), "reason": denial.reason, "count": denial.times}


def _use(use: Reading | None) -> dict[str, Any] | None:
    if use is None:
        return None
    return {
        "memory_peak": use.memory_peak,
        "processes_peak": use.processes_peak,
        "cpu_ms": None if use.cpu is None else round(use.cpu * 1000),
        "throttled_ms": round(use.throttled * 1000),
        "io_read": use.io_read,
        "io_written": use.io_written,
    }


def changes_to_json(changeset: Changeset, moves: Iterable[Move] = ()) -> dict[str, Any]:
    """Return changes as JSON. ``moves``: pairs of changes that together are a renamed and modified file."""
    from mudroom.core.tree.rollup import roll_up

    ends = {path: move for move in moves for path in (move.old, move.new)}
    summary = summarise(changeset.changes)
    _rows, rolls = roll_up(changeset.changes, lines=1_000_000)
    return {
        "summary": {
            "added": summary.added,
            "modified": summary.modified,
            "deleted": summary.deleted,
            "renamed": summary.renamed,
            "lines_added": summary.lines_added,
            "lines_removed": summary.lines_removed,
            "bytes": summary.size,
        },
        "files": [_file(change, ends.get(change.path)) for change in counted_changes(changeset.changes)],
        "rollup": [
            path_fields(roll.path, suffix=b"/")
            | {
                verb: count
                for verb, count in zip(("added", "modified", "deleted", "renamed"), roll[1:5], strict=True)
                if count
            }
            | {"bytes": roll.size}
            for roll in rolls
        ],
        "remarks": [path_fields(remark.path) | {"text": remark.text} for remark in changeset.remarks],
    }


def _file(change: Change, move: Move | None) -> dict[str, Any]:
    from mudroom.core.tree.landing_form import OWNER

    entry = change.entry
    row: dict[str, Any] = {
        **path_fields(change.path),
        "change": change.verb,
        "type": entry.kind,
        "lines_added": change.lines_added,
        "lines_removed": change.lines_removed,
        "binary": change.binary,
        "bytes": change.staged.size if change.staged is not None else 0,
        "flags": list(change.flags),
    }
    if change.runs:
        row["runs_later"] = change.runs
    if change.source:
        row |= path_fields(change.source, "from")
    modes = [_mode(change.base), _mode(change.staged)]
    if modes[1] is not None and modes[0] != modes[1]:
        row["mode"] = modes
    if change.staged is not None and change.staged.kind == "symlink":
        row |= path_fields(change.staged.target, "target")
    if change.staged is not None and OWNER in change.flags:
        row["owner"] = [change.staged.uid, change.staged.gid]
    if not change.original_known:
        row["original_known"] = False
    if move is not None:
        row |= path_fields(move.other(change.path), "moved_from" if change.path == move.new else "moved_to")
        row["similarity"] = move.percent
    return row


def _mode(entry: Entry | None) -> str | None:
    return None if entry is None or entry.kind == "symlink" else f"{entry.mode:04o}"


def path_fields(path: bytes, key: str = "path", suffix: bytes = b"") -> dict[str, str]:
    """Return a path under ``key``, and its bytes under ``key_base64`` if they are not UTF-8."""
    fields = {key: text(path + suffix)}
    if not _is_text(path):
        import binascii

        fields[key + "_base64"] = binascii.b2a_base64(path + suffix, newline=False).decode()
    return fields


def text(raw: bytes) -> str:
    """Decode bytes for JSON. Invalid UTF-8 becomes U+FFFD; ``path_base64`` keeps such a name's bytes."""
    return raw.decode("utf-8", "replace")


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def conflicts_to_json(conflicts: Sequence[Conflict]) -> list[dict[str, str]]:
    return [_conflict(conflict) for conflict in conflicts]


def _conflict(conflict: Conflict) -> dict[str, str]:
    fields = path_fields(conflict.path) | {"reason": conflict.reason}
    if conflict.base_at:
        fields |= path_fields(conflict.base_at, "base")
    return fields | (path_fields(conflict.ours_at, "ours") if conflict.ours_at else {})
