"""A project's vault and settings, for verbs that only show, without loading the modules that run commands.

If a command of the project runs or was cut off, or a fork is mounted, something must be settled first. Then
``open_session`` opens a whole session instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from mudroom.cli.project_place import project_of
from mudroom.cli.terminal.context import Context
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.policy.config import KEEPS_ALL, places, project_settings
from mudroom.stage import disk
from mudroom.stage.views.preflight import check_project
from mudroom.typing import TYPE_CHECKING, NamedTuple
from mudroom.vault.store.fork import interrupted_forks
from mudroom.vault.store.store import Vault, open_vault, require_private_state

if TYPE_CHECKING:
    from mudroom.vault.record import ForkRecord


class ProjectListing(NamedTuple):
    vault: Vault
    settings: Settings
    record: Callable[[str], ForkRecord | None]
    """Return a fork's record by its name."""


@contextmanager
def open_listing(context: Context, *, reads_policy: bool = True) -> Iterator[ProjectListing]:
    """Yield the listing. Raise like ``open_session`` with ``needs_policy=False``. With ``reads_policy=False`` no policy
    is read and the defaults hold."""
    vault = _vault_at_rest(context) if sys.platform == "linux" else None
    if vault is None:
        from mudroom.cli.project_session import open_session

        with open_session(context, reads_policy=reads_policy, needs_policy=False) as session:
            yield ProjectListing(session.vault, session.actor.settings, session.forks.known_record)
        return
    with closing(vault):
        settings = _settings(vault.project, context) if reads_policy else Settings()
        yield ProjectListing(vault, settings, lambda name: vault.fork(name).record)


def _vault_at_rest(context: Context) -> Vault | None:
    """Return the vault, or None if something in it must be settled first."""
    place, project = places(context.environ), disk.real_path(project_of(context))
    state = disk.real_path(place.state)
    check_project(project, disk.real_path(place.home), state)
    require_private_state(place.state)
    vault = open_vault(state, project)
    forks = vault.path + b"/forks"
    if (
        vault.is_copied
        or interrupted_forks(vault.path)
        or any(os.path.lexists(f"{name}/mount") for name in _entries(forks))
    ):
        vault.close()
        return None
    return vault


def _entries(directory: bytes) -> list[str]:
    with os.scandir(os.fsdecode(directory)) as scan:
        return [entry.path for entry in scan]


def _settings(project: bytes, context: Context) -> Settings:
    try:
        return project_settings(project, context.environ, context.terminal.note)
    except UsageError as error:
        context.terminal.note(f"the policy is not in force: {error}")
        return KEEPS_ALL
