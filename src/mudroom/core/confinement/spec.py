"""What a command may see and do, before it is decided how a platform does it.

A spec is complete: the compilers (``sandbox/linux/plan.py`` and its siblings) read nothing else. Paths in it are
absolute and real (no symbolic link in them).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Network = Literal["none", "gate", "open"]
"""``gate``: nothing but what its rules let through; ``open``: the host's network as it is."""


class Overlay(NamedTuple):
    """A kernel overlay at the project's own path."""

    lowers: tuple[bytes, ...]
    """Topmost first; the last is the base."""
    upper: bytes
    work: bytes


class Copy(NamedTuple):
    """A staged copy of the project. Where mounts are possible it appears at the project's own path."""

    work: bytes


class Bind(NamedTuple):
    source: bytes
    path: bytes
    writable: bool = False


class Around(NamedTuple):
    """Level 0: the host's own files around the command, read-only, but for what is named here."""

    directories: tuple[tuple[bytes, int], ...] = ()
    """(path, mode) of directories that stand in for those of the home: what is hidden is left out of them."""
    links: tuple[tuple[bytes, bytes], ...] = ()
    """(target, path) of symbolic links in those."""
    shown: tuple[Bind, ...] = ()
    """What else is in those, and what is shown of places that are private."""
    private: tuple[bytes, ...] = ()
    """Directories of the host in whose place the command has empty ones of its own."""
    hidden: tuple[bytes, ...] = ()
    """Directories shown empty."""
    covered: tuple[bytes, ...] = ()
    """Files and sockets that cannot be opened; looked up anew for each command."""
    live: tuple[Bind, ...] = ()
    """Credential stores and sockets that were named: the host's own, and writable."""
    abstract: bool = False
    """Abstract unix sockets of the host may be connected to."""


class SandboxSpec(NamedTuple):
    project: bytes
    view: Overlay | Copy
    cwd: bytes
    home: bytes
    """Where the private home is: the path of the user's real one."""
    scratch: bytes
    """An empty directory of the vault: the new root is mounted over it; without mounts, home and /tmp are in it."""
    namespaces: bool = True
    """False where the kernel or a container forbids user namespaces: Landlock and seccomp are then all there is."""
    network: Network = "none"
    proxy: int = 0
    """With a gate, but without namespaces: the port of the host's loopback where it listens."""
    ports: tuple[int, ...] = ()
    """With a gate: ports that lead there on a kernel that cannot redirect all."""
    links: tuple[tuple[bytes, bytes], ...] = ()
    """Symbolic links of the host's root directory, as (target, path): /bin → usr/bin and the like."""
    binds: tuple[Bind, ...] = ()
    """System directories, toolchains, caches, and what the user added."""
    masks: tuple[bytes, ...] = ()
    """Files shown empty."""
    files: tuple[tuple[bytes, bytes], ...] = ()
    """(path, content) of files made in the private home."""
    devices: tuple[bytes, ...] = ()
    landlock_abi: int = 0
    """0: the kernel has no Landlock."""
    as_root: bool = False
    """The user is root on the host: uid 0 owns /proc/sys and other people's secrets, so more is taken away."""
    uid_map: bytes = b""
    gid_map: bytes = b""
    deny_setgroups: bool = True
    umask: int = 0o022
    rlimits: tuple[tuple[int, int, int], ...] = ()
    """(resource, soft, hard), the resource as setrlimit(2) numbers it."""
    around: Around | None = None
    """None: level 1."""
    stores: tuple[str, ...] = ()
    """Credential stores that are open, by name: on macOS some are services, and no files."""
