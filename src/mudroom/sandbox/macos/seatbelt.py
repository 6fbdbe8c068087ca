"""macOS: a ``SandboxSpec`` compiled to a Seatbelt profile, and to the plan that starts a command under it. Pure.

There are no mounts and no namespaces: the command works in a copy at a path of its own, and the kernel asks the
profile about each thing that it does. Rules of this file:

1. ``(deny default)`` at both levels, and nothing of Apple's is imported: ``bsd.sb`` and ``system.sb`` change with the
   system, and give more than is meant. What ``(deny default)`` does not deny (process-info, nvram, properties of IOKit;
   Firefox's profile says so) is denied by name.
2. Of all rules that match an operation the **last** one decides. So what may be comes first, what may not after it.
3. Seatbelt judges real paths, as the kernel knows a file (vn_getpath): symbolic links followed, ``/tmp``, ``/var`` and
   ``/etc`` in ``/private``, firmlinks by their short side. ``real`` writes them so. Where the volume folds case, the
   caller has to give names as they are stored (``macos.true_path``).
4. A path is a ``literal`` or a ``subpath``, never part of a regular expression, so that nothing in a name is special.
   Names are bytes; the reader of the language (TinyScheme) takes all as they are between quotes but ``"`` and ``\\``.
5. ``(subpath X)`` is also X itself: whoever may write there could put a symbolic link in its place, and mudroom would
   through it. What is writable can therefore not be removed, moved or made itself; nor can a directory above
   something hidden (``_above``).
6. No hard links (``file-link``): whether the old or the new name is judged is told differently by those who tried; if
   it is the new one, a link would make a read-only file writable. Git, cargo, pnpm and uv copy instead.
7. No clones (``file-clone``) either, as another name for what is masked. Programs that clone copy instead.

Set-user-id programs are refused by the kernel in every sandbox (``forbidden-exec-sugid``): there is no ``ps`` inside.
A sandbox cannot be nested (``forbidden-sandbox-reinit``): SwiftPM needs --disable-sandbox, Chromium --no-sandbox.

Sources: Apple Sandbox Guide 1.0 (reverse.put.as); Blazakis, "The Apple Sandbox", 2011; the profiles that
``service.py`` names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

from mudroom.core.confinement.plan import Plan, Step
from mudroom.core.confinement.spec import Copy, SandboxSpec
from mudroom.sandbox.macos.service import GUARDED, MACH, SYSCTL, SYSCTL_OF_NETWORK, SYSCTL_PREFIXES, services

Action = Literal["allow", "deny"]
_ACTIONS: tuple[Action, ...] = ("deny", "allow")
Filter = bytes
"""As it stands in the profile."""


class SeatbeltRule(NamedTuple):
    action: Action
    operations: str
    filters: tuple[Filter, ...] = ()
    """Any of them; none: always."""
    why: str = ""


_IN_PRIVATE = (b"/tmp", b"/var", b"/etc")
_DATA = b"/System/Volumes/Data"
_FIRMLINKED = (b"/Users", b"/private", b"/Applications", b"/Library", b"/opt", b"/usr/local", b"/cores", b"/Volumes")
"""Of /usr/share/firmlinks: what is one directory under two paths."""
_ALIASES = tuple(b'(literal "%s")' % path for path in _IN_PRIVATE)
_FIRMLINK_PARENTS = tuple(b'(literal "%s")' % path for path in (b"/System", b"/System/Volumes", _DATA))
_READ_DEVICES = (b"/dev/random", b"/dev/urandom", b"/dev/autofs_nowait", b"/dev/fd")
_DEVICES = (b"/dev/null", b"/dev/zero", b"/dev/tty", b"/dev/dtracehelper", b"/dev/ptmx")
_TERMINALS = b'(regex #"^/dev/ttys[0-9]+$")'
_OWN_TERMINALS = b'(require-all (regex #"^/dev/ttys[0-9]+$") (extension "com.apple.sandbox.pty"))'
_OTHER_TERMINALS = b'(require-all (regex #"^/dev/ttys[0-9]+$") (require-not (extension "com.apple.sandbox.pty")))'
"""Those that a process of the sandbox has made: the kernel gives it that extension with the master. All others are the
user's, with what is typed there; of them only what was inherited open can be used, and asked about (file-ioctl)."""
_SHARED_MEMORY = " ".join(
    "ipc-posix-shm-" + what for what in ("read-data", "write-data", "write-create", "write-unlink")
)
_RESOLVER = b'(literal "/private/var/run/mDNSResponder")'


def quote(path: bytes) -> bytes:
    """A string of the profile language. Raises ValueError for a NUL, which no path has."""
    if b"\0" in path:
        raise ValueError("a path cannot hold a NUL")
    return b'"' + path.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def real(path: bytes) -> bytes:
    """An absolute path as the kernel says it: no firmlink by its long side, no /tmp, /var or /etc."""
    if path.startswith(_DATA + b"/") and any(_is_at(path[len(_DATA) :], one) for one in _FIRMLINKED):
        path = path[len(_DATA) :]
    if any(_is_at(path, one) for one in _IN_PRIVATE):
        path = b"/private" + path
    return path


