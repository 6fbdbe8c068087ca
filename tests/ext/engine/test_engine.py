"""An engine of containers beside a command, by Podman: containers work unchanged, and none of them gets out."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Place
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.ext.engine.numbers import lacking
from mudroom.session import Session

pytestmark = pytest.mark.both_users
APPLETS = (
    "sh",
    "cat",
    "chmod",
    "chown",
    "cp",
    "echo",
    "grep",
    "httpd",
    "ls",
    "mkdir",
    "mknod",
    "mount",
    "mv",
    "nc",
    "sleep",
    "tail",
    "umount",
)
BUSYBOX = shutil.which("busybox")
WITH_ENGINE = Settings(engine_beside=True)
MARK = "mudroom-engine-test"

Run = Callable[[str], tuple[Session, Result]]


@pytest.fixture
def run(place: Place) -> Run:
    """Run a script in a project with an image of Busybox, loaded as ``box``; ``$P`` is Podman's client."""
    if os.geteuid() == 0:
        pytest.skip("an engine beside a command is not for root")
    if (missing := lacking()) or BUSYBOX is None:
        pytest.skip(f"no engine beside a command here: {missing[0][0] if missing else 'busybox'}")
    write_image(place.project / "box.tar", Path(BUSYBOX))
    session = place.session(WITH_ENGINE)

    def with_image(script: str) -> tuple[Session, Result]:
        load = "P='podman --remote'; $P import -q box.tar box >/dev/null || exit 9\n"
        return session, session.run([b"sh", b"-c", (load + script).encode()])

    return with_image


def write_image(path: Path, busybox: Path) -> None:
    with tarfile.open(path, "w") as image:
        for name in ("bin", "tmp", "etc", "host"):
            row = tarfile.TarInfo(name)
            row.type, row.mode = tarfile.DIRTYPE, 0o755
            image.addfile(row)
        program = tarfile.TarInfo("bin/busybox")
        program.mode, program.size = 0o755, busybox.stat().st_size
        with busybox.open("rb") as stream:
            image.addfile(program, stream)
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            image.addfile(link)
        users = b"root:x:0:0::/:/bin/sh\ndb:x:999:999::/:/bin/sh\n"
        row = tarfile.TarInfo("etc/passwd")
        row.size = len(users)
        image.addfile(row, io.BytesIO(users))


def test_a_container_runs_beside_a_command_that_keeps_its_sandbox(run: Run) -> None:
    _session, result = run(
        "$P run --rm box echo hello; echo $DOCKER_HOST; unshare -U true || echo refused; grep CapEff /proc/self/status"
    )
    assert result.stdout.splitlines() == [
        b"hello",
        b"unix:///run/engine.sock",
        b"refused",
        b"CapEff:\t0000000000000000",
    ]


FETCH = """import os, urllib.request
while True:  # until the container serves
    try:
        print(urllib.request.urlopen("http://127.0.0.1:8080/").read().decode()); break
    except OSError:
        os.sched_yield()
"""


@pytest.mark.parametrize("network", ["slirp4netns", "bridge"])
def test_a_published_port_is_at_the_command_s_localhost(place: Place, run: Run, network: str) -> None:
    place.write("fetch.py", FETCH)
    _session, result = run(
        f"$P run -d --network={network} -p 127.0.0.1:8080:80 box sh -c "
        "'mkdir /w; echo page > /w/index.html; httpd -f -p 80 -h /w' >/dev/null; python3 fetch.py"
    )
    assert result.stdout.strip() == b"page", result.stderr


@pytest.mark.parametrize("network", ["slirp4netns", "host"])
def test_a_container_s_connection_passes_the_gate(run: Run, network: str) -> None:
    session, _result = run(f"$P run --rm --network={network} box nc -w 3 192.0.2.1 8000 </dev/null")
    events = [json.loads(event.data) for event in session.vault.journal.events() if event.kind == "flow"]
    assert [(flow["host"], flow["port"], flow["verdict"]) for flow in events] == [("192.0.2.1", 8000, "deny")]


def test_containers_end_with_the_command(run: Run) -> None:
    _session, result = run(f"$P run -d box sh -c 'sleep 100000; echo {MARK}' >/dev/null && echo started")
    assert result.stdout == b"started\n"
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and MARK in arguments(pid)]


