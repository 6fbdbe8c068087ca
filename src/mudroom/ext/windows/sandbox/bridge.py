"""The bridge between a container and the gate: a named pipe whose clients are processes in one command's job, each
connection relayed to a server on the host. Its other half, inside, is ``relay.py``.

Rules of this file:
1. An AppContainer cannot reach the host's loopback, and no administrator is asked. So the container's first process
   listens on loopback in there, and this pipe is its way out.
2. The pipe is there before the container's first process, with a name that no other program can guess; if the name is
   taken, no command starts.
3. A client that is no process in the job is turned away, even if the access list has let it in. A client sends a byte
   stream for the gate, which trusts none of it; a frame that is too long, or cut off, ends its connection.
4. Nothing is relayed before ``serve``. ``close`` ends all connections and threads, and returns when they are gone: a
   thread never waits for a socket longer than ``_SLICE`` at a time, since shutdown() does not end another thread's
   send().
"""

from __future__ import annotations

import pkgutil
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from mudroom.errors import Unsupported
from mudroom.ext.windows.win32.api import CallFailed, Library
from mudroom.ext.windows.win32.pipe import Pipe, PipeClosed, PipeServer, PipeStopped
from mudroom.typing import Protocol

PIECE = 1 << 16
"""The longest frame, in bytes."""


class Readable(Protocol):
    def read(self, most: int, /) -> bytes:
        """Return the data that has come, at least a byte. Raise PipeClosed."""


class Writable(Protocol):
    def write(self, data: bytes, /) -> None:
        """Write all. Raise PipeClosed."""


class BrokenFrame(PipeClosed):
    """The client does not keep to the frames."""


def read_frame(pipe: Readable) -> bytes:
    """Return the next frame; empty at the stream's end. Raise PipeClosed if the client has gone between two frames,
    BrokenFrame if it sent no frame, PipeStopped."""
    head = pipe.read(4)
    length = int.from_bytes(head + _read_exactly(pipe, 4 - len(head)), "little")
    if length > PIECE:
        raise BrokenFrame(f"a frame of {length} bytes")
    return _read_exactly(pipe, length)


def _read_exactly(pipe: Readable, length: int) -> bytes:
    data = b""
    while len(data) < length:
        try:
            data += pipe.read(length - len(data))
        except PipeStopped:
            raise
        except PipeClosed as closed:
            raise BrokenFrame("a frame was cut off") from closed
    return data


def write_frame(pipe: Writable, data: bytes) -> None:
    """Write a frame with at most ``PIECE`` bytes. Raise PipeClosed."""
    pipe.write(len(data).to_bytes(4, "little") + data)


MOST = 64
"""Connections at the same time, the relay's own included. Others wait for ``relay.py:PATIENCE``, then are closed."""
READY = b"ready"
PATIENCE = 20.0
"""Seconds that the relay has to say that it listens."""
_MOST_NOTES = 8
_BETWEEN = 0.02
"""Seconds between two looks, in ``close``, at whether the accepting thread has ended."""
_SLICE = 0.5
"""Seconds of each wait for a socket."""


