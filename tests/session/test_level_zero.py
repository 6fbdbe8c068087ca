# ruff: noqa: E501 - the attempts are one line each
"""Level 0: no isolation, and still nothing on disk changes but the fork and the credential stores that were named.
Every attempt is judged from outside."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import Place, act_as, full_listing, tick
from mudroom.core.agent.card import AgentCard, Requirements
from mudroom.core.agent.sandbox_level import BARE, REFUSE, LevelPolicy
from mudroom.core.result import Result, to_json
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.sandbox.client.client import Client
from mudroom.stage.layers.layer import remove_tree

pytestmark = pytest.mark.both_users

VIEWS = ("overlay", "copy")


def run(place: Place, script: str, view: str = "overlay", card: AgentCard | None = None, **environ: str) -> Result:
    """One command at level 0, in a session of its own."""
    level = None if card is not None else 0
    session = place.session(Settings(view=view))  # type: ignore[arg-type]
    act_as(session, level=level, card=card)
    extra = {name.encode(): value.encode() for name, value in environ.items()}
    session.machine.confinement.variables = {
        **session.machine.confinement.variables,
        b"HOME": os.fsencode(place.home),
        **extra,
    }
    return session.run([b"sh", b"-c", script.encode()])


def said(result: Result) -> str:
    return (result.stdout + result.stderr).decode()


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory outside of /tmp, which is private inside; with a short name: a socket's has at most 107 bytes
    (unix(7))."""
    above = "/var/lib" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_dir
    directory = Path(tempfile.mkdtemp(prefix="mudroom-", dir=above))
    directory.chmod(0o755)
    yield directory
    remove_tree(os.fsencode(directory))  # the launcher may remove work directories meanwhile


@pytest.fixture
def furnished(short: Path, client: Client) -> Iterator[Place]:
    """A home as people have them."""
    place = Place(short, client)
    furnish(place)
    yield place
    place.close()


def furnish(place: Place) -> None:
    place.write("f", "one\n")
    place.write("d/x", "x\n")
    files = {
        ".bashrc": "rc", ".profile": "p", "notes/n": "note", ".ssh/id_ed25519": "HIDDEN", ".npmrc": "HIDDEN",
        ".config/gh/hosts.yml": "HIDDEN", ".config/tool/settings": "shown", ".aws/credentials": "HIDDEN",
        ".docker/config.json": "HIDDEN", ".cargo/credentials.toml": "HIDDEN", ".cargo/env": "shown",
        ".local/share/keyrings/login.keyring": "HIDDEN", ".local/share/other/x": "shown", ".netrc": "HIDDEN",
        ".claude/.credentials.json": "HIDDEN", ".claude.json": "HIDDEN", ".git-credentials": "HIDDEN",
        ".oddtool/auth.json": "HIDDEN", "bin/tool": "#!/bin/sh\necho works\n",
    }  # fmt: skip
    for name, content in files.items():
        path = place.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (place.home / "bin/tool").chmod(0o755)
    (place.home / "linked").symlink_to("notes/n")


# --- it works -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", VIEWS)
def test_the_project_is_staged_at_its_own_path(furnished: Place, view: str) -> None:
    result = run(furnished, "pwd; echo two >> f; rm -r d; mkdir n; echo n > n/n; chmod 755 f", view)
    assert said(result) == f"{furnished.project}\n"
    assert sorted(change.path for change in result.changeset.changes) == [b"d", b"d/x", b"f", b"n", b"n/n"]
    assert (furnished.project / "f").read_text() == "one\n"
    assert (furnished.project / "d/x").exists()


def test_it_says_that_nothing_is_isolated(furnished: Place) -> None:
    result = run(furnished, "true")
    assert result.level == to_json(result)["level"] == 0
    assert BARE in result.notes
    assert "no isolation" in BARE


def test_a_home_in_a_private_place(place: Place) -> None:
    furnish(place)
    found = said(
        run(
            place,
            "cd; cat .bashrc; cat linked; bin/tool; grep -rls HIDDEN .; echo x > .cache/x; touch x 2>/dev/null || echo over",
        )
    )
    assert found == "rcnoteworks\nover\n"


