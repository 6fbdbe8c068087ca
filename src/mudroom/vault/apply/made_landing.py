"""Repositories that the fork made, before an apply writes their files: none holds a masked file as an empty one."""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.tree.change import Change
from mudroom.core.tree.flag import repository_of_each
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault


def require_unemptied_repositories(vault: Vault, fork: Fork, taken: Sequence[Change]) -> None:
    """Raise UsageError with the path if a repository among the changes to apply holds a masked file as an empty one.
    ``taken``: in walking order."""
    tops = {change.path for change in taken if change.entry.kind == "directory"} & {*repository_of_each(taken).values()}
    if not tops or not vault.mask.paths:
        return
    from mudroom.ext.commits.git.made import require_unemptied

    with OpenFork(vault, fork) as opened:
        view = opened.merged()
        for top in sorted(tops):
            require_unemptied(view, top, vault.mask.paths)
