"""Changing the network itself, and going into another one."""

from __future__ import annotations

import ctypes
import os
import socket
import struct

from .attempt import World, attempt
from .words import connect_to, system_call

_GROUP = "the network itself"
_NEWUSER, _NEWNET = 0x10000000, 0x40000000


def _netlink(protocol: int, kind: int, flags: int, payload: bytes) -> str:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as channel:
        channel.settimeout(2)
        channel.send(struct.pack("<IHHII", 16 + len(payload), kind, flags, 1, 0) + payload)
        number = struct.unpack_from("<i", channel.recv(4096), 16)[0]
        if number:
            raise OSError(-number, os.strerror(-number))
    return "done"


@attempt(_GROUP, "the route to the gate is removed", "rtnetlink(7)", control=False, proof="claim")
def route_removed(world: World) -> str:
    route = bytes((2, 0, 0, 0, 255, 3, 254, 2)) + bytes(4) + struct.pack("<HHI", 8, 4, 1)
    return _netlink(0, 25, 5, route)


@attempt(_GROUP, "an address is added", "rtnetlink(7)", control=False, proof="claim")
def address_added(world: World) -> str:
    address = socket.inet_aton("10.1.2.3")
    payload = bytes((2, 24, 0, 0)) + struct.pack("<I", 1) + struct.pack("<HH", 8, 2) + address
    return _netlink(0, 20, 0x605, payload)


@attempt(_GROUP, "a device is made", "rtnetlink(7)", control=False, proof="claim")
def device_made(world: World) -> str:
    kind = struct.pack("<HH", 10, 1) + b"dummy\0" + bytes(2)
    return _netlink(0, 16, 0x605, bytes(16) + struct.pack("<HH", 4 + len(kind), 18) + kind)


@attempt(_GROUP, "the loopback is taken down", "netdevice(7)", control=False, proof="claim")
def loopback_down(world: World) -> str:
    return _netlink(0, 16, 5, struct.pack("<BxHiII", 0, 0, 1, 0, 1))


@attempt(_GROUP, "the redirection is removed", "nft(8)", control=False, proof="claim")
def redirection_removed(world: World) -> str:
    return _netlink(12, 10 << 8 | 2, 5, bytes((1, 0, 0, 0)) + struct.pack("<HH", 12, 1) + b"mudroom\0")


def _enter(path: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(path, os.O_RDONLY)
    if libc.setns(descriptor, _NEWNET) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@attempt(_GROUP, "the namespace of process 1", "setns(2)", control=False)
def enter_first(world: World) -> None:
    _enter("/proc/1/ns/net")
    connect_to(world, world.address, 80)


@attempt(_GROUP, "the namespace of the harness", "setns(2)", control=False)
def enter_harness(world: World) -> None:
    _enter(f"/proc/{world.harness}/ns/net")
    connect_to(world, world.address, 80)


@attempt(_GROUP, "the namespace of whatever process there is", "setns(2)", control=False)
def enter_any(world: World) -> None:
    failure = OSError("there is none")
    own = os.stat("/proc/self/ns/net").st_ino
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}/ns/net").st_ino != own:
                    _enter(f"/proc/{name}/ns/net")
                    connect_to(world, world.address, 80)
            except OSError as error:
                failure = error
    raise failure


@attempt(_GROUP, "a namespace of its own, where it may do everything", "unshare(2)", control=False, proof="claim")
def own_namespace(world: World) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEWUSER | _NEWNET) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "it has one"


@attempt(_GROUP, "a socket of another process", "pidfd_getfd(2)", control=False, proof="claim")
def socket_of_another(world: World) -> str:
    found = system_call(434, world.harness, 0)
    return f"descriptor {system_call(438, found, 3, 0)}"


@attempt(_GROUP, "the gate's listeners, in descriptors that were left open", "srt README", control=False)
def left_open(world: World) -> str | None:
    for descriptor in range(3, 256):
        try:
            with socket.socket(fileno=os.dup(descriptor)) as found:
                found.settimeout(1)
                found.sendall(world.mark.encode())
        except OSError:
            continue
    raise OSError("there are none")


@attempt(_GROUP, "the port of the proxy is taken over, for commands that come later", control=False, proof="claim")
def port_taken(world: World) -> str:
    with socket.socket() as channel:
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        channel.bind(("127.0.0.1", world.proxy[1]))
        channel.listen()
        return "it listens there"


@attempt(_GROUP, "the port of the name server is taken over", control=False, proof="claim")
def name_server_taken(world: World) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        channel.bind(("127.0.0.1", 53))
        return "it listens there"


@attempt(_GROUP, "a server inside, for the internet to connect to", "listen(2)", control=False, proof="claim")
def reachable(world: World) -> str | None:
    """Nobody comes: a second is waited for the world, which tries."""
    with socket.create_server(("0.0.0.0", 18080)) as server:
        server.settimeout(1)
        channel, where = server.accept()
        channel.close()
        return f"{where} came"
