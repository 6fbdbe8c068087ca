"""The user's console: its modes, its size, and text that was typed ahead. The counterpart to termios.

A console in raw mode passes on each key as a terminal's bytes (ENABLE_VIRTUAL_TERMINAL_INPUT), Ctrl-C too, and shows a
program's escape sequences (ENABLE_VIRTUAL_TERMINAL_PROCESSING): "High-Level Console Modes". The modes belong to the
console, not to the process, so they are restored on every way out.
"""

from __future__ import annotations

from ctypes import byref

from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.api import CallFailed, Library
from mudroom.typing import NamedTuple

_COOKED = w.ENABLE_PROCESSED_INPUT | w.ENABLE_LINE_INPUT | w.ENABLE_ECHO_INPUT


class Modes(NamedTuple):
    input: int
    output: int


def mode(library: Library, handle: int) -> int | None:
    """Return the mode for a console's handle, or None if the handle is not a console's."""
    value = w.DWORD()
    try:
        library.GetConsoleMode(handle, byref(value))
    except CallFailed:
        return None
    return value.value


def enter_raw(library: Library, input_handle: int, output_handle: int) -> Modes | None:
    """Put the console into raw mode. Return its modes as they were, for ``restore``, or None if a handle is not a
    console's; then nothing was changed. Raise CallFailed, with the modes restored."""
    before = mode(library, input_handle), mode(library, output_handle)
    if before[0] is None or before[1] is None:
        return None
    modes = Modes(before[0], before[1])
    try:
        library.SetConsoleMode(input_handle, modes.input & ~_COOKED | w.ENABLE_VIRTUAL_TERMINAL_INPUT)
        library.SetConsoleMode(
            output_handle, modes.output | w.ENABLE_PROCESSED_OUTPUT | w.ENABLE_VIRTUAL_TERMINAL_PROCESSING
        )
    except CallFailed:
        restore(library, input_handle, output_handle, modes)
        raise
    return modes


def restore(library: Library, input_handle: int, output_handle: int, modes: Modes) -> None:
    """Restore the modes. A console that is gone has none."""
    for handle, value in ((input_handle, modes.input), (output_handle, modes.output)):
        try:
            library.SetConsoleMode(handle, value)
        except CallFailed as failed:
            if failed.code != w.ERROR_INVALID_HANDLE:
                raise


def size(library: Library, output_handle: int) -> tuple[int, int] | None:
    """Return columns and rows in the console's window, or None if the handle is not a console's."""
    info = w.CONSOLE_SCREEN_BUFFER_INFO()
    try:
        library.GetConsoleScreenBufferInfo(output_handle, byref(info))
    except CallFailed:
        return None
    left, top, right, bottom = info.srWindow
    return max(1, right - left + 1), max(1, bottom - top + 1)


def forget_typed(descriptor: int) -> None:
    """Do as ``discard_typed``, with this machine's library."""
    import msvcrt

    discard_typed(Library(), msvcrt.get_osfhandle(descriptor))  # type: ignore[attr-defined,unused-ignore]


def discard_typed(library: Library, input_handle: int) -> None:
    """Discard text typed before a question, as tcflush(3) does. Other handles keep their data."""
    if mode(library, input_handle) is not None:
        library.FlushConsoleInputBuffer(input_handle)
