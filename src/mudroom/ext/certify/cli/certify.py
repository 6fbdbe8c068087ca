"""``mudroom doctor --certify``: try whether this platform's sandbox holds, and open the parts that held.

On a platform that needs no record, such as Linux, the rows are tried and told, but not stored.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

from mudroom.cli.doctor.probe import PERMIT
from mudroom.cli.host.doctor import screen_size
from mudroom.cli.terminal.context import Context
from mudroom.core.confinement.plan import Plan
from mudroom.core.confinement.protection import Finding, State
from mudroom.core.confinement.spec import Bind, Copy, SandboxSpec
from mudroom.errors import UsageError
from mudroom.ext.certify.cli.certificate import every_row, findings, lines, screen
from mudroom.ext.certify.ground import LIMITS, TrialGround
from mudroom.ext.certify.identity import identity, tool_of
from mudroom.ext.certify.killed_apply import volume_here
from mudroom.ext.certify.opening import look, make
from mudroom.ext.certify.record import SCHEMA, encode
from mudroom.ext.certify.row import Certificate, RowResult, TrialRow, opens
from mudroom.ext.certify.table import KNOWN, LINUX, TABLES, expected
from mudroom.ext.certify.trial import Progress, Trial, certify, start_by
from mudroom.ext.certify.verdict import NOTHING_THERE
from mudroom.ext.certify.volume import Volume
from mudroom.policy.config import places
from mudroom.sandbox.client.client import Client
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.sandbox.host.host import survey, without
from mudroom.sandbox.linux.plan import compile_plan
from mudroom.sandbox.platform import BY_RECORD
from mudroom.stage.private_directory import require_private
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import argparse


# --- Linux certification rows: how they are tried, and the protections that ``doctor`` reads from them ---


def try_rows(
    table: Sequence[TrialRow],
    directory: bytes,
    *,
    home: bytes,
    environ: Mapping[bytes, bytes],
    progress: Progress = lambda _number, _count, _name: None,
) -> Certificate:
    """Try rows in ``directory``, which is empty, and return the certificate: with namespaces where they are permitted,
    else by Landlock, as a session does."""
    search = [entry for entry in environ.get(b"PATH", b"").split(b":") if entry.startswith(b"/")]
    top, kernel, volume = os.path.realpath(os.fsdecode(directory)), os.uname(), volume_here()
    facts = Certificate("linux", f"{kernel.sysname} {kernel.release}", kernel.machine, int(time.time()))
    client = LauncherClient(SpawnedLauncher())
    client.start()
    try:
        trial = linux_trial(client, home=home, search=search, namespaces=True, volume=volume)
        first = [row for row in LINUX if row.name == "shell"]
        if not opens(first, certify(first, trial, top + "/first", facts)):
            facts = facts._replace(system=facts.system + WITHOUT)
            trial = linux_trial(client, home=home, search=search, namespaces=False, volume=volume)
        return certify(table, trial, top, facts, progress=progress)
    finally:
        client.close()


WITHOUT = " without namespaces"
"""Suffix to the system's name in a certificate from a machine that permits no namespaces."""


class RowProtection(NamedTuple):
    """A protection that holds if its rows do."""

    protection: str
    rows: tuple[str, ...]
    strict: str
    degraded: str
    """For a machine without namespaces."""


PROTECTIONS = (
    RowProtection(
        "nothing of the host in sight",
        ("plain_read", "listing", "project_read", "unix", "terminal", "arguments", "kill"),
        "no file, socket, terminal or process of the host can be reached",
        "the host's processes and names can be seen; Landlock decides what may be opened",
    ),
    RowProtection(
        "no network",
        ("tcp", "udp", "ipv6", "lan", "multicast"),
        "a loopback of its own: no address of the host can be reached",
        "sockets refused by a filter",
    ),
)
ROWS: Sequence[TrialRow] = tuple(row for row in LINUX if any(row.name in one.rows for one in PROTECTIONS))
"""Rows that ``doctor`` tries."""


def protections(certificate: Certificate) -> list[Finding]:
    """Return the protections that rows show."""
    found = [(one.protection, *state_of(one, certificate)) for one in PROTECTIONS]
    return [Finding(name, state, why, PERMIT if state == "degraded" else "") for name, state, why in found]


