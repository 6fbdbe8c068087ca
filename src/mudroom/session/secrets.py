"""A project's secrets: find them, and make the mask that shows them to commands as empty files."""

from __future__ import annotations

import _thread
import os
import time
from collections.abc import Callable

from mudroom.core.settings import Settings
from mudroom.core.tree.path import name as last
from mudroom.core.tree.path import show
from mudroom.core.tree.pattern import matches
from mudroom.core.tree.secret import UNKNOWN, is_masked
from mudroom.errors import SecretsUnknown
from mudroom.stage.layers.shown import HELD, PATHS, read_paths
from mudroom.stage.source import OpenSource
from mudroom.stage.views.secret import NO_MASK, Finder, Mask, files_at, make_mask
from mudroom.typing import TYPE_CHECKING
from mudroom.vault.store.fork import SHOWN, Fork
from mudroom.vault.store.masked_secrets import masked_of
from mudroom.vault.store.store import Vault

if TYPE_CHECKING:
    from mudroom.stage.views.git_mask import GitMasks
    from mudroom.vault.apply.conflict import ForkConflict

_RECENT = 1.0
"""Seconds for which ``hides`` relies on the last search."""


class Secrets:
    """``_lock`` guards the finders and the vault's mask; it is held while the project is searched."""

    def __init__(self, vault: Vault, settings: Settings, changed: Callable[[], None]) -> None:
        """``settings``: the session's own actor's. ``changed``: called when the vault's mask has changed."""
        self._vault, self._settings, self._changed = vault, settings, changed
        self._masks = vault.path + b"/masks"
        self._lock = _thread.allocate_lock()
        self._finders: dict[tuple[bytes, ...], Finder] = {}
        """By ``secrets.mask`` patterns, which may differ between actors."""
        self._git: GitMasks | None = None
        """Made when the first secret is found."""
        self._looked = -_RECENT
        self.is_home = False
        """Whether the project is the user's home, from which a command is not shown secrets in another way
        (``sandbox/host/home.py``): no layer of the state, which lies in it, can be put over it."""

    def close(self) -> None:
        with self._lock:
            for finder in self._finders.values():
                finder.close()

    def look(self, settings: Settings | None = None) -> tuple[Mask, list[str]]:
        """Return the mask under these settings (None: the session's own), and notes about it.

        Under the session's own settings, the mask also becomes the vault's, for file tools and reviews. Raise
        SecretsUnknown if the policy that names secrets cannot be read."""
        own = self._settings
        chosen = settings or own
        _require_known(chosen)
        if self.is_home:
            return NO_MASK, []
        with self._lock:
            finder = self._finder(chosen.secrets_mask)
            paths, complete = finder.find(chosen.secrets_show)
            mask, notes = self._mask(chosen, paths, complete, finder)
            mask = mask._replace(
                shown=finder.shown(chosen.secrets_show),
                harmless=finder.harmless and finder.harmless - self._held(),
                patterns=chosen.secrets_mask,
                show=chosen.secrets_show,
            )
            is_own = (chosen.secrets_mask, chosen.secrets_show) == (own.secrets_mask, own.secrets_show)
            is_new = is_own and mask != self._vault.mask
            if is_own:
                self._looked = time.monotonic()
            if is_new:
                self._vault.mask = mask
        if is_new:
            self._changed()
        return mask, [*_notes(mask), *_notes_of_known(mask.known), *notes]

    def masked_vault(self, fork: Fork) -> Vault:
        """Return the vault with the mask for collecting a fork's killed command: today's secrets that the command saw
        empty. Without the mask, such a file would be collected as emptied by the command. Changes to a secret that the
        user had shown to the command are collected like any other."""
        mask, _notes = self.look()

        noted = masked_of(fork.path)
        known = noted.paths if noted.top is not None else None
        empty = [path for path in mask.paths if (path in known if known is not None else last(path) in noted.names)]
        if len(empty) == len(mask.paths):
            return self._vault
        with self._lock:
            return self._vault.masked(self._mask(self._settings, empty, mask.complete)[0])

    def whole_vault(self) -> Vault:
        """Return the vault with all secrets masked, including those that the session's commands are shown."""
        return self._vault.masked(self.look(self._settings._replace(secrets_show=()))[0])

    def hide_all(self, fork: Fork) -> Vault:
        """Move all secrets out of a resting fork's layers. Return the vault with all secrets masked. Hold the fork's
        lock."""
        from mudroom.vault.forks.hidden import hide

        vault = self.whole_vault()
        hide(vault, fork)
        return vault

    def _finder(self, mask: tuple[bytes, ...]) -> Finder:
        """Return the finder for these patterns. Hold the lock."""
        if mask not in self._finders:
            index = self._vault.path + (b"/secrets.mask" if mask else b"/secrets")
            self._finders[mask] = Finder(self._vault.source, index, mask)
        return self._finders[mask]

    def _mask(
        self, settings: Settings, paths: list[bytes], complete: bool, finder: Finder | None = None
    ) -> tuple[Mask, tuple[str, ...]]:
        """Return the mask, and notes about repositories. ``finder``: finds the files' other names, which are masked,
        too. Hold the lock."""
        if not paths:
            return NO_MASK._replace(complete=complete), ()
        if self._git is None:
            from mudroom.stage.views.git_mask import GitMasks

            cache = self._vault.path + b"/secrets.git"
            self._git = GitMasks(self._vault.project, self._masks, cache, self._vault.source)
        now = time.time_ns()
        with OpenSource(self._vault.source) as source:
            secrets = files_at(source, paths)
            if finder is not None and any(entry.links > 1 for entry in secrets.values()):
                others = (path for path in finder.other_names(secrets) if not matches(path, settings.secrets_show))
                secrets |= files_at(source, tuple(others))
                complete = finder.is_complete
            always = frozenset(path for path in secrets if matches(path, settings.secrets_mask))
            git = self._git.look(source, secrets, always, now)
            masked = {path: entry for path, entry in secrets.items() if path not in git.known}
            mask = make_mask(source, self._masks, masked, complete)
        return mask._replace(git=git.layer, known=git.known), git.notes

    def _held(self) -> frozenset[bytes]:
        """Return the paths of secrets that a fork or a snapshot holds, because commands were shown them."""
        held = frozenset[bytes]()
        for place, file in ((self._vault.path + SHOWN, PATHS), (self._vault.base(""), HELD)):
            if os.path.isdir(place):
                held |= held.union(*(read_paths(place + name + file) for name in os.listdir(place) if b"." not in name))
        return held

    def hides(self, path: bytes) -> bool:
        """Return whether a file at this path is a secret that is not shown. Files that git already has are shown, and
        files of the project whose content is none. Raise SecretsUnknown as ``look`` does."""
        _require_known(self._settings)
        if not is_masked(path, self._settings.secrets_mask, self._settings.secrets_show):
            return path in self._vault.mask.paths  # another name of a secret
        if time.monotonic() - self._looked >= _RECENT:
            self.look()
        mask = self._vault.mask
        return self.is_home or path in mask.paths or (path not in mask.known and path not in mask.harmless)

    def hides_conflict(self, conflict: ForkConflict) -> bool:
        """Return whether any side's path is a secret: a rename does not make a secret readable."""
        return any(map(self.hides, {conflict.path, conflict.base.path, conflict.ours.path, conflict.theirs.path}))


