"""A changed file: differences, lines, and bytes.

All input is hostile: names, contents, link targets. Names are escaped by ``core/tree/path.py``, and requested by ids
that encode their bytes. Lines are escaped by ``core/text/escaping.py``. Bytes (``blob``) are sent as a sandboxed image
if they begin like one; otherwise as a download.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple
from urllib.parse import quote

from msgspec import Meta, Struct, structs

from mudroom.core.text.escaping import WIDEST, escape_line
from mudroom.core.tree.path import name, show, show_path
from mudroom.core.tree.path import name as last
from mudroom.errors import ForkMoved, UsageError
from mudroom.ext.order.core.risk import BlockRisk, join_risks, rate
from mudroom.ext.order.reader import LARGEST
from mudroom.ext.reasons.session import Reasons
from mudroom.ext.reasons.telling import observed_lines
from mudroom.ext.review.core.difference import DifferenceLine
from mudroom.ext.review.rows import (
    IMAGE_HEAD,
    MovedRow,
    RowDifference,
    RowSide,
    difference,
    open_side,
    picture_of,
    tags_of,
)
from mudroom.ext.views.kinds.row import FileView
from mudroom.ext.views.reader import kind_at, view_of
from mudroom.ext.web import shape
from mudroom.ext.web.api.endpoint import ApiCall, Endpoint, Raw, id_of, path_of
from mudroom.ext.web.api.region import utf16_spans
from mudroom.ext.web.api.review import AGAIN, Index, mode_of, row_stamp
from mudroom.ext.web.state.refusal import Refusal
from mudroom.ext.web.state.server_state import require_at_rest, require_fork

if TYPE_CHECKING:
    from mudroom.ext.review.core import difference as core
    from mudroom.session import Session


# --- A file's programming language by its name, for syntax highlighting only. Pure ---
# The names are highlight.js's, for the languages in its common build
# (https://github.com/highlightjs/highlight.js/blob/main/SUPPORTED_LANGUAGES.md).


_SUFFIXES = {
    "bash": "sh bash zsh ksh bats envrc",
    "c": "c h",
    "cpp": "cc cpp cxx c++ hh hpp hxx h++ ino inl",
    "csharp": "cs csx",
    "css": "css",
    "diff": "diff patch",
    "go": "go",
    "graphql": "graphql gql",
    "ini": "ini toml cfg conf properties editorconfig gitconfig npmrc service timer desktop",
    "java": "java",
    "javascript": "js jsx mjs cjs",
    "json": "json jsonc json5 jsonl geojson ipynb webmanifest code-workspace",
    "kotlin": "kt kts",
    "less": "less",
    "lua": "lua",
    "makefile": "mk mak make",
    "markdown": "md markdown mdx mkd",
    "objectivec": "m mm",
    "perl": "pl pm t",
    "php": "php phtml",
    "python": "py pyi pyw gyp bzl",
    "r": "r",
    "ruby": "rb rake gemspec podspec ru",
    "rust": "rs",
    "scss": "scss",
    "sql": "sql",
    "swift": "swift",
    "typescript": "ts tsx mts cts",
    "vbnet": "vb",
    "wasm": "wat wast",
    "xml": "xml html htm xhtml svg xsd xsl xslt rss atom plist csproj vcxproj vue",
    "yaml": "yaml yml clang-format clang-tidy",
}
_NAMES = {
    "bash": ".bashrc .bash_profile .profile .zshrc .zshenv .zprofile .bash_aliases PKGBUILD",
    "ini": ".gitmodules pip.conf Cargo.lock poetry.lock uv.lock Pipfile",
    "json": ".babelrc .eslintrc .prettierrc composer.lock Pipfile.lock flake.lock",
    "makefile": "Makefile makefile GNUmakefile",
    "python": "SConstruct SConscript BUILD WORKSPACE",
    "ruby": "Gemfile Rakefile Podfile Vagrantfile Brewfile",
}
_BY_SUFFIX = {suffix.encode(): language for language, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}
_BY_NAME = {name_of_file.encode(): language for language, names in _NAMES.items() for name_of_file in names.split()}


def language_of(path: bytes) -> str:
    """Return the language's highlight.js name, or an empty string for an unknown file name."""
    last = name(path)
    return _BY_NAME.get(last) or _BY_SUFFIX.get(last.rpartition(b".")[2].lower() if b"." in last else b"", "")


# --- Lines from a file that may be too large to be read whole: reads chunks and keeps little. Pure ---


