# ruff: noqa: E501 - the attempts are one line each
"""Where user namespaces are forbidden, as in a container's default profile: a filter like Docker's is put around
mudroom, which then has to make do with Landlock, seccomp and the mediator."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Place, environment, full_listing, listing, tick
from mudroom.sandbox.host.host import landlock_abi
from mudroom.sandbox.linux.seccomp import compile_filter
from mudroom.sandbox.linux.syscall import Cond, SyscallRule
from tiers import together

pytestmark = [
    pytest.mark.both_users,
    pytest.mark.root,
    pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock"),
]

_NAMESPACES = 0x7E020000  # CLONE_NEW* as the profile of moby masks them
PROFILE = (
    SyscallRule("unshare", errno.EPERM, (), "as without CAP_SYS_ADMIN"),
    SyscallRule("clone", errno.EPERM, (Cond(0, "!=", 0, _NAMESPACES),), "as without CAP_SYS_ADMIN"),
    SyscallRule("clone3", errno.ENOSYS, (), "as in the profile"),
    SyscallRule("mount", errno.EPERM, (), "as without CAP_SYS_ADMIN"),
    SyscallRule("open_tree", errno.EPERM, (), "as without CAP_SYS_ADMIN"),
)


def in_a_container() -> None:
    """In the child, before exec: install the profile."""
    libc = ctypes.CDLL(None, use_errno=True)
    program = compile_filter(PROFILE, os.uname().machine)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = (len(program) // 8).to_bytes(8, "little") + ctypes.addressof(buffer).to_bytes(8, "little")
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.c_char_p(header), 0, 0):  # no_new_privs, PR_SET_SECCOMP
        os._exit(99)


class Contained:
    def __init__(self, place: Place) -> None:
        self.place = place
        self.environment = environment(place)

    def mudroom(self, *words: str) -> subprocess.CompletedProcess[str]:
        tick()
        return subprocess.run(
            [sys.executable, "-m", "mudroom", *words],
            cwd=self.place.project,
            env=self.environment,
            preexec_fn=in_a_container,
            capture_output=True,
            text=True,
            timeout=80,
            check=False,
        )

    def run(self, script: str, answer: str = "--keep") -> dict[str, Any]:
        done = self.mudroom("run", "--json", answer, "--", "sh", "-c", script)
        assert done.stdout, done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result


@pytest.fixture
def contained(place: Place) -> Contained:
    return Contained(place)


def test_it_works_in_a_copy_and_says_so(contained: Contained) -> None:
    place = contained.place
    place.write("f", "one\n")
    place.write("d/x", "x\n")
    result = contained.run("pwd; echo two >> f; rm -r d; mkdir -p n; echo n > n/n; chmod 755 f; ln -s f l", "--yes")
    assert any("user namespaces are not permitted" in note for note in result["notes"])
    assert "/copy" in result["stdout"]
    assert result["applied"]["state"] == "applied"
    assert (place.project / "f").read_text() == "one\ntwo\n"
    assert os.access(place.project / "f", os.X_OK)
    assert not (place.project / "d").exists()
    assert os.readlink(place.project / "l") == "f"
    assert contained.mudroom("undo").returncode == 0
    assert sorted(os.listdir(place.project)) == ["d", "f"]


ATTEMPTS = {
    "write": "echo bad > {p}/f",
    "append": "echo bad >> {p}/f",
    "truncate": "truncate -s 0 {p}/f",
    "remove": "rm -f {p}/f",
    "remove all": "rm -rf {p}",
    "rename": "mv {p}/f {p}/g",
    "rename away": "mv {p}/f stolen",
    "link in": "ln {p}/f linked && echo bad > linked",
    "create": "touch {p}/new",
    "make a directory": "mkdir {p}/new",
    "symlink": "ln -s x {p}/new",
    "chmod": "chmod 777 {p}/f",
    "chmod a directory": "chmod 000 {p}",
    "chmod through a link": "ln -s {p}/f l && chmod 777 l",
    "chmod relative": "cd {p} && chmod 777 f",
    "chmod by a descriptor": '{py} -c \'import os; d = os.open("{p}", os.O_PATH); os.chmod("f", 0o777, dir_fd=d)\'',
    "chmod by proc": '{py} -c \'import os; d = os.open("{p}/f", os.O_PATH); os.chmod(f"/proc/self/fd/{{d}}", 0o777)\'',
    "chmod by dev fd": '{py} -c \'import os; d = os.open("{p}/f", os.O_PATH); os.chmod(f"/dev/fd/{{d}}", 0o777)\'',
    "times": "touch -d 2001-01-01 {p}/f",
    "times of a link": "touch -h -d 2001-01-01 {p}/link",
    "chown": "chown $(id -u):$(id -g) {p}/f",
    "xattr": '{py} -c \'import os; os.setxattr("{p}/f", "user.x", b"y")\'',
    "dots": "chmod 777 ../../../../../../../../../..{p}/f",
    "read": "cat {p}/f",
}


@pytest.mark.parametrize("script", together(ATTEMPTS).values(), ids=together(ATTEMPTS))
def test_the_project_cannot_be_changed_through_its_real_path(contained: Contained, script: str) -> None:
    place = contained.place
    place.write("f", "precious\n", 0o640)
    os.symlink("f", place.project / "link")
    before, content = full_listing(place.project), listing(place.project)
    stamps = {name: (place.project / name).stat().st_ctime_ns for name in ("f", ".")}
    result = contained.run(script.format(p=place.project, py=sys.executable) + "\necho tried; exit 0")
    assert full_listing(place.project) == before
    assert listing(place.project) == content
    assert {name: (place.project / name).stat().st_ctime_ns for name in stamps} == stamps
    assert "precious" not in result["stdout"]
    assert result["stdout"].endswith("tried\n")


def test_a_refused_change_is_a_denial(contained: Contained) -> None:
    contained.place.write("f", "x")
    result = contained.run(f"chmod 777 {contained.place.project}/f")
    assert result["denials"][0]["kind"] == "metadata"
    assert result["denials"][0]["target"] == f"{contained.place.project}/f"


def test_metadata_inside_the_copy_works(contained: Contained) -> None:
    script = (
        "touch a; chmod 600 a; touch -d 2001-01-01 a; stat -c '%a %Y' a; ln -s a l; touch -h -d 2002-02-02 l;"
        f"{sys.executable} -c 'import os; os.setxattr(\"a\", \"user.k\", b\"v\"); print(os.getxattr(\"a\", \"user.k\"));"
        " os.removexattr(\"a\", \"user.k\"); print(os.listxattr(\"a\")); f = open(\"a\", \"w\"); os.fchmod(f.fileno(), 0o644);"
        " os.utime(f.fileno(), (5, 5)); print(oct(os.stat(\"a\").st_mode), os.stat(\"a\").st_mtime)';"
        "mkdir d; chmod 700 d; cp -p a d/b; tar cf t.tar d; rm -r d; tar xpf t.tar; stat -c %a d"
    )  # fmt: skip
    result = contained.run(script)
    assert result["exit_code"] == 0, result["stderr"]
    lines = result["stdout"].split("\n")
    assert lines[0].startswith("600 978")
    assert lines[1:4] == ["b'v'", "[]", "0o100644 5.0"]
    assert lines[4] == "700"


UNOPENED = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def said(returned):
    return errno.errorcode[ctypes.get_errno()] if returned < 0 else returned
path = os.path.abspath("a").encode()
print(said(libc.fchmod(99, 0o600)), said(libc.fchown(99, -1, -1)), said(libc.futimens(99, None)),
      said(libc.fchmodat(99, b"a", 0o600, 0)), said(libc.fchmodat(99, path, 0o600, 0)), oct(os.stat("a").st_mode))
"""


