"""Package manager caches: where commands see them, and whose entries a command sees. Pure.

Rules of this file:
1. No two forks write to the same cache. A command sees an overlay: its fork's own writable layer over read-only pools,
   which are shared.
2. A pool belongs to a single agent, or to the user. A fork's new entries come back to the pool of the agent whose
   commands ran in it, and to no other. An agent sees the user's pool below its own; the user never sees an agent's.
3. Where no overlay can be mounted, a fork's caches are its own directories, and start empty.
"""

from __future__ import annotations

import functools

from mudroom.core.tree.path import is_below
from mudroom.typing import Literal, NamedTuple

CacheShare = Literal["fork", "agent", "project"]
"""Where new cache entries in a fork go: nowhere; to the pool of the agent or user whose commands ran in the fork; to a
single pool for the user and all agents."""

CACHES = (
    (b".cache", b"cache"),  # pip, uv, go build, yarn, ccache, deno, composer and other tools that follow XDG
    (b".npm", b"npm"),
    (b".cargo/registry", b"cargo-registry"),
    (b".cargo/git", b"cargo-git"),
    (b"go/pkg", b"go"),
    (b".gradle/caches", b"gradle"),
    (b".m2/repository", b"maven"),
    (b".nuget/packages", b"nuget"),
    (b".yarn/berry", b"yarn"),
    (b".local/share/pnpm/store", b"pnpm"),
)
"""(path below the home directory, name in a pool). These are the tools' default paths, so no variable is needed."""

NAMES = tuple(name for _place, name in CACHES)
USER = b"user"
"""The user's pool."""


class CacheView(NamedTuple):
    """The caches that a plan mounts for a command."""

    places: tuple[tuple[bytes, bytes], ...]
    """(name in the pools, absolute path inside). The overlay is first mounted at the first place."""
    lowers: tuple[bytes, ...] = ()
    """Directories in the pools, topmost first. Empty: ``upper`` holds the caches, and there is no overlay."""
    upper: bytes = b""
    work: bytes = b""


NO_CACHES = CacheView(())


NOWHERE = b"-"
"""In place of a pool: new entries stay in their fork."""


@functools.lru_cache(maxsize=8)
def places_apart(
    places: tuple[tuple[bytes, bytes], ...], project: bytes, shown: tuple[bytes, ...]
) -> tuple[tuple[bytes, bytes], ...]:
    """Return (name, path) for the caches that neither contain the project nor lie in a shown directory. Cached for the
    session, because every pair is compared."""
    return tuple(
        (name, path)
        for name, path in places
        if not is_below(project, path) and not any(is_below(path, above) for above in shown)
    )


def pools_read(agent: str | None, share: CacheShare) -> tuple[bytes, ...]:
    """Return the pools that a command sees, topmost first. ``agent``: None for the user."""
    return (USER,) if agent is None or share == "project" else (_pool_of(agent), USER)


def pool_written(agent: str | None, share: CacheShare, recorded: bytes = b"") -> bytes:
    """Return the pool for a fork's new entries after a command. ``recorded``: the pool that earlier commands wrote to;
    empty if there were none. Return NOWHERE if the pools differ: otherwise an entry from one pool would go to the
    other."""
    pool = NOWHERE if share == "fork" else pools_read(agent, share)[0]
    return pool if recorded in (b"", pool) else NOWHERE


def _pool_of(agent: str) -> bytes:
    from _blake2 import blake2b

    return b"agent-" + blake2b(agent.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest().encode()
