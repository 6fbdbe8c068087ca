"""The network: the host's loopback, other families, raw packets, netlink, virtual machines' hosts."""

from __future__ import annotations

import errno
import os
import socket
import struct

from .attempt import World, attempt, register
from .call import HIGH, call, ioctl

_FAMILIES = {
    "vsock": (40, 1, 0, "vsock(7): reaches the host of a virtual machine; CVE-2021-26708", "anybody"),
    "alg": (38, 5, 0, "AF_ALG: the kernel's ciphers; CVE-2026-31431 and many before", "anybody"),
    "packet": (17, 3, 0x300, "packet(7); CVE-2017-7308", "root"),
    "packet_dgram": (17, 2, 0x300, "packet(7); CVE-2020-14386", "root"),
    "packet_old": (2, 10, 0x300, "packet(7) under its old name: net/socket.c", "root"),
    "key": (15, 3, 2, "AF_KEY; CVE-2022-1353", "root"),
    "xdp": (44, 3, 0, "AF_XDP: packets past the stack", "root"),
    "tipc": (30, 2, 0, "CVE-2021-43267", "anybody"),
    "rds": (21, 5, 0, "CVE-2010-3904", "anybody"),
    "can": (29, 3, 1, "CVE-2010-2959", "anybody"),
    "bluetooth": (31, 3, 1, "CVE-2020-12351", "anybody"),
    "nfc": (39, 5, 1, "CVE-2021-23134", "anybody"),
    "qrtr": (42, 2, 0, "AF_QIPCRTR", "anybody"),
    "smc": (43, 1, 0, "AF_SMC", "anybody"),
    "kcm": (41, 2, 0, "AF_KCM", "anybody"),
    "llc": (26, 1, 0, "CVE-2017-2583", "root"),
    "raw": (2, 3, 1, "raw(7): forges packets", "root"),
    "raw6": (10, 3, 58, "raw(7): forges packets", "root"),
    "vsock_high": (HIGH | 40, 1, 0, "CVE-2019-10063", "anybody"),
    "packet_type_high": (2, HIGH | 10, 0x300, "CVE-2019-10063", "root"),
    "netlink_uevent": (16, 3, 15, "netlink(7): news of devices", "anybody"),
    "netlink_diag": (16, 3, 4, "sock_diag(7): all sockets of the namespace", "anybody"),
    "netlink_netfilter": (16, 3, 12, "CVE-2022-34918, CVE-2024-1086", "anybody"),
    "netlink_generic": (16, 3, 16, "netlink(7)", "anybody"),
    "netlink_xfrm": (16, 3, 6, "CVE-2017-7184", "anybody"),
    "netlink_audit": (16, 3, 9, "the machine's audit", "anybody"),
    "netlink_connector": (16, 2, 11, "news of all processes: CVE-2023-28466", "anybody"),
    "netlink_high": (HIGH | 16, 3, HIGH | 12, "CVE-2019-10063", "anybody"),
}
for _name, (_family, _kind, _protocol, _source, _who) in _FAMILIES.items():
    register(
        f"socket_{_name}",
        "network: families",
        f"a socket of the kind {_name.replace('_', ' ')}",
        lambda world, given=(_family, _kind, _protocol): f"descriptor {call('socket', *given)}",  # type: ignore[misc]
        source=_source,
        proof="claim",
        control=_who,  # type: ignore[arg-type]
    )


@attempt("network", "a server on the host's loopback", "network_namespaces(7)")
def tcp(world: World) -> None:
    with socket.create_connection(("127.0.0.1", world.ports["tcp"]), 2) as ours:
        ours.sendall(world.mark.encode())


@attempt("network", "a server on the host's loopback, by IPv6", "network_namespaces(7)")
def tcp6(world: World) -> None:
    with socket.create_connection(("::1", world.ports["tcp6"]), 2) as ours:
        ours.sendall(world.mark.encode())


@attempt("network", "a server on the host's loopback, by an address mapped into IPv6", "ipv6(7)")
def tcp_mapped(world: World) -> None:
    with socket.create_connection(("::ffff:127.0.0.1", world.ports["tcp"]), 2) as ours:
        ours.sendall(world.mark.encode())


