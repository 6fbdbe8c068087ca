"""Which way of confining commands a platform has. A table; nothing is loaded before it is used.

A session is told its platform (``sys.platform``, or by whoever makes it, as tests do). Nothing that a command can
change, environment and policy included, chooses it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from mudroom.core.confinement.fallback import Mode
from mudroom.errors import Unsupported

if TYPE_CHECKING:
    from mudroom.core.confinement.plan import Plan
    from mudroom.core.confinement.spec import SandboxSpec
    from mudroom.sandbox.client.client import Client


class Platform(NamedTuple):
    name: str
    """As ``sys.platform`` has it."""
    first: Mode
    """The strongest mode."""
    compile: Callable[[SandboxSpec, str], Plan]
    """The spec, on a machine as uname(2) names it. Raises ValueError."""
    client: Callable[[], Client]
    survey: Callable[..., Any] | None = None
    """What the host has: ``host.survey`` where it is not None, likewise ``around.look_around``."""
    look_around: Callable[..., Any] | None = None
    real_path: Callable[[bytes], bytes] = os.path.realpath
    """The one path that a file has."""
    has_groups: bool = True
    """Control groups can hold limits."""


def _compile_linux(spec: SandboxSpec, machine: str) -> Plan:
    if spec.around is None:
        from mudroom.sandbox.linux.plan import compile_plan

        return compile_plan(spec, machine)
    from mudroom.sandbox.linux.bare_plan import compile_bare

    return compile_bare(spec, machine)


def _compile_darwin(spec: SandboxSpec, _machine: str) -> Plan:
    from mudroom.sandbox.macos.seatbelt import compile_seatbelt

    return compile_seatbelt(spec)


def _client_linux() -> Client:
    from mudroom.sandbox.client.client import Client

    return Client()


def _client_darwin() -> Client:
    from mudroom.sandbox.macos.client import DarwinClient

    return DarwinClient()


def _survey_darwin(*arguments: Any) -> Any:
    from mudroom.sandbox.macos.host import survey_mac

    return survey_mac(*arguments)


def _around_darwin(*arguments: Any, **named: Any) -> Any:
    from mudroom.sandbox.macos.host import look_around_mac

    return look_around_mac(*arguments, **named)


def _path_darwin(path: bytes) -> bytes:
    from mudroom.sandbox.macos.host import true_path

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
PLATFORMS: Mapping[str, Platform] = {one.name: one for one in (LINUX, DARWIN)}


UNTRIED = frozenset(("darwin",))
"""What is written for them has never run there, and what is left to do is listed in docs/MACOS.md."""


def platform_here(name: str) -> Platform:
    """``name``: ``sys.platform``. Raises Unsupported for one without a sandbox, or where it has never been tried."""
    if name in UNTRIED:
        raise Unsupported("mudroom", "Linux", name, "it has never run here: docs/MACOS.md says what is left to do")
    if name not in PLATFORMS:
        raise Unsupported("mudroom", "Linux", name, "it is not built for this platform")
    return PLATFORMS[name]
