"""The fork after its changes have landed: it is discarded, starts anew, or keeps the remaining changes.

Landed changes may still lie in the fork's layers: sealed layers are never written to, and a whiteout stays a whiteout.
So the fork records the project's new entry (``landed``), which is the path's original from then on. If the project's
new content differs from the fork's, the original is the version that both now have in common: the fork's own after a
merge, the selected content after a partial apply.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress

from mudroom.core.merge.merge import PartialChoice
from mudroom.core.system.closing import Descriptor
from mudroom.core.text.linediff import count_lines, is_binary
from mudroom.core.tree.change import Change
from mudroom.core.tree.stack import LIVE
from mudroom.errors import MudroomError
from mudroom.stage.beneath import LastDirectory, nameless
from mudroom.stage.layers.landed import KEPT, LANDED, LandedPaths, add_landed, elsewhere, keep_original
from mudroom.stage.layers.layer import remove_tree
from mudroom.stage.layers.union import Union
from mudroom.stage.originals.collection import TEXT_LIMIT
from mudroom.stage.source import OpenSource, Source, read_all
from mudroom.vault.conflict.resolution import RESOLUTIONS, RESOLVED
from mudroom.vault.forks.logins import has_logins
from mudroom.vault.forks.review import REVIEWED, forget
from mudroom.vault.forks.ties import first_of, ties_of
from mudroom.vault.record import ForkRecord, save
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault, project_of
from mudroom.vault.sync import sync_directory

_NO_PARTS: Mapping[bytes, PartialChoice] = {}


def keep_remainder(
    vault: Vault,
    fork: Fork,
    record: ForkRecord,
    landed: Collection[bytes],
    merged: Collection[bytes] = (),
    parts: Mapping[bytes, PartialChoice] = _NO_PARTS,
) -> int:
    """Remove the ``landed`` paths from the fork's record. Return how many changes are left.

    With no change left, a fork without a name or checkpoints is discarded, unless a note has named a login in it,
    pushes in it wait, or file tools of another session have it open. A fork with parts in other projects stays as long
    as one of them has changes, and is discarded with them.
    ``merged``: landed paths whose content in the project differs from the fork's. ``parts``: landed paths of which only
    this part has landed; the rest of the change stays.
    """
    changes = record.changeset.changes
    rest = [change for change in changes if change.path not in landed]
    state = fork.state
    is_kept = state.named or state.checkpoints or fork.has_pushes or _has_logins(fork) or is_open_elsewhere(fork)
    is_kept = is_kept or first_of(fork) is not None
    others = [] if rest or parts or is_kept else _parts(fork)
    is_kept = is_kept or any(other.record is not None and other.record.changeset.changes for other in others)
    if not rest and not parts and not is_kept:
        for other in others:
            beside = Vault(other.vault, project_of(other.vault))
            beside.discard(other, durable=True)
            beside.empty_trash()
        vault.discard(fork, durable=True, spares=True)
        vault.empty_trash()
        return 0
    if not rest and not parts and state.base == LIVE:
        restart(vault, fork)
        return 0
    forget(fork)
    gone = [change for change in changes if change.path in landed]
    with Union(fork.layered, None) as layers:
        add_landed(fork.path + LANDED, _as_landed(vault.source, fork.path, layers, gone, merged, parts))
        rest += [_remaining(change, parts[change.path], layers) for change in gone if change.path in parts]
    order = {change.path: number for number, change in enumerate(changes)}
    rest.sort(key=lambda change: order[change.path])
    changeset = record.changeset._replace(changes=tuple(rest))
    save(fork.record_path, record._replace(changeset=changeset), durable=True)
    return len(rest)


def _parts(fork: Fork) -> list[Fork]:
    """Return a fork's parts in other projects. Killed meanwhile, an earlier call may have discarded some."""
    found = []
    for tied in ties_of(fork):
        with suppress(MudroomError):
            found.append(tied.fork(fork))
    return found


def is_open_elsewhere(fork: Fork) -> bool:
    """Return whether file tools of another session have the fork open, and may hold changes in memory. Hold the fork's
    lock, and let no file tools of this session use it."""
    if not os.path.isdir(fork.path + b"/spill"):
        return False
    from mudroom.vault.forks.editor import remove_left

    return remove_left(fork.path + b"/spill")


def _has_logins(fork: Fork) -> bool:
    if not fork.has_home:
        return False

    return has_logins(fork.path)


def restart(vault: Vault, fork: Fork) -> None:
    """Reset the fork to the project itself, without changes. Checkpoints stay."""
    state = fork.state
    fork.save(state._replace(upper=vault.new_layer(durable=True), layers=()))
    sync_directory(fork.path)  # before the old layer goes
    if not any(state.upper in point.layers for point in state.checkpoints):
        vault.throw_away(vault.layer(state.upper))
    for leftover in (fork.record_path, fork.path + LANDED, fork.path + REVIEWED, fork.path + RESOLUTIONS):
        if os.path.exists(leftover):
            os.unlink(leftover)
    for place in (fork.path + KEPT, fork.path + RESOLVED):
        if os.path.isdir(place):
            remove_tree(place)
    sync_directory(fork.path)  # a record that is there again would name files of the old layer
    if fork.is_copy:
        vault.throw_away(fork.copy_place)
    vault.empty_trash()


def _as_landed(
    project: bytes,
    fork: bytes,
    layers: Source,
    changes: Collection[Change],
    merged: Collection[bytes],
    parts: Mapping[bytes, PartialChoice],
) -> dict[bytes, LandedPaths]:
    rows = {}
    with OpenSource(project) as source, LastDirectory(source.root) as live:
        for change in changes:
            path, staged = change.path, change.staged
            if staged is not None and path in parts:
                rows[path] = _part(fork, change, parts[path])
            elif staged is not None and staged.kind == "file" and path in merged:
                with Descriptor(layers.open(path)) as opened:
                    rows[path] = LandedPaths(elsewhere(staged), staged, keep_original(fork, opened))
            else:
                rows[path] = LandedPaths(live.look_if_open(path), staged)
    return rows


def _part(fork: bytes, change: Change, part: PartialChoice) -> LandedPaths:
    assert change.staged is not None
    content = nameless(fork)
    with open(content, "wb") as stream:
        stream.write(part.content)
        stream.flush()
        os.lseek(content, 0, os.SEEK_SET)
        name = keep_original(fork, content)
    original = elsewhere(change.staged._replace(size=len(part.content), mode=part.mode))
    return LandedPaths(original, original, name)


def _remaining(change: Change, part: PartialChoice, staged: Source) -> Change:
    """Return the rest of a change after a part has landed."""
    assert change.staged is not None
    base = elsewhere(change.staged._replace(size=len(part.content), mode=part.mode))
    left = read_all(staged, change.path, TEXT_LIMIT)
    counts = (0, 0) if left is None or is_binary(left) else count_lines(part.content, left)
    flags = tuple(flag for flag in change.flags if flag not in ("mode", "content", "type"))
    flags += (("mode",) if part.mode != change.staged.mode else ()) + ("content",)
    return change._replace(
        verb="modified", source=b"", base=base, lines_added=counts[0], lines_removed=counts[1], flags=flags
    )
