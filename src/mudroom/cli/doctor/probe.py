"""Probe this machine's protections: perform an operation and check the result. Version numbers are used only where no
test is possible."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from difflib import get_close_matches

from mudroom.core.confinement.access_reason import AccessReason
from mudroom.core.confinement.protection import Finding, State
from mudroom.core.registry import NotInstalled, part, part_or_none
from mudroom.core.settings import EngineChoice, Settings
from mudroom.core.text.table import read_table
from mudroom.errors import MudroomError, UsageError
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.sandbox.host.denials import error_name, rules_for
from mudroom.sandbox.host.host import landlock_abi
from mudroom.sandbox.limits.limiter import survey
from mudroom.sandbox.linux.forbidden import why_forbidden
from mudroom.sandbox.linux.plan import PROXY_PORT, REDIRECTED
from mudroom.sandbox.platform import system_name
from mudroom.session import Session
from mudroom.session.confinement.grant import graphics
from mudroom.typing import NamedTuple

ENGINE = "a container engine"
"""Name of the protection without which there is no level 2."""
BESIDE = "containers beside a command"
"""Name of the row of ``run --engine``, which protects nothing by itself."""


def why_call(name: str) -> list[AccessReason]:
    """Return the seccomp filter's rules for a system call as reasons. Raise UsageError if there is no such call."""
    rules = rules_for(name)
    if not rules and name not in SYSCALL_NAMES:
        near = get_close_matches(name, SYSCALL_NAMES, 1, 0.75)
        raise UsageError(
            f"there is no system call {name}", f"did you mean {near[0]}?" if near else "a path has a / in it"
        )
    if not rules:
        return [
            AccessReason(name, "allowed", "no rule of the filter names it; the view decides what it can access", False)
        ]
    return [
        AccessReason(name, f"{'with some arguments ' * bool(rule.conditions)}{error_name(rule)}", rule.reason, True)
        for rule in rules
    ]


class ShellTrial(NamedTuple):
    """Outcome when a shell script runs in a sandbox."""

    out: bytes = b""
    notes: tuple[str, ...] = ()
    changed: int = 0
    denials: tuple[bytes, ...] = ()
    error: str = ""
    """Reason why the script could not be started, or ""."""


Runner = Callable[[Settings, str], ShellTrial]


def examine(
    directory: bytes, *, home: bytes, environ: Mapping[bytes, bytes], engine: EngineChoice = "auto"
) -> list[Finding]:
    """Run all probes in ``directory``, which must be empty and on the same file system as mudroom's state. ``engine``
    is the policy's container engine."""
    numbers = iter(range(1000))

    def run(settings: Settings, script: str) -> ShellTrial:
        project = directory + b"/project%d" % next(numbers)
        os.makedirs(project + b"/d/below")
        with Session.open(
            project, state=directory + b"/state", home=home, environ=environ, settings=settings
        ) as session:
            result = session.run([b"sh", b"-c", script.encode()])
            session.forks.discard(result.fork)
        denials = tuple(denial.target for denial in result.denials)
        return ShellTrial(result.stdout, result.notes, len(result.changeset.changes), denials)

    import resource  # absent on Windows, which imports this file's constants

    os.mkdir(directory + b"/rows")
    rows = _by_rows(directory + b"/rows", home, environ)
    crashes = _crashes(_core_pattern(), resource.getrlimit(resource.RLIMIT_CORE)[1])
    findings = diagnose(run, rows, landlock_abi(), crashes)
    counts_processes = findings[0].state == "strict" and os.geteuid() != 0
    beside = part_or_none("doctor", "engine")
    return [
        *findings,
        *_limits(directory, environ, counts_processes),
        *_containers(directory, environ, run, engine),
        *([beside.examine_engine()] if beside is not None else []),
        *([Finding("a GPU", "degraded", gpu.notes[0])] if (gpu := graphics()).devices else []),
    ]


def _containers(directory: bytes, environ: Mapping[bytes, bytes], run: Runner, engine: EngineChoice) -> list[Finding]:
    """Test level 2, which is missing without the satellite ``containers``."""

    def contained(settings: Settings, script: str) -> ShellTrial:
        try:
            return run(settings._replace(level=2, engine=engine), script)
        except MudroomError as error:
            return ShellTrial(error=error.message)

    def gate() -> tuple[State, str, str]:
        _name, state, found, fix = _gate(contained)
        return state, found, fix

    try:
        examiner = part("doctor", "containers", "level 2")
    except NotInstalled as error:
        return [Finding(ENGINE, "missing", error.message, error.hint)]
    findings: list[Finding] = examiner.examine_engines(directory + b"/state", environ, gate, engine)
    return findings


