"""The socket to a launcher, and the requests on it. Each carries a pipe for its report
(``sandbox/client/wire.py``)."""

from __future__ import annotations

import _socket
import _thread
import errno
import marshal
import os
import select
import sys
import time
from collections.abc import Mapping, Sequence

from mudroom.core.confinement.plan import Step
from mudroom.core.system import rights
from mudroom.errors import LauncherDied
from mudroom.sandbox.client.wire import PLAIN
from mudroom.typing import Any

AGAIN = "run the command again; mudroom doctor tries the sandbox"
"""The hint for a user whose launcher has gone."""


class Connection:
    """A socket to a launcher or a template. Several threads may send, and so may a signal handler that has interrupted
    ``send`` in its own thread."""

    def __init__(self, ours: _socket.socket) -> None:
        self.active: set[int] = set()
        """Ids of the running commands."""
        self._socket = ours
        self._lock = _thread.RLock()
        self._sending = False
        self._late: list[bytes] = []
        """Messages from a signal handler that interrupted its own thread in ``send``."""

    def send(self, message: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        """Send a message. Raise LauncherDied if the other end is gone, OSError if too many of the user's descriptors
        are in transit.

        A call without descriptors may return before the message is sent: in a signal handler that has interrupted
        another ``send``, which then sends it, too.
        """
        data = marshal.dumps(dict(message), PLAIN)
        with self._lock:
            if self._sending:
                assert not descriptors, "the caller closes them when this returns"
                self._late.append(data)
                return
            self._send(data, descriptors)
            while self._late:
                self._send(self._late.pop(0), ())

    def _send(self, data: bytes, descriptors: Sequence[int]) -> None:
        self._sending = True
        try:
            # In one call: the other end would run at the first bytes, before this thread, and wait for the rest.
            message = len(data).to_bytes(4, "little") + data
            sent = rights.send(self._socket, message, descriptors)
            if sent < len(message):
                self._socket.sendall(message[sent:])
        except OSError as error:
            if error.errno == errno.ETOOMANYREFS:  # in transit by all the user's processes: RLIMIT_NOFILE, unix(7)
                raise
            raise LauncherDied(f"the sandbox launcher is gone: {error.strerror}", AGAIN) from error
        finally:
            self._sending = False

    def is_open(self) -> bool:
        """Return whether this end is open and the other end is alive. That never sends, so a readable socket is at its
        end of file."""
        with self._lock:  # another thread may close it, and the number belong to another file then
            return not self.is_closed and not wait_readable((self._socket.fileno(),), 0.0)

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` has closed this end."""
        return self._socket.fileno() < 0

    def close(self) -> None:
        """Close this end while no other thread is sending: its descriptor number may be reused at once."""
        with self._lock:
            self._socket.close()


def command_request(
    head: Mapping[str, Any], rest: Mapping[str, Any], namespaces: int, steps: Sequence[Step]
) -> dict[str, Any]:
    """Return a command's request. It is also packed as a whole, for a process that passes it on."""
    whole = {**head, "namespaces": namespaces, "plan": steps, **rest}
    return {**head, "whole": marshal.dumps(whole, PLAIN)}


def with_report(connection: Connection, request: Mapping[str, Any], descriptors: Sequence[int]) -> int:
    """Send a request with a new pipe's write end as its last descriptor. Return the read end."""
    read, write = os.pipe()
    try:
        connection.send(request, (*descriptors, write))
    except BaseException:
        os.close(read)
        raise
    finally:
        os.close(write)
    return read


def wait_readable(descriptors: Sequence[int], deadline: float | None) -> list[int]:
    """Return the descriptors that are readable or at their end of file; empty when ``deadline`` (monotonic seconds) has
    passed."""
    return list(wait_ready(dict.fromkeys(descriptors, select.POLLIN), deadline))


def wait_ready(wanted: Mapping[int, int], deadline: float | None) -> dict[int, int]:
    """Return the descriptors for which a poll(2) event has occurred, with their events. ``wanted``: descriptors with
    the events to wait for; errors and hang-ups are always reported. ``deadline``: as in ``wait_readable``."""
    if sys.platform == "darwin":
        from mudroom.core.system.readiness import wait_for_devices

        return wait_for_devices(wanted, deadline)
    poller = select.poll()
    for descriptor, events in wanted.items():
        poller.register(descriptor, events)
    timeout = None if deadline is None else max(0.0, (deadline - time.monotonic()) * 1000)
    return dict(poller.poll(timeout))
