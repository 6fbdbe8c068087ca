r"""Named pipes that carry byte streams in both directions: a server that admits few clients, and its connections.

Rules of this file:
1. The name is this server's alone: its first instance is made with FILE_FLAG_FIRST_PIPE_INSTANCE, which fails if any
   process has made the name before ("CreateNamedPipeW"); the number of instances is read back, as Wine ignores the
   flag. Only the user may make another instance.
2. The access list names the user, the system and the trustee. All others are left out, and clients on another machine
   are refused (PIPE_REJECT_REMOTE_CLIENTS, and a denial for NETWORK).
3. The label is low: a process with low integrity may write ("Mandatory Integrity Control").
4. Each call can be waited for together with an event that ends it (overlapped): a thread never hangs in a pipe.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection
from contextlib import suppress
from ctypes import byref, c_void_p, sizeof

from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.api import CallFailed, Library
from mudroom.ext.windows.win32.owner import own_sid
from mudroom.typing import Any

PREFIX = "\\\\.\\pipe\\"
_SYSTEM, _NETWORK = "S-1-5-18", "S-1-5-2"
""" "Well-known SIDs"."""
CLIENT = (w.FILE_GENERIC_READ | w.FILE_GENERIC_WRITE) & ~w.FILE_CREATE_PIPE_INSTANCE
"""The trustee's rights: to read and write, and not to make an instance ("Named Pipe Security and Access Rights")."""
_ROOM = 1 << 16
_GONE = (w.ERROR_BROKEN_PIPE, w.ERROR_NO_DATA, w.ERROR_PIPE_NOT_CONNECTED, w.ERROR_OPERATION_ABORTED)


class PipeClosed(Exception):
    """The other end is closed, or this end is (``PipeStopped``)."""


class PipeStopped(PipeClosed):
    """The event that ends all waits is set."""


def access_list(user: str, trustee: str) -> str:
    """Return the security descriptor for a server's pipe, in SDDL. ``trustee``: a container's or a session's SID; the
    user's own adds nothing."""
    rows = [f"(D;;GA;;;{_NETWORK})", f"(A;;FA;;;{user})", f"(A;;FA;;;{_SYSTEM})"]
    if trustee != user:
        rows.append(f"(A;;{CLIENT:#x};;;{trustee})")
    return f"D:P{''.join(rows)}S:(ML;;NW;;;LW)"


class Pipe:
    """A connected end. One thread may read while another writes.

    Owner: the caller; ``close`` is called when no thread uses it any more.
    """

    def __init__(self, library: Library, handle: int, stop: int) -> None:
        """``stop``: the event that ends every wait."""
        self._library, self.handle, self._stop = library, handle, stop
        self._events = [library.CreateEventW(None, 1, 0, None) for _direction in range(2)]
        self._buffer = ctypes.create_string_buffer(_ROOM)

    def read(self, most: int) -> bytes:
        """Return the data that has come, at least a byte. Raise PipeClosed."""
        length = min(most, _ROOM)
        count = self._perform(0, lambda place: self._library.ReadFile(self.handle, self._buffer, length, None, place))
        if not count:
            raise PipeClosed
        return self._buffer.raw[:count]

    def write(self, data: bytes) -> None:
        """Write all. Raise PipeClosed."""
        while data:
            data = data[self._write(data) :]

    def _write(self, data: bytes) -> int:
        return self._perform(1, lambda place: self._library.WriteFile(self.handle, data, len(data), None, place))

    def connect(self) -> bool:
        """Wait, as a server, for a client. Return False if the client has gone again. Raise PipeStopped."""
        try:
            self._perform(
                0, lambda place: self._library.ConnectNamedPipe(self.handle, place), (w.ERROR_PIPE_CONNECTED,)
            )
        except PipeStopped:
            raise
        except PipeClosed:
            return False
        return True

    def client(self) -> int:
        """Return the number of the process that has opened the other end. Raise CallFailed."""
        number = w.DWORD()
        self._library.GetNamedPipeClientProcessId(self.handle, byref(number))
        return number.value

    def instances(self) -> int:
        """Return how many instances the name has. Raise CallFailed."""
        number = w.DWORD()
        self._library.GetNamedPipeHandleStateW(self.handle, None, byref(number), None, None, None, 0)
        return number.value

    def _perform(self, direction: int, call: Callable[[Any], int], done: Collection[int] = ()) -> int:
        """Make a call, wait until it is done, and return its byte count. ``done``: codes that mean success."""
        overlapped = w.OVERLAPPED()
        overlapped.hEvent = self._events[direction]
        try:
            call(byref(overlapped))
        except CallFailed as failed:
            if failed.code in done:
                return 0
            if failed.code in _GONE:
                raise PipeClosed from failed
            if failed.code != w.ERROR_IO_PENDING:
                raise
            handles = (c_void_p * 2)(self._events[direction], self._stop)
            if self._library.WaitForMultipleObjects(2, handles, 0, w.INFINITE) != w.WAIT_OBJECT_0:
                self._cancel(overlapped)
                raise PipeStopped from None
        return self._result(overlapped)

    def _cancel(self, overlapped: w.OVERLAPPED) -> None:
        """End a call, and wait until the system is done with its buffer."""
        try:
            self._library.CancelIoEx(self.handle, byref(overlapped))
        except CallFailed as failed:
            if failed.code != w.ERROR_NOT_FOUND:  # it has just been done
                raise
        with suppress(PipeClosed):  # as asked for
            self._result(overlapped)

    def _result(self, overlapped: w.OVERLAPPED) -> int:
        count = w.DWORD()
        try:
            self._library.GetOverlappedResult(self.handle, byref(overlapped), byref(count), 1)
        except CallFailed as failed:
            if failed.code in _GONE:
                raise PipeClosed from failed
            raise
        return count.value

    def cut(self) -> None:
        """End the connection for the client and for every call on it. Unread data is lost."""
        try:
            self._library.DisconnectNamedPipe(self.handle)
        except CallFailed as failed:
            if failed.code not in _GONE:
                raise

    def close(self) -> None:
        for handle in (self.handle, *self._events):
            self._library.CloseHandle(handle)
        self._events = []


