"""The facts about a machine that decide whether the rows would still hold. A certificate is for exactly these facts: if
any differs, there is no certificate."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import sys
from collections.abc import Sequence

from mudroom.stage.filesystem_kind import filesystem_magic
from mudroom.typing import NamedTuple

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DECIDING: Sequence[str] = (
    "ext/certify", "core/confinement/plan.py", "core/confinement/spec.py", "sandbox/client/launcher_client.py",
    "sandbox/host/host.py", "sandbox/host/process_table.py", "sandbox/client/wire.py", "ext/macos",
    "sandbox/platform.py", "net/gate", "stage/clone.py", "stage/copy.py", "stage/disk.py", "core/registry.py",
    "core/system", "vault/apply",
)  # fmt: skip
"""mudroom's modules and folders that decide what a command may do, or how that is tried."""
DECIDING_ON_WINDOWS: Sequence[str] = (
    "ext/certify", "core/confinement/plan.py", "core/confinement/spec.py", "ext/windows/core/windows_command.py",
    "ext/windows/core/windows_plan.py", "core/tree/windows_name.py", "core/tree/windows_path.py", "sandbox/platform.py",
    "ext/windows/sandbox", "stage/copy.py", "ext/windows/stage/nt_call.py", "ext/windows/stage/nt_disk.py",
    "ext/windows/stage/nt_private.py", "core/registry.py", "core/system", "vault/apply", "ext/windows/win32",
)  # fmt: skip
_VERSION = "/System/Library/CoreServices/SystemVersion.plist"
_PC_CASE_SENSITIVE = 11
"""pathconf(2) on macOS, sys/unistd.h."""


class Identity(NamedTuple):
    platform: str
    system: str
    """The operating system's product and build."""
    machine: str
    tool: str
    """The confining program's hash; on Linux, where the kernel confines, that of nothing."""
    modules: str
    """``code_of`` the platform."""
    python: str
    """Path and version."""
    host: str
    """The machine's identifier."""
    user: int | str
    """Number; on Windows the SID."""
    volume: str
    """Facts about the file system that has the state directory."""
    kind: str
    """Python's minor version, whether the user is an administrator, and the file system: facts as other machines have
    them. Empty if they cannot be found out."""

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(self).encode()).hexdigest()

    @property
    def shared(self) -> dict[str, str]:
        """Return the facts that a record of another machine has to be about (``shipped.py``)."""
        return {name: getattr(self, name) for name in ("platform", "system", "machine", "tool", "modules", "kind")}


def identity(platform: str, state: bytes, tool: bytes) -> Identity:
    """Return this machine's facts. Raise OSError if a fact cannot be found out."""
    if sys.platform == "win32":
        from mudroom.ext.certify import windows as of_system

        facts = (of_system.host(), of_system.user(), of_system.volume(state), of_system.kind(state))
    else:
        volume = _volume(platform, state)
        facts = (_host(platform), os.geteuid(), volume, kind(state, volume))
    return Identity(
        platform,
        system(platform),
        _machine(),
        _hash([os.fsdecode(tool)] if tool else []),
        code_of(platform),
        f"{os.path.realpath(sys.executable)} {sys.version}",
        *facts,
    )


def kind(state: bytes, volume: str) -> str:
    """Return ``Identity.kind`` on a system with POSIX users."""
    try:
        filesystem = _filesystem(state)
    except OSError:
        return ""
    user = "user" if os.geteuid() else "root"
    return f"{sys.version_info[0]}.{sys.version_info[1]} {user} {filesystem} {volume}"


def _filesystem(state: bytes) -> str:
    """Return a file system's name on macOS, such as ``apfs``, elsewhere its number. Raise OSError if it has no name.
    statfs(2) of macOS: ``f_fstypename`` stands after 72 bytes."""
    if sys.platform == "darwin":
        buffer = ctypes.create_string_buffer(4096)
        libc = ctypes.CDLL(None, use_errno=True)
        statfs = getattr(libc, "statfs$INODE64", None) or libc.statfs  # x86_64 has an older layout under the plain name
        if statfs(state, buffer):
            raise OSError(ctypes.get_errno(), "its file system tells nothing", state)
        name = buffer.raw[72:88].partition(b"\0")[0].decode("ascii", "replace")
        if not name.isalnum():
            raise OSError(0, "its file system has no name", state)
        return name
    return f"{filesystem_magic(state):x}"


def _machine() -> str:
    if sys.platform == "win32":
        from platform import machine

        return machine()
    return os.uname().machine


def tool_of(platform: str) -> bytes:
    """Return the path to the program or library that confines commands."""
    if platform == "win32":
        from mudroom.ext.certify.windows import tool

        return tool()
    from mudroom.ext.macos.client import SANDBOX_EXEC

    return SANDBOX_EXEC


def system(platform: str) -> str:
    """Return product and build, such as ``macOS 15.6 24G84``."""
    if platform == "darwin" and os.path.exists(_VERSION):
        import plistlib

        with open(_VERSION, "rb") as stream:
            facts = plistlib.load(stream)
        return f"macOS {facts['ProductVersion']} {facts['ProductBuildVersion']}"
    if sys.platform == "win32":
        from mudroom.ext.certify.windows import system as of_windows

        return of_windows()
    kernel = os.uname()
    return f"{kernel.sysname} {kernel.release}"


def code_of(platform: str) -> str:
    """Return a hash over mudroom's modules that decide on a platform."""
    return _hash(_modules(DECIDING_ON_WINDOWS if platform == "win32" else DECIDING))


def _modules(deciding: Sequence[str]) -> list[str]:
    found = []
    for name in deciding:
        path = os.path.join(_PACKAGE, name)
        below = sorted(os.listdir(path)) if os.path.isdir(path) else []
        found += [os.path.join(path, entry) for entry in below if entry.endswith(".py")] or [path]
    return found


def _hash(paths: Sequence[str]) -> str:
    """Return one hash over the files' contents, each with its length."""
    whole = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as stream:
            content = stream.read()
        whole.update(b"%d\n" % len(content) + content)
    return whole.hexdigest()


def _host(platform: str) -> str:
    """Return this machine's identifier: gethostuuid(2) on macOS, machine-id(5) elsewhere."""
    if platform == "darwin" and sys.platform == "darwin":
        value, wait = ctypes.create_string_buffer(16), (ctypes.c_long * 2)(1, 0)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.gethostuuid(value, wait):
            raise OSError(ctypes.get_errno(), "this machine has no identifier")
        return value.raw.hex()
    try:
        with open("/etc/machine-id", encoding="ascii") as stream:
            return stream.read().strip()
    except FileNotFoundError:
        return os.uname().nodename


def _volume(platform: str, state: bytes) -> str:
    facts = os.statvfs(state)
    folds = ""
    if platform == "darwin" and sys.platform == "darwin":
        folds = str(os.pathconf(state, _PC_CASE_SENSITIVE))
    return f"{facts.f_flag} {facts.f_namemax} {folds}"  # no device number: it may change with each start
