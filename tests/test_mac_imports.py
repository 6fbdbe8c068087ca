"""What macOS does not have is not touched when modules are imported: a fresh interpreter, with all of it taken away."""

from __future__ import annotations

import subprocess
import sys

from test_architecture import LAUNCHER

PRETEND = """
import os, select, signal, sys, time, _socket, ctypes, importlib, pkgutil
for module, names in {
    os: "O_PATH O_TMPFILE pidfd_open memfd_create MFD_CLOEXEC pipe2 getxattr setxattr listxattr removexattr "
        "copy_file_range fdatasync splice eventfd setns unshare sched_getaffinity sched_setaffinity posix_fadvise "
        "posix_fallocate",
    select: "epoll EPOLLIN",
    signal: "pidfd_send_signal sigtimedwait sigwaitinfo SIGSTKFLT SIGPWR SIGPOLL SIGRTMIN SIGRTMAX",
    _socket: "MSG_CMSG_CLOEXEC SO_PEERCRED SOCK_CLOEXEC SOCK_NONBLOCK AF_NETLINK AF_PACKET AF_VSOCK AF_ALG "
        "SO_BINDTODEVICE SO_MARK",
    time: "CLOCK_BOOTTIME CLOCK_TAI CLOCK_REALTIME_COARSE",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
class Library:
    "libSystem: it has whatever is asked for; nothing of it may be called."
    def __init__(self, *_arguments, **_named):
        pass
    def __getattr__(self, name):
        function = type(name, (), {})()
        self.__dict__[name] = function
        return function
real_uname = os.uname()
os.uname = lambda: os.uname_result(("Darwin", *real_uname[1:4], "arm64"))
ctypes.CDLL = ctypes.PyDLL = Library
sys.platform = "darwin"
"""
IMPORT = """
import mudroom
for found in pkgutil.walk_packages(mudroom.__path__, "mudroom."):
    if found.name.removeprefix("mudroom.") not in LINUX and not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except Exception as error:
            print(found.name, type(error).__name__, error)
print("done")
"""
LINUX = LAUNCHER - {"sandbox.wire"}
"""Never imported on a Mac: they run in the launcher's process."""


def on_a_mac(program: str) -> str:
    whole = f"{PRETEND}\nsys.path[:0] = {sys.path!r}\nLINUX = {LINUX!r}\n{program}"
    done = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_nothing_of_linux_alone_is_needed_to_import() -> None:
    assert on_a_mac(IMPORT) == "done\n"


def test_a_profile_and_a_pipe_of_it() -> None:
    """What is used before anything is staged: the compiler, output that is captured, a copy in plain reads."""
    program = """
import tempfile
from mudroom.sandbox.capture import Output
from mudroom.sandbox.macos import true_path
from mudroom.sandbox.seatbelt import compile_profile
from mudroom.core.spec import Copy, SandboxSpec
with Output(None, None, None, 10) as output:
    assert len(output.descriptors) == 3
spec = SandboxSpec(b"/p", Copy(b"/w"), b"/w", b"/h", b"/f/private", namespaces=False)
assert compile_profile(spec).startswith(b"(version 1)")
from mudroom.stage.copy import _copy_range
with tempfile.TemporaryFile() as one, tempfile.TemporaryFile() as other:
    one.write(b"content")
    one.flush()
    _copy_range(one.fileno(), other.fileno(), 0, 7)
    assert other.read() == b"content"
from mudroom.sandbox.host import umask
os.umask(0o027)
real_open = open
def without_proc(path, *more, **named):
    if str(path).startswith("/proc"):
        raise FileNotFoundError(path)
    return real_open(path, *more, **named)
import builtins
builtins.open = without_proc
assert umask() == 0o027 and umask() == 0o027
print("done")
"""
    assert on_a_mac(program) == "done\n"
