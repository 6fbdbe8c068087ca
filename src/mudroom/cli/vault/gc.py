"""``mudroom vault gc``: remove expired data. Forks hold work, so it names them and asks first."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import closing

from mudroom.cli.project_session import exclusive, open_session
from mudroom.cli.terminal.context import Context
from mudroom.core.result import text
from mudroom.core.text.plural import amount, counted
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.policy.config import load_policy, places
from mudroom.policy.setting_type import seconds
from mudroom.session import upkeep
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


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
        context.terminal.out(json.dumps({"schema": "mudroom.gc/1", "dry_run": args.dry_run, "vaults": rows}))
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