_PART = 4 * WIDEST + 4
"""Bytes kept from a line: enough for all that is shown."""
ENOUGH = 1 << 20
"""Characters after which an excerpt ends, however many lines were requested."""


class Excerpt(NamedTuple):
    total: int
    """Number of lines in the file; if it was not read to its end, the number of lines seen."""
    lines: tuple[DifferenceLine, ...]
    whole: bool = True
    """Whether the file was read to its end."""


class _Reader:
    """Owner: the caller."""

    def __init__(self, side: Literal["old", "new"], first: int, count: int, column: int) -> None:
        self._side, self._wanted, self._column = side, range(first, first + count), column
        self.number, self.lines = 1, list[DifferenceLine]()
        self._length, self._part, self._size = 0, bytearray(), 0

    def read(self, chunk: bytes) -> None:
        at = 0
        while (end := chunk.find(b"\n", at)) >= 0:
            if self.number + 1 < self._wanted.start and not self._length:  # far above: count lines in bulk
                at = self._skip(chunk, at)
                continue
            self._take(chunk, at, end)
            self._end(ends=True)
            at = end + 1
            if self.number >= self._wanted.stop:
                self.number += chunk.count(b"\n", at)
                at = chunk.rfind(b"\n") + 1
                break
        self._take(chunk, at, len(chunk))

    def finish(self, *, whole: bool) -> Excerpt:
        """Return the excerpt. The last line is left out if neither its end nor its full shown part was read."""
        if self._length:
            self._end(ends=not whole, is_whole=whole)
        return Excerpt(self.number - 1, tuple(self.lines), whole)

    def _skip(self, chunk: bytes, at: int) -> int:
        """Skip lines above the wanted ones, halving the size until it fits; return the new index."""
        size = len(chunk) - at
        while True:
            lines = chunk.count(b"\n", at, at + size)
            if self.number + lines < self._wanted.start:
                break
            size //= 2
        if not lines:
            self.number += 1
            return chunk.find(b"\n", at) + 1
        self.number += lines
        return chunk.rfind(b"\n", at, at + size) + 1

    def _start(self) -> int:
        return self._column if self.number == self._wanted.start else 0

    def _take(self, chunk: bytes, at: int, end: int) -> None:
        if self.number in self._wanted and self._size < ENOUGH:
            begin = max(at, at + self._start() - self._length)
            self._part += chunk[begin : min(end, begin + _PART - len(self._part))] if begin < end else b""
        self._length += end - at

    def _end(self, *, ends: bool, is_whole: bool = True) -> None:
        if self.number in self._wanted and self._size < ENOUGH and (is_whole or len(self._part) == _PART):
            start = min(self._start(), self._length)
            escaped_line = escape_line(bytes(self._part))
            until = start + (escaped_line.until if escaped_line.cut else len(self._part))
            cut = self._length - until
            old, new = (self.number, 0) if self._side == "old" else (0, self.number)
            self.lines.append(
                DifferenceLine(
                    " ", old, new, escaped_line.text, -1, (), escaped_line.odd, cut, until if cut else 0, ends
                )
            )
            self._size += len(escaped_line.text)
        self.number += 1
        self._length, self._part = 0, bytearray()


def excerpt(
    chunks: Iterable[bytes],
    side: Literal["old", "new"],
    first: int,
    count: int,
    column: int = 0,
    most: int | None = None,
) -> Excerpt:
    """Return ``count`` lines from line ``first`` (from 1) on; the first line starts at byte ``column``. After ``most``
    bytes no further chunk is read."""
    reader, size = _Reader(side, first, count, column), 0
    for chunk in chunks:
        if most is not None and size >= most:
            return reader.finish(whole=False)
        reader.read(chunk)
        size += len(chunk)
    return reader.finish(whole=True)


BLOB_LIMIT = 20 << 20
"""Bytes in a file that is sent unchanged."""
TEXT_LIMIT = 256 << 20
"""Bytes read from a file to find some lines: a sparse file can be far larger than the disk, and the client may be
gone."""
_CHUNK = 1 << 20


class DiffQuery(Struct):
    file: str
    context: Annotated[int, Meta(ge=0, le=1 << 30)] = 3
    first: Index = 0
    lines: Annotated[int, Meta(ge=1, le=5_000)] = 2_000
    version: str = ""
    old: str = ""
    new: str = ""
    stamp: str = ""
    """From the row in the list: if the row's change is now another, the difference is refused."""
    as_new: bool = False
    """Show a file that was moved and changed as new, without comparing it with its origin."""


