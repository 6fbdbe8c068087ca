"""A link to one worker: a thread that moves frames between two pipes and the dispatcher's inbox.

Rules of this file:
1. Nothing that a worker sends or omits makes a caller wait: ``send`` and ``feed`` only add to the frames that are to be
   written, and a link that cannot take more is ended.
2. Small messages go before a base's parts, which are made as they are written (``feed``).
3. Bodies are bounded by their kind before they are awaited, and the link does not read while its share of the inbox is
   full. Any offence ends the link, with one line that says which.
4. A link ends once, with one reason; the last event in the inbox is its end.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import MappingProxyType

from mudroom.api import MudroomError, show
from mudroom.ext.fleet.origin.inbox import FeedFailed, LinkEnd, LinkInbox
from mudroom.ext.fleet.wire import message as wire
from mudroom.ext.fleet.wire.frame import Frame, FrameReader, LinkError, encode
from mudroom.typing import Protocol

LIMITS = MappingProxyType({**wire.FROM_WORKER, wire.DATA: 1 << 20})
PING = 5.0
"""Seconds between pings."""
SILENCE = 30.0
"""Seconds without a frame from the worker, after which the link is ended: six pings."""
GREETING = 60.0
"""Seconds until a worker has to have said hello: SSH connects meanwhile, a scheduler finds a machine."""
MOST_UNSENT = 32 << 20
"""Bytes in messages that a worker has not read yet."""
_BLOCK = 1 << 18


class Transport(Protocol):
    """Two pipes to a worker, and the process that holds them open (``ext/fleet/engine/process.py``)."""

    reader: int
    writer: int

    def close(self) -> None:
        """End it, close both pipes and wait until it is gone. Only the link's thread calls it."""

    def exit_reason(self) -> str:
        """Return why it ended, as far as it said so, in one line. It was closed."""

    def was_killed(self) -> bool:
        """Return whether a signal has ended it before it was closed."""


