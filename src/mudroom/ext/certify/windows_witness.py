"""Looks at Windows from outside of its sandboxes: whether the deeds of ``windows_deed.py`` had an effect."""

from __future__ import annotations

import os
from collections.abc import Callable

from mudroom.typing import NamedTuple


class Witness(NamedTuple):
    """The calls by which a canary looks. The stand-in of the tests has its own."""

    has_key: Callable[[str], bool]
    """Whether a key is in the user's part of the registry."""
    remove_key: Callable[[str], None]
    inheritable: Callable[[int], int]
    """Makes the handle of a descriptor one that children inherit, and returns it."""
    is_held: Callable[[str], bool]
    """Whether a process holds a file open; otherwise it is removed."""
    fill_clipboard: Callable[[], Callable[[], None]]
    """Puts a text into the clipboard if it is empty. Returns a function that takes it away again."""
    make_pipe: Callable[[str, str], Callable[[], None]]
    """Makes a pipe as a bridge has it, for the container of a SID. Returns a function that closes it."""


def native_witness() -> Witness:
    return Witness(_has_key, _remove_key, _inheritable, is_held, _fill_clipboard, _make_pipe)


def _has_key(name: str) -> bool:
    import winreg

    try:
        winreg.CloseKey(winreg.OpenKey(winreg.HKEY_CURRENT_USER, name))  # type: ignore[attr-defined,unused-ignore]
    except FileNotFoundError:
        return False
    return True


def _remove_key(name: str) -> None:
    import winreg

    winreg.DeleteKey(winreg.HKEY_CURRENT_USER, name)  # type: ignore[attr-defined,unused-ignore]


def _inheritable(descriptor: int) -> int:
    import msvcrt

    handle = msvcrt.get_osfhandle(descriptor)  # type: ignore[attr-defined,unused-ignore]
    os.set_handle_inheritable(handle, True)  # type: ignore[attr-defined,unused-ignore]
    return int(handle)


def is_held(path: str) -> bool:
    """Return whether a process holds a file open; otherwise remove it. Python opens files without FILE_SHARE_DELETE, so
    one that is open cannot be removed ("CreateFile")."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    except PermissionError:
        return True
    return False


def _make_pipe(name: str, sid: str) -> Callable[[], None]:
    from mudroom.ext.windows.win32.api import Library
    from mudroom.ext.windows.win32.pipe import PipeServer

    return PipeServer(Library(), name, sid, 1).close


_TEXT = "mudroom".encode("utf-16-le") + b"\0\0"
_CF_UNICODETEXT, _GMEM_MOVEABLE, _HWND_MESSAGE = 13, 2, -3


def _fill_clipboard() -> Callable[[], None]:
    """Put a text into an empty clipboard. Return what takes it away; the user's own content is left as it is.
    "SetClipboardData": the memory is the system's afterwards; "OpenClipboard": it fails without a window."""
    import ctypes

    kernel, user = (ctypes.WinDLL(name) for name in ("kernel32", "user32"))  # type: ignore[attr-defined,unused-ignore]
    kernel.GlobalAlloc.restype = kernel.GlobalLock.restype = user.CreateWindowExW.restype = ctypes.c_void_p
    if user.CountClipboardFormats():
        return lambda: None
    only_messages = ctypes.c_void_p(_HWND_MESSAGE)
    window = ctypes.c_void_p(user.CreateWindowExW(0, "STATIC", None, 0, 0, 0, 0, 0, only_messages, None, None, None))
    if not user.OpenClipboard(window):
        user.DestroyWindow(window)
        return lambda: None
    try:
        user.EmptyClipboard()
        memory = ctypes.c_void_p(kernel.GlobalAlloc(_GMEM_MOVEABLE, len(_TEXT)))
        ctypes.memmove(ctypes.c_void_p(kernel.GlobalLock(memory)), _TEXT, len(_TEXT))
        kernel.GlobalUnlock(memory)
        user.SetClipboardData(_CF_UNICODETEXT, memory)
    finally:
        user.CloseClipboard()

    def empty() -> None:
        if user.OpenClipboard(window):
            user.EmptyClipboard()
            user.CloseClipboard()
        user.DestroyWindow(window)

    return empty