def test_the_home_is_there_without_its_credentials(furnished: Place) -> None:
    listed = said(run(furnished, "cd; find . -type f -o -type l | sort; cat linked; bin/tool"))
    for shown in (".bashrc", "notes/n", ".config/tool/settings", ".cargo/env", ".local/share/other/x", "linked"):
        assert f"./{shown}\n" in listed
    assert listed.endswith("noteworks\n")
    for hidden in ("id_ed25519", "npmrc", "hosts.yml", "credentials", "keyring", "netrc", "claude", "auth.json"):
        assert hidden not in listed


@pytest.mark.parametrize("view", VIEWS)
def test_credentials_that_were_not_named_cannot_be_read_by_any_path(furnished: Place, view: str) -> None:
    found = said(run(furnished, "grep -rs HIDDEN ~ /proc/self/root$HOME /proc/1/root$HOME; echo over", view))
    assert found == "over\n"


def test_mudrooms_own_state_is_not_there(furnished: Place) -> None:
    found = said(run(furnished, f"ls -A {furnished.state}; find {furnished.root} -name journal.db; echo over"))
    assert (furnished.state / "vaults").exists()
    assert found == "over\n"


def test_temporary_files_and_caches_are_its_own(furnished: Place) -> None:
    mark = Path("/var/tmp/mudroom-level-zero")
    result = run(furnished, f"touch /tmp/a /dev/shm/b {mark} ~/.cache/c && mktemp && ls /tmp")
    assert result.exit_code == 0
    assert not mark.exists()
    assert not (furnished.home / ".cache").exists()
    assert said(run(furnished, "ls ~/.cache /dev/shm")).split() == [
        str(p) for p in ("/dev/shm:", f"{furnished.home}/.cache:", "c")
    ]


def test_caches_that_are_the_whole_of_a_directory(place: Place) -> None:
    """Nothing of ``~/.cargo`` is missing or hidden, so it is shown as it is, read-only: nothing can be made in it."""
    for name in ("registry", "git"):
        (place.home / ".cargo" / name).mkdir(parents=True, exist_ok=True)
    result = run(place, "echo x > ~/.cargo/git/new && cat ~/.cargo/git/new; ls ~/.cargo/registry")
    assert said(result) == "x\n"
    assert not (place.home / ".cargo/git/new").exists()


