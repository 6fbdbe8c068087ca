"""``mudroom vault``: what mudroom keeps, how long, and how to carry a fork elsewhere."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from mudroom import keeper
from mudroom.cli.main import Context
from mudroom.cli.open import exclusive, open_session
from mudroom.config import places, seconds, size
from mudroom.core.path import show
from mudroom.core.result import text
from mudroom.errors import UsageError

EXAMPLES = """\
examples:
  mudroom vault ls                        every vault: project, forks, changes that were not applied, bytes
  mudroom vault ls .                      what the vault of this project holds
  mudroom vault init                      make the vault of this project now, and say where it is
  mudroom vault gc --dry-run              what has had its time (keep: in .mudroom/policy.yaml), and what it weighs
  mudroom vault gc --forks 30d            also forks without a name that nobody has used for so long
  mudroom vault gc --all                  in every vault; asks about those whose project is gone
  mudroom vault check                     is everything there, and readable?
  mudroom vault export FORK fork.tar.gz   one fork as a file
  mudroom vault import fork.tar.gz NAME   and back, here or in another project"""

_WORDS = {"ls": (0, 1), "init": (0, 0), "gc": (0, 0), "check": (0, 0), "export": (2, 2), "import": (1, 2)}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=tuple(_WORDS), help="what to do")
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="export: FORK FILE; import: FILE [NAME]; ls: [PROJECT]"
    )
    parser.add_argument("--dry-run", "-n", action="store_true", help="gc: change nothing, say what would go")
    parser.add_argument(
        "--forks", metavar="AGE", help="gc: unnamed forks not used for so long, with their changes: 30d"
    )
    parser.add_argument("--all", action="store_true", help="gc: the vaults of all projects")
    parser.add_argument("--yes", "-y", action="store_true", help="gc: do not ask")
    parser.add_argument("--limit", metavar="SIZE", help="import: so much may be unpacked (default 10GB)")


def execute(args: argparse.Namespace, context: Context) -> int:
    least, most = _WORDS[args.action]
    if not least <= len(args.words) <= most:
        takes = str(most) if least == most else f"{least} to {most}"
        raise UsageError(
            f"vault {args.action} takes {takes} words, {len(args.words)} were given", "mudroom vault --help"
        )
    verbs = {"ls": _ls, "init": _init, "gc": _gc, "check": _check, "export": _export, "import": _import}
    return verbs[args.action](args, context)


# --- what there is ---


def _ls(args: argparse.Namespace, context: Context) -> int:
    if args.words:
        return _detail(context._replace(project=os.fsencode(args.words[0])))
    found = keeper.holdings(os.path.realpath(places(context.environ).state))
    if context.as_json:
        rows = [_holding(one) for one in found]
        context.terminal.out(json.dumps({"schema": "mudroom.vaults/1", "vaults": rows}))
        return 0
    for one in found:
        gone = "" if one.exists else context.terminal.style("  gone", "yellow", 1)
        context.terminal.out(
            f"{amount(one.size):>9}  {one.forks:>3} forks, {one.unapplied:,} changes  {show(one.project) or '?'}{gone}"
        )
        for remark in one.remarks:
            context.terminal.out(f"           {remark}")
    if not found:
        context.terminal.say("no vaults")
    return 0


def _holding(one: keeper.Holding) -> dict[str, Any]:
    return {
        "vault": text(one.path),
        "project": text(one.project),
        "exists": one.exists,
        "forks": one.forks,
        "unapplied": one.unapplied,
        "bytes": one.size,
        "remarks": list(one.remarks),
    }


_KINDS = ("forks", "layers", "snapshots", "applies", "caches", "trash", "journal")


def _detail(context: Context) -> int:
    with open_session(context) as session:
        one, usage = keeper.describe(session)
        settings = session.settings
    kinds = {kind: getattr(usage, kind) for kind in _KINDS}
    if context.as_json:
        rows = {kind: {"number": found.number, "bytes": found.size} for kind, found in kinds.items()}
        context.terminal.out(json.dumps({"schema": "mudroom.vault/1", **_holding(one), "usage": rows}))
        return 0
    lines = [f"project    {show(one.project)}", f"vault      {show(one.path)}", f"unapplied  {one.unapplied:,} changes"]
    lines += [f"{kind:<9}  {found.number:>5,}  {amount(found.size):>9}" for kind, found in kinds.items()]
    age = f"{settings.keep_age / 86400:g} days"
    lines.append(f"kept       {age}, {settings.keep_applies} applies, {amount(settings.keep_bytes)}")
    context.terminal.out("\n".join([*lines, *usage.remarks]))
    return 0


def _init(args: argparse.Namespace, context: Context) -> int:
    del args
    with open_session(context) as session:
        project, path = session.project, session.vault.path
    if context.as_json:
        report = {"schema": "mudroom.init/1", "project": text(project), "vault": text(path)}
        context.terminal.out(json.dumps(report))
    else:
        context.terminal.out(show(path))
    return 0


def _check(args: argparse.Namespace, context: Context) -> int:
    del args
    with open_session(context) as session:
        found = keeper.problems(session)
    if context.as_json:
        rows = [one._asdict() for one in found]
        context.terminal.out(json.dumps({"schema": "mudroom.check/1", "whole": not found, "problems": rows}))
    elif not found:
        context.terminal.out("the vault is whole")
    for one in () if context.as_json else found:
        context.terminal.out(f"{one.subject}: {one.text}" + (f" ({one.hint})" if one.hint else ""))
    return 1 if found else 0


# --- what goes ---


def _gc(args: argparse.Namespace, context: Context) -> int:
    older = seconds(args.forks, "--forks") if args.forks else None
    now = time.time_ns()
    with open_session(context) as session:
        kept = keeper.kept_by(session.settings)
        with exclusive(session, context, "mudroom vault gc"):
            _require_yes(keeper.forks_unused(session.vault, older, now) if older else [], args, context)
            swept = [(session.vault, keeper.sweep(session.vault, kept, now, forks_older=older, dry_run=args.dry_run))]
        if args.all:
            state = os.path.realpath(places(context.environ).state)
            for vault in keeper.others(state, session.vault):
                with closing(vault):
                    swept += _gc_other(vault, kept, now, args, context)
    _tell(swept, args, context)
    return 0


def _require_yes(forks: Sequence[str], args: argparse.Namespace, context: Context) -> None:
    """Name the forks that are about to go; they are somebody's work."""
    if not forks or args.dry_run:
        return
    if not context.as_json:
        context.terminal.say("not used for so long: " + ", ".join(forks))
    if not args.yes and not _sure(f"Throw {len(forks)} forks away, with what they hold?", context):
        raise UsageError(f"{len(forks)} forks would go: {', '.join(forks)}", "add --yes, or name those to keep")


