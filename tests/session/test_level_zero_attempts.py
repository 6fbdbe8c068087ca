# ruff: noqa: E501 - the attempts are one line each
"""Attempts at level 0 to change or keep what is not the fork's. Every one is judged from outside."""

from __future__ import annotations

import os
import socket
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Place, act_as, full_listing
from furnished_home import VIEWS, furnished, run, said, short
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from tiers import together

__all__ = ["furnished", "short"]  # fixtures
pytestmark = [pytest.mark.both_users, pytest.mark.root]


SHELL = {
    "write a dot file": "echo bad >> {h}/.bashrc",
    "replace a dot file": "echo bad > /tmp/x; mv /tmp/x {h}/.bashrc",
    "new file in the home": "touch {h}/new",
    "new directory in the home": "mkdir {h}/new {h}/.config/new",
    "new file in a part of the home": "touch {h}/.config/tool/new {h}/.config/new {h}/notes/new",
    "authorized keys": "mkdir -p {h}/.ssh && echo key > {h}/.ssh/authorized_keys",
    "a credential that was not named": "echo bad > {h}/.npmrc; mkdir -p {h}/.aws; echo bad > {h}/.aws/credentials",
    "autostart": "mkdir -p {h}/.config/autostart {h}/.config/systemd/user; echo x > {h}/.config/autostart/x",
    "chmod": "chmod 777 {h} {h}/.bashrc {h}/notes {p} {p}/f",
    "chown": "chown $(id -u) {h}/.bashrc",
    "touch": "touch -d 2001-01-01 {h}/.bashrc {h}/notes",
    "xattr": "setfattr -n user.x -v y {h}/.bashrc",
    "hard link": "ln {h}/.bashrc linked && echo bad > linked; ln {h}/.bashrc /tmp/linked && echo bad > /tmp/linked",
    "rename in the home": "mv {h}/notes {h}/other; mv {h}/.bashrc {h}/.other",
    "system": "touch /usr/mudroom-bad /etc/mudroom-bad /opt/mudroom-bad /var/mudroom-bad /mudroom-bad",
    "beside the project": "touch {p}/../bad; mkdir {p}/../bad2",
    "through /proc": "echo bad > /proc/self/root{h}/.bashrc; echo bad > /proc/1/root{h}/.bashrc; echo bad > /proc/self/cwd/../bad",
    "cron": "echo x > /var/spool/cron/crontabs/bad; echo x > /etc/cron.d/bad",
    "block devices": "for d in /dev/vd? /dev/sd? /dev/nvme0n1 /dev/loop0; do dd if=/dev/zero of=$d count=1 2>/dev/null; done; ls /dev",
    "make a device": "mknod /tmp/d b 253 0 && dd if=/tmp/d count=1 of=/tmp/x; mknod d b 254 0 && dd if=d count=1 of=x",
    "sysrq": "echo h > /proc/sysrq-trigger; echo /bin/bad > /proc/sys/kernel/core_pattern",
    "mount": "mount -o remount,rw /; mount -t tmpfs t {h}; umount {h}; umount -l {p}",
    "remove the project": "rm -rf {p}",
    "remove what is in it": "rm -rf {p}/* {p}/.[a-z]*",
    "remove the home": "rm -rf {h} {h}/* {h}/.[a-z]*",
    "remove the state": "rm -rf {s}",
}  # fmt: skip
NESTED = {
    "remount": "mount -o remount,bind,rw / ; mount -o remount,bind,rw {h}; mount -o remount,bind,rw {h}/notes; echo bad > {h}/notes/n; touch {h}/new",
    "unmount": "umount -l {h}; umount -l {p}; umount -l /tmp; umount -l /dev; umount -R {h}; echo bad >> {h}/.bashrc; cat {h}/.ssh/id_ed25519 {s}/vaults/*/project; rm -rf {p}/*",
    "bind elsewhere": "mkdir /tmp/m; mount --bind {h} /tmp/m; mount --rbind / /tmp/m; umount -R /tmp/m{h}; cat /tmp/m{h}/.ssh/id_ed25519; echo bad >> /tmp/m{h}/.bashrc; ls -A /tmp/m{s}",
    "bind without what is mounted in it": "mkdir /tmp/m; mount --bind / /tmp/m; cat /tmp/m{h}/.ssh/id_ed25519; echo bad >> /tmp/m{h}/.bashrc",
    "overlay": "mkdir /tmp/u /tmp/w /tmp/o; mount -t overlay o -o lowerdir={h},upperdir={h}/notes,workdir=/tmp/w,userxattr /tmp/o; echo bad > /tmp/o/bad; cat /tmp/o/.ssh/id_ed25519",
    "pivot": "mkdir /tmp/m; mount --rbind / /tmp/m; cd /tmp/m; pivot_root . mnt; echo bad >> {h}/.bashrc; cat {h}/.ssh/id_ed25519; umount -l /mnt; cat {h}/.ssh/id_ed25519",
    "chroot": "chroot /proc/1/root sh -c 'cat {h}/.ssh/id_ed25519; echo bad >> {h}/.bashrc'",
    "as its root": "chmod 777 {h}/.bashrc; chown 0 {h}/.bashrc; echo bad >> {h}/.bashrc; rm -rf {h}; cat {h}/.ssh/id_ed25519 /etc/shadow",
    "a device": "mknod /tmp/d b 254 0 && dd if=/tmp/d of=/tmp/x count=1; mknod {h}/d c 1 3",
    "devices through another proc": "mkdir /tmp/p; mount -t proc p /tmp/p; echo /bin/bad > /tmp/p/sys/kernel/core_pattern; echo h > /tmp/p/sysrq-trigger",
}  # fmt: skip
UNSHARED = {name: f"unshare MAPS sh -c {script!r}; true" for name, script in NESTED.items()}
NEW_API = r"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
L = ctypes.c_long
def call(*a):
    return libc.syscall(*(L(x) if isinstance(x, int) else ctypes.c_char_p(x) for x in a))