class PipeServer:
    """The instances of one name. Used by one thread; ``stop`` may be set by any.

    Owner: the caller.
    """

    def __init__(self, library: Library, name: str, trustee: str, most: int) -> None:
        """``name``: without the prefix. ``trustee``: the SID that may connect, beside the user. ``most``: connections
        at the same time; one more client waits. Raise CallFailed, with ERROR_ACCESS_DENIED if another process has made
        the name."""
        self._library, self._name, self._most = library, PREFIX + name, most
        self.stop = library.CreateEventW(None, 1, 0, None)
        self._descriptor = c_void_p()
        self._waiting: Pipe | None = None
        try:
            text = access_list(own_sid(library), trustee)
            library.ConvertStringSecurityDescriptorToSecurityDescriptorW(text, 1, byref(self._descriptor), None)
            self._waiting = self._instance(w.FILE_FLAG_FIRST_PIPE_INSTANCE)
            if self._waiting.instances() != 1:
                raise CallFailed("CreateNamedPipeW", w.ERROR_ACCESS_DENIED)
        except CallFailed:
            self.close()
            raise

    def _instance(self, flags: int = 0) -> Pipe:
        attributes = w.SECURITY_ATTRIBUTES(sizeof(w.SECURITY_ATTRIBUTES), self._descriptor, 0)
        access = w.PIPE_ACCESS_DUPLEX | w.FILE_FLAG_OVERLAPPED | flags
        kind = w.PIPE_TYPE_BYTE | w.PIPE_REJECT_REMOTE_CLIENTS
        handle = self._library.CreateNamedPipeW(
            self._name, access, kind, self._most + 1, _ROOM, _ROOM, 0, byref(attributes)
        )
        return Pipe(self._library, handle, self.stop)

    def accept(self) -> Pipe:
        """Return the next connection; the caller closes it. Raise PipeStopped, or CallFailed if there are ``most``
        connections."""
        while True:
            pipe = self._waiting
            assert pipe is not None
            has_client = pipe.connect()
            self._waiting = self._instance()  # before the other is closed: else the name would be free for a moment
            if has_client:
                return pipe
            pipe.close()

    def close(self) -> None:
        """Close the waiting instance. Connections are their callers'. No thread may be in ``accept``."""
        if self._waiting is not None:
            self._waiting.close()
            self._waiting = None
        self._library.LocalFree(self._descriptor)
        self._descriptor = c_void_p()
        if self.stop:
            self._library.CloseHandle(self.stop)
            self.stop = 0