def _require_known(settings: Settings) -> None:
    if settings.secrets_mask is UNKNOWN:  # by identity: a policy may hold an equal value
        raise SecretsUnknown(
            "the policy, which names secrets, cannot be read, so changes that are not recorded yet stay so",
            "mudroom policy check says what is wrong in it",
        )


def _notes_of_known(known: frozenset[bytes]) -> list[str]:
    if not known:
        return []
    names = _some(known)
    if len(known) == 1:
        text = f"1 file with the name of a secret is in git already, so it is shown: {names}"
        return [f"{text} (secrets.mask in the policy hides it)"]
    text = f"{len(known):,} files with names of secrets are in git already, so they are shown: {names}"
    return [f"{text} (secrets.mask in the policy hides them)"]


def _some(paths: frozenset[bytes]) -> str:
    return ", ".join(show(path) for path in sorted(paths)[:4]) + (", …" if len(paths) > 4 else "")


def _notes(mask: Mask) -> list[str]:
    notes = []
    if mask.paths:
        names = _some(mask.paths)
        count = "1 secret is" if len(mask.paths) == 1 else f"{len(mask.paths):,} secrets are"
        notes.append(f"{count} shown empty: {names} (--show PATH, or secrets.show in the policy)")
    if not mask.complete:
        notes.append("the project has so many directories that not all were searched for secrets")
    return notes