def _sure(question: str, context: Context) -> bool:
    if context.as_json or not context.terminal.interactive:
        return False
    return context.terminal.ask(f"{question} [y]es [n]o: ").strip().lower() in ("y", "yes")


def _gc_other(
    vault: keeper.Vault, kept: keeper.Kept, now: int, args: argparse.Namespace, context: Context
) -> list[tuple[keeper.Vault, keeper.Swept]]:
    holder = f"`mudroom vault gc --all` (process {os.getpid()})"
    vault.lock.acquire(holder, lambda other: context.terminal.say(f"waiting for {other} to end; Ctrl-C to give up"))
    try:
        one = keeper.holdings_of(vault)
        if not one.exists and not args.dry_run and _goes_whole(one, args, context):
            keeper.remove_vault(vault)
            return [(vault, keeper.Swept(leftovers=1, size=one.size, remarks=("the whole vault",)))]
        return [(vault, keeper.sweep(vault, kept, now, dry_run=args.dry_run))]
    finally:
        vault.lock.release()


def _goes_whole(one: keeper.Holding, args: argparse.Namespace, context: Context) -> bool:
    """The project may only be unmounted: with changes that were never applied, --yes alone does not answer for it."""
    what = f"{show(one.project)} is gone; its vault holds {one.unapplied:,} unapplied changes, {amount(one.size)}"
    if args.yes and not one.unapplied and not one.remarks:
        return True
    if _sure(f"{what}. Remove it?", context):
        return True
    if not context.as_json:
        context.terminal.note(f"{what}; it stays")
    return False


def _tell(swept: list[tuple[keeper.Vault, keeper.Swept]], args: argparse.Namespace, context: Context) -> None:
    if context.as_json:
        rows = [
            {"project": text(vault.project), **keeper.told(one), "remarks": list(one.remarks)} for vault, one in swept
        ]
        context.terminal.out(json.dumps({"schema": "mudroom.gc/1", "dry_run": args.dry_run, "vaults": rows}))
        return
    for vault, one in swept:
        head = f"{show(vault.project)}: " if len(swept) > 1 else ""
        context.terminal.out(head + (describe(one, dry_run=args.dry_run) if one else "nothing has had its time"))
        for remark in one.remarks:
            context.terminal.note(remark)


def describe(swept: keeper.Swept, *, dry_run: bool) -> str:
    """One line of what went."""
    words = [f"{one.name} ({one.reason})" for one in swept.applies]
    words += [*swept.checkpoints, *swept.forks]
    counts = {"layers": len(swept.layers), "snapshots": len(swept.snapshots), "leftovers": swept.leftovers}
    words += [f"{number:,} {kind}" for kind, number in counts.items() if number]
    return ("would remove " if dry_run else "removed ") + ", ".join(words) + f": {amount(swept.size)}"


# --- elsewhere ---


def _export(args: argparse.Namespace, context: Context) -> int:
    fork, path = args.words
    with open_session(context) as session:
        exported = keeper.send_away(session, fork, os.path.abspath(os.fsencode(path)), time.time_ns())
    if context.as_json:
        report = {"schema": "mudroom.export/1", "fork": fork, "file": path, "bytes": exported.size}
        context.terminal.out(json.dumps({**report, "remarks": list(exported.remarks)}))
        return 0
    context.terminal.say(f"exported {fork}: {path}, {amount(exported.size)}")
    for remark in exported.remarks:
        context.terminal.note(remark)
    return 0


def _import(args: argparse.Namespace, context: Context) -> int:
    limit = size(args.limit, "--limit") if args.limit else keeper.LIMIT
    name = args.words[1] if len(args.words) > 1 else None
    with open_session(context) as session, exclusive(session, context, "mudroom vault import"):
        found = keeper.take_in(session, os.fsencode(args.words[0]), name, time.time_ns(), limit)
    if context.as_json:
        report = {"schema": "mudroom.import/1", **found._asdict(), "project": text(found.project)}
        context.terminal.out(json.dumps(report))
        return 0
    context.terminal.say(f"imported {found.name}: {found.changed:,} changes, exported from {show(found.project)}")
    if found.strangers:
        context.terminal.note(f"{found.strangers:,} of them change what is not in this project: those are conflicts")
    return 0


def amount(number: int) -> str:
    """Bytes for a person."""
    value, unit = float(number), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