def state_of(one: RowProtection, certificate: Certificate) -> tuple[State, str]:
    """Return the state of a protection, and what was found."""
    made = {result.name: result for result in certificate.rows}
    results = [made.get(name, RowResult(name, "not shown", "it was not tried")) for name in one.rows]
    with_namespaces = not certificate.system.endswith(WITHOUT)
    failed = [result for result in results if result.verdict != "held" and result.found != NOTHING_THERE]
    if not with_namespaces:
        failed = [result for result in failed if result.name not in KNOWN]
    fell = [result.name for result in failed if result.verdict == "fell"]
    if fell:
        return "missing", f"done inside: {', '.join(fell)} (mudroom doctor --certify)"
    if failed:
        return "not probed", f"{failed[0].name}: {failed[0].found}"
    return ("strict", one.strict) if with_namespaces else ("degraded", one.degraded)


def linux_trial(client: Client, *, home: bytes, search: Sequence[bytes], namespaces: bool, volume: Volume) -> Trial:
    """Return the level 1 trial by ``client``: with namespaces, or by Landlock and a mediator alone. ``home`` and
    ``search`` are as for ``host.survey``."""
    host = survey(home, search)
    python = os.path.realpath(os.fsencode(sys.base_prefix))
    binds = (*host.system, *host.home, *(() if python == b"/usr" else (Bind(python, python),)))

    def prepare(ground: TrialGround, _port: int) -> Plan:
        top, work, private = (os.fsencode(path) for path in (ground.top, ground.work, ground.private))
        policy, tools = work + b"/.mudroom", top + b"/tools"
        more = [Bind(policy, policy)] if ground.row.where == "policy" else []
        masks = host.masks
        if ground.row.where == "mask":
            more, masks = [Bind(tools, tools)], (*masks, tools + b"/mask/secret")
        shown = (*binds, *more)
        spec = SandboxSpec(
            project=work,  # the copy is at its own path, as without namespaces, and the real project is nowhere
            view=Copy(work),
            cwd=work,
            home=home,
            scratch=private,
            namespaces=namespaces,
            links=host.links,
            binds=shown if namespaces else without(shown, masks),
            masks=masks if namespaces else (),
            devices=host.devices,
            landlock_abi=host.landlock_abi,
            as_root=host.as_root,
            uid_map=host.uid_map,
            gid_map=host.gid_map,
            deny_setgroups=host.deny_setgroups,
            rlimits=LIMITS.get(ground.row.name, ()),
        )
        return compile_plan(spec, host.machine)

    return Trial(prepare, start_by(client), volume)


# --- Certify this platform: by ``mudroom doctor --certify``, and automatically before the first session ---


def certified(environ: Mapping[bytes, bytes], platform: str = sys.platform, tool: bytes = b"") -> list[str]:
    """Return the parts that this machine's record opens and closes, in one line each."""
    return lines(look(platform, places(environ).state, tool or tool_of(platform)))


def findings_here(state: bytes, platform: str = sys.platform, tool: bytes = b"") -> tuple[list[Finding], bool]:
    """Do as ``certified``, in ``mudroom doctor`` rows; return also whether the platform is open."""
    opening = look(platform, state, tool or tool_of(platform))
    return findings(TABLES[platform], opening), opening.is_open


def try_protections(directory: bytes, *, home: bytes, environ: Mapping[bytes, bytes]) -> list[Finding]:
    """Try the Linux rows that show protections, in ``directory``, which is empty."""
    return protections(try_rows(ROWS, directory, home=home, environ=environ))


# Other platforms' satellites may be absent here, and need modules that are not in this Python: each is imported where
# it is tried.


def new_client(platform: str, tool: bytes) -> Client:
    """Return the client for a platform that is to be certified. ``tool``: its confining program, if it has one."""
    if platform == "win32":
        from mudroom.ext.windows.sandbox.client import WindowsClient

        return WindowsClient(variables=os.environ)
    from mudroom.ext.macos.client import DarwinClient

    return DarwinClient(tool=tool)


def _trial(platform: str, client: Client, home: bytes, context: Context) -> Trial:
    if platform == "win32":
        from mudroom.ext.certify.windows_trial import windows_trial
        from mudroom.ext.windows.win32.api import Library

        return windows_trial(client, Library(), os.environ, volume=volume_here())
    from mudroom.ext.certify.macos import mac_trial

    search = [entry for entry in context.environ.get(b"PATH", b"").split(b":") if entry.startswith(b"/")]
    return mac_trial(client, home=home, search=search, volume=volume_here())


