"""A changed file: differences, lines, and bytes.

All input is hostile: names, contents, link targets. Names are escaped by ``core/tree/path.py``, and requested by ids
that encode their bytes. Lines are escaped by ``core/text/escaping.py``. Bytes (``blob``) are sent as a sandboxed image
if they begin like one; otherwise as a download.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import quote

from msgspec import Meta, Struct

from mudroom.core.tree.path import name as last
from mudroom.core.tree.path import show, show_path
from mudroom.errors import ForkMoved, UsageError
from mudroom.ext.review.core.picture import HEAD, picture_of
from mudroom.ext.review.rows import difference, open_side, tags_of
from mudroom.ext.web import shape
from mudroom.ext.web.api.endpoint import ApiCall, Endpoint, Raw, id_of, path_of
from mudroom.ext.web.api.excerpt import excerpt
from mudroom.ext.web.api.language import language_of
from mudroom.ext.web.api.review import AGAIN, Index, mode_of, row_stamp
from mudroom.ext.web.api.utf16 import utf16_spans
from mudroom.ext.web.state.refusal import Refusal
from mudroom.ext.web.state.server_state import require_at_rest, require_fork

if TYPE_CHECKING:
    from mudroom.ext.review.core import difference as core
    from mudroom.ext.review.rows import MovedRow, RowSide
    from mudroom.session import Session

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


def diff(call: ApiCall) -> shape.DifferenceShape:
    query: DiffQuery = call.query
    path = path_of(query.file)
    with _requested_session(call) as (session, name, between), _refusing_missing():
        difference_ = difference(session, name, path, query.context, between, as_new=query.as_new)
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
        [hunk_shape(hunk) for hunk in hunks],
        query.first,
        following,
        len(difference_.texts) if difference_.texts is not None else 0,
        list(tags_of(difference_.change)),
        difference_.version,
        difference_.is_divisible and between is None,
        _moved(difference_.moved) if difference_.moved is not None else None,
    )


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
    media_type = picture_of(data[:HEAD], path) or "application/octet-stream"
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


_AT = "/projects/{project}/forks/{fork}"
ENDPOINTS = (
    Endpoint(
        "GET", _AT + "/diff", "The differences of one file, by hunks", diff, shape.DifferenceShape, query=DiffQuery
    ),
    Endpoint("GET", _AT + "/text", "Lines of one side of a file", text, shape.TextShape, query=TextQuery),
    Endpoint("GET", _AT + "/blob", "The bytes of one side of a file, for images", blob, None, query=BlobQuery),
)