class OriginLink:
    """``_lock`` guards the attributes that callers add to and the thread takes from: ``_messages``, ``_unsent``,
    ``_feed``, ``_ending`` and ``_is_over``. All other attributes are the thread's; counters are only read elsewhere."""

    def __init__(
        self,
        node: str,
        transport: Transport,
        greeting: wire.OriginHello,
        inbox: LinkInbox,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.node = node
        self._transport, self._inbox, self._clock = transport, inbox, clock
        self._lock = threading.Lock()
        self._messages: deque[tuple[int, bytes]] = deque()
        self._unsent = 0
        self._feed: Iterator[Frame] | None = None
        self._ending: MudroomError | None = None
        self._is_over = self._is_write_closed = False
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._partial = memoryview(b"")
        self._began = self._last_frame = self._last_ping = clock()
        self._number = 0
        self._has_hello = False
        self._is_paused = False
        self.bytes_read = self.bytes_written = 0
        self.send(wire.frame_of(wire.HELLO, greeting))
        self._thread = threading.Thread(target=self._run, name=f"link {node}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    # --- callers in any thread ---

    def send(self, frame: Frame) -> None:
        """Add a message. Too many that the worker does not read end the link."""
        data = encode(frame)
        with self._lock:
            self._messages.append((frame.stream, data))
            self._unsent += len(data)
            if self._unsent > MOST_UNSENT and self._ending is None:
                self._ending = MudroomError("the worker does not read what it is sent")
        self.wake()

    def unsent(self) -> frozenset[int]:
        """Return the streams whose messages were not begun to be written, also after the end: the worker cannot have
        them."""
        with self._lock:
            return frozenset(stream for stream, _data in self._messages)

    def feed(self, frames: Iterator[Frame]) -> None:
        """Write these frames, one after the other, whenever no message waits. They replace earlier ones."""
        with self._lock:
            self._feed = frames
        self.wake()

    def end(self, reason: str, hint: str = "") -> None:
        """End the link. Messages that were not written are dropped."""
        with self._lock:
            self._ending = self._ending or MudroomError(reason, hint)
        self.wake()

    def wake(self) -> None:
        with self._lock:
            if not self._is_over:
                with suppress(BlockingIOError):  # the pipe is full: the thread is awake
                    os.write(self._wake_writer, b"\0")

    # --- the thread ---

    def _run(self) -> None:
        reader, writer = self._transport.reader, self._transport.writer
        try:
            os.set_blocking(reader, False)
            os.set_blocking(writer, False)
            frames = FrameReader(LIMITS, wire.OTHERS)
            while self._step(reader, writer, frames):
                pass
            failure = MudroomError(
                "the worker ended the link" + ("" if frames.is_between_frames else " within a frame")
            )
        except MudroomError as error:
            failure = error
        except OSError as error:
            failure = MudroomError(f"the link broke: {error.strerror}")
        except MemoryError:
            failure = MudroomError("the link needs more memory than there is")
        self._finish(failure)

    def _step(self, reader: int, writer: int, frames: FrameReader) -> bool:
        """Wait, then read and write as far as possible. Return False at the end of the input."""
        with self._lock:
            if self._ending is not None:
                raise self._ending
        self._keep_alive()
        has_output = not self._is_write_closed and (bool(self._partial) or self._fill())
        poller = select.poll()
        poller.register(self._wake_reader, select.POLLIN)
        self._is_paused = not self._inbox.has_room(self)
        if not self._is_paused:
            poller.register(reader, select.POLLIN)
        if has_output:
            poller.register(writer, select.POLLOUT)
        ready = dict(poller.poll(1000))
        if self._wake_reader in ready:
            os.read(self._wake_reader, 4096)
        if writer in ready and has_output:
            self._write(writer)
        return reader not in ready or self._read(reader, frames)

    def _keep_alive(self) -> None:
        now = self._clock()
        if not self._has_hello:
            if now - self._began > GREETING:
                raise MudroomError(
                    f"no answer within {GREETING:g} s", "is it `mudroom worker --stdio` that starts there?"
                )
            return
        if self._is_paused:
            self._last_frame = now  # frames may wait that were not read yet
        if now - self._last_frame > SILENCE:
            hint = f"mudroom fleet ls {self.node} asks whether it answers"
            raise MudroomError(f"the worker has said nothing for {SILENCE:g} s", hint)
        if now - self._last_ping >= PING:
            self._last_ping, self._number = now, self._number + 1
            self.send(wire.frame_of(wire.PING, wire.Ping(self._number)))

    def _fill(self) -> bool:
        """Take the next frame to write. Return whether there is one."""
        with self._lock:
            if self._messages:
                _stream, data = self._messages.popleft()
                self._unsent -= len(data)
                self._partial = memoryview(data)
                return True
            feed = self._feed
        if feed is None:
            return False
        try:
            self._partial = memoryview(encode(next(feed)))
        except StopIteration:
            self._drop(feed)
        except (MudroomError, OSError, ValueError) as error:
            self._drop(feed)
            self._inbox.put(self, FeedFailed(error))
        return bool(self._partial)

    def _drop(self, feed: Iterator[Frame]) -> None:
        with self._lock:
            if self._feed is feed:
                self._feed = None

    def _write(self, writer: int) -> None:
        try:
            written = os.write(writer, self._partial[:_BLOCK])
        except BlockingIOError:
            return
        except BrokenPipeError:
            # The frames that it wrote before are read to their end.
            self._partial, self._is_write_closed = memoryview(b""), True
            return
        self.bytes_written += written
        self._partial = self._partial[written:]

    def _read(self, reader: int, frames: FrameReader) -> bool:
        try:
            data = os.read(reader, _BLOCK)
        except BlockingIOError:
            return True
        self.bytes_read += len(data)
        for frame in frames.feed(data):
            self._last_frame = self._clock()
            if frame.kind == wire.HELLO and self._has_hello:
                raise LinkError("said hello twice")
            if frame.kind == wire.BYE and not self._has_hello:
                raise MudroomError(wire.message_of(frame, wire.Bye).reason[:500] or "the worker cannot serve")
            if frame.kind != wire.HELLO and not self._has_hello:
                raise LinkError(f"began with a message of kind {frame.kind}: it is no mudroom worker")
            self._has_hello = True
            if frame.kind != wire.PING:
                self._inbox.put(self, frame, len(frame.body))
            else:
                self.send(Frame(wire.PONG, 0, frame.body))
        return bool(data)

    def _finish(self, failure: MudroomError) -> None:
        self._transport.close()
        words = self._transport.exit_reason()
        reason, hint = explain(failure, words, self._has_hello)
        with self._lock:
            self._feed = None
            self._is_over = True
            os.close(self._wake_reader)
            os.close(self._wake_writer)
        self._inbox.put(self, LinkEnd(reason, hint, self._has_hello, self._transport.was_killed()))


_HINTS = (
    (
        ("command not found", ": not found", "mudroom: No such file"),
        "install mudroom there (pipx install mudroom), or give its path: ssh HOST .local/bin/mudroom worker --stdio",
    ),
    (
        ("No module named", "SyntaxError", "ImportError"),
        "its Python is too old, or another one than mudroom's: pipx install --python python3.11 mudroom, there",
    ),
    (("Host key verification failed",), "connect once by hand, to see and accept its key: ssh HOST"),
    (("Permission denied (",), "a key that needs no password has to be accepted there: ssh-copy-id HOST"),
    (("Could not resolve",), "the name is unknown here: see ~/.ssh/config"),
    (("there is no verb 'worker'",), "mudroom there is older than its workers: upgrade it"),
    (("Connection refused", "Connection timed out", "No route to host"), "is the machine up, and is that its address?"),
)
"""Programs' texts when they cannot start a worker, and hints for the user."""


NO_WORKER = "is it `mudroom worker --stdio` that starts there? Nothing else may write to its standard output"


def explain(failure: MudroomError, words: str, said_hello: bool) -> tuple[str, str]:
    """Return why a link ended, and a hint. ``words``: from the program that held the pipes."""
    shown = show(words.encode())[:300]
    hint = next((hint for signs, hint in _HINTS if any(sign in words for sign in signs)), failure.hint)
    if said_hello:
        return failure.message + (f"; it said: {shown}" if shown else ""), failure.hint
    if isinstance(failure, LinkError):
        return f"it is no mudroom worker: {failure.message}", NO_WORKER
    return shown or failure.message, hint
