"""Engines that answer, and every way in which they fail: each failure is one line with the problem, the reason and the
fix."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mudroom.errors import MudroomError, Unsupported
from mudroom.ext.containers.core.container import Engine, EngineKind
from mudroom.ext.containers.engine import engine as engines
from mudroom.ext.containers.engine import trial
from mudroom.ext.containers.engine.engine import ask, choose, survey

KERNEL = os.uname().release
DOCKER: dict[str, Any] = {
    "ServerVersion": "28.2.2", "OSType": "linux", "OperatingSystem": "Debian", "KernelVersion": KERNEL,
    "MemoryLimit": True, "PidsLimit": True, "CpuCfsQuota": True, "DefaultRuntime": "runc",
    "SecurityOptions": ["name=seccomp,profile=default", "name=cgroupns"],
}  # fmt: skip
_IDS = [{"container_id": 0, "host_id": 1000, "size": 1}, {"container_id": 1, "host_id": 100000, "size": 65536}]
PODMAN: dict[str, Any] = {
    "host": {
        "kernel": KERNEL, "serviceIsRemote": False, "cgroupControllers": ["cpu", "memory", "pids"],
        "ociRuntime": {"name": "crun"}, "idMappings": {"uidmap": _IDS, "gidmap": _IDS},
        "security": {"rootless": True, "apparmorEnabled": True, "selinuxEnabled": False},
    },
    "version": {"Version": "4.3.1"},
}  # fmt: skip


class Fakes:
    """Programs of our own on a PATH of our own."""

    def __init__(self, root: Path) -> None:
        self.bin = root / "bin"
        self.bin.mkdir()
        self.environ = {b"PATH": os.fsencode(self.bin), b"DOCKER_HOST": b"unix://" + os.fsencode(root / "socket")}
        self.socket = root / "socket"
        for name in ("newuidmap", "newgidmap"):
            self.program(name, "exit 0")

    def program(self, name: str, script: str) -> Path:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def prints(self, name: str, value: object, code: int = 0) -> None:
        (self.bin / f"{name}.out").write_text(value if isinstance(value, str) else json.dumps(value))
        self.program(name, f"/bin/cat {self.bin}/{name}.out; exit {code}")

    def found(self, kind: EngineKind, platform: str = "linux") -> engines.FoundEngine:
        (found,) = survey(self.environ, (kind,), platform)
        return found


@pytest.fixture
def fakes(tmp_path: Path) -> Fakes:
    return Fakes(tmp_path)


def _with(base: Mapping[str, Any], *path: str, value: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(base))
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return copy


def test_what_docker_says_of_itself(fakes: Fakes) -> None:
    fakes.prints("docker", DOCKER)
    found = fakes.found("docker").engine
    program = os.fsencode(fakes.bin / "docker")
    assert found == Engine("docker", program, version="28.2.2", runtime="runc")


@pytest.mark.parametrize(
    ("key", "value", "field", "expected"),
    [
        ("SecurityOptions", ["name=apparmor"], "apparmor", True),
        ("SecurityOptions", ["name=selinux"], "selinux", True),
        ("SecurityOptions", ["name=userns"], "remapped", True),
        ("SecurityOptions", None, "apparmor", False),
        ("MemoryLimit", False, "limits", ("processes", "cpus")),
        ("PidsLimit", False, "limits", ("memory", "cpus")),
        ("CpuCfsQuota", False, "limits", ("memory", "processes")),
    ],
)
def test_what_docker_has(fakes: Fakes, key: str, value: object, field: str, expected: object) -> None:
    fakes.prints("docker", _with(DOCKER, key, value=value))
    found = fakes.found("docker").engine
    assert found is not None
    assert getattr(found, field) == expected


@pytest.mark.parametrize(
    ("key", "value"), [("OperatingSystem", "Docker Desktop"), ("KernelVersion", "6.10.14-linuxkit")]
)
def test_a_docker_in_a_virtual_machine(fakes: Fakes, key: str, value: object) -> None:
    fakes.prints("docker", _with(DOCKER, key, value=value))
    found = fakes.found("docker")
    assert found.engine is not None
    assert found.engine.remote
    assert "in a virtual machine" in found.problem
    with pytest.raises(Unsupported, match="in a virtual machine"):
        choose(fakes.environ)
    assert choose(fakes.environ, remote=True).remote


def test_a_docker_without_a_root_of_its_own(fakes: Fakes) -> None:
    fakes.prints("docker", _with(DOCKER, "SecurityOptions", value=["name=rootless"]))
    found = fakes.found("docker")
    assert found.engine is None
    assert "docker is rootless" in found.problem
    assert "podman" in found.hint.lower()


@pytest.mark.parametrize("host", ["ssh://me@there", "tcp://10.0.0.1:2376"])
def test_docker_of_another_computer(fakes: Fakes, host: str) -> None:
    fakes.prints("docker", DOCKER)
    fakes.environ[b"DOCKER_HOST"] = host.encode()
    found = fakes.found("docker")
    assert found.engine is None
    assert f"another computer ({host})" in found.problem


def test_a_context_that_leads_to_another_computer(fakes: Fakes) -> None:
    del fakes.environ[b"DOCKER_HOST"]
    (fakes.bin / "info").write_text(json.dumps(DOCKER))
    fakes.program("docker", f'[ "$1" = context ] && echo ssh://me@there || /bin/cat {fakes.bin}/info')
    assert "another computer (ssh://me@there)" in fakes.found("docker").problem


def test_docker_where_nobody_listens(fakes: Fakes) -> None:
    fakes.program("docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    found = fakes.found("docker")
    assert found.problem == f"no daemon of docker listens at {fakes.socket}"
    assert found.hint == "start it: sudo systemctl start docker"


def test_docker_whose_daemon_has_died(fakes: Fakes) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(fakes.socket))
    fakes.program("docker", "exit 1")
    found = fakes.found("docker")
    assert found.problem == f"the daemon of docker at {fakes.socket} is gone"


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_socket_that_is_not_ours(fakes: Fakes) -> None:
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(fakes.socket))
        theirs.listen()
        fakes.socket.chmod(0)
        fakes.program("docker", "exit 1")
        found = fakes.found("docker")
    assert found.problem.startswith(f"{fakes.socket} denies you access (its group is ")
    assert "usermod --append --groups" in found.hint
    assert "rootless Podman" in found.hint


def test_an_error_that_is_not_the_sockets(fakes: Fakes) -> None:
    with socket.socket(socket.AF_UNIX) as well:
        well.bind(str(fakes.socket))
        well.listen()
        fakes.program("docker", "echo 'Error response from daemon: no space left on device' >&2; exit 1")
        assert fakes.found("docker").problem == "docker: Error response from daemon: no space left on device"
        fakes.prints("docker", _with(DOCKER, "ServerErrors", value=["it is\x1b[31m not well"]))
        assert fakes.found("docker").problem == "docker: it is\\x1b[31m not well"


@pytest.mark.parametrize(
    ("printed", "says"),
    [
        ("Emulating…\n{}", "prints Emulating… where it should print JSON"),
        ("", "prints nothing where it should print JSON"),
        ("\x1b[2Jno\n", "prints \\x1b[2Jno where"),
        ("[1, 2]", "prints JSON that is no object"),
        ('"x"', "prints JSON that is no object"),
    ],
)
@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_a_program_that_prints_something_else(fakes: Fakes, kind: EngineKind, printed: str, says: str) -> None:
    fakes.prints(kind, printed)
    found = fakes.found(kind)
    assert found.engine is None
    assert says in found.problem
    assert found.hint


def test_podman_by_the_name_of_docker(fakes: Fakes) -> None:
    fakes.prints("docker", PODMAN)
    found = fakes.found("docker").engine
    assert found is not None
    assert (found.kind, found.program, found.version) == ("podman", os.fsencode(fakes.bin / "docker"), "4.3.1")


def test_what_podman_says_of_itself(fakes: Fakes) -> None:
    fakes.prints("podman", PODMAN)
    found = fakes.found("podman").engine
    assert found is not None
    assert (found.rootless, found.runtime, found.limits) == (True, "crun", ("memory", "processes", "cpus"))
    assert not found.apparmor, "it confines no container of an ordinary user"
    fakes.prints("podman", _with(PODMAN, "host", "cgroupControllers", value=[]))
    found = fakes.found("podman").engine
    assert found is not None
    assert found.limits == ()
    fakes.prints("podman", _with(PODMAN, "host", "security", "rootless", value=False))
    found = fakes.found("podman").engine
    assert found is not None
    assert found.apparmor
    assert 0 < found.user_processes <= int(Path("/proc/sys/kernel/pid_max").read_text())


def test_podman_without_subordinate_ids(fakes: Fakes) -> None:
    fakes.prints("podman", _with(PODMAN, "host", "idMappings", "uidmap", value=_IDS[:1]))
    found = fakes.found("podman")
    assert "no subordinate ids" in found.problem
    assert "/etc/subuid" in found.problem
    assert "usermod --add-subuids" in found.hint


def test_podman_without_newuidmap(fakes: Fakes) -> None:
    fakes.prints("podman", PODMAN)
    (fakes.bin / "newuidmap").unlink()
    found = fakes.found("podman")
    assert "needs newuidmap" in found.problem
    assert found.hint == "sudo apt install uidmap"


def test_podman_in_a_machine_of_its_own(fakes: Fakes) -> None:
    fakes.prints("podman", _with(PODMAN, "host", "kernel", value="6.1-coreos"))
    found = fakes.found("podman")
    assert found.engine is not None
    assert found.engine.remote
    assert "in a virtual machine" in found.problem


@pytest.mark.parametrize("value", [{}, {"host": []}, {"host": {"security": 1}}, {"host": None, "version": "x"}])
def test_podman_that_says_nothing(fakes: Fakes, value: object) -> None:
    fakes.prints("podman", value)
    assert "does not describe itself" in fakes.found("podman").problem


def test_apple_container(fakes: Fakes) -> None:
    fakes.prints("container", {"status": "unregistered"}, code=1)
    assert fakes.found("container", "darwin").hint == "container system start"
    fakes.prints("container", {"status": "running", "apiServerVersion": "1.2"})
    found = fakes.found("container", "darwin")
    assert found.engine is not None
    assert found.engine.remote
    assert found.engine.limits == ("memory", "cpus")
    assert not fakes.found("container", "linux").is_installed, "whatever has that name elsewhere"


def test_none_at_all(tmp_path: Path) -> None:
    with pytest.raises(Unsupported) as caught:
        choose({b"PATH": os.fsencode(tmp_path)})
    assert caught.value.found == "no docker on PATH; no podman on PATH; Apple container is for macOS"
    assert caught.value.hint.startswith("install Podman")
    assert "\n" not in str(caught.value)


def test_the_first_that_can_be_used(fakes: Fakes) -> None:
    fakes.program("docker", "exit 1")
    fakes.prints("podman", PODMAN)
    assert choose(fakes.environ).kind == "podman"
    fakes.prints("docker", DOCKER)
    assert choose(fakes.environ).kind == "docker"
    assert choose(fakes.environ, "podman").kind == "podman"


def test_what_was_found_a_moment_ago_still_counts(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.prints("docker", DOCKER)
    assert engines.current(fakes.environ).kind == "docker"
    fakes.program("docker", "exit 1")
    fakes.prints("podman", PODMAN)
    assert engines.current(fakes.environ).kind == "docker"
    assert "(start it: sudo systemctl start docker; or container.engine: auto)" in engines.why_none(
        fakes.environ, "docker"
    )
    monkeypatch.setattr(engines, "_chosen", {})
    assert engines.current(fakes.environ).kind == "podman"
    assert engines.why_none(fakes.environ) == ""


def test_that_there_is_none_is_not_found_out_for_everybody_who_asks(fakes: Fakes) -> None:
    asked = fakes.bin / "asked"
    fakes.program("docker", f"echo >>{asked}; exit 1")
    whys = {engines.why_none(fakes.environ) for _time in range(5)}
    assert len(whys) == 1
    assert asked.read_text() == "\n"


def test_the_one_that_is_wanted_or_none(fakes: Fakes) -> None:
    fakes.prints("podman", PODMAN)
    with pytest.raises(Unsupported, match="the engine of the policy, Docker; found: no docker on PATH"):
        choose(fakes.environ, "docker")


LIMITS = (0.3, 3.0, 20.0)
"""Seconds: on a busy machine a program takes its time to begin."""


@pytest.mark.parametrize("script", ["exec sleep 1000", "sleep 1000", "trap '' TERM INT; sleep 1000 & wait"])
def test_one_that_hangs_is_ended_with_all_that_it_has_started(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    fakes.environ[b"PATH"] += b":/usr/bin:/bin"
    fakes.program("docker", f"echo $$ >{fakes.bin}/pid; {script}")
    for limit in LIMITS:
        monkeypatch.setattr(engines, "LOOK", limit)
        found = next(iter(survey(fakes.environ, ("docker",))))
        if _has_begun(fakes):
            break
    assert "does not answer" in found.problem
    assert "container.engine" in found.hint
    assert _ends(int((fakes.bin / "pid").read_text()))


def _has_begun(fakes: Fakes) -> bool:
    said = fakes.bin / "pid"
    return said.exists() and said.read_text().endswith("\n")


def _ends(group: int) -> bool:
    """Return whether no process of a group runs any more, once the kernel has ended the killed ones."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if not any(_group_of(entry) == group for entry in os.listdir("/proc") if entry.isdigit()):
            return True
    return False


