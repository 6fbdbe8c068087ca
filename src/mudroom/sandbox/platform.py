"""Platforms and their sandboxes. A platform's modules are loaded only when it is used.

A session is given its platform: ``sys.platform``, or a value from its creator (as in tests). Nothing that a command can
change, such as the environment or the policy, chooses it.
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
    """Return a system's name for messages. ``platform``: as in ``sys.platform``."""
    return {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}.get(platform, platform)


class Platform(NamedTuple):
    name: str
    """As in ``sys.platform``."""
    first: Mode
    """The strongest mode."""
    compile: Callable[[SandboxSpec, str], Plan]
    """Compile a spec for a machine (as in uname(2)). Raises ValueError."""
    client: Callable[[Mapping[bytes, bytes]], Client]
    """Return a client. The argument is the host's environment; Windows programs need parts from it."""
    survey: Callable[..., Any] | None = None
    """Survey the host. Replaces ``host.survey`` unless None, as ``look_around`` replaces ``around.look_around``."""
    look_around: Callable[..., Any] | None = None
    real_path: Callable[[bytes], bytes] = os.path.realpath
    """Return a file's canonical path."""
    has_groups: bool = True
    """Whether control groups can enforce limits."""
    hold: Callable[[Plan, Limits], Plan] | None = None
    """Return the plan with a command's limits, where its confinement enforces them and no control group does."""
    streams: Callable[[], tuple[Any, Any]] | None = None
    """Return the counterparts of ``CapturedOutput`` and ``attend``. None: those in ``client/capture.py`` are used."""
    is_bridged: bool = False
    """A command reaches the gate by ``Running.open_gate`` alone."""
    console: Callable[[tuple[int | None, ...]], Any] | None = None
    """Return the relay between a command's terminal and the user's, or None if the command gets pipes. If the field is
    None, ``client/terminal.py`` is used."""
    closed: Mapping[str, str] = {}
    """Parts that are refused here before anything in them starts, with the reason (``ext/certify/opening.py``)."""

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
"""Platforms that open only by a record of what held on this machine (``certify``). Each is a satellite
(``core/registry.py``)."""


def platform_of(name: str) -> Platform | None:
    """Return the platform called ``name`` (as in ``sys.platform``), certified or not; None if it has no sandbox. Raise
    NotInstalled."""
    if name not in BY_RECORD:
        return LINUX if name == LINUX.name else None
    from mudroom.core.registry import part

    platform: Platform = part("platform", name, f"mudroom on {system_name(name)}").PLATFORM
    return platform


def no_gate_at_level_0() -> Unsupported:
    """Return the refusal that a session raises before it opens a door on a platform that ``is_bridged``."""
    found = "a restricted token, which no firewall knows"
    return Unsupported("the gate at level 0", "an AppContainer", found, "use level 1")


def new_client(environ: Mapping[bytes, bytes]) -> Client:
    """Return a client for this system, not yet started. ``environ``: the host's environment. On a system without a
    platform it is the Linux client, which no session gets to use."""
    return (platform_of(sys.platform) or LINUX).client(environ)


def platform_here(name: str, certified: Callable[[Platform], Platform] | None = None) -> Platform:
    """Return the platform called ``name``. ``certified`` returns it as far as its record opens it, or raises
    Unsupported. Raise Unsupported if it has no sandbox, or if it needs a record and ``certified`` is None."""
    platform = platform_of(name)
    if platform is None:
        raise Unsupported("mudroom", "Linux, macOS or Windows", name, "run it in a virtual machine with Linux")
    if name not in BY_RECORD:
        return platform
    if certified is None:
        found = f"{system_name(name)}, and none here"
        raise Unsupported("mudroom", "a certificate of this machine", found, "mudroom doctor --certify makes one")
    return certified(platform)
