"""``read``, ``write``, ``edit``, ``multi_edit``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from mudroom.core.text.linediff import unified_diff
from mudroom.ext.agents.tools import schema
from mudroom.ext.agents.tools.error import ToolError
from mudroom.ext.agents.tools.path import named, shown
from mudroom.ext.agents.tools.replacement import Edit, edited
from mudroom.ext.agents.tools.tool import MOST, Hints, Tool, ToolContext, ToolResult, decoded, first_part, short_line
from mudroom.ext.agents.tools.workspace import ToolWorkspace, bounded
from mudroom.stage.buffer.files import Tree, no_file, refusal
from mudroom.typing import Any, BinaryIO

LINES = 2_000
"""Lines that ``read`` returns unless fewer are requested."""
LARGEST = 10_000_000
"""Bytes in a file that ``edit`` changes, and characters that ``write`` takes."""
_LINE = 1 << 16
_DIFFED = 1_000_000
"""Largest file, in bytes, whose difference is shown after an edit."""
_HEAD = 8_192
"""Bytes in which a NUL marks a file as binary, as in git."""

_PATH = schema.string("Relative to the project, or absolute inside it.", most=4_096)
_OLD = schema.string("Exact text to replace, with its indentation, without line numbers.")
_NEW = schema.string("Text to put in its place.")
_ALL = schema.flag("Replace every occurrence. Otherwise old_string must occur exactly once.")


def _regular(workspace: ToolWorkspace, tree: Tree, at: bytes) -> int:
    """Return a regular file's size. Raise ToolError if there is none, or it is a secret that is not shown."""
    entry = tree.look(at) if at else None
    if entry is None or entry.kind != "file":
        if not at or (entry is not None and entry.kind == "directory"):
            raise ToolError(f"{shown(at)} is a directory", "list shows what is in it")
        error = no_file(entry, at) if entry is not None else refusal(tree.look, at)
        raise ToolError(f"{shown(at)}: {(error.strerror or 'not a file').lower()}", _similar(tree, at))
    if not entry.size and workspace.session.forks.secrets.hides(at):
        raise ToolError(
            f"{shown(at)} is a secret of the user's, and appears as an empty file",
            "go on without it, or ask the user: secrets.show in the policy shows it",
        )
    return entry.size


def _similar(tree: Tree, at: bytes) -> str:
    """Return a hint where a missing file may be: names that differ in case, or in the same directory with another
    suffix."""
    above, _slash, name = at.rpartition(b"/")
    entry = tree.look(above) if above else None
    if above and (entry is None or entry.kind != "directory"):
        return "glob finds files by name, e.g. **/" + shown(name)
    stem = name.rpartition(b".")[0] or name
    near = [
        other
        for other in tree.names(above)
        if other.lower() == name.lower() or (other.rpartition(b".")[0] or other).lower() == stem.lower()
    ]
    if near:
        return "there is " + ", ".join(shown(above + b"/" + other if above else other) for other in sorted(near)[:3])
    return "glob finds files by name, e.g. **/" + shown(name)


