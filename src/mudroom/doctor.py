"""What this machine can protect: probes that do the thing and look what came of it. Nothing is concluded from a
version number where it can be tried."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from mudroom.core.settings import Settings
from mudroom.core.why import Why
from mudroom.errors import MudroomError, UsageError
from mudroom.sandbox.denial import error_name, rules_for
from mudroom.sandbox.host import landlock_abi
from mudroom.session import Session

APPARMOR_FIX = "Ubuntu: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for python3"


class Finding(NamedTuple):
    protection: str
    state: Literal["strict", "degraded", "missing"]
    found: str
    fix: str = ""


def why_call(name: str) -> list[Why]:
    """What the filter refuses of a system call. Raises UsageError for a name that nobody knows."""
    rules = rules_for(name)
    if not rules and not name.isidentifier():
        raise UsageError(f"{name} is no system call", "a path has a / in it")
    if not rules:
        return [Why(name, "allowed", "no rule of the filter names it; what it may reach is up to the view", False)]
    return [Why(name, f"{'with some arguments ' * bool(r.conditions)}{error_name(r)}", r.reason, True) for r in rules]


Runner = Callable[[Settings, str], tuple[bytes, tuple[str, ...], int]]
"""Run a shell script in a sandbox; gives stdout, the notes, and how many paths it changed."""


def examine(directory: bytes, *, home: bytes, environ: Mapping[bytes, bytes]) -> list[Finding]:
    """Try everything in ``directory``, an empty one on the file system where mudroom keeps its state."""
    numbers = iter(range(1000))

    def run(settings: Settings, script: str) -> tuple[bytes, tuple[str, ...], int]:
        project = directory + b"/project%d" % next(numbers)
        os.makedirs(project + b"/d/below")
        with Session.open(
            project, state=directory + b"/state", home=home, environ=environ, settings=settings
        ) as session:
            result = session.run([b"sh", b"-c", script.encode()])
            session.discard(result.fork)
        return result.stdout, result.notes, len(result.changeset.changes)

    return diagnose(run, landlock_abi())


def diagnose(run: Runner, landlock: int) -> list[Finding]:
    findings = [_sandbox(run), _overlay(run), _network(run), _privileges(run), _filter(run)]
    findings.append(_landlock(landlock))
    return findings


def _try(run: Runner, settings: Settings, script: str) -> tuple[bytes, tuple[str, ...], int, str]:
    try:
        out, notes, changed = run(settings, script)
    except MudroomError as error:
        return b"", (), 0, error.message
    return out, notes, changed, ""


def _sandbox(run: Runner) -> Finding:
    out, notes, _changed, error = _try(run, Settings(), "readlink /proc/self/ns/user; ls -d /home/* /root 2>/dev/null")
    if error:
        return Finding("a sandbox", "missing", error, APPARMOR_FIX)
    ours = os.fsencode(os.readlink("/proc/self/ns/user"))
    if ours in out:
        weaker = notes[0] if notes else "no namespaces"
        return Finding("a sandbox", "degraded", weaker, "permit user namespaces. " + APPARMOR_FIX)
    return Finding("a sandbox", "strict", "user, mount, pid, ipc, uts and cgroup namespaces, a root of its own")


def _overlay(run: Runner) -> Finding:
    """Remove a directory and make it again: what goes wrong (EIO) on an overlay that is not fully supported."""
    name = "the overlay view"
    out, _notes, changed, error = _try(run, Settings(view="overlay"), "rm -r d && mkdir d && touch d/new && ls d")
    if error:
        return Finding(name, "degraded", f"commands work in a copy of the project ({error})")
    if out != b"new\n" or changed != 2:
        return Finding(name, "missing", f"it loses changes here (saw {changed} of 2)", "set run.view: copy")
    return Finding(name, "strict", "kernel overlay at the project's own path; starting a fork costs nothing")


def _network(run: Runner) -> Finding:
    script = "cat /proc/net/dev | tail -n +3 | cut -d: -f1"
    out, _notes, _changed, error = _try(run, Settings(), script)
    if not error and out.split() == [b"lo"]:
        return Finding("no network", "strict", "a network namespace with nothing but its own loopback")
    return Finding("no network", "degraded" if not error else "missing", error or "sockets refused by a filter")


def _privileges(run: Runner) -> Finding:
    out, _notes, _changed, error = _try(run, Settings(), "grep -E 'Cap|NoNewPrivs' /proc/self/status")
    fields = dict(line.split(b":\t") for line in out.splitlines())
    empty = all(int(fields.get(b"Cap" + name, b"1"), 16) == 0 for name in (b"Prm", b"Eff", b"Inh", b"Amb", b"Bnd"))
    if empty and fields.get(b"NoNewPrivs") == b"1":
        return Finding("no privileges", "strict", "no capability left, none to be gained")
    state: Literal["degraded", "missing"] = "missing" if error or int(fields.get(b"CapEff", b"1"), 16) else "degraded"
    return Finding("no privileges", state, error or "no capability left, but a bounding set that could not be emptied")


def _filter(run: Runner) -> Finding:
    script = (
        f'{sys.executable} -c "import socket; socket.socket(40, 1)" 2>&1 | tail -1; grep Seccomp: /proc/self/status'
    )
    out, _notes, _changed, error = _try(run, Settings(), script)
    if b"Seccomp:\t2" in out:
        return Finding(
            "a system call filter", "strict", "namespaces, mounts, tracing, keyrings, io_uring … are refused"
        )
    return Finding(
        "a system call filter", "missing", error or "seccomp is not in force", "a kernel with CONFIG_SECCOMP_FILTER"
    )


def _landlock(abi: int) -> Finding:
    if abi == 0:
        return Finding("Landlock", "missing", "not in this kernel", "add landlock to lsm= on the kernel's command line")
    if abi < 6:
        return Finding("Landlock", "degraded", f"ABI {abi}: no scopes for signals and abstract sockets", "Linux 6.12")
    return Finding("Landlock", "strict", f"ABI {abi}")