def _is_at(path: bytes, directory: bytes) -> bool:
    return path == directory or path.startswith(directory + b"/")


def subpath(path: bytes) -> Filter:
    return b"(subpath %s)" % quote(real(path))


def literal(path: bytes) -> Filter:
    return b"(literal %s)" % quote(real(path))


def ancestors(paths: Iterable[bytes]) -> tuple[Filter, ...]:
    """Directories on the way: realpath(3) and getcwd(3) look at each of them."""
    found = set()
    for path in map(real, paths):
        while path != b"/":
            path = path.rpartition(b"/")[0] or b"/"
            found.add(path)
    return tuple(literal(path) for path in sorted(found))


def compile_seatbelt(spec: SandboxSpec) -> Plan:
    """The steps for a spec whose view is a copy. Raises ValueError for a path that cannot be written down."""
    assert isinstance(spec.view, Copy), "an overlay needs a mount namespace"
    steps: tuple[Step, ...] = (
        ("view", spec.view.work),
        ("terminal", b"/dev/ptmx"),
        ("umask", spec.umask),
        *(("rlimit", *one) for one in spec.rlimits),
        ("cwd", spec.cwd),
        ("seatbelt", spec.scratch.rpartition(b"/")[0] + b"/profile.sb", compile_profile(spec)),
    )
    return Plan(0, (b"", b"", False), steps)


def compile_profile(spec: SandboxSpec) -> bytes:
    return render((*_base(spec), *(_level_0(spec) if spec.around is not None else _level_1(spec)), *_last(spec)))


def render(rules: Iterable[SeatbeltRule]) -> bytes:
    lines = [b"(version 1)", b"(deny default)"]
    for rule in rules:
        if rule.why:
            lines.append(b"; " + rule.why.encode())
        head = f"({rule.action} {rule.operations}".encode()
        lines.append(b"\n  ".join((head, *rule.filters)) + b")")
    return b"\n".join(lines) + b"\n"


def writable(spec: SandboxSpec) -> tuple[bytes, ...]:
    """Where the command may write: the copy, its own home and /tmp, and what of the host is open to it."""
    assert isinstance(spec.view, Copy)
    live = spec.around.live if spec.around is not None else ()
    return (spec.view.work, spec.scratch, *(bind.source for bind in (*spec.binds, *live) if bind.writable))


def _base(spec: SandboxSpec) -> Iterator[SeatbeltRule]:
    yield SeatbeltRule("deny", "process-info* nvram* iokit-get-properties", why="not included in the default")
    yield SeatbeltRule("allow", "process-fork")
    yield SeatbeltRule("allow", "signal process-info*", (b"(target same-sandbox)",), "its own processes, nobody else's")
    yield SeatbeltRule("allow", "process-info-pidinfo process-info-setcontrol", (b"(target self)",))
    yield SeatbeltRule("allow", "sysctl-read", tuple(_sysctls(spec)), "what the machine is")
    yield SeatbeltRule("allow", "ipc-posix-sem", why="semaphores: multiprocessing")
    yield SeatbeltRule(
        "allow", "ipc-posix-shm-read-data", (b'(ipc-posix-name "apple.shm.notification_center")',), "notify(3)"
    )
    yield SeatbeltRule("allow", _SHARED_MEMORY, (b'(ipc-posix-name-prefix "/psm_")',), "multiprocessing.shared_memory")
    yield SeatbeltRule("allow", "pseudo-tty", why="terminals of its own")
    yield SeatbeltRule("allow", "file-read* file-write-data file-ioctl", tuple(map(literal, _DEVICES)))
    yield SeatbeltRule("allow", "file-read* file-write-data file-ioctl", (_OWN_TERMINALS,))
    yield SeatbeltRule("allow", "file-ioctl", (_TERMINALS,), "of a terminal that it was given")
    yield SeatbeltRule("allow", "file-read*", tuple(map(literal, _READ_DEVICES)))
    yield SeatbeltRule("allow", "file-read-data file-write-data", (b'(subpath "/dev/fd")',), "what it has open already")


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
        "allow", "mach-lookup", _names(services(MACH, spec.network, spec.stores)), "services: service.py"
    )
    yield SeatbeltRule(
        "allow", "file-read-metadata", (*ancestors(seen), *_ALIASES, *_FIRMLINK_PARENTS), "on the way there"
    )
    yield SeatbeltRule("allow", "file-read*", (b'(literal "/")',), "dyld and getcwd(3) look at it")
    yield SeatbeltRule("allow", "file-read* process-exec*", everywhere, "the project, the system, toolchains")
    yield SeatbeltRule(
        "allow", "file-write*", tuple(subpath(path) for path in own), "the copy; its own home, /tmp, caches"
    )


