"""``list``, ``glob``, ``grep``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping

from mudroom.core.result import path_fields
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import is_below, sort_key
from mudroom.errors import UsageError
from mudroom.ext.agents.tools import schema
from mudroom.ext.agents.tools.error import ToolError
from mudroom.ext.agents.tools.matcher import Matcher
from mudroom.ext.agents.tools.path import named, shown
from mudroom.ext.agents.tools.tool import MOST, Hints, Tool, ToolContext, ToolResult, decoded, short_line
from mudroom.ext.agents.tools.workspace import ToolWorkspace, bounded
from mudroom.stage.buffer.files import Files, Tree
from mudroom.typing import Any

SKIPPED = frozenset(
    b".git .hg .jj .svn node_modules .venv venv __pycache__ .mypy_cache .pytest_cache .ruff_cache .tox .gradle".split()
)
"""Directories that a wildcard does not enter; a path or pattern that names one does."""
LARGEST = 5_000_000
"""Bytes in a file that ``grep`` searches."""
SECONDS = 30.0
"""After this time ``grep`` returns the matches so far."""
_HEAD = 8_192

_LIMIT = 1_000
_PATH = schema.string("A directory, relative to the project; default: all of the project.", most=4_096, default="")
_NOTE = f"Skips {', '.join(sorted(map(bytes.decode, SKIPPED))[:4])} … unless named."


class _Pruned:
    """A tree whose listings lack the skipped directories, and end after ``SECONDS``, or with their call. Only for
    reading."""

    def __init__(self, tree: Tree, skipped: set[bytes], context: ToolContext) -> None:
        self._tree, self._skipped, self._context = tree, skipped, context
        self._until = time.monotonic() + SECONDS

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree, name)

    def names(self, path: bytes) -> dict[bytes, Entry]:
        if self._context.is_cancelled or time.monotonic() >= self._until:
            raise ToolError(f"the search was ended after {SECONDS:g} s", "narrow path")
        entries = self._tree.names(path)
        for name in SKIPPED & entries.keys():
            if entries[name].kind == "directory":
                del entries[name]
                self._skipped.add(name)
        return entries


def _directory(workspace: ToolWorkspace, path: str, tree: Tree) -> bytes:
    at = workspace.path(tree, path) if path not in ("", ".", "./") else b""
    entry = tree.look(at) if at else None
    if at and entry is None:
        raise ToolError(f"{shown(at)} does not exist", "list shows what there is")
    return at


def _list(workspace: ToolWorkspace, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    del context
    tree = workspace.tree()
    at = _directory(workspace, arguments["path"], tree)
    entry = tree.look(at) if at else None
    if entry is not None and entry.kind != "directory":
        raise ToolError(f"{shown(at)} is a {entry.kind}, not a directory", "read shows a file")
    names = sorted(tree.names(at).items(), key=lambda item: (item[1].kind != "directory", sort_key(item[0])))
    start = arguments["offset"]
    rows = [_entry(name, below) for name, below in names[start : start + _LIMIT]]
    lines = [_line(name, below) for name, below in names[start : start + _LIMIT]]
    left = len(names) - start - len(rows)
    if left > 0:
        lines.append(f"[… {left:,} more: list with offset {start + len(rows)}]")
    text = "\n".join(lines) or "[empty]"
    return ToolResult(text + "\n", {"path": named(at), "entries": rows, "more": max(left, 0)})


def _entry(name: bytes, entry: Entry) -> dict[str, Any]:
    row: dict[str, Any] = {**path_fields(name, "name"), "kind": entry.kind, "bytes": entry.size}
    if entry.kind == "symlink":
        row |= path_fields(entry.target, "target")
    return row


def _line(name: bytes, entry: Entry) -> str:
    if entry.kind == "directory":
        return f"{shown(name)}/"
    if entry.kind == "symlink":
        return f"{shown(name)} -> {shown(entry.target)}"
    return f"{shown(name)}  {entry.size:,}" if entry.kind == "file" else f"{shown(name)}  ({entry.kind})"


def _glob(workspace: ToolWorkspace, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    tree = workspace.tree()
    skipped: set[bytes] = set()
    at = _directory(workspace, arguments["path"], tree)
    paths = _globbed(tree, at, arguments["pattern"], skipped, context)
    entries = ((path, tree.look(path)) for path in paths)
    found = sorted(
        ((path, entry) for path, entry in entries if entry is not None and entry.kind != "directory"),
        key=lambda item: (-item[1].mtime, item[0]),
    )
    limit = arguments["limit"]
    listed = [named(path) for path, _entry in found[:limit]]
    lines = [shown(path) for path, _entry in found[:limit]]
    if len(found) > limit:
        lines.append(f"[… {len(found) - limit:,} more: narrow the pattern, or raise limit]")
    if skipped:
        lines.append(f"[not searched: {_names(skipped)}; name one in the pattern to search it]")
    text = "\n".join(lines) if lines else "[no file matches]"
    data = {"paths": listed, "found": len(found), "skipped": sorted(map(decoded, skipped))}
    return ToolResult(text + "\n", data)


def _names(skipped: set[bytes]) -> str:
    return ", ".join(sorted(map(shown, skipped)))


def _globbed(tree: Tree, at: bytes, pattern: str, skipped: set[bytes], context: ToolContext) -> list[bytes]:
    """Return the matching paths. ``pattern``: relative to the directory ``at``."""
    pruned: Any = _Pruned(tree, skipped, context)
    raw = pattern.encode("utf-8", "surrogateescape").lstrip(b"/") if pattern.isprintable() else b""
    if not raw or b".." in raw.split(b"/"):
        raise ToolError(f"{ascii(pattern)[:80]} is not a pattern of paths in the project", "such as **/*.py or src/*")
    if b"/" not in raw:
        raw = b"**/" + raw  # as people mean *.py
    parts = [part for part in raw.split(b"/") if part]
    whole = [part for index, part in enumerate(parts) if not (part == b"**" and index and parts[index - 1] == b"**")]
    prefix = b"".join(b"[%s]" % at[index : index + 1] if at[index : index + 1] in b"*?[" else at[index : index + 1]
                      for index in range(len(at)))  # fmt: skip
    try:
        names = Files(lambda: pruned).glob(b"/".join([prefix, *whole] if at else whole))
    except UsageError as error:
        raise ToolError(error.message, "such as **/*.py or src/*") from None
    return [os.fsencode(name) for name in names]


def _grep(workspace: ToolWorkspace, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    tree = workspace.tree()
    limit, around = arguments["limit"], arguments["context"]
    skipped: set[bytes] = set()
    at = _directory(workspace, arguments["path"], tree)
    entry = tree.look(at) if at else None
    if entry is not None and entry.kind == "file":
        paths = [at]
    else:
        paths = sorted(_globbed(tree, at, arguments["glob"] or "**", skipped, context), key=sort_key)
    until = time.monotonic() + SECONDS
    matches: list[dict[str, Any]] = []
    lines: list[str] = []
    large, files, size, why = 0, 0, 0, ""
    with Matcher(
        arguments["pattern"], ignore_case=arguments["ignore_case"], cancelled=lambda: context.is_cancelled
    ) as matcher:
        for content, path in _contents(tree, paths, at):
            if content is None:
                large += 1
                continue
            numbers = matcher.lines(content, shown(path))
            files += bool(numbers)
            rows = content.split(b"\n") if numbers else []
            for line in _shown(rows, numbers[: max(limit - len(matches), 0)], around):
                text = short_line(decoded(rows[line - 1].rstrip(b"\r")))
                is_match = line in numbers
                lines.append(f"{shown(path)}{':' if is_match else '-'}{line}{':' if is_match else '-'}{text}")
                size += len(lines[-1])
                if is_match:
                    matches.append({"path": named(path), "line": line, "text": text})
            if len(matches) >= limit or size > MOST:
                why = "the limit is reached: narrow the pattern, path or glob"
                break
            if time.monotonic() >= until or context.is_cancelled:
                why = f"the search was ended after {SECONDS:g} s: narrow path or glob"
                break
    if why:
        lines.append(f"[… {why}]")
    if large:
        lines.append(f"[{large:,} files of more than {LARGEST:,} bytes were not searched: use bash with grep]")
    if skipped:
        lines.append(f"[not searched: {_names(skipped)}; name one in path or glob to search it]")
    if not matches:
        lines.insert(0, "[no line matches]")
    data = {"matches": matches, "files": files, "complete": not why and not large, "why": why}
    return ToolResult("\n".join(lines) + "\n", data)


def _contents(tree: Tree, paths: list[bytes], at: bytes) -> Iterator[tuple[bytes | None, bytes]]:
    """Yield each text file's content with its path; None for a file that is too large."""
    for path in paths:
        entry = tree.look(path) if is_below(path, at) else None
        if entry is None or entry.kind != "file":
            continue
        if entry.size > LARGEST:
            yield None, path
            continue
        try:
            content = bounded(tree, path, LARGEST)
        except ToolError:
            yield None, path
            continue
        except OSError:
            continue  # it is gone, or not readable: the search goes on with the rest
        if b"\0" not in content[:_HEAD]:
            yield content, path