class TextQuery(Struct):
    file: str
    side: Literal["old", "new"]
    first: Annotated[int, Meta(ge=1, le=1 << 40)] = 1
    count: Annotated[int, Meta(ge=0, le=5_000)] = 200
    column: Index = 0
    old: str = ""
    new: str = ""


class BlobQuery(Struct):
    file: str
    side: Literal["old", "new"]
    old: str = ""
    new: str = ""


class ViewQuery(Struct):
    file: str
    old: str = ""
    new: str = ""


def view(call: ApiCall) -> FileView:
    with _requested_session(call) as (session, name, between), _refusing_missing():
        file_view = view_of(session, name, path_of(call.query.file), between)
    if file_view is None:
        raise Refusal(404, "not-found", "this file is not shown by parts", "GET /diff shows its lines")
    return file_view


def diff(call: ApiCall) -> shape.DifferenceShape:
    query: DiffQuery = call.query
    path = path_of(query.file)
    with _requested_session(call) as (session, name, between), _refusing_missing():
        difference_ = difference(session, name, path, query.context, between, as_new=query.as_new)
        kind = kind_at(session, name, path, difference_.kind, between)
    if query.version and query.version != difference_.version:
        raise Refusal(409, "moved", "the file has changed since the page before this one", AGAIN)
    if query.stamp and query.stamp != row_stamp(difference_.change):
        raise Refusal(409, "moved", "the file has changed since the list was sent", AGAIN)
    hunks, following = difference_.texts.page(query.first, query.lines) if difference_.texts is not None else ((), None)
    return shape.DifferenceShape(
        query.file,
        show_path(path),
        difference_.kind,
        _side(difference_.old),
        _side(difference_.new),
        language_of(path),
        len(difference_.texts.blocks) if difference_.texts is not None else 0,
        _rated(hunks, _risks(difference_) if between is None else ()),
        query.first,
        following,
        len(difference_.texts) if difference_.texts is not None else 0,
        list(tags_of(difference_.change)),
        difference_.version,
        difference_.is_divisible and between is None,
        _moved(difference_.moved) if difference_.moved is not None else None,
        kind.parts if kind is not None else "",
        kind is not None and kind.is_first,
    )


def _risks(row: RowDifference) -> tuple[BlockRisk, ...]:
    """Return the risks of a file's blocks; empty if it is too large for that."""
    if row.texts is None:
        return ()
    old, new = (b"".join(side) for side in row.texts.sides)
    return rate(row.change, tags_of(row.change), old, new).blocks if max(len(old), len(new)) <= LARGEST else ()


def _rated(hunks: Iterable[core.DifferenceHunk], risks: tuple[BlockRisk, ...]) -> list[shape.HunkShape]:
    shapes = []
    for hunk in hunks:
        risk = join_risks([risks[block] for block in hunk.blocks]) if risks else None
        row = hunk_shape(hunk)
        shapes.append(row if risk is None else structs.replace(row, risk=risk.risk, reasons=list(risk.reasons)))
    return shapes


def _moved(moved: MovedRow) -> shape.MovedShape:
    return shape.MovedShape(id_of(moved.path), show_path(moved.path), moved.percent, moved.compared)


def _side(side: RowSide) -> shape.SideShape:
    entry = side.entry
    if entry is None:
        return shape.SideShape(False)
    return shape.SideShape(
        True, entry.kind, entry.size, mode_of(entry), show_path(entry.target), side.lines, side.image
    )


def hunk_shape(hunk: core.DifferenceHunk) -> shape.HunkShape:
    lines = [_line(line) for line in hunk.lines]
    numbers = hunk.old_start, hunk.old_lines, hunk.new_start, hunk.new_lines
    return shape.HunkShape(list(hunk.blocks), *numbers, lines, hunk.section, hunk.continued)


def _line(line: core.DifferenceLine) -> shape.LineShape:
    kind, old, new, text, block, words, odd, cut, until, ends = line
    return shape.LineShape(
        kind, old, new, text, block, utf16_spans(text, words), utf16_spans(text, odd), cut, ends, until
    )


def text(call: ApiCall) -> shape.TextShape:
    query: TextQuery = call.query
    with _open_requested(call) as descriptor:
        chunks = iter(lambda: os.read(descriptor, _CHUNK), b"")
        result = excerpt(chunks, query.side, query.first, query.count, query.column, TEXT_LIMIT)
    return shape.TextShape(query.first, result.total, [_line(line) for line in result.lines], result.whole)


