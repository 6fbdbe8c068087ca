"""What becomes of a fork when its changes have landed: it is thrown away, starts anew, or keeps what is left.

What has landed may still lie in the fork's layers: sealed layers are never written to, a whiteout stays a whiteout.
So the fork remembers what the project was made into (``landed``), and from then on that is the original of the path.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from mudroom.core.change import Change, Changeset
from mudroom.core.entry import Entry
from mudroom.core.stack import LIVE
from mudroom.stage.landed import LANDED, Landed, add_landed
from mudroom.stage.source import OpenSource
from mudroom.vault.fork import Fork
from mudroom.vault.record import ForkRecord, save
from mudroom.vault.store import Vault


def keep_the_rest(vault: Vault, fork: Fork, record: ForkRecord, landed: Collection[bytes]) -> int:
    """Take the ``landed`` paths off a fork's books. Returns how many changes are left; with none left, a fork that
    nobody gave a name to is gone."""
    rest = tuple(change for change in record.changeset.changes if change.path not in landed)
    state = fork.state
    if not rest and not state.named and not state.checkpoints:
        vault.discard(fork)
        return 0
    if not rest and state.base == LIVE:
        restart(vault, fork)
        return 0
    gone = [change for change in record.changeset.changes if change.path in landed]
    add_landed(fork.path + LANDED, _as_landed(vault.project, gone))
    changeset = Changeset(rest, record.changeset.remarks)
    save(fork.record_path, record._replace(changeset=changeset), durable=True)
    return len(rest)


def restart(vault: Vault, fork: Fork) -> None:
    """Stand on the project itself again, with nothing changed. Checkpoints stay."""
    state = fork.state
    fork.save(state._replace(upper=vault.new_layer(), layers=()))
    if not any(state.upper in point.layers for point in state.checkpoints):
        vault.throw_away(vault.layer(state.upper))
    for leftover in (fork.record_path, fork.path + LANDED):
        if os.path.exists(leftover):
            os.unlink(leftover)
    if fork.is_copy:
        vault.throw_away(fork.copy_place)
    vault.empty_trash()


def _as_landed(project: bytes, changes: Collection[Change]) -> dict[bytes, Landed]:
    with OpenSource(project) as live:

        def now(path: bytes) -> Entry | None:
            return live.look(path)

        return {change.path: Landed(now(change.path), change.staged) for change in changes}
