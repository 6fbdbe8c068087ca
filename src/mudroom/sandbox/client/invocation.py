"""A command as given to a sandbox client, its start options, and its end. Data only."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from mudroom.core.confinement.environment import gate_variables
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mudroom.sandbox.client.template import StandingPlace
    from mudroom.sandbox.limits.cgroup import Leaf
    from mudroom.sandbox.limits.gauge import Gauge


class ClientTraits(NamedTuple):
    """Facts about a client that a session needs."""

    awaits_tick: bool = False
    """Whether its launcher waits for ``RunOptions.after``, and can be trusted with the start time."""
    gauge: Gauge | None = None
    """The effects of a container's limits, if the launcher runs in a container."""
    peer: int = 0
    """The pid of a launcher that is not this process's child; 0 for a child, or if the pid is not visible here."""


class Invocation(NamedTuple):
    """A command and the data for its process."""

    argv: Sequence[bytes]
    env: Mapping[bytes, bytes]
    """PATH is searched inside the sandbox."""
    stdio: tuple[int, int, int]
    """The caller closes them."""
    terminal: Sequence[int] = ()
    """Its standard descriptors that become its own pseudo-terminal. The command then starts only after
    ``Running.terminal`` was called."""
    keeps: bool = False
    """In a held sandbox: processes that it leaves go on, unless a signal ended it."""

    def request(self) -> dict[str, Any]:
        search = [entry for entry in self.env.get(b"PATH", os.fsencode(os.defpath)).split(b":") if entry]
        return {
            "argv": list(self.argv),
            "env": dict(self.env),
            "proxies": gate_variables(self.env),
            "search": search,
            "terminal": tuple(self.terminal),
            "keeps": int(self.keeps),
        }


class RunOptions(NamedTuple):
    """Options for one start, in addition to its plan. A client refuses those that its system does not have."""

    view: bool = False
    """The view's descriptor is wanted (``Running.view``)."""
    left: bool = False
    """The descriptors of the command's own directories are wanted (``Running.own_directories``)."""
    gate: bool = False
    """The plan has listeners to hand over (``Running.listeners``)."""
    leaf: Leaf | None = None
    """The whole sandbox's control group. The caller closes it."""
    held: bool = False
    """The sandbox gets no command yet, and lives until its door is closed (``held.py``). The invocation is ignored."""
    after: int = 0
    """The command starts when CLOCK_MONOTONIC_COARSE is later, in nanoseconds. Its sandbox is made meanwhile."""
    standing: StandingPlace | None = None
    """The command runs in this sandbox. From the plan only the command's own parts count."""


NO_OPTIONS = RunOptions()


class Exit(NamedTuple):
    status: int
    """Wait status as in wait(2)."""
    user: float
    system: float
    """CPU seconds used by the command and the children it waited for."""
    max_rss: int
    """KiB."""
    refused: tuple[bytes, ...] = ()
    """Refused calls, as ``sandbox/host/denials.py`` reads them: metadata changes outside the sandbox's own directories,
    as "chmod /path", and system calls, as "call RULE COUNT"."""
    started: int = 0
    """CLOCK_MONOTONIC_COARSE time when the command started, in nanoseconds; 0 if ``run`` got no ``after``."""


KILLED = Exit(9, 0.0, 0.0, 0)
"""The end of a sandbox that did not report."""
