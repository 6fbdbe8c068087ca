"""macOS: compile a ``SandboxSpec`` to a Seatbelt profile, and to the plan that starts a command under it. Pure.

There are no mounts and no namespaces: the command works in a copy at its own path, and the kernel checks each operation
against the profile. Rules of this file:

1. ``(deny default)`` at both levels, and no import from Apple's profiles: ``bsd.sb`` and ``system.sb`` change with the
   system, and permit more than intended. Operations that ``(deny default)`` does not cover (process-info, nvram, IOKit
   properties; Firefox's profile says so) are denied by name.
2. If several rules match, it is not documented which decides, and measurements differ: the last rule; the last that
   names the operation itself, before those with a wildcard such as ``file-read*`` (the operation's parent); rules with
   a filter before those without. A profile must decide the same in each reading. So permissions come first and their
   exceptions after them, ``render`` writes a wildcard together with the operations below it that any rule names, and
   an exception has a filter.
3. Seatbelt judges real paths, as the kernel knows a file (vn_getpath): symbolic links followed, ``/tmp``, ``/var`` and
   ``/etc`` in ``/private``, firmlinks by their short side. ``real`` writes them so. Where the volume folds case, the
   caller has to give names as they are stored (``host.true_path``).
4. A path is a ``literal`` or a ``subpath``, never part of a regular expression, so no character in a name is special.
   Names are bytes; the language's reader (TinyScheme) takes all bytes between quotes literally but ``"`` and ``\\``.
5. ``(subpath X)`` also matches X itself: a program that may write there could replace X by a symbolic link, and mudroom
   would write through it. Therefore a writable root itself cannot be removed, moved or created; nor can a directory
   above a hidden path (``_above``).
6. No hard links (``file-link``): reports differ on whether the old or the new name is judged. If it is the new name, a
   link would make a read-only file writable. Git, cargo, pnpm and uv copy instead.
7. No clones (``file-clone``) either: a clone would be another name for a masked file. Programs that clone copy instead.

The kernel refuses set-user-id programs in every sandbox (``forbidden-exec-sugid``): there is no ``ps`` inside. A
sandbox cannot be nested (``forbidden-sandbox-reinit``): SwiftPM needs --disable-sandbox, Chromium --no-sandbox.

Sources: Apple Sandbox Guide 1.0 (reverse.put.as); Blazakis, "The Apple Sandbox", 2011; the profiles that are named
below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mudroom.core.confinement.plan import Plan, Step
from mudroom.core.confinement.spec import Copy, SandboxSpec
from mudroom.typing import Any, Literal, NamedTuple

# --- macOS services and kernel settings that a command may use. Tables, each row with its reason. Pure ---
# A service is another process, outside the sandbox, which acts for its client with its own rights. So every row is an
# exception that needs a reason. Left out, and so refused by ``(deny default)``:
#
# * ``com.apple.pasteboard.1`` (the user's clipboard), ``com.apple.coreservices.launchservicesd`` and the operation
#   ``lsopen`` (they start programs *outside* the sandbox), ``appleevent-send`` (it controls Finder or Terminal),
#   ``job-creation`` and ``mach-register`` (launchd runs the given program, outside), ``com.apple.cfprefsd.*`` (every
#   program's settings, which often hold tokens), ``com.apple.FSEvents`` (names of all files that any program changes),
#   ``com.apple.logd`` (a log that outlives the command);
# * ``com.apple.trustd.agent``: it fetches URLs that a certificate names (OCSP, CA issuers), so it is a way out that no
#   gate sees. Go, and programs with Apple's TLS, cannot verify certificates without it: they have it where the network
#   is open.
#
# Compared with: the profiles in Chromium (sandbox/policy/mac/common.sb), Firefox (SandboxPolicyContent.h), Codex
# (seatbelt_base_policy.sbpl), Anthropic's sandbox-runtime (macos-sandbox-utils.ts) and agent-safehouse
# (10-system-runtime.sb); this list is shorter than each.


class Service(NamedTuple):
    name: str
    when: str
    """``always``, ``network`` (gate or open), ``open``, or the credential store that has to be open."""
    why: str


MACH = (
    Service("com.apple.system.opendirectoryd.libinfo", "always", "getpwuid(3): who the user is, for git, ssh, id"),
    Service("com.apple.system.notification_center", "always", "notify(3): libc asks whether the time zone changed"),
    Service(
        "com.apple.SystemConfiguration.configd",
        "network",
        "settings of proxies: uv and cargo abort if they cannot ask; only root can change something there",
    ),
    Service("com.apple.SystemConfiguration.DNSConfiguration", "open", "which DNS servers there are"),
    Service("com.apple.dnssd.service", "open", "names are looked up by mDNSResponder"),
    Service("com.apple.trustd.agent", "open", "certificates are verified, and what they name is fetched"),
    Service("com.apple.trustd", "open", "the same for the whole machine"),
    Service("com.apple.SecurityServer", "keychain", "items of the keychain, and who may have them"),
    Service("com.apple.securityd.xpc", "keychain", "the same, for newer programs"),
    Service("com.apple.securityd.general", "keychain", "the same, for newer programs"),
    Service("com.apple.coreservices.launchservicesd", "display", "the user's browser is told to open a page"),
    Service("com.apple.lsd.mapdb", "display", "which program opens what"),
    Service("com.apple.lsd.open", "display", "opens it"),
)

GUARDED = (
    *(row for row in MACH if row.when in ("keychain", "display")),
    Service("com.apple.pasteboard.1", "display", "what the user has copied"),
    Service("com.apple.coreservices.appleevents", "", "other programs are told what to do"),
    Service("com.apple.coreservices.quarantine-resolver", "", "takes marks of origin from files"),
    Service("com.apple.cfprefsd.daemon", "", "writes settings of other programs"),
    Service("com.apple.cfprefsd.agent", "", "writes settings of other programs"),
)
"""Services that remain refused at level 0 with the host's network, where all others are permitted, unless their store
is open. With any other network the list above applies, with those rows here that belong to an open store."""

SYSCTL = (
    "kern.argmax", "kern.boottime", "kern.clockrate", "kern.hostname", "kern.maxfilesperproc", "kern.maxproc",
    "kern.ngroups", "kern.osproductversion", "kern.osrelease", "kern.ostype", "kern.osvariant_status", "kern.osversion",
    "kern.secure_kernel", "kern.tcsm_available", "kern.usrstack64", "kern.version", "machdep.ptrauth_enabled",
    "security.mac.lockdown_mode_state", "sysctl.proc_cputype", "sysctl.proc_translated", "vm.loadavg",
)  # fmt: skip
"""Facts about the machine. Not ``kern.procargs2``: other processes' arguments and variables, which hold tokens.
``kern.proc.pid`` gives any process's name, parent, user and times by its pid: runtimes query themselves, and a rule
cannot restrict the pid."""
SYSCTL_PREFIXES = ("hw.", "machdep.cpu.", "kern.proc.pid.", "kern.proc.pgrp.")
SYSCTL_OF_NETWORK = "net.routetable."
"""Interfaces and their addresses: getifaddrs(3)."""


def services(table: tuple[Service, ...], network: str, stores: tuple[str, ...]) -> tuple[Service, ...]:
    """Return the rows that apply with this network and these open stores."""
    met = {"always", *stores, *(("network",) if network != "none" else ()), *(("open",) if network == "open" else ())}
    return tuple(row for row in table if row.when in met)


Action = Literal["allow", "deny"]
_ACTIONS: tuple[Action, ...] = ("deny", "allow")
Filter = bytes
"""A filter expression, as profile text."""


class SeatbeltRule(NamedTuple):
    action: Action
    operations: str
    filters: tuple[Filter, ...] = ()
    """Alternatives. A rule without filters always matches."""
    why: str = ""
    new: bool = False
    """Not every system knows the rule's only operation. Where it is unknown, the rule is skipped and the profile stays
    readable: ``(if (defined? …))``, as in Firefox's profile."""


