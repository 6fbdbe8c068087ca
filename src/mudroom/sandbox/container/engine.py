"""Container engines of this machine: which there are, and asking them for something.

They are asked by their command lines, which is what their users have configured. What they print is never believed
further than it has to be: a name of ours, a number, a label. Why one cannot be used is found out by doing what its
command line would do, never read out of its complaints.
"""

from __future__ import annotations

import _socket
import _thread
import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from mudroom.core.confinement.container import KINDS, NAMES, Engine, EngineKind
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, Unsupported

PATIENCE = 60.0
"""Seconds that an engine has to do something."""
LOOK = 10.0
"""Seconds that it has to say what it is."""
_MOST = 16 << 20
"""Bytes of an answer that are read as JSON."""
_DOCKER_SOCKET = "unix:///var/run/docker.sock"


class Unusable(MudroomError):
    """An engine that is there, and cannot be used for this reason; the hint is how it can. Of every command line: it
    hangs."""


class FoundEngine(NamedTuple):
    """One kind of engine, looked for."""

    kind: EngineKind
    engine: Engine | None
    problem: str = ""
    """Why there is none, or why no socket gets to it."""
    hint: str = ""

    @property
    def is_installed(self) -> bool:
        """Though it may not be usable: then the hint says how it would be."""
        return self.engine is not None or bool(self.hint)


def ask(
    argv: Sequence[bytes], environ: Mapping[bytes, bytes], timeout: float = PATIENCE, *, given: bytes | None = None
) -> bytes:
    """What a command line of an engine prints; ``given`` is what it reads. Raises MudroomError with what it says if it
    fails, or if it takes longer: it is ended then, with all that it has started."""
    try:
        process = subprocess.Popen(
            list(argv),
            env=dict(environ),
            stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # no terminal to ask questions on; and all of it can be ended (setsid(2))
        )
    except OSError as error:
        raise MudroomError(f"{_name(argv)} cannot be started: {error.strerror}") from error
    try:
        out, complaint = process.communicate(given, timeout)
    except subprocess.TimeoutExpired as error:
        hint = "the engine hangs: restart it, or choose another one with container.engine"
        raise Unusable(f"{_name(argv)} does not answer for {timeout:.0f} s", hint) from error
    finally:
        if process.returncode is None:
            _end(process)
    if process.returncode:
        name = _name(argv)
        raise MudroomError(f"{name}: {_last_line(complaint).removeprefix(name + ': ')}")
    return out