def blob(call: ApiCall) -> Raw:
    query: BlobQuery = call.query
    path = path_of(query.file)
    with _open_requested(call) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as stream:
        data = stream.read(BLOB_LIMIT + 1)
    if len(data) > BLOB_LIMIT:
        raise Refusal(413, "failed", f"{show_path(path)} has more than {BLOB_LIMIT >> 20} MiB: too large to be shown")
    media_type = picture_of(data[:IMAGE_HEAD], path) or "application/octet-stream"
    return Raw(data, media_type, _headers(path, is_picture=media_type.startswith("image/")))


def _headers(path: bytes, *, is_picture: bool) -> dict[str, str]:
    """Return headers that keep the file from running, and other sites from reading it.
    https://www.w3.org/TR/CSP3/#directive-sandbox;
    https://fetch.spec.whatwg.org/#cross-origin-resource-policy-header; the file name as in RFC 6266, 4.3."""
    disposition = "inline" if is_picture else "attachment"
    return {
        "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
        "content-disposition": f"{disposition}; filename*=UTF-8''{quote(show(last(path)), safe='')}",
        "cross-origin-resource-policy": "same-origin",
        "x-content-type-options": "nosniff",
        "cache-control": "no-store",
    }


# --- requests ---


@contextmanager
def _requested_session(call: ApiCall) -> Iterator[tuple[Session, str, tuple[str, str] | None]]:
    """Yield the session, the fork, and the two states to compare; None: the fork and its base."""
    old, new = call.query.old, call.query.new
    with call.server.session(call.path["project"]) as session:
        name = require_fork(session, call.path["fork"])
        for state in (old, new):
            if state and state not in ("base", "now", name) and not state.startswith(name + "@"):
                _require_other(session, state)
        between = (old or "base", new or name)
        yield session, name, None if between == ("base", name) else between


def _require_other(session: Session, state: str) -> None:
    """Raise Refusal if a state is not another fork at rest, for comparing two candidates."""
    if "@" in state or session.vault.find(state) is None:
        raise Refusal(400, "bad-request", "not a state to compare with: base, now, FORK, or a checkpoint of this fork")
    require_at_rest(session, state)


@contextmanager
def _refusing_missing() -> Iterator[None]:
    """Convert exceptions about missing and changing files to refusals."""
    try:
        yield
    except ForkMoved as error_moved:
        message = f"{show_path(error_moved.path)} is being changed in the fork"
        raise Refusal(409, "moved", message, AGAIN) from None
    except UsageError as error:
        raise Refusal(404, "not-found", error.message, error.hint) from None


@contextmanager
def _open_requested(call: ApiCall) -> Iterator[int]:
    """Yield a descriptor for the requested side."""
    path = path_of(call.query.file)
    with _requested_session(call) as (session, name, between), _refusing_missing():
        descriptor = open_side(session, name, path, call.query.side, between)
        if descriptor is None:
            raise Refusal(404, "not-found", f"{show_path(path)} has no content on that side")
        try:
            yield descriptor
        finally:
            os.close(descriptor)


class ObservedQuery(Struct):
    file: str
    """Its id."""


def observed(call: ApiCall) -> shape.ObservedShape:
    query: ObservedQuery = call.query
    with call.server.session(call.path["project"]) as session, _refusing_missing():
        reasons = Reasons(session, require_fork(session, call.path["fork"]))
        seen = reasons.of_file(path_of(query.file))
        blocks = [list(row.hunk.blocks) if row.hunk is not None else [] for row in seen.rows]
        lines = [observed_lines(reasons, seen, row) for row in seen.rows]
    return shape.ObservedShape([shape.ObservedHunkShape(*each) for each in zip(blocks, lines, strict=True)])


_AT = "/projects/{project}/forks/{fork}"
ENDPOINTS = (
    Endpoint(
        "GET", _AT + "/diff", "The differences of one file, by hunks", diff, shape.DifferenceShape, query=DiffQuery
    ),
    Endpoint(
        "GET",
        _AT + "/observed",
        "The commands and turns that were observed at a file's hunks",
        observed,
        shape.ObservedShape,
        query=ObservedQuery,
    ),
    Endpoint("GET", _AT + "/view", "One file by its parts: packages, cells, keys …", view, FileView, query=ViewQuery),
    Endpoint("GET", _AT + "/text", "Lines of one side of a file", text, shape.TextShape, query=TextQuery),
    Endpoint("GET", _AT + "/blob", "The bytes of one side of a file, for images", blob, None, query=BlobQuery),
)
