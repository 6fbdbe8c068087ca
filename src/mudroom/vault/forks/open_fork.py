"""A fork opened for reading: its base, the layers below its upper layer, its staged files."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence

from mudroom.core.system.closing import Closing
from mudroom.core.tree.change import Changeset
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.stack import LIVE
from mudroom.errors import ForkGone
from mudroom.stage.layers.shown import PATHS, TREE, WithSecrets, own_paths, part_of, read_paths
from mudroom.stage.layers.union import OneLayer, Union, staged_source
from mudroom.stage.source import OpenSource, Source
from mudroom.typing import TYPE_CHECKING, TypeVar
from mudroom.vault.store.fork import Fork, mount_note
from mudroom.vault.store.masked_secrets import masked_of
from mudroom.vault.store.store import Vault

if TYPE_CHECKING:
    from mudroom.stage.originals.ground import Ground
    from mudroom.stage.originals.private_base import PrivateBase
    from mudroom.stage.originals.snapshot import SnapshotSource
    from mudroom.stage.view import View
    from mudroom.stage.views.secret import Mask

    Base = OpenSource | SnapshotSource

_Opened = TypeVar("_Opened", bound="OpenSource | OneLayer | Union")


class OpenFork(Closing):
    """Open descriptors for a fork's base and layers. Close it; reopen it after a command has run.

    Owner: the caller, in one thread; below a ``Buffer`` it is read with the buffer's lock held.
    """

    def __init__(self, vault: Vault, fork: Fork) -> None:
        """Raise ForkGone if another process discards or renames the fork meanwhile; no lock is needed here."""
        self._vault, self._fork = vault, fork
        self._state = state = fork.state
        self._opened: list[Callable[[], None]] = []
        self._snapshot: SnapshotSource | None = None
        try:
            if state.base == LIVE:
                base: Base = self._keep(OpenSource(vault.source))
            else:
                from mudroom.stage.originals.snapshot import SnapshotSource

                self._snapshot = base = SnapshotSource(vault.base(state.base))
            self.git_layer = vault.git_mask(state)
            """The layer that keeps masked files from git; empty if there is none."""
            private = vault.private_layer(state)
            self._between = vault.masking(state)
            below = (*fork.sealed, *self._between)
            self.lower: Union | Base = self._keep(Union(below, base)) if below else base
            """The tree below the upper layer, as seen by commands that are shown no secret."""
            self.visible: Source = self.lower
            """The same tree with the secrets that commands with this mask are shown."""
            mask = vault.mask
            self.shown_paths = mask.shown
            """Secrets that commands with this mask are shown."""
            self.masked = mask.paths
            """Secrets that they see empty."""
            self._allowed = frozenset[bytes]()
            """The fork's shown secrets that they may read."""
            self._shown = fork.shown
            if self._shown:
                self._show(mask)
            self._private: PrivateBase | None = None
            if private:
                from mudroom.stage.originals.private_base import PrivateBase

                self._private = PrivateBase(self._keep(Union((private,), None)), base)
            self.base: PrivateBase | Base = self._private or base
            """The tree against which the fork's changes are compared."""
            self._bottom = base
        except BaseException as error:
            self.close()
            if isinstance(error, FileNotFoundError) and not os.path.isdir(fork.path):
                raise ForkGone(fork.name) from None
            raise

    def _show(self, mask: Mask) -> None:
        self._allowed = frozenset(path for path in read_paths(self._shown + PATHS) if mask.allows(path))
        if self._allowed:
            self.shown_paths |= self._allowed
            secrets = self._keep(OneLayer(self._shown + TREE))
            self.visible = WithSecrets(self.lower, secrets, self._allowed)

    @property
    def whole(self) -> Source:
        """The tree below the upper layer with all secrets that commands were shown: a copy may have any of them."""
        if not self._shown:
            return self.lower

        return WithSecrets(self.lower, self._keep(OneLayer(self._shown + TREE)), read_paths(self._shown + PATHS))

    @property
    def holds_shown(self) -> bool:
        """Whether the fork holds secrets that commands were shown."""
        return bool(self._shown)

    def reopen_shown(self) -> None:
        """Notice the shown secrets that have been moved out of the writable layer."""
        self._shown = self._fork.shown

    def shown_layers(self) -> tuple[bytes, ...]:
        """Return the layer directory with the shown secrets that commands with this mask may read; empty if there are
        none. Hold the fork's lock."""
        if not self._allowed:
            return ()

        part = part_of(self._shown, self._allowed, self._fork.path, self.lower)
        return (part + TREE,)

    def shown(self, argv: Sequence[bytes]) -> tuple[bytes, ...]:
        """Return a command as a record keeps it: without secrets, since lists, exports and agents show it. No command
        is ever run from a record."""
        from mudroom.core.text.redaction import redact_argv, truncate

        words = truncate([word.decode("utf-8", "surrogateescape") for word in argv])
        return redact_argv([word.encode("utf-8", "surrogateescape") for word in words], self._vault.secrets())

    def _keep(self, source: _Opened) -> _Opened:
        self._opened.append(source.close)
        return source

    def close(self) -> None:
        for close in self._opened:
            close()
        self._opened.clear()
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None

    def staged(self) -> Source:
        """Return the contents of the layers without the base, or the whole copy. Secrets that some commands were shown
        are in the state that those commands left."""
        contents = self._fork.contents
        if self._are_layers(contents):
            return self._keep(staged_source(contents))
        copy = self._keep(OneLayer(contents[0], is_layer=False))
        if not self._shown:
            return copy

        # The copy holds a secret that its commands were shown, in the state that they left.
        paths = read_paths(self._shown + PATHS) & masked_of(self._fork.path).at(self._state)
        return WithSecrets(copy, self._keep(OneLayer(self._shown + TREE)), paths)

    def recorded(self) -> tuple[Source, ...]:
        """Return where the exact files in the fork's record can be: in its contents, and, if that is a copy, in the
        layers into which an apply has sealed it."""
        staged = self.staged()
        if not self._fork.has_copy or not self._fork.layered:
            return (staged,)
        return staged, self._keep(staged_source(self._fork.layered))

    def _are_layers(self, contents: Sequence[bytes]) -> bool:
        """Return whether these contents are layers, not a copy or a mount. The fork is not read again: another thread
        may make its first layer meanwhile."""
        return len(contents) != 1 or contents[0].startswith(self._vault.layer(""))

    def merged(self) -> Source:
        """Return the whole fork, as a command sees it with the vault's mask."""
        contents = self._fork.contents
        if not self._are_layers(contents):  # a copy holds everything
            return self._covered(self._keep(OneLayer(contents[0], is_layer=False)))
        upper = self._fork.layer(self._state.upper) + b"/tree"
        if self.visible is not self.lower:
            return self._covered(self._keep(Union((upper,), self.visible)) if os.path.isdir(upper) else self.visible)
        layers = (*(path for path in (upper, *self._fork.sealed) if os.path.isdir(path)), *self._between)
        return self._covered(self._keep(Union(layers, self._bottom)) if layers else self._bottom)

    def _covered(self, source: Source) -> Source:
        """Return the whole fork's tree, with secrets empty that its layers may hold. Before a command
        ``vault/forks/hidden.py`` removes them from the layers; a reader has no lock for that."""
        mask = self._vault.mask
        if not mask.paths or source is self._bottom:
            return source

        unknown = mask.paths - masked_of(self._fork.path).at(self._state)
        if not unknown or mount_note(self._fork) is not None:
            return source

        there = [path for path in unknown if source.look(path) is not None]
        return WithSecrets(source, self._keep(OneLayer(mask.layer)), there)

    def apart_from_git(self, view: View) -> View:
        """Return the view with its differences reported as if no layer kept masked files from git."""
        if not self.git_layer:
            return view
        from mudroom.stage.views.git_mask import ApartFromGitLayer

        return ApartFromGitLayer(view, self.git_layer, self.base, self.staged())

    def ground(self, changes: Changeset | None = None) -> Ground:
        """Return the base with the fork's originals. ``changes``: those in the fork's record, if it was already
        read."""
        from mudroom.stage.layers.landed import LANDED, load_landed
        from mudroom.stage.originals.ground import Ground
        from mudroom.stage.originals.original import Originals

        fork, state = self._fork, self._state
        layers = [fork.layer(name) for name in (*state.layers, state.upper)]
        sealed = fork.sealed_changes if state.layers else Changeset()
        if changes is None:
            record = fork.record
            changes = record.changeset if record is not None else sealed
        return Ground(
            self.base,
            Originals(layers, self._vault.reading),
            frozen=state.base != LIVE,
            sealed=sealed,
            before=changes,
            landed=load_landed(fork.path + LANDED),
            masked=self._masked(changes, sealed),
            masked_names=functools.cache(self._masked_names),
            own=functools.cache(self._own),
            shown=self._shown,
            settled=self._settled() if self._shown else frozenset(),
            fork=fork.path,
            project=self._vault.project,
            settings_at=b"" if self._vault.is_elsewhere else self._vault.project,
            private=self._private,
            applies=self._vault.path + b"/applies",
        )

    def _settled(self) -> frozenset[bytes]:
        return masked_of(self._fork.path).at(self._state)

    def _masked_names(self) -> frozenset[bytes]:
        return masked_of(self._fork.path).names

    def _own(self) -> frozenset[bytes]:
        return own_paths(self._fork.layer(self._state.upper))

    def _masked(self, *changesets: Changeset) -> frozenset[bytes]:
        """Return the masked files, and those that were masked when the fork touched them and that it still holds empty.

        A copy of a masked file must not empty the real file after the user has shown or committed it.
        """
        masked = self._vault.mask.paths
        remarked = {remark.path for changes in changesets for remark in changes.remarks} - masked
        if not remarked:
            return masked
        from mudroom.stage.originals.collection import MASKED

        texts = {remark.path: remark.text for changes in changesets for remark in changes.remarks}
        staged = self.staged()
        entries = {path: staged.look(path) for path in remarked if texts[path] == MASKED}
        return masked | {path for path, entry in entries.items() if entry is not None and _is_empty(entry)}


def _is_empty(entry: Entry) -> bool:
    return entry.kind == "file" and not entry.size
