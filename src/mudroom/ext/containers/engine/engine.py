"""Find this machine's container engines, and run their command lines.

An engine is used through its command line, which its users have configured. Its output is trusted no more than
necessary: a name that mudroom chose, a number, a label. The reason why an engine is unusable is found by trying the
command line's own steps, never by parsing its error messages.
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

from mudroom.core.settings import EngineChoice
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, Unsupported
from mudroom.ext.containers.core.container import KINDS, NAMES, Engine, EngineKind, engine_environment
from mudroom.typing import Any, NamedTuple

PATIENCE = 60.0
"""Seconds that an engine has for an action."""
LOOK = 10.0
"""Seconds that an engine has to describe itself."""
_MOST = 16 << 20
"""Bytes that are read from a JSON answer."""
_DOCKER_SOCKET = "unix:///var/run/docker.sock"


class Unusable(MudroomError):
    """The engine exists but cannot be used, for the given reason; the hint is the fix. From ``ask``: the command line
    hangs."""


class FoundEngine(NamedTuple):
    """The result of looking for one kind of engine."""

    kind: EngineKind
    engine: Engine | None
    problem: str = ""
    """The reason why there is no engine, or why no socket reaches it."""
    hint: str = ""

    @property
    def is_installed(self) -> bool:
        """Whether the engine exists. It may be unusable: the hint then has the fix."""
        return self.engine is not None or bool(self.hint)


def ask(
    argv: Sequence[bytes], environ: Mapping[bytes, bytes], timeout: float = PATIENCE, *, stdin: bytes | None = None
) -> bytes:
    """Run an engine's command line and return its output; ``stdin`` is its input. Raise MudroomError with its message
    if it fails. If it takes longer than ``timeout`` seconds, kill it with every process that it has started and raise
    Unusable."""
    try:
        process = subprocess.Popen(
            list(argv),
            env=engine_environment(environ),
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # no terminal for questions, and the whole session can be killed (setsid(2))
        )
    except OSError as error:
        raise MudroomError(f"{_name(argv)} cannot be started: {error.strerror}") from error
    try:
        out, complaint = process.communicate(stdin, timeout)
    except subprocess.TimeoutExpired as error:
        hint = "the engine hangs: restart it, or choose another one with container.engine"
        raise Unusable(f"{_name(argv)} does not answer for {timeout:.0f} s", hint) from error
    finally:
        if process.returncode is None:
            _kill(process)
    if process.returncode:
        name = _name(argv)
        raise MudroomError(f"{name}: {_last_line(complaint).removeprefix(name + ': ')}")
    return out


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and every process that holds its pipes: a program that has started another is not waited for."""
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
    messages = [line for line in lines if not line.startswith(("See '", "Run '"))]
    return messages[-1] if messages else "it failed without a message"


def current(environ: Mapping[bytes, bytes], wanted: EngineChoice = "auto") -> Engine:
    """Choose an engine as ``choose`` does, remote ones included, with a cache. One thread looks while others wait. A
    choice stays fresh for ``FRESH`` seconds, a failure for ``FRESH_ERROR``."""
    key = _key(environ, wanted)
    with _choosing:
        choice, until = _chosen.get(key, (None, 0.0))
        if choice is None or time.monotonic() > until:
            try:
                choice, fresh = choose(environ, wanted, remote=True), FRESH
            except Unsupported as error:
                choice, fresh = error, FRESH_ERROR
            _chosen[key] = (choice, time.monotonic() + fresh)
    if isinstance(choice, Unsupported):
        raise Unsupported(choice.protection, choice.needs, choice.found, choice.hint)
    return choice


def keep_current(engine: Engine, environ: Mapping[bytes, bytes], wanted: EngineChoice = "auto") -> None:
    """Cache the engine that a caller's own ``survey`` has found as the choice of ``current``."""
    with _choosing:
        _chosen[_key(environ, wanted)] = (engine, time.monotonic() + FRESH)


def _key(environ: Mapping[bytes, bytes], wanted: EngineChoice) -> tuple[Any, ...]:
    return (wanted, *(environ.get(name, b"") for name in DECISIVE))


