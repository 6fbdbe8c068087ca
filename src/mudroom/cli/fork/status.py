"""``mudroom status``: the project's forks, unfinished applies, last apply and caches."""

from __future__ import annotations

import os
import sys

from mudroom.cli.fork.ls import describe, listed_forks
from mudroom.cli.listing import open_listing
from mudroom.cli.terminal.context import Context
from mudroom.core.confinement.limit import show_size
from mudroom.core.text.json_text import to_json_text
from mudroom.typing import TYPE_CHECKING
from mudroom.vault.apply.plan_state import list_applies
from mudroom.vault.caches.pool import shared_caches

if TYPE_CHECKING:
    import argparse

EXAMPLES = """\
examples:
  mudroom status"""


def configure(parser: argparse.ArgumentParser) -> None:
    del parser


def execute(args: argparse.Namespace, context: Context) -> int:
    del args
    with open_listing(context) as listing:
        rows, applies = listed_forks(listing), list_applies(listing.vault)
        project, vault = os.fsdecode(listing.vault.project), os.fsdecode(listing.vault.path)
        cached = sum(cache.size for cache in shared_caches(listing.vault.cache))
        limit = listing.settings.cache_limit
    sandbox = certified(context)
    if context.as_json:
        places = {"schema": "mudroom.status/1", "project": project, "vault": vault}
        report = {**places, "forks": rows, "applies": applies, "caches": {"bytes": cached, "limit": limit}}
        report |= {"certified": sandbox} if sandbox else {}
        context.terminal.out(to_json_text(report))
        return 0
    lines = [f"project  {project}", f"vault    {vault}"]
    width = context.terminal.columns(1) - 9
    lines += ["fork     " + describe(row, width).replace("\n", "\n" + " " * 9) for row in rows] or ["no forks"]
    unfinished = [apply["apply"] for apply in applies if apply["state"] in ("deferred", "interrupted")]
    for name in unfinished:
        lines.append(f"apply    {name} was cut off; the next mudroom run, apply or undo settles it")
    undoable = [apply["apply"] for apply in applies if apply["state"] == "applied"]
    if undoable:
        earlier = f", then {len(undoable) - 1} more" if len(undoable) > 1 else ""
        lines.append(f"undo     {undoable[-1]}{earlier}")
    if cached:
        lines.append(f"caches   {show_size(cached)} (at most {show_size(limit)} for you, and for each agent)")
    lines += [f"sandbox  {line}" for line in sandbox]
    context.terminal.out("\n".join(lines))
    return 0


def certified(context: Context) -> list[str]:
    """Return a line for each protection that this machine's certification record opens or closes, or [] on platforms
    that need no record."""
    platform: str = sys.platform
    if platform == "linux":
        return []  # needs no record; this saves importing sandbox modules
    from mudroom.core.registry import NotInstalled, part
    from mudroom.sandbox.platform import BY_RECORD, system_name

    if platform not in BY_RECORD:
        return []
    try:
        lines: list[str] = part("certify", "cli", f"mudroom on {system_name(platform)}").certified(context.environ)
    except NotInstalled as error:
        lines = [f"none: {error.message}"]
    return lines
