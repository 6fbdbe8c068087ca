"""A Linux interpreter that has only what macOS has, for programs of tests: the text of this file runs before them.

Taken away are names of modules, /proc, sockets of packets, long paths of sockets, devices in poll(2), limits without
bounds. Calls of libSystem are emulated by what Linux has instead. A process that ``sys.executable`` starts (the gate,
the warden) is changed in the same way. Nothing here shows that a Mac does as its manual pages say.
"""

# mypy: ignore-errors
# ruff: noqa

import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import time

import _socket

GET, SET, REMOVE, LIST = os.getxattr, os.setxattr, os.removexattr, os.listxattr
_ticks = os.sysconf("SC_CLK_TCK")
_real_pidfd_open, _real_epoll = os.pidfd_open, select.epoll
_real_open, _real_stat, _real_listdir, _real_readlink = os.open, os.stat, os.listdir, os.readlink

# --- the emulation's own look at /proc ---


def _proc(pid, name):
    descriptor = _real_open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC | _OURS)
    try:
        return b"".join(iter(lambda: os.read(descriptor, 65536), b""))
    finally:
        os.close(descriptor)


_OURS = 1 << 30  # a flag that the audit hook knows; the kernel ignores unknown ones (open(2))


def _hidden(path):
    if isinstance(path, (str, bytes, os.PathLike)):
        path = os.fsencode(path)
        return path == b"/proc" or path.startswith(b"/proc/")
    return False


_PATH_EVENTS = {
    "open", "os.listdir", "os.scandir", "os.chmod", "os.chown", "os.utime", "os.rename", "os.link", "os.symlink",
    "os.remove", "os.rmdir", "os.mkdir", "os.chdir", "os.truncate", "os.getxattr", "os.setxattr", "os.listxattr",
    "os.removexattr",
}  # fmt: skip


def _refuse(event, arguments):
    if event in _PATH_EVENTS and any(_hidden(word) for word in arguments[:2]):
        if not (event == "open" and isinstance(arguments[2], int) and arguments[2] & _OURS):
            raise FileNotFoundError(errno.ENOENT, f"macOS has no {arguments[0]!r}", arguments[0])
    if event in ("socket.bind", "socket.connect"):
        where = arguments[1]
        if isinstance(where, (str, bytes)) and (len(os.fsencode(where)) > 103 or os.fsencode(where)[:1] == b"\0"):
            raise OSError(errno.EINVAL, "sun_path of macOS has 104 bytes and no abstract names")


sys.addaudithook(_refuse)


def _without_proc(call):
    def look(path, *words, **named):
        if _hidden(path):
            raise FileNotFoundError(errno.ENOENT, "no /proc", path)
        return call(path, *words, **named)

    return look


for _name in ("stat", "lstat", "readlink", "access", "statvfs"):
    setattr(os, _name, _without_proc(getattr(os, _name)))

# --- names ---

for _module, _names in {
    os: "O_PATH O_TMPFILE pidfd_open memfd_create MFD_CLOEXEC pipe2 getxattr setxattr listxattr removexattr "
    "copy_file_range fdatasync splice eventfd setns unshare sched_getaffinity sched_setaffinity posix_fadvise "
    "posix_fallocate",
    select: "epoll EPOLLIN EPOLLOUT",
    signal: "pidfd_send_signal sigtimedwait sigwaitinfo SIGSTKFLT SIGPWR SIGPOLL SIGRTMIN SIGRTMAX",
    _socket: "MSG_CMSG_CLOEXEC SO_PEERCRED SOCK_CLOEXEC SOCK_NONBLOCK AF_NETLINK AF_PACKET AF_VSOCK AF_ALG "
    "SO_BINDTODEVICE SO_MARK SO_DOMAIN SO_PROTOCOL TCP_USER_TIMEOUT TCP_QUICKACK TCP_SYNCNT IP_TRANSPARENT",
    socket: "MSG_CMSG_CLOEXEC SO_PEERCRED SOCK_CLOEXEC SOCK_NONBLOCK AF_NETLINK AF_PACKET AF_VSOCK AF_ALG "
    "SO_BINDTODEVICE SO_MARK SO_DOMAIN SO_PROTOCOL TCP_USER_TIMEOUT TCP_QUICKACK TCP_SYNCNT IP_TRANSPARENT",
    time: "CLOCK_BOOTTIME CLOCK_TAI CLOCK_REALTIME_COARSE",
    fcntl: "F_OFD_SETLK F_OFD_SETLKW F_OFD_GETLK F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_GET_SEALS F_NOTIFY F_SETLEASE",
}.items():
    for _name in _names.split():
        if hasattr(_module, _name):
            delattr(_module, _name)

