"""Level 2 from the engine's side and from inside: what a container of ours is, and what one has who is loose in it.

``engine.ask("exec", …)`` starts a process as the container's user beside the launcher, without the namespaces and the
filter that a command has: what somebody is who has got out of them.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from conftest import Place, full_listing
from engines import EngineHere
from mudroom.core.confinement.limit import Limits
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError

PYTHON = "/usr/bin/python3"


def container_of(place: Place, engine: EngineHere, settings: Settings | None = None) -> str:
    """The id of one that is warm, after a first command."""
    result = engine.session(place, settings).run([b"sh", b"-c", b"echo new > f"], fork="f")
    assert (result.exit_code, result.level) == (0, 2), result
    assert [change.path for change in result.changeset.changes] == [b"f"]
    return engine.containers(place.root)[0]


def loose(engine: EngineHere, name: str, script: str) -> str:
    """What a shell in the container says, as its user."""
    return engine.ask("exec", name, "sh", "-c", f"{{ {script}; }} 2>&1 || true")


def test_the_command_line_leaves_no_container(place: Place, engine: EngineHere) -> None:
    done = engine.mudroom(place, "run", "--no", "--level", "2", "--", "echo", "inside")
    assert (done.returncode, done.stdout) == (0, "inside\n"), done.stderr
    assert engine.left(place.root) == []


def test_what_the_engine_was_asked_for(place: Place, engine: EngineHere) -> None:
    found = engine.inspect(container_of(place, engine))
    config = found["HostConfig"]
    assert config["NetworkMode"] == "none"
    assert config["Privileged"] is False
    assert config["ReadonlyRootfs"] is True
    assert config["AutoRemove"] is True
    assert config["CapAdd"] in ([], None)
    assert config["CapDrop"]
    assert config["IpcMode"] != "host"
    assert config["PidMode"] in ("", "private")
    assert not config["Devices"]
    options = config["SecurityOpt"]
    assert any(one.startswith("no-new-privileges") for one in options)
    assert any("seccomp=" in one and "unconfined" not in one for one in options)
    user = found["Config"]["User"].split(":")
    assert "0" not in user
    assert len(user) == 2
    environment = " ".join(found["Config"]["Env"] or ())
    assert "SECRET" not in environment
    assert str(place.home) not in environment

    # Only what is needed is mounted, and read-only where it can be.
    mounts: list[dict[str, Any]] = [one for one in found["Mounts"] if one["Type"] == "bind"]
    vault = os.path.dirname(next((place.state / "vaults").glob("*/journal.db")))
    writable = {one["Source"] for one in mounts if one["RW"]}
    copies = {path for path in writable if "/forks/" in path or "/copies/" in path}
    assert {path for path in writable - copies if not path.startswith((f"{vault}/layers", f"{vault}/cache"))} == set()
    shown = {one["Source"] for one in mounts}
    for hidden in (vault, str(place.state), str(place.home), f"{vault}/blobs", f"{vault}/journal.db", "/", "/home"):
        assert hidden not in shown
    assert not [path for path in shown if path.endswith((".sock", "docker.sock")) or path.startswith(("/run", "/dev/"))]


def test_limits_are_the_engines(place: Place, engine: EngineHere) -> None:
    if engine.kind == "podman" and os.geteuid():
        pytest.skip("Podman without root holds no limits where control groups are of version 1")
    settings = Settings(limits=Limits(memory=256 << 20, processes=100))
    config = engine.inspect(container_of(place, engine, settings))["HostConfig"]
    assert 256 << 20 <= config["Memory"] < 384 << 20  # what the launcher needs is beside it
    assert 100 <= config["PidsLimit"] < 120


# --- loose in the container ---


def no_privileges(_place: Place, engine: EngineHere, name: str) -> None:
    status = loose(engine, name, "cat /proc/self/status")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    for field in ("CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(fields[field], 16) == 0, field
    assert fields["NoNewPrivs"].strip() == "1"
    assert fields["Seccomp"].strip() == "2"
    assert "0" not in fields["Uid"].split()


def no_network(_place: Place, engine: EngineHere, name: str) -> None:
    said = loose(engine, name, "tail -n +3 /proc/net/dev; tail -n +2 /proc/net/route")
    assert [line.split(":")[0].strip() for line in said.splitlines()] == ["lo"]
    sockets = [line.split() for line in loose(engine, name, "tail -n +2 /proc/net/unix").splitlines()]
    assert [one for one in sockets if one[3] == "00010000"] == [], "nobody listens (__SO_ACCEPTCON)"
    with socket.create_server(("0.0.0.0", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0mudroom-walls")
        abstract.listen()
        port = server.getsockname()[1]
        program = f"""