def _group_of(pid: str) -> int:
    try:
        state, _parent, group, *_others = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return 0
    return 0 if state in "ZX" else int(group)


def test_a_program_that_leaves_another_one_behind_with_its_output(fakes: Fakes) -> None:
    fakes.environ[b"PATH"] += b":/usr/bin:/bin"
    program = fakes.program("docker", f"sleep 1000 & echo $$ >{fakes.bin}/pid; echo {{}}")
    for limit in LIMITS:
        with pytest.raises(MudroomError, match="does not answer for"):
            ask([os.fsencode(program)], fakes.environ, limit)
        if _has_begun(fakes):
            break
    assert _ends(int((fakes.bin / "pid").read_text()))


def test_a_trial_that_hangs_is_tried_once(fakes: Fakes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(trial, "PATIENCE", 3.0)
    fakes.environ[b"PATH"] += b":/usr/bin:/bin"
    tried = fakes.bin / "tried"
    program = fakes.program("docker", f"[ $1 = run ] && echo >>{tried} && exec sleep 1000")
    with pytest.raises(Unsupported, match="docker does not answer"):
        trial.ready(Engine("docker", os.fsencode(program)), "x", fakes.environ, os.fsencode(tmp_path))
    assert tried.read_text() == "\n"
    assert not list(tmp_path.glob("engines/*"))


def _unreadable(fakes: Fakes) -> None:
    fakes.program("docker", "exit 0").chmod(0o644)


def _no_interpreter(fakes: Fakes) -> None:
    (fakes.bin / "docker").write_text("#!/nobody/is/here\n")
    (fakes.bin / "docker").chmod(0o755)


def _no_program(fakes: Fakes) -> None:
    (fakes.bin / "docker").write_bytes(b"\0\0")
    (fakes.bin / "docker").chmod(0o755)


def _directory(fakes: Fakes) -> None:
    (fakes.bin / "docker").mkdir()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (_unreadable, "no docker on PATH"),
        (_directory, "no docker on PATH"),
        (_no_interpreter, "cannot be started: No such file or directory"),
        (_no_program, "cannot be started: Exec format error"),
    ],
)
def test_what_is_no_program(fakes: Fakes, make: Callable[[Fakes], None], says: str) -> None:
    make(fakes)
    with socket.socket(socket.AF_UNIX) as well:
        well.bind(str(fakes.socket))
        well.listen()
        assert says in fakes.found("docker").problem


def test_a_path_entry_that_is_not_absolute_is_nobodys(fakes: Fakes, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.prints("docker", DOCKER)
    monkeypatch.chdir(fakes.bin)
    fakes.environ[b"PATH"] = b".::bin"
    assert not fakes.found("docker").is_installed


def test_an_engine_gets_no_directory_named_relative_to_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Podman would make it in the current directory."""
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "engine"
    program.write_text(
        "#!/bin/sh\nmkdir -p ${TMPDIR:-/} ${XDG_DATA_HOME:-/} ${XDG_RUNTIME_DIR:-/}; echo $TMPDIR $OTHER\n"
    )
    program.chmod(0o755)
    relative = {b"TMPDIR": b"tmp", b"XDG_DATA_HOME": b"./data", b"XDG_RUNTIME_DIR": b"", b"OTHER": b"stays"}
    assert ask([bytes(program)], relative | {b"PATH": b"/usr/bin:/bin"}) == b"stays\n"
    absolute = os.fsencode(tmp_path.parent)
    assert ask([bytes(program)], {b"TMPDIR": absolute, b"PATH": b"/usr/bin:/bin"}) == absolute + b"\n"
    assert os.listdir(tmp_path) == ["engine"]
