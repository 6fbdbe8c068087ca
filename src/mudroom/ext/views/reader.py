"""The view of one change: both sides are read as the review reads them, and shown by a confined process.

A view never fails a review: whatever goes wrong is a sentence in ``FileView.problem``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import msgspec

from mudroom.core.text.plural import amount
from mudroom.ext.review.roots import root_of
from mudroom.ext.review.rows import find_change, is_masked, open_sides
from mudroom.ext.views.kinds.kind import KINDS, FileKind, kind_of
from mudroom.ext.views.kinds.row import FileView, clean
from mudroom.ext.views.worker import ViewRequest
from mudroom.vault.forks.both_sides import SidePair, Which

if TYPE_CHECKING:
    from mudroom.session import Session

HEAD = 512
"""First bytes that tell a kind."""
LONGEST = 20.0
"""Seconds until the process is ended."""
MOST_ANSWER = 16 << 20
"""Bytes of a view."""
_ROOT = os.path.abspath(__file__).removesuffix(os.path.join("mudroom", "ext", "views", "reader.py"))
_PROGRAM = f"import sys; sys.path.insert(0, {_ROOT!r}); from mudroom.ext.views.worker import main; main()"
_turns = threading.BoundedSemaphore(2)
"""Processes at a time: each may take a gigabyte."""


def kind_at(
    session: Session, fork: str, path: bytes, difference: str, between: tuple[str, str] | None = None
) -> FileKind | None:
    """Return the kind of parts that a change has, or None. ``difference``: ``rows.RowDifference.kind``."""
    if difference not in ("text", "binary", "large"):
        return None
    kind = kind_of(path)
    if not kind and difference == "binary":
        root = root_of(session, fork, path)
        with open_sides(root.session, root.fork, between) as sides:
            pair = find_change(sides, root.inner(path))
            kind = kind_of(path, *(sides.read(pair, which, HEAD) or b"" for which in _SIDES))
    return KINDS.get(kind)


def view_of(session: Session, fork: str, path: bytes, between: tuple[str, str] | None = None) -> FileView | None:
    """Return the view of a change, or None if such a file has none. Raise as ``rows.difference`` does."""
    root = root_of(session, fork, path)
    session, fork, path = root.session, root.fork, root.inner(path)
    with open_sides(session, fork, between) as sides:
        pair = find_change(sides, path)
        move = sides.move(path, session.forks.secrets.hides) if pair.change.verb == "added" else None
        before = (sides.find(move.old) if move is not None else None) or pair
        ends: tuple[tuple[SidePair, Which], ...] = (before, "old"), (pair, "new")
        files = [entry is not None and entry.kind == "file" for entry in (before.old, pair.new)]
        if is_masked(session, pair, between) or not any(files):
            return None
        heads = [sides.read(*end, HEAD) if file else b"" for file, end in zip(files, ends, strict=True)]
        kind = kind_of(path, *filter(None, heads))
        if not kind:
            return None
        most = KINDS[kind].most
        texts = [sides.read(*end, most + 1) if file else None for file, end in zip(files, ends, strict=True)]
    if any(text is None for text, file in zip(texts, files, strict=True) if file):
        return FileView(kind, problem="its original is not known any more")
    if any(text is not None and len(text) > most for text in texts):
        return FileView(kind, problem=f"it has more than {amount(most)}")
    return ask_worker(ViewRequest(kind, path, *texts))


_SIDES: tuple[Which, Which] = ("old", "new")


def ask_worker(request: ViewRequest) -> FileView:
    """Return the view that a confined process makes of the bytes."""
    with _turns:
        try:
            answer = _answer(msgspec.msgpack.encode(request))
            return clean(msgspec.json.decode(answer, type=FileView))
        except (OSError, msgspec.MsgspecError, RecursionError, UnicodeError):
            return FileView(request.kind, problem="it takes too long or too much memory, or is damaged")


def _answer(request: bytes) -> bytes:
    """Run the process on a request. Return what it wrote, cut off after ``MOST_ANSWER`` and a byte."""
    environment = None if sys.platform == "win32" else {"LC_ALL": "C"}  # Windows starts no interpreter without its own
    command = [sys.executable, "-I", "-c", _PROGRAM]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        timer = threading.Timer(LONGEST, process.kill)
        timer.start()
        try:
            try:
                process.stdin.write(request)
                process.stdin.close()
            except BrokenPipeError:
                pass  # its end says why
            return process.stdout.read(MOST_ANSWER + 1)
        finally:
            timer.cancel()
            process.kill()
