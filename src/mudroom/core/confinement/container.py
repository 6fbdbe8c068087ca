"""What is asked of a container engine, as values, and the command lines that ask it. Pure.

Rules of this file: a container of ours has no network but its own loopback, no capability, no way to gain one, no root
user, a read-only root, and nothing of the host but the mounts that are named. That is not for callers to choose.

AppArmor's profile of engines (docker-default) forbids every mount(2), and SELinux's label every file that is not
labelled for containers. Both are given up for what is nested: what a container may do is decided by its capabilities
(none), its filter and its mounts, and what a command may do in it by the walls of its own.

Sources: docker-run(1), podman-run(1), `container run --help` of Apple's container 1.x and its Parser.swift.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

EngineKind = Literal["docker", "podman", "container"]
KINDS: tuple[EngineKind, ...] = ("docker", "podman", "container")
"""In the order in which they are tried where nobody has said which one."""
NAMES: dict[EngineKind, str] = {"docker": "Docker", "podman": "Podman", "container": "Apple container"}
LABEL = "mudroom"
"""Every container of ours has labels that begin with it."""


class Engine(NamedTuple):
    """A container engine that was found, and what it can do."""

    kind: EngineKind
    program: bytes
    """The real path of its command line."""
    options: tuple[str, ...] = ()
    """Before every verb: ``--runtime runc``."""
    version: str = ""
    rootless: bool = False
    """Its containers are in a user namespace of the user's own."""
    remote: bool = False
    """Its containers run in a virtual machine or on another computer: no unix socket and no descriptor gets there."""
    open_files: int = 0
    """The hard limit of open files that a container gets at most; 0: as the engine has it. An engine that may not raise
    its own fails if its configuration asks for more."""
    user_processes: int = 0
    """The same of RLIMIT_NPROC, which root's Podman sets, too."""
    limits: tuple[str, ...] = ("memory", "processes", "cpus")
    """What it can limit: names as in ``Limits``. Engines take the others, too, and do not hold them."""
    apparmor: bool = False
    selinux: bool = False
    """Its containers are confined by these unless they are told otherwise."""
    remapped: bool = False
    """Its containers' users are others outside, unless they are told otherwise (dockerd --userns-remap)."""
    nested: bool = True
    """Namespaces can be made in its containers: found out by doing (``sandbox/container/trial.py``)."""
    runtime: str = ""
    """What starts containers, as it is set up: runc, crun."""

    @property
    def title(self) -> str:
        """Docker 28.2.2, Podman 4.3.1 (rootless)."""
        version = f" {self.version}" if self.version else ""
        return f"{NAMES[self.kind]}{version}{' (rootless)' if self.rootless else ''}"


class ContainerMount(NamedTuple):
    source: bytes
    target: bytes
    writable: bool = False


class Container(NamedTuple):
    name: str
    image: str
    entry: tuple[bytes, ...]
    """Program and arguments of its first process."""
    user: tuple[int, int]
    """uid and gid, neither of them 0."""
    mounts: tuple[ContainerMount, ...] = ()
    """A parent before what lies in it."""
    private: tuple[bytes, ...] = (b"/tmp", b"/run", b"/var/tmp")
    """Empty directories in memory."""
    emptied: tuple[bytes, ...] = ()
    """Variables that the image sets, and that are empty to the first process, which is ours."""
    labels: tuple[tuple[str, str], ...] = ()
    seccomp: bytes = b""
    """File with the system call filter of all that runs in it; empty: the engine's own."""
    nested: bool = True
    """Commands get namespaces of their own in it: /proc is not covered in parts, so that they may mount one."""
    memory: int | None = None
    """Bytes, swap included."""
    processes: int | None = None
    cpus: float | None = None


NOBODY = (65532, 65532)
"""The user of containers that root starts: root is nobody's user there. Number and custom are those of images that come
without root."""


def user_of(uid: int, gid: int) -> tuple[int, int]:
    """The user of a container that is started by this one."""
    return (uid, gid or NOBODY[1]) if uid else NOBODY


def quoted(field: bytes) -> bytes:
    """One field of a comma-separated value (RFC 4180), as ``--mount`` of Docker and Podman reads it."""
    if any(byte in field for byte in (b",", b'"', b"\n", b"\r")):
        return b'"' + field.replace(b'"', b'""') + b'"'
    return field


def mount_option(mount: ContainerMount, kind: EngineKind = "docker") -> bytes:
    """The value of ``--mount``. Raises ValueError for a path that this engine cannot be told: see ``unspeakable``."""
    for path in (mount.source, mount.target):
        why = unspeakable(path, kind)
        if why:
            raise ValueError(why)
    fields = [b"type=bind", b"source=" + mount.source, b"target=" + mount.target]
    if not mount.writable:
        fields.append(b"readonly")
    return b",".join(fields if kind == "container" else map(quoted, fields))