def _level_0(spec: SandboxSpec) -> Iterator[SeatbeltRule]:
    around = spec.around
    assert around is not None
    own = writable(spec)
    yield from _services_0(spec)
    if "display" in spec.stores:
        yield SeatbeltRule("allow", "lsopen", why="the user's browser opens a page")
    yield SeatbeltRule("allow", "iokit-open iokit-get-properties user-preference-read")
    yield SeatbeltRule("allow", "file-read* process-exec*", why="the host's own files")
    shown = (*own, *(bind.source for bind in (*around.shown, *around.live)), spec.project + b"/.mudroom")
    # the project as well: its secrets are empty in the copy only
    hidden = (*around.hidden, *around.covered, spec.project)
    yield from _nested(
        "file-read* process-exec*",
        shown,
        hidden,
        "credentials, mudroom's state, the real project; and what is shown in those",
    )
    yield SeatbeltRule("allow", "file-read-metadata", ancestors(shown))
    below = [path for path in hidden if any(real(path) != real(one) and _is_at(real(path), real(one)) for one in own)]
    yield from _nested("file-write*", own, below, "the copy; its own /tmp; what was named")


def _nested(operations: str, shown: Iterable[bytes], hidden: Iterable[bytes], why: str) -> Iterator[SeatbeltRule]:
    """What lies in another decides, as with mounts: so the outer ones come first. Shown, if one path is both."""
    marks: dict[bytes, Action] = dict.fromkeys(map(real, hidden), "deny")
    marks.update(dict.fromkeys(map(real, shown), "allow"))
    depths = {path: sum(_is_at(path, one) for one in marks) for path in marks}
    for depth in sorted(set(depths.values())):
        for action in _ACTIONS:
            filters = tuple(subpath(path) for path in marks if depths[path] == depth and marks[path] == action)
            if filters:
                yield SeatbeltRule(action, operations, filters, why)


def _services_0(spec: SandboxSpec) -> Iterator[SeatbeltRule]:
    """Without the host's network those that were argued for only, as at level 1: too many others fetch what they are
    asked for (dnssd, trustd, nsurlsessiond), so a list of those that may not be asked would not close the network."""
    if spec.network != "open":
        named = dict.fromkeys(services((*MACH, *GUARDED), spec.network, spec.stores))
        yield SeatbeltRule("allow", "mach-lookup", _names(named), "services: service.py")
        return
    spared = {row.name for row in services(GUARDED, "none", spec.stores)}
    yield SeatbeltRule("allow", "mach-lookup", why="services of the host, but for those that act for it")
    yield SeatbeltRule("deny", "mach-lookup", _names(row for row in GUARDED if row.name not in spared))


def _last(spec: SandboxSpec) -> Iterator[SeatbeltRule]:
    """What holds whatever was allowed before."""
    yield SeatbeltRule(
        "deny", "file-read-data file-write*", (_OTHER_TERMINALS,), "what is typed in the user's terminals"
    )
    yield SeatbeltRule("deny", "file-write-setugid", why="no set-user-id programs are made")
    kept = tuple(map(literal, dict.fromkeys((*writable(spec), *_above(spec)))))
    yield SeatbeltRule("deny", "file-write-create file-write-unlink", kept, "nothing takes the place of these")
    assert isinstance(spec.view, Copy)
    policy = (spec.view.work + b"/.mudroom", spec.project + b"/.mudroom")
    yield SeatbeltRule("deny", "file-write*", tuple(map(subpath, policy)), "the policy is not the command's to change")
    if spec.masks:
        operations = "file-read* file-write* process-exec*"
        yield SeatbeltRule("deny", operations, tuple(map(subpath, spec.masks)), "secrets among toolchains")
    yield from _network(spec)


def _above(spec: SandboxSpec) -> Iterator[bytes]:
    """What is hidden below something writable, and the directories in between. The rules are about paths: under another
    name of its directory a secret would not be hidden."""
    around = spec.around
    places = (*spec.masks, *((*around.hidden, *around.covered) if around is not None else ()))
    for place in map(real, places):
        for root in map(real, writable(spec)):
            path = place
            while path != root and _is_at(path, root):
                yield path
                path = path.rpartition(b"/")[0]


def _network(spec: SandboxSpec) -> Iterator[SeatbeltRule]:
    """A unix socket is reached by network-outbound, whatever may be read or written (docker.sock, the ssh-agent): only
    those that the command's own processes make, and those that were named.

    There is no loopback of the command's own: a port of 127.0.0.1 is the host's, with all that listens there. With a
    gate its port is the only one; a command cannot listen.
    """
    own = [subpath(path) for path in writable(spec)]
    named = [literal(bind.source) for bind in (spec.around.live if spec.around is not None else ())]
    yield SeatbeltRule("allow", "system-socket", (b"(socket-domain AF_UNIX)",))
    locals_ = tuple(b"(local unix-socket %s)" % one for one in own)
    yield SeatbeltRule("allow", "network-bind network-inbound", locals_, "unix sockets of its own")
    yield SeatbeltRule("allow", "network-outbound", tuple(b"(remote unix-socket %s)" % one for one in (*own, *named)))
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