# --- sockets ---

_real_pair, _RealSocket = _socket.socketpair, _socket.socket


def _socketpair(family=socket.AF_UNIX, kind=socket.SOCK_STREAM, proto=0):
    if family == socket.AF_UNIX and kind == socket.SOCK_SEQPACKET:
        raise OSError(errno.EPROTONOSUPPORT, "unix sockets of macOS have no packets")
    return _real_pair(family, kind, proto)


_socket.socketpair = _socketpair


def _pair_of(family=socket.AF_UNIX, kind=socket.SOCK_STREAM, proto=0):
    made = _socketpair(family, kind, proto)
    for one in made:  # net.local.stream.sendspace of macOS: 8 KiB
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
    return tuple(socket.socket(family, kind, proto, one.detach()) for one in made)


socket.socketpair = _pair_of

# --- poll(2): devices are not served, POLLNVAL tells it ---

_real_poll = select.poll


class _Poll:
    def __init__(self):
        self._poll, self._devices = _real_poll(), set()

    def register(self, file, events=select.POLLIN | select.POLLPRI | select.POLLOUT):
        descriptor = file if isinstance(file, int) else file.fileno()
        is_device = os.fstat(descriptor).st_mode & 0o170000 == 0o020000
        (self._devices.add if is_device else self._devices.discard)(descriptor)
        if not is_device:
            self._poll.register(descriptor, events)

    modify = register

    def unregister(self, file):
        descriptor = file if isinstance(file, int) else file.fileno()
        if descriptor in self._devices:
            self._devices.remove(descriptor)
        else:
            self._poll.unregister(descriptor)

    def poll(self, timeout=None):
        if self._devices:
            return [(descriptor, select.POLLNVAL) for descriptor in self._devices] + self._poll.poll(0)
        return self._poll.poll(timeout)


select.poll = _Poll

# --- kqueue(2), by epoll(7) ---

select.KQ_FILTER_READ, select.KQ_FILTER_WRITE, select.KQ_FILTER_PROC = -1, -2, -5
select.KQ_EV_ADD, select.KQ_EV_DELETE, select.KQ_NOTE_EXIT = 1, 2, 1 << 31
_MASKS = {-1: 1, -2: 4}


class _Event:
    def __init__(self, ident, filter=-1, flags=1, fflags=0):
        self.ident = ident if isinstance(ident, int) else ident.fileno()
        self.filter, self.flags, self.fflags = filter, flags, fflags


class _Queue:
    def __init__(self):
        self._epoll, self._wanted, self._ends = _real_epoll(), {}, {}

    def control(self, changes, most, timeout=None):
        for event in changes or ():
            if event.filter == select.KQ_FILTER_PROC:
                self._watch_end(event)
            else:
                self._change(event.ident, _MASKS[event.filter], event.flags & select.KQ_EV_ADD)
        if not most:
            return []
        reports = self._epoll.poll(timeout, most)
        return [
            _Event(descriptor, kind)
            for descriptor, events in reports
            for kind, mask in _MASKS.items()
            if self._wanted.get(descriptor, 0) & mask and events & (mask | 8 | 16)  # errors and hang-ups are both
        ]

    def _change(self, descriptor, mask, is_added):
        before = self._wanted.get(descriptor, 0)
        after = before | mask if is_added else before & ~mask
        if not is_added and not before & mask:
            raise FileNotFoundError(errno.ENOENT, "not watched")
        if before and not after:
            del self._wanted[descriptor]
            self._epoll.unregister(descriptor)
        else:
            (self._epoll.modify if before else self._epoll.register)(descriptor, after)
            self._wanted[descriptor] = after

    def _watch_end(self, event):
        assert event.fflags == select.KQ_NOTE_EXIT
        descriptor = _real_pidfd_open(event.ident)
        self._ends[event.ident] = descriptor
        if _proc(event.ident, "stat").rpartition(b") ")[2][:1] in b"ZX":
            raise ProcessLookupError(errno.ESRCH, "it is ending")
        self._epoll.register(descriptor, 1)

    def fileno(self):
        return self._epoll.fileno()

    def close(self):
        while self._ends:
            os.close(self._ends.popitem()[1])
        self._epoll.close()