def _by_rows(directory: bytes, home: bytes, environ: Mapping[bytes, bytes]) -> list[Finding]:
    """Return the Linux protections that certification rows test, in ``directory``, which must be empty."""
    try:
        certify = part("certify", "cli", "mudroom doctor --certify")
    except NotInstalled as error:
        return [Finding("acts that are refused, one by one", "not probed", error.message, error.hint)]
    found: list[Finding] = certify.try_protections(directory, home=home, environ=environ)
    return found


def certified(state: bytes) -> tuple[list[Finding], bool]:
    """Return findings from this machine's certification record: which protections it opens and closes. The bool says
    whether the platform is open."""
    try:
        certify = part("certify", "cli", f"mudroom on {system_name(sys.platform)}")
    except NotInstalled as error:
        return [Finding("a certificate", "missing", error.message, error.hint)], False
    found: tuple[list[Finding], bool] = certify.findings_here(state)
    return found


def _limits(directory: bytes, environ: Mapping[bytes, bytes], counts_processes: bool) -> list[Finding]:
    """Test each limit in a temporary control group."""
    client = LauncherClient(SpawnedLauncher())
    client.start()
    with closing(client):
        rows = survey(client.prepare_move, environ, directory, counts_processes=counts_processes)
    return [Finding(f"limit: {row.limit}", row.state, row.found, row.fix) for row in rows]


def _core_pattern() -> str:
    with open("/proc/sys/kernel/core_pattern", encoding="ascii", errors="replace") as stream:
        return stream.read().strip()


def diagnose(run: Runner, by_rows: Sequence[Finding], landlock: int, *others: Finding) -> list[Finding]:
    """Return the findings on Linux. ``by_rows`` are the findings from certification rows."""

    def attempt(settings: Settings, script: str) -> ShellTrial:
        try:
            return run(settings, script)
        except MudroomError as error:
            return ShellTrial(error=error.message)

    first, rest = (_sandbox, _overlay), (_gate, _privileges, _init, _filter, _reports)
    return [
        *(probe(attempt) for probe in first),
        *by_rows,
        *(probe(attempt) for probe in rest),
        _landlock(landlock),
        *others,
    ]


def _not_probed(name: str, trial: ShellTrial) -> Finding:
    return Finding(name, "not probed", trial.error or "the probe did not run as it should have")


def _is_ours(out: bytes, *kinds: str) -> bool:
    """Return whether the output contains one of our own namespace identifiers (namespaces(7))."""
    return any(os.fsencode(os.readlink(f"/proc/self/ns/{kind}")) in out for kind in kinds)


PERMIT = "permit user namespaces: see the first row"
_REDIRECT = "nftables in the kernel: modprobe -a nf_tables nft_redir nft_chain_nat"


def _sandbox(run: Runner) -> Finding:
    out, notes, _changed, _denials, error = run(
        Settings(), "readlink /proc/self/ns/user; ls -d /home/* /root 2>/dev/null"
    )
    if error:
        return Finding("a sandbox", "missing", error, why_forbidden(os.path.realpath(sys.executable))[1])
    if _is_ours(out, "user"):
        why, fix = why_forbidden(os.path.realpath(sys.executable))
        return Finding("a sandbox", "degraded", f"{notes[0] if notes else 'no namespaces'}; {why}", fix)
    return Finding("a sandbox", "strict", "user, mount, pid, ipc, uts and cgroup namespaces, a root of its own")


def _overlay(run: Runner) -> Finding:
    """Remove a directory and create it again, which fails with EIO on an overlay that is not fully supported."""
    name = "the overlay view"
    out, _notes, changed, _denials, error = run(Settings(view="overlay"), "rm -r d && mkdir d && touch d/new && ls d")
    if error:
        fix = "user namespaces, and MUDROOM_STATE on a disk that can be an upper layer (ext4, xfs, btrfs, tmpfs)"
        return Finding(name, "degraded", f"commands work in a copy of the project ({error})", fix)
    if out != b"new\n" or changed != 2:
        return Finding(name, "missing", f"it loses changes here (saw {changed} of 2)", "set run.view: copy")
    return Finding(name, "strict", "kernel overlay at the project's own path; starting a fork costs nothing")


def _gate(run: Runner) -> Finding:
    """Test which of the gate's listeners the command sees. In proc_pid_net(5), state 0A is TCP_LISTEN."""
    name = "the gate"
    script = "cat /proc/net/tcp /proc/net/tcp6; echo $http_proxy; readlink /proc/self/ns/net"
    trial = run(Settings(network="gate"), script)
    fields = [line.split() for line in trial.out.splitlines()]
    ports = {int(row[1].rpartition(b":")[2], 16) for row in fields if len(row) > 3 and row[3] == b"0A"}
    if b"net:[" not in trial.out:
        return _not_probed(name, trial)
    if _is_ours(trial.out, "net"):
        if b"http://" in trial.out:
            return Finding(name, "degraded", "one port of loopback, for programs that use http_proxy", PERMIT)
        return Finding(name, "missing", "no network namespace, and Landlock knows no ports before its ABI 4", PERMIT)
    if REDIRECTED in ports:
        return Finding(name, "strict", "every port of every address is redirected to it, and so are DNS queries")
    if PROXY_PORT in ports:
        usual = ", ".join(map(str, sorted(ports - {PROXY_PORT, 53})))
        if not usual:
            return Finding(name, "degraded", "for programs that use http_proxy", PERMIT)
        return Finding(name, "degraded", f"by http_proxy, and ports {usual}; others are refused", _REDIRECT)
    return Finding(name, "missing", "no listener inside")


