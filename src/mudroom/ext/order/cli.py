"""``mudroom diff --order risk``: hunks by risk, below a heading each; and the same as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mudroom.core.text.hunk import Hunk, hunks
from mudroom.core.text.plural import counted
from mudroom.core.tree.change import Change
from mudroom.core.tree.path import is_below, show_path
from mudroom.ext.order.core.risk import RISKS, BlockRisk, FileRisk, Risk, join_risks
from mudroom.ext.order.reader import LARGEST, RatedChange, order_of, sides_of
from mudroom.stage.diff import content_diff
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mudroom.session import Session
    from mudroom.vault.forks.both_sides import SideReader


class _RatedHunk(NamedTuple):
    risk: BlockRisk
    row: RatedChange
    hunk: Hunk | None
    """None: the whole file."""
    place: int


def ordered_diff(
    session: Session, fork: str, paths: Sequence[bytes], without: Callable[[Change], bool]
) -> Iterator[bytes]:
    """Yield a fork's hunks as unified diffs, the costliest first. Blocks that are proven to change nothing are named
    with the proof. Parts in other projects follow if there are no ``paths``."""
    yield from _of_fork(session, fork, paths, without)
    for tied, there in session.changes.parts(fork) if not paths else ():
        yield b"# in %s:\n" % tied.label().encode()
        yield from _of_fork(there, fork, (), without)


def order_to_json(session: Session, fork: str) -> dict[str, Any]:
    """Return the order for ``--json``: files, the costliest first, each with its blocks."""
    order = order_of(session, fork)
    return {"files": [risk_to_json(row) for row in order.rows], "unread": order.unread}


def risk_to_json(row: RatedChange) -> dict[str, Any]:
    blocks = [{"risk": block.risk, "reasons": list(block.reasons)} for block in row.risk.blocks]
    return {
        "path": show_path(row.change.path),
        "risk": row.risk.risk,
        "reasons": list(row.risk.reasons),
        "blocks": blocks,
    }


def _of_fork(session: Session, fork: str, paths: Sequence[bytes], without: Callable[[Change], bool]) -> Iterator[bytes]:
    order = order_of(session, fork)
    rows = [row for row in order.rows if not paths or any(is_below(row.change.path, path) for path in paths)]
    rows = [row for row in rows if not without(row.change)]
    with sides_of(session, fork) as sides:
        rated = [hunk for row in rows for hunk in _hunks(sides, row)]
        rated.sort(key=lambda each: (*each.risk.key, each.row.change.path, each.place))
        for risk in RISKS:
            chosen = [each for each in rated if each.risk.risk == risk]
            if chosen:
                yield _heading(risk, chosen)
                yield from _section(session, fork, sides, risk, chosen)
    if order.unread:
        yield b"# %s rated by name alone: too large, or too many\n" % counted(order.unread, "file").encode()


def _heading(risk: Risk, chosen: Sequence[_RatedHunk]) -> bytes:
    files = len({each.row.change.path for each in chosen})
    return f"# {RISKS[risk]}: {counted(len(chosen), 'hunk')} in {counted(files, 'file')}\n".encode()


def _section(
    session: Session, fork: str, sides: SideReader, risk: Risk, chosen: Sequence[_RatedHunk]
) -> Iterator[bytes]:
    if risk == "dull":
        for each in chosen:
            where = each.hunk.header.decode().split("@@")[1].strip() if each.hunk is not None else ""
            proof = ", ".join(each.risk.reasons)
            yield f"#   {show_path(each.row.change.path)} {where}: {proof}\n".encode()
        return
    shown = b""
    for each in chosen:
        change = each.row.change
        if each.risk.reasons:
            yield f"# {show_path(change.path)}: {'; '.join(each.risk.reasons)}\n".encode()
        if each.hunk is not None:
            if shown != change.path:
                yield from _head(sides, change)
            yield each.hunk.header
            yield from each.hunk.lines
            shown = change.path
    whole = {each.row.change.path for each in chosen if each.hunk is None}
    if whole:
        yield from session.changes.diff(fork, without=lambda change: change.path not in whole)


def _hunks(sides: SideReader, row: RatedChange) -> Iterator[_RatedHunk]:
    """Yield a row's hunks. A hunk's risk is that of its costliest block; a file without blocks is one hunk."""
    risk, texts = row.risk, _texts(sides, row.change) if row.risk.blocks else None
    found = hunks(*texts) if texts is not None else ()
    if sum(len(hunk.blocks) for hunk in found) != len(risk.blocks) or not found:
        yield _RatedHunk(_as_block(risk), row, None, 0)
        return
    for place, hunk in enumerate(found):
        yield _RatedHunk(join_risks([risk.blocks[number] for number in hunk.blocks]), row, hunk, place)


def _as_block(risk: FileRisk) -> BlockRisk:
    return BlockRisk("code" if risk.risk == "dull" else risk.risk, risk.reasons, risk.weight)


def _texts(sides: SideReader, change: Change) -> tuple[bytes, bytes] | None:
    pair = sides.find(change.path)
    if pair is None:
        return None
    old = sides.read(pair, "old", LARGEST + 1) if pair.old is not None else b""
    new = sides.read(pair, "new", LARGEST + 1)
    return (old, new) if old is not None and new is not None else None


def _head(sides: SideReader, change: Change) -> Iterator[bytes]:
    """Yield the lines of a file's diff before its first hunk."""
    texts = _texts(sides, change)
    for line in content_diff(change, *(texts or (None, None))):
        if line.startswith(b"@@"):
            return
        yield line