_IN_PRIVATE = (b"/tmp", b"/var", b"/etc")
_DATA = b"/System/Volumes/Data"
_FIRMLINKED = (b"/Users", b"/private", b"/Applications", b"/Library", b"/opt", b"/usr/local", b"/cores", b"/Volumes")
"""From /usr/share/firmlinks: directories that exist under two paths."""
_STREAMS = (b"/dev/stdin", b"/dev/stdout", b"/dev/stderr")
"""Symbolic links to ``/dev/fd``: a script that writes to one reads the link itself."""
_ALIASES = tuple(b'(literal "%s")' % path for path in (*_IN_PRIVATE, *_STREAMS))
_FIRMLINK_PARENTS = tuple(b'(literal "%s")' % path for path in (b"/System", b"/System/Volumes", _DATA))
_READ_DEVICES = (b"/dev/random", b"/dev/urandom", b"/dev/autofs_nowait", b"/dev/fd")
_DEVICES = (b"/dev/null", b"/dev/zero", b"/dev/tty", b"/dev/dtracehelper", b"/dev/ptmx")
_TERMINALS = b'(regex #"^/dev/ttys[0-9]+$")'
_OWN_TERMINALS = b'(require-all (regex #"^/dev/ttys[0-9]+$") (extension "com.apple.sandbox.pty"))'
_OTHER_TERMINALS = b'(require-all (regex #"^/dev/ttys[0-9]+$") (require-not (extension "com.apple.sandbox.pty")))'
"""Terminals that a sandboxed process made: the kernel gives it that extension with the master. All others are the
user's, with the text typed there; only descriptors inherited from outside can be used, and queried (file-ioctl)."""
_SHARED_MEMORY = " ".join(
    "ipc-posix-shm-" + right for right in ("read-data", "write-data", "write-create", "write-unlink")
)
_RESOLVER = b'(literal "/private/var/run/mDNSResponder")'


