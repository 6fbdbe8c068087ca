"""The launcher for a command that a keeper runs: it is started before its command, and makes a template for the last
command's steps (``prepared.py``). A command with other steps runs exactly as it does in-process.
"""

from __future__ import annotations

import os

from mudroom.core.confinement.plan import TemplatePlan
from mudroom.errors import MudroomError
from mudroom.ext.keeper.caller import CallerSurroundings, Elsewhere, take_over
from mudroom.ext.keeper.prepared import PreparedTemplate
from mudroom.sandbox.client.connection import Connection
from mudroom.sandbox.client.invocation import ClientTraits
from mudroom.sandbox.client.launcher_client import FIRST_TO_GO, TEMPLATES, SpawnedLauncher


class KeptLauncher:
    """A launcher that is started ahead of its command: a ``client.LauncherProcess``.

    Owner: the command's thread.
    """

    most_templates, is_local = TEMPLATES, True
    traits = ClientTraits(awaits_tick=True)

    def __init__(self) -> None:
        self._spawned = SpawnedLauncher(apart=True)
        self._ended: list[int] = []
        """Pids of launchers that end, or have ended."""
        self._was_asked = False
        self._prepared: PreparedTemplate | None = None
        self.used: TemplatePlan | None = None
        """The last command's shared steps; None: it had none."""
        self.took_prepared = False
        """Whether a command has had the template that was made ahead."""
        self._surroundings: CallerSurroundings | None = None
        """Those of the caller, if they are others than the keeper's."""

    @property
    def connection(self) -> Connection | None:
        return self._spawned.connection

    def start(self) -> None:
        if self.connection is not None and self.connection.is_open():
            return  # it was started ahead
        self.drop_prepared()
        self._spawn()
        try:
            self._take_over()
        except Elsewhere as error:
            raise MudroomError(
                "the sandbox launcher may not enter this control group",
                "run the command again; nothing was applied",
            ) from error

    def surround(self, wanted: CallerSurroundings) -> None:
        """Give the command's launcher its caller's surroundings, and drop what was made ahead. Raise Elsewhere if that
        is not permitted."""
        self._surroundings = wanted
        self.drop_prepared()
        if self.connection is not None:
            self._take_over()

    def _take_over(self) -> None:
        if self._surroundings is not None:
            oom = max(FIRST_TO_GO, int(self._surroundings.oom))  # as of each launcher
            take_over(self._surroundings._replace(oom=f"{oom}\n"), self.require_pid())

    def _spawn(self) -> None:
        self._end()  # it has died
        self._spawned.start()

    def _end(self) -> None:
        pid = self._spawned.let_go()
        if pid:
            self._ended.append(pid)

    # --- ahead of a command ---

    def start_ahead(self, plan: TemplatePlan | None) -> PreparedTemplate | None:
        """Start a launcher, and a template for this plan. Return the template, or None if there is none."""
        try:
            if self.connection is None:
                self._spawn()
            if plan is not None and self.connection is not None:
                self.drop_prepared()
                self._prepared = PreparedTemplate(self.connection, plan)
        except (OSError, MudroomError):
            pass  # the launcher is gone, or a limit is reached: a command will find and report that
        return self._prepared

    def drop_prepared(self) -> None:
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.close()

    def template_ahead(self, shared: TemplatePlan | None) -> Connection | None:
        self.used = shared
        prepared, self._prepared = self._prepared, None
        if prepared is None:
            return None
        if shared is None:
            prepared.close()
            return None
        template = prepared.taken(shared)
        self.took_prepared = self.took_prepared or template is not None
        return template

    # --- its end ---

    def has_ended(self) -> bool:
        return False

    def require_pid(self) -> int:
        pid, self._was_asked = self._spawned.pid, True
        if not pid:  # pid 0 would move this process itself (cgroups(7))
            raise MudroomError("the sandbox launcher died", "run the command again; nothing was applied")
        return pid

    def close(self) -> None:
        """End the launcher and all its sandboxes. A command's groups are removed next, so those who asked for the pid
        wait for its end; for all others ``reap`` does, when the command has a result."""
        self.drop_prepared()
        was_asked, self._was_asked = self._was_asked, False
        self._end()
        if was_asked:
            self.reap()

    def reap(self) -> None:
        """Wait for the launchers' ends."""
        while self._ended:
            os.waitpid(self._ended.pop(), 0)
