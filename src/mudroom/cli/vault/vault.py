"""``mudroom vault``: show, check and clean up mudroom's stored data, and carry a fork elsewhere."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

from mudroom.cli.project_place import project_of
from mudroom.cli.project_session import exclusive, open_session
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.fold import fold_beside, fold_row
from mudroom.core.registry import part
from mudroom.core.result import text
from mudroom.core.text.plural import amount, counted
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.policy.config import load_policy, places
from mudroom.policy.setting_type import seconds, size
from mudroom.session import upkeep
from mudroom.stage import disk
from mudroom.typing import Any
from mudroom.vault.lock import Lock
from mudroom.vault.retention.restored import renew_stamps
from mudroom.vault.store.directory_identity import note_directory

# --- ``mudroom vault gc``: remove expired data. Forks hold work, so it names them and asks first ---


def sweep(args: argparse.Namespace, context: Context) -> int:
    older = seconds(args.forks, "--forks") if args.forks else None
    now = time.time_ns()
    with open_session(context) as session:
        limits = upkeep.retention_limits(session.actor.settings)
        with exclusive(session, context, "mudroom vault gc"):
            _require_yes(upkeep.forks_unused(session.vault, older, now) if older else [], args, context)
            options = {"dry_run": args.dry_run, "caches": args.caches}
            swept = [(session.vault, upkeep.sweep(session.vault, limits, now, forks_older=older, **options))]
        if args.all:
            state = os.path.realpath(places(context.environ).state)
            for vault in upkeep.others(state, session.vault):
                with closing(vault):
                    swept += _sweep_other(vault, now, args, context)
    _print_results(swept, args, context)
    return 0


def _require_yes(forks: Sequence[str], args: argparse.Namespace, context: Context) -> None:
    """Name the forks to be removed, and ask. Raise UsageError if the answer is not yes."""
    if not forks or args.dry_run:
        return
    many = counted(len(forks), "fork")
    if not context.as_json:
        context.terminal.say("not used for so long: " + ", ".join(forks))
    if not args.yes and not _confirm(f"Throw {many} away, with what is in them?", context):
        raise UsageError(f"{many} would go: {', '.join(forks)}", "add --yes, or --dry-run to look only")


def _confirm(question: str, context: Context) -> bool:
    if context.as_json or not context.terminal.interactive:
        return False
    return context.terminal.ask(f"{question} [y]es [n]o: ").strip().lower() in ("y", "yes")


def _sweep_other(
    vault: upkeep.Vault, now: int, args: argparse.Namespace, context: Context
) -> list[tuple[upkeep.Vault, upkeep.PruneResult]]:
    holder = f"`mudroom vault gc --all` (process {os.getpid()})"
    vault.lock.acquire(holder, context.terminal.tell_waiting)
    try:
        total = upkeep.vault_total(vault)
        if not total.exists and not args.dry_run and _may_remove(total, args, context):
            upkeep.remove_vault(vault)
            return [(vault, upkeep.PruneResult(leftovers=1, size=total.size, remarks=("the whole vault",)))]
        try:
            limits = upkeep.retention_limits(load_policy(vault.source, context.environ).settings)
        except UsageError as error:  # one project's broken policy file must not stop the others
            return [(vault, upkeep.PruneResult(remarks=(str(error),)))]
        return [(vault, upkeep.sweep(vault, limits, now, dry_run=args.dry_run, caches=args.caches))]
    finally:
        vault.lock.release()


def _may_remove(total: upkeep.VaultTotal, args: argparse.Namespace, context: Context) -> bool:
    """Return whether a missing project's vault may be removed. The project may just be unmounted: if the vault holds
    unapplied changes, --yes is not enough."""
    description = (
        f"{show(total.project)} is gone; its vault holds {total.unapplied:,} unapplied changes, {amount(total.size)}"
    )
    if args.yes and not total.unapplied and not total.remarks:
        return True
    if _confirm(f"{description}. Remove it?", context):
        return True
    if not context.as_json:
        context.terminal.note(f"{description}; it stays")
    return False


def _print_results(
    swept: list[tuple[upkeep.Vault, upkeep.PruneResult]], args: argparse.Namespace, context: Context
) -> None:
    if context.as_json:
        rows = [
            {"project": text(vault.project), **upkeep.told(result), "remarks": list(result.remarks)}
            for vault, result in swept
        ]
        context.terminal.json({"schema": "mudroom.gc/1", "dry_run": args.dry_run, "vaults": rows})
        return
    for vault, result in swept:
        head = f"{show(vault.project)}: " if len(swept) > 1 else ""
        context.terminal.out(head + (describe(result, dry_run=args.dry_run) if result else "nothing has expired"))
        for remark in result.remarks:
            context.terminal.note(remark)


def describe(swept: upkeep.PruneResult, *, dry_run: bool) -> str:
    """Return a line about the removed data."""
    parts = [f"{applied.name} ({applied.reason})" for applied in swept.applies]
    parts += [*swept.checkpoints, *swept.forks]
    counts = {"layer": len(swept.layers), "snapshot": len(swept.snapshots), "leftover": swept.leftovers}
    parts += [counted(number, kind) for kind, number in counts.items() if number]
    return ("would remove " if dry_run else "removed ") + ", ".join(parts) + f": {amount(swept.size)}"


EXAMPLES = """\
examples:
  mudroom vault ls                        every vault: project, forks, changes that were not applied, bytes
  mudroom vault ls .                      the contents of this project's vault
  mudroom vault init                      make the vault of this project now, and say where it is
  mudroom vault gc --dry-run              expired data (keep: in .mudroom/policy.yaml), and its size
  mudroom vault gc --forks 30d            also unnamed forks that were not used for so long
  mudroom vault gc --all                  in every vault; asks about those whose project is gone
  mudroom vault adopt                     the directory is another one, such as a new clone: keep the forks and undo
  mudroom vault archive                   or put them aside, and begin anew
  mudroom vault check                     is everything there, and readable?
  mudroom vault export FORK fork.tar.gz   one fork as a file
  mudroom vault import fork.tar.gz NAME   and back, here or in another project
  mudroom vault export FORK - | ssh HOST mudroom vault import - --project DIR"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=tuple(_ACTIONS), help="what to do")
    parser.add_argument(
        "words", nargs="*", metavar="WORD", help="export: FORK FILE; import: FILE [NAME]; ls: [PROJECT]; FILE -: a pipe"
    )
    parser.add_argument(
        "--dry-run", "-n", action="store_true", help="gc: remove nothing, only say what would be removed"
    )
    parser.add_argument(
        "--forks", metavar="AGE", help="gc: unnamed forks not used for so long, with their changes: 30d"
    )
    parser.add_argument("--caches", action="store_true", help="gc: the caches of package managers, too")
    parser.add_argument("--all", action="store_true", help="ls: also those that hold nothing; gc: all projects")
    parser.add_argument("--yes", "-y", action="store_true", help="gc: do not ask")
    parser.add_argument("--limit", metavar="SIZE", help="import: so much may be unpacked (default 10GB)")