def quote(path: bytes) -> bytes:
    """Return the path as a profile-language string. Raise ValueError for a NUL, which no path has."""
    if b"\0" in path:
        raise ValueError("a path cannot hold a NUL")
    return b'"' + path.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def real(path: bytes) -> bytes:
    """Return an absolute path as the kernel reports it: firmlinks by their short side, /tmp, /var and /etc in
    /private."""
    if path.startswith(_DATA + b"/") and any(_is_at(path[len(_DATA) :], directory) for directory in _FIRMLINKED):
        path = path[len(_DATA) :]
    if any(_is_at(path, directory) for directory in _IN_PRIVATE):
        path = b"/private" + path
    return path


def _is_at(path: bytes, directory: bytes) -> bool:
    return path == directory or path.startswith(directory + b"/")


def subpath(path: bytes) -> Filter:
    return b"(subpath %s)" % quote(real(path))


def literal(path: bytes) -> Filter:
    return b"(literal %s)" % quote(real(path))


def ancestors(paths: Iterable[bytes]) -> tuple[Filter, ...]:
    """Return the paths' parent directories: realpath(3) and getcwd(3) look at each."""
    directories = set()
    for path in map(real, paths):
        while path != b"/":
            path = path.rpartition(b"/")[0] or b"/"
            directories.add(path)
    return tuple(literal(path) for path in sorted(directories))


def compile_seatbelt(spec: SandboxSpec) -> Plan:
    """Compile a spec whose view is a copy. Raise ValueError for a path that cannot be written in a profile."""
    assert isinstance(spec.view, Copy), "an overlay needs a mount namespace"
    steps: tuple[Step, ...] = (
        ("view", spec.view.work),
        ("terminal", b"/dev/ptmx"),
        ("umask", spec.umask),
        *(("rlimit", *limit) for limit in spec.rlimits),
        ("cwd", spec.cwd),
        ("seatbelt", spec.scratch.rpartition(b"/")[0] + b"/profile.sb", compile_profile(spec)),
    )
    return Plan(0, (b"", b"", False), steps)