def unspeakable(path: bytes, kind: EngineKind) -> str:
    """Why an engine cannot be told this path, a clause; empty if it can. What it would be told instead may be the
    name of something else.

    Docker and Podman: encoding/csv of Go drops a carriage return before a line end, quoted or not, and what they send
    on is JSON, in which all that is not UTF-8 becomes U+FFFD. Apple's: it splits at commas and at ``=``, and quotes
    nothing (Parser.swift).
    """
    try:
        path.decode("utf-8")
    except UnicodeDecodeError:
        return "its name is not UTF-8, and engines are told names as text"
    if kind == "container":
        return next((f"its name has {byte.decode()!r} in it" for byte in (b",", b"=") if byte in path), "")
    return "its name has a carriage return before a line end" if b"\r\n" in path else ""


_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]*")
"""No option, no path that begins with a dot: distribution/reference, loosely."""


def is_image(name: str) -> bool:
    """Whether it can be the name or the id of an image."""
    return _IMAGE.fullmatch(name) is not None


def run_argv(engine: Engine, box: Container, *, wait: bool = False) -> tuple[bytes, ...]:
    """Start it in the background; it is removed by the engine when its first process ends. ``wait``: stay in the
    foreground until then. Raises ValueError for what no container of ours may be."""
    if 0 in box.user:
        raise ValueError("a container's user is never root")
    if not is_image(box.image):
        raise ValueError(f"{box.image!r} is not the name of an image")
    front = () if wait else (b"--detach",)
    words = _RUN[engine.kind](engine, box)
    return (*_front(engine), b"run", *front, *words, box.image.encode(), *box.entry[1:])


def session_argv(engine: Engine, box: Container) -> tuple[bytes, ...]:
    """Start it with its first process's standard streams being those of this command line, whose end is its end."""
    words = run_argv(engine, box, wait=True)
    at = words.index(b"run") + 1
    return (*words[:at], b"--interactive", *words[at:])


def exec_argv(
    engine: Engine, name: str, argv: Sequence[bytes], cwd: bytes, variables: bytes, *, terminal: bool
) -> tuple[bytes, ...]:
    """Run a command in a container. ``variables``: a file with ``variable_lines``: what is in it is in no list of
    processes, and nothing to the engine's command line, which is confined by nobody."""
    words = [b"exec", b"--interactive", *([b"--tty"] if terminal else []), b"--workdir", cwd, b"--env-file", variables]
    return (*_front(engine), *words, name.encode(), *argv)


def variable_lines(env: Mapping[bytes, bytes]) -> bytes:
    """As docker-exec(1), podman-exec(1) and Apple's read them: NAME=VALUE, nothing quoted. Raises ValueError, a clause,
    for what has no place in a line."""
    for key, value in env.items():
        if any(byte in key + value for byte in b"\r\n\0") or key.startswith(b"#") or b"=" in key:
            raise ValueError(f"the variable {key.decode('utf-8', 'replace')} has a line end in it")
    return b"".join(b"%s=%s\n" % item for item in env.items() if item[0])


_OF_THE_LOADER = (b"LD_PRELOAD", b"LD_AUDIT", b"LD_LIBRARY_PATH")
"""What an image says in these would be loaded into the first process, which is ours: ld.so(8)."""
_LOCALE = b"LC_ALL"
"""In C nothing of the image is loaded: in any other locale the C library takes the names of character sets from the
image's files, and converters for them, which are programs, from its directories (setlocale(3), iconv(3)). An empty one
is as good as none: then Python chooses C.UTF-8, which is such a file."""


def _variables(engine: Engine, box: Container) -> Iterator[bytes]:
    """Nothing of the image's own comes to the first process, where that is ours: commands get theirs from the plan."""
    yield from (name + b"=" for name in _OF_THE_LOADER)
    if not engine.remote:
        yield _LOCALE + b"=C"
        yield from (name + b"=" for name in box.emptied if name not in (*_OF_THE_LOADER, _LOCALE))


def _words(engine: Engine, box: Container) -> Iterator[bytes]:
    """Docker's and Podman's, which are nearly the same."""
    yield from (b"--rm", b"--pull=never", b"--name=" + box.name.encode())
    yield from _labels(box)
    yield from (b"--network=none", b"--cap-drop=ALL", b"--security-opt=no-new-privileges", b"--read-only")
    yield from (b"--ipc=private", b"--hostname=mudroom", b"--sysctl=net.ipv4.ip_unprivileged_port_start=0")
    yield from (b"--no-healthcheck", b"--log-driver=none")  # what it prints is nothing to anybody
    yield from (b"--env=" + setting for setting in _variables(engine, box))
    if engine.kind == "podman":
        yield b"--image-volume=ignore"
    if box.seccomp:
        yield b"--security-opt=seccomp=" + box.seccomp
    if box.nested:
        yield _UNMASKED[engine.kind]
    if box.nested and engine.apparmor:
        yield b"--security-opt=apparmor=unconfined"
    if engine.selinux:
        yield b"--security-opt=label=disable"
    yield b"--user=%d:%d" % box.user
    if engine.kind == "podman" and engine.rootless:
        yield b"--userns=keep-id"
    if engine.remapped:
        yield b"--userns=host"
    yield from _ulimits(engine)
    yield from _limits(box)
    for path in box.private:
        yield from (b"--tmpfs", path + b":rw,exec,nosuid,nodev,mode=1777")  # noexec is their default
    for mount in box.mounts:
        yield from (b"--mount", mount_option(mount, engine.kind))
    yield from (b"--workdir=/", b"--entrypoint", box.entry[0])


