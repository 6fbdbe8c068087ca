"""Table of platforms and the sandbox that each has. Modules are loaded only when a platform is used.

A session is given its platform (``sys.platform``, or the value that its creator passes, as tests do). Nothing that a
command can change, such as the environment or the policy, chooses it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from mudroom.core.confinement.fallback import Mode
from mudroom.errors import Unsupported
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
        from mudroom.sandbox.linux.plan import compile_plan

        return compile_plan(spec, machine)
    from mudroom.sandbox.linux.bare_plan import compile_bare

    return compile_bare(spec, machine)


def _compile_darwin(spec: SandboxSpec, _machine: str) -> Plan:
    from mudroom.ext.macos.seatbelt import compile_seatbelt

    return compile_seatbelt(spec)


def _client_linux(_environ: Mapping[bytes, bytes]) -> Client:
    from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher

    return LauncherClient(SpawnedLauncher())


def _client_darwin(_environ: Mapping[bytes, bytes]) -> Client:
    from mudroom.ext.macos.client import DarwinClient

    return DarwinClient()


def _survey_darwin(*arguments: Any) -> Any:
    from mudroom.ext.macos.host import survey_mac

    return survey_mac(*arguments)


def _around_darwin(*arguments: Any, **named: Any) -> Any:
    from mudroom.ext.macos.host import look_around_mac

    return look_around_mac(*arguments, **named)


def _path_darwin(path: bytes) -> bytes:
    from mudroom.ext.macos.host import true_path

    return true_path(path)


def _compile_windows(spec: SandboxSpec, _machine: str) -> Plan:
    from mudroom.ext.windows.sandbox.platform import compile_windows

    return compile_windows(spec)


def _hold_windows(plan: Plan, limits: Limits) -> Plan:
    from mudroom.ext.windows.sandbox.platform import hold

    return hold(plan, limits)


def _streams_windows() -> tuple[Any, Any]:
    from mudroom.ext.windows.sandbox.platform import streams

    return streams()


def _client_windows(environ: Mapping[bytes, bytes]) -> Client:
    from mudroom.ext.windows.sandbox.client import WindowsClient

    return WindowsClient(variables={os.fsdecode(name): os.fsdecode(value) for name, value in environ.items()})


def _console_windows(descriptors: tuple[int | None, ...]) -> Any:
    from mudroom.ext.windows.sandbox.platform import console_relay

    return console_relay(descriptors)


def _survey_windows(*_arguments: Any) -> Any:
    from mudroom.ext.windows.sandbox.platform import survey_windows

    return survey_windows()


def _around_windows(_home: Any, opened: Any, *_arguments: Any, **_named: Any) -> Any:
    from mudroom.ext.windows.sandbox.platform import look_around_windows

    return look_around_windows(opened)


def _path_windows(path: bytes) -> bytes:
    from mudroom.ext.windows.sandbox.platform import true_path

    return true_path(path)


LINUX = Platform("linux", "overlay", _compile_linux, _client_linux)
DARWIN = Platform(
    "darwin",
    "seatbelt",
    _compile_darwin,
    _client_darwin,
    _survey_darwin,
    _around_darwin,
    _path_darwin,
    has_groups=False,
)
WIN32 = Platform(
    "win32",
    "job",
    _compile_windows,
    _client_windows,
    _survey_windows,
    _around_windows,
    _path_windows,
    has_groups=False,
    hold=_hold_windows,
    streams=_streams_windows,
    is_bridged=True,
    console=_console_windows,
)
PLATFORMS: Mapping[str, Platform] = {platform.name: platform for platform in (LINUX, DARWIN, WIN32)}


UNPORTED: Mapping[str, Mapping[str, str]] = {
    "darwin": {},
    "win32": {},
}
"""Parts whose half on the host is not ported, with the reason. They are refused there with every record."""
BY_RECORD = frozenset(("darwin", "win32"))
"""Platforms that open by a record of what held on this machine (``certify``), and never without."""


def new_client(environ: Mapping[bytes, bytes]) -> Client:
    """Return a client of this system, to be started. ``environ``: the host's environment. Where mudroom is not built
    for the system it is that of Linux, which no session gets to use."""
    return PLATFORMS.get(sys.platform, LINUX).client(environ)


def platform_here(name: str, certified: Callable[[Platform], Platform] | None = None) -> Platform:
    """Return the platform called ``name``, a ``sys.platform``. ``certified`` returns it as far as its record opens it,
    or raises Unsupported. Raise Unsupported if it has no sandbox, or needs a record and there is none to ask."""
    if name not in PLATFORMS:
        raise Unsupported("mudroom", "Linux, macOS or Windows", name, "run it in a virtual machine with Linux")
    if name not in BY_RECORD:
        return PLATFORMS[name]
    if certified is None:
        found = f"{system_name(name)}, and none here"
        raise Unsupported("mudroom", "a certificate of this machine", found, "mudroom certify makes one")
    return certified(PLATFORMS[name])
