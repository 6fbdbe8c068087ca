"""Container engines and containers as values, and the engine command lines that start, use and remove them. Pure.

Rules of this file: a mudroom container has no network except its own loopback, no capability and no way to gain one,
no root user, a read-only root, and no host files except its named mounts. Callers cannot change that.

AppArmor's default profile for containers (docker-default) forbids every mount(2), and SELinux's label forbids every
file that is not labelled for containers. Both are switched off for nested sandboxes. A container is confined by its
capabilities (none), its system call filter and its mounts; a command in it is confined by its own sandbox.

Sources: docker-run(1), podman-run(1), `container run --help` in Apple's container 1.x and its Parser.swift.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from mudroom.core.confinement.environment import PROXY_NAMES, completed
from mudroom.core.confinement.fallback import Mode
from mudroom.core.text.regex import regex
from mudroom.typing import Literal, NamedTuple

EngineKind = Literal["docker", "podman", "container"]
KINDS: tuple[EngineKind, ...] = ("docker", "podman", "container")
"""In the order in which they are tried if the user names none."""
NAMES: dict[EngineKind, str] = {"docker": "Docker", "podman": "Podman", "container": "Apple container"}
LABEL = "mudroom"
"""Label prefix on every mudroom container."""


class Engine(NamedTuple):
    """A container engine that was found, with its capabilities."""

    kind: EngineKind
    program: bytes
    """The real path to its command line program."""
    options: tuple[str, ...] = ()
    """Options before every verb, such as ``--runtime runc``."""
    version: str = ""
    rootless: bool = False
    """Its containers are in the user's own user namespace."""
    remote: bool = False
    """Its containers run in a virtual machine or on another computer: unix sockets and descriptors do not reach
    them."""
    open_files: int = 0
    """The highest hard limit on open files that a container can have; 0: the engine's default. An engine that may not
    raise its own limit fails if its configuration asks for more."""
    user_processes: int = 0
    """The same for RLIMIT_NPROC, which Podman sets, too, when it runs as root."""
    limits: tuple[str, ...] = ("memory", "processes", "cpus")
    """The limits that it enforces, named as in ``Limits``. Engines accept others, but do not enforce them."""
    apparmor: bool = False
    selinux: bool = False
    """AppArmor or SELinux confines its containers unless an option turns that off."""
    remapped: bool = False
    """Users in its containers are mapped to other host users unless an option turns that off (dockerd
    --userns-remap)."""
    nested: bool = True
    """Namespaces can be created in its containers; determined by a trial (``ext/containers/engine/trial.py``)."""
    runtime: str = ""
    """The configured OCI runtime, such as runc or crun."""

    @property
    def mode(self) -> Mode:
        """The strongest mode that commands in its containers can have."""
        return "remote" if self.remote else "overlay" if self.nested else "plain"

    @property
    def title(self) -> str:
        """Name and version for display: "Docker 28.2.2", "Podman 4.3.1 (rootless)"."""
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
    """Program and arguments for its first process."""
    user: tuple[int, int]
    """uid and gid; neither is 0."""
    mounts: tuple[ContainerMount, ...] = ()
    """A parent directory comes before the mounts inside it."""
    devices: tuple[bytes, ...] = ()
    """Device nodes of the host, and directories of them: a card's GPU."""
    private: tuple[bytes, ...] = (b"/tmp", b"/run", b"/var/tmp")
    """Empty tmpfs directories."""
    emptied: tuple[bytes, ...] = ()
    """Image variables that are set to empty for the first process, which is mudroom's."""
    labels: tuple[tuple[str, str], ...] = ()
    hostname: bytes = b"mudroom"
    """This machine's: agents encrypt their logins with it."""
    seccomp: bytes = b""
    """File with the system call filter for all processes in the container; empty: the engine's own filter."""
    nested: bool = True
    """Commands get their own namespaces in it: no part of /proc is masked, so that they can mount one."""
    memory: int | None = None
    """Bytes, including swap."""
    processes: int | None = None
    cpus: float | None = None


def quoted(field: bytes) -> bytes:
    """Quote a field in a comma-separated value (RFC 4180), as Docker and Podman parse ``--mount``."""
    if any(byte in field for byte in (b",", b'"', b"\n", b"\r")):
        return b'"' + field.replace(b'"', b'""') + b'"'
    return field


def mount_option(mount: ContainerMount, kind: EngineKind = "docker") -> bytes:
    """Return the ``--mount`` value. Raise ValueError for a path that cannot be passed to this engine
    (``path_error``)."""
    for path in (mount.source, mount.target):
        why = path_error(path, kind)
        if why:
            raise ValueError(why)
    fields = [b"type=bind", b"source=" + mount.source, b"target=" + mount.target]
    if not mount.writable:
        fields.append(b"readonly")
    return b",".join(fields if kind == "container" else map(quoted, fields))


