"""Windows: its row among the platforms (``sandbox/platform.py``), and the row's functions."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Mapping

from mudroom.core.confinement.limit import NO_LIMITS, Limits
from mudroom.core.confinement.plan import Plan
from mudroom.core.confinement.spec import HostView, SandboxSpec
from mudroom.core.tree.windows_path import inner_path
from mudroom.errors import UsageError
from mudroom.ext.windows.sandbox.client import WindowsClient, attend
from mudroom.ext.windows.sandbox.console_relay import ConsoleRelay, PipeCalls
from mudroom.ext.windows.sandbox.plan import require
from mudroom.ext.windows.sandbox.stream import Heard, PipedOutput
from mudroom.ext.windows.win32.api import Library
from mudroom.ext.windows.win32.user_console import read_pipe, user_console, write_pipe
from mudroom.sandbox.host.around import NamedStore
from mudroom.sandbox.host.host import Credentials, Host
from mudroom.sandbox.platform import Platform
from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass


def compile_windows(spec: SandboxSpec, _machine: str) -> Plan:
    """Return the plan that ``WindowsClient`` compiles further when it knows the command. Raise Unsupported for a
    request that no command can get here."""
    require(spec)
    return Plan(0, (b"", b"", False), (("windows", spec, NO_LIMITS),))


def hold(plan: Plan, limits: Limits) -> Plan:
    """Return the plan with limits, which the job holds."""
    steps = tuple((step[0], step[1], limits) if step[0] == "windows" else step for step in plan.steps)
    return plan._replace(steps=steps)


def streams() -> tuple[Any, Any]:
    return piped, attend


def piped(
    stdin: int | None,
    stdout: int | None,
    stderr: int | None,
    limit: int,
    heard: Heard | None = None,
    _own: Collection[int] = (),
) -> PipedOutput:
    """Return a ``PipedOutput``, as ``CapturedOutput`` elsewhere."""
    return PipedOutput(Library(), stdin, stdout, stderr, limit, heard)


def console_relay(descriptors: tuple[int | None, ...]) -> Any:
    """Return a ``ConsoleRelay`` for the user's console, or None if a descriptor is not a console's: the command gets
    pipes then."""
    import functools

    library = Library()
    user = user_console(library, descriptors)
    if user is None:
        return None
    read, write = functools.partial(read_pipe, library), functools.partial(write_pipe, library)
    return ConsoleRelay(user, PipeCalls(read, write, library.CloseHandle))


def survey_windows(*_arguments: Any) -> Host:
    """Return the host. No directory is named: an AppContainer reads files that the system opens to all packages, a
    restricted token all files that its user can read."""
    return Host((), (), (), (), Credentials(), (), b"", b"", False, False, 0, platform.machine())


def look_around_windows(
    _home: bytes, opened: NamedStore, *_arguments: Any, **_named: Any
) -> tuple[HostView, tuple[tuple[bytes, bytes], ...]]:
    """Do as ``around.look_around``. Nothing is hidden at level 0: a restricted token reads all that its user can."""
    return HostView(live=opened.live), ()


def true_path(path: bytes) -> bytes:
    """Return a path that is kept inside (``core/tree/windows_path.py``) with all links followed. Raise UsageError if
    they lead to a server or a device."""
    try:
        return inner_path(os.path.realpath(path.decode()))
    except ValueError as error:
        raise UsageError(str(error)) from None


def new_client(environ: Mapping[bytes, bytes]) -> WindowsClient:
    return WindowsClient(variables={os.fsdecode(name): os.fsdecode(value) for name, value in environ.items()})


PLATFORM = Platform(
    "win32",
    "job",
    compile_windows,
    new_client,
    survey_windows,
    look_around_windows,
    true_path,
    has_groups=False,
    hold=hold,
    streams=streams,
    is_bridged=True,
    console=console_relay,
)
