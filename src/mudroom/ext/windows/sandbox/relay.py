"""The program that a container's first process runs: it listens on 127.0.0.1 in there, and passes each connection
through a named pipe on the host.

Rules of this file:
1. Its text is a complete program (``python -c``) that uses only the standard library, since the container need not be
   able to read mudroom's files. It is inside the sandbox, so the host does not trust anything that it sends.
2. A connection is an instance of the pipe. Each direction is frames: a length in four bytes, then that many bytes; 0
   ends the direction. The relay's first connection carries one frame, ``ready`` or why it cannot serve. When that
   connection ends, the relay ends.
3. A connection that gets no instance in time is closed: the host limits their number.
"""

from __future__ import annotations

import importlib
import os
import socket
import struct
import sys
import threading
import time

_winapi = importlib.import_module("_winapi")
_socket = importlib.import_module("socket")  # a checker on other systems does not know its constants

PIECE = 1 << 16
"""The longest frame, in bytes."""
PATIENCE = 5.0
"""Seconds that a connection waits for an instance."""
WANTED = 0x12019B
"""FILE_GENERIC_READ and FILE_GENERIC_WRITE without FILE_CREATE_PIPE_INSTANCE, which GENERIC_WRITE contains and the
pipe's list gives to the user alone ("Named Pipe Security and Access Rights")."""
_BUSY = 231
"""ERROR_PIPE_BUSY."""
_OVERLAPPED, _ANONYMOUS = 0x40000000, 0x100000
"""FILE_FLAG_OVERLAPPED; SECURITY_SQOS_PRESENT with SECURITY_ANONYMOUS: the server cannot act as this process."""


class End:
    """The client's end of a pipe instance."""

    def __init__(self, name: str) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self.handle = _winapi.CreateFile(name, WANTED, 0, 0, _winapi.OPEN_EXISTING, _OVERLAPPED | _ANONYMOUS, 0)
                return
            except OSError as error:
                left = end - time.monotonic()
                if getattr(error, "winerror", 0) != _BUSY or left <= 0:
                    raise
                wait(name, left)

    def read(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            call, _error = _winapi.ReadFile(self.handle, length - len(data), overlapped=True)
            count, _error = call.GetOverlappedResult(True)
            if not count:
                raise BrokenPipeError
            data += bytes(call.getbuffer())
        return data

    def write(self, data: bytes) -> None:
        while data:
            call, _error = _winapi.WriteFile(self.handle, data, overlapped=True)
            count, _error = call.GetOverlappedResult(True)
            data = data[count:]

    def close(self) -> None:
        _winapi.CloseHandle(self.handle)


def wait(name: str, seconds: float) -> None:
    """Wait until an instance is free, or the time is over."""
    try:
        _winapi.WaitNamedPipe(name, max(1, round(seconds * 1000)))
    except OSError:
        pass  # the next attempt says why


def inward(end: End, channel: socket.socket) -> None:
    """Pass on the client's data."""
    try:
        while piece := channel.recv(PIECE):
            end.write(struct.pack("<I", len(piece)) + piece)
        end.write(struct.pack("<I", 0))
    except OSError:
        pass  # an end has gone: serve() finds it, too


def serve(name: str, channel: socket.socket) -> None:
    try:
        end = End(name)
    except OSError:
        channel.close()
        return
    thread = threading.Thread(target=inward, args=(end, channel), daemon=True)
    thread.start()
    try:
        while length := struct.unpack("<I", end.read(4))[0]:
            channel.sendall(end.read(length))
        channel.shutdown(socket.SHUT_WR)
        thread.join()
    except (OSError, ValueError):
        pass  # an end has gone, or a frame is invalid: both are closed
    try:
        channel.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it is not connected any more
    thread.join()
    channel.close()
    end.close()


def attend(listener: socket.socket, name: str) -> None:
    while True:
        channel, _address = listener.accept()
        threading.Thread(target=serve, args=(name, channel), daemon=True).start()


def main(name: str, port: int) -> None:
    control = End(name)
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, _socket.SO_EXCLUSIVEADDRUSE, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
        said = b"ready"
    except OSError as error:
        said = str(error).encode()
    control.write(struct.pack("<I", len(said)) + said)
    if said == b"ready":
        threading.Thread(target=attend, args=(listener, name), daemon=True).start()
    try:
        control.read(1)
    except OSError:
        pass  # the host has closed it: this is the end
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