class GateBridge:
    """``_lock`` guards the connections and the notes. Other attributes are written by the thread that starts the
    command."""

    def __init__(
        self, library: Library, name: str, trustee: str, admits: Callable[[int], bool], most: int = MOST
    ) -> None:
        """Make the pipe. ``admits`` returns whether a process may use it. Raise CallFailed."""
        self._library, self._admits = library, admits
        self._server = PipeServer(library, name, trustee, most)
        self._target: tuple[str, int] | None = None
        self._key = b""
        self._most = most
        self._lock = threading.Lock()
        self._has_room = threading.Semaphore(most)
        self._is_over = threading.Event()
        self._threads: set[threading.Thread] = set()
        self._channels: set[socket.socket] = set()
        self._notes: dict[str, int] = {}
        self._accepting: threading.Thread | None = None
        self._control: Pipe | None = None

    # --- before the command ---

    def await_relay(self, patience: float = PATIENCE) -> None:
        """Wait until the container's first process listens. Raise Unsupported if it cannot, or says nothing in time."""
        timer = threading.Timer(patience, lambda: self._library.SetEvent(self._server.stop))
        timer.start()
        try:
            self._control = self._accept_ours()
            said = read_frame(self._control)
        except PipeClosed:
            said = b"it says nothing"
        finally:
            timer.cancel()
            timer.join()
        if said != READY:
            found = "; ".join((said[:200].decode("utf-8", "replace"), *self.notes))
            raise Unsupported("the gate", "a relay in the container", found, "--net none, or run it again")

    def _accept_ours(self) -> Pipe:
        """Return the next connection from a process in the job. Raise PipeStopped, CallFailed."""
        while True:
            if not self._has_room.acquire(blocking=False):
                self._note(f"more than {self._most} connections through the gate's pipe: further ones have to wait")
                self._has_room.acquire()
            try:
                if self._is_over.is_set():
                    raise PipeStopped
                pipe = self._server.accept()
            except PipeStopped:
                self._has_room.release()
                raise
            if self._is_ours(pipe):
                return pipe
            pipe.close()
            self._has_room.release()

    def _is_ours(self, pipe: Pipe) -> bool:
        try:
            pid = pipe.client()
            if self._admits(pid):
                return True
        except CallFailed:
            pid = 0  # it has gone
        self._note(f"a process that is not the command's was turned away at the gate's pipe ({pid or 'it has gone'})")
        return False

    def serve(self, target: tuple[str, int], key: bytes = b"") -> None:
        """Relay connections to this address from now on. ``key`` is sent first over each."""
        self._target, self._key = target, key
        self._accepting = threading.Thread(target=self._accept, name="mudroom-gate-pipe", daemon=True)
        self._accepting.start()

    # --- while the command runs ---

    @property
    def notes(self) -> list[str]:
        """Reasons why connections were turned away or cut, each with its count."""
        with self._lock:
            return [text if times == 1 else f"{text}, {times} times" for text, times in self._notes.items()]

    def _note(self, text: str) -> None:
        with self._lock:
            if text in self._notes or len(self._notes) < _MOST_NOTES:
                self._notes[text] = self._notes.get(text, 0) + 1

    def _accept(self) -> None:
        try:
            while True:
                pipe = self._accept_ours()
                thread = threading.Thread(target=self._relay, args=(pipe,), name="mudroom-gate-pipe", daemon=True)
                with self._lock:
                    self._threads.add(thread)
                thread.start()
        except PipeStopped:
            pass  # by ``close``
        except CallFailed as failed:
            self._note(f"the gate's pipe: {failed}")

    def _relay(self, pipe: Pipe) -> None:
        channel = socket.socket()
        with self._lock:
            self._channels.add(channel)
        back = threading.Thread(target=self._outward, args=(pipe, channel), name="mudroom-gate-pipe", daemon=True)
        is_connected = False
        try:
            assert self._target is not None
            channel.connect(self._target)
            channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            channel.settimeout(_SLICE)
            self._send(channel, self._key)
            is_connected = True
            back.start()
            self._inward(pipe, channel)
        except OSError:
            pass  # the gate is gone; ``net/gate_handle.py`` says so
        finally:
            if is_connected:
                back.join()
            with self._lock:
                self._channels.discard(channel)
                self._threads.discard(threading.current_thread())
            channel.close()
            pipe.close()
            self._has_room.release()

    def _inward(self, pipe: Pipe, channel: socket.socket) -> None:
        """Pass on data from the container. An end in the middle of a frame is not the end of a stream: then the
        connection is cut."""
        try:
            while piece := read_frame(pipe):
                self._send(channel, piece)
            channel.shutdown(socket.SHUT_WR)
        except BrokenFrame as broken:
            self._note(f"a connection through the gate's pipe was cut: {broken}")
            pipe.cut()
            _shut(channel)
        except (PipeClosed, OSError):
            _shut(channel)
        except CallFailed as failed:
            self._note(f"the gate's pipe: {failed}")
            _shut(channel)

    def _outward(self, pipe: Pipe, channel: socket.socket) -> None:
        try:
            while piece := self._receive(channel):
                write_frame(pipe, piece)
            if self._is_over.is_set():
                raise ConnectionResetError
            write_frame(pipe, b"")
        except OSError:
            pipe.cut()
        except (PipeClosed, CallFailed):
            _shut(channel)

    def _send(self, channel: socket.socket, data: bytes) -> None:
        """Send all. Raise OSError, TimeoutError when the bridge ends."""
        while data:
            try:
                data = data[channel.send(data) :]
            except TimeoutError:
                if self._is_over.is_set():
                    raise

    def _receive(self, channel: socket.socket) -> bytes:
        """Return the data that has come; empty at the stream's end. Raise OSError, TimeoutError when the bridge
        ends."""
        while True:
            try:
                return channel.recv(PIECE)
            except TimeoutError:
                if self._is_over.is_set():
                    raise

    # --- after the command ---

    def close(self) -> None:
        """End everything. Harmless when repeated."""
        if not self._server.stop:
            return
        self._is_over.set()
        self._library.SetEvent(self._server.stop)
        while True:
            with self._lock:
                threads, channels = list(self._threads), list(self._channels)
            for channel in channels:
                _shut(channel)
            for thread in threads:
                thread.join()
            if self._accepting is None or not self._accepting.is_alive():
                break
            self._accepting.join(_BETWEEN)  # it may have accepted one more meanwhile
        if self._control is not None:
            self._control.close()
            self._control = None
        self._server.close()


def relay_text() -> str:
    """Return the relay's program. It is passed in a command line: the container need not read mudroom's files."""
    data = pkgutil.get_data("mudroom.ext.windows.sandbox", "relay.py")
    assert data is not None
    return data.decode().replace("\r\n", "\n")


def _shut(channel: socket.socket) -> None:
    with suppress(OSError):  # it is not connected, or not any more
        channel.shutdown(socket.SHUT_RDWR)