home = os.fsencode({h!r})
uid = os.getuid()
print("unshare", libc.unshare(0x10020000))
for name, value in (("setgroups", "deny"), ("uid_map", "%d %d 1" % (uid, uid)), ("gid_map", "%d %d 1" % (os.getgid(), os.getgid()))):
    try:
        open("/proc/self/" + name, "w").write(value)
    except OSError as error:
        print(name, error)
for path in (b"/", home, home + b"/notes"):
    for flags in (1, 1 | 0x8000):                      # OPEN_TREE_CLONE, AT_RECURSIVE
        tree = call(428, -100, path, flags)
        if tree < 0:
            continue
        attr = bytes(8) + (15).to_bytes(8, "little") + bytes(16)     # clear ro, nosuid, nodev, noexec
        print("setattr", path, flags, call(442, tree, b"", 0x1000 | (flags & 0x8000), attr, 32))
        for name in (b"notes/n", home[1:] + b"/notes/n", b"n", b".bashrc"):
            try:
                os.write(os.open(name, os.O_WRONLY, dir_fd=tree), b"bad")
            except OSError:
                pass
        for name in (b".ssh/id_ed25519", home[1:] + b"/.ssh/id_ed25519"):
            try:
                print(os.read(os.open(name, os.O_RDONLY, dir_fd=tree), 100))
            except OSError:
                pass
    print("unmount", libc.umount2(path, 2))                             # MNT_DETACH
    print("remount", libc.mount(None, path, None, 32 | 4096, None))    # MS_REMOUNT, MS_BIND: without MS_RDONLY
    print("direct", call(442, -100, path, 0x8000, bytes(8) + (1).to_bytes(8, "little") + bytes(16), 32))
try:
    open(home + b"/.bashrc", "ab").write(b"bad")
except OSError:
    pass