def compile_profile(spec: SandboxSpec) -> bytes:
    return render((*_base(spec), *(_level_0(spec) if spec.around is not None else _level_1(spec)), *_last(spec)))


def render(rules: Iterable[SeatbeltRule]) -> bytes:
    rules = tuple(rules)
    named = sorted({word for rule in rules for word in rule.operations.split() if not word.endswith("*")})
    lines = [b"(version 1)", b"(deny default)"]
    for rule in rules:
        if rule.why:
            lines.append(b"; " + rule.why.encode())
        words = dict.fromkeys(word for pattern in rule.operations.split() for word in _spelled_out(pattern, named))
        head = f"({rule.action} {' '.join(words)}".encode()
        text = b"\n  ".join((head, *rule.filters)) + b")"
        lines.append(b"(if (defined? '%s)\n%s)" % (rule.operations.encode(), text) if rule.new else text)
    return b"\n".join(lines) + b"\n"


def _spelled_out(pattern: str, named: Iterable[str]) -> Iterator[str]:
    """Yield an operation; after a wildcard also the named operations below it (rule 2)."""
    yield pattern
    if pattern.endswith("*"):
        yield from (word for word in named if word.startswith(pattern[:-1]))


def writable(spec: SandboxSpec) -> tuple[bytes, ...]:
    """Return the paths that the command may write: the copy, its own home and /tmp, and host places open to it."""
    assert isinstance(spec.view, Copy)
    live = spec.around.live if spec.around is not None else ()
    return (spec.view.work, spec.scratch, *(bind.source for bind in (*spec.binds, *live) if bind.writable))


def _base(spec: SandboxSpec) -> Iterator[SeatbeltRule]:
    yield SeatbeltRule("deny", "process-info* nvram* iokit-get-properties", why="not included in the default")
    yield SeatbeltRule("allow", "process-fork")
    yield SeatbeltRule("allow", "signal process-info*", (b"(target same-sandbox)",), "the command's own processes only")
    yield SeatbeltRule("allow", "process-info-pidinfo process-info-setcontrol", (b"(target self)",))
    yield SeatbeltRule("allow", "sysctl-read", tuple(_sysctls(spec)), "facts about the machine")
    yield SeatbeltRule("allow", "mach-host*", why="host_processor_info: without it node's os.cpus() is empty")
    yield SeatbeltRule("allow", "ipc-posix-sem", why="semaphores: multiprocessing")
    yield SeatbeltRule(
        "allow", "ipc-posix-shm-read-data", (b'(ipc-posix-name "apple.shm.notification_center")',), "notify(3)"
    )
    yield SeatbeltRule("allow", _SHARED_MEMORY, (b'(ipc-posix-name-prefix "/psm_")',), "multiprocessing.shared_memory")
    yield SeatbeltRule("allow", "pseudo-tty", why="terminals of its own")
    yield SeatbeltRule("allow", "file-read* file-write-data file-ioctl", tuple(map(literal, _DEVICES)))
    yield SeatbeltRule("allow", "file-read* file-write-data file-ioctl", (_OWN_TERMINALS,))
    yield SeatbeltRule("allow", "file-ioctl", (_TERMINALS,), "of an inherited terminal")
    yield SeatbeltRule("allow", "file-read*", tuple(map(literal, _READ_DEVICES)))
    yield SeatbeltRule(
        "allow", "file-read-data file-write-data", (b'(subpath "/dev/fd")',), "descriptors that are open already"
    )


def _sysctls(spec: SandboxSpec) -> Iterator[Filter]:
    prefixes = (*SYSCTL_PREFIXES, *((SYSCTL_OF_NETWORK,) if spec.network == "open" else ()))
    yield from (b'(sysctl-name "%s")' % name.encode() for name in SYSCTL)
    yield from (b'(sysctl-name-prefix "%s")' % name.encode() for name in prefixes)


def _names(rows: Iterable[Any]) -> tuple[Filter, ...]:
    return tuple(b'(global-name "%s")' % row.name.encode() for row in rows)


