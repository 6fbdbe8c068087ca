"""Files that containers have written. Their owners are subordinate numbers: the user alone can neither read nor remove
them."""

from __future__ import annotations

import os

from mudroom.core.confinement.plan import NAMESPACES, Plan
from mudroom.core.tree.path import show
from mudroom.core.tree.quote import show_words
from mudroom.errors import MudroomError, Unsupported, UsageError
from mudroom.ext.engine.numbers import id_maps
from mudroom.sandbox.client.invocation import Invocation
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher


def remove(path: bytes) -> None:
    """Remove a tree of mudroom's own. No link is followed. Raise MudroomError if that fails."""
    try:
        status = _as_root(b"/bin/rm", b"-rf", b"--one-file-system", b"--", path)
    except (Unsupported, UsageError) as error:  # the files need not be of containers
        raise MudroomError(
            f"{show(path)} cannot be removed: others own files in it", show_words((b"sudo", b"rm", b"-rf", b"--", path))
        ) from error
    if status or os.path.lexists(path):
        raise MudroomError(f"{show(path)} cannot be removed: files of containers are in it", "mudroom doctor")


def own(layer: bytes) -> None:
    """Give the user all files of a layer in which a container's root has changed owners. Containers of a shared sandbox
    may run meanwhile: find(1) enters each directory by descriptor, and follows no link. Raise MudroomError if that
    fails."""
    others = (b"(", b"-uid", b"+0", b"-o", b"-gid", b"+0", b")")
    if _as_root(b"/usr/bin/find", layer, b"-xdev", *others, b"-execdir", b"/bin/chown", b"-h", b"0:0", b"{}", b"+"):
        raise MudroomError(f"files of containers in {show(layer)} cannot be given to you", "mudroom doctor")


def _as_root(*words: bytes) -> int:
    """Run a program as root of a user namespace with the subordinate numbers; return its wait status."""
    found = id_maps()
    client = LauncherClient(SpawnedLauncher())
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        client.start()
        maps = (*found.inner, False, found.outer[3])
        running = client.run(Plan(NAMESPACES["user"], maps, ()), Invocation(words, {}, (null, null, null)))
        return running.wait().status
    finally:
        os.close(null)
        client.close()