def path_error(path: bytes, kind: EngineKind) -> str:
    """Return why a path cannot be passed to an engine, as a clause, or an empty string if it can. The engine would use
    another path instead.

    Docker and Podman: Go's encoding/csv drops a carriage return before a line end, quoted or not, and they pass the
    value on as JSON, in which invalid UTF-8 becomes U+FFFD. Apple's: it splits at commas and ``=`` without quoting
    (Parser.swift).
    """
    try:
        path.decode("utf-8")
    except UnicodeDecodeError:
        return "its name is not UTF-8, and engines are told names as text"
    if kind == "container":
        return next((f"its name has {byte.decode()!r} in it" for byte in (b",", b"=") if byte in path), "")
    return "its name has a carriage return before a line end" if b"\r\n" in path else ""


_IMAGE = regex(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]*")
"""Excludes options and paths that begin with a dot; looser than distribution/reference."""


def is_image(name: str) -> bool:
    return _IMAGE.fullmatch(name) is not None


def run_argv(engine: Engine, box: Container, *, wait: bool = False) -> tuple[bytes, ...]:
    """Return the command line that starts a container in the background; the engine removes it when its first process
    ends. With ``wait``, the engine stays in the foreground until then. Raise ValueError for a container that breaks the
    rules above."""
    if 0 in box.user:
        raise ValueError("a container's user is never root")
    if not is_image(box.image):
        raise ValueError(f"{box.image!r} is not the name of an image")
    front = () if wait else (b"--detach",)
    words = _RUN[engine.kind](engine, box)
    return (*engine_words(engine), b"run", *front, *words, box.image.encode(), *box.entry[1:])


def session_argv(engine: Engine, box: Container) -> tuple[bytes, ...]:
    """Return the command line that starts a container whose first process uses the command line's standard streams.
    The container ends with the command line."""
    argv = run_argv(engine, box, wait=True)
    index = argv.index(b"run") + 1
    return (*argv[:index], b"--interactive", *argv[index:])


def exec_argv(
    engine: Engine, name: str, argv: Sequence[bytes], cwd: bytes, variables: bytes, *, terminal: bool
) -> tuple[bytes, ...]:
    """Return the command line that runs a command in a container. ``variables`` is a file with ``variable_lines``: so
    the variables are neither visible in the process list nor set for the engine's command line, which runs
    unconfined."""
    words = [b"exec", b"--interactive", *([b"--tty"] if terminal else []), b"--workdir", cwd, b"--env-file", variables]
    return (*engine_words(engine), *words, name.encode(), *argv)


def variable_lines(env: Mapping[bytes, bytes]) -> bytes:
    """Return an environment file as docker-exec(1), podman-exec(1) and Apple's engine parse it: NAME=VALUE without
    quoting. Raise ValueError, with a clause, for a variable that does not fit in a line."""
    for key, value in env.items():
        name = key.decode("utf-8", "replace")
        if any(byte in key + value for byte in b"\r\n\0") or b"=" in key:
            raise ValueError(f"the variable {name} has a line end in it")
        if key.startswith(b"#"):
            raise ValueError(f"the variable {name} begins with #")
    return b"".join(b"%s=%s\n" % item for item in env.items() if item[0])


_OF_THE_LOADER = (b"LD_PRELOAD", b"LD_AUDIT", b"LD_LIBRARY_PATH")
"""The image's values would load libraries into the first process, which is mudroom's: ld.so(8)."""
_LOCALE = b"LC_ALL"
"""In the C locale no image file is loaded. In any other locale the C library reads character set names from the image's
files, and loads converters, which are code, from its directories (setlocale(3), iconv(3)). An empty value is like an
unset variable: Python then chooses C.UTF-8, which is such a file."""


def _variables(engine: Engine, box: Container) -> Iterator[bytes]:
    """Yield settings that clear the image's variables for mudroom's first process. Commands get their variables from
    the plan."""
    yield from (name + b"=" for name in _OF_THE_LOADER)
    if not engine.remote:
        yield _LOCALE + b"=C"
        yield from (name + b"=" for name in box.emptied if name not in (*_OF_THE_LOADER, _LOCALE))


def _words(engine: Engine, box: Container) -> Iterator[bytes]:
    """Yield the options for Docker and Podman, which are nearly the same."""
    yield from (b"--rm", b"--pull=never", b"--name=" + box.name.encode())
    yield from _labels(box)
    yield from (b"--network=none", b"--cap-drop=ALL", b"--security-opt=no-new-privileges", b"--read-only")
    yield from (b"--ipc=private", b"--hostname=" + box.hostname, b"--sysctl=net.ipv4.ip_unprivileged_port_start=0")
    yield from (b"--no-healthcheck", b"--log-driver=none")  # its output is not used
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
        yield from (b"--tmpfs", path + b":rw,exec,nosuid,nodev,mode=1777")  # the default is noexec
    yield from (b"--device=" + device for device in box.devices)
    for mount in box.mounts:
        yield from (b"--mount", mount_option(mount, engine.kind))
    yield from (b"--workdir=/", b"--entrypoint", box.entry[0])