select.kqueue, select.kevent = _Queue, _Event

# --- limits ---

import resource as _resource  # noqa: E402

_real_setrlimit, _real_getrlimit, _real_sysconf = _resource.setrlimit, _resource.getrlimit, os.sysconf


def _getrlimit(kind):
    soft, hard = _real_getrlimit(kind)
    return (soft, _resource.RLIM_INFINITY) if kind == _resource.RLIMIT_NOFILE else (soft, hard)


def _setrlimit(kind, limits):
    """setrlimit(2), COMPATIBILITY: RLIM_INFINITY is refused for the open files."""
    if kind == _resource.RLIMIT_NOFILE:
        if limits[0] in (_resource.RLIM_INFINITY, -1):
            raise ValueError("Invalid argument")
        hard = _real_getrlimit(kind)[1]
        limits = (min(limits[0], hard), hard if limits[1] in (_resource.RLIM_INFINITY, -1) else min(limits[1], hard))
    _real_setrlimit(kind, limits)


_resource.getrlimit, _resource.setrlimit = _getrlimit, _setrlimit
os.sysconf = lambda name: (1 << 63) - 1 if name == "SC_OPEN_MAX" else _real_sysconf(name)

# --- what has looked at the names before ---

import importlib
import selectors

del selectors.EpollSelector
importlib.reload(selectors)
assert selectors.DefaultSelector is selectors.KqueueSelector

# --- libSystem ---


class Function:
    "A function of libSystem, by what Linux has instead; it takes ctypes' declarations."

    def __init__(self, name, do):
        self.name, self.do = name, do

    def __call__(self, *words):
        if self.do is None:
            raise NotImplementedError(self.name)
        try:
            return self.do(*(getattr(word, "value", word) if not hasattr(word, "raw") else word for word in words))
        except OSError as error:
            ctypes.set_errno(error.errno)
            return -1


def give(value, buffer, size):
    if buffer is not None:
        if size < len(value):
            raise OSError(34, "ERANGE")
        ctypes.memmove(buffer, value, len(value))
    return len(value)


real = ctypes.CDLL(None, use_errno=True)


def renameatx_np(old, name, new, other, flags):
    if real.renameat2(old, name, new, other, {4: 1, 2: 2}[flags]) < 0:
        raise OSError(ctypes.get_errno(), "renameat2")
    return 0


