"""The steps that leave one way out of a network namespace: to the gate. Its listeners are made here and sent to the
host.

Launcher code: the rules in ``launcher.py`` hold here.

A socket belongs to the network namespace in which it was made, whichever process holds it. So the gate, outside,
accepts connections made inside. The namespace needs no interface but ``lo`` and no mudroom process. The listeners are
made before the command and listen from then on: a connection made before the gate has them waits in their queue.
"""

from __future__ import annotations

import _socket
import os

from mudroom.sandbox.launcher.kernel import EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EOPNOTSUPP
from mudroom.sandbox.launcher.netlink import (
    AF_INET,
    AF_INET6,
    NETLINK_NETFILTER,
    NETLINK_ROUTE,
    ask,
    redirect_to,
    routes,
    talk,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mudroom.sandbox.launcher.step_context import StepContext

_SOL_IP, _IP_PKTINFO = 0, 8
_SOL_IPV6, _IPV6_V6ONLY, _IPV6_RECVPKTINFO = 41, 26, 49
_QUEUE = 4096
"""A listener's backlog, in connections; the kernel limits it to net.core.somaxconn (listen(2))."""
_DNS = 53


def step_routes(_context: StepContext) -> None:
    """Bring ``lo`` up, and route every address to this namespace, so that each connection is answered here. IPv6
    missing in the kernel is no error: then no process can use it."""
    *needed, ipv6 = ask(NETLINK_ROUTE, routes())
    for number in (*needed, 0 if ipv6 in (EAFNOSUPPORT, EOPNOTSUPP) else ipv6):
        if number:
            raise OSError(number, os.strerror(number))


def step_listen(context: StepContext, proxy: int, redirected: int, ports: tuple[int, ...]) -> None:
    """Make the gate's listeners: the proxy, DNS, and a port to which nftables redirects every other connection. If the
    kernel offers no nftables to this process, or ``redirected`` is 0, each of the usual ``ports`` gets a listener
    instead, and other ports are refused. The user and network namespaces' descriptors go with them, for a host that
    wants to reach listeners inside."""
    sockets = [
        ("proxy", _start_listening(_bind_tcp(AF_INET, "127.0.0.1", proxy))),
        ("dns-udp", _bind_everywhere(_SOCK_DGRAM, _DNS)),
        ("dns-tcp", _start_listening(_bind_everywhere(_SOCK_STREAM, _DNS))),
    ]
    if redirected and _redirect(redirected):
        sockets.append(("redirected", _start_listening(_bind_everywhere(_SOCK_STREAM, redirected))))
    else:
        sockets += [("transparent", _start_listening(_bind_everywhere(_SOCK_STREAM, port))) for port in ports]
    context.listeners = [(kind, socket.detach()) for kind, socket in sockets]
    for name in ("user", "net"):  # a process that holds both, and made them, may create sockets inside (setns(2))
        context.listeners.append((name, os.open("/proc/self/ns/" + name, os.O_RDONLY | os.O_CLOEXEC)))


def step_listen_on_loopback(context: StepContext, places: tuple[tuple[str, int], ...]) -> None:
    """Make a gate listener at each place on the sandbox's own loopback. Then the command's servers cannot listen there,
    just as they could not on the host beside the server that the place stands for.

    A place needs no listener if another gate listener has its port at every address (``step_listen`` without nftables):
    that one judges by the address, too. Without IPv6 in the kernel, IPv6 places have no listener.
    """
    for address, port in places:
        is_ipv6 = ":" in address
        try:
            socket = _bind_tcp(AF_INET6 if is_ipv6 else AF_INET, address, port)
            _start_listening(socket)
        except OSError as error:
            if error.errno not in (EADDRINUSE, *((EAFNOSUPPORT, EADDRNOTAVAIL) if is_ipv6 else ())):
                raise
            continue
        shown = f"[{address}]" if is_ipv6 else address
        context.listeners.append((f"loopback={shown}:{port}", socket.detach()))


def _redirect(port: int) -> bool:
    try:
        talk(NETLINK_NETFILTER, redirect_to(port))
    except OSError:  # whatever is missing: without it there are fewer ways to the gate, and none past it
        return False
    return True


def step_hand_over(context: StepContext) -> None:
    """Send the listeners to the host, if it asked for them, and close them: without a gate, connections are refused.
    The message names the listeners, in descriptor order."""
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


def _start_listening(socket: _socket.socket) -> _socket.socket:
    socket.listen(_QUEUE)
    return socket


def _bind_tcp(family: int, address: str, port: int) -> _socket.socket:
    """Bind a TCP socket. SO_REUSEADDR: an earlier command's connections in the same network namespace that are still
    closing do not block the port (socket(7)); a listener on it does."""
    socket = _socket.socket(family, _SOCK_STREAM)
    socket.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    socket.bind((address, port))
    return socket


def _bind_everywhere(kind: int, port: int) -> _socket.socket:
    """Bind a socket to every address of both families. Each datagram carries its destination address (ipv6(7),
    ip(7))."""
    try:
        socket = _socket.socket(AF_INET6, kind)
        socket.setsockopt(_SOL_IPV6, _IPV6_V6ONLY, 0)
        if kind == _SOCK_DGRAM:
            socket.setsockopt(_SOL_IPV6, _IPV6_RECVPKTINFO, 1)
        socket.bind(("::", port))
    except OSError as error:
        if error.errno not in (EAFNOSUPPORT, EADDRNOTAVAIL):
            raise
        socket = _socket.socket(AF_INET, kind)
        if kind == _SOCK_DGRAM:
            socket.setsockopt(_SOL_IP, _IP_PKTINFO, 1)
        socket.bind(("0.0.0.0", port))
    return socket


LISTENER_STEPS = {
    "routes": step_routes,
    "listen": step_listen,
    "listen_on_loopback": step_listen_on_loopback,
    "hand_over": step_hand_over,
}