import socket
for family, address in (
    (2, ("127.0.0.1", {port})), (2, ("1.1.1.1", 53)), (2, ("169.254.169.254", 80)), (10, ("::1", {port})),
    (10, ("2606:4700::1111", 53)), (1, chr(0) + "mudroom-walls"), (1, "/var/run/docker.sock"), (1, "/run/docker.sock"),
):
    for kind in (1, 2):
        one = socket.socket(family, kind)
        one.settimeout(2)
        try:
            one.connect(address)
            if kind == 2 and family != 1: one.send(b"x")
        except OSError: continue
        if kind == 2 and family != 1 and address[0] in ("127.0.0.1", "::1"): continue  # nobody hears it
        print("reached", family, kind, address)
for family, kind in ((17, 3), (2, 3), (16, 3), (40, 1), (38, 5)):
    try: made = socket.socket(family, kind, 15 if family == 16 else 0)
    except OSError: continue
    print("made", family, kind)
"""
        assert engine.ask("exec", name, PYTHON, "-I", "-S", "-c", program) == ""


def nothing_of_the_host(place: Place, engine: EngineHere, name: str) -> None:
    secret = place.home / ".ssh/id_ed25519"
    vault = os.path.dirname(next((place.state / "vaults").glob("*/journal.db")))
    for path in (
        secret,
        place.root / "beside",
        f"{vault}/journal.db",
        f"{vault}/forks/*/state",
        "/root/.ssh",
        "/home/*/.ssh",
    ):
        assert "No such file" in loose(engine, name, f"ls -d {path}"), path
    assert (
        loose(engine, name, "find / -xdev -name docker.sock -o -xdev -name podman.sock -o -xdev -name s -type s") == ""
    )
    processes = loose(engine, name, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "pytest" not in processes
    assert "dockerd" not in processes


HELD = (
    "echo x > /usr/planted", "echo x > /etc/planted", "echo x > /planted", "echo x > /.mudroom-door/s",
    "echo x > /.mudroom/src/mudroom/sandbox/init.py", "rm /.mudroom/bin/python3", "echo x > {project}/planted",
    "rm {project}/kept", "chmod 600 {project}/kept", "mv {project}/kept /tmp/kept", "touch {project}/kept",
    "echo /x > /proc/sys/kernel/core_pattern", "echo b > /proc/sysrq-trigger", "head -c1 /proc/kcore",
    "head -c1 /dev/mem", "mount -t tmpfs t /usr", "mount -o remount,rw /", "mount -o remount,bind,rw {project}",
    "umount /usr",
    "umount {project}", "chroot / true", "mknod /tmp/sda b 8 0", "head -c1 /dev/vda", "setpriv --reuid 0 true",
    "echo /x > /sys/fs/cgroup/release_agent", "mkdir /sys/fs/cgroup/x", "mkdir /sys/fs/cgroup/memory/x",
    "echo 1 > /sys/kernel/uevent_helper",
    "ls /proc/1/root/home/*/.ssh", "nsenter -t 1 -m true", "nsenter -t 1 -n true", "keyctl show",
)  # fmt: skip
"""What must fail for who is loose in a container; a line each, for a shell."""


def nothing_changes(place: Place, engine: EngineHere, name: str) -> None:
    before = full_listing(place.project)
    lines = [line.format(project=place.project) for line in HELD]
    script = "\n".join(f"( {line} ) >/dev/null 2>&1 && echo {number}" for number, line in enumerate(lines))
    got = engine.ask("exec", name, "sh", "-c", f"{script}\ntrue").split()
    assert [lines[int(number)] for number in got] == []
    assert full_listing(place.project) == before


def test_who_is_loose_is_still_in_a_container(place: Place, engine: EngineHere) -> None:
    place.write("kept", "kept")
    place.home.joinpath(".ssh").mkdir()
    for path in (place.home / ".ssh/id_ed25519", place.root / "beside"):
        path.write_text("HIDDEN")
    name = container_of(place, engine)
    for proves in (no_privileges, no_network, nothing_of_the_host, nothing_changes):
        proves(place, engine, name)


def test_no_name_that_a_plan_shows_can_be_replaced(place: Place, engine: EngineHere) -> None:
    """Caches and layers are in it one by one: a link in the place of one would be shown to the next command."""
    target = place.root / "target"
    target.mkdir()
    name = container_of(place, engine)
    vault = os.path.dirname(next((place.state / "vaults").glob("*/journal.db")))
    replace = f"cd {vault}; for d in cache/* layers/*; do mv $d $d.old; rmdir $d; ln -sfnT {target} $d; done"
    loose(engine, name, f"{replace}; ln -sT {target} cache/planted; ln -sT {target} layers/planted")
    assert [path for path in Path(vault).rglob("*") if path.is_symlink()] == []
    assert not list(Path(vault, "cache").rglob("*.old"))
    session = place.session()
    assert session.run([b"sh", b"-c", b"echo mine > ~/.npm/mine"], fork="f").exit_code == 0
    assert os.listdir(target) == []


def test_a_link_that_is_planted_in_a_layer_is_not_followed(place: Place, engine: EngineHere) -> None:
    target = place.root / "target"
    target.mkdir()
    place.write("g", "one")
    name = container_of(place, engine)
    vault = os.path.dirname(next((place.state / "vaults").glob("*/journal.db")))
    plant = f"mv $d/tree $d/other; for n in tree originals record record.new; do ln -s {target} $d/$n; done"
    loose(engine, name, f"for d in {vault}/layers/*; do {plant}; done")
    planted = [path for path in Path(vault).rglob("*") if path.is_symlink()]
    if not os.geteuid():  # its containers have a copy, and no layer
        assert planted == []
        return
    assert len(planted) == 4
    for session in (place.session(), engine.session(place)):
        with pytest.raises(MudroomError, match="is not a directory that mudroom made") as caught:
            session.run([b"sh", b"-c", b"echo mine > mine; echo two > g"], fork="f")
        assert "\n" not in str(caught.value)
    assert os.listdir(target) == []


# --- one fork and another ---


SERVER = """
import socket, sys
server = socket.create_server(("0.0.0.0", 7777))
named = socket.socket(1); named.bind(chr(0) + "mine"); named.listen()
for path in ("mine", "/tmp/mine", "/dev/shm/mine"): open(path, "w").write("one")
print("ready", flush=True); sys.stdin.read()
"""
LOOK = """
import glob, os, socket
for path in ("mine", "/tmp/mine", "/dev/shm/mine"):
    if os.path.exists(path): print("saw", path)
