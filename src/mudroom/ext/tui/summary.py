"""Text rows about an action before it is confirmed, and about its outcome. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from mudroom.cli.change.agent_settings import TITLE
from mudroom.cli.change.undo import is_decidable
from mudroom.core.network.push import push_lines
from mudroom.core.tree.change import Change
from mudroom.core.tree.flag import MADE, is_left_out
from mudroom.core.tree.path import show, show_path
from mudroom.core.tree.quote import show_words
from mudroom.core.tree.runs_later import group_later
from mudroom.core.tree.stack import Checkpoint
from mudroom.ext.review.roots import holder_of, landed_words, turned_words, whole_landing, whole_turn
from mudroom.ext.tui.choice import Choice, is_covered
from mudroom.ext.tui.pane import Pieces
from mudroom.ext.tui.review_model import SeenFork

if TYPE_CHECKING:
    from mudroom.core.network.push import PushRow
    from mudroom.session import ApplyResult, LandingResult

MOST_PATHS = 8
"""Paths named in each group."""


def before_apply(
    seen: SeenFork,
    choice: Choice,
    sent: Sequence[PushRow],
    flags: Mapping[bytes, frozenset[str]],
    verify: tuple[bytes, ...],
) -> list[Pieces]:
    """Return the changes that an apply would make or leave out, the effects that it would send, and warnings."""
    count, parts = len(choice.items), len(choice.picks)
    rows: list[Pieces] = [
        [
            (f"{count:,} of {len(seen.items):,} changed files", "strong"),
            (f", {parts:,} of them in part" if parts else "", ""),
        ]
    ]
    chosen = [item.path for item in choice.items]
    for root, label in seen.labels.items():
        rows += _named_paths(f"in {label}:", "warn", [path for path in chosen if holder_of(path, seen.labels) == root])
    rows += _later(flags, choice)
    rows += _named_paths("O leads out of the project:", "warn", _flagged(flags, chosen, "leads-outside"))
    rows += _named_paths("S may hold secrets:", "warn", _flagged(flags, chosen, "secret"))
    rows += _named_paths("P chosen by name:", "warn", [item.path for item in choice.items if item.to_be_named])
    undecided = [path for path, decided in seen.decided.items() if not decided and is_covered(path, choice.items)]
    rows += _named_paths("C conflicts, and stays in the fork:", "bad", undecided)
    unchosen = [item for item in seen.items if item.to_be_named and item.path not in chosen]
    unnamed = [item.path for item in unchosen if not is_left_out(item.change)]
    rows += _named_paths("not applied, protected; choose it by name to apply it:", "dim", unnamed)
    rows += _named_paths("cannot be applied:", "warn", [r.path for r in seen.remarks if MADE not in r.text])
    rows += [[(f"{show_path(remark.path)} {remark.text}", "warn")] for remark in seen.remarks if MADE in remark.text]
    if seen.credentials:
        rows.append([("your credentials were open to its commands: " + ", ".join(seen.credentials), "warn")])
    if seen.settings:
        rows.append([(f"{TITLE}: mudroom agent settings {seen.fork}", "warn")])
        rows += [[(line, "warn")] for line in seen.settings]
    if sent:
        rows.append([("sent after that, with your credential:", "warn")])
        rows += [[("  " + show(line.encode()), "")] for push in sent for line in push_lines(push)]
    left = ", ".join(push.name for push in seen.pushes if push not in sent)
    rows += [[(f"not sent, and stays in the fork: {left}", "dim")]] if left else []
    rest = len(seen.items) - count
    if rest:
        rows.append([("1 file stays in the fork" if rest == 1 else f"{rest:,} files stay in the fork", "dim")])
    if verify:
        rows.append([("the result is verified first: ", "dim"), (show_words(verify), "")])
    return rows


def _later(flags: Mapping[bytes, frozenset[str]], choice: Choice) -> list[Pieces]:
    """Return the paths that run later. A directory that is not reviewed file by file is one row."""
    chosen = [item.change for item in choice.items if "executes-later" in flags.get(item.path, ())]
    rows = [(path, group.when) for group in group_later(chosen) for path in group.paths]
    named = {path for path, _when in rows}
    rows += [(change.path, "") for change in chosen if not change.runs and change.path not in named]
    if not rows:
        return []
    told: list[Pieces] = [[("! runs by itself later:", "warn")]]
    told += [[("  " + show_path(path), ""), (f"  {when}" if when else "", "dim")] for path, when in rows[:MOST_PATHS]]
    return [*told, [(f"  … and {len(rows) - MOST_PATHS:,} more", "dim")]] if len(rows) > MOST_PATHS else told


def _flagged(flags: Mapping[bytes, frozenset[str]], paths: Iterable[bytes], flag: str) -> list[bytes]:
    return [path for path in paths if flag in flags.get(path, ())]


def _named_paths(title: str, style: str, paths: list[bytes]) -> list[Pieces]:
    if not paths:
        return []
    rows: list[Pieces] = [[(title, style)], *([("  " + show_path(path), "")] for path in paths[:MOST_PATHS])]
    return [*rows, [(f"  … and {len(paths) - MOST_PATHS:,} more", "dim")]] if len(paths) > MOST_PATHS else rows


def effect(row: PushRow, *, is_sent: bool) -> Pieces:
    """Return a held effect as one line, which a narrow terminal cuts: its server is last."""
    needs = f" after {', '.join(row.needs)}" if row.needs else ""
    refs = ", ".join(" ".join((ref.ref, *(f"({flag})" for flag in ref.flags))) for ref in row.refs)
    state = f" {row.state}" if row.state != "held" else ""
    return [
        (f"[{'x' if is_sent else ' '}] {row.name}", "strong"),
        (needs, "dim"),
        (state, "warn"),
        (f"  {show(refs.encode())}", ""),
        (f"  to {row.remote}", "dim"),
    ]


def landed(landing: LandingResult, choice: Choice) -> list[Pieces]:
    """Return an apply's outcome."""
    result = whole_landing(landing)
    applied, verified = result.applied, result.verified
    if verified is not None and not verified.passed:
        outcome = "took too long" if verified.timed_out else f"exited with {verified.exit_code}"
        output = verified.output.decode("utf-8", "replace").splitlines()[-200:]
        return [
            [(f"{show_words(verified.command)} {outcome}; the project is as it was", "bad")],
            *([(show(line.encode()), "")] for line in output),
        ]
    rows: list[Pieces] = [[(landed_words(landing), "good")]]
    rows += _conflicts(applied, "C conflict, stays in the fork:")
    rows += _named_paths(
        "merged with what the project had changed:",
        "head",
        [path for path in result.merged if path not in choice.picks],
    )
    rows += _named_paths("the project's was kept:", "head", [*result.kept])
    rows += _named_paths("not applied, protected; choose it by name to apply it:", "dim", result.untold)
    rows += [[(f"{show_path(remark.path)} {remark.text}", "warn")] for remark in applied.remarks]
    refs = {conflict.path for conflict in applied.conflicts}
    if result.repositories:
        from mudroom.ext.commits.core.ref_plan import outcome_rows
    for repository in result.repositories:
        rows += [[(f"{name} {text}", "")] for name, text in outcome_rows(repository.label, repository.refs, refs)]
    if verified is not None:
        rows.append([(f"verified: {show_words(verified.command)} succeeded", "good")])
    if result.remaining:
        rows.append([("the rest stays in the fork", "dim")])
    if applied.name:
        rows.append([(f"u takes it back, and so does mudroom undo ({applied.name})", "dim")])
    return rows