def _read(workspace: ToolWorkspace, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    tree = workspace.tree()
    at = workspace.path(tree, arguments["path"])
    size = _regular(workspace, tree, at)
    first, limit = arguments["offset"], arguments["limit"]
    lines: list[str] = []
    number, length, more = 0, 0, False
    with tree.readable(at) as stream:
        if b"\0" in stream.read(_HEAD):
            raise ToolError(f"{shown(at)} is binary, {size:,} bytes", "look at it by bash: file, xxd, strings")
        stream.seek(0)
        for number, raw in enumerate(_lines(stream), 1):
            if number < first:
                continue
            line = short_line(decoded(raw).rstrip("\r\n"))
            if len(lines) >= limit or length + len(line) > MOST or context.is_cancelled:
                more = True
                break
            lines.append(line)
            length += len(line) + 1
    last = first + len(lines) - 1
    if not lines and number:
        raise ToolError(f"{shown(at)} has {number:,} lines; offset {first:,} is behind its end", "leave offset out")
    text = "".join(f"{first + index:>6}\t{line}\n" for index, line in enumerate(lines))
    if more:
        text += f"[… the file goes on: read with offset {last + 1}]\n"
    data = {"path": named(at), "text": "\n".join(lines), "first_line": first, "last_line": last, "more": more}
    return ToolResult(text or "[the file is empty]\n", {**data, "bytes": size})


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield lines, each up to ``_LINE`` bytes: a file with only one line may not fit into memory."""
    while line := stream.readline(_LINE):
        piece = line
        while piece and not piece.endswith(b"\n"):
            piece = stream.readline(_LINE)
        yield line


def _write(workspace: ToolWorkspace, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    del context
    content = _encoded(arguments["content"])

    with workspace.edits:
        tree = workspace.tree()
        at = workspace.path(tree, arguments["path"])
        entry = tree.look(at) if at else None
        if not at or (entry is not None and entry.kind == "directory"):
            raise ToolError(f"{shown(at)} is a directory", "name a file in it")
        workspace.write(at, content)
    created = entry is None
    text = f"{'created' if created else 'replaced'} {shown(at)} in the fork, {len(content):,} bytes"
    return ToolResult(text, {"path": named(at), "created": created, "bytes": len(content)})


def _edit(workspace: ToolWorkspace, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    del context
    return _changed(workspace, arguments["path"], [_edit_of(arguments)])


def _multi_edit(workspace: ToolWorkspace, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    del context
    return _changed(workspace, arguments["path"], [_edit_of(edit) for edit in arguments["edits"]])


def _edit_of(arguments: Mapping[str, Any]) -> Edit:
    return Edit(_encoded(arguments["old_string"]), _encoded(arguments["new_string"]), arguments["replace_all"])


def _changed(workspace: ToolWorkspace, path: str, edits: Sequence[Edit]) -> ToolResult:
    with workspace.edits:
        tree = workspace.tree()
        at = workspace.path(tree, path)
        if _regular(workspace, tree, at) > LARGEST:
            raise ToolError(f"{shown(at)} is larger than {LARGEST:,} bytes", "edit it by bash, e.g. with sed or python")
        before = bounded(tree, at, LARGEST)
        if b"\0" in before[:_HEAD]:
            raise ToolError(f"{shown(at)} is binary", "change it by bash")
        done = edited(before, edits, shown(at))
        workspace.write(at, done.content)
    difference, added, removed = _difference(before, done.content, at)
    data = {
        "path": named(at),
        "replacements": done.replacements,
        "lines_added": added,
        "lines_removed": removed,
        "diff": difference,
    }
    return ToolResult(f"edited {shown(at)} in the fork\n{difference}", data)


def _difference(before: bytes, after: bytes, at: bytes) -> tuple[str, int, int]:
    """Return the difference as text, and the numbers of lines added and removed; for a large file an empty text and
    zeros."""
    if max(len(before), len(after)) > _DIFFED:
        return "", 0, 0

    lines = list(unified_diff(before, after, old_label=b"a/" + at, new_label=b"b/" + at))
    added = sum(line.startswith(b"+") and not line.startswith(b"+++ ") for line in lines)
    removed = sum(line.startswith(b"-") and not line.startswith(b"--- ") for line in lines)
    text, _cut = first_part(decoded(b"".join(lines)), "read shows the file", 4_000)
    return text, added, removed


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolError(f"the text holds a lone surrogate at character {error.start:,}", "send valid Unicode") from None


def failing(error: OSError) -> ToolError:
    """Return a file system error as an error for a model."""
    where = f"{shown(os.fsencode(error.filename))}: " if error.filename else ""
    return ToolError(f"{where}{(error.strerror or str(error)).lower()}")


_STRING, _INTEGER = {"type": "string"}, {"type": "integer"}
_EDITED = schema.of_object(
    {"path": _STRING, "replacements": _INTEGER, "lines_added": _INTEGER, "lines_removed": _INTEGER, "diff": _STRING},
    ("path", "replacements"),
    is_open=True,
)
"""An edit's result."""

FILE_TOOLS = (
    Tool(
        "read",
        "Read a file",
        f"Read a text file of your staged copy of the project, with line numbers. At most {LINES:,} lines per call; "
        "offset reads on from there.",
        schema.of_object(
            {
                "path": _PATH,
                "offset": schema.integer("First line, counted from 1.", 1, 10**9, default=1),
                "limit": schema.integer("Number of lines.", 1, LINES, default=LINES),
            },
            ("path",),
        ),
        schema.of_object(
            {
                "path": _STRING,
                "text": {"type": "string", "description": "The lines, without numbers."},
                "first_line": _INTEGER,
                "last_line": _INTEGER,
                "more": {"type": "boolean", "description": "Whether lines follow."},
                "bytes": _INTEGER,
            },
            ("path", "text", "first_line", "last_line", "more", "bytes"),
            is_open=True,
        ),
        Hints(read_only=True, idempotent=True),
        _read,
    ),
    Tool(
        "write",
        "Write a file",
        "Create a file, or replace all of it; missing directories are made. The write is staged: the user's project "
        "changes only when the user applies your work. Prefer edit for a change of an existing file.",
        schema.of_object(
            {"path": _PATH, "content": schema.string("The whole content.", most=LARGEST)}, ("path", "content")
        ),
        schema.of_object(
            {"path": _STRING, "created": {"type": "boolean"}, "bytes": _INTEGER},
            ("path", "created", "bytes"),
            is_open=True,
        ),
        Hints(destructive=True, idempotent=True),
        _write,
    ),
    Tool(
        "edit",
        "Edit a file",
        "Replace an exact text in a file, which must occur once unless replace_all is set. Read the file first. "
        "Staged: nothing lands in the user's project before the user applies it.",
        schema.of_object(
            {"path": _PATH, "old_string": _OLD, "new_string": _NEW, "replace_all": _ALL},
            ("path", "old_string", "new_string"),
        ),
        _EDITED,
        Hints(destructive=True),
        _edit,
    ),
    Tool(
        "multi_edit",
        "Edit a file in several places",
        "Make several exact replacements in one file, one after another, all or none. Each is as in edit, on the text "
        "that the ones before it leave. Staged: nothing lands before the user applies it.",
        schema.of_object(
            {
                "path": _PATH,
                "edits": schema.array(
                    "The replacements, in order.",
                    schema.of_object(
                        {"old_string": _OLD, "new_string": _NEW, "replace_all": _ALL}, ("old_string", "new_string")
                    ),
                    least=1,
                    most=200,
                ),
            },
            ("path", "edits"),
        ),
        _EDITED,
        Hints(destructive=True),
        _multi_edit,
    ),
)
