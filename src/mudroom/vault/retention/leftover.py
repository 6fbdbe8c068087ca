"""Files that a killed mudroom leaves behind: files not yet renamed, work directories, incomplete forks.

They are useless once they are older than the time it takes to make them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from mudroom.vault.store.fork import SHOWN, Fork
from mudroom.vault.store.store import OUTSIDE, Vault

_WRITTEN = (b"clock.", b"directory-", b"format-", b"project-", b"source-", b"trial-")
"""Name prefixes of files in the vault itself (``vault/moment.py``, ``vault/store/store.py``)."""
_OF_A_FORK = (b"state.new", b"record.new", b"landed.new", b"copy/manifest.new")


def fork_leftovers(fork: bytes, before: int) -> Iterator[bytes]:
    """Yield leftovers in an idle fork that is not mounted: files not renamed, and work directories from past mounts.

    Hold the fork's lock. ``before``: only files last changed before that time, in nanoseconds since 1970.
    """
    yield from _old((fork + b"/" + name for name in _OF_A_FORK), before)
    yield from _old(_below(fork + b"/work"), before)


def is_incomplete(fork: bytes, before: int) -> bool:
    """Whether the making of a fork was interrupted: it has no state, and no file that a complete fork has had."""
    names = {os.path.basename(path) for path in _below(fork)}
    return names <= {b"lock", b"state.new"} and os.stat(fork).st_mtime_ns < before


def vault_leftovers(vault: Vault, before: int) -> Iterator[bytes]:
    """Yield leftovers in the vault itself. Hold its lock; no apply may be unfinished."""
    applies = vault.applies()
    for apply in applies:
        names = {os.path.basename(path): path for path in _below(apply)}
        yield from _old((path for name, path in names.items() if name.endswith(b".new")), before)
        parts = [path for path in _below(apply + b"/slots") if path.endswith(b".part")]
        yield from _old(parts, before)
    for apply in applies[:-1]:  # the last number must not be reused
        names = {os.path.basename(path): path for path in _below(apply)}
        if not any(name.startswith(b"plan.") for name in names) and not list(_below(apply + b"/slots")):
            yield from _old([apply], before)
    yield from _old([vault.path + b"/applies/removed.new"], before)
    for fork in _below(vault.path + b"/forks"):
        if Fork(os.fsdecode(os.path.basename(fork)), fork, vault.path).is_blank:
            yield fork
    yield from _old((path for path in _below(vault.path) if os.path.basename(path).startswith(_WRITTEN)), before)
    yield from _old(_below(vault.merged), before)
    layers = {os.path.basename(path) for path in _below(vault.path + b"/layers")}
    # left when mudroom was killed: their layer is gone, or they were not renamed
    shown = _below(vault.path + SHOWN.rstrip(b"/"))
    yield from _old((path for path in shown if _layer_of(path) not in layers or path.endswith(b".new")), before)
    for base in _below(vault.path + b"/bases"):
        yield from _old([base + b"/manifest.new"], before)


def dropped_files(vault: Vault, before: int) -> Iterator[bytes]:
    """Yield the files that commands wrote outside the project before that time (``ext/outside``)."""
    for fork in list(_below(vault.path + OUTSIDE)):
        yield from list(_old([fork], before)) or _old(_below(fork), before)


def _layer_of(shown: bytes) -> bytes:
    return os.path.basename(shown).partition(b".")[0]


def unused_git_layers(vault: Vault, before: int) -> Iterator[bytes]:
    """Yield layers that keep masked files from git (``stage/views/git_mask.py``) and that no command has used since
    ``before``.

    Every change to a repository's index makes a new layer. No fork may be in use or mounted.
    """
    layers = (path for path in _below(vault.path + b"/masks") if os.path.basename(path).startswith(b"git-"))
    yield from _old(layers, before)


def _below(place: bytes) -> Iterator[bytes]:
    try:
        names = os.listdir(place)
    except FileNotFoundError:
        return
    for name in sorted(names):
        yield place + b"/" + name


def _old(paths: Iterator[bytes] | list[bytes], before: int) -> Iterator[bytes]:
    for path in paths:
        try:
            info = os.lstat(path)
        except FileNotFoundError:
            continue
        if max(info.st_mtime_ns, info.st_ctime_ns) < before:
            yield path
