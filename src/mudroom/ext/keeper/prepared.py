"""A template that is made ahead of a command: most parts of a sandbox exist before its command is known.

A session makes a template at its second command. A command on the command line has its own session; so that it need not
wait, the process that waits for it makes a template with the last command's steps.

Rules of this file:
1. It serves only a command that has compiled exactly these steps itself, with the same files behind the steps' paths
   (``shown_paths``) and the same host mounts. Otherwise it is closed, unused. So a command gets nothing from another
   one, and sees the host as it does in-process.
2. It does not outlive a change of the host's mounts: it has copies of them, and would keep a file system busy that the
   user unmounts.
3. No command has run in it or in a clone of it before.
"""

from __future__ import annotations

import os
import select
import time

from mudroom.core.confinement.plan import TemplatePlan
from mudroom.errors import MudroomError
from mudroom.sandbox.client.connection import Connection, wait_readable
from mudroom.sandbox.client.template import request, require_prepared
from mudroom.sandbox.host.host import FileIdentity, identify, shown_paths


class PreparedTemplate:
    """Owner: the only thread of a process that waits for a command; later the command's thread."""

    def __init__(self, launcher: Connection, plan: TemplatePlan) -> None:
        """Ask the launcher for a template, and return at once. Raise OSError or MudroomError if that is not
        possible."""
        self.plan = plan
        self.mounts = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        """Descriptor marked with POLLPRI once the mounts have changed since now (proc_pid_mounts(5))."""
        self._poller = select.poll()
        self._poller.register(self.mounts, select.POLLPRI)
        self._files = self._identify()  # before they are mounted
        try:
            self._connection, self._report = request(launcher, plan)
        except BaseException:
            os.close(self.mounts)
            raise

    def taken(self, plan: TemplatePlan) -> Connection | None:
        """Return the template for a command with this plan, or None if it does not fit. Call it once."""
        connection: Connection | None = self._connection
        try:
            serves = plan == self.plan and not self._poller.poll(0) and self._identify() == self._files
            if serves:
                require_prepared(self._report, plan)
                # the launcher may have reaped it: a spare that was just cloned still has its socket
                serves = self._connection.is_open() and not wait_readable([self._report], time.monotonic())
        except MudroomError:
            serves = False
        if not serves:
            self._connection.close()
            connection = None
        os.close(self._report)
        os.close(self.mounts)
        return connection

    def close(self) -> None:
        self._connection.close()
        os.close(self._report)
        os.close(self.mounts)

    def _identify(self) -> list[FileIdentity]:
        return [identify(path) for path in shown_paths((*self.plan.shared, *self.plan.ahead))]
