"""What is remembered of applies that retention has removed: enough to say so to whoever wants to undo one.

``applies/removed`` has one line each, oldest first: name, when it was removed (seconds since 1970), why (``age``,
``count`` or ``bytes``). Of the oldest lines only the last few hundred are kept; numbers are never used again, so a
lower number than any there was removed as well.
"""

from __future__ import annotations

import os
import time as clock
from typing import NamedTuple

from mudroom.core.retention import SECOND, Expired
from mudroom.errors import UsageError
from mudroom.vault.record import sync_directory
from mudroom.vault.store.store import Vault

LINES = 500
_WHY = {
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
    """Durable when this returns. Before the applies go."""
    if not expired:
        return
    known = {stone.name: stone for stone in tombstones(vault)}
    known.update({one.name: Tombstone(one.name, now, one.reason) for one in expired})
    path = vault.path + b"/applies/removed"
    with open(path + b".new", "wb") as stream:
        for stone in list(known.values())[-LINES:]:
            stream.write(f"{stone.name} {stone.time // SECOND} {stone.reason}\n".encode("ascii"))
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(path + b".new", path)
    sync_directory(vault.path + b"/applies")


def tombstones(vault: Vault) -> list[Tombstone]:
    """A line that makes no sense says nothing: the file only helps to explain."""
    try:
        with open(vault.path + b"/applies/removed", "rb") as stream:
            lines = stream.read().decode("ascii", "replace").splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        words = line.split(" ")
        if len(words) == 3 and words[0][:1] == "u" and words[0][1:].isdecimal() and words[1].isdecimal():
            found.append(Tombstone(words[0], int(words[1]) * SECOND, words[2]))
    return found


def require_kept(vault: Vault, name: str) -> None:
    """Raises UsageError if there was an apply of this name and retention has removed it. Call it before an undo."""
    if name[:1] != "u" or not name[1:].isdecimal() or os.path.isdir(vault.path + b"/applies/" + name.encode()):
        return
    stones = tombstones(vault)
    stone = next((one for one in stones if one.name == name), None)
    if stone is not None:
        when = clock.strftime("%Y-%m-%d %H:%M", clock.localtime(stone.time // SECOND))
        why = _WHY.get(stone.reason, stone.reason)
        raise UsageError(
            f"{name} cannot be undone: what it replaced was removed on {when}, {why}",
            "mudroom vault ls . shows what is kept; keep: in .mudroom/policy.yaml says how long",
        )
    if stones and int(name[1:]) < int(stones[0].name[1:]):
        raise UsageError(f"{name} cannot be undone: what it replaced was removed long ago", "mudroom log tells of it")
