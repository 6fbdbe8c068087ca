"""Secrets that a fork's commands saw empty: its file ``masked``."""

from __future__ import annotations

from mudroom.core.tree.stack import ForkState
from mudroom.stage import safe_open
from mudroom.typing import NamedTuple

MASKED = b"/masked"


class MaskedSecrets(NamedTuple):
    """The file ``masked``: names, an empty name, the layer, the paths, separated by NUL bytes."""

    names: frozenset[bytes] = frozenset()
    """Last path components that were masked when one of its commands began."""
    top: bytes | None = None
    """The top sealed layer when the layers were searched for these paths; empty: there was none. None: never
    searched."""
    paths: frozenset[bytes] = frozenset()
    """Secrets that were masked for every command that has written to the fork since."""

    def at(self, state: ForkState) -> frozenset[bytes]:
        """Return the secrets that are in none of these layers. Return no path if a rollback has left the searched
        layer."""
        is_below = self.top is not None and (not self.top or self.top.decode() in state.layers)
        return self.paths if is_below else frozenset()

    @property
    def content(self) -> bytes:
        names = b"\0".join(sorted(self.names))
        return names if self.top is None else names + b"\0\0" + b"\0".join((self.top, *sorted(self.paths)))

    @property
    def unsearched(self) -> MaskedSecrets:
        """The record after the fork's layers were replaced: they will be searched again."""
        return MaskedSecrets(self.names)

    @classmethod
    def of(cls, content: bytes) -> MaskedSecrets:
        names, is_new, rest = content.partition(b"\0\0")
        known = frozenset(names.split(b"\0")) - {b""}
        if not is_new:  # written by an earlier version
            return cls(known)
        top, *paths = rest.split(b"\0")
        return cls(known, top, frozenset(paths) - {b""})


def masked_of(fork: bytes) -> MaskedSecrets:
    """Return the record in this fork directory."""
    try:
        with open(fork + MASKED, "rb", buffering=0) as stream:
            return MaskedSecrets.of(stream.readall())
    except FileNotFoundError:
        return MaskedSecrets()


def note_masked(
    fork: bytes, state: ForkState, paths: frozenset[bytes], former: MaskedSecrets, *, searched: bool = False
) -> None:
    """Record the masked files before a command: it may commit them as empty files, even if they have been removed
    since.

    A secret that the command is shown counts as held by the layers from now on. ``searched``: the layers were searched
    for all masked files.
    """
    names = former.names | {path.rpartition(b"/")[2] for path in paths}
    top = (state.layers[-1] if state.layers else "").encode() if searched or not former.at(state) else former.top
    keep_masked(fork, MaskedSecrets(names, top, paths), former)


def keep_masked(fork: bytes, masked: MaskedSecrets, former: MaskedSecrets | None = None) -> None:
    """Replace a fork's record. ``former``: the record on disk; None: there is none."""
    before = former or MaskedSecrets()
    is_same_top = masked.top == before.top or (before.top is not None and not masked.paths)
    if masked._replace(top=b"") == before._replace(top=b"") and is_same_top:
        return
    if before.names:
        safe_open.replace(fork + MASKED, masked.content)
        return
    with open(fork + MASKED, "wb") as stream:
        stream.write(masked.content)