def arguments(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""  # it has ended


def test_files_of_a_container_belong_to_the_user(place: Place, run: Run) -> None:
    here = place.project
    session, result = run(
        f"$P run --rm -v {here}:/p box sh -c 'echo a > /p/a; chown 999:999 /p/a; mkdir /p/d; echo b > /p/d/b; "
        "chmod 700 /p/d; chown -R 999 /p/d'"
    )
    assert result.exit_code == 0, result.stderr
    session.changes.apply(result.fork)
    for name in ("a", "d", "d/b"):
        assert (here / name).stat().st_uid == os.getuid()
    assert (here / "d/b").read_text() == "b\n"


def test_images_last_as_long_as_their_fork(place: Place, run: Run) -> None:
    session, result = run("$P run box sh -c 'mkdir -m 700 /d; echo > /d/f; chown -R 999 /d'")
    assert list(place.state.glob("vaults/*/forks/*/engine/graph"))
    again = session.run([b"podman", b"--remote", b"images", b"--format", b"{{.Repository}}"], fork=result.fork)
    assert again.stdout.strip() == b"localhost/box", again.stderr
    session.forks.discard(result.fork)
    session.close()
    assert not list(place.state.glob("vaults/*/forks/*/engine"))
    assert not list(place.state.glob("vaults/*/trash/*"))


ATTEMPTS = {
    "the host's files": ("-v /:/host", "ls /host{home} /host{state} /host/root /host/var/lib && echo OUT"),
    "a file of the host": ("-v /:/host", "echo x > /host/etc/{mark} && echo OUT"),
    "a privileged container's mounts": (
        "--privileged -v /:/host",
        "mount -o remount,rw /host/etc; mount -o remount,bind,rw /host/etc; echo x > /host/etc/{mark} && echo OUT",
    ),
    "what is below a mount": (
        "--privileged -v /:/host", "umount -l /host/etc /host{project} /host/tmp && ls /host{project}/.git && echo OUT",
    ),
    "the home directory": ("-v {home}/.ssh:/s", "ls /s/id && echo OUT"),
    "a secret of the project": ("--privileged -v {project}:/p", "cat /p/.env; umount -l /p/.env; cat /p/.env"),
    "the policy of the project": ("--privileged -v {project}:/p", "echo > /p/.mudroom/policy.yaml && echo OUT"),
    "the policy, mounted anew": (
        "--privileged -v {project}:/p",
        "mount -o remount,bind,rw /p/.mudroom; umount -l /p/.mudroom; echo > /p/.mudroom/policy.yaml && echo OUT",
    ),
    "processes outside": ("--privileged --pid=host", "ls /proc/*/root/{home} /proc/1/root/ && echo OUT"),
    "settings of the kernel": ("--privileged", "echo 1 > /proc/sys/kernel/panic && echo OUT"),
    "the network's settings": ("--privileged --network=host", "echo 1 > /proc/sys/net/ipv4/ip_forward && echo OUT"),
    "control groups": (
        "--privileged", "mkdir /g; for kind in cgroup2 'cgroup -o memory'; do mount -t $kind x /g && echo OUT; done",
    ),
    "control groups of a namespace": ("--privileged --cgroupns=private", "echo OUT"),
    "a device": ("--privileged", "mknod /dev/b b 254 0 && echo OUT; mknod /dev/m c 1 1 && echo OUT"),
    "a device of the host": ("--device /dev/kmsg", "echo OUT"),
    "the engine's sockets": ("--network=host", "nc -w 2 127.0.0.1 {port} </dev/null && echo OUT"),
}  # fmt: skip


def test_no_container_gets_out(place: Place, run: Run) -> None:
    place.write(".env", "TOKEN=OUT\n")
    place.write(".mudroom/policy.yaml", "version: 1\n")
    place.write(".git/HEAD", "ref: refs/heads/main\n")
    (place.home / ".ssh").mkdir()
    (place.home / ".ssh/id").write_text("OUT")
    words = {"home": place.home, "state": place.state, "project": place.project, "mark": MARK, "port": 22}
    script = []
    for name, (options, attempt) in ATTEMPTS.items():
        script.append(f'echo "# {name}"; $P run --rm {options} box sh -c "{attempt}" 2>&1'.format(**words))
    _session, result = run("\n".join(script))
    found = dict(part.split("\n", 1) for part in result.stdout.decode().split("# ")[1:])
    assert [*found] == [*ATTEMPTS]
    assert {name: out for name, out in found.items() if "OUT" in out} == {}
    assert not Path("/etc", MARK).exists()
    assert (place.project / ".mudroom/policy.yaml").read_text() == "version: 1\n"