def _level_1(spec: SandboxSpec) -> Iterator[SeatbeltRule]:
    own = writable(spec)
    seen = (*(bind.source for bind in spec.binds), *own)
    everywhere = tuple(subpath(path) for path in dict.fromkeys(seen))
    yield SeatbeltRule(
        "allow", "mach-lookup", _names(services(MACH, spec.network, spec.stores)), "services: the table above"
    )
    on_the_way = (*ancestors(seen), *_nodes(spec), *_ALIASES, *_FIRMLINK_PARENTS)
    yield SeatbeltRule("allow", "file-read-metadata", on_the_way, "on the way there")
    yield SeatbeltRule("allow", "file-test-existence", (*on_the_way, *everywhere), new=True)
    yield SeatbeltRule("allow", "file-read*", (b'(literal "/")',), "dyld and getcwd(3) look at it")
    yield SeatbeltRule("allow", "file-read* process-exec*", everywhere, "the project, the system, toolchains")
    yield SeatbeltRule("deny", "file-map-executable", why="not included in the default", new=True)
    yield SeatbeltRule("allow", "file-map-executable", everywhere, new=True)
    yield SeatbeltRule(
        "allow", "file-write*", tuple(subpath(path) for path in own), "the copy; its own home, /tmp, caches"
    )


def _nodes(spec: SandboxSpec) -> tuple[Filter, ...]:
    """Return the symbolic links that lead to shown paths, and the directories above them. The kernel checks
    read-metadata for a link itself when it follows it: a link that is not permitted leads nowhere."""
    nodes = dict.fromkeys(path for _target, path in spec.links)
    return tuple(dict.fromkeys((*ancestors(nodes), *map(literal, nodes))))


def _level_0(spec: SandboxSpec) -> Iterator[SeatbeltRule]:
    around = spec.around
    assert around is not None
    own = writable(spec)
    yield from _services_0(spec)
    if "display" in spec.stores:
        yield SeatbeltRule("allow", "lsopen", why="the user's browser opens a page")
    yield SeatbeltRule("allow", "iokit-open iokit-get-properties user-preference-read")
    yield SeatbeltRule("allow", "file-read* process-exec*", why="the host's own files")
    yield SeatbeltRule("allow", "file-map-executable", new=True)
    yield SeatbeltRule("allow", "file-test-existence", new=True)
    shown = (*own, *(bind.source for bind in (*around.shown, *around.live)), spec.project + b"/.mudroom")
    # The project as well: its secrets are empty in the copy only.
    hidden = (*around.hidden, *around.covered, spec.project)
    yield from _nested(
        "file-read* process-exec*",
        shown,
        hidden,
        "credentials, mudroom's state, the real project; and paths shown in those",
    )
    yield from _nested("file-test-existence", shown, hidden, new=True)
    yield SeatbeltRule("allow", "file-read-metadata", ancestors(shown))
    below = [
        path for path in hidden if any(real(path) != real(root) and _is_at(real(path), real(root)) for root in own)
    ]
    yield from _nested("file-write*", own, below, "the copy; its own /tmp; named places")


def _nested(
    operations: str, shown: Iterable[bytes], hidden: Iterable[bytes], why: str = "", *, new: bool = False
) -> Iterator[SeatbeltRule]:
    """Yield rules in which the innermost path decides, as with mounts: outer paths come first. A path that is both
    shown and hidden is shown."""
    marks: dict[bytes, Action] = dict.fromkeys(map(real, hidden), "deny")
    marks.update(dict.fromkeys(map(real, shown), "allow"))
    depths = {path: sum(_is_at(path, other) for other in marks) for path in marks}
    for depth in sorted(set(depths.values())):
        for action in _ACTIONS:
            filters = tuple(subpath(path) for path in marks if depths[path] == depth and marks[path] == action)
            if filters:
                yield SeatbeltRule(action, operations, filters, why, new)