def _s(number: int) -> str:
    """Return the plural ending for a number."""
    return "" if number == 1 else "s"


def execute(args: argparse.Namespace, context: Context) -> int:
    run, least, most = _ACTIONS[args.action]
    if not least <= len(args.words) <= most:
        takes = str(most) if least == most else f"{least} to {most}"
        raise UsageError(
            f"vault {args.action} takes {takes} word{_s(most)}, {len(args.words)} given", "mudroom vault --help"
        )
    return run(args, context)


# --- contents ---


def _ls(args: argparse.Namespace, context: Context) -> int:
    if args.words:
        return _print_detail(context._replace(project=os.fsencode(args.words[0])))
    now = None if args.all or context.as_json else time.time_ns()
    totals, left_out = upkeep.holdings(os.path.realpath(places(context.environ).state), now)
    if context.as_json:
        rows = [_total_to_json(total) for total in totals]
        context.terminal.json({"schema": "mudroom.vaults/1", "vaults": rows})
        return 0
    for total in totals:
        missing = "" if total.exists else context.terminal.style("  gone", "yellow", 1)
        held = f"{total.forks:>3} fork{_s(total.forks)}, {total.unapplied:,} change{_s(total.unapplied)}"
        cells = [f"{amount(total.size):>9}  {held}", f"{show(total.project) or '?'}{missing}"]
        columns = context.terminal.columns(1)
        context.terminal.out(fold_row("  ".join(cells), cells, columns, _INDENT))
        for remark in total.remarks:
            context.terminal.out(fold_beside(_INDENT, remark, columns))
    if left_out:
        context.terminal.say(f"{counted(left_out, 'vault')} not shown: nothing in it, unused for a day (--all)")
    elif not totals:
        context.terminal.say("no vaults")
    return 0


_INDENT = " " * 11
"""Indentation of text that does not fit beside a size."""


def _total_to_json(total: upkeep.VaultTotal) -> dict[str, Any]:
    return {
        "vault": text(total.path),
        "project": text(total.project),
        "exists": total.exists,
        "forks": total.forks,
        "unapplied": total.unapplied,
        "bytes": total.size,
        "remarks": list(total.remarks),
    }


_KINDS = ("forks", "layers", "snapshots", "applies", "caches", "trash", "journal")


def _print_detail(context: Context) -> int:
    with open_session(context) as session:
        total, usage = upkeep.describe(session)
        settings = session.actor.settings
    kinds = {kind: getattr(usage, kind) for kind in _KINDS}
    if context.as_json:
        rows = {kind: {"number": amounts.number, "bytes": amounts.size} for kind, amounts in kinds.items()}
        context.terminal.json({"schema": "mudroom.vault/1", **_total_to_json(total), "usage": rows})
        return 0
    lines = [
        f"project    {show(total.project)}",
        f"vault      {show(total.path)}",
        f"unapplied  {total.unapplied:,} change{_s(total.unapplied)}",
    ]
    lines += [f"{kind:<9}  {amounts.number:>5,}  {amount(amounts.size):>9}" for kind, amounts in kinds.items()]
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
        context.terminal.json(report)
    else:
        context.terminal.out(show(path))
    return 0