for path in glob.glob("/proc/[0-9]*/cmdline"):
    if b"secret" + b"-word" in open(path, "rb").read(): print("saw", path)
for family, address in ((2, ("127.0.0.1", 7777)), (1, chr(0) + "mine")):
    one = socket.socket(family); one.settimeout(2)
    try: one.connect(address)
    except OSError: continue
    print("reached", address)
print("looked")
"""


def test_forks_do_not_meet(place: Place, engine: EngineHere) -> None:
    """Each has a container of its own: no file, no process, no socket of one is to be seen by the other."""
    session = engine.session(place)
    server = session.start([PYTHON.encode(), b"-c", SERVER.encode(), b"secret-word"], fork="one")
    found = session.run([PYTHON.encode(), b"-c", LOOK.encode()], fork="two")
    assert found.stdout == b"looked\n", found
    assert len(engine.containers(place.root)) == 2
    server.end()


def test_a_commands_launcher_is_out_of_reach(place: Place, engine: EngineHere) -> None:
    """Memory, descriptors and files of process 1, and what the launcher is made of."""
    session = engine.session(place)
    script = (
        "for f in /proc/1/mem /proc/1/environ /proc/1/fd/3 /proc/1/root/.mudroom /proc/1/cwd/.mudroom /.mudroom/bin "
        "/.mudroom-door /proc/1/map_files; do ls $f/ >/dev/null 2>&1 && echo listed $f; "
        "{ head -c1 $f >/dev/null 2>&1 || head -c1 $f | grep -q .; } 2>/dev/null && echo read $f; "
        "{ echo x > $f; } 2>/dev/null && echo wrote $f; done; true"
    )
    for mode in ("overlay", "plain"):
        session.machine.confinement.mode_contained = mode
        found = session.run([b"sh", b"-c", script.encode()], fork=mode)
        allowed = {"overlay": set[str](), "plain": {"listed /.mudroom/bin", "listed /.mudroom-door"}}[mode]
        assert set(found.stdout.decode().splitlines()) - allowed == set(), mode


def test_writes_outside_the_project_are_nobodys(place: Place, engine: EngineHere) -> None:
    session = engine.session(place)
    places = "/ /usr /etc /opt /var /home /sys /proc /.mudroom /dev"
    script = f"for d in {places}; do touch $d/planted 2>/dev/null && echo $d; done; true".encode()
    for mode in ("overlay", "plain"):
        session.machine.confinement.mode_contained = mode
        found = session.run([b"sh", b"-c", script], fork=mode)
        assert found.stdout == b"", mode
        assert found.changeset.changes == ()
        assert not Path("/usr/planted").exists()
