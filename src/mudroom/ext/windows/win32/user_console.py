"""The user's console while a command has its own: keys and output as UTF-8, whatever the code page, and the modes from
``console.py``. ReadConsoleW and WriteConsoleW use UTF-16, in which a character may be split between calls."""

from __future__ import annotations

import codecs
import ctypes
from ctypes import byref

from mudroom.ext.windows.win32 import console
from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.api import CallFailed, Library
from mudroom.ext.windows.win32.process import interrupt_call

_UNITS = 4096
"""UTF-16 units in one call: older consoles take 64 KiB at most ("WriteConsole")."""


class UserConsole:
    """Owners of the decoders: the reading and the writing thread."""

    def __init__(self, library: Library, input_handle: int, output_handle: int) -> None:
        self._library, self._input, self._output = library, input_handle, output_handle
        self._modes: console.Modes | None = None
        self._typed = codecs.getincrementaldecoder("utf-16-le")("replace")
        self._shown = codecs.getincrementaldecoder("utf-8")("replace")

    def enter_raw(self) -> None:
        self._modes = console.enter_raw(self._library, self._input, self._output)

    def restore(self) -> None:
        modes, self._modes = self._modes, None
        if modes is not None:
            console.restore(self._library, self._input, self._output, modes)

    def size(self) -> tuple[int, int] | None:
        return console.size(self._library, self._output)

    def read(self) -> bytes:
        buffer, count = (ctypes.c_uint16 * _UNITS)(), w.DWORD()
        try:
            self._library.ReadConsoleW(self._input, buffer, _UNITS, byref(count), None)
        except CallFailed as failed:
            if failed.code != w.ERROR_OPERATION_ABORTED:
                raise
        return self._typed.decode(bytes(buffer)[: 2 * count.value]).encode("utf-8", "replace")

    def write(self, data: bytes) -> None:
        units = self._shown.decode(data).encode("utf-16-le", "replace")
        while units:
            piece, count = units[: 2 * _UNITS], w.DWORD()
            self._library.WriteConsoleW(self._output, piece, len(piece) // 2, byref(count), None)
            units = units[2 * max(1, count.value) :]

    def interrupt(self, thread: int) -> None:
        """Interrupt a thread's read, by the thread's number."""
        interrupt_call(self._library, thread)


def user_console(library: Library, descriptors: tuple[int | None, ...]) -> UserConsole | None:
    """Return the console behind stdin, stdout and stderr, or None if one of the three is something else."""
    import msvcrt

    if any(descriptor is None for descriptor in descriptors):
        return None
    get = msvcrt.get_osfhandle  # type: ignore[attr-defined,unused-ignore]
    handles: list[int] = [get(descriptor) for descriptor in descriptors]
    if any(console.mode(library, handle) is None for handle in handles):
        return None
    return UserConsole(library, handles[0], handles[1])


def read_pipe(library: Library, handle: int) -> bytes:
    """Return bytes from a pipe; empty at its end."""
    buffer, count = ctypes.create_string_buffer(1 << 16), w.DWORD()
    try:
        library.ReadFile(handle, buffer, len(buffer), byref(count), None)
    except CallFailed as failed:
        if failed.code not in (w.ERROR_BROKEN_PIPE, w.ERROR_NO_DATA):
            raise
    return buffer.raw[: count.value]


def write_pipe(library: Library, handle: int, data: bytes) -> None:
    """Write bytes to a pipe. Raise CallFailed if its reader has gone."""
    while data:
        count = w.DWORD()
        library.WriteFile(handle, data, len(data), byref(count), None)
        data = data[max(1, count.value) :]