def _services_0(spec: SandboxSpec) -> Iterator[SeatbeltRule]:
    """Yield the rules for services at level 0. Without the host's network only the listed services are permitted, as at
    level 1: too many others fetch data on request (dnssd, trustd, nsurlsessiond), so a deny list would not close the
    network."""
    if spec.network != "open":
        named = dict.fromkeys(services((*MACH, *GUARDED), spec.network, spec.stores))
        yield SeatbeltRule("allow", "mach-lookup", _names(named), "services: the table above")
        return
    spared = {row.name for row in services(GUARDED, "none", spec.stores)}
    yield SeatbeltRule("allow", "mach-lookup", why="services of the host, except those that act for the command")
    yield SeatbeltRule("deny", "mach-lookup", _names(row for row in GUARDED if row.name not in spared))


def _last(spec: SandboxSpec) -> Iterator[SeatbeltRule]:
    """Yield the rules that override all permissions before them."""
    yield SeatbeltRule(
        "deny", "file-read-data file-write*", (_OTHER_TERMINALS,), "what is typed in the user's terminals"
    )
    yield SeatbeltRule("deny", "file-write-setugid", (b'(subpath "/")',), "no set-user-id programs are made")
    fixed = tuple(map(literal, dict.fromkeys((*writable(spec), *_above(spec)))))
    yield SeatbeltRule("deny", "file-write-create file-write-unlink", fixed, "these cannot be replaced")
    assert isinstance(spec.view, Copy)
    policy = (spec.view.work + b"/.mudroom", spec.project + b"/.mudroom")
    yield SeatbeltRule("deny", "file-write*", tuple(map(subpath, policy)), "the command may not change the policy")
    if spec.masks:
        operations = "file-read* file-write* process-exec*"
        yield SeatbeltRule("deny", operations, tuple(map(subpath, spec.masks)), "secrets among toolchains")
    yield from _network(spec)


def _above(spec: SandboxSpec) -> Iterator[bytes]:
    """Yield the hidden paths below writable ones, and the directories in between. Rules apply to paths: if such a
    directory were renamed, the secret in it would no longer be hidden."""
    around = spec.around
    places = (*spec.masks, *((*around.hidden, *around.covered) if around is not None else ()))
    for place in map(real, places):
        for root in map(real, writable(spec)):
            path = place
            while path != root and _is_at(path, root):
                yield path
                path = path.rpartition(b"/")[0]


def _network(spec: SandboxSpec) -> Iterator[SeatbeltRule]:
    """Yield the rules for sockets. A unix socket is reached by network-outbound, whatever file rules permit
    (docker.sock, the ssh-agent): only named sockets and those that the command's own processes make.

    The command has no loopback interface: a port on 127.0.0.1 is the host's, with all its listeners. With a gate, the
    gate's port is the only one permitted; a command cannot listen.
    """
    own = [subpath(path) for path in writable(spec)]
    named = [literal(bind.source) for bind in (spec.around.live if spec.around is not None else ())]
    yield SeatbeltRule("allow", "system-socket", (b"(socket-domain AF_UNIX)",))
    locals_ = tuple(b"(local unix-socket %s)" % socket for socket in own)
    yield SeatbeltRule("allow", "network-bind network-inbound", locals_, "unix sockets of its own")
    yield SeatbeltRule(
        "allow", "network-outbound", tuple(b"(remote unix-socket %s)" % socket for socket in (*own, *named))
    )
    internet = (b"(socket-domain AF_INET)", b"(socket-domain AF_INET6)")
    if spec.network == "gate" and spec.proxy:
        yield SeatbeltRule("allow", "system-socket", internet)
        yield SeatbeltRule(
            "allow", "network-outbound", (b'(remote tcp "localhost:%d")' % spec.proxy,), "the gate, only"
        )
    elif spec.network == "open":
        yield SeatbeltRule("allow", "system-socket", (*internet, b"(socket-domain AF_ROUTE)"))
        yield SeatbeltRule("allow", "network-outbound", (b'(remote ip "*:*")', _RESOLVER), "the host's network")
        yield SeatbeltRule("allow", "network-bind network-inbound", (b'(local ip "*:*")',))
