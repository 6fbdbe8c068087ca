"""The transport for a client that has started the server: a message a line, on stdin and stdout.

1. The streams carry only messages: they belong to the client (``cli/terminal/protocol_streams.py``), and are not
   descriptors 0 and 1 any more.
2. A line is read up to ``message.MOST`` bytes; the rest of a longer line is skipped and not kept.
3. The client ends with stdin. Requests in progress have ``LAST_WORDS`` seconds to be answered: in a shell pipe the last
   request and the end come together. Clients wait longer than that before they send SIGTERM (2 s in the official SDKs;
   specification, "Shutdown"). The others are cancelled and answered with an error, their commands end, and the session
   is closed.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Iterator

from mudroom.core.system.write_all import write_all
from mudroom.ext.agents.mcp import message
from mudroom.ext.agents.mcp.call import Call
from mudroom.ext.agents.mcp.connection import McpConnection
from mudroom.ext.agents.mcp.message import MOST, Json, RpcError, RpcRequest, too_large
from mudroom.ext.agents.mcp.server import AT_ONCE, Server

LAST_WORDS = 1.5
_PIECE = 1 << 16
_LOOK = 0.05


class Stream:
    """Writes messages as lines. ``_lock`` is held for each line, so that lines from several threads do not mix."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, note: Json) -> None:
        """Write a message. Raise OSError if the client is gone."""
        line = message.encoded(note) + b"\n"
        with self._lock:
            write_all(self._descriptor, line)

    def is_read(self) -> bool:
        """Return whether there is still a reader: without one, a pipe or socket has POLLERR (poll(2))."""
        if sys.platform == "win32":
            from mudroom.ext.windows.win32.pipe_end import is_read

            return is_read(self._descriptor)
        poll = select.poll()
        poll.register(self._descriptor, 0)
        return not poll.poll(0)


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
    """Serve one client until ``read`` ends."""
    stream, connection, threads = Stream(write), McpConnection(), list[threading.Thread]()
    try:
        for line in lines(read):
            if line == b"" or (isinstance(line, bytes) and line.isspace()):
                continue
            try:
                threads = [thread for thread in threads if thread.is_alive()]
                threads += _take(server, connection, stream, line)
            except RpcError as problem:
                stream.send(message.error(problem))
        _let_end(threads, stream)
    except OSError:
        pass  # the client reads no more: as after its last message
    finally:
        server.close(connection)
        for thread in threads:
            thread.join(_LOOK)


def _let_end(threads: list[threading.Thread], stream: Stream) -> None:
    end = time.monotonic() + LAST_WORDS
    for thread in threads:
        while thread.is_alive() and stream.is_read() and (left := end - time.monotonic()) > 0:
            thread.join(min(left, _LOOK))


def _take(
    server: Server, connection: McpConnection, stream: Stream, line: bytes | RpcError
) -> tuple[threading.Thread, ...]:
    """Answer a message, or begin to. Return the thread that answers, if there is one. Raise RpcError."""
    if isinstance(line, RpcError):
        raise line
    parsed = message.parse(line)
    if not isinstance(parsed, RpcRequest):
        server.take(connection, parsed)
        return ()
    call = server.begin(connection, parsed, stream.send)
    if parsed.method in AT_ONCE:
        _answer(server, connection, stream, call)
        return ()
    thread = threading.Thread(target=_answer, args=(server, connection, stream, call), daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no more threads here
        connection.end(call)
        raise RpcError(message.INTERNAL_ERROR, "no thread can be started: try again", identity=call.id) from None
    return (thread,)


def _answer(server: Server, connection: McpConnection, stream: Stream, call: Call) -> None:
    answer = server.answer(connection, call)
    if answer is None and connection.is_closed and stream.is_read():  # not cancelled by the client
        answer = message.error(RpcError(message.INTERNAL_ERROR, "stdin was closed before this was done"), call.id)
    if answer is not None:
        try:
            stream.send(answer)
        except OSError:
            connection.close()  # the client is gone: the reader will see it, too