def test_the_network_is_the_hosts(furnished: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        assert run(furnished, f'{sys.executable} -c "{script}"').exit_code == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root cannot map itself into a nested namespace without CAP_SETFCAP")
def test_a_sandbox_of_its_own_works_inside(furnished: Place) -> None:
    nested = "unshare -Urmp --fork --mount-proc sh -c 'mount -t tmpfs t /mnt && touch /mnt/x && ls /proc/1/status'"
    result = run(furnished, nested)
    assert (result.exit_code, said(result)) == (0, "/proc/1/status\n")


def test_it_is_remembered(furnished: Place) -> None:
    session = furnished.session()
    act_as(session, level=0)
    session.run([b"true"])
    last = [event for event in session.vault.journal.events(last=None) if event.kind == "run"][-1]
    assert json.loads(last.data)["level"] == 0


# --- attempts -----------------------------------------------------------------------------------------------------------

SHELL = {
    "remove the project": "rm -rf {p}",
    "remove what is in it": "rm -rf {p}/* {p}/.[a-z]*",
    "remove the home": "rm -rf {h} {h}/* {h}/.[a-z]*",
    "remove the state": "rm -rf {s}",
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
@pytest.mark.parametrize("name", SHELL)
def test_an_attempt(furnished: Place, name: str, view: str) -> None:
    attempt(furnished, SHELL[name], view)


@pytest.mark.parametrize("maps", ["-Urm", "-Um"])
@pytest.mark.parametrize("name", NESTED)
def test_an_attempt_from_a_nested_namespace(furnished: Place, name: str, maps: str) -> None:
    (furnished.root / "state").mkdir(exist_ok=True)
    attempt(furnished, f"unshare {maps} sh -c " + repr(NESTED[name]) + "; true", "overlay")


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


# --- credentials --------------------------------------------------------------------------------------------------------


def card(**needs: Any) -> AgentCard:
    return AgentCard("agent", 0, Requirements(**needs))


@pytest.mark.parametrize("view", VIEWS)
def test_a_named_store_is_the_hosts_own(furnished: Place, view: str) -> None:
    """A token is refreshed as tools do it, by a new file and a rename: inside, and outside while the command runs."""
    store = furnished.home / ".config/gh"
    (store / "there").write_text("")
    script = (
        "cat ~/.config/gh/hosts.yml; echo new > ~/.config/gh/t && mv ~/.config/gh/t ~/.config/gh/hosts.yml;"
        "mkfifo ~/.config/gh/go; cat ~/.config/gh/go > /dev/null; cat ~/.config/gh/hosts.yml"
    )

    def outside() -> None:
        while not (store / "go").exists():
            if over.wait(0.002):
                return
        seen.append((store / "hosts.yml").read_text())
        (store / "t").write_text("newer\n")
        os.rename(store / "t", store / "hosts.yml")
        (store / "go").write_text("")

    seen: list[str] = []
    over = threading.Event()
    other = threading.Thread(target=outside)
    other.start()
    result = run(furnished, script, view, card(keychain=("gh",)))
    over.set()
    other.join()
    assert said(result) == "HIDDENnewer\n"
    assert seen == ["new\n"]
    assert result.credentials == ("gh",)
    assert to_json(result)["credentials"] == ["gh"]
    assert any("credentials open to the command" in note and "gh" in note for note in result.notes)


def test_only_what_is_named_is_open(furnished: Place) -> None:
    named = card(oauth=("gh",), keychain=("~/.oddtool/auth.json",))
    found = said(run(furnished, "cd; grep -rls HIDDEN . | sort", card=named))
    assert found.split() == ["./.config/gh/hosts.yml", "./.oddtool/auth.json"]


def test_a_store_that_is_a_file_is_written_in_place(furnished: Place) -> None:
    session = furnished.session()
    act_as(session, card=card(keychain=("npm", "claude")))

    def told(script: str) -> str:
        return said(session.run([b"sh", b"-c", script.encode()], fork="a"))

    assert told("cat ~/.npmrc; echo two > ~/.npmrc") == "HIDDEN"
    assert (furnished.home / ".npmrc").read_text() == "two\n"
    (furnished.home / "new").write_text("three\n")
    os.rename(furnished.home / "new", furnished.home / ".npmrc")
    assert told("cat ~/.npmrc; cat ~/.claude/.credentials.json") == "three\nHIDDEN"
    assert told("echo four > /tmp/x; mv /tmp/x ~/.npmrc 2>/dev/null; cat ~/.npmrc") in ("three\n", "four\n")


def test_a_store_behind_a_link(furnished: Place) -> None:
    os.rename(furnished.home / ".config/gh", furnished.home / "dotfiles-gh")
    (furnished.home / ".config/gh").symlink_to("../dotfiles-gh")
    assert "HIDDEN" not in said(run(furnished, "cat ~/.config/gh/hosts.yml ~/dotfiles-gh/hosts.yml"))
    assert (
        said(run(furnished, "cat ~/.config/gh/hosts.yml; echo x > ~/.config/gh/y", card=card(keychain=("gh",))))
        == "HIDDEN"
    )
    assert (furnished.home / "dotfiles-gh/y").read_text() == "x\n"


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("target", ["../../.bashrc", "../../notes", "inner"])
def test_a_link_that_an_agent_puts_into_its_store_opens_nothing_to_another(
    furnished: Place, target: str, level: int
) -> None:
    """Neither directly, nor by a link that lies beside it; and its own store is open all the same."""
    before = full_listing(furnished.home / "notes"), (furnished.home / ".bashrc").read_text()
    session = furnished.session()
    act_as(session, card=AgentCard("one", level, Requirements(keychain=("~/.config/tool",))))
    plant = f"cd ~/.config/tool; ln -s ../../.bashrc inner; ln -s {target} token"
    assert session.run([b"sh", b"-c", plant.encode()], fork="one").exit_code == 0
    act_as(session, card=AgentCard("two", level, Requirements(keychain=("~/.config/tool/token",))))
    result = session.run([b"sh", b"-c", b"echo bad >> ~/.config/tool/token; echo bad > ~/.config/tool/token/n"])
    assert result.credentials == ()
    assert (full_listing(furnished.home / "notes"), (furnished.home / ".bashrc").read_text()) == before
    assert any("is a symlink to a place that is not named: not opened" in note for note in result.notes)
    act_as(session, card=AgentCard("one", level, Requirements(keychain=("~/.config/tool",))))
    assert said(session.run([b"cat", os.fsencode(furnished.home / ".config/tool/settings")], fork="one")) == "shown"


def test_a_link_to_what_is_named_too_is_followed_wherever_it_lies(furnished: Place) -> None:
    (furnished.home / ".config/tool/token").symlink_to("../../notes/n")
    named = card(keychain=("~/.config/tool/token", "~/notes"))
    result = run(furnished, "echo x > ~/.config/tool/token", card=named)
    assert result.credentials == ("~/.config/tool/token", "~/notes")
    assert (furnished.home / "notes/n").read_text() == "x\n"
    real = furnished.home / "notes/n"
    assert f"credentials ~/.config/tool/token: {furnished.home}/.config/tool/token is a symlink: {real} is open" in (
        result.notes
    )


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("place", ["~/.config", "~/.local", "~/linked-config"])
def test_a_directory_of_other_tools_places_is_not_opened(furnished: Place, place: str, level: int) -> None:
    """Links in there are followed: no agent may put one."""
    (furnished.home / ".local/share").mkdir(parents=True, exist_ok=True)
    (furnished.home / "linked-config").symlink_to(".config")
    session = furnished.session()
    act_as(session, card=AgentCard("one", level, Requirements(keychain=(place,))))
    result = session.run([b"sh", b"-c", b"touch ~/.config/bad ~/.local/bad"])
    assert result.credentials == ()
    assert not (furnished.home / ".config/bad").exists()
    assert not (furnished.home / ".local/bad").exists()
    why = "is a symlink to a place that is not named" if "linked" in place else "contains other tools' stores"
    assert any(why in note for note in result.notes)


@pytest.mark.parametrize("target", ["..", "../.ssh", "/", "/etc", "../.aws/credentials", "../.config"])
@pytest.mark.parametrize("level", [0, 1])
def test_a_link_in_the_place_of_a_store_opens_nothing(furnished: Place, target: str, level: int) -> None:
    """Whoever may write beside a store could have put it there."""
    os.rename(furnished.home / ".config/gh", furnished.home / "away")
    (furnished.home / ".config/gh").symlink_to(target)
    before = full_listing(furnished.home)
    session = furnished.session()
    act_as(session, card=AgentCard("agent", level, Requirements(keychain=("gh",))))
    result = session.run([b"sh", b"-c", b"cd ~/.config/gh && { touch bad; ls -A; cat id_ed25519; }; cat ~/.config/gh"])
    assert full_listing(furnished.home) == before
    assert result.credentials == ()
    assert "HIDDEN" not in said(result)
    assert any("is a symlink to a place that is not named: not opened" in note for note in result.notes)


def test_files_that_the_policy_shows(furnished: Place) -> None:
    settings = Settings(
        level=0, credentials=(b"~/.netrc", b"~/.ssh/id_ed25519"), read=(os.fsencode(furnished.home / ".aws"),)
    )
    session = furnished.session(settings)
    script = b"cd; grep -rls HIDDEN . | sort; for f in .netrc .ssh/id_ed25519 .aws/credentials; do echo bad > $f; done 2>/dev/null"
    result = session.run([b"sh", b"-c", script])
    assert result.stdout.split() == [b"./.aws/credentials", b"./.netrc", b"./.ssh/id_ed25519"]
    assert (furnished.home / ".netrc").read_text() == (furnished.home / ".aws/credentials").read_text() == "HIDDEN"


def test_a_user_without_a_home(furnished: Place) -> None:
    shutil.rmtree(furnished.home)
    result = run(furnished, "cd && touch ~/.cache/x && ls -A / > /dev/null && echo over")
    assert said(result) == "over\n"
    assert not furnished.home.exists()


def test_a_project_in_a_hidden_place(furnished: Place) -> None:
    furnished.project = furnished.home / ".claude/plugin"
    furnished.project.mkdir()
    (furnished.project / "f").write_text("one\n")
    result = run(furnished, "cat f; echo two > f; ls -A ~/.claude")
    assert (said(result), [change.path for change in result.changeset.changes]) == ("one\nplugin\n", [b"f"])
    assert (furnished.project / "f").read_text() == "one\n"


def test_what_is_named_and_not_there_is_said(place: Place) -> None:
    result = run(place, "touch ~/.config/gh/x", card=card(keychain=("gh", "~/.nothing")))
    assert result.credentials == ()
    assert [note for note in result.notes if note.startswith("credentials")] == [
        "credentials gh: not found: ~/.config/gh (a login inside will not be kept)",
        "credentials ~/.nothing: not found: ~/.nothing (a login inside will not be kept)",
    ]
    assert list(place.home.iterdir()) == []


@pytest.mark.parametrize("level", [0, 1])
def test_a_store_never_holds_the_project(tmp_path: Path, place: Place, level: int) -> None:
    project = place.home / "work/project"
    project.mkdir(parents=True)
    place.project = project
    session = place.session()
    act_as(session, card=AgentCard("a", level, Requirements(keychain=("~/work",))))
    with pytest.raises(UsageError, match="the project is there"):
        session.run([b"true"])
    assert sorted(os.listdir(tmp_path)) == ["home", "project", "state"]


def test_at_level_1_the_named_store_is_open_and_nothing_else(furnished: Place) -> None:
    session = furnished.session()
    act_as(session, card=AgentCard("a", 1, Requirements(keychain=("gh",))))
    result = session.run(
        [b"sh", b"-c", b"cd; cat .config/gh/hosts.yml; cat .bashrc; echo x > .config/gh/t; ls -A .config"]
    )
    assert result.level == 1
    assert result.credentials == ("gh",)
    assert result.stdout == b"HIDDENfish\ngh\ngit\n"  # fish and git: settings of the fork's own
    assert (furnished.home / ".config/gh/t").read_text() == "x\n"


# --- sockets ------------------------------------------------------------------------------------------------------------


@contextmanager
def daemon(path: Path) -> Iterator[None]:
    """A program of the host that answers on a unix socket."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        path.chmod(0o777)
        server.listen(8)
        over = threading.Event()

        def serve() -> None:
            while True:
                connection, _address = server.accept()
                if over.is_set():
                    connection.close()
                    return
                connection.sendall(b"reached")
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            over.set()
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(str(path))
            thread.join()


CONNECT = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(100).decode())"


@pytest.mark.parametrize("view", VIEWS)
def test_a_socket_of_the_host_that_was_named(furnished: Place, short: Path, view: str) -> None:
    with daemon(short / "agent.sock"):  # beside the home
        script = f"{sys.executable} -c '{CONNECT}' {short}/agent.sock"
        agent = str(short / "agent.sock")
        assert said(run(furnished, script, view, card(keychain=("ssh-agent",)), SSH_AUTH_SOCK=agent)) == "reached\n"
        assert "reached" not in said(run(furnished, script, view, card(keychain=("gh",)), SSH_AUTH_SOCK=agent))
        assert said(run(furnished, "echo $SSH_AUTH_SOCK", view, SSH_AUTH_SOCK=agent)) == "\n"
        assert (
            said(run(furnished, "echo $SSH_AUTH_SOCK", view, card(keychain=("ssh-agent",)), SSH_AUTH_SOCK=agent))
            == f"{agent}\n"
        )


def test_a_socket_in_a_private_place_that_was_named(furnished: Place) -> None:
    place = Path(f"/tmp/mudroom-{os.getpid()}.sock")
    try:
        with daemon(place):
            script = f"ls /tmp; {sys.executable} -c '{CONNECT}' {place}"
            assert "reached\n" in said(
                run(furnished, script, card=card(keychain=("ssh-agent",)), SSH_AUTH_SOCK=str(place))
            )
            assert "reached" not in said(run(furnished, script))
    finally:
        place.unlink()


# --- the level is the policy's to decide ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("levels", "note"),
    [
        (LevelPolicy(minimum=1), "raised from 0 to 1: the least that the policy permits (levels.minimum)"),
        (LevelPolicy(agents=(("agent", 1),)), "raised from 0 to 1: the least for agent (levels.agents.agent)"),
    ],
)
def test_the_policy_raises_and_it_is_said(furnished: Place, levels: LevelPolicy, note: str) -> None:
    session = furnished.session(Settings(levels=levels))
    act_as(session, card=card())
    result = session.run([b"ls", b"/home"])
    assert result.level == 1
    assert note in result.notes
    assert BARE not in result.notes


@pytest.mark.parametrize(
    "levels", [LevelPolicy(allow=(1, 2)), LevelPolicy(agents=(("agent", REFUSE),))], ids=["level", "agent"]
)
def test_the_policy_refuses_and_nothing_is_left(furnished: Place, levels: LevelPolicy) -> None:
    session = furnished.session(Settings(levels=levels))
    act_as(session, card=card())
    with pytest.raises(UsageError, match="the agent agent is refused"):
        session.run([b"true"])
    assert session.vault.forks() == []


# --- the command line ---------------------------------------------------------------------------------------------------


def mudroom(place: Place, *words: str) -> subprocess.CompletedProcess[str]:
    tick()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(place.home),
        "MUDROOM_KEEPER": "0",
        "MUDROOM_STATE": str(place.state),
    }
    environment["MUDROOM_TRUST_POLICY"] = "1"  # tests write policies as their own user would
    environment |= {key: value for key, value in os.environ.items() if key == "PYTHONPATH"}
    argv = [sys.executable, "-m", "mudroom", *words]
    return subprocess.run(
        argv, cwd=place.project, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_command_line(furnished: Place) -> None:
    path = furnished.write(
        "card.json", json.dumps({"agentId": "agent", "sandboxRequirements": {"needsKeychain": ["gh"]}})
    )
    tool = f"print(end=open('{furnished.home}/.config/gh/hosts.yml').read())"  # cat would be asked about
    done = mudroom(furnished, "exec", "--json", "--card", str(path), "--", sys.executable, "-c", tool)
    found = json.loads(done.stdout)
    assert (found["level"], found["credentials"], found["stdout"]) == (0, ["gh"], "HIDDEN")
    done = mudroom(furnished, "run", "--no", "--level", "0", "--", "true")
    assert done.returncode == 0
    assert done.stderr.count("no isolation") == 1
    assert done.stderr.index("no isolation") < done.stderr.index("changed nothing")


def test_what_is_said_of_it_afterwards(furnished: Place) -> None:
    assert mudroom(furnished, "exec", "--level", "0", "--fork", "a", "--", "touch", "new").returncode == 0
    assert "  level 0  " in mudroom(furnished, "ls").stdout
    assert json.loads(mudroom(furnished, "ls", "--json").stdout)["forks"][0]["level"] == 0
    assert mudroom(furnished, "exec", "--fork", "a", "--", "touch", "newer").returncode == 0
    assert "level 0" not in mudroom(furnished, "status").stdout
    assert json.loads(mudroom(furnished, "status", "--json").stdout)["forks"][0]["level"] == 1
    furnished.write(".mudroom/policy.yaml", "run:\n  level: 0\n")
    for path, verdict in (
        ("/etc/hostname", "read-only"),
        (str(furnished.project / "f"), "staged"),
        ("/tmp/x", "private"),
    ):
        assert f": {verdict}: " in mudroom(furnished, "policy", "why", path).stdout


def test_what_a_card_would_get(furnished: Place) -> None:
    path = furnished.write("card.json", json.dumps({"agentId": "x", "sandboxRequirements": {"needsKeychain": ["gh"]}}))
    done = mudroom(furnished, "agent", "check", "--json", str(path))
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert (found["schema"], found["level"], found["rule"], found["credentials"]) == (
        "mudroom.card/1",
        0,
        "default",
        ["gh"],
    )
    furnished.write(".mudroom/policy.yaml", "levels:\n  agents: {x: refuse}\n")
    done = mudroom(furnished, "agent", "check", str(path))
    assert done.returncode == 1
    assert "refused: the policy does not let x run here (levels.agents.x)" in done.stdout
    assert not (furnished.state / "vaults").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "card.json:1: this is not JSON"),
        ('{"agentId": "a", "agentId": "b"}', "card.json: 'agentId' is given twice"),
        ('{"agentId": "a", "needs": 1}', "card.json: the card has an unknown key 'needs'"),
        ("[" * 100_000, "card.json: nested too deeply"),
        ("\xff", "card.json:1: this is not UTF-8"),
        (" " * (1 << 20) + "{}", "card.json is larger than any card"),
    ],
)
def test_a_bad_card_is_one_line(place: Place, text: str, message: str) -> None:
    path = place.write("card.json", text.encode("latin-1"))
    done = mudroom(place, "exec", "--card", str(path), "--", "true")
    assert done.returncode == 125
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not place.state.exists()