def _shown(rows: list[bytes], numbers: list[int], around: int) -> list[int]:
    """Return the lines to show, by number: matching lines and the lines around them."""
    wanted: dict[int, None] = {}
    last = len(rows) - (not rows[-1]) if rows else 0
    for number in numbers:
        for near in range(max(number - around, 1), min(number + around, max(last, number)) + 1):
            wanted[near] = None
    return sorted(wanted)


_STRING, _INTEGER = {"type": "string"}, {"type": "integer"}

SEARCH_TOOLS = (
    Tool(
        "list",
        "List a directory",
        "List a directory of your staged copy of the project: directories first, then files with their sizes in bytes.",
        schema.of_object(
            {"path": _PATH, "offset": schema.integer("Entries to skip.", 0, 10**9, default=0)},
        ),
        schema.of_object(
            {
                "path": _STRING,
                "entries": {
                    "type": "array",
                    "items": schema.of_object(
                        {"name": _STRING, "kind": _STRING, "bytes": _INTEGER}, ("name", "kind"), is_open=True
                    ),
                },
                "more": _INTEGER,
            },
            ("path", "entries", "more"),
            is_open=True,
        ),
        Hints(read_only=True, idempotent=True),
        _list,
    ),
    Tool(
        "glob",
        "Find files by name",
        "Find files by a pattern, the newest first: *.py anywhere, src/*.py, src/**/*.test.ts. " + _NOTE,
        schema.of_object(
            {
                "pattern": schema.string("** matches any directories, * any name in one directory.", most=1_000),
                "path": _PATH,
                "limit": schema.integer("Most paths.", 1, 10_000, default=200),
            },
            ("pattern",),
        ),
        schema.of_object(
            {
                "paths": {"type": "array", "items": _STRING},
                "found": _INTEGER,
                "skipped": {"type": "array", "items": _STRING},
            },
            ("paths", "found"),
            is_open=True,
        ),
        Hints(read_only=True, idempotent=True),
        _glob,
    ),
    Tool(
        "grep",
        "Search in files",
        "Search the lines of text files for a regular expression (Python's syntax); prints path:line:text. " + _NOTE,
        schema.of_object(
            {
                "pattern": schema.string("Regular expression, matched within a line.", most=10_000),
                "path": schema.string("A directory or file; default: all of the project.", most=4_096, default=""),
                "glob": schema.string("Only files that match, such as *.py or src/**/*.ts.", most=1_000, default=""),
                "ignore_case": schema.flag("Upper and lower case are the same."),
                "context": schema.integer("Lines around each match.", 0, 20, default=0),
                "limit": schema.integer("Most matching lines.", 1, 2_000, default=200),
            },
            ("pattern",),
        ),
        schema.of_object(
            {
                "matches": {
                    "type": "array",
                    "items": schema.of_object(
                        {"path": _STRING, "line": _INTEGER, "text": _STRING}, ("path", "line", "text"), is_open=True
                    ),
                },
                "files": _INTEGER,
                "complete": {"type": "boolean", "description": "Whether everything was searched."},
                "why": _STRING,
            },
            ("matches", "files", "complete"),
            is_open=True,
        ),
        Hints(read_only=True, idempotent=True),
        _grep,
    ),
)