def committed(landed: LandingResult) -> list[Pieces]:
    """Return the outcome of an apply's commit; empty if none was requested."""
    if landed.commit_problem:
        return [[(f"not committed: {landed.commit_problem}", "bad")]]
    commit = landed.commit
    if commit is None:
        return []
    files = "1 file" if commit.files == 1 else f"{commit.files:,} files"
    rows: list[Pieces] = [[(f"committed: {commit.id[:10]} on {commit.branch or 'a detached HEAD'}, {files}", "good")]]
    rows += _named_paths("with changes of yours that were not committed:", "warn", [*commit.with_changes])
    return rows + _named_paths("not in the commit, ignored by git or of another repository:", "dim", [*commit.left_out])


def undone(outcome: ApplyResult) -> list[Pieces]:
    applied = whole_turn(outcome)
    return [
        [(turned_words("undo", outcome), "good")],
        *_conflicts(applied, "not undone, because it was changed since:"),
        *([(f"{show_path(remark.path)} {remark.text}", "warn")] for remark in applied.remarks),
        *([[(f"mudroom undo {applied.name} --decide decides them", "dim")]] if is_decidable(applied) else []),
        [(f"mudroom redo applies it again ({applied.name})", "dim")],
    ]


def _conflicts(applied: ApplyResult, title: str) -> list[Pieces]:
    if not applied.conflicts:
        return []
    rows: list[Pieces] = [[(title, "bad")]]
    rows += [[(f"  {show_path(conflict.path)}: {conflict.reason}", "")] for conflict in applied.conflicts[:MOST_PATHS]]
    more = len(applied.conflicts) - MOST_PATHS
    return [*rows, [(f"  … and {more:,} more", "dim")]] if more > 0 else rows


def checkpoint(point: Checkpoint) -> Pieces:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(point.time // 10**9))
    return [(f"{when}  ", "dim"), (show(point.name.encode()), ""), ("  (by itself)" if point.automatic else "", "dim")]


_REVERSED = {"added": ("deleted", "removed"), "deleted": ("added", "added")}
"""Verb of a dropped change → the effect on the file, and its style."""


def rollback(dropped: Sequence[Change]) -> list[Pieces]:
    """Return a rollback's effects on the fork: the ``dropped`` changes, reversed."""
    if not dropped:
        return [[("nothing has changed since", "dim")]]
    rows: list[Pieces] = [[(f"{len(dropped):,} files of the fork would change; the project is not touched", "strong")]]
    for change in dropped[: 4 * MOST_PATHS]:
        verb, style = _REVERSED.get(change.verb, (change.verb, ""))
        rows.append([(f"  {verb:<9}", style), (show_path(change.source or change.path), "")])
    more = len(dropped) - 4 * MOST_PATHS
    return [*rows, [(f"  … and {more:,} more", "dim")]] if more > 0 else rows
