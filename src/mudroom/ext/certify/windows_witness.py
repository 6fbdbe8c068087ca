"""Looks at Windows from outside its sandboxes: whether the deeds in ``windows_deed.py`` had an effect."""

from __future__ import annotations

import os
from collections.abc import Callable

from mudroom.typing import NamedTuple


class Witness(NamedTuple):
    """The calls by which a canary looks. The tests' stand-in has its own."""

    has_key: Callable[[str], bool]
    """Return whether a key is in the user's part of the registry."""
    remove_key: Callable[[str], None]
    inheritable: Callable[[int], int]
    """Make a descriptor's handle inheritable by children, and return it."""
    is_held: Callable[[str], bool]
    """Return whether a process holds a file open; otherwise remove the file."""
    fill_clipboard: Callable[[], Callable[[], None]]
    """Put a text into the clipboard if it is empty. Return a function that removes it."""
    make_pipe: Callable[[str, str], Callable[[], None]]
    """Make a pipe as a bridge has it, for the container with a SID. Return a function that closes it."""


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
    an open file cannot be removed ("CreateFile")."""
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
    """Put a text into an empty clipboard, and return a function that removes it. The user's own content stays."""
    import ctypes

    kernel, user = (ctypes.WinDLL(name) for name in ("kernel32", "user32"))  # type: ignore[attr-defined,unused-ignore]
    kernel.GlobalAlloc.restype = kernel.GlobalLock.restype = user.CreateWindowExW.restype = ctypes.c_void_p
    if user.CountClipboardFormats():
        return lambda: None
    only_messages = ctypes.c_void_p(_HWND_MESSAGE)
    window = ctypes.c_void_p(user.CreateWindowExW(0, "STATIC", None, 0, 0, 0, 0, 0, only_messages, None, None, None))
    # "OpenClipboard": it fails without a window.
    if not user.OpenClipboard(window):
        user.DestroyWindow(window)
        return lambda: None
    try:
        user.EmptyClipboard()
        memory = ctypes.c_void_p(kernel.GlobalAlloc(_GMEM_MOVEABLE, len(_TEXT)))
        ctypes.memmove(ctypes.c_void_p(kernel.GlobalLock(memory)), _TEXT, len(_TEXT))
        kernel.GlobalUnlock(memory)
        # "SetClipboardData": the memory is the system's afterwards.
        user.SetClipboardData(_CF_UNICODETEXT, memory)
    finally:
        user.CloseClipboard()

    def empty() -> None:
        if user.OpenClipboard(window):
            user.EmptyClipboard()
            user.CloseClipboard()
        user.DestroyWindow(window)

    return empty