def _end(process: subprocess.Popen[bytes]) -> None:
    """Whoever holds its pipes ends with it: a program that has started another one is not waited for."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(OSError):
                stream.close()
    process.wait()


def _name(argv: Sequence[bytes]) -> str:
    return os.fsdecode(os.path.basename(argv[0]))


def _last_line(text: bytes) -> str:
    lines = [show(line.strip()) for line in text.splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(("See '", "Run '"))]
    return said[-1] if said else "it failed and said nothing"


def current(environ: Mapping[bytes, bytes], wanted: EngineKind | None = None) -> Engine:
    """As ``choose``, of any kind, asked for again and again, by several threads: one of them looks, and what was found
    a moment ago still counts; that there is none, for a shorter one."""
    key = (wanted, *(environ.get(name, b"") for name in DECISIVE))
    with _choosing:
        found, until = _chosen.get(key, (None, 0.0))
        if found is None or time.monotonic() > until:
            try:
                found, fresh = choose(environ, wanted, remote=True), FRESH
            except Unsupported as error:
                found, fresh = error, FRESH_ERROR
            _chosen[key] = (found, time.monotonic() + fresh)
    if isinstance(found, Unsupported):
        raise Unsupported(found.protection, found.needs, found.found, found.hint)
    return found


_choosing = _thread.allocate_lock()
_chosen: dict[tuple[Any, ...], tuple[Engine | Unsupported, float]] = {}
FRESH, FRESH_ERROR = 30.0, 3.0
"""Seconds."""
DECISIVE = (
    b"PATH", b"HOME", b"DOCKER_HOST", b"DOCKER_CONTEXT", b"DOCKER_CONFIG", b"CONTAINER_HOST", b"CONTAINER_CONNECTION",
    b"CONTAINERS_CONF", b"CONTAINERS_STORAGE_CONF", b"XDG_RUNTIME_DIR", b"XDG_CONFIG_HOME",
)  # fmt: skip
"""Variables by which engines are found, and set up."""


def why_none(environ: Mapping[bytes, bytes], wanted: EngineKind | None = None) -> str:
    """Why no container can be had, and what to do, in one line; empty if one can."""
    try:
        current(environ, wanted)
    except Unsupported as error:
        return f"{error.found} ({error.hint})"
    return ""


def choose(environ: Mapping[bytes, bytes], wanted: EngineKind | None = None, *, remote: bool = False) -> Engine:
    """The engine to use: the one that is wanted, or the first of ``KINDS`` that can be used. ``remote``: where none is
    of this machine, one in a virtual machine will do. Raises Unsupported if there is none, with what is in the way
    of each."""
    reasons: list[str] = []
    hints: list[str] = []
    far: list[Engine] = []
    for found in survey(environ, (wanted,) if wanted is not None else KINDS):
        if found.engine is not None and not found.engine.remote:
            return found.engine
        far += [found.engine] if found.engine is not None else []
        reasons.append(found.problem)
        hints += [found.hint] if found.hint else []
    if remote and far:
        return far[0]
    if is_sandboxed():
        inside = "a command of mudroom's, and no engine is in sight of its sandbox"
        raise Unsupported("level 2", needed(wanted), inside, "outside of the sandbox: mudroom run --level 2")
    hint = hints[0] if hints else install(wanted)
    raise Unsupported("level 2", needed(wanted), "; ".join(reasons), f"{hint}; or {ANY}" if wanted else hint)


_STATUS = "/proc/self/status"


def is_sandboxed() -> bool:
    """Whether this process is a command of mudroom's: it has the host name of every sandbox, it can gain nothing, and a
    filter is on it (proc(5)). Somebody's computer may have that name, but then no filter is on what they start. For
    messages: nothing is permitted because of it."""
    if sys.platform != "linux" or os.uname().nodename != SANDBOXED:
        return False
    with open(_STATUS, encoding="ascii", errors="replace") as stream:
        lines = stream.read().splitlines()
    return "NoNewPrivs:\t1" in lines and "Seccomp:\t2" in lines


SANDBOXED = "mudroom"
"""Of the step ``hostname`` in every plan, and of every container."""


def needed(wanted: EngineKind | None) -> str:
    """What level 2 needs of the machine, for a message: where the policy names an engine, no other one will do."""
    if wanted is None:
        return "a container engine: Docker, Podman or Apple container"
    return f"the engine of the policy, {NAMES[wanted]}"


INSTALL = "install Podman, which needs no daemon and no root: apt install podman uidmap"


def install(wanted: EngineKind | None) -> str:
    """What to do where none is there that would be used."""
    return INSTALL if wanted in (None, "podman") else f"install {NAMES[wanted]}"


ANY = "container.engine: auto"
"""What lets the others be used, where the policy names one."""


def survey(
    environ: Mapping[bytes, bytes], kinds: Sequence[EngineKind] = KINDS, platform: str = sys.platform
) -> Iterator[FoundEngine]:
    """Each kind, in order, looked at when it is asked for."""
    for kind in kinds:
        if kind == "container" and platform != "darwin":  # whatever has that name here
            yield FoundEngine(kind, None, "Apple container is for macOS")
            continue
        program = _find(kind.encode(), environ)
        if program is None:
            yield FoundEngine(kind, None, f"no {kind} on PATH")
            continue
        try:
            engine = _LOOK[kind](program, environ)
            yield FoundEngine(kind, engine, *(_far(engine) if engine.remote else ()))
        except MudroomError as error:
            yield FoundEngine(kind, None, error.message, error.hint or f"does `{kind} info` work?")


def _far(engine: Engine) -> tuple[str, str]:
    where = f"the containers of {engine.title} are in a virtual machine, which no socket of this one reaches"
    return where, "an engine of this machine (container.engine), or level 1"


def _find(name: bytes, environ: Mapping[bytes, bytes]) -> bytes | None:
    for directory in environ.get(b"PATH", os.fsencode(os.defpath)).split(b":"):
        path = directory + b"/" + name
        if directory.startswith(b"/") and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def _information(argv: Sequence[bytes], environ: Mapping[bytes, bytes]) -> dict[str, Any]:
    """The object that an engine prints. Raises Unusable for anything else."""
    out = ask(argv, environ, LOOK)
    try:
        found = json.loads(out[:_MOST])
    except ValueError as error:
        shown = show(out[:40].strip().split(b"\n")[0]) or "nothing"
        hint = f"is {os.fsdecode(argv[0])} the engine's own program?"
        raise Unusable(f"{_name(argv)} prints {shown} where it should print JSON", hint) from error
    if not isinstance(found, dict):
        raise Unusable(f"{_name(argv)} prints JSON that is no object", "is it the engine's own program?")
    return found


def _look_at_docker(program: bytes, environ: Mapping[bytes, bytes]) -> Engine:
    try:
        found = _information([program, b"info", b"--format={{json .}}"], environ)
    except Unusable:
        raise
    except MudroomError as error:
        raise _why_not(program, environ) or error from error
    if "ServerVersion" not in found and isinstance(found.get("host"), dict):  # podman-docker: Podman by that name
        return _podman(program, environ, found)
    if found.get("ServerErrors") or not found.get("ServerVersion"):
        said = (found.get("ServerErrors") or ["it says nothing of its daemon"])[0]
        raise _why_not(program, environ) or Unusable(f"docker: {show(str(said).encode())}", "is its daemon running?")
    endpoint = _endpoint(program, environ)
    if not endpoint.startswith("unix://"):
        raise Unusable(
            f"docker is another computer ({endpoint}), which does not see the files of this one",
            "use an engine of this machine: docker context use default, or container.engine: podman",
        )
    security = [str(option) for option in found.get("SecurityOptions") or ()]
    if any("name=rootless" in option for option in security):
        raise Unusable(
            "docker is rootless: there your files are root's, and no container of mudroom's has a root",
            "use rootless Podman, which can let you be yourself (container.engine: podman), or Docker's own daemon",
        )
    holds = {"memory": "MemoryLimit", "processes": "PidsLimit", "cpus": "CpuCfsQuota"}
    return Engine(
        "docker",
        program,
        version=str(found["ServerVersion"]),
        remote=_is_far(found, "KernelVersion") or found.get("OperatingSystem") == "Docker Desktop",
        limits=tuple(limit for limit, name in holds.items() if found.get(name)),
        apparmor=any("name=apparmor" in option for option in security),
        selinux=any("name=selinux" in option for option in security),
        remapped=any("name=userns" in option for option in security),
        runtime=str(found.get("DefaultRuntime", "")),
    )


def _is_far(found: Mapping[str, Any], key: str) -> bool:
    """Whether the kernel that an engine names is not this one: then its containers are in a virtual machine."""
    return sys.platform != "linux" or found.get(key) != os.uname().release


def _endpoint(program: bytes, environ: Mapping[bytes, bytes]) -> str:
    """Where Docker's daemon is looked for: DOCKER_HOST, else the context that has been chosen (docker-context(1))."""
    named = os.fsdecode(environ.get(b"DOCKER_HOST", b""))
    if named:
        return named
    try:
        out = ask([program, b"context", b"inspect", b"--format={{.Endpoints.docker.Host}}"], environ, LOOK)
    except MudroomError:
        return _DOCKER_SOCKET  # a client that knows no contexts
    return os.fsdecode(out.strip()) or _DOCKER_SOCKET


