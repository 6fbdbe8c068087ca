"""Files that only their user may read and write, by owner and access list: Windows has neither uid nor mode.

The system and the administrators are trusted, as root is elsewhere: they can take any file. Any other entry that allows
something opens the file to others; so does an entry of an unknown kind. A file without any list is open to everybody
("Null DACLs and Empty DACLs").
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_void_p, sizeof

from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.api import Library
from mudroom.typing import Any

ADMINISTRATION = ("S-1-5-18", "S-1-5-32-544")
"""SYSTEM and Administrators: "Well-known SIDs"."""

_CHANGES = (
    (w.FILE_GENERIC_WRITE & ~w.READ_CONTROL & ~w.SYNCHRONIZE)
    | 0x40  # FILE_DELETE_CHILD
    | w.DELETE
    | w.WRITE_DAC
    | w.WRITE_OWNER
    | w.GENERIC_WRITE
    | w.GENERIC_ALL
)
"""Rights by which a file can be changed or replaced ("File Access Rights Constants")."""


def own_sid(library: Library) -> str:
    """Return the SID of this process's user."""
    return sid_of(library, -1)  # GetCurrentProcess's pseudo-handle


def sid_of(library: Library, process: int) -> str:
    """Return the SID of a process's user, by the process's handle. Raise CallFailed."""
    token = c_void_p()
    library.OpenProcessToken(c_void_p(process), w.TOKEN_QUERY, byref(token))
    try:
        return library.token_sid(token.value or 0, "TokenUser")[0]
    finally:
        library.CloseHandle(token.value or 0)


def protect(library: Library, path: str) -> None:
    """Leave a file or directory to the user, the system and the administrators, and let it inherit no other entry.
    Raise CallFailed."""
    trustees = "".join(f"(A;OICI;FA;;;{sid})" for sid in (own_sid(library), *ADMINISTRATION))
    descriptor, dacl, present, defaulted = c_void_p(), c_void_p(), w.BOOL(), w.BOOL()
    library.ConvertStringSecurityDescriptorToSecurityDescriptorW("D:P" + trustees, 1, byref(descriptor), None)
    try:
        library.GetSecurityDescriptorDacl(descriptor, byref(present), byref(dacl), byref(defaulted))
        file = _open(library, path, w.READ_CONTROL | w.WRITE_DAC)
        try:
            kind = w.DACL_SECURITY_INFORMATION | w.PROTECTED_DACL_SECURITY_INFORMATION
            library.SetSecurityInfo(file, w.ENUM["SE_FILE_OBJECT"], kind, None, None, dacl, None)
        finally:
            library.CloseHandle(file)
    finally:
        library.LocalFree(descriptor)


def is_private(library: Library, handle: int) -> bool:
    """Return whether only the user, the system and the administrators may use an open file. Raise CallFailed."""
    return _is_closed(library, handle, 0xFFFFFFFF)


def is_own(library: Library, handle: int) -> bool:
    """Return whether only the user, the system and the administrators may change an open file or its access list. Raise
    CallFailed."""
    return _is_closed(library, handle, _CHANGES)


def _is_closed(library: Library, handle: int, rights: int) -> bool:
    """Return whether a trusted SID owns the file, and its list gives none of the rights to others."""
    trusted = (own_sid(library), *ADMINISTRATION)
    owner, dacl, descriptor = c_void_p(), c_void_p(), c_void_p()
    kind = w.OWNER_SECURITY_INFORMATION | w.DACL_SECURITY_INFORMATION
    library.GetSecurityInfo(
        handle, w.ENUM["SE_FILE_OBJECT"], kind, byref(owner), None, byref(dacl), None, byref(descriptor)
    )
    try:
        if not dacl.value or library.sid_text(owner.value) not in trusted:
            return False
        return all(sid in trusted or not mask & rights for sid, mask in _allowed(library, dacl.value))
    finally:
        library.LocalFree(descriptor)


def _allowed(library: Library, dacl: int) -> list[tuple[str, int]]:
    """Return the SIDs to which a list allows something, each with its rights; "" and all rights for an entry of an
    unknown kind."""
    sids = []
    place = dacl + sizeof(w.ACL)
    for _entry in range(w.ACL.from_address(dacl).AceCount):
        header = w.ACE_HEADER.from_address(place)
        if header.AceType == w.ACCESS_ALLOWED_ACE_TYPE:
            mask = int(w.ACCESS_ALLOWED_ACE.from_address(place).Mask)
            sids.append((library.sid_text(place + w.ACCESS_ALLOWED_ACE.SidStart.offset), mask))
        elif header.AceType != w.ACCESS_DENIED_ACE_TYPE:
            sids.append(("", 0xFFFFFFFF))
        place += header.AceSize
    return sids


def _open(library: Library, path: str, access: int) -> int:
    share = w.FILE_SHARE_READ | w.FILE_SHARE_WRITE | w.FILE_SHARE_DELETE
    flags = w.FILE_FLAG_BACKUP_SEMANTICS | w.FILE_FLAG_OPEN_REPARSE_POINT
    file: Any = library.CreateFileW(path, access, share, None, w.OPEN_EXISTING, flags, None)
    return ctypes.c_void_p(file).value or 0
