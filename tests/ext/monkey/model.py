"""What may have become of a project. Pure; no code of mudroom is asked.

Texts here have lines that are all different, and are edited in place: so a changed block is a run of positions at which
both sides differ, and a merge is one of positions. Where the sides have not as many lines, nothing is said about the
text, only that it is a file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

Entry = tuple[str, int, bytes]
"""Kind, permission bits, content or link target."""
Tree = Mapping[str, Entry]


class Wish(NamedTuple):
    """What somebody has chosen of one file."""

    base: Entry | None
    """What the fork began from; None: nothing was there."""
    staged: Entry | None
    """None: the fork has removed it."""
    blocks: frozenset[int] | None = None
    """None: all of it."""
    mode: bool = True
    source: str = ""
    """What it was called before."""
    known: bool = True
    """Whether what it began from is known."""


def lines(content: bytes) -> list[bytes]:
    return content.splitlines(keepends=True)


def block_of(old: list[bytes], new: list[bytes]) -> list[int]:
    """For each position the number of the changed block that it is in; -1: none."""
    found: list[int] = []
    number = -1
    for same, run in groupby(zip(old, new, strict=True), lambda pair: pair[0] == pair[1]):
        number += not same
        found += [-1 if same else number for _pair in run]
    return found


def selected(base: bytes, staged: bytes, blocks: Collection[int]) -> bytes | None:
    """Only these blocks of what is different; None: this model does not know."""
    old, new = lines(base), lines(staged)
    if not base and staged:
        return staged if 0 in blocks else base
    if len(old) != len(new):
        return None
    numbers = block_of(old, new)
    return b"".join(b if number in blocks else a for a, b, number in zip(old, new, numbers, strict=True))


def merged(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Both changes; None: they meet, or this model does not know."""
    sides = [lines(one) for one in (base, ours, theirs)]
    if len({len(side) for side in sides}) != 1:
        return None
    found = []
    for old, mine, other in zip(*sides, strict=True):
        if mine != other and old not in (mine, other):
            return None
        found.append(other if mine == old else mine)
    return b"".join(found)


def wanted(wish: Wish) -> Entry | bool | None:
    """What of it is to land. False: this model does not know."""
    base, staged = wish.base, wish.staged
    if staged is None or base is None or base[0] != staged[0] or staged[0] != "file":
        return staged
    content: bytes | None = staged[2]
    if wish.blocks is not None:
        content = selected(base[2], staged[2], wish.blocks)
    if content is None:
        return False
    return (staged[0], staged[1] if wish.mode else base[1], content)


def may_land(now: Entry | None, wish: Wish, decided: Iterable[Entry | None] = ()) -> list[Entry | None] | None:
    """What a path may be after an apply; None: this model does not know. ``decided``: what was said of its conflict."""
    part = wanted(wish)
    if isinstance(part, bool):
        return None
    if now == wish.base and wish.known:
        return [part] if kind_of(now) != "directory" or is_directory(part) else [now, part]
    base = wish.base
    found = [now, *decided]  # a conflict stays, until it is decided
    if now == base:
        found.append(part)
    if now in (part, base):
        return found
    if base is None or now is None or part is None or {base[0], now[0], part[0]} != {"file"}:
        return found
    content = merged(base[2], now[2], part[2])
    mode = part[1] if now[1] == base[1] else now[1]
    if content is None:
        return found if len(set(map(len, map(lines, (base[2], now[2], part[2]))))) == 1 else None
    return [*found, ("file", mode, content)]


def with_what_goes_along(chosen: Mapping[str, Wish], known: Mapping[str, Wish]) -> dict[str, Wish]:
    """With what cannot be had apart (``core/tree/choice.py`` says so): all that is in a directory which becomes
    something
    else, and the directory that comes in the place of something else."""
    turned = {path for path, wish in chosen.items() if kind_of(wish.base) == "directory" and wish.staged is not None}
    turned = {path for path in turned if kind_of(chosen[path].staged) != "directory"}
    needed = {above for path in chosen for above in parents(path) if above in known}
    found = {path: known[path] for path in needed if kind_of(known[path].staged) == "directory"} | dict(chosen)
    # The project may hold something else there: then none of it lands.
    below = {path: wish._replace(known=False) for path, wish in known.items() if not turned.isdisjoint(parents(path))}
    return found | below


def followed(before: Tree, wishes: Mapping[str, Wish]) -> set[str]:
    """Where a file has gone that the project has moved: what is wanted of it is done there."""
    gone = {wish.base[2] for path, wish in wishes.items() if path not in before and wish.base is not None}
    return {path for path, entry in before.items() if entry[0] == "file" and entry[2] in gone}


def in_repository(path: str) -> bool:
    return ".git" in path.split("/")


def is_directory(*entries: Entry | None) -> bool:
    """Whether any of them is one."""
    return "directory" in map(kind_of, entries)


def kind_of(entry: Entry | None) -> str:
    return entry[0] if entry is not None else ""


def wrong_after(
    before: Tree, after: Tree, wishes: Mapping[str, Wish], decided: Mapping[str, list[Entry | None] | None]
) -> list[str]:
    """What is otherwise than an apply of these wishes may have left it. ``decided``: what was said of conflicts; None:
    something that this model does not know."""
    wishes = with_what_goes_along(wishes, wishes)
    if all(before.get(path) == after.get(path) for path in wishes if in_repository(path)):
        wishes = {path: wish for path, wish in wishes.items() if not in_repository(path)}  # whole, or not at all
    touchable = {*wishes, *(wish.source for wish in wishes.values() if wish.source)}
    touchable |= followed(before, wishes)
    above = {above for path in touchable for above in parents(path)}
    found = []
    for path in sorted({*before, *after}):
        was, now = before.get(path), after.get(path)
        if path in wishes:
            said = decided.get(path, [])
            if wishes[path].source or said is None:
                continue
            allowed = may_land(was, wishes[path], said)
            if allowed is not None and now not in allowed:
                found.append(f"{path}: {told(was)} became {told(now)}, may be {' or '.join(map(told, allowed))}")
        elif was != now and path not in touchable and not (path in above and is_directory(was, now)):
            found.append(f"{path}: nobody has chosen it; {told(was)} became {told(now)}")
    found += [f"{path}: chosen, and not there" for path, wish in wishes.items() if lacks(path, wish, before, after)]
    return found


def lacks(path: str, wish: Wish, before: Tree, after: Tree) -> bool:
    """Of what is in neither tree."""
    return path not in before and path not in after and wish.base is None and wish.staged is not None and wish.known


def wrong_undone(before: Tree, after: Tree, now: Tree, then: Tree) -> list[str]:
    """An apply had made ``after`` of ``before``; taken back, ``then`` is what ``now`` has become."""
    found = []
    for path in sorted({*before, *after, *now, *then}):
        was, applied, is_, became = (tree.get(path) for tree in (before, after, now, then))
        if was == applied:
            if became != is_ and not is_directory(is_, became):
                found.append(f"{path}: the apply had not touched it; {told(is_)} became {told(became)}")
        elif is_ == applied and became != was and not (was is None and kind_of(became) == "directory"):
            found.append(f"{path}: was {told(was)} before the apply, and is {told(became)}")
    return found


def changed(before: Tree, after: Tree) -> list[str]:
    return [
        f"{path}: {told(before.get(path))} became {told(after.get(path))}"
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    ]


def parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:number]) for number in range(1, len(parts))]


def told(entry: Entry | None) -> str:
    if entry is None:
        return "nothing"
    kind, mode, content = entry
    return f"{kind} {mode:04o} {content[:400]!r}" if kind != "directory" else f"directory {mode:04o}"