def _privileges(run: Runner) -> Finding:
    name = "no privileges"
    trial = run(Settings(), "grep -E 'Cap|NoNewPrivs' /proc/self/status")
    fields = dict(line.split(b":\t") for line in trial.out.splitlines())
    if b"CapEff" not in fields:
        return _not_probed(name, trial)
    empty = all(int(fields.get(b"Cap" + name, b"1"), 16) == 0 for name in (b"Prm", b"Eff", b"Inh", b"Amb", b"Bnd"))
    if empty and fields.get(b"NoNewPrivs") == b"1":
        return Finding(name, "strict", "no capability, and no way to gain one")
    if int(fields[b"CapEff"], 16):
        return Finding(name, "missing", "capabilities are left")
    return Finding(name, "degraded", "no capability left, but a bounding set that could not be emptied", PERMIT)


def _init(run: Runner) -> Finding:
    """Test whether the command can read the memory and descriptors of the sandbox's first process (PR_SET_DUMPABLE,
    prctl(2)). That process is the command's parent; it has pid 1 only if the sandbox has its own pid namespace."""
    name = "a first process that is nobody's to read"
    trial = run(Settings(), "cd /proc/$PPID || exit; cat environ maps; readlink root fd/*; echo end")
    if trial.out == b"end\n":
        return Finding(name, "strict", "its memory and its descriptors are closed to the command")
    if not trial.out.endswith(b"end\n"):
        return _not_probed(name, trial)
    return Finding(name, "missing", "the command may read its memory or its descriptors")


def _filter(run: Runner) -> Finding:
    script = (
        f'{sys.executable} -c "import socket; socket.socket(40, 1)" 2>&1 | tail -1; grep Seccomp: /proc/self/status'
    )
    trial = run(Settings(), script)
    if b"Seccomp:" not in trial.out:
        return _not_probed("a system call filter", trial)
    if b"Seccomp:\t2" in trial.out:
        return Finding(
            "a system call filter", "strict", "namespaces, mounts, tracing, keyrings, io_uring … are refused"
        )
    return Finding("a system call filter", "missing", "seccomp is not in force", "a kernel with CONFIG_SECCOMP_FILTER")


def _reports(run: Runner) -> Finding:
    """Test whether the result contains refused calls (seccomp_unotify(2))."""
    name = "refusals are told"
    script = f'{sys.executable} -c "import socket; socket.socket(40, 1)" 2>/dev/null; echo end'
    trial = run(Settings(), script)
    if trial.denials == (b"socket",):
        return Finding(name, "strict", "refused calls are in the result: mudroom policy why")
    if trial.out != b"end\n":
        return _not_probed(name, trial)
    return Finding(
        name,
        "degraded",
        "only refused changes of metadata are reported"
        if trial.denials or trial.notes
        else "refusals of the filter are not reported",
        "Linux 5.0 or later, user namespaces, and no other program that listens to our filter",
    )


def _crashes(core_pattern: str, most: int) -> Finding:
    """Return the row about core dumps. It is the only row without a test: a crash would be reported to the host.
    ``most`` is our own hard RLIMIT_CORE, the highest possible for a command. It must be at least 1: with 0 the kernel
    starts the handler after "|" all the same. See ``core/confinement/limit.py``."""
    name = "crashes stay inside"
    if core_pattern.startswith("@"):
        found = f"the kernel hands crashes to the host's {core_pattern}, whatever the limit of core dumps"
        return Finding(
            name, "degraded", found, "a kernel.core_pattern that begins with | or is a path: sysctl, core(5)"
        )
    if core_pattern.startswith("|") and most == 0:
        found = f"with our own hard limit of 0 the kernel hands crashes to the host's {core_pattern[1:].split()[0]}"
        return Finding(name, "degraded", found, "start mudroom without ulimit -c 0: the hard limit has to be 1 or more")
    return Finding(name, "strict", "no core is dumped, no crash handler of the host is started")


def _landlock(abi: int) -> Finding:
    if abi == 0:
        return Finding("Landlock", "missing", "not in this kernel", "add landlock to lsm= on the kernel's command line")
    if abi < 6:
        return Finding("Landlock", "degraded", f"ABI {abi}: no scopes for signals and abstract sockets", "Linux 6.12")
    return Finding("Landlock", "strict", f"ABI {abi}")


# --- Linux system call names ---


SYSCALL_NAMES = frozenset(read_table("system_calls")[0].split())