def tried(platform: str, tool: bytes, client: Client, context: Context) -> Certificate:
    """Try every row and store the certificate. Raise MudroomError if none could be made."""
    place = places(context.environ)
    require_private(place.state)
    try:
        with tempfile.TemporaryDirectory(dir=place.state, prefix=b"certify-") as directory:
            trial = _trial(platform, client, place.home, context)
            return make(platform, place.state, tool, trial, directory, progress=_progress(context))
    finally:
        client.close()


def tried_on_linux(context: Context) -> Certificate:
    """Try the Linux rows and return the certificate, which is not stored."""
    place = places(context.environ)
    require_private(place.state)
    with tempfile.TemporaryDirectory(dir=place.state, prefix=b"certify-") as directory:
        return try_rows(
            TABLES["linux"], directory, home=place.home, environ=context.environ, progress=_progress(context)
        )


def _progress(context: Context) -> Progress:
    def progress(number: int, count: int, _name: str) -> None:
        context.terminal.progress("trying the sandbox", number, count)

    return progress


def certify_first(context: Context, platform: str = sys.platform, tool: bytes = b"") -> None:
    """Certify a platform that has no certificate before a session is opened, if stdin is a terminal; otherwise opening
    the session says how. ``tool`` replaces the platform's own."""
    if platform not in BY_RECORD or not sys.stdin.isatty():
        return
    tool = tool or tool_of(platform)
    opening = look(platform, places(context.environ).state, tool)
    if opening.certificate is None or (opening.is_shipped and not opening.is_open):
        why = opening.why or "it was closed on a hosted machine like this one"
        context.terminal.note(f"this system is tried first, in less than a minute (mudroom doctor --certify): {why}")
        tried(platform, tool, new_client(platform, tool), context)


def execute(args: argparse.Namespace, context: Context) -> int:
    if args.file is not None and not context.as_json:
        raise UsageError("a file is written with --json only", f"mudroom doctor --certify --json {args.file}")
    if args.file is not None and os.path.lexists(args.file):
        raise UsageError(f"{args.file} exists already", "name another file")
    platform = str(sys.platform)
    if platform == "linux":
        return tell("linux", b"", tried_on_linux(context), args.file, context, every=args.all)
    if platform not in BY_RECORD:
        raise UsageError(f"nothing can be tried on {platform} yet", "mudroom doctor tries what is protected here")
    tool = tool_of(platform)
    return certify_here(
        platform, tool, context.client or new_client(platform, tool), args.file, context, every=args.all
    )


def certify_here(
    platform: str, tool: bytes, client: Client, file: str | None, context: Context, *, every: bool = False
) -> int:
    """Try every row, store the certificate, and print it or write it to a new file. Return the exit code."""
    return tell(platform, tool, tried(platform, tool, client, context), file, context, every=every)


def tell(
    platform: str, tool: bytes, certificate: Certificate, file: str | None, context: Context, *, every: bool = False
) -> int:
    """Write a certificate to a new file, or print it, with ``every`` row or as a screen. Return the exit code."""
    if file is not None:
        _write(file, _text(platform, tool, certificate, context) + "\n")
    elif context.as_json:
        context.terminal.out(_text(platform, tool, certificate, context))
    else:
        _print(certificate, every, context)
    return 0 if opens(expected(platform, certificate), certificate) else 1


def _text(platform: str, tool: bytes, certificate: Certificate, context: Context) -> str:
    facts = identity(platform, places(context.environ).state, tool).shared
    return json.dumps({"schema": SCHEMA, "facts": facts, **encode(certificate)})


def _write(path: str, text: str) -> None:
    try:
        with open(path, "x", encoding="ascii") as stream:
            stream.write(text)
    except FileExistsError:
        raise UsageError(f"{path} exists already", "name another file") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", "name another file") from None


def _print(certificate: Certificate, every: bool, context: Context) -> None:
    def style(text: str, name: str) -> str:
        return context.terminal.style(text, name, 1)

    lines = every_row(certificate, style) if every else screen(certificate, style, *screen_size())
    context.terminal.out("\n".join(lines))