@attempt("network", "a server on the host's loopback, by the address of nobody", "ip(7)")
def tcp_any(world: World) -> None:
    with socket.create_connection(("0.0.0.0", world.ports["tcp"]), 2) as ours:
        ours.sendall(world.mark.encode())


@attempt("network", "data with the first packet: no connect(2)", "tcp(7), MSG_FASTOPEN; landlock CVE-2025: TCP only")
def tcp_fast_open(world: World) -> None:
    with socket.socket() as ours:
        ours.sendto(world.mark.encode(), socket.MSG_FASTOPEN, ("127.0.0.1", world.ports["tcp"]))


@attempt("network", "the same by multipath TCP", "landlock(7): its rules are for TCP alone")
def mptcp(world: World) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as ours:
        ours.connect(("127.0.0.1", world.ports["tcp"]))
        ours.sendall(world.mark.encode())


@attempt("network", "a datagram to the host's loopback", "udp(7)")
def udp(world: World) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.sendto(world.mark.encode(), ("127.0.0.1", world.ports["udp"]))


@attempt("network", "a port of the host is taken already: the namespace is shared", "ip(7)", proof="claim")
def port_squat(world: World) -> str:
    with socket.socket() as ours:
        try:
            ours.bind(("127.0.0.1", world.ports["tcp"]))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return "taken"
            raise
    raise OSError(errno.ENOENT, "the port is free")


@attempt("network", "an address outside", "network_namespaces(7)", control="never",
         why="nothing outside is to be reached from a test")  # fmt: skip
def route_outside(world: World) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.connect(("192.0.2.1", 9))
        raise OSError(errno.ENETUNREACH, "asked, and sent nothing")


@attempt("network", "a name is looked up", "resolver(3)", control="never",
         why="nothing outside is to be asked from a test")  # fmt: skip
def name_server(world: World) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.sendto(world.mark.encode(), ("127.0.0.1", world.ports["udp"]))


@attempt("network", "the host's servers are listed", "proc_pid_net(5)", proof="claim")
def listeners(world: World) -> str | None:
    with open("/proc/net/tcp") as stream:
        rows = stream.read()
    return "listed" if f":{world.ports['tcp']:04X} " in rows else None


@attempt("network", "the host's unix servers are listed", "proc_pid_net(5)", proof="claim")
def unix_listeners(world: World) -> str | None:
    with open("/proc/net/unix") as stream:
        return "listed" if world.sockets["abstract-stream"] in stream.read() else None


@attempt("network", "a device is made", "rtnetlink(7)", proof="claim", control="root")
def new_device(world: World) -> str:
    """RTM_NEWLINK of a dummy that is called nothing that is there; taken away again."""
    name = b"esc0\0"
    link = struct.pack("<HH", 4 + len(name), 3) + name + bytes(-len(name) % 4)
    kind = struct.pack("<HH", 4 + 6, 1) + b"dummy\0" + bytes(2)
    info = struct.pack("<HH", 4 + len(kind), 18) + kind

    def ask(kind_of: int, flags: int, rest: bytes) -> None:
        body = struct.pack("<BxHiII", 0, 0, 0, 0, 0) + rest
        ours.send(struct.pack("<IHHII", 16 + len(body), kind_of, flags, 1, 0) + body)
        code = struct.unpack_from("<i", ours.recv(4096), 16)[0]
        if code:
            raise OSError(-code, os.strerror(-code))

    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as ours:
        ask(16, 0x605, link + info)
        ask(17, 0x5, link)
    return "made"


@attempt("network", "the loopback is taken down (to what it is)", "netdevice(7)", proof="claim", control="root")
def interface_flags(world: World) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        return f"set {ioctl(ours.fileno(), 0x8914, b'lo'.ljust(16, bytes(1)) + struct.pack('<H22x', 0x49))}"


@attempt("network", "a service of the host of a virtual machine", "vsock(7)", control="never",
         why="it would speak to the machine's host")  # fmt: skip
def vsock_host(world: World) -> None:
    call("socket", 40, 1, 0)
    raise OSError(errno.EPERM, "asked, and sent nothing")