def proc_pidinfo(pid, flavor, _argument, buffer, size):
    assert flavor == 3
    words = _proc(pid, "stat").rpartition(b") ")[2].split()
    status = {b"Z": 5, b"X": 5, b"T": 4, b"t": 4}.get(words[0], 2)
    uid = _real_stat(f"/proc/{pid}").st_uid
    started = int(words[19])
    info = bytearray(136)
    for at, value in ((4, status), (12, pid), (16, int(words[1])), (20, uid), (100, int(words[2]))):
        info[at : at + 4] = value.to_bytes(4, "little")
    info[120:128] = (started // _ticks).to_bytes(8, "little")
    info[128:136] = (started % _ticks * 10_000).to_bytes(8, "little")
    return give(bytes(info), buffer, size)


def proc_listallpids(buffer, size):
    descriptor = _real_open("/proc", os.O_RDONLY | os.O_DIRECTORY | _OURS)
    try:
        pids = [int(name) for name in os.listdir(descriptor) if name.isdigit()]
    finally:
        os.close(descriptor)
    if buffer is not None:
        pids = pids[: size // 4]
        for number, pid in enumerate(pids):
            buffer[number] = pid
    return len(pids)


def sysctl(name, count, answer, size, _new, _new_size):
    assert count == 3 and tuple(name)[:2] == (1, 49)
    pid = name[2]
    arguments = _proc(pid, "cmdline")
    data = arguments.count(b"\0").to_bytes(4, "little") + b"program\0" + arguments + _proc(pid, "environ")
    ctypes.memmove(answer, data, min(len(data), len(answer)))
    size._obj.value = len(data)
    return 0


def sysctlbyname(name, answer, size, _new, _new_size):
    assert name == b"kern.bootsessionuuid"
    data = _proc("sys/kernel/random", "boot_id").strip().upper() + b"\0"
    ctypes.memmove(answer, data, len(data))
    size._obj.value = len(data)
    return 0


errno.ENOTSUP, errno.EOPNOTSUPP = 45, 102


def not_supported(*_words):
    raise OSError(errno.ENOTSUP, "ENOTSUP")


real_seek, real_ioctl, os.SEEK_HOLE, os.SEEK_DATA = os.lseek, fcntl.ioctl, 3, 4


def lseek(fd, position, how):
    "Where SEEK_DATA begins in data it is the next data that macOS gives, or ENXIO (gnulib, lib/lseek.c)."
    if how not in (os.SEEK_DATA, os.SEEK_HOLE):
        return real_seek(fd, position, how)
    hole = real_seek(fd, position, 4)
    return hole if how == os.SEEK_HOLE else real_seek(fd, hole if hole > position else position, 3)


os.lseek = lseek


def ioctl(fd, request, *more):
    if request == 0x40049409:
        raise OSError(25, "ENOTTY")
    return real_ioctl(fd, request, *more)


fcntl.ioctl = ioctl
real_fcntl, _OFD_SETLK, _OFD_GETLK = fcntl.fcntl, 37, 36


def mac_fcntl(fd, command, argument=0):
    "F_OFD_SETLK and F_OFD_GETLK with the struct flock of bsd/sys/fcntl.h; F_GETPATH, F_FULLFSYNC."
    if command in (90, 92):
        start, length, pid, kind, whence = struct.unpack("qqihh", argument)
        kind = {1: _RDLCK, 2: _UNLCK, 3: _WRLCK}[kind]
        given = struct.pack("hhqqi4x", kind, whence, start, length, pid)
        reply = real_fcntl(fd, _OFD_SETLK if command == 90 else _OFD_GETLK, given)
        kind, whence, start, length, pid = struct.unpack("hhqqi4x", reply)
        return struct.pack("qqihh", start, length, pid, {_RDLCK: 1, _UNLCK: 2, _WRLCK: 3}[kind], whence)
    if command == fcntl.F_GETPATH:
        return os.fsencode(_real_readlink(f"/proc/self/fd/{fd}")).ljust(len(argument), b"\0")
    if command == fcntl.F_FULLFSYNC:
        return os.fsync(fd) or 0
    assert command not in range(1024, 1040), command
    return real_fcntl(fd, command, argument)


_RDLCK, _WRLCK, _UNLCK = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK
fcntl.F_RDLCK, fcntl.F_UNLCK, fcntl.F_WRLCK, fcntl.F_GETPATH, fcntl.F_FULLFSYNC = 1, 2, 3, 50, 51
fcntl.fcntl = mac_fcntl
LIBSYSTEM = {
    "fgetxattr": lambda fd, name, buffer, size, _position, _options: give(GET(fd, name), buffer, size),
    "fsetxattr": lambda fd, name, value, _size, _position, _options: SET(fd, name, value) or 0,
    "fremovexattr": lambda fd, name, _options: REMOVE(fd, name) or 0,
    "flistxattr": lambda fd, buffer, size, _options: give(
        b"".join(os.fsencode(name) + b"\0" for name in LIST(fd)), buffer, size
    ),
    "renameatx_np": renameatx_np,
    "fclonefileat": not_supported,
    "proc_pidinfo": proc_pidinfo,
    "proc_listallpids": proc_listallpids,
    "sysctl": sysctl,
    "sysctlbyname": sysctlbyname,
}


class Library:
    def __init__(self, *_arguments, **_named):
        pass

    def __getattr__(self, name):
        self.__dict__[name] = Function(name, LIBSYSTEM.get(name))
        return self.__dict__[name]


real_uname = os.uname()
os.uname = lambda: os.uname_result(("Darwin", *real_uname[1:4], "arm64"))
ctypes.CDLL = ctypes.PyDLL = Library
sys.platform = "darwin"

# --- programs that are started ---

_real_spawn = os.posix_spawn


def _posix_spawn(path, argv, env, **named):
    """Have an interpreter run this file before its program."""
    if path == sys.executable and "-c" in argv:
        at = list(argv).index("-c") + 1
        argv = [*argv[:at], f"exec(compile(open({MAC_PRELUDE!r}).read(), {MAC_PRELUDE!r}, 'exec'), {{'MAC_PRELUDE': "
                f"{MAC_PRELUDE!r}, '__name__': 'mac_prelude'}})\n{argv[at]}", *argv[at + 1 :]]  # fmt: skip
    return _real_spawn(path, argv, env, **named)


os.posix_spawn = _posix_spawn