def _apple_words(engine: Engine, box: Container) -> Iterator[bytes]:
    """A machine of its own for each container: no profile of system calls, no count of processes, and memory and
    processors are the machine's."""
    yield from (b"--rm", b"--progress=none", b"--name=" + box.name.encode())
    yield from _labels(box)
    yield from (b"--network=none", b"--no-dns", b"--cap-drop=ALL", b"--read-only")
    if box.nested:
        yield from (b"--masked-path=NONE", b"--read-only-path=NONE")
    yield b"--user=%d:%d" % box.user
    yield from _ulimits(engine)
    if box.memory is not None:
        yield b"--memory=%dM" % max(1, box.memory >> 20)  # never more than what was asked for
    if box.cpus is not None:
        yield b"--cpus=%d" % max(1, int(box.cpus))
    for path in box.private:
        yield from (b"--tmpfs", path)
    for mount in box.mounts:
        yield from (b"--mount", mount_option(mount, engine.kind))
    yield from (b"--workdir=/", b"--entrypoint", box.entry[0])


_RUN = {"docker": _words, "podman": _words, "container": _apple_words}


def _labels(box: Container) -> Iterator[bytes]:
    for key, value in box.labels:
        yield from (b"--label", f"{key}={value}".encode())


def _ulimits(engine: Engine) -> Iterator[bytes]:
    if engine.open_files:
        yield b"--ulimit=nofile=%d:%d" % (min(1024, engine.open_files), engine.open_files)
    if engine.user_processes:
        yield b"--ulimit=nproc=%d:%d" % (engine.user_processes, engine.user_processes)


def _limits(box: Container) -> Iterator[bytes]:
    if box.memory is not None:
        yield from (b"--memory=%d" % box.memory, b"--memory-swap=%d" % box.memory)
    if box.processes is not None:
        yield b"--pids-limit=%d" % box.processes
    if box.cpus is not None:
        yield b"--cpus=%.3f" % box.cpus


_UNMASKED: dict[EngineKind, bytes] = {
    "docker": b"--security-opt=systempaths=unconfined",
    "podman": b"--security-opt=unmask=ALL",
}
"""Of /proc: a new one can be mounted in a user namespace only where nothing covers a part of the old one
(mount_too_revealing() in fs/namespace.c)."""


def variants(engine: Engine, runtimes: Sequence[str]) -> tuple[Engine, ...]:
    """In which ways an engine may be asked for containers, the usual one first. ``runtimes``: programs that could start
    them, of which Podman can be told one."""
    others = [name for name in runtimes if name != engine.runtime] if engine.kind == "podman" else []
    ways = [engine, *(engine._replace(options=("--runtime", name), runtime=name) for name in others)]
    return (*ways, *(way._replace(nested=False) for way in ways))


def _front(engine: Engine) -> tuple[bytes, ...]:
    return (engine.program, *(option.encode() for option in engine.options))


def remove_argv(engine: Engine, name: str) -> tuple[bytes, ...]:
    """End it at once and remove it, whatever state it is in."""
    volumes = () if engine.kind == "container" else (b"--volumes",)
    return (*_front(engine), b"rm", b"--force", *volumes, name.encode())


def list_argv(engine: Engine) -> tuple[bytes, ...]:
    """Containers of ours, in every state: id, tab, labels. Apple's: all, as JSON."""
    if engine.kind == "container":
        return (*_front(engine), b"list", b"--all", b"--format=json")
    return (
        *_front(engine),
        b"ps",
        b"--all",
        b"--no-trunc",
        b"--filter=label=" + LABEL.encode(),
        b"--format={{json .}}",
    )


def events_argv(engine: Engine, name: str, since: float, until: float) -> tuple[bytes, ...]:
    """What has happened to a container between two times, in seconds of the wall clock; one JSON object a line."""
    times = (b"--since=%d" % int(since), b"--until=%.3f" % until)
    own = (b"--stream=false",) if engine.kind == "podman" else ()
    return (*_front(engine), b"events", *times, *own, b"--filter=container=" + name.encode(), b"--format={{json .}}")
