"""The steps that leave one way out of a network namespace: to the gate, whose listeners are made here and handed out.

Part of the launcher's process: the rules at the top of ``launcher.py`` hold here.

A socket belongs to the namespace it was made in, whoever holds it. So the gate, outside, accepts what connects inside,
and the namespace needs neither an interface but ``lo`` nor a process of ours. The listeners are made ahead of the
command and listen from then on: a connection that comes before the gate has them waits in their queue.
"""

from __future__ import annotations

import _socket
import os

from mudroom.sandbox.launcher.kernel import EADDRNOTAVAIL, EAFNOSUPPORT, EOPNOTSUPP
from mudroom.sandbox.launcher.netlink import (
    AF_INET,
    AF_INET6,
    NETLINK_NETFILTER,
    NETLINK_ROUTE,
    everything_is_local,
    redirection,
    talk,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mudroom.sandbox.launcher.step import StepContext

_SOL_IP, _IP_PKTINFO = 0, 8
_SOL_IPV6, _IPV6_V6ONLY, _IPV6_RECVPKTINFO = 41, 26, 49
_QUEUE = 4096
"""Connections that may wait to be accepted; the kernel takes no more than net.core.somaxconn (listen(2))."""
_DNS = 53


def step_routes(_context: StepContext) -> None:
    """Whatever address is connected to, it is answered here. Without IPv6 in the kernel nothing could use it."""
    talk(NETLINK_ROUTE, [everything_is_local(AF_INET)])
    try:
        talk(NETLINK_ROUTE, [everything_is_local(AF_INET6)])
    except OSError as error:
        if error.errno not in (EAFNOSUPPORT, EOPNOTSUPP):
            raise


def step_listen(context: StepContext, proxy: int, redirected: int, ports: tuple[int, ...]) -> None:
    """Make the gate's listeners: the proxy, DNS, and one to which nftables redirects every other connection. Where the
    kernel has no nftables for us, or without a port for it, one for each of the usual ``ports`` instead; others are
    refused then. The namespaces themselves go with them, for who wants to reach what listens inside."""
    sockets = [
        ("proxy", _listen(_tcp(AF_INET, "127.0.0.1", proxy))),
        ("dns-udp", _everywhere(_SOCK_DGRAM, _DNS)),
        ("dns-tcp", _listen(_everywhere(_SOCK_STREAM, _DNS))),
    ]
    if redirected and _redirect(redirected):
        sockets.append(("redirected", _listen(_everywhere(_SOCK_STREAM, redirected))))
    else:
        sockets += [("transparent", _listen(_everywhere(_SOCK_STREAM, port))) for port in ports]
    context.listeners = [(kind, one.detach()) for kind, one in sockets]
    for name in ("user", "net"):  # whoever holds both, and is who made them, may make sockets in there (setns(2))
        context.listeners.append((name, os.open("/proc/self/ns/" + name, os.O_RDONLY | os.O_CLOEXEC)))


def _redirect(port: int) -> bool:
    try:
        talk(NETLINK_NETFILTER, redirection(port))
    except OSError:  # whatever is missing there: without it there are fewer ways to the gate, and none past it
        return False
    return True


def step_hand_over(context: StepContext) -> None:
    """Send the listeners to the host, if it asked for them, and keep none: what connects then is refused. Which is
    which is told in the order of the descriptors."""
    if context.gate >= 0:
        channel = _socket.socket(fileno=context.gate)
        rights = b"".join(descriptor.to_bytes(4, "little") for _kind, descriptor in context.listeners)
        kinds = " ".join(kind for kind, _descriptor in context.listeners).encode()
        channel.sendmsg([kinds], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        channel.close()
    for _kind, descriptor in context.listeners:
        os.close(descriptor)
    context.listeners, context.gate = [], -1


_SOCK_STREAM, _SOCK_DGRAM = _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC, _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC


def _listen(made: _socket.socket) -> _socket.socket:
    made.listen(_QUEUE)
    return made


def _tcp(family: int, address: str, port: int) -> _socket.socket:
    """Connections of a command before us in the same network namespace, which wait for their end, are not in the way
    (socket(7), SO_REUSEADDR); whoever listens is."""
    made = _socket.socket(family, _SOCK_STREAM)
    made.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    made.bind((address, port))
    return made


def _everywhere(kind: int, port: int) -> _socket.socket:
    """Bound to every address of both families; the one that was asked for comes with each datagram (ipv6(7), ip(7))."""
    try:
        made = _socket.socket(AF_INET6, kind)
        made.setsockopt(_SOL_IPV6, _IPV6_V6ONLY, 0)
        if kind == _SOCK_DGRAM:
            made.setsockopt(_SOL_IPV6, _IPV6_RECVPKTINFO, 1)
        made.bind(("::", port))
    except OSError as error:
        if error.errno not in (EAFNOSUPPORT, EADDRNOTAVAIL):
            raise
        made = _socket.socket(AF_INET, kind)
        if kind == _SOCK_DGRAM:
            made.setsockopt(_SOL_IP, _IP_PKTINFO, 1)
        made.bind(("0.0.0.0", port))
    return made


LISTENING = {"routes": step_routes, "listen": step_listen, "hand_over": step_hand_over}
