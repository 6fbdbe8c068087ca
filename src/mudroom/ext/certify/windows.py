"""Windows facts that decide whether rows would still hold there: the counterpart to ``identity.py``'s POSIX facts. The
system is asked for each, not the environment, which any program can set."""

from __future__ import annotations

import ctypes
import os
import sys

from mudroom.stage import disk
from mudroom.typing import Any

_CURRENT = r"SOFTWARE\Microsoft\Windows NT\CurrentVersion"
_MODEL_UNLOCK = r"SOFTWARE\Microsoft\Windows\CurrentVersion\AppModelUnlock"
_CRYPTOGRAPHY = r"SOFTWARE\Microsoft\Cryptography"


def tool() -> bytes:
    """Return the path to the library that makes and starts confined processes."""
    buffer = ctypes.create_unicode_buffer(260)
    _kernel().GetSystemDirectoryW(buffer, len(buffer))
    return disk.real_path(buffer.value.encode()) + b"/kernelbase.dll"


def system() -> str:
    """Return product and build, such as ``Windows 10.0.26100.4061``."""
    version = sys.getwindowsversion()  # type: ignore[attr-defined,unused-ignore]
    try:
        revision = _value(_CURRENT, "UBR")
    except OSError:
        revision = 0  # before Windows 10
    return f"Windows {version.major}.{version.minor}.{version.build}.{revision}"


def host() -> str:
    """Return this machine's identifier, which its set-up has made. Raise OSError."""
    return str(_value(_CRYPTOGRAPHY, "MachineGuid"))


def user() -> str:
    from mudroom.ext.windows.win32.api import Library
    from mudroom.ext.windows.win32.owner import own_sid

    return own_sid(Library())


def kind(state: bytes) -> str:
    """Return ``Identity.kind``. Raise OSError."""
    name, _serial, *more = volume(state).rsplit(" ", 4)
    user = "administrator" if ctypes.WinDLL("shell32").IsUserAnAdmin() else "user"  # type: ignore[attr-defined,unused-ignore]
    return f"{sys.version_info[0]}.{sys.version_info[1]} {user} {name} {' '.join(more)}"


def volume(state: bytes) -> str:
    """Return a directory's file system, its serial number, its flags, its maximal name length, and whether all
    users may make symbolic links. Raise OSError."""
    root = os.fsdecode(state[:2]) + "\\"
    name, serial, most, flags = ctypes.create_unicode_buffer(64), ctypes.c_ulong(), ctypes.c_ulong(), ctypes.c_ulong()
    done = _kernel().GetVolumeInformationW(
        root, None, 0, ctypes.byref(serial), ctypes.byref(most), ctypes.byref(flags), name, len(name)
    )
    if not done:
        raise OSError(0, "the volume of the state directory tells nothing", root)
    return f"{name.value} {serial.value:08x} {flags.value:08x} {most.value} {_developer_mode()}"


def _developer_mode() -> int:
    """Return whether each user may make symbolic links ("CreateSymbolicLink"). A row that no user could try is tried
    again when that changes."""
    try:
        return int(_value(_MODEL_UNLOCK, "AllowDevelopmentWithoutDevLicense"))
    except OSError:
        return 0


def _kernel() -> Any:
    return ctypes.WinDLL("kernel32")  # type: ignore[attr-defined,unused-ignore]


def _value(key: str, name: str) -> Any:
    import winreg

    with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key) as opened:  # type: ignore[attr-defined,unused-ignore]
        return winreg.QueryValueEx(opened, name)[0]  # type: ignore[attr-defined,unused-ignore]