def _why_not(program: bytes, environ: Mapping[bytes, bytes]) -> Unusable | None:
    """Connect to where a daemon should be, as the command line has tried to; None if that is not what is wrong."""
    endpoint = _endpoint(program, environ)
    if not endpoint.startswith("unix://"):
        return Unusable(f"docker at {endpoint} does not answer", "is that computer reached? docker context ls")
    path = endpoint[len("unix://") :]
    probe = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        probe.settimeout(LOOK)
        probe.connect(path)
    except OSError as error:
        return _refused(path, error)
    finally:
        probe.close()
    return None


def _refused(path: str, error: OSError) -> Unusable:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return Unusable(f"no daemon of docker listens at {path}", "start it: sudo systemctl start docker")
    if error.errno == errno.ECONNREFUSED:
        return Unusable(f"the daemon of docker at {path} is gone", "start it: sudo systemctl restart docker")
    if error.errno in (errno.EACCES, errno.EPERM):
        return Unusable(f"{path} is not for you ({_owner(path)})", _permit(path))
    return Unusable(f"{path}: {(error.strerror or str(error)).lower()}", "is the daemon of docker well?")


def _owner(path: str) -> str:
    try:
        return f"its group is {_group(os.stat(path).st_gid)}"
    except OSError:
        return "nor is its directory"