def _apple_words(engine: Engine, box: Container) -> Iterator[bytes]:
    """Yield the options for Apple's container. Each container has its own virtual machine: there is no system call
    profile and no process limit, and the memory and processor limits are the machine's."""
    yield from (b"--rm", b"--progress=none", b"--name=" + box.name.encode())
    yield from _labels(box)
    yield from (b"--network=none", b"--no-dns", b"--cap-drop=ALL", b"--read-only")
    if box.nested:
        yield from (b"--masked-path=NONE", b"--read-only-path=NONE")
    yield b"--user=%d:%d" % box.user
    yield from _ulimits(engine)
    if box.memory is not None:
        yield b"--memory=%dM" % max(1, box.memory >> 20)  # rounded down: never more than the limit
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
"""Unmask /proc: a new one can be mounted in a user namespace only if no part of the old one is covered
(mount_too_revealing() in fs/namespace.c)."""


def variants(engine: Engine, runtimes: Sequence[str]) -> tuple[Engine, ...]:
    """Return the ways in which an engine can be tried, the usual way first. ``runtimes``: installed OCI runtimes, which
    a Podman option selects."""
    others = [name for name in runtimes if name != engine.runtime] if engine.kind == "podman" else []
    ways = [engine, *(engine._replace(options=("--runtime", name), runtime=name) for name in others)]
    return (*ways, *(way._replace(nested=False) for way in ways))


def engine_words(engine: Engine) -> tuple[bytes, ...]:
    """Return the words that begin every command line for an engine."""
    return (engine.program, *(option.encode() for option in engine.options))


def remove_argv(engine: Engine, name: str) -> tuple[bytes, ...]:
    """Return the command line that kills and removes a container in any state."""
    volumes = () if engine.kind == "container" else (b"--volumes",)
    return (*engine_words(engine), b"rm", b"--force", *volumes, name.encode())


def list_argv(engine: Engine) -> tuple[bytes, ...]:
    """Return the command line that lists mudroom's containers in every state, one JSON object a line. Apple's engine
    lists all containers, as one JSON document."""
    if engine.kind == "container":
        return (*engine_words(engine), b"list", b"--all", b"--format=json")
    own = b"--filter=label=" + LABEL.encode()
    return (*engine_words(engine), b"ps", b"--all", b"--no-trunc", own, b"--format={{json .}}")


def events_argv(engine: Engine, name: str, since: float, until: float) -> tuple[bytes, ...]:
    """Return the command line that prints a container's events between two times, in seconds since 1970, one JSON
    object a line."""
    times = (b"--since=%d" % int(since), b"--until=%.3f" % until)
    own = (b"--stream=false",) if engine.kind == "podman" else ()
    which = b"--filter=container=" + name.encode()
    return (*engine_words(engine), b"events", *times, *own, which, b"--format={{json .}}")


# --- variables ---

_OF_A_TERMINAL = frozenset(
    b"TERM COLORTERM TERM_PROGRAM COLUMNS LINES NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE CI TZ".split()
)
_PATH_OF_IMAGES = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The default PATH that container engines use for an image without one."""


def select_image_variables(
    image: Mapping[bytes, bytes],
    environ: Mapping[bytes, bytes],
    *,
    home: bytes,
    cwd: bytes,
    user: bytes,
    proxy: bytes = b"",
    extra: Collection[bytes] = (),
) -> dict[bytes, bytes]:
    """Return the variables for a command in an image: the image's, without proxies, and from the host only those about
    the terminal. Paths in other host variables do not exist in the image."""
    chosen = {name: value for name, value in image.items() if name not in PROXY_NAMES}
    chosen |= {name: value for name, value in environ.items() if name in _OF_A_TERMINAL}
    chosen |= {b"USER": user, b"LOGNAME": user}
    chosen.setdefault(b"PATH", _PATH_OF_IMAGES)
    return completed(chosen, environ, home, cwd, proxy, extra)


def engine_environment(environ: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return a container engine's variables: the user's, without relative directories. A relative path would be below
    the current directory, which is the project. The XDG Base Directory Specification calls such a path invalid; Podman
    creates it in the current directory, also for TMPDIR (podman(1))."""
    return {name: value for name, value in environ.items() if not (_is_place(name) and value[:1] != b"/")}


def _is_place(name: bytes) -> bool:
    return name == b"TMPDIR" or (name.startswith(b"XDG_") and name.endswith((b"_HOME", b"_DIR")))
