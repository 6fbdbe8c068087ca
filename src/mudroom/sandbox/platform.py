"""Platforms, and the sandbox that each has. Modules are loaded only when a platform is used.

A session is given its platform (``sys.platform``, or the value that its creator passes, as tests do). Nothing that a
command can change, such as the environment or the policy, chooses it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from mudroom.core.confinement.fallback import Mode
from mudroom.errors import Unsupported
from mudroom.sandbox.linux.plan import compile_plan
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mudroom.core.confinement.limit import Limits
    from mudroom.core.confinement.plan import Plan
    from mudroom.core.confinement.spec import SandboxSpec
    from mudroom.sandbox.client.client import Client


def system_name(platform: str) -> str:
    """Return the name of a system for messages, from that of ``sys.platform``."""
    return {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}.get(platform, platform)


class Platform(NamedTuple):
    name: str
    """As in ``sys.platform``."""
    first: Mode
    """The strongest mode."""
    compile: Callable[[SandboxSpec, str], Plan]
    """Compile a spec for a machine, named as in uname(2). Raises ValueError."""
    client: Callable[[Mapping[bytes, bytes]], Client]
    """Return a client. Its argument is the host's environment, of which programs of Windows need a part."""
    survey: Callable[..., Any] | None = None
    """Survey of the host. Replaces ``host.survey`` unless None; ``look_around`` likewise replaces
    ``around.look_around``."""
    look_around: Callable[..., Any] | None = None
    real_path: Callable[[bytes], bytes] = os.path.realpath
    """Return the canonical path of a file."""
    has_groups: bool = True
    """Whether control groups can enforce limits."""
    hold: Callable[[Plan, Limits], Plan] | None = None
    """Return the plan with the limits of a command, where they are part of its confinement and not of a group."""
    streams: Callable[[], tuple[Any, Any]] | None = None
    """Return the counterparts of ``CapturedOutput`` and ``attend`` (``client/capture.py``), which None stands for."""
    is_bridged: bool = False
    """Whether a command reaches the gate by ``Running.open_gate`` alone."""
    console: Callable[[tuple[int | None, ...]], Any] | None = None
    """Return the relay of a command's terminal to the user's, or None if the command gets pipes. None:
    ``client/terminal.py``."""
    closed: Mapping[str, str] = {}
    """Parts that are refused here before anything of them is started, and why (``ext/certify/opening.py``)."""

    @property
    def system(self) -> str:
        return system_name(self.name)


def _compile_linux(spec: SandboxSpec, machine: str) -> Plan:
    if spec.around is None:
        return compile_plan(spec, machine)
    from mudroom.sandbox.linux.bare_plan import compile_bare

    return compile_bare(spec, machine)


def _client_linux(_environ: Mapping[bytes, bytes]) -> Client:
    from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher

    return LauncherClient(SpawnedLauncher())


LINUX = Platform("linux", "overlay", _compile_linux, _client_linux)
BY_RECORD = frozenset(("darwin", "win32"))
"""Platforms that open by a record of what held on this machine (``certify``), and never without. A satellite has each
of them (``core/registry.py``)."""


def platform_of(name: str) -> Platform | None:
    """Return the platform called ``name``, a ``sys.platform``, whatever is certified; None if it has no sandbox. Raise
    NotInstalled."""
    if name not in BY_RECORD:
        return LINUX if name == LINUX.name else None
    from mudroom.core.registry import part

    platform: Platform = part("platform", name, f"mudroom on {system_name(name)}").PLATFORM
    return platform


def no_gate_at_level_0() -> Unsupported:
    """Return the refusal of a platform that ``is_bridged``, which a session raises before it opens a door."""
    found = "a restricted token, which no firewall knows"
    return Unsupported("the gate at level 0", "an AppContainer", found, "use level 1")


def new_client(environ: Mapping[bytes, bytes]) -> Client:
    """Return a client of this system, to be started. ``environ``: the host's environment. Where mudroom is not built
    for the system it is that of Linux, which no session gets to use."""
    return (platform_of(sys.platform) or LINUX).client(environ)


def platform_here(name: str, certified: Callable[[Platform], Platform] | None = None) -> Platform:
    """Return the platform called ``name``. ``certified`` returns it as far as its record opens it, or raises
    Unsupported. Raise Unsupported if it has no sandbox, or needs a record and there is none to ask."""
    platform = platform_of(name)
    if platform is None:
        raise Unsupported("mudroom", "Linux, macOS or Windows", name, "run it in a virtual machine with Linux")
    if name not in BY_RECORD:
        return platform
    if certified is None:
        found = f"{system_name(name)}, and none here"
        raise Unsupported("mudroom", "a certificate of this machine", found, "mudroom certify makes one")
    return certified(platform)