UNMAPPED = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
def said(returned):
    print(errno.errorcode[ctypes.get_errno()] if returned < 0 else returned)
for address in (0xDEADC0DE, 0xFFFF800000000000):
    said(libc.chmod(ctypes.c_void_p(address), 0o600))
pages = libc.mmap(None, ctypes.c_size_t(8192), 3, 0x22, -1, ctypes.c_long(0))
libc.munmap(ctypes.c_void_p(pages + 4096), ctypes.c_size_t(4096))
utimensat = 280 if os.uname().machine == "x86_64" else 88
said(libc.syscall(utimensat, -100, b"a", ctypes.c_void_p(pages + 4088), 0))
said(libc.setxattr(b"a", b"user.k", ctypes.c_void_p(pages + 4088), ctypes.c_size_t(16), 0))
if utimensat == 280:  # utimes(2); aarch64 has none
    said(libc.syscall(235, b"a", (ctypes.c_long * 4)(0, 2**62, 0, 0)))
said(libc.chmod(b"a", 0o600))
"""


def test_arguments_that_are_nowhere_in_memory(contained: Contained) -> None:
    """The mediator, which is the sandbox's init, answers as the kernel does, and goes on."""
    contained.place.write("a", "a\n")
    done = contained.run(f"{sys.executable} -c '{UNMAPPED}'")
    expected = ["EFAULT"] * 4 + ["EINVAL"] * (os.uname().machine == "x86_64") + ["0"]
    assert done["stdout"].split() == expected, done["stderr"]


