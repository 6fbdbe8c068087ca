"""The transport of a client that has started us: a message a line, on stdin and stdout.

1. Stdout carries messages alone: our own descriptor 1 leads to stderr from then on, and 0 to /dev/null, so neither a
   library nor a child can write into the stream, or read from it.
2. A line is read up to ``message.MOST`` bytes; the rest of a longer one is skipped and not kept.
3. The end of stdin is the end of the client: its requests are cancelled, their commands end, the session is closed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

from mudroom.mcp import message
from mudroom.mcp.call import Call
from mudroom.mcp.connection import McpConnection
from mudroom.mcp.message import MOST, Json, RpcError, RpcRequest, too_large
from mudroom.mcp.server import AT_ONCE, Server

_PIECE = 1 << 16


class Stream:
    """Writes messages as lines. ``_lock`` is held for each line, so that lines of threads do not mix."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, note: Json) -> None:
        """Write a message. Raise OSError if the client is gone."""
        line = memoryview(message.encoded(note) + b"\n")
        with self._lock:
            while line:
                line = line[os.write(self._descriptor, line) :]


def taken_streams() -> tuple[int, int]:
    """Return descriptors of stdin and stdout for messages alone."""
    read, write = os.dup(0), os.dup(1)  # close-on-exec (PEP 446)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return read, write


def lines(descriptor: int) -> Iterator[bytes | RpcError]:
    """Yield each line without its end; an error for a line that is too long."""
    pieces, size = list[bytes](), 0
    while piece := os.read(descriptor, _PIECE):
        while piece:
            head, newline, piece = piece.partition(b"\n")
            size += len(head)
            if size <= MOST:
                pieces.append(head)
            else:
                pieces.clear()
            if newline:
                yield b"".join(pieces) if size <= MOST else too_large(size)
                pieces, size = [], 0
    if 0 < size <= MOST:
        yield b"".join(pieces)


def serve(server: Server, read: int, write: int) -> None:
    """Serve one client until the end of ``read``."""
    stream, connection = Stream(write), McpConnection()
    try:
        for line in lines(read):
            if line == b"" or (isinstance(line, bytes) and line.isspace()):
                continue
            try:
                _take(server, connection, stream, line)
            except RpcError as problem:
                stream.send(message.error(problem))
    except OSError:
        pass  # the client reads no more: as the end of its messages
    finally:
        server.close(connection)


def _take(server: Server, connection: McpConnection, stream: Stream, line: bytes | RpcError) -> None:
    if isinstance(line, RpcError):
        raise line
    parsed = message.parse(line)
    if not isinstance(parsed, RpcRequest):
        server.take(connection, parsed)
        return
    call = server.begin(connection, parsed, stream.send)
    if parsed.method in AT_ONCE:
        _answer(server, connection, stream, call)
        return
    thread = threading.Thread(target=_answer, args=(server, connection, stream, call), daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no more threads here
        connection.end(call)
        raise RpcError(message.INTERNAL_ERROR, "no thread can be started: try again", identity=call.id) from None


def _answer(server: Server, connection: McpConnection, stream: Stream, call: Call) -> None:
    answer = server.answer(connection, call)
    if answer is not None:
        try:
            stream.send(answer)
        except OSError:
            connection.close()  # the client is gone: the reader will see it, too
