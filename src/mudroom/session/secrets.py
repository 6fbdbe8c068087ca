"""The secrets of a project: find them, and make the mask that shows them to commands as empty files."""

from __future__ import annotations

import _thread
import time
from collections.abc import Callable

from mudroom.core.settings import Settings
from mudroom.core.tree.path import show
from mudroom.core.tree.secret import is_masked
from mudroom.stage.views.secret import Finder, Mask, make_mask
from mudroom.vault.store.store import Vault


class Secrets:
    """``_lock`` guards the finder and the vault's mask; it is held while the project is searched."""

    def __init__(self, vault: Vault, settings: Settings, changed: Callable[[], None]) -> None:
        """``settings``: of the session's own actor. ``changed``: called when the vault's mask has changed."""
        self._vault, self._settings, self._changed = vault, settings, changed
        self._lock = _thread.allocate_lock()
        self._finder = Finder(vault.project, vault.path + b"/secrets", time.monotonic)

    def look(self, settings: Settings | None = None) -> tuple[Mask, list[str]]:
        """Return the mask under these settings (None: the session's own), and notes about it.

        The mask of the session's own settings becomes the vault's, for file tools and reviews."""
        own = self._settings
        chosen = settings or own
        with self._lock:
            paths, complete = self._finder.find(chosen.secrets_mask, chosen.secrets_show)
            mask = make_mask(self._vault.project, self._vault.path + b"/masks", paths, complete)
            is_own = (chosen.secrets_mask, chosen.secrets_show) == (own.secrets_mask, own.secrets_show)
            is_new = is_own and mask != self._vault.mask
            if is_new:
                self._vault.mask = mask
        if is_new:
            self._changed()
        return mask, _notes(mask)

    def hides(self, path: bytes) -> bool:
        """Return whether a file of that name is a secret of the project."""
        return is_masked(path, self._settings.secrets_mask, self._settings.secrets_show)


def _notes(mask: Mask) -> list[str]:
    notes = []
    if mask.paths:
        names = ", ".join(show(path) for path in sorted(mask.paths)[:4]) + (", …" if len(mask.paths) > 4 else "")
        count = "1 secret is" if len(mask.paths) == 1 else f"{len(mask.paths):,} secrets are"
        notes.append(f"{count} shown empty: {names} (--show PATH, or secrets.show in the policy)")
    if not mask.complete:
        notes.append("the project has so many directories that not all were searched for secrets")
    return notes