def test_a_descriptor_that_is_not_open(contained: Contained) -> None:
    """As chmod(2) and openat(2) have it: EBADF, unless the path is absolute."""
    contained.place.write("a", "a\n")
    done = contained.run(f"{sys.executable} -c '{UNOPENED}'")
    assert done["stdout"].split() == ["EBADF", "EBADF", "EBADF", "EBADF", "0", "0o100600"], done["stderr"]


def test_no_network_no_unix_sockets_no_home(contained: Contained) -> None:
    (contained.place.home / "secret").write_text("secret\n")
    script = (
        f"cat {contained.place.home}/secret; echo $HOME; "
        f"{sys.executable} -c 'import socket; socket.socket(type=socket.SOCK_DGRAM)' 2>&1 | tail -1; "
        f"{sys.executable} -c 'import socket; socket.socket(socket.AF_UNIX)' 2>&1 | tail -1; "
        f"{sys.executable} -c 'import socket; socket.socketpair(); print(\"pair\")'; kill -9 {os.getpid()} && echo killed"
    )
    result = contained.run(script)
    lines = result["stdout"].splitlines()
    assert "secret" not in lines
    assert lines[0] != str(contained.place.home)
    assert "Error" in lines[1] and "Error" in lines[2]
    assert lines[3] == "pair"
    if landlock_abi() >= 6:
        assert "killed" not in lines


@pytest.mark.skipif(landlock_abi() < 4, reason="Landlock knows no ports before its ABI 4")
def test_the_gate_is_the_only_port(contained: Contained) -> None:
    """For TCP; every other way is closed: no UDP, no MPTCP, no connecting by sending, no listening."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = (
            "import os, socket, urllib.request\n"
            "def tried(what):\n"
            "    try: print(what())\n"
            "    except OSError as error: print(type(error).__name__, error.errno or error)\n"
            f"there = ('127.0.0.1', {port})\n"
            "tried(lambda: socket.create_connection(there))\n"
            "tried(lambda: socket.socket().sendto(b'x', 0x20000000, there))\n"
            "tried(lambda: socket.socket(proto=262))\n"
            "tried(lambda: socket.create_server(('127.0.0.1', 0)))\n"
            "tried(lambda: socket.socket(type=socket.SOCK_DGRAM))\n"
            "tried(lambda: urllib.request.urlopen('http://nobody.example/').status)\n"
        )
        (contained.place.project / "try.py").write_text(program)
        result = contained.run(f"{sys.executable} try.py")
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert result["stdout"].splitlines()[:5] == ["PermissionError 13"] * 5
    assert "HTTPError" in result["stdout"].splitlines()[5]
    targets = [denial["target"] for denial in result["denials"] if denial["kind"] == "network"]
    assert targets == [f"127.0.0.1:{port}", "nobody.example:80"]


def test_nothing_is_left_running(contained: Contained) -> None:
    result = contained.run(
        "(setsid sh -c 'sleep 0.2; echo late > late' &) ; sh -c 'sleep 1000 &' ; touch made; echo done"
    )
    assert result["stdout"] == "done\n"
    copy = next(Path(contained.place.state).glob("vaults/*/forks/*/copy"))
    assert not (copy / "late").exists()


def test_a_timeout_ends_it(contained: Contained) -> None:
    done = contained.mudroom("run", "--json", "--timeout", "0.3", "--no", "--", "sh", "-c", "sleep 1000 & sleep 1000")
    assert done.returncode == 124


def test_a_project_that_is_too_large_is_refused(contained: Contained) -> None:
    contained.place.write(".mudroom/policy.yaml", "copy:\n  limit: 1MB\n")
    with open(contained.place.project / "big", "wb") as stream:
        stream.truncate(2_000_000)
    done = contained.mudroom("run", "--", "true")
    assert done.returncode == 125
    assert "more than the 1 MB that may be copied" in done.stderr
    assert "copy.limit" in done.stderr


def test_doctor_says_so(contained: Contained) -> None:
    rows = json.loads(contained.mudroom("doctor", "--json").stdout)["protections"]
    states = {row["protection"]: row["state"] for row in rows}
    assert states["a sandbox"] == "degraded"
    assert states["the overlay view"] == "degraded"


@pytest.mark.skipif(landlock_abi() < 4, reason="Landlock knows no ports before its ABI 4")
def test_the_roots_for_inspection_can_be_read(contained: Contained) -> None:
    pytest.importorskip("cryptography")
    pytest.importorskip("mudroom.ext.inspection")
    own = contained.place.project / ".mudroom"
    own.mkdir()
    (own / "policy.yaml").write_text("network: {inspect: [api.example]}\n")
    result = contained.run(
        "head -c 27 $SSL_CERT_FILE; cat $(dirname $(dirname $SSL_CERT_FILE))/authority.pem && echo leaked"
    )
    assert result["stdout"] == "-----BEGIN CERTIFICATE-----"
