"""What is asked of a container engine, as values, and the command lines that ask it. Pure.

Rules of this file: a container of ours has no network but its own loopback, no capability, no way to gain one, no root
user, a read-only root, and nothing of the host but the mounts that are named. That is not for callers to choose.

Sources: docker-run(1), podman-run(1), `container run --help` of Apple's container.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

EngineKind = Literal["docker", "podman", "container"]
KINDS: tuple[EngineKind, ...] = ("docker", "podman", "container")
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


class Mount(NamedTuple):
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
    mounts: tuple[Mount, ...] = ()
    """A parent before what lies in it."""
    private: tuple[bytes, ...] = (b"/tmp", b"/run", b"/var/tmp")
    """Empty directories in memory."""
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
    """One field of a comma-separated value (RFC 4180), as ``--mount`` of all three reads it."""
    if any(byte in field for byte in (b",", b'"', b"\n", b"\r")):
        return b'"' + field.replace(b'"', b'""') + b'"'
    return field


def mount_option(mount: Mount) -> bytes:
    fields = [b"type=bind", b"source=" + mount.source, b"target=" + mount.target]
    return b",".join(quoted(field) for field in (*fields, *(() if mount.writable else (b"readonly",))))


def run_argv(engine: Engine, box: Container) -> tuple[bytes, ...]:
    """Start it in the background; it is removed by the engine when its first process ends. Raises ValueError for what
    no container of ours may be."""
    if 0 in box.user:
        raise ValueError("a container's user is never root")
    return (*_front(engine), b"run", *(_words(engine, box)), box.image.encode(), *box.entry[1:])


def session_argv(engine: Engine, box: Container) -> tuple[bytes, ...]:
    """Start it with its first process's standard streams being those of this command line, whose end is its end."""
    words = (word for word in _words(engine, box) if word != b"--detach")
    return (*_front(engine), b"run", b"--interactive", *words, box.image.encode(), *box.entry[1:])


_OUR_OWN = (b"PATH", b"HOME", b"http_proxy", b"https_proxy", b"all_proxy", b"no_proxy")
"""What the engine's command line needs itself, and the command in the container has otherwise."""
_PREFIXES = (b"docker_", b"container", b"podman_", b"xdg_")


def passed_by_name(env: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """The variables of a command whose values are in the environment of the engine's command line, for it to take them
    from there: so no list of processes has them."""
    ours = {name.lower() for name in _OUR_OWN}
    return {
        key: value for key, value in env.items() if key.lower() not in ours and not key.lower().startswith(_PREFIXES)
    }


def exec_argv(
    engine: Engine, name: str, argv: Sequence[bytes], env: Mapping[bytes, bytes], cwd: bytes, *, terminal: bool
) -> tuple[bytes, ...]:
    """Run a command in a container, with the values of ``passed_by_name`` in the environment of this command line. The
    image's own PATH is kept."""
    words = [b"exec", b"--interactive", *([b"--tty"] if terminal else []), b"--workdir", cwd]
    named = passed_by_name(env)
    for key, value in env.items():
        if key != b"PATH":
            words += [b"--env", key if key in named else key + b"=" + value]
    return (*_front(engine), *words, name.encode(), *argv)


def _words(engine: Engine, box: Container) -> Iterator[bytes]:
    yield from (b"--detach", b"--rm", b"--pull=never", b"--name=" + box.name.encode())
    for key, value in box.labels:
        yield from (b"--label", f"{key}={value}".encode())
    yield from (b"--network=none", b"--cap-drop=ALL", b"--security-opt=no-new-privileges", b"--read-only")
    yield from (b"--ipc=private", b"--hostname=mudroom", b"--sysctl=net.ipv4.ip_unprivileged_port_start=0")
    if box.seccomp:
        yield b"--security-opt=seccomp=" + box.seccomp
    if box.nested:
        yield from _UNMASKED[engine.kind]
    yield b"--user=%d:%d" % box.user
    if engine.kind == "podman" and engine.rootless:
        yield b"--userns=keep-id"
    if engine.open_files:
        yield b"--ulimit=nofile=%d:%d" % (min(1024, engine.open_files), engine.open_files)
    yield from _limits(box)
    for path in box.private:
        yield from (b"--tmpfs", path + b":rw,exec,nosuid,nodev,mode=1777")  # noexec is their default
    for mount in box.mounts:
        yield from (b"--mount", mount_option(mount))
    yield from (b"--workdir=/", b"--entrypoint", box.entry[0])


def _limits(box: Container) -> Iterator[bytes]:
    if box.memory is not None:
        yield from (b"--memory=%d" % box.memory, b"--memory-swap=%d" % box.memory)
    if box.processes is not None:
        yield b"--pids-limit=%d" % box.processes
    if box.cpus is not None:
        yield b"--cpus=%.3f" % box.cpus


_UNMASKED: dict[EngineKind, Sequence[bytes]] = {
    "docker": (b"--security-opt=systempaths=unconfined",),
    "podman": (b"--security-opt=unmask=ALL",),
    "container": (),
}


def _front(engine: Engine) -> tuple[bytes, ...]:
    return (engine.program, *(option.encode() for option in engine.options))


def remove_argv(engine: Engine, name: str) -> tuple[bytes, ...]:
    """End it at once and remove it, whatever state it is in."""
    return (*_front(engine), b"rm", b"--force", b"--volumes", name.encode())


def list_argv(engine: Engine) -> tuple[bytes, ...]:
    """Containers of ours, in every state: id, tab, labels."""
    return (
        *_front(engine),
        b"ps",
        b"--all",
        b"--no-trunc",
        b"--filter=label=" + LABEL.encode(),
        b"--format={{json .}}",
    )
