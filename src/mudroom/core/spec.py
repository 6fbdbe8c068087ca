"""What a command may see and do, before it is decided how a platform does it.

A spec is complete: the compilers (``sandbox/linux.py`` and its siblings) read nothing else. Paths in it are absolute
and real (no symbolic link in them).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Network = Literal["none", "open"]


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