_choosing = _thread.allocate_lock()
_chosen: dict[tuple[Any, ...], tuple[Engine | Unsupported, float]] = {}
FRESH, FRESH_ERROR = 30.0, 3.0
"""Seconds."""
DECISIVE = (
    b"PATH", b"HOME", b"DOCKER_HOST", b"DOCKER_CONTEXT", b"DOCKER_CONFIG", b"CONTAINER_HOST", b"CONTAINER_CONNECTION",
    b"CONTAINERS_CONF", b"CONTAINERS_STORAGE_CONF", b"XDG_RUNTIME_DIR", b"XDG_CONFIG_HOME",
)  # fmt: skip
"""Variables by which engines are found and configured."""


def why_none(environ: Mapping[bytes, bytes], wanted: EngineChoice = "auto") -> str:
    """Return why no container can be started, with the fix, in one line; empty if one can."""
    try:
        current(environ, wanted)
    except Unsupported as error:
        return f"{error.found} ({error.hint})"
    return ""


def choose(environ: Mapping[bytes, bytes], wanted: EngineChoice = "auto", *, remote: bool = False) -> Engine:
    """Return the engine to use: the wanted kind, or the first usable in ``KINDS``. With ``remote``, an engine in a
    virtual machine is taken if this machine has none. Raise Unsupported, with each engine's problem, if there is
    none."""
    reasons: list[str] = []
    hints: list[str] = []
    remote_engines: list[Engine] = []
    for result in survey(environ, KINDS if wanted == "auto" else (wanted,)):
        if result.engine is not None and not result.engine.remote:
            return result.engine
        remote_engines += [result.engine] if result.engine is not None else []
        reasons.append(result.problem)
        hints += [result.hint] if result.hint else []
    if remote and remote_engines:
        return remote_engines[0]
    if is_sandboxed():
        inside = "a command in a sandbox of mudroom, where no engine is visible"
        raise Unsupported("level 2", needed(wanted), inside, "outside of the sandbox: mudroom run --level 2")
    hint = hints[0] if hints else install(wanted)
    raise Unsupported("level 2", needed(wanted), "; ".join(reasons), hint if wanted == "auto" else f"{hint}; or {ANY}")


_FIRST = "/proc/1/comm"


def is_sandboxed() -> bool:
    """Return whether this process is a command in a mudroom sandbox, by the name of its first process
    (proc_pid_comm(5)). Used for messages only: no permission depends on it."""
    try:
        with open(_FIRST, encoding="ascii", errors="replace") as stream:
            return stream.read() == "mudroom-init\n"
    except OSError:
        return False  # another platform


def needed(wanted: EngineChoice) -> str:
    """Return level 2's requirement, for a message: where the policy names an engine, only that one is used."""
    if wanted == "auto":
        return "a container engine: Docker, Podman or Apple container"
    return f"the engine of the policy, {NAMES[wanted]}"


INSTALL = "install Podman, which needs no daemon and no root: apt install podman uidmap"


def install(wanted: EngineChoice) -> str:
    """Return the fix where no usable engine is installed."""
    return INSTALL if wanted == "auto" or wanted == "podman" else f"install {NAMES[wanted]}"


ANY = "container.engine: auto"
"""The setting that permits other engines where the policy names one."""


def survey(
    environ: Mapping[bytes, bytes], kinds: Sequence[EngineKind] = KINDS, platform: str = sys.platform
) -> Iterator[FoundEngine]:
    """Yield each engine kind in order; each is looked for when it is requested."""
    for kind in kinds:
        if kind == "container" and platform != "darwin":  # another program of that name
            yield FoundEngine(kind, None, "Apple container is for macOS")
            continue
        program = _find(kind.encode(), environ)
        if program is None:
            yield FoundEngine(kind, None, f"no {kind} on PATH")
            continue
        try:
            engine = _LOOK[kind](program, environ)
            yield FoundEngine(kind, engine, *(_remote_problem(engine) if engine.remote else ()))
        except MudroomError as error:
            yield FoundEngine(kind, None, error.message, error.hint or f"does `{kind} info` work?")


