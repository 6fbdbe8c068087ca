"""A network namespace with nothing but loopback, where every address is local: what a sandbox has.

Run as a program it is the island: it makes sockets there and sends them out, one for each packet it gets.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Self

CLONE_NEWUSER, CLONE_NEWNET = 0x1000_0000, 0x4000_0000
SIOCSIFFLAGS, IFF_UP, LOOPBACK = 0x8914, 1, 1
RTM_NEWROUTE, NLM_F_REQUEST, NLM_F_ACK, NLM_F_CREATE = 24, 1, 4, 0x400
RT_TABLE_LOCAL, RTPROT_STATIC, RT_SCOPE_HOST, RTN_LOCAL, RTA_OIF = 255, 4, 254, 2, 4


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
    for route in (socket.AF_INET, socket.AF_INET6):
        everything_is_local(route)
    channel = socket.socket(fileno=0)
    channel.send(b"ready")
    while wish := channel.recv(65536):
        if wish.startswith(b"["):
            done = subprocess.run(json.loads(wish), capture_output=True, text=True, check=False, timeout=60)
            channel.send(json.dumps([done.returncode, done.stdout[:30_000], done.stderr[:30_000]]).encode())
            continue
        family, kind = map(int, wish.split())
        with socket.socket(family, kind) as made:
            socket.send_fds(channel, [b"here"], [made.fileno()])


def everything_is_local(family: int) -> None:
    """``ip route add local default dev lo``, see rtnetlink(7)."""
    route = struct.pack("8BI", family, 0, 0, 0, RT_TABLE_LOCAL, RTPROT_STATIC, RT_SCOPE_HOST, RTN_LOCAL, 0)
    route += struct.pack("HHI", 8, RTA_OIF, LOOPBACK)
    head = struct.pack("IHHII", 16 + len(route), RTM_NEWROUTE, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.send(head + route)
        (error,) = struct.unpack_from("i", netlink.recv(4096), 16)
        if error:
            raise OSError(-error, os.strerror(-error))


class Island:
    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(20)
        with theirs:
            self._process = subprocess.Popen([sys.executable, __file__], stdin=theirs.fileno(), stderr=subprocess.PIPE)
        self._made: list[socket.socket] = []
        self.is_there = self._channel.recv(64) == b"ready"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._made:
            one.close()
        self._channel.close()
        self._process.communicate(timeout=20)

    def made(self, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> socket.socket:
        self._channel.send(b"%d %d" % (family, kind))
        _data, descriptors, _flags, _address = socket.recv_fds(self._channel, 64, 1)
        one = socket.socket(fileno=descriptors[0])
        one.settimeout(20)
        self._made.append(one)
        return one

    def run(self, *argv: str) -> tuple[int, str, str]:
        """A command's exit code and what it has said. For files it has this machine's, as its user."""
        self._channel.settimeout(90)
        self._channel.send(json.dumps(argv).encode())
        code, output, errors = json.loads(self._channel.recv(1 << 20))
        return code, output, errors

    def listener(self, address: str, port: int, kind: int = socket.SOCK_STREAM) -> socket.socket:
        one = self.made(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((address, port))
        if kind == socket.SOCK_STREAM:
            one.listen(100)
        return one

    def connect(self, address: str, port: int) -> socket.socket:
        one = self.made(socket.AF_INET6 if ":" in address else socket.AF_INET)
        one.connect((address, port))
        return one


if __name__ == "__main__":
    main()