def _permit(path: str) -> str:
    other = "or use rootless Podman, which needs no such right"
    try:
        group = os.stat(path).st_gid
    except OSError:
        return f"who is in the group docker may use it, {other}"
    if group == 0:
        return f"let a group have it (sudo groupadd docker, sudo systemctl restart docker), {other}"
    return (
        f"sudo usermod --append --groups {_group(group)} {_user()}, and log in again (it is as good as root), {other}"
    )


def _group(number: int) -> str:
    from grp import getgrgid

    try:
        return getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _user() -> str:
    from pwd import getpwuid

    try:
        return getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _look_at_podman(program: bytes, environ: Mapping[bytes, bytes]) -> Engine:
    return _podman(program, environ, _information([program, b"info", b"--format={{json .}}"], environ))


def _podman(program: bytes, environ: Mapping[bytes, bytes], found: Mapping[str, Any]) -> Engine:
    host = _object(found.get("host"))
    security = _object(host.get("security"))
    if not host or not security:
        raise Unusable(f"{os.fsdecode(program)} does not say what it is", "podman info")
    remote = bool(host.get("serviceIsRemote"))
    rootless, far = bool(security.get("rootless")), _is_far(host, "kernel")
    if rootless and not remote:
        _require_ids(host, environ)
    holds = {"memory": "memory", "processes": "pids", "cpus": "cpu"}
    controllers = host.get("cgroupControllers") or ()
    return Engine(
        "podman",
        program,
        version=str(_object(found.get("version")).get("Version", "")),
        rootless=rootless,
        remote=far,
        open_files=0 if remote else _most(resource.RLIMIT_NOFILE),
        user_processes=0 if remote or rootless else _most_processes(),
        limits=tuple(limit for limit, name in holds.items() if name in controllers),
        apparmor=bool(security.get("apparmorEnabled")) and not rootless,
        selinux=bool(security.get("selinuxEnabled")),
        runtime="" if remote else str(_object(host.get("ociRuntime")).get("name", "")),
    )


def _most(limit: int) -> int:
    """Our own hard limit, which is what an engine that we start may give; 0: none. setrlimit(2)"""
    most = resource.getrlimit(limit)[1]
    return 0 if most == resource.RLIM_INFINITY else most


def _most_processes() -> int:
    """Podman lowers its own limit to pid_max of proc(5), and then cannot raise it."""
    with open("/proc/sys/kernel/pid_max", encoding="ascii") as stream:
        most = int(stream.read())
    return min(most, _most(resource.RLIMIT_NPROC) or most)


def _object(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _require_ids(host: Mapping[str, Any], environ: Mapping[bytes, bytes]) -> None:
    """Rootless Podman maps your own ids beside others (keep-id), which only newuidmap(1) may do, for those who have
    subordinate ids (subuid(5)). Raises Unusable without."""
    for name in (b"newuidmap", b"newgidmap"):
        if _find(name, environ) is None:
            raise Unusable(f"rootless podman needs {name.decode()}, which is not on PATH", "sudo apt install uidmap")
    maps = _object(host.get("idMappings"))
    for key, file in (("uidmap", "subuid"), ("gidmap", "subgid")):
        rows = [row for row in maps.get(key) or () if isinstance(row, dict)]
        if sum(int(row.get("size", 0)) for row in rows) < 2:
            raise Unusable(
                f"rootless podman has no subordinate ids for {_user()} (/etc/{file})",
                f"sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {_user()} && podman system "
                "migrate; take numbers that nobody has in /etc/subuid and /etc/subgid",
            )


def _look_at_apple(program: bytes, environ: Mapping[bytes, bytes]) -> Engine:
    """``container system status --format json`` (SystemStatus.swift): a status, and the server's version."""
    try:
        found = _information([program, b"system", b"status", b"--format=json"], environ)
    except Unusable:
        raise
    except MudroomError as error:  # it exits with 1 then
        raise Unusable("the services of Apple container do not run", "container system start") from error
    version = str(found.get("apiServerVersion", ""))
    return Engine("container", program, version=version, remote=True, limits=("memory", "cpus"))


_LOOK = {"docker": _look_at_docker, "podman": _look_at_podman, "container": _look_at_apple}
