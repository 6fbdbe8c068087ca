"""Specification of a command's files, network and rights, independent of the platform.

A spec is complete: the compilers (``sandbox/linux/plan.py`` and its siblings) read nothing else. Its paths are absolute
and contain no symbolic links.
"""

from __future__ import annotations

from mudroom.core.confinement.cache_place import NO_CACHES, CacheView
from mudroom.core.confinement.default_limit import Counter, TmpfsSize
from mudroom.typing import Literal, NamedTuple

Network = Literal["none", "gate", "open"]
"""``gate``: only connections that the gate's rules allow; ``open``: the host's network without restrictions."""


class Overlay(NamedTuple):
    """A kernel overlay mounted at the project's own path."""

    lowers: tuple[bytes, ...]
    """Topmost first; the last is the base."""
    upper: bytes
    work: bytes


class Copy(NamedTuple):
    """A directory with all staged files, mounted at the project's own path where mounts are possible."""

    work: bytes
    identity: tuple[int, int] | None = None
    """Device and inode, if it is a mount that others may end or replace; None: a copy in the vault."""


class Bind(NamedTuple):
    source: bytes
    path: bytes
    writable: bool = False


class StagedRoot(NamedTuple):
    """Another directory that is staged at its own path, beside the project."""

    path: bytes
    view: Overlay
    binds: tuple[Bind, ...] = ()
    """Read-only, mounted over it."""
    has_slots: bool = False
    """As for the project."""
    emptied: tuple[bytes, ...] = ()
    """Directories in it that appear empty."""
    covered: tuple[bytes, ...] = ()
    """Files in it that cannot be read."""


class HostView(NamedTuple):
    """Level 0: the host's file system, read-only, with these exceptions."""

    directories: tuple[tuple[bytes, int], ...] = ()
    """(path, mode) for directories that replace those in the home directory. Hidden entries are left out of them."""
    links: tuple[tuple[bytes, bytes], ...] = ()
    """(target, path) for symbolic links in the replaced directories."""
    shown: tuple[Bind, ...] = ()
    """The replaced directories' other contents, and visible parts of private directories."""
    private: tuple[bytes, ...] = ()
    """Host directories that are replaced by empty directories private to the command."""
    hidden: tuple[bytes, ...] = ()
    """Directories that appear empty."""
    covered: tuple[bytes, ...] = ()
    """Files and sockets that cannot be opened. They are looked up again for each command."""
    live: tuple[Bind, ...] = ()
    """The host's own credential stores and sockets that were named; writable."""
    abstract: bool = False
    """The command may connect to the host's abstract unix sockets."""


class SandboxSpec(NamedTuple):
    project: bytes
    view: Overlay | Copy
    cwd: bytes
    home: bytes
    """Where the private home directory is seen: at the user's real home path."""
    scratch: bytes
    """An empty directory in the vault. The new root is mounted over it; without mounts it contains home and /tmp."""
    namespaces: bool = True
    """False if the kernel or a container forbids user namespaces: only Landlock and seccomp confine the command then.
    """
    network: Network = "none"
    proxy: int = 0
    """Port on the host's loopback where the gate listens if there are no namespaces."""
    ports: tuple[int, ...] = ()
    """Ports that lead to the gate on a kernel that cannot redirect all ports."""
    loopback: tuple[tuple[str, int, int], ...] = ()
    """Places on the host's loopback that are reached inside: (address, port, port of the gate's listener for it on the
    host's loopback). The last is 0 if the listener is made in the command's network namespace."""
    links: tuple[tuple[bytes, bytes], ...] = ()
    """Symbolic links in the host's root directory, as (target, path), such as /bin → usr/bin."""
    binds: tuple[Bind, ...] = ()
    """System directories, toolchains, and mounts that the user added."""
    caches: CacheView = NO_CACHES
    roots: tuple[StagedRoot, ...] = ()
    """Parents before their children. The home may be one; then there is no private home."""
    masks: tuple[bytes, ...] = ()
    """Files that appear empty."""
    has_slots: bool = False
    """Whether the project's ``.mudroom/apply`` exists: it holds earlier versions of files, secrets included, by
    numbers."""
    files: tuple[tuple[bytes, bytes], ...] = ()
    """(path, content) for files created in the private home directory."""
    home_links: tuple[tuple[bytes, bytes], ...] = ()
    """(target, path) for links created in it. There is no bind or file at these paths."""
    devices: tuple[bytes, ...] = ()
    landlock_abi: int = 0
    """0: the kernel has no Landlock."""
    as_root: bool = False
    """The user is root on the host. uid 0 owns /proc/sys and other users' secrets, so more is removed."""
    uid_map: bytes = b""
    gid_map: bytes = b""
    deny_setgroups: bool = True
    umask: int = 0o022
    rlimits: tuple[tuple[int, int, int], ...] = ()
    """(resource, soft, hard) with setrlimit(2) resource numbers."""
    session_rlimits: tuple[tuple[int, int, int], ...] = ()
    """The same, set once for all commands in a session."""
    tmpfs: TmpfsSize = TmpfsSize()
    counters: tuple[Counter, ...] = ()
    """Limits on the sandbox's user namespace."""
    around: HostView | None = None
    """None: level 1."""
    sockets: tuple[bytes, ...] = ()
    """Paths that the user named: the host's sockets, and directories with sockets."""
    stores: tuple[str, ...] = ()
    """The available credential stores, by name. On macOS some are services, not files."""