def _adopt(args: argparse.Namespace, context: Context) -> int:
    del args
    with _whatever_directory(context) as vault:
        renew_stamps(vault)
        note_directory(vault.path, vault.project)
        kinds = {"forks": len(vault.forks()), "applies": len(vault.applies())}
    if context.as_json:
        context.terminal.json({"schema": "mudroom.adopt/1", "project": text(vault.project), **kinds})
    else:
        context.terminal.say(f"adopted for {show(vault.project)}: forks {kinds['forks']}, applies {kinds['applies']}")
    return 0


def _archive(args: argparse.Namespace, context: Context) -> int:
    del args
    with _whatever_directory(context) as vault:
        archived = upkeep.archive(vault, time.localtime())
    if context.as_json:
        report = {"schema": "mudroom.archive/1", "project": text(vault.project), "archived": text(archived)}
        context.terminal.json(report)
    else:
        context.terminal.say(f"put aside: {show(archived)}")
    return 0


@contextmanager
def _whatever_directory(context: Context) -> Iterator[upkeep.Vault]:
    """Yield the vault at the project's path, locked, also if it belongs to another directory."""
    vault = upkeep.vault_at(project_of(context), os.path.realpath(places(context.environ).state))
    with closing(vault), Lock(vault.path + b"/lock", "mudroom vault", context.terminal.tell_waiting):
        yield vault


def _check(args: argparse.Namespace, context: Context) -> int:
    del args
    with open_session(context) as session:
        problems = upkeep.problems(session)
    if context.as_json:
        rows = [problem._asdict() for problem in problems]
        context.terminal.json({"schema": "mudroom.check/1", "whole": not problems, "problems": rows})
    elif not problems:
        context.terminal.out("the vault is whole")
    for problem in () if context.as_json else problems:
        context.terminal.out(f"{problem.subject}: {problem.text}" + (f" ({problem.hint})" if problem.hint else ""))
    return 1 if problems else 0


# --- export and import ---


STREAM = "-"
"""Instead of a file: stdout for an export, stdin for an import."""


def _require_stream(descriptor: int, hint: str) -> None:
    """Raise UsageError if the stream named ``-`` is a terminal."""
    if os.isatty(descriptor):
        side = "stdout" if descriptor == 1 else "stdin"
        raise UsageError(f"{side} is a terminal, which an archive cannot go through", hint)


def _export(args: argparse.Namespace, context: Context) -> int:
    archives = part("call", "archives", "mudroom vault export")
    fork, path = args.words
    if path == STREAM:
        _require_stream(1, f"mudroom vault export {fork} {fork}.tar.gz")
        if context.as_json:
            raise UsageError("--json and the archive both go to stdout", f"mudroom vault export {fork} -")
        with open_session(context) as session, open(1, "wb", buffering=0, closefd=False) as stream:
            exported = archives.export(session, fork, stream)
        path = "stdout"
    else:
        with open_session(context) as session:
            exported = archives.export_file(session, fork, disk.absolute_path(os.fsencode(path)))
    if context.as_json:
        report = {"schema": "mudroom.export/1", "fork": fork, "file": path, "bytes": exported.size}
        context.terminal.json({**report, "remarks": list(exported.remarks)})
        return 0
    context.terminal.say(f"exported {fork}: {path}, {amount(exported.size)}")
    for remark in exported.remarks:
        context.terminal.note(remark)
    return 0


def _import(args: argparse.Namespace, context: Context) -> int:
    archives = part("call", "archives", "mudroom vault import")
    limit = size(args.limit, "--limit") if args.limit else archives.LIMIT
    path, name = args.words[0], args.words[1] if len(args.words) > 1 else None
    if path == STREAM:
        _require_stream(0, "mudroom vault export FORK - | mudroom vault import -")
    with open_session(context) as session:
        if path == STREAM:
            with open(0, "rb", buffering=0, closefd=False) as stream:
                imported = archives.import_stream(session, stream, name, limit)
        else:
            given = os.fsencode(path)
            given = disk.absolute_path(given) if sys.platform == "win32" else given
            imported = archives.import_file(session, given, name, limit)
    if context.as_json:
        report = {"name": imported.name, "changed": imported.changed, "strangers": imported.strangers}
        shown = {"schema": "mudroom.import/1", **report, "project": text(imported.project)}
        context.terminal.json(shown)
        return 0
    context.terminal.say(
        f"imported {imported.name}: {imported.changed:,} change{_s(imported.changed)},"
        f" exported from {show(imported.project)}"
    )
    if imported.strangers:
        context.terminal.note(
            f"{imported.strangers:,} of them change files that are not in this project: those are conflicts"
        )
    return 0


_ACTIONS: dict[str, tuple[Callable[[argparse.Namespace, Context], int], int, int]] = {
    "ls": (_ls, 0, 1),
    "init": (_init, 0, 0),
    "gc": (sweep, 0, 0),
    "check": (_check, 0, 0),
    "adopt": (_adopt, 0, 0),
    "archive": (_archive, 0, 0),
    "export": (_export, 2, 2),
    "import": (_import, 1, 2),
}
"""Action to (function, least words, most words)."""