def _remote_problem(engine: Engine) -> tuple[str, str]:
    where = f"the containers of {engine.title} are in a virtual machine, which no socket of this one reaches"
    return where, "an engine of this machine (container.engine), or level 1"


def _find(name: bytes, environ: Mapping[bytes, bytes]) -> bytes | None:
    for directory in environ.get(b"PATH", os.fsencode(os.defpath)).split(b":"):
        path = directory + b"/" + name
        if directory.startswith(b"/") and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def _information(argv: Sequence[bytes], environ: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Return the JSON object that an engine prints. Raise Unusable for any other output."""
    out = ask(argv, environ, LOOK)
    try:
        info = json.loads(out[:_MOST])
    except ValueError as error:
        shown = show(out[:40].strip().split(b"\n")[0]) or "nothing"
        hint = f"is {os.fsdecode(argv[0])} the engine's own program?"
        raise Unusable(f"{_name(argv)} prints {shown} where it should print JSON", hint) from error
    if not isinstance(info, dict):
        raise Unusable(f"{_name(argv)} prints JSON that is no object", "is it the engine's own program?")
    return info


def _look_at_docker(program: bytes, environ: Mapping[bytes, bytes]) -> Engine:
    try:
        info = _information([program, b"info", b"--format={{json .}}"], environ)
    except Unusable:
        raise
    except MudroomError as error:
        raise _daemon_problem(program, environ) or error from error
    if "ServerVersion" not in info and isinstance(info.get("host"), dict):  # podman-docker: Podman under that name
        return _podman(program, environ, info)
    if info.get("ServerErrors") or not info.get("ServerVersion"):
        error_text = str((info.get("ServerErrors") or ["it reports no daemon"])[0])
        problem = _daemon_problem(program, environ)
        raise problem or Unusable(f"docker: {show(error_text.encode())}", "is its daemon running?")
    endpoint = _endpoint(program, environ)
    if not endpoint.startswith("unix://"):
        raise Unusable(
            f"docker runs on another computer ({endpoint}), which does not see the files of this one",
            "use an engine of this machine: docker context use default, or container.engine: podman",
        )
    security = [str(option) for option in info.get("SecurityOptions") or ()]
    if any("name=rootless" in option for option in security):
        raise Unusable(
            "docker is rootless: inside, your files belong to root, and containers of mudroom have no root",
            "use rootless Podman, which can keep your user id (container.engine: podman), or Docker's own daemon",
        )
    holds = {"memory": "MemoryLimit", "processes": "PidsLimit", "cpus": "CpuCfsQuota"}
    return Engine(
        "docker",
        program,
        version=str(info["ServerVersion"]),
        remote=_is_remote(info, "KernelVersion") or info.get("OperatingSystem") == "Docker Desktop",
        limits=tuple(limit for limit, name in holds.items() if info.get(name)),
        apparmor=any("name=apparmor" in option for option in security),
        selinux=any("name=selinux" in option for option in security),
        remapped=any("name=userns" in option for option in security),
        runtime=str(info.get("DefaultRuntime", "")),
    )


def _is_remote(info: Mapping[str, Any], key: str) -> bool:
    """Return whether the engine names another kernel than this one: its containers are then in a virtual machine."""
    return sys.platform != "linux" or info.get(key) != os.uname().release


def _endpoint(program: bytes, environ: Mapping[bytes, bytes]) -> str:
    """Return the address where Docker's daemon listens: DOCKER_HOST, else the current context's (docker-context(1))."""
    named = os.fsdecode(environ.get(b"DOCKER_HOST", b""))
    if named:
        return named
    try:
        out = ask([program, b"context", b"inspect", b"--format={{.Endpoints.docker.Host}}"], environ, LOOK)
    except MudroomError:
        return _DOCKER_SOCKET  # a client without contexts
    return os.fsdecode(out.strip()) or _DOCKER_SOCKET


def _daemon_problem(program: bytes, environ: Mapping[bytes, bytes]) -> Unusable | None:
    """Connect to the daemon's socket, as the command line has tried to. Return the problem, or None if the connection
    works."""
    endpoint = _endpoint(program, environ)
    if not endpoint.startswith("unix://"):
        return Unusable(f"docker at {endpoint} does not answer", "can that computer be reached? docker context ls")
    path = endpoint[len("unix://") :]
    probe = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        probe.settimeout(LOOK)
        probe.connect(path)
    except OSError as error:
        return _connection_problem(path, error)
    finally:
        probe.close()
    return None


def _connection_problem(path: str, error: OSError) -> Unusable:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return Unusable(f"no daemon of docker listens at {path}", "start it: sudo systemctl start docker")
    if error.errno == errno.ECONNREFUSED:
        return Unusable(f"the daemon of docker at {path} is gone", "start it: sudo systemctl restart docker")
    if error.errno in (errno.EACCES, errno.EPERM):
        return Unusable(f"{path} denies you access ({_owner(path)})", _permit(path))
    return Unusable(f"{path}: {(error.strerror or str(error)).lower()}", "is the daemon of docker running?")


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
        return f"members of the group docker may use it, {other}"
    if group == 0:
        return f"give it to a group (sudo groupadd docker, sudo systemctl restart docker), {other}"
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


def _podman(program: bytes, environ: Mapping[bytes, bytes], info: Mapping[str, Any]) -> Engine:
    host = _object(info.get("host"))
    security = _object(host.get("security"))
    if not host or not security:
        raise Unusable(f"{os.fsdecode(program)} does not describe itself", "look at the output of podman info")
    remote = bool(host.get("serviceIsRemote"))
    rootless, far = bool(security.get("rootless")), _is_remote(host, "kernel")
    if rootless and not remote:
        _require_ids(host, environ)
    holds = {"memory": "memory", "processes": "pids", "cpus": "cpu"}
    controllers = host.get("cgroupControllers") or ()
    return Engine(
        "podman",
        program,
        version=str(_object(info.get("version")).get("Version", "")),
        rootless=rootless,
        remote=far,
        open_files=0 if remote else _hard_limit(resource.RLIMIT_NOFILE),
        user_processes=0 if remote or rootless else _hard_limit_of_processes(),
        limits=tuple(limit for limit, name in holds.items() if name in controllers),
        apparmor=bool(security.get("apparmorEnabled")) and not rootless,
        selinux=bool(security.get("selinuxEnabled")),
        runtime="" if remote else str(_object(host.get("ociRuntime")).get("name", "")),
    )


def _hard_limit(limit: int) -> int:
    """Return this process's hard limit, which an engine that it starts may pass on; 0 means none. setrlimit(2)"""
    most = resource.getrlimit(limit)[1]
    return 0 if most == resource.RLIM_INFINITY else most


def _hard_limit_of_processes() -> int:
    """Return the process limit that Podman can pass on: it lowers its own limit to pid_max (proc(5)), and then cannot
    raise it. Return 0 where the engine is in a machine of its own, as on a Mac."""
    if sys.platform != "linux":
        return 0
    with open("/proc/sys/kernel/pid_max", encoding="ascii") as stream:
        most = int(stream.read())
    return min(most, _hard_limit(resource.RLIMIT_NPROC) or most)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _require_ids(host: Mapping[str, Any], environ: Mapping[bytes, bytes]) -> None:
    """Raise Unusable unless rootless Podman can map the user's own ids beside others (keep-id): only newuidmap(1) may
    do that, for users with subordinate ids (subuid(5))."""
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
                "migrate; choose numbers that are unused in /etc/subuid and /etc/subgid",
            )


def _look_at_apple(program: bytes, environ: Mapping[bytes, bytes]) -> Engine:
    """Read ``container system status --format json`` (SystemStatus.swift): a status, and the server's version."""
    try:
        info = _information([program, b"system", b"status", b"--format=json"], environ)
    except Unusable:
        raise
    except MudroomError as error:  # it exits with 1 then
        raise Unusable("the services of Apple container do not run", "container system start") from error
    version = str(info.get("apiServerVersion", ""))
    return Engine("container", program, version=version, remote=True, limits=("memory", "cpus"))


_LOOK = {"docker": _look_at_docker, "podman": _look_at_podman, "container": _look_at_apple}
