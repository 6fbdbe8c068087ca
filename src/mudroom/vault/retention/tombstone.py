"""Applies that retention has removed, to explain why they cannot be undone.

``applies/removed`` has one line for each, oldest first: name, time (seconds since 1970), reason (``age``, ``count`` or
``bytes``). Only the last ``LINES`` lines are kept. Numbers are never reused, so any number lower than the first line's
was also removed.
"""

from __future__ import annotations

import os
import time as clock

from mudroom.core.clock import SECOND
from mudroom.core.retention import Expired
from mudroom.errors import UsageError
from mudroom.stage import safe_open
from mudroom.typing import NamedTuple
from mudroom.vault.store.store import Vault
from mudroom.vault.sync import sync_directory

LINES = 500
_REASONS = {
    "age": "it was older than keep.age",
    "count": "there were more than keep.applies after it",
    "bytes": "the applies had more than keep.bytes",
}


class Tombstone(NamedTuple):
    name: str
    time: int
    """When it was removed, in nanoseconds since 1970."""
    reason: str


def remember(vault: Vault, expired: list[Expired], now: int) -> None:
    """Record removals, durably. Call it before the applies are removed."""
    if not expired:
        return
    stones = {stone.name: stone for stone in tombstones(vault)}
    stones.update({apply.name: Tombstone(apply.name, now, apply.reason) for apply in expired})
    path = vault.path + b"/applies/removed"
    kept = list(stones.values())[-LINES:]
    lines = "".join(f"{stone.name} {stone.time // SECOND} {stone.reason}\n" for stone in kept)
    safe_open.replace(path, lines.encode("ascii"))
    sync_directory(vault.path + b"/applies")


def tombstones(vault: Vault) -> list[Tombstone]:
    """Return the recorded removals, oldest first. A malformed line is skipped: the file only serves explanations."""
    try:
        with open(vault.path + b"/applies/removed", "rb") as stream:
            lines = stream.read().decode("ascii", "replace").splitlines()
    except FileNotFoundError:
        return []
    stones = []
    for line in lines:
        words = line.split(" ")
        if len(words) == 3 and words[0][:1] == "u" and words[0][1:].isdecimal() and words[1].isdecimal():
            stones.append(Tombstone(words[0], int(words[1]) * SECOND, words[2]))
    return stones


def require_kept(vault: Vault, name: str) -> None:
    """Raise UsageError if retention has removed the apply with this name. Call it before an undo."""
    if name[:1] != "u" or not name[1:].isdecimal() or os.path.isdir(vault.path + b"/applies/" + name.encode()):
        return
    stones = tombstones(vault)
    stone = next((stone for stone in stones if stone.name == name), None)
    if stone is not None:
        when = clock.strftime("%Y-%m-%d %H:%M", clock.localtime(stone.time // SECOND))
        why = _REASONS.get(stone.reason, stone.reason)
        raise UsageError(
            f"{name} cannot be undone: what it replaced was removed on {when}, {why}",
            "mudroom vault ls . shows what is kept; keep: in .mudroom/policy.yaml says how long",
        )
    if stones and int(name[1:]) < int(stones[0].name[1:]):
        raise UsageError(f"{name} cannot be undone: what it replaced was removed long ago", "mudroom log shows it")