"""


def system_listing() -> dict[str, Any]:
    """What the attempts would leave in the system: nothing else, as other programs work there, too."""
    found: dict[str, Any] = {"core_pattern": Path("/proc/sys/kernel/core_pattern").read_text()}
    for directory in ("/", "/usr", "/etc", "/opt", "/var", "/etc/cron.d", "/boot"):
        if os.path.isdir(directory):
            left = [name for name in os.listdir(directory) if "bad" in name]
            found[directory] = (left, stat.S_IMODE(os.stat(directory).st_mode))
    return found


def attempt(place: Place, script: str, view: str) -> Result:
    """Run it, and see from outside that nothing has changed and nothing has been read."""
    around = {"p": str(place.project), "h": str(place.home), "s": str(place.state)}
    for name, path in around.items():
        script = script.replace("{" + name + "}", path)
    session = place.session(Settings(view=view))  # type: ignore[arg-type]
    act_as(session, level=0)
    home, project, system = full_listing(place.home), full_listing(place.project), system_listing()
    modes = [os.stat(path).st_mode for path in (place.home, place.project)]
    result = session.run([b"sh", b"-c", script.encode()])
    assert result.level == 0
    assert (full_listing(place.home), full_listing(place.project)) == (home, project)
    assert [os.stat(path).st_mode for path in (place.home, place.project)] == modes
    assert {"home", "project", "state"} >= set(os.listdir(place.root))
    assert system_listing() == system
    assert "HIDDEN" not in said(result)
    assert session.vault.fork(result.fork).name == result.fork
    return result


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("script", together(SHELL).values(), ids=together(SHELL))
def test_an_attempt(furnished: Place, script: str, view: str) -> None:
    attempt(furnished, script, view)


@pytest.mark.parametrize("maps", ["-Urm", "-Um"])
@pytest.mark.parametrize("script", together(UNSHARED).values(), ids=together(UNSHARED))
def test_an_attempt_from_a_nested_namespace(furnished: Place, script: str, maps: str) -> None:
    (furnished.root / "state").mkdir(exist_ok=True)
    attempt(furnished, script.replace("MAPS", maps), "overlay")


def test_an_attempt_by_the_new_mount_api(furnished: Place) -> None:
    program = NEW_API.replace("{h!r}", repr(str(furnished.home)))
    furnished.write("attempt.py", program)
    result = attempt(furnished, f"{sys.executable} attempt.py", "overlay")
    assert b"unshare 0" in result.stdout
    assert b"setattr" in result.stdout
    for word in (b"direct", b"unmount", b"remount"):
        assert result.stdout.count(word + b" -1") == 3


CGROUPS = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
for flags in (0x12020000, 0x02000000, 0x10020000):      # user and mount namespace, with one of control groups and without
    print(libc.unshare(flags) and errno.errorcode[ctypes.get_errno()])
for kind, options in ((b"cgroup", b"memory"), (b"cgroup", b"pids"), (b"cgroup2", None)):
    print(libc.mount(b"c", b"/mnt", kind, 0, options))
"""


def test_limits_cannot_be_lifted_from_a_nested_namespace(furnished: Place) -> None:
    furnished.write("attempt.py", CGROUPS)
    result = attempt(furnished, f"{sys.executable} attempt.py", "overlay")
    assert result.stdout.split() == [b"EPERM", b"EPERM", b"0", b"-1", b"-1", b"-1"]
    assert {denial.target for denial in result.denials} == {b"unshare"}


@pytest.mark.parametrize("view", VIEWS)
def test_nothing_outlives_the_command(furnished: Place, view: str) -> None:
    word = f"mudroom-orphan-{os.getpid()}-{view}"
    script = f"(setsid sh -c 'exec -a {word} sleep 1000' &) ; (setsid bash -c 'exec -a {word} sleep 1000' >/dev/null 2>&1 &) ; sleep 0.1"
    run(furnished, script, view)
    found = [pid for pid in os.listdir("/proc") if pid.isdigit() and word.encode() in cmdline(pid)]
    assert found == []


def cmdline(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""  # it has ended


@pytest.mark.parametrize("view", VIEWS)
def test_no_network_is_none(furnished: Place, view: str) -> None:
    """An abstract socket of the host, and a server on its loopback: both are in another network namespace."""
    abstract = f"\0mudroom-{os.getpid()}-{view}"
    with socket.socket(socket.AF_UNIX) as named, socket.socket() as server:
        named.bind(abstract)
        named.listen()
        server.bind(("127.0.0.1", 0))
        server.listen()
        program = (
            "import socket; print([socket.socket(f).connect_ex(a) != 0 for f, a in ((socket.AF_INET, "
            f"('127.0.0.1', {server.getsockname()[1]})), (socket.AF_UNIX, {abstract!r}))])"
        )
        furnished.write("try.py", program)
        script = f"tail -n +3 /proc/net/dev | cut -d: -f1; {sys.executable} try.py"
        session = furnished.session(Settings(view=view, level=0, network="none"))  # type: ignore[arg-type]
        assert said(session.run([b"sh", b"-c", script.encode()])).split() == ["lo", "[True,", "True]"]
        reached = said(run(furnished, script, view)).split()
        assert "[False," in reached
