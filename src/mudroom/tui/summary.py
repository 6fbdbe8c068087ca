"""What is about to happen, and what has: as rows of text. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from mudroom.core.merge.apply_summary import landed_words, turned_words
from mudroom.core.tree.change import Change
from mudroom.core.tree.path import show, show_path
from mudroom.core.tree.quote import show_words
from mudroom.core.tree.stack import Checkpoint
from mudroom.tui.choice import Choice, is_covered
from mudroom.tui.pane import Pieces
from mudroom.tui.review_model import SeenFork

if TYPE_CHECKING:
    from mudroom.session import ApplyResult, LandingResult

MOST = 8
"""Paths that are named, of each kind."""


def before_apply(
    seen: SeenFork, wanted: Choice, flags: Mapping[bytes, frozenset[str]], verify: tuple[bytes, ...]
) -> list[Pieces]:
    """What an apply would bring in, what it would not, and what is to be noticed of it."""
    count, parts = len(wanted.items), len(wanted.picks)
    rows: list[Pieces] = [
        [
            (f"{count:,} of {len(seen.items):,} changed files", "strong"),
            (f", {parts:,} of them in part" if parts else "", ""),
        ]
    ]
    chosen = [item.path for item in wanted.items]
    rows += _named("! runs by itself later:", "warn", _with(flags, chosen, "executes-later"))
    rows += _named("S may hold secrets:", "warn", _with(flags, chosen, "secret"))
    rows += _named("P chosen by name:", "warn", [item.path for item in wanted.items if item.to_be_named])
    undecided = [path for path, decided in seen.decided.items() if not decided and is_covered(path, wanted.items)]
    rows += _named("C conflicts, and stays in the fork:", "bad", undecided)
    left = [item.path for item in seen.items if item.to_be_named and item.path not in chosen]
    rows += _named("left out, to be chosen by name if wanted:", "dim", left)
    rows += _named("cannot be applied:", "warn", [remark.path for remark in seen.remarks])
    if seen.credentials:
        rows.append([("your credentials were open to its commands: " + ", ".join(seen.credentials), "warn")])
    rest = len(seen.items) - count
    if rest:
        rows.append([("1 file stays in the fork" if rest == 1 else f"{rest:,} files stay in the fork", "dim")])
    if verify:
        rows.append([("first the result is tried out: ", "dim"), (show_words(verify), "")])
    return rows


def _with(flags: Mapping[bytes, frozenset[str]], paths: Iterable[bytes], flag: str) -> list[bytes]:
    return [path for path in paths if flag in flags.get(path, ())]


def _named(title: str, style: str, paths: list[bytes]) -> list[Pieces]:
    if not paths:
        return []
    rows: list[Pieces] = [[(title, style)], *([("  " + show_path(path), "")] for path in paths[:MOST])]
    return [*rows, [(f"  … and {len(paths) - MOST:,} more", "dim")]] if len(paths) > MOST else rows


def landed(found: LandingResult, wanted: Choice) -> list[Pieces]:
    """What an apply has done."""
    applied, verified = found.applied, found.verified
    if verified is not None and not verified.passed:
        how = "took too long" if verified.timed_out else f"exited with {verified.exit_code}"
        output = verified.output.decode("utf-8", "replace").splitlines()[-200:]
        return [
            [(f"{show_words(verified.command)} {how}; the project is as it was", "bad")],
            *([(show(line.encode()), "")] for line in output),
        ]
    rows: list[Pieces] = [[(landed_words(applied.written, applied.removed, len(found.kept)), "good")]]
    rows += _conflicts(applied, "C conflict, stays in the fork:")
    rows += _named(
        "merged with what the project had changed:", "head", [path for path in found.merged if path not in wanted.picks]
    )
    rows += _named("the project's was kept:", "head", [*found.kept])
    rows += _named("left out, to be chosen by name if wanted:", "dim", [*found.withheld])
    rows += [[(f"{show_path(remark.path)} {remark.text}", "warn")] for remark in applied.remarks]
    if verified is not None:
        rows.append([(f"tried out first: {show_words(verified.command)} succeeded", "good")])
    if found.remaining:
        rows.append([("the rest stays in the fork", "dim")])
    if applied.name:
        rows.append([(f"u takes it back, and so does mudroom undo ({applied.name})", "dim")])
    return rows


def undone(applied: ApplyResult) -> list[Pieces]:
    return [
        [(turned_words("undo", applied.written, applied.removed, len(applied.again), applied.holder), "good")],
        *_conflicts(applied, "stays as it is, for it was changed since:"),
        *([(f"{show_path(remark.path)} {remark.text}", "warn")] for remark in applied.remarks),
        [(f"mudroom redo applies it again ({applied.name})", "dim")],
    ]


def _conflicts(applied: ApplyResult, title: str) -> list[Pieces]:
    if not applied.conflicts:
        return []
    rows: list[Pieces] = [[(title, "bad")]]
    rows += [[(f"  {show_path(one.path)}: {one.reason}", "")] for one in applied.conflicts[:MOST]]
    more = len(applied.conflicts) - MOST
    return [*rows, [(f"  … and {more:,} more", "dim")]] if more > 0 else rows


def checkpoint(point: Checkpoint) -> Pieces:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(point.time // 10**9))
    return [(f"{when}  ", "dim"), (show(point.name.encode()), ""), ("  (by itself)" if point.automatic else "", "dim")]


_BACKWARDS = {"added": ("deleted", "removed"), "deleted": ("added", "added")}
"""What becomes of a file whose change is dropped, and the style of that."""


def rollback(dropped: Sequence[Change]) -> list[Pieces]:
    """What rolling back would change in the fork: the ``dropped`` changes, backwards."""
    if not dropped:
        return [[("nothing has changed since", "dim")]]
    rows: list[Pieces] = [[(f"{len(dropped):,} files of the fork would change; the project is not touched", "strong")]]
    for change in dropped[: 4 * MOST]:
        verb, style = _BACKWARDS.get(change.verb, (change.verb, ""))
        rows.append([(f"  {verb:<9}", style), (show_path(change.source or change.path), "")])
    more = len(dropped) - 4 * MOST
    return [*rows, [(f"  … and {more:,} more", "dim")]] if more > 0 else rows
